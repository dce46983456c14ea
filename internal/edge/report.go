package edge

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// AnnotationReachedNodes, on a Lease that ReportLease names, lists the nodes that the leader hears at the pool's coordinators.
// See JoinNodes.
const AnnotationReachedNodes = "openyurt.io/reached-nodes"

// ReportLease is the name of a Lease in the cloud's kube-node-lease, a leader's report. It names the leader (the holder) and
// the pool's nodes that it hears. Each slot has one, because several hubs may lead, each at another coordinator. A hub that
// leads at several coordinators writes one report about all of them, in the lowest of their slots. So a hub that leads
// everywhere, as is usual, writes only slot 0's.
//
// The leader renews the report every 3 minutes, or every 5 on a metered link. The Lease's duration is twice that time: see
// ReportLasts. Readers combine all valid reports of a pool: see Reports.
func (p PoolName) ReportLease(of Slot) string { return of.App() + "-" + string(p) }

// ReportOf returns the pool and the slot of a report by its Lease's name; an empty pool means that it is no report. A Node may
// not have such a name.
func ReportOf(lease string) (PoolName, Slot) {
	for _, slot := range slices.Backward(Slots()) { // the prefix of slot 0 begins the others'
		if pool, ok := strings.CutPrefix(lease, PoolName("").ReportLease(slot)); ok {
			return PoolName(pool), slot
		}
	}
	return "", 0
}

// ReportLasts returns how long a report is valid, from its Lease's duration in seconds. It adds a quarter, because clocks and
// lines differ. The duration counts as at least 2 minutes, also if it is nil, and as at most 12. So no leader is believed for
// more than a quarter of an hour.
func ReportLasts(seconds *int32) time.Duration {
	const least, most = 2 * time.Minute, 12 * time.Minute
	lasts := least
	if seconds != nil {
		lasts = min(max(time.Duration(*seconds)*time.Second, least), most)
	}
	return lasts + lasts/4
}

// Reports are the reports of one pool, the lowest slot's first. A node that is in any of them reaches the pool. If two reports
// differ in anything else, the lower slot's counts.
type Reports []*coordinationv1.Lease

// ReportsOf selects from a pool's valid reports, which may be in any order. A leader's last report has everything that it
// hears, so its earlier reports in other slots are left out.
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

// Fillings returns how much of each shared resource the coordinator of the lowest slot has; nil means that its leader does not
// report that.
func (r Reports) Fillings() map[string]Filling {
	if len(r) > 0 {
		if text, ok := r[0].Annotations[AnnotationPoolResources]; ok {
			return SplitFillings(text)
		}
	}
	return nil
}
