package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// Reader reads from a server: the cloud or a coordinator. It lists in chunks. To learn of the cloud's pools it lists no Nodes,
// because NodePools count them: a thousand Nodes are 9 MB, a thousand reports and NodePools less than 1 MB.
type Reader struct {
	Kube     kubernetes.Interface
	Dynamic  dynamic.Interface
	Metadata metadata.Interface
	// Within is the pool whose coordinator is read; empty means the cloud.
	Within edge.PoolName
}

// NewReader returns a Reader. It recognizes a pool's own kubeconfig by its client certificate.
func NewReader(c *rest.Config) (*Reader, error) {
	kube, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	names, err := metadata.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	return &Reader{Kube: kube, Dynamic: dyn, Metadata: names, Within: poolOfAccess(c)}, nil
}

// poolOfAccess returns the pool whose operators' kubeconfig this is; empty means none.
func poolOfAccess(c *rest.Config) edge.PoolName {
	own := rest.CopyConfig(c)
	if rest.LoadTLSFiles(own) != nil { // the connection will say what is wrong with them
		return ""
	}
	certificates, err := cert.ParseCertsPEM(own.CertData)
	if err != nil || !slices.ContainsFunc(certificates[0].Subject.Organization, edge.IsPeople) {
		return ""
	}
	pool, _ := edge.PoolOfOperator(certificates[0].Subject.CommonName)
	return cmp.Or(pool, unnamed)
}

// unnamed stands for the pool when coordinator-controller did not make the operators' certificate.
const unnamed edge.PoolName = "this-pool"

var (
	nodesResource    = corev1.SchemeGroupVersion.WithResource("nodes")
	nodePools        = v1beta2.GroupVersion.WithResource("nodepools")
	yurtCoordinators = v1alpha1.GroupVersion.WithResource("yurtcoordinators")
	poolSettings     = v1alpha1.GroupVersion.WithResource("poolsettings")
)

// leaseOfController is the Lease in edge.NamespaceSystem that the leading replica of coordinator-controller renews.
const leaseOfController = "coordinator-controller"

// errNoNodePools says that nobody has installed what pools are.
var errNoNodePools = errors.New("the server has no NodePools: is the chart, or OpenYurt, installed?")

// Objects reads the objects about all pools or, if names are given, about these. If the cloud does not know the kind
// YurtCoordinator, because somebody else runs the coordinators, Objects returns none of that kind.
func (r *Reader) Objects(ctx context.Context, names ...string) (Objects, error) {
	o := Objects{Within: r.Within, Leases: map[string]coordinationv1.Lease{}}
	if r.Within != "" {
		return o, r.within(ctx, &o)
	}
	var err error
	if o.Pools, err = r.nodePools(ctx, names); err != nil {
		return o, err
	}
	o.Coordinators, err = list[v1alpha1.YurtCoordinator](ctx, r.Dynamic, yurtCoordinators)
	if err != nil && !apierrors.IsNotFound(err) {
		return o, err
	}
	if len(names) > 0 {
		o.Coordinators = slices.DeleteFunc(o.Coordinators, func(c v1alpha1.YurtCoordinator) bool {
			return !slices.Contains(names, c.Spec.NodePool)
		})
	}
	if err := r.reports(ctx, &o, names); err != nil {
		return o, err
	}
	if err := r.beats(ctx, &o); err != nil {
		return o, err
	}
	// Who may not read this Lease gets the rest all the same.
	system := r.Kube.CoordinationV1().Leases(edge.NamespaceSystem)
	if c, err := system.Get(ctx, leaseOfController, metav1.GetOptions{}); err == nil {
		o.Controller = c
	}
	return o, nil
}

// nodePools reads all NodePools, or the named ones that exist.
func (r *Reader) nodePools(ctx context.Context, names []string) (all []v1beta2.NodePool, err error) {
	if len(names) == 0 {
		if all, err = list[v1beta2.NodePool](ctx, r.Dynamic, nodePools); apierrors.IsNotFound(err) {
			err = fmt.Errorf("%w (%w)", errNoNodePools, err)
		}
		return all, err
	}
	for _, name := range names {
		u, err := r.Dynamic.Resource(nodePools).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && isOfObject(err):
			continue
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("%w (%w)", errNoNodePools, err)
		case err != nil:
			return nil, fmt.Errorf("read NodePool %s: %w", name, err)
		}
		p, err := converted[v1beta2.NodePool](u)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// isOfObject reports whether a server that answers "not found" knows the kind: then it names the object.
func isOfObject(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

// reports reads the leaders' reports of all pools, or of the named ones. All reports bear their pool's label, and no other Lease
// does.
func (r *Reader) reports(ctx context.Context, o *Objects, names []string) error {
	var all []coordinationv1.Lease
	var err error
	if len(names) == 0 {
		if all, err = r.leases(ctx, metav1.ListOptions{LabelSelector: edge.LabelNodePool}); err != nil {
			return fmt.Errorf("list the pools' reports: %w", err)
		}
	}
	for _, name := range names {
		of, err := r.reportsFor(ctx, edge.PoolName(name))
		if err != nil {
			return err
		}
		all = append(all, of...)
	}
	for _, l := range all {
		o.Leases[l.Name] = l
	}
	return nil
}

// reportsFor reads what the leaders of one pool report.
func (r *Reader) reportsFor(ctx context.Context, pool edge.PoolName) (all []coordinationv1.Lease, err error) {
	for _, slot := range edge.Slots() {
		leases := r.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
		lease, err := leases.Get(ctx, pool.ReportLease(slot), metav1.GetOptions{})
		switch {
		case err == nil:
			all = append(all, *lease)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("read a report of pool %s: %w", pool, err)
		}
	}
	return all, nil
}

// beats reads the nodes' Leases, if the leader of any pool reports that no YurtCoordinator tells of.
func (r *Reader) beats(ctx context.Context, o *Objects) error {
	if r.Within != "" || !slices.ContainsFunc(o.Pools, func(p v1beta2.NodePool) bool {
		return len(writtenFor(*o, p.Name)) > 0 && !slices.ContainsFunc(o.Coordinators, func(c v1alpha1.YurtCoordinator) bool {
			return c.Spec.NodePool == p.Name
		})
	}) {
		return nil
	}
	leases, err := r.leases(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the nodes' Leases: %w", err)
	}
	for _, l := range leases {
		o.Leases[l.Name] = l
	}
	return nil
}

// leases lists Leases of kube-node-lease.
func (r *Reader) leases(ctx context.Context, opts metav1.ListOptions) ([]coordinationv1.Lease, error) {
	return pages[coordinationv1.Lease](ctx, opts, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, o)
	})
}

// nodes lists Nodes.
func (r *Reader) nodes(ctx context.Context, opts metav1.ListOptions) ([]corev1.Node, error) {
	return pages[corev1.Node](ctx, opts, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.Kube.CoreV1().Nodes().List(ctx, o)
	})
}

// nodesOf selects the Nodes of a pool in the cloud.
func nodesOf(pool string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: edge.LabelNodePool + "=" + pool}
}

// within reads what a coordinator has: Leases, and Nodes, which it may not have, or not yet.
func (r *Reader) within(ctx context.Context, o *Objects) error {
	leases, err := r.leases(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the nodes' Leases: %w", err)
	}
	for _, l := range leases {
		o.Leases[l.Name] = l
	}
	o.Nodes, err = r.nodes(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list Nodes: %w", err)
	}
	election, err := r.Kube.CoordinationV1().Leases(edge.NamespaceSystem).Get(ctx, edge.LeaseElection, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	o.Election = election
	return err
}

// chunk is how many objects of a list are asked for at a time.
const chunk = 500

// pages lists in chunks.
func pages[T any](
	ctx context.Context, opts metav1.ListOptions, page func(context.Context, metav1.ListOptions) (runtime.Object, error),
) ([]T, error) {
	p := pager.New(page)
	p.PageSize = chunk
	found, _, err := p.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	items := make([]T, 0, meta.LenList(found))
	err = meta.EachListItem(found, func(o runtime.Object) error {
		item, ok := o.(any).(*T)
		if !ok {
			return fmt.Errorf("the server sent a %T", o)
		}
		items = append(items, *item)
		return nil
	})
	return items, err
}

// list reads all objects of one of our kinds.
func list[T any](ctx context.Context, from dynamic.Interface, resource schema.GroupVersionResource) ([]T, error) {
	all, err := pages[unstructured.Unstructured](ctx, metav1.ListOptions{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return from.Resource(resource).List(ctx, o)
		})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
	}
	items := make([]T, len(all))
	for i := range all {
		if items[i], err = converted[T](&all[i]); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func converted[T any](u *unstructured.Unstructured) (item T, err error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &item); err != nil {
		return item, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return item, nil
}

// PoolNames returns the names of all pools.
func (r *Reader) PoolNames(ctx context.Context) ([]string, error) {
	if r.Within != "" {
		return []string{string(r.Within)}, nil
	}
	return r.names(ctx, nodePools)
}

// NodeNames returns the names of all nodes.
func (r *Reader) NodeNames(ctx context.Context) ([]string, error) {
	names, err := r.names(ctx, nodesResource)
	if r.Within == "" || err == nil && len(names) > 0 {
		return names, err
	}
	leases, err := r.leases(ctx, metav1.ListOptions{})
	for i := range leases {
		names = append(names, leases[i].Name)
	}
	return names, err
}

// names lists names alone.
func (r *Reader) names(ctx context.Context, of schema.GroupVersionResource) ([]string, error) {
	all, err := pages[metav1.PartialObjectMetadata](ctx, metav1.ListOptions{},
		func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return r.Metadata.Resource(of).List(ctx, o)
		})
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names, err
}

// maxEvents bounds the Events that are read about a node.
const maxEvents = 500

// Events returns the Events about a Node. It returns none if the server has none, or refuses the caller.
func (r *Reader) Events(ctx context.Context, node string) ([]corev1.Event, error) {
	selector := fields.Set{"involvedObject.kind": "Node", "involvedObject.name": node}.AsSelector().String()
	events, err := r.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: selector, Limit: maxEvents})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list Events of node %s: %w", node, err)
	}
	return events.Items, nil
}

// evictors returns the ConfigMaps with policies of deschedulers that evict Pods for our taint. It finds them by the label of the
// descheduler's chart. It returns none if the server refuses the caller.
func (r *Reader) evictors(ctx context.Context) ([]string, error) {
	found, err := r.Kube.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=descheduler"})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps of deschedulers: %w", err)
	}
	var all []string
	for _, c := range found.Items {
		for _, policy := range c.Data {
			if strings.Contains(policy, "RemovePodsViolatingNodeTaints") && !strings.Contains(policy, edge.TaintUnschedulable) {
				all = append(all, c.Namespace+"/"+c.Name)
			}
		}
	}
	return all, nil
}

// Subject reads all that the server says about a node.
func (r *Reader) Subject(ctx context.Context, name string, now time.Time) (Subject, error) {
	s := Subject{Name: name, Within: r.Within != ""}
	o := Objects{Within: r.Within}
	var err error
	if s.Within {
		if o, err = r.Objects(ctx); err != nil {
			return s, err
		}
		if lease, ok := o.Leases[name]; ok {
			s.Lease = &lease
		}
		if i := slices.IndexFunc(o.Nodes, func(n corev1.Node) bool { return n.Name == name }); i >= 0 {
			s.Node = &o.Nodes[i]
		}
	} else if err = r.single(ctx, &s); err != nil {
		return s, err
	}
	pool := ""
	if s.Node != nil {
		pool = s.Node.Labels[edge.LabelNodePool]
	}
	switch {
	case !s.Within && pool != "":
		if o, err = r.Objects(ctx, pool); err != nil {
			return s, err
		}
	case s.Within && s.Lease != nil:
		pool = cmp.Or(pool, string(r.Within))
	}
	s.Pool = find(PoolsOf(o, now), pool)
	if s.Events, err = r.Events(ctx, name); err != nil || s.Within {
		return s, err
	}
	s.Evictors, err = r.evictors(ctx)
	return s, err
}

// single reads one Node and its Lease.
func (r *Reader) single(ctx context.Context, s *Subject) error {
	node, err := r.Kube.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{})
	if err == nil {
		s.Node = node
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read Node %s: %w", s.Name, err)
	}
	lease, err := r.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, s.Name, metav1.GetOptions{})
	if err == nil {
		s.Lease = lease
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read the Lease of node %s: %w", s.Name, err)
	}
	return nil
}

var errNoKubeconfig = errors.New("the Secret has no kubeconfig yet")

// Kubeconfig returns the kubeconfig of a pool's operators.
func (r *Reader) Kubeconfig(ctx context.Context, pool edge.PoolName) ([]byte, error) {
	name := pool.KubeconfigSecret()
	s, err := r.Kube.CoreV1().Secrets(edge.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no Secret %s/%s: check with kubectl yurt status that "+
			"pool %s has a coordinator, and that it is scheduled", edge.NamespaceSystem, name, pool)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s: %w", edge.NamespaceSystem, name, err)
	case len(s.Data["kubeconfig"]) == 0:
		return nil, fmt.Errorf("%s/%s: %w", edge.NamespaceSystem, name, errNoKubeconfig)
	}
	return s.Data["kubeconfig"], nil
}
