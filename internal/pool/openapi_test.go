package pool

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi3"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// TestWhatIsServedIsExplained: each group and version that discovery names has its document, but the metrics, which are
// no objects, and NodePools, which are a custom resource; and there is no other.
func TestWhatIsServedIsExplained(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	alice := c.as(t, pooltest.Operator())
	_, lists, err := alice.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	root := openapi3.NewRoot(alice.Discovery().OpenAPIV3())
	versions, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	undocumented := map[schema.GroupVersion]bool{
		{Group: "metrics.k8s.io", Version: "v1beta1"}: true, edge.NodePools.GroupVersion(): true,
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		if undocumented[version] {
			continue
		}
		if !slices.Contains(versions, version) {
			t.Errorf("no document of %s", version)
			continue
		}
		versions = slices.DeleteFunc(versions, func(v schema.GroupVersion) bool { return v == version })
		document, err := root.GVSpec(version)
		if err != nil {
			t.Fatal(err)
		}
		described := map[schema.GroupVersionKind]bool{}
		for _, component := range document.Components.Schemas {
			var kinds []schema.GroupVersionKind
			if err := component.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
				t.Fatal(err)
			}
			for _, kind := range kinds {
				described[kind] = true
			}
		}
		for _, resource := range list.APIResources {
			kind := schema.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: resource.Kind}
			if kind.Version == "" {
				kind = version.WithKind(resource.Kind)
			}
			// Options of a stream are not described anywhere.
			if !described[kind] && resource.StorageVersionHash != "" {
				t.Errorf("%s is not in the document of %s: %v", kind, version, slices.Collect(maps.Keys(described)))
			}
		}
	}
	if len(versions) > 0 {
		t.Errorf("documents of what is not served: %v", versions)
	}
}
