package machinery

import (
	"fmt"
	"net/http"
)

const pathCRDs = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// customs are checks of custom resources and their definitions.
var customs = []Check{
	{"custom-definition", "", false, customDefinition},
	{"custom-schema", "", false, customSchema},
	{"custom-versions", "", true, customVersions},
}

// widgetsDefinition has a schema, columns, a status, a scale, selectable fields, and two versions.
func widgetsDefinition(group string) Object {
	version := func(name string, storage bool) Object {
		return Object{
			"name": name, "served": true, "storage": storage,
			"schema": Object{"openAPIV3Schema": Object{
				"type": "object",
				"properties": Object{
					"spec": Object{"type": "object", "required": []any{"size"}, "properties": Object{
						"size":   Object{"type": "integer", "maximum": 1000},
						"color":  Object{"type": "string", "enum": []any{"red", "green", "blue"}},
						"weight": Object{"type": "integer", "default": 7},
						"notes":  Object{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
					}, "x-kubernetes-validations": []any{Object{
						"rule": "!has(self.color) || self.color != 'blue' || self.size < 500", "message": "blue ones are small",
					}}},
					"status": Object{"type": "object", "properties": Object{"ready": Object{"type": "integer"}}},
				},
			}},
			"subresources": Object{"status": Object{}, "scale": Object{
				"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready",
			}},
			"selectableFields": []any{Object{"jsonPath": ".spec.color"}},
			"additionalPrinterColumns": []any{
				Object{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
				Object{"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1,
					"description": "how it looks"},
				Object{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
			},
		}
	}
	return definition(group, "widgets", "Widget", version("v1", true), version("v1alpha1", false))
}

func definition(group, plural, kind string, versions ...any) Object {
	return Object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": Object{"name": plural + "." + group},
		"spec": Object{
			"group": group, "scope": "Namespaced", "versions": versions,
			"names": Object{"plural": plural, "kind": kind, "listKind": kind + "List"},
		},
	}
}

// customDefinition is custom_resource_definition.go and crd_watch.go.
func customDefinition(e *Env) {
	group := "more." + e.Group
	path := pathCRDs + "/gadgets." + group
	open := Object{"name": "v1", "served": true, "storage": true, "schema": Object{"openAPIV3Schema": Object{
		"type": "object", "x-kubernetes-preserve-unknown-fields": true,
	}}}
	e.Write("create", Request{Method: http.MethodPost, Path: pathCRDs,
		Body: definition(group, "gadgets", "Gadget", open), Bodiless: true})
	objects := "/apis/" + group + "/v1/namespaces/" + e.Namespace + "/gadgets"
	e.Until("it is served", func() error {
		a, err := e.ask(e.Reader, Request{Path: objects})
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("%d", a.Status)
		}
		return err
	})
	e.Write("create one of it", Request{Method: http.MethodPost, Path: objects, Body: Object{
		"apiVersion": group + "/v1", "kind": "Gadget", "metadata": Object{"name": "one"},
		"anything": Object{"goes": []any{1, "2", nil}},
	}})
	e.GetAs("its table", objects, "", asTable)
	e.Try("its status, of which it has none", Request{Path: objects + "/one/status"})
	e.Try("the definition's status", Request{Path: path + "/status", Bodiless: true})
	e.Try("a bad definition", Request{Method: http.MethodPost, Path: pathCRDs, Body: definition(group, "bad", "Bad")})
	w := e.Watch("watch", objects, "resourceVersion=0")
	defer w.Close()
	w.Take(added("one"))
	e.Try("delete the definition", Request{Method: http.MethodDelete, Path: path, Bodiless: true})
	e.Until("it is served no longer", func() error {
		a, err := e.ask(e.Reader, Request{Path: objects})
		if err == nil && a.Status != http.StatusNotFound {
			err = fmt.Errorf("%d", a.Status)
		}
		return err
	})
	w.Take(first("DELETED"))
	e.Get("what is left", objects, "")
}

// customSchema checks what a schema does: defaults, validation, pruning, ratcheting, fields, status and scale.
func customSchema(e *Env) {
	k := of("widgets")
	k.create(e, "one", 1)
	post := func(step string, spec Object) {
		e.Try(step, Request{Method: http.MethodPost, Path: k.path(e), Body: Object{
			"apiVersion": k.apiVersion(e), "kind": "Widget", "metadata": Object{"name": "try"}, "spec": spec,
		}, Query: values("dryRun=All")})
	}
	post("without what is required", Object{"color": "red"})
	post("against the enum", Object{"size": 1, "color": "pink"})
	post("against a rule", Object{"size": 600, "color": "blue"})
	post("against the maximum", Object{"size": 2000})
	post("of another type", Object{"size": "1"})
	post("with more than it knows", Object{"size": 1, "more": 1, "notes": Object{"any": 1}})
	e.Try("its status", mergePatch(k.path(e, "one", "status"), Object{"status": Object{"ready": 2}, "spec": Object{"size": 99}}))
	e.Try("its status by the object", mergePatch(k.path(e, "one"), Object{"status": Object{"ready": 3}}))
	e.Try("its scale", Request{Path: k.path(e, "one", "scale")})
	e.Try("scale it", mergePatch(k.path(e, "one", "scale"), Object{"spec": Object{"replicas": 5}}))
	e.Try("what is there", Request{Path: k.path(e, "one")})
	e.Try("delete", Request{Method: http.MethodDelete, Path: k.path(e, "one")})
}

// customVersions reads the same objects in two versions.
func customVersions(e *Env) {
	k := of("widgets")
	one := k.create(e, "one", 1)
	k.fresh(e, values(mine), one)
	old := k
	old.version = "v1alpha1"
	old.fresh(e, values(mine), one)
	for _, v := range []kind{k, old} {
		e.Get("list "+v.version, v.path(e), mine)
		e.Get("get "+v.version, v.path(e, "one"), "")
		e.GetAs("table "+v.version, v.path(e), mine, asTable)
		e.Get("status "+v.version, v.path(e, "one", "status"), "")
		e.Get("scale "+v.version, v.path(e, "one", "scale"), "")
		for _, color := range []string{"green", "red"} {
			e.Get("by its color "+color+" "+v.version, v.path(e), "fieldSelector=spec.color%3D"+color)
		}
	}
	list := e.Get("list", old.path(e), mine)
	w := e.Watch("watch the other version", old.path(e), mine+"&resourceVersion="+versionOf(list.JSON))
	defer w.Close()
	k.change(e, "one", 2)
	k.remove(e, "one")
	w.Take(first("DELETED"))
}
