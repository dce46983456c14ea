package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	leases "k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"

	"yurtcoordinator/lab/e2e/kit"
)

// playedKubelet sends a hub the requests of a kubelet with Pods but no containers. It watches its Node and its Pods, renews its
// Lease, and reports the status of its Pods as kubelet's status manager does: one after another, with a GET and a PATCH for
// each. It reports a status at once when it changes, and again every 10 s while its watch does not show it.
type playedKubelet struct {
	node      string
	client    kubernetes.Interface
	heartbeat leases.Controller
	factories []informers.SharedInformerFactory
	pods      cache.Store
	kick      chan struct{}

	mu    sync.Mutex
	round int32              // restarts of every container
	since time.Time          // of this round
	wrote map[string]written // by Pod, the first write of this round
}

// written is a status that was sent.
type written struct {
	at   time.Time
	took time.Duration // until it was answered
}

const reconcileEvery = 10 * time.Second // kubelet's syncPeriod of statuses

// newPlayedKubelet plays the kubelet of a node.
func newPlayedKubelet(node string, access *rest.Config) (*playedKubelet, error) {
	access.UserAgent = "kubelet/played" // hubs know it by the first part
	access.ContentType = runtime.ContentTypeProtobuf
	access.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	beat, err := kubernetes.NewForConfig(access) // never waits for other requests
	if err != nil {
		return nil, err
	}
	slow := rest.CopyConfig(access)
	slow.QPS, slow.Burst = 50, 100 // a kubelet's defaults
	client, err := kubernetes.NewForConfig(slow)
	if err != nil {
		return nil, err
	}
	k := &playedKubelet{node: node, client: client, kick: make(chan struct{}, 1), wrote: map[string]written{}}
	k.heartbeat = leases.NewController(clock.RealClock{}, beat, node, 40, func() {}, 10*time.Second, node,
		corev1.NamespaceNodeLease, nil)
	selecting := func(selector string) informers.SharedInformerFactory {
		f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(
			func(o *metav1.ListOptions) { o.FieldSelector = selector }))
		k.factories = append(k.factories, f)
		return f
	}
	k.pods = selecting(fields.OneTermEqualSelector("spec.nodeName", node).String()).Core().V1().Pods().Informer().GetStore()
	selecting(fields.OneTermEqualSelector("metadata.name", node).String()).Core().V1().Nodes().Informer()
	return k, nil
}

// run plays the kubelet until ctx ends.
func (k *playedKubelet) run(ctx context.Context) {
	var beating sync.WaitGroup
	defer beating.Wait()
	beating.Go(func() { k.heartbeat.Run(ctx) })
	for _, f := range k.factories {
		f.Start(ctx.Done())
		defer f.Shutdown()
	}
	again := time.NewTicker(reconcileEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.kick:
		case <-again.C:
		}
		k.report(ctx)
	}
}

// change puts every container into another round.
func (k *playedKubelet) change(round int32) {
	k.mu.Lock()
	k.round, k.since, k.wrote = round, time.Now(), map[string]written{}
	k.mu.Unlock()
	select {
	case k.kick <- struct{}{}:
	default: // it was already told
	}
}

// writes returns the first write of each Pod in a round, which must be the present one.
func (k *playedKubelet) writes(round int32) map[string]written {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.round != round {
		return nil
	}
	return maps.Clone(k.wrote)
}

// behind returns how many Pods its watch shows in another round.
func (k *playedKubelet) behind() (n int) {
	k.mu.Lock()
	round := k.round
	k.mu.Unlock()
	for _, o := range k.pods.List() {
		if p, ok := o.(*corev1.Pod); ok && roundOf(p) != round {
			n++
		}
	}
	return n
}

// report writes the status of each Pod whose watch does not show the present one. A write that failed is tried again at the
// next report, as kubelet does.
func (k *playedKubelet) report(ctx context.Context) {
	k.mu.Lock()
	round, since := k.round, k.since
	k.mu.Unlock()
	for _, o := range k.pods.List() {
		p, ok := o.(*corev1.Pod)
		if !ok || round == 0 || roundOf(p) == round {
			continue
		}
		pods := k.client.CoreV1().Pods(p.Namespace)
		now, err := pods.Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			continue
		}
		patch, err := statusPatch(now, playedStatus(now, round, since))
		if err != nil {
			continue
		}
		sent := time.Now()
		_, _ = pods.Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		k.note(round, p.Name, written{sent, time.Since(sent)})
	}
}

func (k *playedKubelet) note(round int32, pod string, w written) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, before := k.wrote[pod]; !before && k.round == round {
		k.wrote[pod] = w
	}
}

// statusPatch returns what kubelet sends to bring a Pod to a status.
func statusPatch(p *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Pod{Status: p.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: p.UID}, Status: status})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}

// playedStatus returns the status of a Pod whose container restarted so many times, the last time at a moment.
func playedStatus(p *corev1.Pod, round int32, since time.Time) corev1.PodStatus {
	s := *p.Status.DeepCopy()
	at := metav1.NewTime(since.Truncate(time.Second))
	id := func(round int32) string { return fmt.Sprintf("containerd://%x%056x", round, p.UID) }
	s.Phase, s.StartTime, s.ObservedGeneration = corev1.PodRunning, &p.CreationTimestamp, p.Generation
	s.Conditions = nil
	for _, c := range []corev1.PodConditionType{
		"PodReadyToStartContainers", corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: c, Status: corev1.ConditionTrue, LastTransitionTime: at, ObservedGeneration: p.Generation,
		})
	}
	started := true
	c := corev1.ContainerStatus{
		Name: "c", Image: kit.WebImage, ImageID: "registry.local/shell@sha256:" + fmt.Sprintf("%064x", 1), ContainerID: id(round),
		Ready: true, Started: &started, RestartCount: round,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
	}
	if round > 1 {
		c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "Error", StartedAt: p.CreationTimestamp, FinishedAt: at, ContainerID: id(round - 1),
		}
	}
	s.ContainerStatuses = []corev1.ContainerStatus{c}
	return s
}
