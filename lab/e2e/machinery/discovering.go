package machinery

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const (
	aggregated     = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedBeta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
)

// foreign reports whether a group belongs to another side.
func foreign(e *Env, group string) bool {
	return strings.HasSuffix(group, ".machinery.example") && group != e.Group
}

// withoutForeign removes what other sides have made from a discovery document.
func withoutForeign(e *Env, document Object) {
	for list, name := range map[string]func(Object) string{
		"groups": func(o Object) string { return text(o, "name") }, "items": nameOf,
	} {
		all, ok := document[list].([]any)
		if !ok {
			continue
		}
		kept := []any{}
		for _, g := range all {
			o, _ := g.(map[string]any)
			// Groups of the same priority are sorted by name.
			if !foreign(e, name(o)) && name(o) != e.Group {
				kept = append(kept, o)
			}
		}
		document[list] = kept
	}
}

// discovery is discovery.go and server_version.go: what the server offers, group by group.
func discovery(e *Env) {
	for _, path := range []string{
		"/api", "/api/v1", "/api/", "/api/v1/", "/api/v2", "/apis/apps", "/apis/apps/v1", "/apis/apps/v1/", "/apis/apps/v0",
		"/apis/nothing.example", "/apis/nothing.example/v1", "/apis/discovery.k8s.io/v1", "/version", "/version/",
	} {
		e.Get(path, path, "")
	}
	e.Get("the own group", "/apis/"+e.Group, "")
	own := e.Read("", Request{Path: "/apis/" + e.Group + "/v1", Plain: true})
	resources, _ := own.JSON["resources"].([]any)
	for _, r := range resources {
		if o, _ := r.(map[string]any); o["storageVersionHash"] != nil {
			o["storageVersionHash"] = "some" // it depends on the group's name as well
		}
	}
	e.Note("the own version", own.seen(false))
	a := e.Read("all groups", Request{Path: "/apis", Plain: true})
	withoutForeign(e, a.JSON)
	e.Note("all groups", a.seen(false))
	for _, group := range []string{"apps", "batch", "coordination.k8s.io"} {
		found := false
		groups, _ := a.JSON["groups"].([]any)
		for _, g := range groups {
			o, _ := g.(map[string]any)
			found = found || text(o, "name") == group && text(o, "preferredVersion", "version") == "v1"
		}
		e.Expect("the preferred version of "+group, found)
	}
	for _, accept := range []string{"text/plain", "application/yaml", protobuf, "*/*", "application/cbor"} {
		for _, path := range []string{"/version", "/api/v1", "/apis/apps/v1"} {
			e.decoded(path+" as "+accept, path, "", accept)
		}
	}
	for _, method := range []string{http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodDelete} {
		for _, path := range []string{"/version", "/api", "/apis/apps/v1"} {
			e.Read(method+" "+path, Request{Method: method, Path: path})
		}
	}
}

// discoveryAggregated is aggregated_discovery.go: everything at once, and not again if nothing has changed.
func discoveryAggregated(e *Env) {
	for _, accept := range []string{
		aggregated, aggregatedBeta, aggregated + "," + aggregatedBeta + ",application/json",
		"application/json;g=apidiscovery.k8s.io;v=v1;as=APIGroupDiscoveryList",
		"application/json;g=apidiscovery.k8s.io;v=v1;as=APIGroupDiscoveryList,application/json",
	} {
		for _, path := range []string{"/api", "/apis"} {
			a := e.Read("", Request{Path: path, Header: http.Header{"Accept": {accept}}, Plain: true})
			withoutForeign(e, a.JSON)
			seen := a.seen(false)
			seen["etag"] = a.Header.Get("ETag") != ""
			e.Note(path+" as "+accept, seen)
			if path == "/apis" || a.Header.Get("ETag") == "" { // the other sides change it
				continue
			}
			e.Read(path+" again as "+accept, Request{Path: path, Header: http.Header{
				"Accept": {accept}, "If-None-Match": {a.Header.Get("ETag")},
			}})
		}
	}
}

// openAPI is openapiv3.go and crd_publish_openapi.go, as far as a client can tell that it has the whole document.
func openAPI(e *Env) {
	root := e.Read("", Request{Path: "/openapi/v3", Plain: true})
	paths, _ := root.JSON["paths"].(map[string]any)
	e.Expect("version 3 has the core group", paths["api/v1"] != nil)
	own := "apis/" + e.Group + "/v1"
	e.Until("version 3 has the own group", func() error {
		root, err := e.ask(e.Reader, Request{Path: "/openapi/v3"})
		if err != nil {
			return err
		}
		paths, _ = root.JSON["paths"].(map[string]any)
		if paths[own] == nil {
			return fmt.Errorf("no %s", own)
		}
		return nil
	})
	for _, path := range []string{"api/v1", "apis/discovery.k8s.io/v1", own} {
		at, _ := paths[path].(map[string]any)
		address, err := url.Parse(text(at, "serverRelativeURL"))
		e.Must(err)
		for _, query := range []url.Values{address.Query(), {}} {
			a := e.Read("", Request{Path: address.Path, Query: query, Plain: true})
			seen := a.seen(true)
			seen["etag"], seen["expires"] = a.Header.Get("ETag") != "", a.Header.Get("Expires") != ""
			if path != own {
				seen["digest"] = fmt.Sprintf("%x", sha256.Sum256(a.Raw))
			}
			e.Note(fmt.Sprintf("%s, by its hash: %v", path, len(query) > 0), seen)
			e.Read(fmt.Sprintf("%s again, by its hash: %v", path, len(query) > 0), Request{
				Path: address.Path, Query: query, Header: http.Header{"If-None-Match": {a.Header.Get("ETag")}},
			})
		}
		e.Read(path+" by a wrong hash", Request{Path: address.Path, Query: url.Values{"hash": {"0"}}, Bodiless: true})
	}
	a := e.Read("", Request{Path: "/openapi/v2", Plain: true})
	seen := a.seen(true)
	seen["swagger"], seen["title"] = a.JSON["swagger"], field(a.JSON, "info", "title")
	definition, err := json.Marshal(field(a.JSON, "definitions", "io.k8s.api.core.v1.ConfigMap"))
	e.Must(err)
	seen["definition"] = string(definition)
	e.Note("version 2", seen)
	e.Read("version 2 in Protobuf", Request{Path: "/openapi/v2", Bodiless: true, Header: http.Header{
		"Accept": {"application/com.github.proto-openapi.spec.v2@v1.0+protobuf"},
	}})
	e.Read("version 2 as text", Request{Path: "/openapi/v2", Bodiless: true, Header: http.Header{"Accept": {"text/plain"}}})
}

// unknown asks for what does not exist, or not for everybody.
func unknown(e *Env) {
	for _, path := range []string{
		"/nothing", "/apis/apps/v9/deployments", "/api/v1/nothing", "/api/v1/namespaces/" + e.Namespace + "/nothing",
		"/apis/nothing.example/v1/things", "/api/v1/watch/nothing", "/apis/apps/v1/namespaces/" + e.Namespace + "/pods",
		"/api/v1/namespaces/" + e.Namespace + "/configmaps/x/y/z", "/healthz/nothing", "/livez/ping", "/livez",
		"/readyz", "/healthz",
		"/.well-known/openid-configuration", "/openid/v1/jwks", "/api/v1/namespaces/not-there",
	} {
		e.Get(path, path, "")
		e.Get(path+", a watch", path, "watch=true&timeoutSeconds=1&labelSelector=nothing%3Dhere")
	}
	// A caller with the right finds nothing; one without it is told so.
	for _, path := range []string{
		"/apis/rbac.authorization.k8s.io/v1/namespaces/" + e.Namespace + "/roles",
		"/api/v1/namespaces/" + e.Namespace + "/resourcequotas", "/api/v1/namespaces/" + e.Namespace + "/secrets/nothing",
		"/api/v1/namespaces/" + e.Namespace + "/secrets", "/api/v1/namespaces/" + e.Namespace + "/pods/nothing/log",
	} {
		e.Get(path, path, "labelSelector=nothing%3Dhere")
		e.Get(path+", a watch", path, "watch=true&timeoutSeconds=1&labelSelector=nothing%3Dhere")
		e.Get(path+", of one", path, "fieldSelector=metadata.name%3Dnothing")
	}
}

// clusterScoped is about a resource without namespaces.
func clusterScoped(e *Env) {
	byName := "fieldSelector=" + url.QueryEscape("metadata.name="+e.Namespace)
	path := "/api/v1/namespaces"
	// kube-controller-manager does not mark it, but the API server's admission may come late.
	e.Get("list", path, byName)
	e.GetAs("a table", path, byName, asTable)
	e.GetAs("metadata", path, byName, asPartials)
	e.Get("get", path+"/"+e.Namespace, "")
	e.GetAs("get a table", path+"/"+e.Namespace, "", asTable)
	list := e.Get("list before", path, byName)
	w := e.Watch("watch", path, byName+"&resourceVersion="+versionOf(list.JSON))
	defer w.Close()
	e.Write("label it", mergePatch(path+"/"+e.Namespace, Object{"metadata": Object{"labels": Object{"a": "b"}}}))
	w.Take(first("MODIFIED"))
	for _, query := range []string{"fieldSelector=status.phase%3DActive", "fieldSelector=metadata.namespace%3Dx",
		"fieldSelector=spec.x%3Dy"} {
		e.Get("list "+query, path, query+"&labelSelector=nothing%3Dhere")
	}
	for _, path := range []string{
		"/apis/node.k8s.io/v1/runtimeclasses", "/apis/storage.k8s.io/v1/csidrivers", "/apis/apps.openyurt.io/v1beta2/nodepools",
	} {
		e.Get(path, path, "labelSelector=nothing%3Dhere")
		e.GetAs(path+", a table", path, "labelSelector=nothing%3Dhere", asTable)
	}
}

// requestTimeout is request_timeout.go.
func requestTimeout(e *Env) {
	one := of("configmaps").create(e, "one", 1)
	of("configmaps").fresh(e, values(mine), one)
	for _, timeout := range []string{"invalid", "0s", "1s", "3m", "100h", "-1s", "5"} {
		query := "timeout=" + timeout
		e.Get("discovery, "+query, "/api/v1/namespaces/"+e.Namespace+"/configmaps/one", query)
		e.Get("a list, "+query, of("configmaps").path(e), mine+"&"+query)
		e.Get("version, "+query, "/version", query)
		w := e.Watch("a watch, "+query, of("configmaps").path(e), mine+"&timeoutSeconds=1&"+query)
		w.Take(never)
		w.Close()
	}
}

// identity is about who a client is to the API.
func identity(e *Env) {
	review := Object{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
	a := e.Read("", Request{
		Method: http.MethodPost, Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", Body: review, Plain: true,
	})
	user, _ := field(a.JSON, "status", "userInfo").(map[string]any)
	delete(user, "extra") // ids of the credentials
	e.Note("who am I", a.seen(false))
	for _, verb := range []string{"get", "list", "create", "delete"} {
		for _, resource := range []string{"configmaps", "secrets", "pods", "nodes"} {
			e.Read(fmt.Sprintf("may I %s %s", verb, resource), Request{
				Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
				Body: Object{
					"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
					"spec": Object{"resourceAttributes": Object{"namespace": e.Namespace, "verb": verb, "resource": resource}},
				},
			})
		}
	}
	e.Read("a write that a node may not", Request{
		Method: http.MethodPost, Path: "/api/v1/namespaces/" + e.Namespace + "/secrets",
		Body:  Object{"apiVersion": "v1", "kind": "Secret", "metadata": Object{"name": "s"}, "data": Object{}},
		Query: url.Values{"dryRun": {"All"}},
	})
	for _, header := range []http.Header{
		{"Impersonate-User": {"somebody"}}, {"Impersonate-User": {"somebody"}, "Impersonate-Group": {"system:masters"}},
		{"Impersonate-Group": {"system:masters"}}, {"Authorization": {"Bearer nonsense"}}, {"Authorization": {"Basic eDp5"}},
		{"X-Remote-User": {"somebody"}},
	} {
		e.Read(fmt.Sprintf("with %v", header), Request{
			Path: "/api/v1/namespaces/" + e.Namespace + "/configmaps", Header: header,
			Query: url.Values{"labelSelector": {"nothing=here"}},
		})
	}
}
