package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"yurtcoordinator/internal/edge"
)

// Chronicle records every change of Nodes, Pods, Leases and EndpointSlices that the cloud's watches deliver. The time of each
// is that of its delivery, by our own clock.
type Chronicle struct {
	mu     sync.Mutex
	nodes  map[string][]NodeAt
	leases map[string][]LeaseAt
	pods   map[types.UID][]PodAt
	slices map[string][]sliceAt // by name of the EndpointSlice
}

// NodeAt is a Node at the moment when the cloud's watch delivered it.
type NodeAt struct {
	At    time.Time
	Ready corev1.ConditionStatus
	// Says is the reason and the message of its condition Ready.
	Says     string
	LinkDown corev1.ConditionStatus
	// Taint is the effect of the taint of a node whose link is down; empty means that it has none.
	Taint corev1.TaintEffect
	// Evicts says that the node has a taint that evicts Pods. Lost says that it has the taint of a silent node.
	Evicts, Lost bool
	// Held is the status of the Node's condition EvictionsHeld; its reason and message are in HeldSays.
	Held              corev1.ConditionStatus
	HeldWhy, HeldSays string
}

// LeaseAt is a node's Lease at the moment when the cloud's watch delivered it.
type LeaseAt struct {
	At        time.Time
	Renewed   time.Time // by the node's clock
	Delegated bool
	UID       types.UID
}

// PodAt is a Pod at the moment when the cloud's watch delivered it.
type PodAt struct {
	At        time.Time
	Name      string
	Namespace string
	Node      string
	IPs       []string // of each IP family
	Ready     bool
	Restarts  int32
	Deleting  bool
	Gone      bool
	// NotReady and Unreachable are for how many seconds it tolerates these taints of its node; nil means forever.
	NotReady, Unreachable *int64
	// Remembers says that an annotation has the seconds that it tolerated before.
	Remembers bool
}

// Ends reports whether the Pod was deleted or is about to be.
func (p PodAt) Ends() bool { return p.Deleting || p.Gone }

type sliceAt struct {
	at      time.Time
	service string
	ready   []string // addresses
}

// observe starts to record, and returns when it has the present state.
func observe(ctx context.Context, client kubernetes.Interface, owner *sync.WaitGroup) (*Chronicle, error) {
	h := &Chronicle{
		nodes: map[string][]NodeAt{}, leases: map[string][]LeaseAt{}, pods: map[types.UID][]PodAt{},
		slices: map[string][]sliceAt{},
	}
	f := informers.NewSharedInformerFactory(client, 0)
	all := []cache.SharedIndexInformer{
		f.Core().V1().Nodes().Informer(), f.Core().V1().Pods().Informer(),
		f.Coordination().V1().Leases().Informer(), f.Discovery().V1().EndpointSlices().Informer(),
	}
	synced := make([]cache.InformerSynced, 0, len(all))
	for _, i := range all {
		r, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { h.record(o, false) },
			UpdateFunc: func(_, o any) { h.record(o, false) },
			DeleteFunc: func(o any) { h.record(o, true) },
		})
		if err != nil {
			return nil, err
		}
		synced = append(synced, r.HasSynced)
	}
	f.Start(ctx.Done())
	owner.Go(func() { <-ctx.Done(); f.Shutdown() })
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil, errors.New("the cloud does not list its objects")
	}
	return h, nil
}

func (h *Chronicle) record(object any, gone bool) {
	if d, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = d.Obj
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Node:
		n := NodeAt{At: now}
		for _, t := range o.Spec.Taints {
			if t.Key == edge.TaintUnschedulable {
				n.Taint = t.Effect
			}
			n.Evicts = n.Evicts || t.Effect == corev1.TaintEffectNoExecute
			n.Lost = n.Lost || t.Effect == corev1.TaintEffectNoExecute && t.Key == corev1.TaintNodeUnreachable
		}
		for _, c := range o.Status.Conditions {
			switch c.Type {
			case corev1.NodeReady:
				n.Ready, n.Says = c.Status, c.Reason+": "+c.Message
			case edge.ConditionCloudLinkDown:
				n.LinkDown = c.Status
			case edge.ConditionEvictionsHeld:
				n.Held, n.HeldWhy, n.HeldSays = c.Status, c.Reason, c.Message
			}
		}
		h.nodes[o.Name] = append(h.nodes[o.Name], n)
	case *coordinationv1.Lease:
		if o.Namespace != corev1.NamespaceNodeLease || o.Spec.RenewTime == nil || gone {
			return
		}
		h.leases[o.Name] = append(h.leases[o.Name], LeaseAt{
			At: now, Renewed: o.Spec.RenewTime.Time, UID: o.UID,
			Delegated: o.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn,
		})
	case *corev1.Pod:
		p := PodAt{
			At: now, Name: o.Name, Namespace: o.Namespace, Node: o.Spec.NodeName, Gone: gone,
			Deleting: o.DeletionTimestamp != nil,
		}
		_, p.Remembers = o.Annotations[edge.AnnotationOriginalUnreachable]
		for _, t := range o.Spec.Tolerations {
			switch t.Key {
			case corev1.TaintNodeNotReady:
				p.NotReady = t.TolerationSeconds
			case corev1.TaintNodeUnreachable:
				p.Unreachable = t.TolerationSeconds
			}
		}
		for _, ip := range o.Status.PodIPs {
			p.IPs = append(p.IPs, ip.IP)
		}
		for _, c := range o.Status.ContainerStatuses {
			p.Restarts += c.RestartCount
		}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady {
				p.Ready = c.Status == corev1.ConditionTrue
			}
		}
		h.pods[o.UID] = append(h.pods[o.UID], p)
	case *discoveryv1.EndpointSlice:
		s := sliceAt{at: now, service: o.Labels[discoveryv1.LabelServiceName]}
		for _, e := range o.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready && !gone {
				s.ready = append(s.ready, e.Addresses...)
			}
		}
		h.slices[o.Name] = append(h.slices[o.Name], s)
	}
}

// Node returns the last state of a node.
func (h *Chronicle) Node(name string) NodeAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.nodes[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return NodeAt{}
}

// NeverNotReady fails if a node was anything but Ready since then.
func (h *Chronicle) NeverNotReady(name string, since time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes[name] {
		if n.At.After(since) && n.Ready != corev1.ConditionTrue {
			return fmt.Errorf("%s was Ready=%s %.1fs after: %s", name, n.Ready, n.At.Sub(since).Seconds(), n.Says)
		}
	}
	return nil
}

// NeverNotReady expects that each of these nodes was Ready all the time after since.
func (t *T) NeverNotReady(since time.Time, nodes ...string) {
	for _, node := range nodes {
		t.Must(t.Seen.NeverNotReady(node, since))
	}
}

// startTakes is how long a kubelet that has just been started may say that it is not ready yet, on a busy machine.
const startTakes = 15 * time.Second

// startSays is what any kubelet may report in its first seconds, with or without a hub between it and the cloud. A kubelet
// reports once it has asked the container runtime, and does not wait until it has seen its containers and its CSINode.
var startSays = []string{
	"container runtime status check may not have completed yet", "PLEG is not healthy: pleg has yet to be successful",
	"CSINode is not yet initialized",
}

// ReadyButForStarts fails if a node was not Ready at any moment after since. It makes an exception for what the node's own
// kubelet reports right after a start, and returns for how long that was.
func (h *Chronicle) ReadyButForStarts(name string, since time.Time) (starting time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var began time.Time
	for _, n := range h.nodes[name] {
		switch {
		case !n.At.After(since):
		case n.Ready == corev1.ConditionTrue && began.IsZero():
		case n.Ready == corev1.ConditionTrue:
			took := n.At.Sub(began)
			if took > startTakes {
				return starting, fmt.Errorf("%s was not Ready for %v after its kubelet's start", name, took)
			}
			starting, began = starting+took, time.Time{}
		case !isStart(n.Says):
			return starting, fmt.Errorf("%s was Ready=%s %.1fs after: %s", name, n.Ready, n.At.Sub(since).Seconds(), n.Says)
		case began.IsZero():
			began = n.At
		}
	}
	if !began.IsZero() {
		return starting, fmt.Errorf("%s is not Ready since %v: %s", name, began, h.nodes[name][len(h.nodes[name])-1].Says)
	}
	return starting, nil
}

// isStart reports whether the message of a condition Ready has nothing but what a kubelet says right after its start.
func isStart(says string) bool {
	said, own := strings.CutPrefix(says, "KubeletNotReady: ")
	if !own {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(said, "["), "]"), ", ") {
		if !slices.Contains(startSays, part) {
			return false
		}
	}
	return true
}

// FirstNode returns the first moment after since at which a node was as wanted.
func (h *Chronicle) FirstNode(name string, since time.Time, want func(NodeAt) bool) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes[name] {
		if n.At.After(since) && want(n) {
			return n.At, true
		}
	}
	return time.Time{}, false
}

// Lease returns the last state of a node's Lease.
func (h *Chronicle) Lease(name string) LeaseAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.leases[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return LeaseAt{}
}

// FirstLease returns the first moment after since at which a node's Lease was as wanted.
func (h *Chronicle) FirstLease(name string, since time.Time, want func(LeaseAt) bool) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leases[name] {
		if l.At.After(since) && want(l) {
			return l.At, true
		}
	}
	return time.Time{}, false
}

// Renewals returns the moments after since at which a node's Lease was seen to advance in the cloud. kube-controller-manager
// counts these as heartbeats.
func (h *Chronicle) Renewals(name string, since time.Time) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var at []time.Time
	var last time.Time
	for _, l := range h.leases[name] {
		if l.Renewed.After(last) {
			last = l.Renewed
			if l.At.After(since) {
				at = append(at, l.At)
			}
		}
	}
	return at
}

// LargestAge returns the longest time between two moments in which a node's Lease was not renewed in the cloud.
func (h *Chronicle) LargestAge(name string, since, until time.Time) time.Duration {
	last, largest := since, time.Duration(0)
	for _, at := range h.Renewals(name, since) {
		if at.After(until) {
			break
		}
		largest, last = max(largest, at.Sub(last)), at
	}
	return max(largest, until.Sub(last))
}

// LivePods returns the last state of each of the scenario's Pods that is neither gone nor going, by UID.
func (h *Chronicle) LivePods() map[types.UID]PodAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[types.UID]PodAt{}
	for uid, all := range h.pods {
		if p := all[len(all)-1]; p.Namespace == Namespace && !p.Gone && !p.Deleting {
			out[uid] = p
		}
	}
	return out
}

// PodsOn returns the scenario's Pods on a node that had not ended when the cloud lost the node. If the node was not lost, it
// returns those that have not ended now.
func (h *Chronicle) PodsOn(node string) []types.UID {
	lost, was := h.FirstNode(node, time.Time{}, func(n NodeAt) bool { return n.Lost })
	h.mu.Lock()
	defer h.mu.Unlock()
	var on []types.UID
	for uid, all := range h.pods {
		i := slices.IndexFunc(all, PodAt.Ends)
		there := i < 0 || was && all[i].At.After(lost)
		if last := all[len(all)-1]; there && last.Node == node && last.Namespace == Namespace {
			on = append(on, uid)
		}
	}
	return on
}

// Pod returns the last that was seen of a Pod.
func (h *Chronicle) Pod(uid types.UID) PodAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.pods[uid]; len(all) > 0 {
		return all[len(all)-1]
	}
	return PodAt{}
}

// OfPod returns all that was delivered about a Pod, in order.
func (h *Chronicle) OfPod(uid types.UID) []PodAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pods[uid])
}

// FirstPod returns the first moment after since at which a Pod was as wanted.
func (h *Chronicle) FirstPod(uid types.UID, since time.Time, want func(PodAt) bool) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pods[uid] {
		if p.At.After(since) && want(p) {
			return p.At, true
		}
	}
	return time.Time{}, false
}

// Untouched fails if one of these Pods has been deleted, restarted or unready since then.
func (h *Chronicle) Untouched(pods map[types.UID]PodAt, since time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, before := range pods {
		for _, p := range h.pods[uid] {
			if !p.At.After(since) {
				continue
			}
			after := p.At.Sub(since).Seconds()
			switch {
			case p.Deleting || p.Gone:
				return fmt.Errorf("the Pod %s on %s was deleted %.1fs after", p.Name, p.Node, after)
			case p.Restarts != before.Restarts:
				return fmt.Errorf("the Pod %s on %s was restarted %.1fs after", p.Name, p.Node, after)
			case !p.Ready:
				return fmt.Errorf("the Pod %s on %s was not ready %.1fs after", p.Name, p.Node, after)
			}
		}
	}
	return nil
}

// EndpointsKept fails if one of these addresses was missing among the web Service's ready endpoints at any time after since.
// The endpoints at a change are those of the changed slice and of the newest state of the other slices.
func (h *Chronicle) EndpointsKept(addresses []string, since time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	type change struct {
		slice string
		sliceAt
	}
	var changes []change
	for name, all := range h.slices {
		for _, s := range all {
			if s.service == WebName {
				changes = append(changes, change{name, s})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at.UnixNano(), b.at.UnixNano()) })
	current := map[string][]string{}
	for _, c := range changes {
		current[c.slice] = c.ready
		if !c.at.After(since) {
			continue
		}
		for _, address := range addresses {
			if !anyHas(current, address) {
				return fmt.Errorf("endpoint %s was not ready %.1fs after", address, c.at.Sub(since).Seconds())
			}
		}
	}
	for _, address := range addresses {
		if !anyHas(current, address) {
			return fmt.Errorf("endpoint %s is not ready", address)
		}
	}
	return nil
}

// EndpointsGone fails if one of these addresses is among the web Service's ready endpoints.
func (h *Chronicle) EndpointsGone(addresses []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	current := map[string][]string{}
	for name, all := range h.slices {
		if last := all[len(all)-1]; last.service == WebName {
			current[name] = last.ready
		}
	}
	for _, address := range addresses {
		if anyHas(current, address) {
			return fmt.Errorf("endpoint %s is ready", address)
		}
	}
	return nil
}

func anyHas(current map[string][]string, address string) bool {
	for _, ready := range current {
		if slices.Contains(ready, address) {
			return true
		}
	}
	return false
}
