package edge

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodePools is the resource of all NodePools. A pool may share it. OwnNodePools is the pool's own NodePool alone. The two names
// differ, because otherwise hubs would take that one NodePool for all NodePools.
var (
	NodePools    = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "nodepools"}
	OwnNodePools = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "ownnodepools"}
)

// AnnotationPoolResources, on the Lease that ReportLease names, says how much of each shared resource the coordinator has. Its
// value is in the form of JoinFillings.
const AnnotationPoolResources = "openyurt.io/pool-resources"

// Filling is how much of one shared resource a coordinator has.
type Filling string

const (
	// FillingNone means that the resource has not come completely since the coordinator started.
	FillingNone Filling = "none"
	// FillingComplete means that all of the resource has come once since the coordinator started. Later changes in the cloud
	// may be missing.
	FillingComplete Filling = "complete"
	// FillingCurrent means that it is complete, and a leader brings each change, and says so in LeaseInformerSync.
	FillingCurrent Filling = "current"
)

// Complete reports whether all of the resource has come once.
func (f Filling) Complete() bool { return f == FillingComplete || f == FillingCurrent }

// maxFillings bounds what SplitFillings reads: a pool shares at most 32 resources.
const maxFillings = 64

// JoinFillings writes the Filling of each resource, by name as in "endpointslices.discovery.k8s.io".
func JoinFillings(all map[string]Filling) string {
	texts := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, name+"="+string(all[name]))
	}
	return strings.Join(texts, ",")
}

// SplitFillings reads what JoinFillings wrote. It skips unknown entries.
func SplitFillings(value string) map[string]Filling {
	all := map[string]Filling{}
	for part := range strings.SplitSeq(value, ",") {
		name, filling, ok := strings.Cut(part, "=")
		switch f := Filling(filling); f {
		case FillingNone, FillingComplete, FillingCurrent:
			if ok && name != "" && len(all) < maxFillings {
				all[name] = f
			}
		}
	}
	return all
}
