package cloud

import (
	"fmt"
	"maps"
	"slices"

	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
)

// siteAgrees fails if the coordinator shows the load, or the nodes' own Nodes, Pods and ConfigMaps, differently from the cloud.
func (r *restored) siteAgrees() error {
	nodes := r.Pool.Nodes()
	var used []string
	for _, node := range nodes {
		used = append(used, configMapsOf(node)...)
	}
	own := func(resource string, o map[string]any) bool {
		meta, _ := o["metadata"].(map[string]any)
		spec, _ := o["spec"].(map[string]any)
		switch name, _ := meta["name"].(string); resource {
		case "nodes":
			return slices.Contains(nodes, name)
		case "pods":
			node, _ := spec["nodeName"].(string)
			return slices.Contains(nodes, node)
		case "configmaps":
			return slices.Contains(used, name)
		default: // the coordinator has its own Service
			return meta["namespace"] == load.Namespace
		}
	}
	for _, resource := range []string{"services", kit.EndpointSlices.Resource, "nodes", "pods", "configmaps"} {
		want, err := r.ObjectsAt(r.Cloud, resource)
		if err != nil {
			return err
		}
		has, err := r.ObjectsAt(r.site, resource)
		if err != nil {
			return fmt.Errorf("the coordinator: %w", err)
		}
		others := func(_ string, o map[string]any) bool { return !own(resource, o) }
		maps.DeleteFunc(want, others)
		if resource == "services" || resource == kit.EndpointSlices.Resource {
			maps.DeleteFunc(has, others)
		}
		if err := kit.SameShown(resource, want, has, func(map[string]any) bool { return true }); err != nil {
			return fmt.Errorf("the coordinator: %w", err)
		}
	}
	return nil
}
