package edge

import (
	"net/netip"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// PathState is where a coordinator tells its pool's hubs the pool's state. The answer to a GET is JSON lines, each of which is a
// State. The first line has everything that the hub asked for. Each later line has what has changed since the line before.
const PathState = "/state/v1"

// QueryPresence is a parameter of PathState. With NodesOnly, the answer also says which nodes are silent. With NodesAndPods, the
// answer adds which Pods there are. A hub asks for Pods only at its home.
const (
	QueryPresence = "presence"
	NodesOnly     = "nodes"
	NodesAndPods  = "pods"
)

// QueryAfter, a parameter of PathState, asks only for the heartbeats after a Leases.Position.
const QueryAfter = "after"

// QueryRelaying, a parameter of PathState, asks which nodes relay. The answer is one line, a Relaying. A coordinator that started
// recently, and knows of no relaying node yet, answers 503.
const QueryRelaying = "relaying"

// MostRelaying is the largest number of neighbours in a Relaying.
const MostRelaying = 32

// Relaying is what a coordinator answers to QueryRelaying.
type Relaying struct {
	// Neighbours are the nodes that relay, without the asking node. Each has renewed its Lease within the Lease's duration, by
	// the coordinator's clock. If there are more than MostRelaying, these are the first in the asking node's RankNeighbours
	// order. If a line of JSON leaves Neighbours nil, the line is no Relaying.
	Neighbours []Neighbour `json:"relaying"`
}

// State is one line of a coordinator's answer at PathState. A line without content says that there is nothing new.
type State struct {
	// Instance names the coordinator's process. A new process has lost what was pushed to the former one.
	Instance string `json:"instance"`
	// Leases are the election's and the declaration of what is current; nil means that both are as they were.
	Leases *Leases `json:"leases,omitempty"`
	// Heartbeats are the nodes' Leases, for the node whose hub leads here. nil means that the hub does not lead.
	Heartbeats *Leases `json:"heartbeats,omitempty"`
	// Whole says that the line has everything that this coordinator knows of Pods and nodes.
	Whole bool           `json:"whole,omitempty"`
	Pods  []PodPresence  `json:"pods,omitempty"`
	Gone  []PodName      `json:"gone,omitempty"` // Pods that are not here any more, or that two nodes say they have
	Nodes []NodePresence `json:"nodes,omitempty"`
}

// Leases are Leases as a coordinator has them: those that have changed, in the order of their changes, or all.
type Leases struct {
	// Position tells the coordinator up to which change this is (QueryAfter).
	Position string `json:"position"`
	// Whole says that there are no others: at the beginning, and after one was deleted.
	Whole  bool                   `json:"whole,omitempty"`
	Leases []coordinationv1.Lease `json:"leases,omitempty"`
}

// PodName names a Pod.
type PodName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// PodPresence is what endpoints need to know of a Pod, and nothing else of it.
type PodPresence struct {
	PodName
	UID  string   `json:"uid"`
	Node NodeName `json:"node"`
	// Revision, in History, is the Pod's revision in the cloud. Said means that the fields below come from kubelet, and have not
	// reached the cloud yet.
	Revision Revision `json:"revision"`
	History  History  `json:"history,omitempty"`
	Said     bool     `json:"said,omitempty"`

	// IPs are the Pod's addresses, at most one of each family. A Pod without addresses has not started yet, or has ended.
	IPs []netip.Addr `json:"ips,omitempty"`
	// Ready is the Pod's condition Ready. Overruled means that the cloud has set that condition to false because it did not hear
	// from the node, and that kubelet has not reported since then.
	Ready     bool `json:"ready,omitempty"`
	Overruled bool `json:"overruled,omitempty"`
	// Terminating means that the Pod is being deleted. Finished means that it has run to its end, or failed for good.
	Terminating bool `json:"terminating,omitempty"`
	Finished    bool `json:"finished,omitempty"`
}

// NodePresence is a node that a coordinator has seen to renew its Lease.
type NodePresence struct {
	Name NodeName `json:"name"`
	// Silent says that the node has not renewed its Lease for GraceSeconds in which the coordinator ran.
	Silent       bool `json:"silent,omitempty"`
	GraceSeconds int  `json:"graceSeconds"`
}

// Heard is how a coordinator hears of a node, by its own clock.
type Heard struct {
	Name NodeName
	// Quiet is for how long the node has not renewed its Lease, counted up to Grace.
	Quiet, Grace time.Duration
	// Silent: it has not for Grace.
	Silent bool
}

// MayBeEndpoint reports whether an address may be a Pod's. As in Kubernetes, loopback, link-local, multicast and unspecified
// addresses may not, because at each client of a Service they would mean something else.
func MayBeEndpoint(ip netip.Addr) bool { return ip.Unmap().IsGlobalUnicast() }

// PresenceOf returns what endpoints need to know of a Pod, without Revision, History and Said, which the caller adds.
//
// An empty reason of the condition Ready means Overruled. kubelet gives a reason whenever it sets a Pod to not ready.
// kube-controller-manager sets all Pods of a silent node to not ready, and leaves the reason empty, as it was while the Pod was
// ready.
func PresenceOf(p *corev1.Pod) PodPresence {
	is := PodPresence{
		PodName: PodName{p.Namespace, p.Name}, UID: string(p.UID), Node: NodeName(p.Spec.NodeName),
		Terminating: p.DeletionTimestamp != nil,
		Finished:    p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			is.Ready = c.Status == corev1.ConditionTrue
			is.Overruled = c.Status == corev1.ConditionFalse && c.Reason == ""
		}
	}
	add := func(text string) {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" {
			return
		}
		ip = ip.Unmap()
		if !MayBeEndpoint(ip) {
			return
		}
		for _, other := range is.IPs {
			if other.Is4() == ip.Is4() {
				return
			}
		}
		is.IPs = append(is.IPs, ip)
	}
	for _, ip := range p.Status.PodIPs {
		add(ip.IP)
	}
	add(p.Status.PodIP)
	return is
}
