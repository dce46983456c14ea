package views

import (
	"bytes"
	"net/netip"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// KnownPod is what the pool knows of one of its Pods. It is immutable.
type KnownPod struct {
	stream.Key
	UID  string
	Node edge.NodeName
	// Revision is the cloud's revision of the Pod. The Pod's state here overrides EndpointSlices and Endpoints of earlier
	// revisions only, unless Firm is set. Firm means that the cloud may not have heard this state, or has marked the Pod as not
	// ready without having heard kubelet.
	Revision edge.Revision
	Firm     bool
	// IPs are the Pod's addresses, at most one of each family.
	IPs                          []netip.Addr
	Ready, Terminating, Finished bool
}

// Known is what the pool knows of its Pods and nodes. It is immutable.
type Known struct {
	// Node is this node. OwnAsOf is a revision of the cloud up to which the map Pods has all of this node's Pods; 0 means
	// unknown.
	Node    edge.NodeName
	OwnAsOf edge.Revision
	// Pods are the pool's, by namespace and name.
	Pods map[stream.Key]*KnownPod
	// Silent are the nodes that were seen to renew, and then did not renew for the grace period.
	Silent map[edge.NodeName]struct{}
	// Unready are the Services with publishNotReadyAddresses.
	Unready map[stream.Key]struct{}
}

// endpoint is one endpoint of an object. It refers to the object's own bytes, so that reading an endpoint allocates nothing.
type endpoint struct {
	namespace, name, uid []byte // of the Pod; an empty uid means that the endpoint has no Pod
	node                 []byte
	address              []byte
	// lone says that the endpoint has one address. serving and terminating have clients' defaults where the object omits them.
	lone, serving, terminating bool
}

// verdict is how an endpoint is shown.
type verdict struct {
	gone    bool
	address string // "" means as it was
	conditions
}

// pod returns the known Pod with the name of an endpoint's Pod, whatever its UID; nil means none.
func (k *Known) pod(e endpoint) *KnownPod {
	return k.Pods[stream.Key{Namespace: string(e.namespace), Name: string(e.name)}]
}

// judge returns how to show the endpoint e of an object; false means unchanged. The parameter pod is the known Pod with the name
// of e's Pod; nil means none. The parameter at is the object's revision; tolerant says that the Service has
// publishNotReadyAddresses.
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

// isAt reports whether an endpoint's address is ip in the form that Kubernetes writes.
func (e endpoint) isAt(ip netip.Addr) bool {
	var room [48]byte
	return bytes.Equal(ip.AppendTo(room[:0]), e.address)
}

// family reports whether an endpoint's address is IPv4. It fails if the address is not an IP address.
func (e endpoint) family() (v4 bool, err error) {
	ip, err := netip.ParseAddr(string(e.address))
	return ip.Is4(), err
}

func (p *KnownPod) address(v4 bool) (netip.Addr, bool) {
	for _, ip := range p.IPs {
		if ip.Is4() == v4 && edge.MayBeEndpoint(ip) { // as the coordinator says: it may be another's program
			return ip, true
		}
	}
	return netip.Addr{}, false
}
