package lead

import (
	"time"

	"yurtcoordinator/internal/edge"
)

// defaultLease is kubelet's nodeLeaseDurationSeconds.
const defaultLease = 40 * time.Second

// lasts returns for how long a heartbeat counts.
func (h Heartbeat) lasts() time.Duration {
	if d := h.Lease.Spec.LeaseDurationSeconds; d != nil && *d > 0 {
		return min(time.Duration(*d)*time.Second, 10*defaultLease)
	}
	return defaultLease
}

// renews reports whether the node was seen to renew within that time.
func (h Heartbeat) renews(now time.Time) bool {
	return !h.Changed.IsZero() && now.Sub(h.Changed) <= h.lasts()
}

// reached returns the reports of the nodes that renew their Leases at the coordinator. The parameter all has the heartbeats that
// the coordinator has sent. The parameter since is when the coordinator began to send them; zero means that it sends none. ok is
// false if it is too early to know about all nodes.
func reached(all []Heartbeat, since, now time.Time) (r report, ok bool) {
	r, ok = report{
		nodes: []edge.NodeName{}, traffic: map[edge.NodeName]edge.Traffic{}, kubelets: map[edge.NodeName]edge.KubeletWay{},
		versions: map[edge.NodeName]string{}, hubs: map[edge.NodeName]edge.HubReport{}, lines: map[edge.NodeName]edge.Line{},
	}, !since.IsZero()
	for _, h := range all {
		if h.renews(now) {
			r.hears(edge.NodeName(h.Lease.Name), h.Lease.Annotations)
		} else if h.Changed.IsZero() && now.Sub(since) <= h.lasts() {
			ok = false
		}
	}
	return r, ok
}

// hears adds a node that renews, with what the annotations of its Lease say.
func (r *report) hears(node edge.NodeName, says map[string]string) {
	r.nodes = append(r.nodes, node)
	if said, ok := edge.ParseTraffic(says[edge.AnnotationTraffic]); ok {
		r.traffic[node] = said
	}
	if said, ok := edge.ParseKubeletServing(says[edge.AnnotationKubelet]); ok && said.Way != "" {
		r.kubelets[node] = said.Way
	}
	if said := says[edge.AnnotationHubVersion]; edge.IsVersion(said) {
		r.versions[node] = said
	}
	if said, ok := edge.ParseHubReport(says[edge.AnnotationHub]); ok {
		r.hubs[node] = said
	}
	// A node whose heartbeats are delegated has no link to the cloud.
	said, ok := edge.ParseLine(says[edge.AnnotationLine])
	if ok && says[edge.DelegateHeartbeat] != edge.DelegateHeartbeatOn {
		r.lines[node] = said
	}
}
