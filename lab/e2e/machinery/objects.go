package machinery

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// subresources are parts of objects with their own API.
func subresources(e *Env) {
	pod := Object{
		"apiVersion": "v1", "kind": "Pod", "metadata": Object{"name": "one", "labels": Object{"app": "one"}},
		"spec": Object{
			"schedulerName": "nobody", "terminationGracePeriodSeconds": 3, "automountServiceAccountToken": false,
			"containers": []any{Object{"name": "c", "image": "registry.local/web:1"}},
		},
	}
	e.Until("Pods can be created", func() error { // the namespace gets its ServiceAccount a moment later
		a, err := e.ask(e.Writer, post(e.at("pods"), pod, "dryRun=All"))
		if err == nil && a.Status != http.StatusCreated {
			err = errors.New(string(a.Raw))
		}
		return err
	})
	one := e.Write("create a Pod", post(e.at("pods"), pod, ""))
	w := e.Watch("watch it", e.at("pods"), "labelSelector=app%3Done&resourceVersion="+versionOf(one))
	defer w.Close()
	e.Try("its status", mergePatch(e.at("pods", "one", "status"), Object{
		"status": Object{"message": "hello"}, "spec": Object{"activeDeadlineSeconds": 1},
	}))
	e.Try("its status does not change with it", mergePatch(e.at("pods", "one"), Object{"status": Object{"message": "other"}}))
	e.Try("what cannot change", mergePatch(e.at("pods", "one"), Object{"spec": Object{"schedulerName": "x"}}))
	e.Try("its logs", Request{Path: e.at("pods", "one", "log")})
	e.Try("exec in it", Request{Method: http.MethodPost, Path: e.at("pods", "one", "exec"), Query: values("command=sh")})
	e.Try("its resources", Request{Path: e.at("pods", "one", "resize")})
	e.Try("containers that come and go", Request{Path: e.at("pods", "one", "ephemeralcontainers")})
	e.Try("evict it, dry", Request{Method: http.MethodPost, Path: e.at("pods", "one", "eviction"), Body: Object{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": Object{"name": "one"},
		"deleteOptions": Object{"dryRun": []any{"All"}},
	}})
	e.GetAs("as a table", e.at("pods"), "labelSelector=app%3Done", asTable)
	e.Try("by fields", Request{Path: e.at("pods"),
		Query: values("fieldSelector=spec.schedulerName%3Dnobody,status.phase%3DPending")})
	e.Try("delete it", Request{Method: http.MethodDelete, Path: e.at("pods", "one"), Query: values("gracePeriodSeconds=1")})
	w.Take(first("DELETED"))
	e.Write("create a Deployment", Request{
		Method: http.MethodPost, Path: e.at("deployments"), Body: deployment("one"), Query: values("dryRun=All"),
	})
	replicaSet := deployment("one")
	spec, _ := replicaSet["spec"].(map[string]any)
	delete(spec, "paused")
	replicaSet["kind"] = "ReplicaSet"
	e.Write("create a ReplicaSet", Request{
		Method: http.MethodPost, Path: e.at("replicasets"), Body: replicaSet, Bodiless: true,
	})
	scale := e.do(e.Reader, "", Request{Path: e.at("replicasets", "one", "scale"), Plain: true})
	e.Note("its scale", field(scale.JSON, "spec"))
	e.Try("as another kind", Request{Path: e.at("replicasets", "one", "scale"),
		Header: http.Header{"Accept": {asPartial}}, Bodiless: true})
}

// quota is resource_quota.go: usage is counted, and too much is refused.
func quota(e *Env) {
	path := e.at("resourcequotas", "one")
	e.Write("create", Request{Method: http.MethodPost, Path: e.at("resourcequotas"), Body: Object{
		"apiVersion": "v1", "kind": "ResourceQuota", "metadata": Object{"name": "one"},
		"spec": Object{"hard": Object{"count/podtemplates": "1", "services.nodeports": "0"}},
	}})
	used := func(want string) {
		e.Until("the quota says "+want, func() error {
			a, err := e.ask(e.Reader, Request{Path: path})
			if err != nil {
				return err
			}
			return same(text(a.JSON, "status", "used", "count/podtemplates"), want)
		})
	}
	used("0")
	e.Note("its status", field(e.do(e.Reader, "", Request{Path: path, Plain: true}).JSON, "status"))
	of("podtemplates").create(e, "one", 1)
	used("1")
	a := e.Try("one too many", Request{
		Method: http.MethodPost, Path: of("podtemplates").path(e), Body: of("podtemplates").object(e, "two", 2),
	})
	e.Expect("which is forbidden", a.Status == http.StatusForbidden)
	e.Try("a quota of nonsense", Request{Method: http.MethodPost, Path: e.at("resourcequotas"), Body: Object{
		"apiVersion": "v1", "kind": "ResourceQuota", "metadata": Object{"name": "bad"},
		"spec": Object{"hard": Object{"pods": "many"}},
	}})
	of("podtemplates").remove(e, "one")
}

// events are ordinary objects in two groups.
func events(e *Env) {
	event := Object{
		"apiVersion": "v1", "kind": "Event", "metadata": Object{"name": "one", "namespace": e.Namespace},
		"involvedObject": Object{"kind": "Pod", "name": "x", "namespace": e.Namespace}, "reason": "Tried", "type": "Normal",
		"message": "it was tried", "source": Object{"component": "machinery"},
	}
	e.Try("create", post(e.at("events"), event, ""))
	e.Try("count it", patchAs("strategic-merge-patch+json", e.at("events", "one"), Object{"count": 2}, ""))
	e.Try("in the other group", Request{Path: "/apis/events.k8s.io/v1/namespaces/" + e.Namespace + "/events/one"})
	e.Try("by fields", Request{Path: e.at("events"), Query: values("fieldSelector=involvedObject.kind%3DPod,reason%3DTried")})
	e.Try("by fields that are none", Request{Path: e.at("events"), Query: values("fieldSelector=message%3Dx")})
	event["involvedObject"] = Object{"namespace": "elsewhere"}
	e.Try("about another namespace", post(e.at("events"), event, ""))
	e.Try("delete all", Request{Method: http.MethodDelete, Path: e.at("events")})
}

// badBodies are each refused in another way.
func badBodies(e *Env) {
	bad := configMap("A_B", "a", "b")
	large := configMap("large", "a", strings.Repeat("x", 2<<20))
	huge := strings.Repeat("x", 4<<20)
	elsewhere := configMap("one", "a", "b")
	elsewhere["metadata"] = Object{"name": "one", "namespace": "elsewhere"}
	for _, b := range []struct {
		step, contentType string
		body              any
	}{
		{"no JSON", "application/json", "nonsense"}, {"nothing", "application/json", ""}, {"an array", "application/json", "[]"},
		{"an unknown type", "text/plain", configMap("one", "a", "b")}, {"form data", "application/x-www-form-urlencoded", "a=b"},
		{"another kind", "application/json", deployment("one")}, {"a bad name", "application/json", bad},
		{"another namespace", "application/json", elsewhere}, {"a large object", "application/json", large},
		{"a huge body", "application/json", huge},
		{"a list", "application/json", `{"apiVersion":"v1","kind":"ConfigMapList","items":[]}`},
		{"a wrong type of a field", "application/json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":1}}`},
		{"Protobuf that is none", protobuf, "nonsense"},
		{"YAML", "application/yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y}\n"},
		{"bad YAML", "application/yaml", "a: b: c"}, {"CBOR", "application/cbor", "\xa0"},
		{"a bad key", "application/json", configMap("one", "a b", "c")}, {"no content type", "", configMap("none", "a", "b")},
	} {
		e.Try(b.step, Request{
			Method: http.MethodPost, Path: e.at("configmaps"), Body: b.body, Header: http.Header{"Content-Type": {b.contentType}},
		})
	}
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		e.Try(method+" to a collection", Request{Method: method, Path: e.at("configmaps"), Body: configMap("one", "a", "b")})
	}
	e.Try("POST to an object", post(e.at("configmaps", "one"), configMap("one", "a", "b"), ""))
	e.Try("a namespace that is not there", Request{
		Method: http.MethodPost, Path: "/api/v1/namespaces/not-there/configmaps", Body: configMap("one", "a", "b"),
	})
	long := configMap(strings.Repeat("a.b-", 63)+"c", "a", "b")
	e.Try("a long name", post(e.at("configmaps"), long, ""))
	long = configMap(strings.Repeat("a.b-", 63)+"cd", "a", "b")
	e.Try("too long a name", post(e.at("configmaps"), long, ""))
}

// tokens are made, and say who somebody is.
func tokens(e *Env) {
	e.Write("create", Request{Method: http.MethodPost, Path: e.at("serviceaccounts"), Body: Object{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": Object{"name": "one"},
	}})
	request := Request{Method: http.MethodPost, Path: e.at("serviceaccounts", "one", "token"), Plain: true, Body: Object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": Object{"expirationSeconds": 700},
	}}
	a := e.Try("", request)
	token := text(a.JSON, "status", "token")
	e.Expect("there is a token", a.Status == http.StatusCreated && len(token) > 100, a.Status)
	review := e.Try("", Request{Method: http.MethodPost, Path: "/apis/authentication.k8s.io/v1/tokenreviews",
		Plain: true, Body: Object{
			"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": Object{"token": token},
		}})
	e.Note("whose it is", field(review.JSON, "status", "user", "username"))
	bearer := http.Header{"Authorization": {"Bearer " + token}}
	who := e.Read("", Request{
		Method: http.MethodPost, Path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", Header: bearer, Plain: true,
		Body: Object{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
	})
	e.Note("who its bearer is", field(who.JSON, "status", "userInfo", "username"))
	e.Read("what its bearer may not", Request{Path: e.at("secrets"), Header: bearer})
	e.Read("a watch that its bearer may not", Request{Path: e.at("endpoints"), Header: bearer, Query: values("watch=true")})
	request.Plain = false
	request.Body = Object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": Object{"expirationSeconds": 1}}
	e.Try("a token for a second", request)
	e.Read("as somebody else", Request{Path: e.at("configmaps"), Header: http.Header{
		"Impersonate-User": {"system:serviceaccount:" + e.Namespace + ":one"},
	}})
}

// namespaceLife is namespace.go.
func namespaceLife(e *Env) {
	path := "/api/v1/namespaces/" + e.Namespace + "-more"
	body := Object{"apiVersion": "v1", "kind": "Namespace", "metadata": Object{"name": e.Namespace + "-more"}}
	e.Write("create", post("/api/v1/namespaces", body, ""))
	e.Try("patch", mergePatch(path, Object{"metadata": Object{"labels": Object{"a": "b"}}}))
	e.Try("its status", mergePatch(path+"/status", Object{"status": Object{"conditions": []any{
		Object{"type": "Tried", "status": "True", "reason": "E2E", "message": "m"},
	}}}))
	e.Try("finalize", Request{Method: http.MethodPut, Path: path + "/finalize", Body: Object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": Object{"name": e.Namespace + "-more"},
		"spec": Object{"finalizers": []any{"kubernetes"}},
	}})
	e.Write("fill", post(path+"/configmaps", configMap("one", "a", "b"), ""))
	deleted := e.Try("delete", Request{Method: http.MethodDelete, Path: path})
	e.Expect("it is ending", text(deleted.JSON, "status", "phase") == "Terminating")
	late := e.Try("fill it again",
		Request{Method: http.MethodPost, Path: path + "/configmaps", Body: configMap("two", "a", "b"), Bodiless: true})
	e.Expect("which is refused", late.Status == http.StatusForbidden || late.Status == http.StatusNotFound)
	e.Until("it is gone", func() error {
		a, err := e.ask(e.Reader, Request{Path: path})
		if err == nil && a.Status != http.StatusNotFound {
			err = fmt.Errorf("%d", a.Status)
		}
		return err
	})
}

// flowControl is flowcontrol.go's API operations.
func flowControl(e *Env) {
	root := "/apis/flowcontrol.apiserver.k8s.io/v1/"
	level := Object{
		"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
		"metadata": Object{"name": e.Namespace},
		"spec": Object{"type": "Limited",
			"limited": Object{"nominalConcurrencyShares": 1, "limitResponse": Object{"type": "Reject"}}},
	}
	path := root + "prioritylevelconfigurations"
	e.Try("create a level", post(path, level, "dryRun=All"))
	level["spec"] = Object{"type": "Nonsense"}
	e.Try("create a bad level", post(path, level, "dryRun=All"))
	e.GetAs("the exempt one", path+"/exempt", "", asPartial)
	e.Try("a schema that is not there", Request{Path: root + "flowschemas/nobody"})
}

// admissionPolicy is validatingadmissionpolicy.go: a rule that refuses and warns.
func admissionPolicy(e *Env) {
	root := "/apis/admissionregistration.k8s.io/v1/"
	e.Write("create a policy", Request{Method: http.MethodPost, Path: root + "validatingadmissionpolicies", Body: Object{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
		"metadata": Object{"name": e.Namespace},
		"spec": Object{
			"matchConstraints": Object{"resourceRules": []any{Object{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"},
				"resources": []any{"configmaps"},
			}}},
			"validations": []any{Object{"expression": "object.metadata.name != 'forbidden'", "message": "it is forbidden"}},
		},
	}, Bodiless: true})
	e.Write("bind it", Request{Method: http.MethodPost, Path: root + "validatingadmissionpolicybindings", Body: Object{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
		"metadata": Object{"name": e.Namespace},
		"spec": Object{
			"policyName": e.Namespace, "validationActions": []any{"Warn", "Audit"},
			"matchResources": Object{"namespaceSelector": Object{
				"matchLabels": Object{"kubernetes.io/metadata.name": e.Namespace},
			}},
		},
	}, Bodiless: true})
	post := Request{
		Method: http.MethodPost, Path: e.at("configmaps"), Body: configMap("forbidden", "a", "b"), Query: values("dryRun=All"),
	}
	e.Until("the policy warns", func() error {
		a, err := e.ask(e.Writer, post)
		if err == nil && a.Header.Get("Warning") == "" {
			err = errors.New("no warning")
		}
		return err
	})
	e.Try("what is warned of", post)
	e.Try("have it deny", Request{
		Method: http.MethodPatch, Path: root + "validatingadmissionpolicybindings/" + e.Namespace, Bodiless: true,
		Body:   Object{"spec": Object{"validationActions": []any{"Deny"}}},
		Header: http.Header{"Content-Type": {"application/merge-patch+json"}},
	})
	e.Until("the policy denies", func() error {
		a, err := e.ask(e.Writer, post)
		if err == nil && a.Status != http.StatusUnprocessableEntity {
			err = fmt.Errorf("%d", a.Status)
		}
		return err
	})
	e.Try("what is denied", post)
}
