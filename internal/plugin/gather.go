package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// Reader reads from a server: the cloud or a coordinator.
type Reader struct {
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
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
	return &Reader{Kube: kube, Dynamic: dyn, Within: poolOfAccess(c)}, nil
}

// poolOfAccess returns the pool whose operators' kubeconfig this is; empty means none.
func poolOfAccess(c *rest.Config) edge.PoolName {
	own := rest.CopyConfig(c)
	if rest.LoadTLSFiles(own) != nil { // the connection will say what is wrong with them
		return ""
	}
	certificates, err := cert.ParseCertsPEM(own.CertData)
	if err != nil || !slices.Contains(certificates[0].Subject.Organization, edge.GroupOperators) {
		return ""
	}
	pool, _ := edge.PoolOfOperator(certificates[0].Subject.CommonName)
	return cmp.Or(pool, unnamed)
}

// unnamed stands for the pool when coordinator-controller did not make the operators' certificate.
const unnamed edge.PoolName = "this-pool"

var (
	nodePools        = v1beta2.GroupVersion.WithResource("nodepools")
	yurtCoordinators = v1alpha1.GroupVersion.WithResource("yurtcoordinators")
)

// Objects reads all objects about pools. Kinds that the cloud does not serve, because they are not installed, are
// empty.
func (r *Reader) Objects(ctx context.Context) (Objects, error) {
	o := Objects{Within: r.Within, Leases: map[string]coordinationv1.Lease{}}
	leases, err := r.Kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list the nodes' Leases: %w", err)
	}
	for _, l := range leases.Items {
		o.Leases[l.Name] = l
	}
	if r.Within != "" {
		return o, r.within(ctx, &o)
	}
	nodes, err := r.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return o, fmt.Errorf("list Nodes: %w", err)
	}
	o.Nodes = nodes.Items
	o.Pools, err = list[v1beta2.NodePool](ctx, r.Dynamic, nodePools)
	if err != nil {
		return o, err
	}
	o.Coordinators, err = list[v1alpha1.YurtCoordinator](ctx, r.Dynamic, yurtCoordinators)
	return o, err
}

// within reads what a coordinator has besides Leases. The coordinator may not have Nodes, or not yet.
func (r *Reader) within(ctx context.Context, o *Objects) error {
	nodes, err := r.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list Nodes: %w", err)
	}
	if err == nil {
		o.Nodes = nodes.Items
	}
	election, err := r.Kube.CoordinationV1().Leases(edge.NamespaceSystem).Get(ctx, edge.LeaseElection, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	o.Election = election
	return err
}

// list reads all objects of one of our kinds. It returns none if the server does not know the kind.
func list[T any](ctx context.Context, from dynamic.Interface, resource schema.GroupVersionResource) ([]T, error) {
	all, err := from.Resource(resource).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
	}
	items := make([]T, len(all.Items))
	for i := range all.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all.Items[i].Object, &items[i]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", resource.Resource, all.Items[i].GetName(), err)
		}
	}
	return items, nil
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

var errNoKubeconfig = errors.New("the Secret has no kubeconfig yet")

// Kubeconfig returns the kubeconfig of a pool's operators.
func (r *Reader) Kubeconfig(ctx context.Context, pool edge.PoolName) ([]byte, error) {
	name := pool.KubeconfigSecret()
	s, err := r.Kube.CoreV1().Secrets(edge.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no Secret %s/%s: has pool %s a coordinator, and is it scheduled? "+
			"See kubectl yurt status", edge.NamespaceSystem, name, pool)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s: %w", edge.NamespaceSystem, name, err)
	case len(s.Data["kubeconfig"]) == 0:
		return nil, fmt.Errorf("%s/%s: %w", edge.NamespaceSystem, name, errNoKubeconfig)
	}
	return s.Data["kubeconfig"], nil
}
