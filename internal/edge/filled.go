package edge

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodePools are the pools. A pool may share all of them. Its leader brings its own NodePool to the coordinator besides, as
// OwnNodePools: under one name, hubs would take one for all of them.
var (
	NodePools    = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "nodepools"}
	OwnNodePools = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "ownnodepools"}
)

// AnnotationPoolResources, on the Lease that ReportLease names, says how far the coordinator has each resource that the pool
// shares, as JoinFillings writes it.
const AnnotationPoolResources = "openyurt.io/pool-resources"

// Filling is how far a coordinator has one resource that its pool shares.
type Filling string

const (
	// FillingNone: not all of it has come since the coordinator started.
	FillingNone Filling = "none"
	// FillingComplete: all of it has come once since the coordinator started; what changed in the cloud since then may not have.
	FillingComplete Filling = "complete"
	// FillingCurrent: it is complete, and a leader brings each change, and says so in LeaseInformerSync.
	FillingCurrent Filling = "current"
)

// Complete reports whether all of the resource was there once.
func (f Filling) Complete() bool { return f == FillingComplete || f == FillingCurrent }

// maxFillings bounds what SplitFillings reads: a pool shares at most 32 resources.
const maxFillings = 64

// JoinFillings writes how far each resource is, by name as in "endpointslices.discovery.k8s.io".
func JoinFillings(all map[string]Filling) string {
	texts := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, name+"="+string(all[name]))
	}
	return strings.Join(texts, ",")
}

// SplitFillings reads what JoinFillings wrote. It skips what it does not know.
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
