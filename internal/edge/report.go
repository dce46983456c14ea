package edge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// AnnotationReachedNodes, on a Lease that ReportLease names, lists the nodes that the leader hears at the pool's coordinators,
// in the form of JoinNodes.
const AnnotationReachedNodes = "openyurt.io/reached-nodes"

// ReportLease is the name of a leader's report, a Lease in the cloud's kube-node-lease. The holder of the Lease is the leader,
// and the report lists the pool's nodes that the leader hears. Each slot has a report of its own, because each coordinator may
// have another leader. A hub that leads at several coordinators writes one report about all of them, in the lowest of their
// slots.
//
// The leader renews the report at least every 3 minutes, or every 5 on a metered link. The Lease's duration is twice that time
// (see ReportLasts). Readers combine all valid reports of a pool (see Reports).
func (p PoolName) ReportLease(of Slot) string { return of.App() + "-" + string(p) }

// ReportOf returns the pool and the slot of a report, given its Lease's name. An empty pool means that the Lease is no report.
// A Node may not have the name of a report.
func ReportOf(lease string) (PoolName, Slot) {
	for _, slot := range slices.Backward(Slots()) { // the prefix of slot 0 begins the others'
		if pool, ok := strings.CutPrefix(lease, PoolName("").ReportLease(slot)); ok {
			return PoolName(pool), slot
		}
	}
	return "", 0
}

// ReportLasts returns how long a report is valid: its Lease's duration in seconds, and a quarter more, because clocks and lines
// differ. A duration below 2 minutes, or nil, counts as 2 minutes; one above 12 minutes counts as 12. So no leader is believed
// for more than a quarter of an hour.
func ReportLasts(seconds *int32) time.Duration {
	const least, most = 2 * time.Minute, 12 * time.Minute
	lasts := least
	if seconds != nil {
		lasts = min(max(time.Duration(*seconds)*time.Second, least), most)
	}
	return lasts + lasts/4
}

// Reports are the reports of one pool, that of the lowest slot first. A node that is in any of them reaches the pool. If two
// reports differ in anything else, that of the lower slot counts.
type Reports []*coordinationv1.Lease

// ReportsOf selects from a pool's valid reports, which may be in any order. A leader's newest report has everything that the
// leader hears. So ReportsOf leaves out the leader's earlier reports in other slots.
func ReportsOf(valid []*coordinationv1.Lease) Reports {
	all := slices.DeleteFunc(slices.Clone(valid), func(l *coordinationv1.Lease) bool {
		return slices.ContainsFunc(valid, func(other *coordinationv1.Lease) bool {
			return holder(other) == holder(l) && renewed(l).Before(renewed(other))
		})
	})
	slices.SortFunc(all, func(a, b *coordinationv1.Lease) int {
		_, first := ReportOf(a.Name)
		_, second := ReportOf(b.Name)
		return cmp.Compare(first, second)
	})
	return all
}

func holder(l *coordinationv1.Lease) NodeName {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return NodeName(*l.Spec.HolderIdentity)
}

func renewed(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Time
}

// SlotLeader is the leader at the coordinator in a slot.
type SlotLeader struct {
	Slot   Slot     `json:"slot"`
	Leader NodeName `json:"leader"`
}

// Leaders returns the leaders that report, the lowest slot's first: that one leads the pool.
func (r Reports) Leaders() []SlotLeader {
	all := make([]SlotLeader, len(r))
	for i, l := range r {
		_, slot := ReportOf(l.Name)
		all[i] = SlotLeader{slot, holder(l)}
	}
	return all
}

// Reached returns the nodes that a leader hears, in order.
func (r Reports) Reached() []NodeName {
	var all []NodeName
	for _, l := range r {
		all = append(all, SplitNodes(l.Annotations[AnnotationReachedNodes])...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Kubelets returns the KubeletWay of each node; nil means that no leader reports it.
func (r Reports) Kubelets() map[NodeName]KubeletWay {
	return together(r, AnnotationKubelet, SplitKubelets)
}

// Versions returns the version of each node's hub; nil means that no leader reports it.
func (r Reports) Versions() map[NodeName]string {
	return together(r, AnnotationHubVersion, SplitVersions)
}

// Traffic returns the traffic of each node's hub; nil means that no leader reports it.
func (r Reports) Traffic() map[NodeName]Traffic { return together(r, AnnotationTraffic, SplitTraffic) }

// together combines what the reports say of nodes in an annotation.
func together[T any](r Reports, annotation string, split func(string) map[NodeName]T) map[NodeName]T {
	var all map[NodeName]T
	for _, l := range slices.Backward(r) {
		if text, ok := l.Annotations[annotation]; ok {
			if all == nil {
				all = map[NodeName]T{}
			}
			maps.Copy(all, split(text))
		}
	}
	return all
}

// Fillings returns how much of each shared resource the coordinator of the lowest slot has. nil means that the leader there
// does not report that.
func (r Reports) Fillings() map[string]Filling {
	if len(r) > 0 {
		if text, ok := r[0].Annotations[AnnotationPoolResources]; ok {
			return SplitFillings(text)
		}
	}
	return nil
}
