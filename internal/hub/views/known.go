package views

import (
	"bytes"
	"net/netip"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// KnownPod is what is known of one of the pool's Pods. It never changes.
type KnownPod struct {
	stream.Key
	UID  string
	Node edge.NodeName
	// Revision is the cloud's of the Pod. What is known counts for objects that are older than that, and if it is Firm, for all:
	// then the cloud has not heard it, or what the cloud has is not kubelet's word.
	Revision edge.Revision
	Firm     bool
	// IPs are its addresses, at most one of each family.
	IPs                          []netip.Addr
	Ready, Terminating, Finished bool
}

// Known is what a pool knows of its Pods and nodes. It never changes.
type Known struct {
	// Node is this node. OwnAsOf is a revision up to which all of its Pods are among Pods; 0 means that no such is known.
	Node    edge.NodeName
	OwnAsOf edge.Revision
	// Pods are the pool's, by namespace and name.
	Pods map[stream.Key]*KnownPod
	// Silent are the nodes that were seen to renew, and then not for the grace period.
	Silent map[edge.NodeName]struct{}
	// Unready are the Services with publishNotReadyAddresses.
	Unready map[stream.Key]struct{}
}

// endpoint is what an object says of one endpoint. It refers to the object's own bytes, so that to look at an endpoint allocates
// nothing.
type endpoint struct {
	namespace, name, uid []byte // of the Pod; without uid it is none
	node                 []byte
	address              []byte
	// lone says that address is the only one. The conditions are as clients take those that are missing.
	lone, serving, terminating bool
}

// verdict is what becomes of an endpoint.
type verdict struct {
	gone    bool
	address string // "" means as it was
	conditions
}

// pod returns what is known of an endpoint's Pod, or of another of that name; nil means nothing.
func (k *Known) pod(e endpoint) *KnownPod {
	return k.Pods[stream.Key{Namespace: string(e.namespace), Name: string(e.name)}]
}

// judge says what becomes of an endpoint of an object of a revision; false means that it stays as it is. pod is what is known of
// that name. tolerant says that its Service has publishNotReadyAddresses.
func (k *Known) judge(e endpoint, pod *KnownPod, at edge.Revision, tolerant bool) (v verdict, known bool) {
	if len(e.uid) == 0 {
		return v, false
	}
	same := pod != nil && pod.UID == string(e.uid)
	counts := same && string(pod.Node) == string(e.node) && (pod.Firm || pod.Revision > at)
	gone := !same && k.OwnAsOf != 0 && k.OwnAsOf >= at && string(k.Node) == string(e.node)
	_, silent := k.Silent[edge.NodeName(e.node)]
	if !counts && !gone && !silent {
		return v, false
	}
	v.serving, v.terminating = e.serving, e.terminating
	switch v4, err := e.family(); {
	case err != nil: // a name: no Pod's
		return verdict{}, false
	case gone:
		return verdict{gone: true}, true
	case counts:
		ip, has := pod.address(v4)
		if pod.Finished || !has {
			return verdict{gone: true}, true
		}
		if !e.lone || !e.isAt(ip) {
			v.address = ip.String()
		}
		v.serving, v.terminating = pod.Ready, e.terminating || pod.Terminating
	}
	v.serving = v.serving && !silent
	v.ready = tolerant || v.serving && !v.terminating
	return v, true
}

// isAt reports whether an endpoint has an address, as Kubernetes writes it.
func (e endpoint) isAt(ip netip.Addr) bool {
	var room [48]byte
	return bytes.Equal(ip.AppendTo(room[:0]), e.address)
}

// family reports of which an endpoint's address is. It fails if that is no address.
func (e endpoint) family() (v4 bool, err error) {
	ip, err := netip.ParseAddr(string(e.address))
	return ip.Is4(), err
}

func (p *KnownPod) address(v4 bool) (netip.Addr, bool) {
	for _, ip := range p.IPs {
		if ip.Is4() == v4 {
			return ip, true
		}
	}
	return netip.Addr{}, false
}
