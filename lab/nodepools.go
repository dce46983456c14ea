package lab

import (
	"cmp"
	"context"
	_ "embed" // the definition of NodePools
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"yurtcoordinator/internal/edge"
)

// NodePools is the resource of pools.
var NodePools = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "nodepools"}

//go:embed nodepool.yaml
var nodePoolDefinition []byte

// poolStatus is a NodePool's status.
type poolStatus struct {
	Nodes   []string
	Ready   int64
	Unready int64
}

func (s poolStatus) object() map[string]any {
	names := make([]any, len(s.Nodes))
	for i, n := range s.Nodes {
		names[i] = n
	}
	return map[string]any{"nodes": names, "readyNodeNum": s.Ready, "unreadyNodeNum": s.Unready}
}

// poolStatuses returns which nodes each pool has, by the label of the Node objects. A node of the lab without a Node object
// (there are none without kubelets) counts in its own pool as not ready.
func poolStatuses(all []place, nodes []*corev1.Node) map[edge.PoolName]poolStatus {
	out := map[edge.PoolName]poolStatus{}
	add := func(pool edge.PoolName, name string, ready bool) {
		s := out[pool]
		s.Nodes = append(s.Nodes, name)
		if ready {
			s.Ready++
		} else {
			s.Unready++
		}
		out[pool] = s
	}
	has := map[string]bool{}
	for _, n := range nodes {
		has[n.Name] = true
		if pool := edge.PoolName(n.Labels[edge.LabelNodePool]); pool != "" {
			add(pool, n.Name, condition(n, corev1.NodeReady).Status == corev1.ConditionTrue)
		}
	}
	for _, p := range all {
		if !has[string(p.name())] {
			add(p.poolName(), string(p.name()), false)
		}
		if _, ok := out[p.poolName()]; !ok {
			out[p.poolName()] = poolStatus{} // all its nodes have moved
		}
	}
	for _, s := range out {
		slices.Sort(s.Nodes)
	}
	return out
}

// pools keeps the cloud's NodePools equal to what the Node objects say, in place of a controller.
type pools struct {
	client dynamic.Interface
	all    []place
	watch  *watcher
	// written are the statuses as last written.
	written map[edge.PoolName]poolStatus
}

func newPools(w *watcher, all []place) (*pools, error) {
	client, err := dynamic.NewForConfig(w.access)
	if err != nil {
		return nil, fmt.Errorf("NodePools: %w", err)
	}
	return &pools{client: client, all: all, watch: w, written: map[edge.PoolName]poolStatus{}}, nil
}

// poolsEvery is the pause after a refusal: a new definition is served after some tenths of a second.
const poolsEvery = 50 * time.Millisecond

// install makes the definition and the first NodePools, and returns when they exist with their nodes.
func (p *pools) install(ctx context.Context) error {
	objects, err := decodeAll(nodePoolDefinition)
	if err != nil {
		return err
	}
	if err := createAll(ctx, p.watch.access, objects); err != nil {
		return fmt.Errorf("NodePools: %w", err)
	}
	return again(ctx, poolsEvery, func() error { return p.reconcile(ctx) })
}

// keep follows the Nodes until ctx ends. It retries what fails: the cloud may be down, or have other data.
func (p *pools) keep(ctx context.Context) {
	for {
		var again <-chan time.Time
		if p.reconcile(ctx) != nil {
			again = time.After(time.Second)
		}
		select {
		case <-p.watch.nodesChanged:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// reconcile writes each status that is wrong.
func (p *pools) reconcile(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	wanted := poolStatuses(p.all, p.watch.list())
	for name := range p.written { // a pool without nodes that the lab did not make
		if _, ok := wanted[name]; !ok {
			wanted[name] = poolStatus{}
		}
	}
	var errs []error
	for _, name := range slices.SortedFunc(maps.Keys(wanted), cmp.Compare[edge.PoolName]) {
		if s, ok := p.written[name]; ok && reflect.DeepEqual(s, wanted[name]) {
			continue
		}
		if err := p.write(ctx, name, wanted[name]); err != nil {
			errs = append(errs, fmt.Errorf("NodePool %s: %w", name, err))
			continue
		}
		p.written[name] = wanted[name]
	}
	return errors.Join(errs...)
}

func (p *pools) write(ctx context.Context, name edge.PoolName, status poolStatus) error {
	client := p.client.Resource(NodePools)
	pool, err := client.Get(ctx, string(name), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		pool, err = client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": NodePools.GroupVersion().String(), "kind": "NodePool",
			"metadata": map[string]any{"name": string(name)}, "spec": map[string]any{"type": "Edge"},
		}}, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	pool.Object["status"] = status.object()
	_, err = client.UpdateStatus(ctx, pool, metav1.UpdateOptions{})
	return err
}
