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

// ReportLease is the name of a Lease in the cloud's kube-node-lease. In it a leader says who it is (the holder) and which of the
// pool's nodes it hears. Each slot has one, since several hubs may lead, each at another coordinator. A hub that leads at several
// writes the Lease of the lowest slot among them, about what it hears at all of them. So one hub that leads everywhere, as is the
// rule, writes slot 0's and no other.
//
// The leader renews it each 3 minutes, on a metered link each 5, and says by its duration that it is valid for twice that: see
// ReportLasts. Who reads takes all valid reports of a pool together: see Reports.
func (p PoolName) ReportLease(of Slot) string { return of.App() + "-" + string(p) }

// ReportOf returns whose report a Lease of kube-node-lease is by its name, and of which slot; an empty pool means that it is
// none. A Node may not have such a name.
func ReportOf(lease string) (PoolName, Slot) {
	for _, slot := range slices.Backward(Slots()) { // the prefix of slot 0 begins the others'
		if pool, ok := strings.CutPrefix(lease, PoolName("").ReportLease(slot)); ok {
			return PoolName(pool), slot
		}
	}
	return "", 0
}

// ReportLasts returns for how long a report is valid whose Lease has a duration in seconds: a quarter more, since clocks and
// lines differ. The duration counts as 2 minutes at least, which nil stands for, and as 12 at most: no leader is believed for
// more than a quarter of an hour.
func ReportLasts(seconds *int32) time.Duration {
	const least, most = 2 * time.Minute, 12 * time.Minute
	lasts := least
	if seconds != nil {
		lasts = min(max(time.Duration(*seconds)*time.Second, least), most)
	}
	return lasts + lasts/4
}

// Reports are the reports of one pool, the lowest slot's first. A node that is in any of them reaches the pool. Of all else that
// two say differently, the lower slot's counts.
type Reports []*coordinationv1.Lease

// ReportsOf returns the reports among the valid ones of a pool, in any order. A leader's last report says all that it hears, so
// one that it wrote before in another slot is left out.
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

// SlotLeader is who leads at the coordinator in a slot.
type SlotLeader struct {
	Slot   Slot     `json:"slot"`
	Leader NodeName `json:"leader"`
}

// Leaders returns who reports, the lowest slot's leader first: that is who leads the pool.
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

// Kubelets returns how the kubelets are known; nil means that no leader says so.
func (r Reports) Kubelets() map[NodeName]KubeletWay {
	return together(r, AnnotationKubelet, SplitKubelets)
}

// Versions returns of which releases the hubs are; nil means that no leader says so.
func (r Reports) Versions() map[NodeName]string {
	return together(r, AnnotationHubVersion, SplitVersions)
}

// Traffic returns what the hubs have carried; nil means that no leader says so.
func (r Reports) Traffic() map[NodeName]Traffic { return together(r, AnnotationTraffic, SplitTraffic) }

// together returns what the reports say of nodes in an annotation.
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

// Fillings returns how far the coordinator of the lowest slot has what the pool shares; nil means that its leader does not say
// so.
func (r Reports) Fillings() map[string]Filling {
	if len(r) > 0 {
		if text, ok := r[0].Annotations[AnnotationPoolResources]; ok {
			return SplitFillings(text)
		}
	}
	return nil
}
