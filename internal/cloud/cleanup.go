package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/internal/cloud/autonomy"
	"yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/cloud/nodepool"
	"yurtcoordinator/internal/cloud/settings"
	"yurtcoordinator/internal/cloud/upgrades"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	// cleanUpTimeout bounds CleanUp. Pods of autonomous nodes take autonomy.HoldFor, all other writes some seconds.
	cleanUpTimeout = 5 * time.Minute
	// cleanUpAgain is the pause before what could not be written is tried again.
	cleanUpAgain = time.Second
	// nodesAtATime bounds a list of Nodes.
	nodesAtATime = 500
)

// CleanUp removes what the controllers have put on objects that are not theirs, so that nothing waits for controllers that are
// gone. It removes taints, labels, annotations and conditions from Nodes, tolerations and annotations from Pods, and finalizers
// from NodePools and YurtCoordinators. It also deletes two kinds of ConfigMaps: those for policies, and those with pools'
// settings. Other objects stay. A controller that starts again puts back what it needs. Without c.Autonomy, the marks on Pods
// of autonomous nodes stay, because another controller keeps such Pods then.
//
// CleanUp first stops the Deployment coordinator-controller in kube-system, and waits until no replica leads. If anything is
// left, it fails with an error that says what.
func CleanUp(ctx context.Context, c Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cleanUpTimeout, fmt.Errorf("it has taken more than %v", cleanUpTimeout))
	defer cancel()
	connection, err := c.connect()
	if err != nil {
		return err
	}
	c.MetricsAddress, c.HealthAddress, c.PprofAddress = "0", "0", ""
	mgr, err := newManager(ctx, c, connection, newAnswers())
	if err != nil {
		return err
	}
	direct, err := directClient(mgr)
	if err != nil {
		return err
	}
	if err := stopDeployment(ctx, direct); err != nil {
		return err
	}
	left := everything
	left.autonomy, left.autonomyOff = c.Autonomy, !c.Autonomy
	ctx, finish := context.WithCancel(ctx)
	defer finish()
	cleaned := false
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { // once this process leads
		if err := newCleaner(direct, c.Ends.Clock, left).run(ctx); err != nil {
			return err
		}
		cleaned = true
		finish()
		return nil
	}))
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Cleaning up", "server", connection.Host)
	switch err := mgr.Start(ctx); {
	case err != nil:
		return err
	case !cleaned:
		return fmt.Errorf("not everything is cleaned up: %w; run it again", context.Cause(ctx))
	}
	return nil
}

// directClient asks the API server itself.
func directClient(mgr manager.Manager) (client.WithWatch, error) {
	return client.NewWithWatch(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
	})
}

// stopDeployment stops the replicas that run, which would put everything back.
func stopDeployment(ctx context.Context, c client.Client) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: Name}}
	err := c.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`)))
	if err := client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("stop Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// scope says whose traces are cleaned up.
type scope struct {
	heartbeats, autonomy, poolCuts, nodePools, coordinators, settings bool
	// autonomyOff is for a cluster where another controller keeps Pods of autonomous nodes, and marks them in the same way. The
	// marks stay, because without them Pods of a node that is cut off would be evicted.
	autonomyOff bool
}

var everything = scope{heartbeats: true, autonomy: true, poolCuts: true, nodePools: true, coordinators: true, settings: true}

// nodes reports whether Nodes have such traces.
func (s scope) nodes() bool {
	return s.nodePools || s.settings || s.coordinators || len(s.conditions()) > 0
}

// conditions are those that the controllers write into Nodes.
func (s scope) conditions() []corev1.NodeConditionType {
	var all []corev1.NodeConditionType
	if s.heartbeats {
		all = append(all, edge.ConditionCloudLinkDown)
	}
	if s.poolCuts {
		all = append(all, edge.ConditionEvictionsHeld)
	}
	if s.autonomy || s.autonomyOff {
		all = append(all, edge.ConditionPodsKept)
	}
	return all
}

// rolls are the ConfigMaps for policies.
func (s scope) rolls() []string {
	var all []string
	if s.coordinators {
		all = append(all, edge.ConfigMapCoordinatedPools)
	}
	if s.heartbeats {
		all = append(all, edge.ConfigMapShownNotReady)
	}
	if s.autonomy || s.autonomyOff {
		all = append(all, edge.ConfigMapAutonomousPools)
	}
	return all
}

// cleaner cleans up. Everything it does can be done twice.
type cleaner struct {
	client client.WithWatch
	clock  ends.Clock
	scope  scope
}

func newCleaner(c client.WithWatch, at ends.Clock, s scope) *cleaner {
	return &cleaner{client: c, clock: at, scope: s}
}

// run cleans up until nothing is left, or ctx ends. Its error says what is left, by the last pass that was not broken off.
func (c *cleaner) run(ctx context.Context) error {
	var why error
	for {
		after, err := c.pass(ctx)
		if ctx.Err() == nil || why == nil {
			why = err
		}
		if err == nil && after == 0 {
			return nil
		}
		if err != nil {
			after = cleanUpAgain
			klog.FromContext(ctx).Info("Not everything is cleaned up yet; trying again", "why", err.Error())
		}
		timer := time.NewTimer(after)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(fmt.Errorf("not everything is cleaned up: %w", context.Cause(ctx)), why)
		}
	}
}

// pass cleans up once. It returns when to look again; zero means that nothing is left.
func (c *cleaner) pass(ctx context.Context) (after time.Duration, err error) {
	var failed []error
	if c.scope.settings { // before the nodes, whose hubs then no longer say which of them they have
		failed = append(failed, upgrades.Release(ctx, c.client), ignoreUnserved(settings.Release(ctx, c.client)))
	}
	if c.scope.nodes() {
		after, err = c.nodes(ctx)
		failed = append(failed, err)
	}
	if c.scope.nodePools {
		failed = append(failed, ignoreUnserved(nodepool.Release(ctx, c.client)))
	}
	if c.scope.coordinators {
		failed = append(failed, ignoreUnserved(coordinator.Release(ctx, c.client)))
	}
	failed = append(failed, c.rolls(ctx))
	return after, errors.Join(failed...)
}

// ignoreUnserved returns no error for a kind whose CRD is not there.
func ignoreUnserved(err error) error {
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	return err
}

// rolls deletes ConfigMaps for policies.
func (c *cleaner) rolls(ctx context.Context) error {
	var failed []error
	for _, name := range c.scope.rolls() {
		roll := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: name}}
		if err := client.IgnoreNotFound(c.client.Delete(ctx, roll)); err != nil {
			failed = append(failed, fmt.Errorf("delete ConfigMap %s: %w", name, err))
		}
	}
	return errors.Join(failed...)
}

// nodes cleans up all Nodes. One failure does not stop the others.
func (c *cleaner) nodes(ctx context.Context) (after time.Duration, err error) {
	var failed []error
	more := ""
	for {
		var page corev1.NodeList
		if err := c.client.List(ctx, &page, client.Limit(nodesAtATime), client.Continue(more)); err != nil {
			return 0, errors.Join(append(failed, fmt.Errorf("list Nodes: %w", err))...)
		}
		for i := range page.Items {
			node := &page.Items[i]
			again, err := c.node(ctx, node)
			if err = client.IgnoreNotFound(err); err != nil {
				failed = append(failed, fmt.Errorf("node %s: %w", node.Name, err))
			}
			if after == 0 || again > 0 && again < after {
				after = again
			}
		}
		if more = page.Continue; more == "" {
			return after, errors.Join(failed...)
		}
	}
}

// node cleans up one Node and its Pods. Its conditions go last: autonomy finds the Pods by them.
func (c *cleaner) node(ctx context.Context, node *corev1.Node) (after time.Duration, err error) {
	if !node.DeletionTimestamp.IsZero() {
		return 0, nil
	}
	if c.scope.nodePools {
		if err := nodepool.CleanUp(ctx, c.client, node); err != nil {
			return 0, err
		}
	}
	if c.scope.settings {
		if err := settings.CleanUp(ctx, c.client, node); err != nil {
			return 0, err
		}
	}
	if c.scope.coordinators {
		if err := coordinator.CleanUp(ctx, c.client, node); err != nil {
			return 0, err
		}
	}
	if len(c.scope.conditions()) == 0 {
		return 0, nil
	}
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil { // as it is now
		return 0, fmt.Errorf("read it: %w", err)
	}
	if c.scope.heartbeats {
		if err := heartbeat.CleanUp(ctx, c.client, c.clock, node); err != nil {
			return 0, err
		}
	}
	if c.scope.autonomy {
		if after, err := autonomy.CleanUp(ctx, c.client, c.clock, node); err != nil || after > 0 {
			return after, err
		}
	}
	return 0, c.conditions(ctx, node)
}

// conditions removes our conditions from a Node.
func (c *cleaner) conditions(ctx context.Context, node *corev1.Node) error {
	base := node.DeepCopy()
	gone := c.scope.conditions()
	isOurs := func(has corev1.NodeCondition) bool { return slices.Contains(gone, has.Type) }
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, isOurs)
	if len(node.Status.Conditions) == len(base.Status.Conditions) {
		return nil
	}
	patch := client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, node, patch, client.FieldOwner(heartbeat.FieldOwner)); err != nil {
		return fmt.Errorf("remove conditions: %w", err)
	}
	return nil
}

// switchedOff removes what switched-off controllers have left behind, once this process leads. Otherwise their traces would
// stay, and their finalizers would block deletions forever.
type switchedOff struct {
	name    string
	cleaner *cleaner
}

// Start implements manager.Runnable. What fails is tried again until ctx ends.
func (s *switchedOff) Start(ctx context.Context) error {
	err := s.cleaner.run(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("clean up after %s: %w", s.name, err)
	}
	return nil
}

// cleanUpOff registers the cleaning up after controllers that c switches off.
func cleanUpOff(mgr manager.Manager, direct client.WithWatch, c Config) error {
	off := scope{
		heartbeats: !c.Heartbeats, poolCuts: !c.PoolCuts, autonomyOff: !c.Autonomy, nodePools: !c.NodePools,
		coordinators: !c.Coordinators, settings: !c.PoolSettings,
	}
	var names []string
	for _, controller := range []struct {
		off  bool
		name string
	}{
		{off.heartbeats, "heartbeat"}, {off.poolCuts, "poolcut"}, {off.autonomyOff, "autonomy"}, {off.nodePools, "nodepool"},
		{off.coordinators, "coordinator"}, {off.settings, "poolsettings"},
	} {
		if controller.off {
			names = append(names, controller.name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return mgr.Add(&switchedOff{name: strings.Join(names, ", "), cleaner: newCleaner(direct, c.Ends.Clock, off)})
}
