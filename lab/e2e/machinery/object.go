package machinery

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Object is an object in JSON.
type Object = map[string]any

func field(o Object, path ...string) any {
	var v any = o
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

func text(o Object, path ...string) string {
	s, _ := field(o, path...).(string)
	return s
}

func nameOf(o Object) string { return text(o, "metadata", "name") }

func versionOf(o Object) string { return text(o, "metadata", "resourceVersion") }

// listed returns the objects of a list.
func listed(list Object) []Object {
	items, _ := list["items"].([]any)
	out := make([]Object, 0, len(items))
	for _, i := range items {
		o, _ := i.(map[string]any)
		out = append(out, o)
	}
	return out
}

// kind is a resource that the reading checks go through. A hub may serve each in another way.
type kind struct {
	name string
	// group and version belong to the API, resource to the path. "*" stands for the suite's own group.
	group, version, resource, kind string
	// pool says that a hub has one copy of all of it, as of a pool resource.
	pool bool
	// content returns an object's content besides metadata. Another n makes another content.
	content func(n int) Object
}

// kinds are the kinds that the checks use. The first three are the pool resources that hubs share by default; Services also
// matter for service topology. Hubs keep the others for their node's programs: built-in types with and without their own columns
// in tables, and custom resources. Nothing in a cloud changes these objects except the checks.
var kinds = []kind{
	{"endpointslices", "discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true, func(n int) Object {
		return Object{
			"addressType": "IPv4", "endpoints": []any{Object{"addresses": []any{fmt.Sprintf("192.0.2.%d", n)}}},
			"ports": []any{Object{"name": "web", "port": 80 + n, "protocol": "TCP"}},
		}
	}},
	{"endpoints", "", "v1", "endpoints", "Endpoints", true, func(n int) Object {
		return Object{"subsets": []any{Object{
			"addresses": []any{Object{"ip": fmt.Sprintf("192.0.2.%d", n)}},
			"ports":     []any{Object{"name": "web", "port": 80 + n, "protocol": "TCP"}},
		}}}
	}},
	{"services", "", "v1", "services", "Service", true, func(n int) Object {
		return Object{"spec": Object{"ports": []any{Object{"name": "web", "port": 80 + n, "protocol": "TCP"}}}}
	}},
	{"configmaps", "", "v1", "configmaps", "ConfigMap", false, func(n int) Object {
		return Object{"data": Object{"n": fmt.Sprint(n)}}
	}},
	{"podtemplates", "", "v1", "podtemplates", "PodTemplate", false, func(n int) Object {
		return Object{"template": Object{"spec": Object{"containers": []any{
			Object{"name": "c", "image": fmt.Sprintf("registry.local/image:%d", n)},
		}}}}
	}},
	{"widgets", "*", "v1", "widgets", "Widget", false, func(n int) Object {
		return Object{"spec": Object{"size": n, "color": []string{"red", "green", "blue"}[n%3]}}
	}},
}

// of returns the kind of this name.
func of(name string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
}

// root returns where a kind's API is.
func (k kind) root(e *Env) string {
	switch k.group {
	case "":
		return "/api/" + k.version
	case "*":
		return "/apis/" + e.Group + "/" + k.version
	default:
		return "/apis/" + k.group + "/" + k.version
	}
}

// path returns the path of the collection in the check's namespace, or of an object and its parts.
func (k kind) path(e *Env, name ...string) string {
	return strings.Join(append([]string{k.root(e), "namespaces", e.Namespace, k.resource}, name...), "/")
}

func (k kind) apiVersion(e *Env) string {
	return strings.TrimPrefix(strings.TrimPrefix(k.root(e), "/apis/"), "/api/")
}

// object returns an object. Labels are pairs.
func (k kind) object(e *Env, name string, n int, labels ...string) Object {
	marks := Object{"endpointslice.kubernetes.io/skip-mirror": "true"} // otherwise Endpoints would make EndpointSlices
	for i := 0; i+1 < len(labels); i += 2 {
		marks[labels[i]] = labels[i+1]
	}
	o := Object{
		"apiVersion": k.apiVersion(e), "kind": k.kind,
		"metadata": Object{"name": name, "namespace": e.Namespace, "labels": marks},
	}
	maps.Copy(o, k.content(n))
	return o
}

// create makes the writer create an object.
func (k kind) create(e *Env, name string, n int, labels ...string) Object {
	return e.Write("create "+name, Request{
		Method: http.MethodPost, Path: k.path(e), Body: k.object(e, name, n, labels...),
	})
}

// createdQuietly is create without a step.
func (k kind) createdQuietly(e *Env, name string, n int, labels ...string) Object {
	return e.Write("create "+name, Request{
		Method: http.MethodPost, Path: k.path(e), Body: k.object(e, name, n, labels...), Plain: true,
	})
}

// label sets a label, or removes it if value is empty.
func (k kind) label(e *Env, name, label, value string) {
	var v any
	if value != "" {
		v = value
	}
	e.Write(fmt.Sprintf("label %s %s=%s", name, label, value), mergePatch(k.path(e, name),
		Object{"metadata": Object{"labels": Object{label: v}}}))
}

// change changes the content.
func (k kind) change(e *Env, name string, n int) Object {
	return e.Write(fmt.Sprintf("change %s to %d", name, n), mergePatch(k.path(e, name), k.content(n)))
}

// remove deletes an object.
func (k kind) remove(e *Env, name string) {
	e.Write("delete "+name, Request{Method: http.MethodDelete, Path: k.path(e, name)})
}

func mergePatch(path string, patch Object) Request {
	return Request{
		Method: http.MethodPatch, Path: path, Body: patch,
		Header: http.Header{"Content-Type": {"application/merge-patch+json"}},
	}
}

// fresh waits until a selection on the examined side has exactly these objects in this state. A hub's copy may be behind, as
// docs/pool-resources.md says; after fresh, nothing may differ.
func (k kind) fresh(e *Env, query url.Values, want ...Object) {
	e.Until("a list of "+k.name+" has what was written", func() error {
		a, err := e.ask(e.Reader, Request{Path: k.path(e), Query: query})
		if err != nil {
			return err
		}
		return exactly(a, want)
	})
}

// exactly returns nil if an answer is a list of these objects.
func exactly(a *Answer, want []Object) error {
	if a.Status != http.StatusOK {
		return fmt.Errorf("%d %s", a.Status, a.Raw)
	}
	has := map[string]string{}
	for _, o := range listed(a.JSON) {
		has[nameOf(o)] = versionOf(o)
	}
	wanted := map[string]string{}
	for _, o := range want {
		wanted[nameOf(o)] = versionOf(o)
	}
	if !maps.Equal(has, wanted) {
		return fmt.Errorf("it has %v, want %v", has, wanted)
	}
	return nil
}
