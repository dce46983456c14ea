package machinery

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// writes are what a client with rights does.
var writes = []Check{
	{"patch", "", false, patches},
	{"apply", "", false, apply},
	{"field-validation", "", false, fieldValidation},
	{"dry-run", "", false, dryRun},
	{"conflicts", "", false, conflicts},
	{"finalizers", "", false, finalizers},
	{"delete-collection", "", false, deleteCollection},
	{"garbage", "", false, garbage},
	{"generate-name", "", false, generateName},
	{"subresources", "", false, subresources},
	{"quota", "", false, quota},
	{"events", "", false, events},
	{"bad-bodies", "", false, badBodies},
	{"tokens", "", false, tokens},
	{"namespace", "", false, namespaceLife},
	{"flow-control", "", false, flowControl},
	{"admission-policy", "", false, admissionPolicy},
}

func (e *Env) at(resource string, name ...string) string {
	root := map[string]string{"deployments": "/apis/apps/v1", "replicasets": "/apis/apps/v1"}[resource]
	if root == "" {
		root = "/api/v1"
	}
	return strings.Join(append([]string{root, "namespaces", e.Namespace, resource}, name...), "/")
}

// deployment has no Pods: only the Deployment's controller changes it, once.
func deployment(name string) Object {
	return Object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": Object{"name": name},
		"spec": Object{
			"replicas": 0, "paused": true, "selector": Object{"matchLabels": Object{"app": name}},
			"template": Object{
				"metadata": Object{"labels": Object{"app": name}},
				"spec":     Object{"containers": []any{Object{"name": "c", "image": "registry.local/web:1"}}},
			},
		},
	}
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

// post creates an object, with a query.
func post(path string, body any, query string) Request {
	return Request{Method: http.MethodPost, Path: path, Body: body, Query: values(query)}
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
	e.Try("YAML", patchAs("apply-patch+yaml", e.at("configmaps", "yaml"),
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata: {a: b}\n", "fieldManager=first"))
	e.Try("another kind", patchAs("apply-patch+yaml", e.at("configmaps", "yaml"), deployment("yaml"), "fieldManager=first"))
	e.Try("managed fields", patchAs("apply-patch+yaml", e.at("configmaps", "yaml"), Object{
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

// fieldValidation is field_validation.go.
func fieldValidation(e *Env) {
	for _, how := range []string{"Strict", "Warn", "Ignore", "", "Nonsense"} {
		query := "fieldValidation=" + how
		for _, b := range []struct{ step, kind, body string }{
			{"an unknown field", "json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","unknown":1},"dato":{}}`},
			{"a field twice", "json",
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"data":{},"data":{"x":"2"}}`},
			{"in YAML", "yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {}\ndata: {}\nmore: 1\n"},
		} {
			e.Try(how+": "+b.step, Request{
				Method: http.MethodPost, Path: e.at("configmaps"), Body: b.body, Query: values(query + "&dryRun=All"),
				Header: http.Header{"Content-Type": {"application/" + b.kind}},
			})
		}
		widget := of("widgets").object(e, "one", 1)
		widget["extra"] = Object{"a": 1}
		widget["spec"] = Object{"size": 1, "color": "red", "unknown": true}
		e.Try(how+": a custom resource", Request{
			Method: http.MethodPost, Path: of("widgets").path(e), Body: widget, Query: values(query + "&dryRun=All"),
		})
		e.Try(how+": applied", patchAs("apply-patch+yaml", e.at("configmaps", "one"),
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"},"unknown":1}`, query+"&fieldManager=x&dryRun=All"))
	}
	e.Try("a deprecated API", post(e.at("endpoints"), of("endpoints").object(e, "old", 1), ""))
}

// dryRun writes nothing.
func dryRun(e *Env) {
	creation := post(e.at("configmaps"), configMap("one", "a", "b"), "dryRun=All")
	e.Try("create", creation)
	e.Expect("nothing is there", e.Try("get", Request{Path: e.at("configmaps", "one")}).Status == http.StatusNotFound)
	creation.Query = values("dryRun=Some")
	e.Try("a dry run of nonsense", creation)
	creation.Query = nil
	e.Write("create for good", creation)
	e.Try("update", Request{
		Method: http.MethodPut, Path: e.at("configmaps", "one"), Body: configMap("one", "a", "c"), Query: values("dryRun=All"),
	})
	e.Try("patch", patchAs("merge-patch+json", e.at("configmaps", "one"), configMap("one", "x", "y"), "dryRun=All"))
	e.Try("delete", Request{Method: http.MethodDelete, Path: e.at("configmaps", "one"), Query: values("dryRun=All")})
	e.Try("delete all", Request{
		Method: http.MethodDelete, Path: e.at("configmaps"), Query: values("dryRun=All&fieldSelector=metadata.name%3Done"),
	})
	a := e.Try("what is there", Request{Path: e.at("configmaps", "one")})
	e.Expect("nothing has changed", text(a.JSON, "data", "a") == "b")
}

// conflicts checks locks and preconditions.
func conflicts(e *Env) {
	one := e.Write("create", post(e.at("configmaps"), configMap("one", "a", "b"), ""))
	path := e.at("configmaps", "one")
	again := e.Try("create again", post(e.at("configmaps"), configMap("one", "a", "b"), ""))
	e.Expect("which is there already", again.Status == http.StatusConflict && text(again.JSON, "reason") == "AlreadyExists")
	changed := configMap("one", "a", "c")
	changed["metadata"] = one["metadata"]
	e.Write("update", Request{Method: http.MethodPut, Path: path, Body: changed})
	late := e.Try("update from what was", Request{Method: http.MethodPut, Path: path, Body: changed})
	e.Expect("which is a conflict", late.Status == http.StatusConflict && text(late.JSON, "reason") == "Conflict")
	e.Write("update whatever there is", Request{Method: http.MethodPut, Path: path, Body: configMap("one", "a", "d")})
	e.Try("update of another name", Request{Method: http.MethodPut, Path: path, Body: configMap("two", "a", "d")})
	e.Try("update of what is not there", Request{
		Method: http.MethodPut, Path: e.at("configmaps", "nobody"), Body: configMap("nobody", "a", "d"),
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
	e.Write("create one that cannot change", post(e.at("configmaps"), fixed, ""))
	e.Try("change it", mergePatch(e.at("configmaps", "fixed"), Object{"data": Object{"a": "c"}}))
}

// finalizers keep an object.
func finalizers(e *Env) {
	body := configMap("one", "a", "b")
	body["metadata"] = Object{"name": "one", "finalizers": []any{"machinery.example/keep"}}
	one := e.Write("create", post(e.at("configmaps"), body, ""))
	path := e.at("configmaps", "one")
	w := e.Watch("watch", e.at("configmaps"), "fieldSelector=metadata.name%3Done&resourceVersion="+versionOf(one))
	defer w.Close()
	deleted := e.Try("delete", Request{Method: http.MethodDelete, Path: path})
	e.Expect("it is still there", text(deleted.JSON, "metadata", "deletionTimestamp") != "")
	e.Try("delete again", Request{Method: http.MethodDelete, Path: path})
	e.Try("another finalizer", mergePatch(path, Object{"metadata": Object{"finalizers": []any{"machinery.example/more"}}}))
	e.Try("no finalizer", mergePatch(path, Object{"metadata": Object{"finalizers": nil}}))
	w.Take(first("DELETED"))
	e.Expect("it is gone", e.Try("get", Request{Path: path}).Status == http.StatusNotFound)
}

// deleteCollection deletes by selectors.
func deleteCollection(e *Env) {
	some(e, of("podtemplates"), 6)
	path := of("podtemplates").path(e)
	a := e.Try("the red ones", Request{Method: http.MethodDelete, Path: path, Query: values("labelSelector=color%3Dred")})
	e.Expect("two went", len(listed(a.JSON)) == 2)
	e.Try("what is left", Request{Path: path})
	e.Try("by a name", Request{Method: http.MethodDelete, Path: path, Query: values("fieldSelector=metadata.name%3Da-01")})
	e.Try("by nonsense", Request{Method: http.MethodDelete, Path: path, Query: values("labelSelector=%3D%3D")})
	e.Try("in pages", Request{Method: http.MethodDelete, Path: path, Query: values("limit=1")})
	e.Try("all", Request{Method: http.MethodDelete, Path: path})
	e.Expect("nothing is left", len(listed(e.Try("what is left at last", Request{Path: path}).JSON)) == 0)
}

// garbage is garbage_collector.go: what happens to dependents.
func garbage(e *Env) {
	// The collector must have seen all objects before one of them goes. It sees objects of a kind in order: once it has
	// collected the dependents of the last one, it has seen the others.
	for _, policy := range []string{"Background", "Foreground", "Orphan", "last"} {
		owner, dependent := "owner-"+strings.ToLower(policy), "dependent-"+strings.ToLower(policy)
		o := e.Write("create "+owner, post(e.at("configmaps"), configMap(owner, "a", "b"), ""))
		d := configMap(dependent, "a", "b")
		d["metadata"] = Object{"name": dependent, "ownerReferences": []any{Object{
			"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": text(o, "metadata", "uid"), "blockOwnerDeletion": true,
		}}}
		e.Write("create "+dependent, post(e.at("configmaps"), d, ""))
	}
	e.Write("delete the last", Request{Method: http.MethodDelete, Path: e.at("configmaps", "owner-last")})
	e.Until("the last dependent is gone", func() error {
		a, err := e.ask(e.Reader, Request{Path: e.at("configmaps", "dependent-last")})
		if err != nil || a.Status != http.StatusNotFound {
			return errors.Join(err, errors.New("dependent-last is there"))
		}
		return nil
	})
	for _, policy := range []string{"Background", "Foreground", "Orphan"} {
		e.Try("delete, "+policy, Request{
			Method: http.MethodDelete, Path: e.at("configmaps", "owner-"+strings.ToLower(policy)),
			Query: values("propagationPolicy=" + policy),
		})
	}
	e.Try("a policy of nonsense", Request{
		Method: http.MethodDelete, Path: e.at("configmaps", "nobody"), Query: values("propagationPolicy=Some"),
	})
	e.Try("a policy and its forerunner", Request{
		Method: http.MethodDelete, Path: e.at("configmaps", "nobody"),
		Query: values("propagationPolicy=Orphan&orphanDependents=true"),
	})
	e.Until("the owners and their dependents are gone", func() error {
		for _, name := range []string{"owner-background", "dependent-background", "owner-foreground",
			"dependent-foreground", "owner-orphan"} {
			if a, err := e.ask(e.Reader, Request{Path: e.at("configmaps", name)}); err != nil || a.Status != http.StatusNotFound {
				return errors.Join(err, fmt.Errorf("%s is there", name))
			}
		}
		return nil
	})
	a := e.Try("the orphan", Request{Path: e.at("configmaps", "dependent-orphan"), Bodiless: true})
	e.Expect("the orphan lives, without an owner", field(a.JSON, "metadata", "ownerReferences") == nil)
}

// generateName makes names.
func generateName(e *Env) {
	for i := range 3 {
		o := e.do(e.Writer, "", Request{Method: http.MethodPost, Path: e.at("configmaps"), Plain: true, Body: Object{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": Object{"generateName": "made-"},
		}})
		name := nameOf(o.JSON)
		e.Expect(fmt.Sprintf("name %d has the prefix", i), strings.HasPrefix(name, "made-") && len(name) == len("made-")+5, name)
		e.Alias(name, fmt.Sprintf("made-%d", i))
		e.Note("create", o.seen(false))
	}
	e.Try("a bad prefix", Request{Method: http.MethodPost, Path: e.at("configmaps"), Body: Object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": Object{"generateName": "A_"}, "data": Object{},
	}, Query: url.Values{"dryRun": {"None"}}})
	e.Try("no name", Request{Method: http.MethodPost, Path: e.at("configmaps"),
		Body: Object{"apiVersion": "v1", "kind": "ConfigMap"}})
}
