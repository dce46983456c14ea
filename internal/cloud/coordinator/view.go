package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

const (
	// indexPool indexes YurtCoordinators by their pool.
	indexPool = "openyurt.io/coordinator-pool"

	// authenticationConfig holds the authority by which the cluster verifies its clients.
	authenticationConfig = "extension-apiserver-authentication"
	clientCAKey          = "client-ca-file"
)

// view is what the cache has of a pool. Its YurtCoordinators and Nodes are the cache's own objects and must not be changed.
// Copies would cost too much, because each change of the YurtAppSet reads a thousand pools.
type view struct {
	census   Census
	taints   []corev1.Taint
	settings settings
	nodes    []corev1.Node
	crew     crew
	// hosts are the Nodes of crew.current, in whatever pool; nil where a Pod has none, or where its Node is gone.
	hosts [edge.MaxSlots]*corev1.Node
	// slots is how many coordinators the pool must have, in as many slots; had is how many it has by its NodePool's label.
	slots, had edge.Slot
}

// apps are the YurtAppSets of the coordinators by their slots; nil where there is none.
type apps [edge.MaxSlots]*v1beta1.YurtAppSet

// count returns how many there are.
func (a apps) count() (n edge.Slot) {
	for slot := range a {
		if a[slot] != nil {
			n = edge.Slot(slot) + 1
		}
	}
	return n
}

// slotOfApp returns the slot that a YurtAppSet is for.
func slotOfApp(app client.Object) (edge.Slot, bool) {
	i := slices.IndexFunc(edge.Slots(), func(s edge.Slot) bool { return s.App() == app.GetName() })
	return edge.Slot(i), i >= 0 && app.GetNamespace() == edge.NamespaceSystem
}

// census reads the input of a verdict on a pool.
func (r *Reconciler) census(ctx context.Context, pool edge.PoolName, says []v1alpha1.PoolSettings) (view, error) {
	v := view{census: Census{Pool: pool}}
	var nodePool v1beta2.NodePool
	err := r.cfg.Client.Get(ctx, client.ObjectKey{Name: string(pool)}, &nodePool)
	if client.IgnoreNotFound(err) != nil {
		return view{}, fmt.Errorf("read NodePool %s: %w", pool, err)
	}
	v.had = labelled(&nodePool)
	v.census.Deployed = v.had > 0
	v.census.PoolExists = err == nil && (nodePool.DeletionTimestamp.IsZero() || v.census.Deployed)
	v.taints = nodePool.Spec.Taints
	nodePool.Name = string(pool)
	if v.settings, err = r.settingsFor(&nodePool, says); err != nil {
		return view{}, err
	}
	v.census.MinNodes, v.census.BadSettings = v.settings.minNodes(), v.settings.bad
	var all v1alpha1.YurtCoordinatorList
	err = r.cfg.Client.List(ctx, &all, client.MatchingFields{indexPool: string(pool)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return view{}, fmt.Errorf("list YurtCoordinators of pool %s: %w", pool, err)
	}
	for i := range all.Items {
		v.census.Coordinators = append(v.census.Coordinators, &all.Items[i])
		if len(all.Items[i].Status.Coordinators) > 0 && v.had == 0 { // somebody has taken the label away
			v.census.Deployed = true
		}
	}
	if v.nodes, err = control.NodesOf(ctx, r.cfg.Client, pool); err != nil {
		return view{}, err
	}
	for i := range v.nodes {
		v.census.Nodes = append(v.census.Nodes,
			NodeFact{Name: edge.NodeName(v.nodes[i].Name), Autonomous: autonomous(&v.nodes[i])})
	}
	return v, nil
}

// members returns the names of the pool's nodes, in order.
func (v view) members() []edge.NodeName {
	names := make([]edge.NodeName, 0, len(v.census.Nodes))
	for _, n := range v.census.Nodes {
		names = append(names, n.Name)
	}
	return sorted(names)
}

func autonomous(node *corev1.Node) bool {
	_, duration := node.Annotations[edge.AnnotationAutonomyDuration]
	return duration || node.Annotations[edge.AnnotationAutonomy] == edge.AutonomyOn
}

// slotsFor returns how many coordinators a pool must have, by its YurtCoordinator and its settings. There are at most as many as
// nodes, because no node runs two. The highest slots are left out, so that the others find nodes. If the settings can't be used,
// the pool keeps the number that it has.
func (v view) slotsFor(c *v1alpha1.YurtCoordinator) edge.Slot {
	if v.settings.bad != nil && v.had > 0 {
		return v.had
	}
	return max(1, min(v.replicas(c), edge.Slot(len(v.nodes))))
}

// replicas returns how many coordinators are asked for.
func (v view) replicas(c *v1alpha1.YurtCoordinator) edge.Slot {
	return min(edge.Slot(ptr.Deref(c.Spec.Replicas, ptr.Deref(v.settings.Replicas, 1))), edge.MaxSlots)
}

// labelled returns how many coordinators a NodePool's label says.
func labelled(p *v1beta2.NodePool) edge.Slot {
	n, err := strconv.Atoi(p.Labels[edge.LabelCoordinators])
	if err != nil || n < 0 || n > edge.MaxSlots {
		return 0
	}
	return edge.Slot(n)
}

// apps reads the coordinators' YurtAppSets. They may be the cache's own, and must not be changed.
func (r *Reconciler) apps(ctx context.Context) (all apps, err error) {
	var list v1beta1.YurtAppSetList
	if err := r.cfg.Client.List(ctx, &list, client.InNamespace(edge.NamespaceSystem), client.UnsafeDisableDeepCopy); err != nil {
		return all, fmt.Errorf("list YurtAppSets of %s: %w", edge.NamespaceSystem, err)
	}
	for i := range list.Items {
		if slot, ok := slotOfApp(&list.Items[i]); ok {
			all[slot] = &list.Items[i]
		}
	}
	return all, nil
}

func ofPool(pool edge.PoolName) client.MatchingLabels {
	return client.MatchingLabels{edge.LabelApp: edge.AppCoordinator, edge.LabelNodePool: string(pool)}
}

// current returns the newest Pod that has not ended and is not being deleted; nil means that there is none.
func current(pods []corev1.Pod) *corev1.Pod {
	var best *corev1.Pod
	for i := range pods {
		p := &pods[i]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if ended || !p.DeletionTimestamp.IsZero() {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&p.CreationTimestamp) ||
			best.CreationTimestamp.Equal(&p.CreationTimestamp) && p.Name > best.Name {
			best = p
		}
	}
	return best
}

// hosts finds the Nodes of coordinators: most are among the pool's.
func (r *Reconciler) hosts(ctx context.Context, c crew, nodes []corev1.Node) (all [edge.MaxSlots]*corev1.Node, err error) {
	for slot, pod := range c.current {
		if pod == nil || pod.Spec.NodeName == "" {
			continue
		}
		if i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == pod.Spec.NodeName }); i >= 0 {
			all[slot] = &nodes[i]
			continue
		}
		node := &corev1.Node{}
		err := r.cfg.Client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)
		if client.IgnoreNotFound(err) != nil {
			return all, fmt.Errorf("read node %s: %w", pod.Spec.NodeName, err)
		}
		if err == nil {
			all[slot] = node
		}
	}
	return all, nil
}

// placeOf returns where a Pod runs, or nil if it has no node. If the Node is gone, host is nil, and the Pod's own status has the
// address.
func placeOf(pod *corev1.Pod, host *corev1.Node) *place {
	if pod == nil || pod.Spec.NodeName == "" {
		return nil
	}
	host = cmp.Or(host, &corev1.Node{})
	at := &place{
		Pod: pod.Name, UID: pod.UID, Node: edge.NodeName(pod.Spec.NodeName),
		CertsHash: pod.Annotations[annotationCertsHash],
	}
	for _, a := range edge.LANAddresses(host.Annotations) {
		at.Addresses = append(at.Addresses, a.String())
	}
	if pod.Status.HostIP != "" && !slices.Contains(at.Addresses, pod.Status.HostIP) { // the address that it binds
		at.Addresses = append(at.Addresses, pod.Status.HostIP)
	}
	for _, a := range host.Status.Addresses {
		if a.Type == corev1.NodeInternalIP && !slices.Contains(at.Addresses, a.Address) {
			at.Addresses = append(at.Addresses, a.Address)
		}
	}
	return at
}

// addressesOf returns the addresses of these nodes at which a coordinator may serve. For each node these are the LAN addresses
// that an administrator has set, or else the node's internal addresses.
func addressesOf(nodes []corev1.Node) (all []string) {
	for i := range nodes {
		lan := edge.LANAddresses(nodes[i].Annotations)
		for _, a := range lan {
			all = append(all, a.String())
		}
		for _, a := range nodes[i].Status.Addresses {
			if a.Type == corev1.NodeInternalIP && len(lan) == 0 {
				all = append(all, a.Address)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// maxDoors is how many nodes the operators' kubeconfig names: if their machines are lost, the coordinators' are, too.
const maxDoors = edge.MaxSlots

// doorsOf returns URLs at which hubs pass operators on to the pool's coordinators: of the first nodes by name, maxDoors at most.
// It uses a node's internal address, where the hub serves Pods unless somebody has configured another one.
func doorsOf(nodes []corev1.Node) (doors []string) {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for i := range nodes {
		internal := slices.IndexFunc(nodes[i].Status.Addresses, func(a corev1.NodeAddress) bool {
			ip, err := netip.ParseAddr(a.Address)
			return a.Type == corev1.NodeInternalIP && err == nil && ip.IsGlobalUnicast()
		})
		if internal >= 0 && len(doors) < maxDoors {
			at := net.JoinHostPort(nodes[i].Status.Addresses[internal].Address, strconv.Itoa(edge.PortHubRelay))
			doors = append(doors, "https://"+at)
		}
	}
	return doors
}

// serviceIPs returns the addresses of the coordinators' Service.
func (r *Reconciler) serviceIPs(ctx context.Context) ([]string, error) {
	var s corev1.Service
	err := r.cfg.Client.Get(ctx, client.ObjectKey{Namespace: edge.NamespaceSystem, Name: edge.ServiceCoordinator}, &s)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read Service %s/%s: %w", edge.NamespaceSystem, edge.ServiceCoordinator, err)
	}
	return s.Spec.ClusterIPs, nil
}

// clientCA returns the bundle by which the cluster verifies its clients.
func (r *Reconciler) clientCA(ctx context.Context) ([]byte, error) {
	var c corev1.ConfigMap
	err := r.cfg.Client.Get(ctx, client.ObjectKey{Namespace: edge.NamespaceSystem, Name: authenticationConfig}, &c)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", edge.NamespaceSystem, authenticationConfig, err)
	}
	return []byte(c.Data[clientCAKey]), nil
}

// delegated returns, in order, the nodes whose heartbeats come although their own link is down. It reads the condition of the
// Nodes, because a node that dies while it is delegated leaves the mark on its Lease.
func delegated(nodes []corev1.Node) []string {
	var names []string
	for i := range nodes {
		if isDelegated(&nodes[i]) {
			names = append(names, nodes[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

func isDelegated(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == edge.ConditionCloudLinkDown && c.Status == corev1.ConditionTrue
	})
}
