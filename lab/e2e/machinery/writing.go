package machinery

import (
	"net/http"
	"strings"
)

// writes are what a client with rights does. They are few: a hub forwards a write unseen, so what one kind of write shows of
// methods, content types, queries, bodies and refusals holds for the others.
var writes = []Check{
	{"patch", "", false, patches},
	{"apply", "", false, apply},
	{"conflicts", "", false, conflicts},
	{"bad-bodies", "", false, badBodies},
}

func (e *Env) configMaps(name ...string) string {
	return strings.Join(append([]string{"/api/v1/namespaces", e.Namespace, "configmaps"}, name...), "/")
}

func configMap(name, key, value string) Object {
	return Object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": Object{"name": name}, "data": Object{key: value},
	}
}

func patchAs(kind, path string, body any, query string) Request {
	return Request{
		Method: http.MethodPatch, Path: path, Body: body, Query: values(query),
		Header: http.Header{"Content-Type": {"application/" + kind}},
	}
}

func post(path string, body any) Request {
	return Request{Method: http.MethodPost, Path: path, Body: body}
}

// patches checks the three old kinds.
func patches(e *Env) {
	template := of("podtemplates")
	template.create(e, "one", 1)
	path := template.path(e, "one")
	add := Object{"template": Object{"spec": Object{"containers": []any{Object{"name": "d", "image": "d:1"}}}}}
	e.Try("strategic: a container is merged by its name", patchAs("strategic-merge-patch+json", path, add, ""))
	e.Try("strategic: one is taken away", patchAs("strategic-merge-patch+json", path, `{"template":{"spec":{"containers":[`+
		`{"name":"c","$patch":"delete"}]}}}`, ""))
	e.Try("merge: containers are replaced", patchAs("merge-patch+json", path, add, ""))
	for _, p := range []string{
		`[{"op":"test","path":"/template/spec/containers/0/name","value":"d"},` +
			`{"op":"add","path":"/metadata/labels/a","value":"b"}]`,
		`[{"op":"test","path":"/metadata/labels/a","value":"c"}]`, `[{"op":"remove","path":"/metadata/labels/nothing"}]`,
		`[{"op":"move","from":"/metadata/labels/a","path":"/metadata/labels/c"}]`, `[{"op":"jump"}]`, `{"op":"add"}`, `nonsense`,
	} {
		e.Try("JSON: "+p, patchAs("json-patch+json", path, p, ""))
	}
	e.Try("of what is not there", patchAs("merge-patch+json", template.path(e, "nobody"), add, ""))
	e.Try("of an unknown kind", patchAs("other-patch+json", path, add, ""))
	e.Try("which makes it invalid", patchAs("merge-patch+json", path, Object{"template": Object{"spec": nil}}, ""))
	e.Try("which changes the name", patchAs("merge-patch+json", path, Object{"metadata": Object{"name": "two"}}, ""))
	e.Try("at another version", patchAs("merge-patch+json", path, Object{"metadata": Object{"resourceVersion": "1"}}, ""))
	e.Try("which changes nothing", patchAs("merge-patch+json", path, Object{}, ""))
	e.Try("strategic, of a custom resource", patchAs("strategic-merge-patch+json", of("widgets").path(e, "one"), add, ""))
}

// cronJob is suspended: no controller changes it.
func cronJob(name string) Object {
	return Object{
		"apiVersion": "batch/v1", "kind": "CronJob", "metadata": Object{"name": name},
		"spec": Object{
			"schedule": "0 0 1 1 *", "suspend": true, "successfulJobsHistoryLimit": 1,
			"jobTemplate": Object{"spec": Object{"template": Object{"spec": Object{
				"restartPolicy": "Never", "containers": []any{Object{"name": "c", "image": "registry.local/web:1"}},
			}}}},
		},
	}
}

// apply is apply.go: who owns which field.
func apply(e *Env) {
	path := "/apis/batch/v1/namespaces/" + e.Namespace + "/cronjobs/applied"
	do := func(step, manager, more string, change func(spec Object)) *Answer {
		body := cronJob("applied")
		spec, _ := body["spec"].(map[string]any)
		if change != nil {
			change(spec)
		}
		return e.Try(step, patchAs("apply-patch+yaml", path, body, "fieldManager="+manager+more))
	}
	const limit, schedule = "successfulJobsHistoryLimit", "schedule"
	e.Expect("applying creates", do("create", "first", "", nil).Status == http.StatusCreated)
	do("the same again", "first", "", nil)
	conflict := do("a conflict", "second", "", func(spec Object) { spec[schedule], spec[limit] = "0 0 2 1 *", 3 })
	e.Expect("which names the manager", conflict.Status == http.StatusConflict &&
		strings.Contains(string(conflict.Raw), "first"), string(conflict.Raw))
	do("by force", "second", "&force=true", func(spec Object) { spec[schedule], spec[limit] = "0 0 2 1 *", 3 })
	do("ownership is shared no longer", "first", "", func(spec Object) { delete(spec, limit); spec[schedule] = "0 0 2 1 *" })
	do("a field that nobody else owns goes", "second", "", func(spec Object) { delete(spec, limit) })
	e.Get("what is there", path, "")
	do("without a manager", "", "", nil)
	do("with force and no sense", "first", "&force=maybe", nil)
	e.Try("force without apply", patchAs("merge-patch+json", path, Object{}, "force=true"))
	e.Try("a status", patchAs("apply-patch+yaml", path+"/status", Object{
		"apiVersion": "batch/v1", "kind": "CronJob", "status": Object{"lastScheduleTime": "2026-01-01T00:00:00Z"},
	}, "fieldManager=status"))
	e.Try("YAML", patchAs("apply-patch+yaml", e.configMaps("yaml"),
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata: {a: b}\n", "fieldManager=first"))
	e.Try("another kind", patchAs("apply-patch+yaml", e.configMaps("yaml"), cronJob("yaml"), "fieldManager=first"))
	e.Try("managed fields", patchAs("apply-patch+yaml", e.configMaps("yaml"), Object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": Object{"managedFields": []any{Object{"manager": "x"}}},
	}, "fieldManager=first"))
	widgets := of("widgets")
	e.Try("a custom resource", patchAs("apply-patch+yaml", widgets.path(e, "one"), widgets.object(e, "one", 1),
		"fieldManager=first"))
	e.Try("a conflict about it",
		patchAs("apply-patch+yaml", widgets.path(e, "one"), widgets.object(e, "one", 2), "fieldManager=other"))
	long := strings.Repeat("m", 129)
	e.Try("a manager of a long name", patchAs("merge-patch+json", widgets.path(e, "one"), Object{}, "fieldManager="+long))
}

// conflicts checks locks and preconditions.
func conflicts(e *Env) {
	one := e.Write("create", post(e.configMaps(), configMap("one", "a", "b")))
	path := e.configMaps("one")
	again := e.Try("create again", post(e.configMaps(), configMap("one", "a", "b")))
	e.Expect("which is there already", again.Status == http.StatusConflict && text(again.JSON, "reason") == "AlreadyExists")
	changed := configMap("one", "a", "c")
	changed["metadata"] = one["metadata"]
	e.Write("update", Request{Method: http.MethodPut, Path: path, Body: changed})
	late := e.Try("update from what was", Request{Method: http.MethodPut, Path: path, Body: changed})
	e.Expect("which is a conflict", late.Status == http.StatusConflict && text(late.JSON, "reason") == "Conflict")
	e.Write("update whatever there is", Request{Method: http.MethodPut, Path: path, Body: configMap("one", "a", "d")})
	e.Try("update of another name", Request{Method: http.MethodPut, Path: path, Body: configMap("two", "a", "d")})
	e.Try("update of what is not there", Request{
		Method: http.MethodPut, Path: e.configMaps("nobody"), Body: configMap("nobody", "a", "d"),
	})
	for _, p := range []Object{
		{"uid": "00000000-0000-0000-0000-000000000000"}, {"resourceVersion": versionOf(one)}, {"uid": 1},
	} {
		e.Try("delete another", Request{Method: http.MethodDelete, Path: path, Body: Object{
			"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": p,
		}})
	}
	e.Try("delete the very one", Request{Method: http.MethodDelete, Path: path, Body: Object{
		"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": Object{"uid": text(one, "metadata", "uid")},
	}})
	e.Try("delete it again", Request{Method: http.MethodDelete, Path: path})
	fixed := configMap("fixed", "a", "b")
	fixed["immutable"] = true
	e.Write("create one that cannot change", post(e.configMaps(), fixed))
	e.Try("change it", mergePatch(e.configMaps("fixed"), Object{"data": Object{"a": "c"}}))
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
		{"another kind", "application/json", cronJob("one")}, {"a bad name", "application/json", bad},
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
			Method: http.MethodPost, Path: e.configMaps(), Body: b.body, Header: http.Header{"Content-Type": {b.contentType}},
		})
	}
	for _, method := range []string{http.MethodPut, http.MethodPatch} {
		e.Try(method+" to a collection", Request{Method: method, Path: e.configMaps(), Body: configMap("one", "a", "b")})
	}
	e.Try("POST to an object", post(e.configMaps("one"), configMap("one", "a", "b")))
	e.Try("a namespace that is not there", Request{
		Method: http.MethodPost, Path: "/api/v1/namespaces/not-there/configmaps", Body: configMap("one", "a", "b"),
	})
	long := configMap(strings.Repeat("a.b-", 63)+"c", "a", "b")
	e.Try("a long name", post(e.configMaps(), long))
	long = configMap(strings.Repeat("a.b-", 63)+"cd", "a", "b")
	e.Try("too long a name", post(e.configMaps(), long))
}
