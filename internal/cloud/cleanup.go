package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/cloud/settings"
	"yurtcoordinator/internal/cloud/upgrades"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	// cleanUpTimeout bounds CleanUp. Pods of autonomous nodes take autonomy.HoldFor, all other writes some seconds.
	cleanUpTimeout = 5 * time.Minute
	// cleanUpAgain is the first pause before what could not be written is tried again. It doubles up to cleanUpAtMost.
	cleanUpAgain, cleanUpAtMost = time.Second, 30 * time.Second
	// nodesAtATime bounds a list of Nodes.
	nodesAtATime = 500
)

// CleanUp removes what the controllers have put on objects that are not theirs, so that nothing waits for controllers that are
// gone. It removes taints, labels, annotations and conditions from Nodes, tolerations and annotations from Pods, and finalizers
// from NodePools and YurtCoordinators. It also deletes the ConfigMaps for policies, the objects that tell pools their settings,
// and the Pods that upgrade hubs. Other objects stay. A controller that starts again puts back what it needs. Without c.Autonomy
// the marks on Pods of autonomous nodes stay, because another controller keeps such Pods then.
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
	ctx, finish := context.WithCancel(ctx)
	defer finish()
	cleaned := false
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { // once this process leads
		if err := newCleaner(direct, c.Ends.Clock, traces(c.Autonomy)).run(ctx); err != nil {
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

// trace is what one controller leaves on objects that are not its own.
type trace struct {
	controller string
	// release cleans up what is not on Nodes. node cleans up one Node and its Pods, and returns when to look again; zero means
	// that nothing is left. Either function is nil if it would have nothing to clean up.
	release func(context.Context, client.Client) error
	node    func(context.Context, client.WithWatch, ends.Clock, *corev1.Node) (time.Duration, error)
	// condition is the one that it writes into Nodes, and roll its ConfigMap for policies.
	condition corev1.NodeConditionType
	roll      string
}

// traces returns what each controller leaves, in the order in which a Node is cleaned up. If marks is false, Pods of autonomous
// nodes keep their marks. That is for a cluster where another controller keeps such Pods by the same marks. Without the marks,
// Pods of a node that is cut off would be evicted.
func traces(marks bool) []trace {
	all := []trace{
		{controller: "poolsettings", release: releaseSettings, node: atOnce(settings.CleanUp)},
		{controller: "nodepool", release: nodepool.Release, node: atOnce(nodepool.CleanUp)},
		{
			controller: "coordinator", release: coordinator.Release, node: atOnce(coordinator.CleanUp),
			roll: edge.ConfigMapCoordinatedPools,
		},
		{
			controller: "heartbeat", condition: edge.ConditionCloudLinkDown, roll: edge.ConfigMapShownNotReady,
			node: func(ctx context.Context, c client.WithWatch, at ends.Clock, node *corev1.Node) (time.Duration, error) {
				return 0, heartbeat.CleanUp(ctx, c, at, node)
			},
		},
		{controller: "poolcut", condition: edge.ConditionEvictionsHeld},
		{
			controller: "autonomy", condition: edge.ConditionPodsKept, roll: edge.ConfigMapAutonomousPools,
			node: autonomy.CleanUp,
		},
	}
	if !marks {
		all[len(all)-1].node = nil
	}
	return all
}

// atOnce is for a controller that need not look at a Node again.
func atOnce(
	cleanUp func(context.Context, client.Client, *corev1.Node) error,
) func(context.Context, client.WithWatch, ends.Clock, *corev1.Node) (time.Duration, error) {
	return func(ctx context.Context, c client.WithWatch, _ ends.Clock, node *corev1.Node) (time.Duration, error) {
		return 0, cleanUp(ctx, c, node)
	}
}

func releaseSettings(ctx context.Context, c client.Client) error {
	return errors.Join(upgrades.Release(ctx, c), ignoreUnserved(settings.Release(ctx, c)))
}

// cleaner cleans up. Everything it does can be done twice.
type cleaner struct {
	client client.WithWatch
	clock  ends.Clock
	traces []trace
}

func newCleaner(c client.WithWatch, at ends.Clock, of []trace) *cleaner {
	return &cleaner{client: c, clock: at, traces: of}
}

// run cleans up until nothing is left, or ctx ends. Its error says what is left, by the last pass that was not broken off.
func (c *cleaner) run(ctx context.Context) error {
	var why error
	for pause := cleanUpAgain; ; {
		after, err := c.pass(ctx)
		if ctx.Err() == nil || why == nil {
			why = err
		}
		if err == nil && after == 0 {
			return nil
		}
		if err != nil {
			after, pause = pause, min(2*pause, cleanUpAtMost)
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

// pass cleans up once. It returns when to look again; zero means that nothing is left. Nodes come last, because a hub goes on
// annotating its Node while its pool has settings.
func (c *cleaner) pass(ctx context.Context) (after time.Duration, err error) {
	var failed []error
	for _, t := range c.traces {
		if t.release != nil {
			failed = append(failed, ignoreUnserved(t.release(ctx, c.client)))
		}
		if t.roll != "" {
			roll := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: t.roll}}
			failed = append(failed, objects.Remove(ctx, c.client, roll))
		}
	}
	after, err = c.nodes(ctx)
	return after, errors.Join(append(failed, err)...)
}

// ignoreUnserved returns no error for a kind whose CRD is not there.
func ignoreUnserved(err error) error {
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	return err
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
	fresh := false
	for _, t := range c.traces {
		if t.condition != "" && !fresh && slices.ContainsFunc(node.Status.Conditions, c.isOurs) {
			if err := c.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil { // as it is now
				return 0, fmt.Errorf("read it: %w", err)
			}
			fresh = true
		}
		if t.node == nil {
			continue
		}
		if after, err := t.node(ctx, c.client, c.clock, node); err != nil || after > 0 {
			return after, err
		}
	}
	return 0, c.conditions(ctx, node)
}

// isOurs reports whether one of the controllers writes a condition.
func (c *cleaner) isOurs(has corev1.NodeCondition) bool {
	return slices.ContainsFunc(c.traces, func(t trace) bool { return t.condition == has.Type })
}

// conditions removes our conditions from a Node.
func (c *cleaner) conditions(ctx context.Context, node *corev1.Node) error {
	base := node.DeepCopy()
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, c.isOurs)
	if len(node.Status.Conditions) == len(base.Status.Conditions) {
		return nil
	}
	patch := client.StrategicMergeFrom(base, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, node, patch, client.FieldOwner(heartbeat.FieldOwner)); err != nil {
		return fmt.Errorf("remove conditions: %w", err)
	}
	return nil
}

// cleanUpOff makes this process, once it leads, clean up after the controllers that c switches off. Otherwise their traces would
// stay, and their finalizers would block deletions forever. What fails is tried again until the process ends.
func cleanUpOff(mgr manager.Manager, direct client.WithWatch, c Config) error {
	on := map[string]bool{
		"poolsettings": c.PoolSettings, "nodepool": c.NodePools, "coordinator": c.Coordinators, "heartbeat": c.Heartbeats,
		"poolcut": c.PoolCuts, "autonomy": c.Autonomy,
	}
	off := slices.DeleteFunc(traces(false), func(t trace) bool { return on[t.controller] })
	if len(off) == 0 {
		return nil
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := newCleaner(direct, c.Ends.Clock, off).run(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("clean up after controllers that are off: %w", err)
		}
		return nil
	}))
}
