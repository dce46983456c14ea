package hub

import (
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/follow"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/store"
)

// Status is what a hub says of itself at /status.
type Status struct {
	Node edge.NodeName `json:"node"`
	Pool edge.PoolName `json:"pool,omitempty"`
	// Role is Pending, Follower or Leader; Leader is the node that leads, if one does.
	Role   string        `json:"role"`
	Leader edge.NodeName `json:"leader,omitempty"`
	// Cloud and Coordinator are the states of the links: unknown, up or down, the cloud's also failing; none without a
	// coordinator.
	Cloud       string `json:"cloud"`
	Coordinator string `json:"coordinator"`
	// CoordinatorAddress is where the coordinator is, as far as the hub knows.
	CoordinatorAddress string `json:"coordinatorAddress,omitempty"`
	// Replicas are the resources that the hub keeps copies of, Kept what it follows for programs of its node.
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
	Kept     []KeptStatus    `json:"kept,omitempty"`
	// Disk is the state of the disk's cache; absent without one.
	Disk *DiskStatus `json:"disk,omitempty"`
	// Identity is the state of the certificates that the hub gets by itself; absent if somebody else does.
	Identity *identity.Status `json:"identity,omitempty"`
}

// Status returns the hub's present state.
func (h *Hub) Status() Status {
	s := Status{
		Node: h.cfg.Node, Pool: h.cfg.Pool, Role: role.Pending.String(), Cloud: h.cloud.Link().Get().String(),
		Coordinator: "none", CoordinatorAddress: h.coordinatorAddress(),
	}
	s.Replicas, s.Kept = followedStatus(h.followed.Status())
	if h.disk != nil {
		s.Disk = diskStatus(h.disk.Health())
	}
	if h.identity != nil {
		status := h.identity.Status()
		s.Identity = &status
	}
	if h.pool != nil {
		standing := h.pool.elector.Standing().Get()
		s.Role, s.Leader = standing.Role.String(), standing.Leader
		s.Coordinator = h.pool.coordinator.Link().Get().String()
	}
	return s
}

// ReplicaStatus is what a hub says of a resource that it keeps a copy of.
type ReplicaStatus struct {
	Resource string `json:"resource"` // as in endpointslices.discovery.k8s.io
	Shared   bool   `json:"shared,omitempty"`
	// Source is where the content comes from: cloud, coordinator or none.
	Source string `json:"source"`
	// Revision is the cloud's revision up to which the copy is complete; 0: it is not.
	Revision edge.Revision `json:"revision"`
	Objects  int           `json:"objects"`
	// Bytes is what the objects take, encoded; HistoryBytes what is kept besides for watches that resume.
	Bytes        int `json:"bytes"`
	HistoryBytes int `json:"historyBytes"`
	Watches      int `json:"watches"`
}

// KeptStatus is what a hub says of a selection that it follows for a program.
type KeptStatus struct {
	// Client is who has credentials of its own; empty: the node's programs.
	Client    string        `json:"client,omitempty"`
	Selection string        `json:"selection"`
	Source    string        `json:"source"` // cloud or none
	Revision  edge.Revision `json:"revision"`
	Objects   int           `json:"objects"`
	Bytes     int           `json:"bytes"`
	// Requests are those that read it now, watches most of them.
	Requests int `json:"requests"`
}

// followedStatus tells the hub's own copies of resources from what it follows for programs.
func followedStatus(all []follow.Status) (replicas []ReplicaStatus, kept []KeptStatus) {
	for _, f := range all {
		switch {
		case f.Client != follow.Hub:
			kept = append(kept, KeptStatus{
				f.Client, f.Selection.String(), f.Source, f.Revision, f.Objects, f.Bytes, f.Requests,
			})
		case f.Selection == follow.Whole(f.Selection.Resource): // not the own NodePool, which nobody is served
			replicas = append(replicas, ReplicaStatus{
				f.Selection.Resource.GroupResource().String(), f.Shared, f.Source, f.Revision, f.Objects, f.Bytes, f.HistoryBytes,
				f.Watches,
			})
		}
	}
	return replicas, kept
}

// DiskStatus is how the disk's cache does.
type DiskStatus struct {
	Bytes int64 `json:"bytes"`
	// Error says why the disk cannot be written, and Since when; absent while it can.
	Error string     `json:"error,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	// Corrupt says what was found corrupt when the hub started.
	Corrupt string `json:"corrupt,omitempty"`
}

func diskStatus(h store.Health) *DiskStatus {
	s := &DiskStatus{Bytes: h.Bytes, Error: h.Err, Corrupt: h.Corrupt}
	if h.Err != "" {
		s.Since = &h.Since
	}
	return s
}
