package cloud

import (
	"fmt"
	"maps"
	"slices"

	"yurtcoordinator/lab/e2e/kit"
)

// ownObjectsAgree fails if the coordinator shows the nodes' own Nodes, Pods and ConfigMaps differently from the cloud.
func (r *restored) ownObjectsAgree() error {
	nodes := r.Pool.Nodes()
	var used []string
	for _, node := range nodes {
		used = append(used, configMapsOf(node)...)
	}
	for resource, own := range map[string]func(name string, o map[string]any) bool{
		"nodes": func(name string, _ map[string]any) bool { return slices.Contains(nodes, name) },
		"pods": func(_ string, o map[string]any) bool {
			spec, _ := o["spec"].(map[string]any)
			node, _ := spec["nodeName"].(string)
			return slices.Contains(nodes, node)
		},
		"configmaps": func(name string, _ map[string]any) bool { return slices.Contains(used, name) },
	} {
		want, err := r.ObjectsAt(r.Cloud, resource)
		if err != nil {
			return err
		}
		has, err := r.ObjectsAt(r.site, resource)
		if err != nil {
			return fmt.Errorf("the coordinator: %w", err)
		}
		maps.DeleteFunc(want, func(_ string, o map[string]any) bool {
			meta, _ := o["metadata"].(map[string]any)
			name, _ := meta["name"].(string)
			return !own(name, o)
		})
		if err := shownAs(resource, want, has); err != nil {
			return err
		}
	}
	return nil
}

// shownAs fails with a difference between the coordinator's objects of a resource and the wanted ones, by name.
func shownAs(resource string, want, has map[string]map[string]any) error {
	for name := range has {
		if _, there := want[name]; !there {
			return fmt.Errorf("the coordinator: %s %s is shown, and is gone", resource, name)
		}
	}
	for name, o := range want {
		if err := kit.Differs(o, has[name]); err != nil {
			return fmt.Errorf("the coordinator: %s %s is not shown as it is: %w", resource, name, err)
		}
	}
	return nil
}
