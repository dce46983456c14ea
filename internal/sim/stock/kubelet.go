package stock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/apimachinery/lease"
	nodeutil "k8s.io/component-helpers/node/util"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/util/pod"
	"k8s.io/utils/clock"
)

// Defaults of a KubeletConfiguration, and kubelet's constants.
const (
	statusUpdateFrequency = 10 * time.Second // nodeStatusUpdateFrequency
	statusReportFrequency = 5 * time.Minute  // nodeStatusReportFrequency
	statusUpdateRetry     = 5                // pkg/kubelet/kubelet.go
	leaseSeconds          = 40               // nodeLeaseDurationSeconds; renewed at a quarter
	firstRegistration     = 100 * time.Millisecond
	maxRegistration       = 7 * time.Second
	jitter                = 0.04
	podSyncPeriod         = 10 * time.Second // pkg/kubelet/status/status_manager.go
	nodeSyncPoll          = time.Second      // pkg/kubelet/config/apiserver.go
)

// Containers are what runs on a machine. They outlive a kubelet. The zero value is a machine on which nothing runs.
type Containers struct {
	mu   sync.Mutex
	pods map[types.UID]*container
}

// container stands for all containers of a Pod. It runs from its start until it has stopped.
type container struct {
	started           metav1.Time
	stopping, stopped bool
}

// Running returns the UIDs of the Pods that run, sorted.
func (c *Containers) Running() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []types.UID
	for uid, p := range c.pods {
		if !p.stopped {
			all = append(all, uid)
		}
	}
	slices.Sort(all)
	return all
}

// Kubelet is a model of kubelet, made after the source of version 1.36. It registers its Node, reports the statuses of the Node
// and its Pods, and starts and stops Pods. Its Lease controller is Kubernetes' own. The machine always has what Pods need, and
// containers start at once. The model leaves out events, static Pods and certificates.
type Kubelet struct {
	// Client is how kubelet reaches API servers. kubelet ends requests about the Lease and the Node's status after 10 s. The
	// Transport must end all other requests; in a real kubelet, HTTP/2 does so 45 s after a connection fell silent.
	Client *rest.Config
	// CloseConnections ends all requests that are under way. kubelet calls it when heartbeats fail repeatedly. nil means that
	// nothing ends them.
	CloseConnections func()
	// Node is the Node that kubelet registers and reports. Its labels are used only for the registration.
	Node *corev1.Node
	// Wall is the time of day as the machine believes it; nil means time.Now.
	Wall func() time.Time
	// Containers are the containers of kubelet's machine.
	Containers *Containers
	// Stop is how long a Pod takes to stop, within its grace period.
	Stop time.Duration
}

// kubelet is a Kubelet that runs.
type kubelet struct {
	Kubelet
	client, heartbeats kubernetes.Interface
	nodes              corelisters.NodeLister
	synced             func() bool

	registered bool
	// reported is when the status was last written, by the bubble's clock. delay is added to the time until the next report, and
	// may be negative.
	reported time.Time
	delay    time.Duration

	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod // as the API server has last shown them
	// changed has room for one value, which tells that the Pods or the Containers have changed.
	changed chan struct{}

	// What follows belongs to the goroutine that runs Pods.
	rejected map[types.UID]bool             // whether each judged Pod was rejected
	written  map[types.UID]corev1.PodStatus // what the API server has been told
}

// Run runs kubelet until ctx ends. The containers that it started stay on the machine.
func (k Kubelet) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, logr.Discard())
	cfg := client(k.Client)
	all, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make kubelet's client: %w", err)
	}
	cfg.Timeout = statusUpdateFrequency // which is shorter than the Lease's duration
	heartbeats, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make kubelet's client for heartbeats: %w", err)
	}
	if k.Wall == nil {
		k.Wall = time.Now
	}
	r := &kubelet{
		Kubelet: k, client: all, heartbeats: heartbeats, changed: make(chan struct{}, 1),
		rejected: map[types.UID]bool{}, written: map[types.UID]corev1.PodStatus{},
	}
	ofNode := informers.NewSharedInformerFactoryWithOptions(all, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, k.Node.Name).String()
	}))
	r.nodes, r.synced = ofNode.Core().V1().Nodes().Lister(), ofNode.Core().V1().Nodes().Informer().HasSynced
	ofNode.StartWithContext(ctx)
	renewals := lease.NewController(wall{clock.RealClock{}, k.Wall}, heartbeats, k.Node.Name, leaseSeconds, k.CloseConnections,
		leaseSeconds*time.Second/4, k.Node.Name, corev1.NamespaceNodeLease, r.own(ctx))

	var running sync.WaitGroup
	running.Go(func() {
		wait.JitterUntilWithContext(ctx, r.syncStatus, statusUpdateFrequency, jitter, true)
	})
	running.Go(func() { renewals.Run(ctx) })
	running.Go(func() { r.followPods(ctx) })
	running.Go(func() { r.runPods(ctx) })
	running.Wait()
	ofNode.Shutdown()
	return nil
}

// wall is a clock that shows the machine's time; its timers are Go's.
type wall struct {
	clock.RealClock
	now func() time.Time
}

// Now implements clock.PassiveClock.
func (w wall) Now() time.Time { return w.now() }

func (k *kubelet) now() metav1.Time { return metav1.NewTime(k.Wall()) }

// own returns a function that makes the Node the Lease's owner. If it fails, no Lease is created (pkg/kubelet/util/nodelease.go).
func (k *kubelet) own(ctx context.Context) lease.ProcessLeaseFunc {
	return func(l *coordinationv1.Lease) error {
		if len(l.OwnerReferences) > 0 {
			return nil
		}
		node, err := k.heartbeats.CoreV1().Nodes().Get(ctx, k.Node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.Node.Name, UID: node.UID}}
		return nil
	}
}

// sleep waits for a time. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// syncStatus registers the Node if need be, and reports its status.
func (k *kubelet) syncStatus(ctx context.Context) {
	for step := firstRegistration; !k.registered; step = min(2*step, maxRegistration) {
		if !sleep(ctx, step) {
			return
		}
		k.registered = k.register(ctx)
	}
	for try := range statusUpdateRetry {
		if k.tryUpdateStatus(ctx, try) == nil || ctx.Err() != nil {
			return
		}
		if try > 0 && k.CloseConnections != nil {
			k.CloseConnections()
		}
	}
}

func (k *kubelet) register(ctx context.Context) bool {
	node := k.withStatus(k.Node)
	_, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = k.client.CoreV1().Nodes().Get(ctx, k.Node.Name, metav1.GetOptions{})
	}
	return err == nil
}

// tryUpdateStatus writes the Node's status if it has changed, or if the last report is old enough. The parameter try is 0 for the
// first try, which takes the Node from a cache. All later tries read it from the API server.
func (k *kubelet) tryUpdateStatus(ctx context.Context, try int) error {
	was, err := k.nodes.Get(k.Node.Name)
	if try > 0 {
		was, err = k.heartbeats.CoreV1().Nodes().Get(ctx, k.Node.Name, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	node := k.withStatus(was)
	changed := statusChanged(&was.Status, &node.Status)
	if !changed && time.Since(k.reported) < statusReportFrequency+k.delay {
		return nil
	}
	if changed || k.reported.IsZero() {
		k.delay = time.Duration(float64(statusReportFrequency) * (-0.5 + rand.Float64()))
	} else {
		k.delay = 0
	}
	_, _, err = nodeutil.PatchNodeStatus(k.heartbeats.CoreV1(), types.NodeName(k.Node.Name), was, node)
	if err == nil {
		k.reported = time.Now()
	}
	return err
}

// withStatus returns a copy of a Node with the status that kubelet reports.
func (k *kubelet) withStatus(node *corev1.Node) *corev1.Node {
	node, s := node.DeepCopy(), &k.Node.Status
	node.Status.Addresses, node.Status.Capacity, node.Status.Allocatable = s.Addresses, s.Capacity, s.Allocatable
	node.Status.NodeInfo, node.Status.DaemonEndpoints = s.NodeInfo, s.DaemonEndpoints
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "kubelet is posting ready status"},
	} {
		c.LastHeartbeatTime = k.now()
		i, was := nodeutil.GetNodeCondition(&node.Status, c.Type)
		if c.LastTransitionTime = c.LastHeartbeatTime; was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		if was == nil {
			node.Status.Conditions = append(node.Status.Conditions, c)
		} else {
			node.Status.Conditions[i] = c
		}
	}
	return node
}

// statusChanged reports whether two statuses differ in more than the times of heartbeats.
func statusChanged(was, is *corev1.NodeStatus) bool {
	timeless := func(s *corev1.NodeStatus) *corev1.NodeStatus {
		s = s.DeepCopy()
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		slices.SortStableFunc(s.Conditions, func(a, b corev1.NodeCondition) int {
			return strings.Compare(string(a.Type), string(b.Type))
		})
		return s
	}
	return !equality.Semantic.DeepEqual(timeless(was), timeless(is))
}

// followPods keeps the field pods up to date, as soon as the Node is known.
func (k *kubelet) followPods(ctx context.Context) {
	for !k.synced() {
		if !sleep(ctx, nodeSyncPoll) {
			return
		}
	}
	of := fields.OneTermEqualSelector("spec.nodeName", k.Node.Name)
	source := cache.NewListWatchFromClient(k.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, of)
	store := cache.NewUndeltaStore(func(all []any) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.pods = map[types.UID]*corev1.Pod{}
		for _, o := range all {
			p := o.(*corev1.Pod) //nolint:forcetypeassert // it lists Pods
			k.pods[p.UID] = p
		}
		k.wake()
	}, cache.MetaNamespaceKeyFunc)
	cache.NewReflector(source, &corev1.Pod{}, store, 0).RunWithContext(ctx)
}

func (k *kubelet) wake() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// runPods starts and stops Pods, and writes their statuses. It writes a new status at once. Every ten seconds it also writes each
// status that differs at the API server.
func (k *kubelet) runPods(ctx context.Context) {
	tick := time.NewTicker(podSyncPeriod)
	defer tick.Stop()
	for {
		everything := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			everything = true
		case <-k.changed:
		}
		k.mu.Lock()
		pods := maps.Clone(k.pods)
		k.mu.Unlock()
		if pods == nil {
			continue // nobody has said yet what is to run
		}
		k.syncPods(ctx, pods)
		k.writeStatuses(ctx, pods, everything)
	}
}

// syncPods starts and stops Pods as the API server wants it, and forgets the Pods that no longer exist there.
func (k *kubelet) syncPods(ctx context.Context, pods map[types.UID]*corev1.Pod) {
	k.Containers.mu.Lock()
	defer k.Containers.mu.Unlock()
	for uid, c := range k.Containers.pods {
		if pods[uid] == nil {
			k.stopLocked(ctx, c)
			if c.stopped {
				delete(k.Containers.pods, uid)
			}
		}
	}
	forgotten := func(uid types.UID) bool { return pods[uid] == nil }
	maps.DeleteFunc(k.rejected, func(uid types.UID, _ bool) bool { return forgotten(uid) })
	maps.DeleteFunc(k.written, func(uid types.UID, _ corev1.PodStatus) bool { return forgotten(uid) })
	for _, p := range byCreation(pods) {
		c := k.Containers.pods[p.UID]
		if _, judged := k.rejected[p.UID]; !judged && !leaves(p) {
			k.rejected[p.UID] = !k.admits(p) // also what ran before kubelet was restarted
		}
		switch stays := !leaves(p) && !k.rejected[p.UID]; {
		case stays && c == nil:
			if k.Containers.pods == nil {
				k.Containers.pods = map[types.UID]*container{}
			}
			k.Containers.pods[p.UID] = &container{started: k.now().Rfc3339Copy()}
		case !stays && c != nil:
			k.stopLocked(ctx, c)
		}
	}
}

// leaves reports whether a Pod must no longer run.
func leaves(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil || podutil.IsPodPhaseTerminal(p.Status.Phase)
}

// byCreation returns Pods in the order in which kubelet admits them.
func byCreation(pods map[types.UID]*corev1.Pod) []*corev1.Pod {
	return slices.SortedFunc(maps.Values(pods), func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
}

// stopLocked begins to stop a Pod. The Pod has stopped after the time Stop.
func (k *kubelet) stopLocked(ctx context.Context, c *container) {
	if c.stopping {
		return
	}
	c.stopping = true
	time.AfterFunc(k.Stop, func() {
		k.Containers.mu.Lock()
		c.stopped = true
		k.Containers.mu.Unlock()
		if ctx.Err() == nil {
			k.wake()
		}
	})
}

// admits reports whether kubelet lets a Pod run. The Pod must tolerate each taint of the Node with the effect NoExecute.
func (k *kubelet) admits(p *corev1.Pod) bool {
	node, err := k.nodes.Get(k.Node.Name)
	if err != nil {
		node = k.Node // kubelet's own idea of its Node, in the absence of the API server's
	}
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, p.Spec.Tolerations,
		func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }, true)
	return !untolerated
}

// status returns the status that kubelet reports of a Pod, and whether nothing of the Pod runs any more.
func (k *kubelet) status(p *corev1.Pod) (s corev1.PodStatus, ended bool) {
	k.Containers.mu.Lock()
	defer k.Containers.mu.Unlock()
	c := k.Containers.pods[p.UID]
	ready := corev1.ConditionFalse
	switch {
	case c != nil && !c.stopped:
		s.Phase, ready = corev1.PodRunning, corev1.ConditionTrue
	case podutil.IsPodPhaseTerminal(p.Status.Phase):
		return p.Status, true
	case c != nil && !k.rejected[p.UID]:
		s.Phase = corev1.PodSucceeded
	default:
		s.Phase = corev1.PodFailed
	}
	if c != nil {
		s.StartTime = &c.started
	}
	if k.rejected[p.UID] && s.Phase == corev1.PodFailed {
		s.Reason = "TaintToleration"
		s.Message = "Pod was rejected: Predicate TaintToleration failed: node(s) had untolerated taint(s)"
	}
	for _, t := range conditions {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: t, Status: ready})
	}
	return s, s.Phase != corev1.PodRunning
}

// conditions are those conditions of a Pod that kubelet sets. It is a constant.
var conditions = []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady}

// writeStatuses writes the statuses that kubelet has not written yet. If everything is true, it also writes those that differ at
// the API server. It then also tries again to delete each Pod that has ended and is being deleted.
func (k *kubelet) writeStatuses(ctx context.Context, pods map[types.UID]*corev1.Pod, everything bool) {
	for _, p := range byCreation(pods) {
		said, known := k.written[p.UID]
		s, ended := k.status(p)
		overdue := everything && (!same(&p.Status, &s) || ended && p.DeletionTimestamp != nil)
		if known && same(&said, &s) && !overdue {
			continue
		}
		if k.writeStatus(ctx, p, s, ended) == nil {
			k.written[p.UID] = s
		}
	}
}

// same reports whether two statuses are equal in what this model of kubelet reports.
func same(a, b *corev1.PodStatus) bool {
	for _, t := range conditions {
		_, x := podutil.GetPodCondition(a, t)
		_, y := podutil.GetPodCondition(b, t)
		if (x == nil) != (y == nil) || x != nil && x.Status != y.Status {
			return false
		}
	}
	return a.Phase == b.Phase
}

// writeStatus writes a Pod's status. If the Pod has ended and is being deleted, it also deletes the Pod.
func (k *kubelet) writeStatus(ctx context.Context, p *corev1.Pod, s corev1.PodStatus, ended bool) error {
	pods := k.client.CoreV1().Pods(p.Namespace)
	stored, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && stored.UID != p.UID {
		return nil // the watch will say so
	}
	if err != nil {
		return err
	}
	next := stored.Status.DeepCopy()
	next.Phase, next.Reason, next.Message, next.StartTime = s.Phase, s.Reason, s.Message, s.StartTime
	for _, c := range s.Conditions {
		podutil.UpdatePodCondition(next, &c)
	}
	written, _, unchanged, err := pod.PatchPodStatus(ctx, k.client, p.Namespace, p.Name, p.UID, stored.Status, *next)
	if err != nil {
		return err
	}
	if unchanged {
		written = stored
	}
	if ended && written.DeletionTimestamp != nil {
		return pods.Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
		})
	}
	return nil
}
