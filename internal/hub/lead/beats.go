package lead

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/internal/edge"
)

// defaultLease is kubelet's nodeLeaseDurationSeconds.
const defaultLease = 40 * time.Second

// beats records what a leader has seen of its pool's Leases in the coordinator. Times are by the caller's monotonic clock.
type beats struct {
	began time.Time // when the first baseline came; zero: none has come
	nodes map[edge.NodeName]sighting
}

// sighting is the last state of one Lease.
type sighting struct {
	version string
	changed time.Time // when it last changed; zero: not since it was found
	lasts   time.Duration
	traffic *edge.Traffic   // nil: the Lease does not say
	kubelet edge.KubeletWay // empty: the Lease does not say
	hub     string          // version of the hub; empty: the Lease does not say
	says    *edge.HubReport // what the hub says of itself; nil: the Lease does not say
	line    *edge.Line      // nil: the Lease does not say, or its node's link to the cloud is down
}

// observe records a list of all Leases. A Lease that differs from its last known state counts as changed now.
func (b *beats) observe(leases []coordinationv1.Lease, now time.Time) {
	if b.began.IsZero() {
		b.began = now
	}
	nodes := make(map[edge.NodeName]sighting, len(leases))
	for _, lease := range leases {
		name := edge.NodeName(lease.Name)
		s, known := b.nodes[name]
		if (known && s.version != lease.ResourceVersion) || (!known && now.After(b.began)) {
			s.changed = now
		}
		nodes[name] = s.of(&lease)
	}
	b.nodes = nodes
}

// change records one change of one Lease.
func (b *beats) change(kind watch.EventType, lease *coordinationv1.Lease, now time.Time) {
	name := edge.NodeName(lease.Name)
	if kind == watch.Deleted {
		delete(b.nodes, name)
		return
	}
	b.nodes[name] = sighting{changed: now}.of(lease)
}

// of returns the sighting with what the Lease says.
func (s sighting) of(lease *coordinationv1.Lease) sighting {
	s.version, s.lasts, s.traffic, s.kubelet, s.hub, s.line = lease.ResourceVersion, defaultLease, nil, "", "", nil
	s.says = nil
	if d := lease.Spec.LeaseDurationSeconds; d != nil && *d > 0 {
		s.lasts = min(time.Duration(*d)*time.Second, 10*defaultLease)
	}
	if said, ok := edge.ParseTraffic(lease.Annotations[edge.AnnotationTraffic]); ok {
		s.traffic = &said
	}
	if said, ok := edge.ParseKubeletServing(lease.Annotations[edge.AnnotationKubelet]); ok {
		s.kubelet = said.Way
	}
	if said := lease.Annotations[edge.AnnotationHubVersion]; edge.IsVersion(said) {
		s.hub = said
	}
	if said, ok := edge.ParseHubReport(lease.Annotations[edge.AnnotationHub]); ok {
		s.says = &said
	}
	delegated := lease.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn
	if said, ok := edge.ParseLine(lease.Annotations[edge.AnnotationLine]); ok && !delegated {
		s.line = &said
	}
	return s
}

// lines returns the reported lines of the nodes that renew.
func (b *beats) lines(now time.Time) map[edge.NodeName]edge.Line {
	all := map[edge.NodeName]edge.Line{}
	for name, s := range b.nodes {
		if s.line != nil && !s.changed.IsZero() && now.Sub(s.changed) <= s.lasts {
			all[name] = *s.line
		}
	}
	return all
}

// traffic returns the reported traffic of these nodes.
func (b *beats) traffic(nodes []edge.NodeName) map[edge.NodeName]edge.Traffic {
	all := map[edge.NodeName]edge.Traffic{}
	for _, n := range nodes {
		if said := b.nodes[n].traffic; said != nil {
			all[n] = *said
		}
	}
	return all
}

// kubelets returns how to verify these nodes' kubelets.
func (b *beats) kubelets(nodes []edge.NodeName) map[edge.NodeName]edge.KubeletWay {
	all := map[edge.NodeName]edge.KubeletWay{}
	for _, n := range nodes {
		if way := b.nodes[n].kubelet; way != "" {
			all[n] = way
		}
	}
	return all
}

// versions returns the releases of these nodes' hubs.
func (b *beats) versions(nodes []edge.NodeName) map[edge.NodeName]string {
	all := map[edge.NodeName]string{}
	for _, n := range nodes {
		if said := b.nodes[n].hub; said != "" {
			all[n] = said
		}
	}
	return all
}

// hubs returns the reports of these nodes' hubs.
func (b *beats) hubs(nodes []edge.NodeName) map[edge.NodeName]edge.HubReport {
	all := map[edge.NodeName]edge.HubReport{}
	for _, n := range nodes {
		if said := b.nodes[n].says; said != nil {
			all[n] = *said
		}
	}
	return all
}

// reached returns the nodes that renew, sorted. It returns false if it is too early to know about all.
func (b *beats) reached(now time.Time) (names []edge.NodeName, ok bool) {
	names, ok = []edge.NodeName{}, !b.began.IsZero()
	for name, s := range b.nodes {
		switch {
		case !s.changed.IsZero() && now.Sub(s.changed) <= s.lasts:
			names = append(names, name)
		case s.changed.IsZero() && now.Sub(b.began) <= s.lasts:
			ok = false
		}
	}
	slices.Sort(names)
	return names, ok
}
