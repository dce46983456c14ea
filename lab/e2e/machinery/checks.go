package machinery

import (
	"slices"
	"strings"
)

// All returns the checks in the order of their runs: long ones first.
func All() []Check {
	var all []Check
	for _, k := range kinds {
		for _, c := range []struct {
			name string
			of   string
			run  func(*Env, kind)
		}{
			{"versions", "endpointslices endpoints services configmaps podtemplates widgets", versions},
			{"watch-ends", "endpointslices services configmaps widgets", watchEnds},
			{"watch-selectors", "endpointslices services configmaps widgets", watchSelectors},
			{"watch-resume", "endpointslices endpoints services configmaps widgets", watchResume},
			{"watch-old", "endpointslices configmaps widgets", watchOld},
			{"watch-order", "endpointslices configmaps widgets", watchOrder},
			{"watch-list", "endpointslices endpoints services configmaps podtemplates widgets", watchList},
			// ConfigMaps are left out: Kubernetes puts its own into each namespace.
			{"paging", "endpointslices endpoints services podtemplates widgets", paging},
			{"selectors", "endpointslices services configmaps widgets", selectors},
			{"forms", "endpointslices configmaps widgets", forms},
			{"tables", "endpointslices endpoints services configmaps podtemplates widgets", tables},
			{"addresses", "endpointslices services configmaps widgets", addresses},
			{"namespaces", "endpointslices endpoints configmaps widgets", acrossNamespaces},
			{"large", "endpointslices configmaps", large},
			{"informer", "endpointslices endpoints configmaps widgets", informer},
		} {
			if slices.Contains(strings.Fields(c.of), k.name) {
				all = append(all, Check{c.name + "/" + k.name, k.name, true, func(e *Env) { c.run(e, k) }})
			}
		}
	}
	return slices.Concat(all, otherReads, writes)
}

// otherReads are further reads that a node may do.
var otherReads = []Check{
	{"discovery", "", true, discovery},
	{"discovery-aggregated", "", true, discoveryAggregated},
	{"openapi", "", true, openAPI},
	{"unknown", "", true, unknown},
	{"cluster-scoped", "", true, clusterScoped},
	{"request-timeout", "", true, requestTimeout},
	{"identity", "", true, identity},
	{"typed-encodings", "", true, typedEncodings},
	{"custom-versions", "", true, customVersions},
}
