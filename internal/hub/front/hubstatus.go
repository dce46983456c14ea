package front

import (
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/identity"
)

// HubStatus is the content of /status.
type HubStatus struct {
	// Version is the hub's release.
	Version string        `json:"version"`
	Node    edge.NodeName `json:"node"`
	Pool    edge.PoolName `json:"pool,omitempty"`
	// Role is Pending, Follower or Leader; Leader is the node that leads, if one does.
	Role   string        `json:"role"`
	Leader edge.NodeName `json:"leader,omitempty"`
	// Cloud and Coordinator are the states of the links: "unknown", "up" or "down". Cloud may also be "failing" or "relayed".
	// Coordinator is "none" if the hub has no coordinator.
	Cloud       string `json:"cloud"`
	Coordinator string `json:"coordinator"`
	// RelayedBy is the node that relays this hub's requests to the cloud: all requests if Cloud is "relayed", otherwise only
	// heartbeats. It is absent if the hub uses its own line. Relays is how many nodes use this node's line now.
	RelayedBy edge.NodeName `json:"relayedBy,omitempty"`
	Relays    int           `json:"relays,omitempty"`
	// LinkProfile is the profile of the link to the cloud: normal, metered or satellite.
	LinkProfile string `json:"linkProfile,omitempty"`
	// CoordinatorAddress is where the coordinator is, as far as the hub knows.
	CoordinatorAddress string `json:"coordinatorAddress,omitempty"`
	// Coordinators are the pool's coordinators, in the order of their slots; absent if there is only one. Coordinator and
	// CoordinatorAddress are about the home coordinator.
	Coordinators []edge.CoordinatorStatus `json:"coordinators,omitempty"`
	Followed
	// Disk is the state of the cache on disk; absent without one.
	Disk *cache.DiskStatus `json:"disk,omitempty"`
	// Identity is the state of the certificates that the hub requests itself; absent if it requests none.
	Identity *identity.Status `json:"identity,omitempty"`
	// Kubelet is what the hub found out about kubelet's serving certificate. It is absent without a coordinator, and until the
	// hub has looked.
	Kubelet *identity.KubeletFound `json:"kubelet,omitempty"`
	// Settings says which of the pool's settings the hub runs with; absent if it knows of none.
	Settings *SettingsStatus `json:"settings,omitempty"`
	// Pods says where Pods are served; absent if they are not.
	Pods *PodsStatus `json:"pods,omitempty"`
}

// PodsStatus says where a hub serves Pods.
type PodsStatus struct {
	// Address is the address as HOST:PORT; empty if the node's address is not known yet.
	Address string `json:"address,omitempty"`
	// Told says that kubelet tells this address to Pods that start now.
	Told bool `json:"told"`
	// Problem is why Pods are not served there, or not told.
	Problem string `json:"problem,omitempty"`
}

// SettingsStatus says which of its pool's settings a hub runs with.
type SettingsStatus struct {
	edge.SettingsReport
	// Own are the flags that the node itself sets and the pool sets differently.
	Own []string `json:"own,omitempty"`
}

// SettingsOf returns the status of the pool's settings; nil means that the hub knows of none. own are the flags that the node
// itself sets and the pool sets differently.
func SettingsOf(report edge.SettingsReport, own []string) *SettingsStatus {
	if report == (edge.SettingsReport{}) {
		return nil
	}
	return &SettingsStatus{report, own}
}

// Followed lists the hub's copies of resources, and the selections that it follows for its node's programs.
type Followed struct {
	Replicas []ReplicaStatus `json:"replicas,omitempty"`
	Kept     []KeptStatus    `json:"kept,omitempty"`
}

// ReplicaStatus is the state of a resource that the hub has a copy of.
type ReplicaStatus struct {
	Resource string `json:"resource"` // as in endpointslices.discovery.k8s.io
	Shared   bool   `json:"shared,omitempty"`
	// Source is where the content comes from: cloud, coordinator or none.
	Source string `json:"source"`
	// Revision is the cloud's revision up to which the copy is complete; 0 means that the copy is not complete.
	Revision edge.Revision `json:"revision"`
	Objects  int           `json:"objects"`
	// Bytes is the size of the encoded objects, HistoryBytes that of the changes kept for watches that resume.
	Bytes        int `json:"bytes"`
	HistoryBytes int `json:"historyBytes"`
	Watches      int `json:"watches"`
}

// KeptStatus is the state of a selection that the hub follows for a program.
type KeptStatus struct {
	// Client names a caller; empty means the node's programs.
	Client    string        `json:"client,omitempty"`
	Selection string        `json:"selection"`
	Source    string        `json:"source"` // cloud or none
	Revision  edge.Revision `json:"revision"`
	Objects   int           `json:"objects"`
	Bytes     int           `json:"bytes"`
	// Requests is how many requests read this selection now; most of them are watches.
	Requests int `json:"requests"`
}

// FollowedOf separates the hub's own copies of resources from the selections of programs.
func FollowedOf(all []cache.Status) (said Followed) {
	for _, f := range all {
		switch {
		case f.Client != cache.Hub:
			said.Kept = append(said.Kept, KeptStatus{
				f.Client, f.Selection.String(), f.Source, f.Revision, f.Objects, f.Bytes, f.Requests,
			})
		case f.Selection == cache.Whole(f.Selection.Resource): // leaves out the node's own NodePool, which is served to nobody
			said.Replicas = append(said.Replicas, ReplicaStatus{
				f.Selection.Resource.GroupResource().String(), f.Shared, f.Source, f.Revision, f.Objects, f.Bytes, f.HistoryBytes,
				f.Watches,
			})
		}
	}
	return said
}
