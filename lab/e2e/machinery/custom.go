package machinery

const pathCRDs = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

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
	return Object{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": Object{"name": "widgets." + group},
		"spec": Object{
			"group": group, "scope": "Namespaced", "versions": []any{version("v1", true), version("v1alpha1", false)},
			"names": Object{"plural": "widgets", "kind": "Widget", "listKind": "WidgetList"},
		},
	}
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
