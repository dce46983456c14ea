package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// history records every change of Nodes, Pods, Leases and EndpointSlices that the cloud's watches tell, with the time
// at which it was told by our own clock.
type history struct {
	mu     sync.Mutex
	nodes  map[string][]nodeAt
	leases map[string][]leaseAt
	pods   map[types.UID][]podAt
	slices map[string][]sliceAt // by name of the EndpointSlice
}

type nodeAt struct {
	at       time.Time
	ready    corev1.ConditionStatus
	linkDown corev1.ConditionStatus
	tainted  bool
}

type leaseAt struct {
	at        time.Time
	renewed   time.Time // by the node's clock
	delegated bool
	uid       types.UID
}

type podAt struct {
	at        time.Time
	name      string
	namespace string
	node      string
	ip        string
	ready     bool
	restarts  int32
	deleting  bool
	gone      bool
}

type sliceAt struct {
	at      time.Time
	service string
	ready   []string // addresses
}

// observe starts to record, and returns when the present state is in.
func observe(ctx context.Context, client kubernetes.Interface, owner *sync.WaitGroup) (*history, error) {
	h := &history{
		nodes: map[string][]nodeAt{}, leases: map[string][]leaseAt{}, pods: map[types.UID][]podAt{},
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

func (h *history) record(object any, gone bool) {
	if d, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = d.Obj
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Node:
		n := nodeAt{at: now, tainted: slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == edge.TaintUnschedulable && t.Effect == corev1.TaintEffectNoSchedule
		})}
		for _, c := range o.Status.Conditions {
			switch c.Type {
			case corev1.NodeReady:
				n.ready = c.Status
			case edge.ConditionCloudLinkDown:
				n.linkDown = c.Status
			}
		}
		h.nodes[o.Name] = append(h.nodes[o.Name], n)
	case *coordinationv1.Lease:
		if o.Namespace != corev1.NamespaceNodeLease || o.Spec.RenewTime == nil || gone {
			return
		}
		h.leases[o.Name] = append(h.leases[o.Name], leaseAt{
			at: now, renewed: o.Spec.RenewTime.Time, uid: o.UID,
			delegated: o.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn,
		})
	case *corev1.Pod:
		p := podAt{
			at: now, name: o.Name, namespace: o.Namespace, node: o.Spec.NodeName, ip: o.Status.PodIP, gone: gone,
			deleting: o.DeletionTimestamp != nil,
		}
		for _, c := range o.Status.ContainerStatuses {
			p.restarts += c.RestartCount
		}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady {
				p.ready = c.Status == corev1.ConditionTrue
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

// node returns the last state of a node.
func (h *history) node(name string) nodeAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.nodes[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nodeAt{}
}

// lease returns the last state of a node's Lease.
func (h *history) lease(name string) leaseAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	if all := h.leases[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return leaseAt{}
}

// neverNotReady returns an error if a node was anything but Ready since then.
func (h *history) neverNotReady(name string, since time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes[name] {
		if n.at.After(since) && n.ready != corev1.ConditionTrue {
			return fmt.Errorf("%s was Ready=%s %.1fs after", name, n.ready, n.at.Sub(since).Seconds())
		}
	}
	return nil
}

// firstNode returns when a node first was as wanted since then.
func (h *history) firstNode(name string, since time.Time, want func(nodeAt) bool) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes[name] {
		if n.at.After(since) && want(n) {
			return n.at, true
		}
	}
	return time.Time{}, false
}

// firstLease returns when a node's Lease first was as wanted since then.
func (h *history) firstLease(name string, since time.Time, want func(leaseAt) bool) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leases[name] {
		if l.at.After(since) && want(l) {
			return l.at, true
		}
	}
	return time.Time{}, false
}

// renewals returns when a node's Lease was seen to advance in the cloud since then: the moments that
// kube-controller-manager counts as heartbeats.
func (h *history) renewals(name string, since time.Time) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	var at []time.Time
	var last time.Time
	for _, l := range h.leases[name] {
		if l.renewed.After(last) {
			last = l.renewed
			if l.at.After(since) {
				at = append(at, l.at)
			}
		}
	}
	return at
}

// largestAge is the longest that a node's Lease went without being renewed in the cloud, between two moments.
func (h *history) largestAge(name string, since, until time.Time) time.Duration {
	last, largest := since, time.Duration(0)
	for _, at := range h.renewals(name, since) {
		if at.After(until) {
			break
		}
		largest, last = max(largest, at.Sub(last)), at
	}
	return max(largest, until.Sub(last))
}

// livePods returns the last state of each of the scenario's Pods that is not gone or going, by UID.
func (h *history) livePods() map[types.UID]podAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[types.UID]podAt{}
	for uid, all := range h.pods {
		if p := all[len(all)-1]; p.namespace == namespace && !p.gone && !p.deleting {
			out[uid] = p
		}
	}
	return out
}

// ofPod returns all that was told of a Pod, in its order.
func (h *history) ofPod(uid types.UID) []podAt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pods[uid])
}

// untouched returns an error if one of these Pods has been deleted, restarted or unready since then.
func (h *history) untouched(pods map[types.UID]podAt, since time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, before := range pods {
		for _, p := range h.pods[uid] {
			if !p.at.After(since) {
				continue
			}
			after := p.at.Sub(since).Seconds()
			switch {
			case p.deleting || p.gone:
				return fmt.Errorf("the Pod %s on %s was deleted %.1fs after", p.name, p.node, after)
			case p.restarts != before.restarts:
				return fmt.Errorf("the Pod %s on %s was restarted %.1fs after", p.name, p.node, after)
			case !p.ready:
				return fmt.Errorf("the Pod %s on %s was not ready %.1fs after", p.name, p.node, after)
			}
		}
	}
	return nil
}

// endpointsKept returns an error if one of these addresses was missing among the web Service's ready endpoints since
// then. A change of one slice is held against the newest state of the others.
func (h *history) endpointsKept(addresses []string, since time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	type change struct {
		slice string
		sliceAt
	}
	var changes []change
	for name, all := range h.slices {
		for _, s := range all {
			if s.service == webName {
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

func anyHas(current map[string][]string, address string) bool {
	for _, ready := range current {
		if slices.Contains(ready, address) {
			return true
		}
	}
	return false
}
