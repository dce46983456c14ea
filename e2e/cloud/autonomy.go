package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

// Six nodes: kube-controller-manager evicts nothing when more than half of the nodes are lost, if there are more than
// two.
var autonomyScenarios = []kit.Scenario{{
	Name: "autonomy", Run: autonomy,
	Lab: lab.Config{
		Pools: 1, Nodes: 6, Timing: lab.Quick, Kubelet: lab.Hollow, NoCoordinator: true, NoProxy: true,
	},
	Doc: "Three nodes are powered off, without a coordinator. The plain node's Pods are evicted when Kubernetes says so, " +
		"those of the node with an `autonomy-duration` after that time, and those of the autonomous node only when its " +
		"annotation is removed.",
}}

// The nodes' parts, and how long things last on them.
const (
	plainNode, shortNode, keptNode = "p1-n2", "p1-n3", "p1-n4"

	shortFor = 12 * time.Second // of shortNode, from before it is lost
	lateFor  = 12 * time.Second // of plainNode, when it is lost already
	holdFor  = 10 * time.Second // how long a change from one duration to another takes, see docs/autonomy.md

	long = int64(3600) // seconds: a Pod's own, longer than any of these

	// onTime is how late an eviction may be seen: kube-controller-manager's own delays, and ours.
	onTime = 3 * time.Second
)

func autonomy(t *kit.T) {
	// Its own rate is one node in 10 s, which would hide ours.
	t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeControllerManager, "--node-eviction-rate=10"))
	bearing, err := observeBearing(t)
	t.Must(err)
	t.DeployWeb()
	own := int64(t.Config.Timing.Toleration.Seconds())

	t.Say("annotating %s for %v and %s without end", shortNode, shortFor, keptNode)
	annotate(t, shortNode, edge.AnnotationAutonomyDuration, shortFor.String())
	annotate(t, keptNode, edge.AnnotationAutonomy, edge.AutonomyOn)
	annotated := time.Now()
	patient := barePod(t, "patient", plainNode, own+3)
	longer := barePod(t, "longer", shortNode, long)
	t.Figure("annotated_to_kept_s", bears(t, bearing, bearing.on(keptNode), nil, annotated).Seconds())
	bears(t, bearing, bearing.on(shortNode, longer), ptr.To(int64(shortFor.Seconds())), annotated)
	made := time.Now()
	late := barePod(t, "late", keptNode, own)
	t.Figure("new_pod_to_kept_s", bears(t, bearing, []types.UID{late}, nil, made).Seconds())

	t.Say("cutting the power of %s, %s and %s", plainNode, shortNode, keptNode)
	off := time.Now()
	for _, node := range []string{plainNode, shortNode, keptNode} {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.All))
	}
	t.Eventually(t.Config.Timing.Grace+15*time.Second, "the three are tainted as unreachable", func() error {
		for _, node := range []string{plainNode, shortNode, keptNode} {
			if bearing.taintedAt(node).IsZero() {
				return fmt.Errorf("%s is not", node)
			}
		}
		return nil
	})
	kept := bearing.on(keptNode)

	evicted(t, bearing, bearing.on(plainNode, patient), bearing.taintedAt(plainNode), t.Config.Timing.Toleration)
	t.Say("annotating %s for %v, of which a Pod is left whose eviction is due in less", plainNode, lateFor)
	changed := time.Now()
	annotate(t, plainNode, edge.AnnotationAutonomyDuration, lateFor.String())
	evicted(t, bearing, bearing.on(shortNode, longer), bearing.taintedAt(shortNode), shortFor)
	evicted(t, bearing, []types.UID{patient}, changed, holdFor+lateFor)

	for _, uid := range append(kept, longer) {
		switch p := bearing.last(uid); {
		case p.deleting:
			t.Fail("the Pod %s was evicted %.1fs after its node was lost", p.name, p.at.Sub(off).Seconds())
		case p.ready:
			t.Fail("the Pod %s is ready on a node that is lost: it would be a Service's endpoint", p.name)
		}
	}
	changedIt := func(p bearingAt) bool { return p.remembers || !equal(p.unreachable, ptr.To(long)) }
	if at, touched := bearing.first(longer, changedIt); touched {
		t.Fail("a Pod whose own time is longer was touched %.1fs after", at.Sub(annotated).Seconds())
	}
	if !slices.Contains(kept, late) || len(kept) < 2 {
		t.Fail("%s has the Pods %v, want some and the one that came later", keptNode, kept)
	}
	t.Figure("kept_past_plain_s", time.Since(bearing.taintedAt(keptNode).Add(t.Config.Timing.Toleration)).Seconds())

	t.Say("taking the annotation of %s away", keptNode)
	changed = time.Now()
	annotate(t, keptNode, edge.AnnotationAutonomy, "")
	evicted(t, bearing, kept, changed, t.Config.Timing.Toleration)
	for _, uid := range kept {
		if p := bearing.last(uid); !equal(p.unreachable, &own) || !equal(p.notReady, &own) || p.remembers {
			t.Fail("the Pod %s was left with %v", p.name, p)
		}
	}
	t.Eventually(5*time.Second, keptNode+" says that its Pods are not kept", func() error {
		node, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, keptNode, metav1.GetOptions{})
		t.Must(err)
		for _, c := range node.Status.Conditions {
			if c.Type == edge.ConditionPodsKept && c.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", node.Status.Conditions)
	})
}

// annotate sets an annotation of a Node, or removes it.
func annotate(t *kit.T, node, key, value string) {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if value == "" {
		patch = fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, key)
	}
	_, err := t.Cloud.CoreV1().Nodes().Patch(t.Ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	t.Must(err)
}

// barePod makes a Pod on a node, with its own toleration.
func barePod(t *kit.T, name, node string, seconds int64) types.UID {
	var own []corev1.Toleration
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		own = append(own, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		})
	}
	pod, err := t.Cloud.CoreV1().Pods(kit.Namespace).Create(t.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, Tolerations: own, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers: []corev1.Container{{Name: name, Image: kit.WebImage, Command: []string{"sleep", "1000000"}}},
		},
	}, metav1.CreateOptions{})
	t.Must(err)
	return pod.UID
}

// bears waits until Pods tolerate the loss of their node for these seconds (nil means forever), and returns how long
// after since the last of them did. Both of a Pod's tolerations must say so.
func bears(t *kit.T, b *bearing, pods []types.UID, want *int64, since time.Time) time.Duration {
	if len(pods) == 0 {
		t.Fail("there is no Pod to keep")
	}
	wanted := "without end"
	if want != nil {
		wanted = fmt.Sprintf("for %d s", *want)
	}
	asWanted := func(p bearingAt) bool { return equal(p.unreachable, want) && equal(p.notReady, want) }
	last := since
	what := fmt.Sprintf("%d Pods bear the loss of their node %s", len(pods), wanted)
	t.Eventually(holdFor+10*time.Second, what, func() error {
		for _, uid := range pods {
			first, was := b.first(uid, asWanted)
			if p := b.last(uid); !was || !asWanted(p) {
				return fmt.Errorf("the Pod %s has %v", p.name, p)
			}
			if first.After(last) {
				last = first
			}
		}
		return nil
	})
	return last.Sub(since)
}

// evicted waits until Pods are evicted, and expects that it happened on time.
func evicted(t *kit.T, b *bearing, pods []types.UID, from time.Time, after time.Duration) {
	if len(pods) == 0 {
		t.Fail("there is no Pod to evict")
	}
	what := fmt.Sprintf("%d Pods on %s are evicted", len(pods), b.last(pods[0]).node)
	t.Eventually(time.Until(from.Add(after))+15*time.Second, what, func() error {
		for _, uid := range pods {
			if p := b.last(uid); !p.deleting {
				return fmt.Errorf("the Pod %s is not", p.name)
			}
		}
		return nil
	})
	for _, uid := range pods {
		at, _ := b.first(uid, func(p bearingAt) bool { return p.deleting })
		// A tolerated time ends to the second of kube-controller-manager's clock, and the watch shows the taint a
		// moment later.
		took := at.Sub(from)
		if took < after-500*time.Millisecond || took > after+onTime {
			t.Fail("the Pod %s was evicted after %.1fs, want %v", b.last(uid).name, took.Seconds(), after)
		}
		t.Figure("evicted_late_s", (took - after).Seconds())
	}
}

// bearing is the history of what Pods tolerate, as the cloud's watches show it, and of when nodes were lost.
type bearing struct {
	mu    sync.Mutex
	lost  map[string]time.Time
	byPod map[types.UID][]bearingAt
}

type bearingAt struct {
	at                    time.Time
	name, node            string
	deleting, ready       bool
	notReady, unreachable *int64
	remembers             bool
}

func (p bearingAt) String() string {
	text := func(n *int64) string {
		if n == nil {
			return "without end"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("not-ready %s, unreachable %s, remembers: %v", text(p.notReady), text(p.unreachable), p.remembers)
}

func equal(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func observeBearing(t *kit.T) (*bearing, error) {
	b := &bearing{lost: map[string]time.Time{}, byPod: map[types.UID][]bearingAt{}}
	f := informers.NewSharedInformerFactoryWithOptions(t.Cloud, 0, informers.WithNamespace(kit.Namespace))
	var synced []cache.InformerSynced
	for _, i := range []cache.SharedIndexInformer{f.Core().V1().Nodes().Informer(), f.Core().V1().Pods().Informer()} {
		r, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: b.record, UpdateFunc: func(_, o any) { b.record(o) },
			DeleteFunc: func(o any) {
				if pod, ok := o.(*corev1.Pod); ok { // already evicted: a Pod is marked before it is gone
					pod = pod.DeepCopy()
					pod.DeletionTimestamp = ptr.To(metav1.Now())
					b.record(pod)
				}
			},
		})
		if err != nil {
			return nil, err
		}
		synced = append(synced, r.HasSynced)
	}
	f.Start(t.Ctx.Done())
	t.Background.Go(func() { <-t.Ctx.Done(); f.Shutdown() })
	if !cache.WaitForCacheSync(t.Ctx.Done(), synced...) {
		return nil, errors.Join(errors.New("the cloud does not list its objects"), context.Cause(t.Ctx))
	}
	return b, nil
}

func (b *bearing) record(object any) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Node:
		lost := slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute
		})
		if lost && b.lost[o.Name].IsZero() {
			b.lost[o.Name] = now
		}
	case *corev1.Pod:
		_, remembers := o.Annotations[edge.AnnotationOriginalUnreachable]
		p := bearingAt{
			at: now, name: o.Name, node: o.Spec.NodeName, deleting: o.DeletionTimestamp != nil, remembers: remembers,
		}
		for _, t := range o.Spec.Tolerations {
			switch t.Key {
			case corev1.TaintNodeNotReady:
				p.notReady = t.TolerationSeconds
			case corev1.TaintNodeUnreachable:
				p.unreachable = t.TolerationSeconds
			}
		}
		for _, c := range o.Status.Conditions {
			if c.Type == corev1.PodReady {
				p.ready = c.Status == corev1.ConditionTrue
			}
		}
		b.byPod[o.UID] = append(b.byPod[o.UID], p)
	}
}

// taintedAt returns when a node was lost.
func (b *bearing) taintedAt(node string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost[node]
}

// on returns the Pods on a node, except some, that were there when it was lost. For a node that was not lost, it
// returns those that are there now.
func (b *bearing) on(node string, but ...types.UID) []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []types.UID
	for uid, all := range b.byPod {
		i := slices.IndexFunc(all, func(p bearingAt) bool { return p.deleting })
		lost := b.lost[node]
		there := i < 0 || !lost.IsZero() && all[i].at.After(lost)
		if there && all[len(all)-1].node == node && !slices.Contains(but, uid) {
			out = append(out, uid)
		}
	}
	return out
}

func (b *bearing) last(uid types.UID) bearingAt {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all := b.byPod[uid]; len(all) > 0 {
		return all[len(all)-1]
	}
	return bearingAt{}
}

// first returns when a Pod first was as wanted.
func (b *bearing) first(uid types.UID, want func(bearingAt) bool) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.byPod[uid] {
		if want(p) {
			return p.at, true
		}
	}
	return time.Time{}, false
}
