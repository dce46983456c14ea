package cloud

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// These scenarios have six nodes. kube-controller-manager evicts nothing when more than half of the nodes are lost, if there
// are more than two.
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
	t.DeployWeb()
	own := int64(t.Config.Timing.Toleration.Seconds())

	t.Say("annotating %s for %v and %s without end", shortNode, shortFor, keptNode)
	annotate(t, shortNode, edge.AnnotationAutonomyDuration, shortFor.String())
	annotate(t, keptNode, edge.AnnotationAutonomy, edge.AutonomyOn)
	annotated := time.Now()
	patient := barePod(t, "patient", plainNode, own+3)
	longer := barePod(t, "longer", shortNode, long)
	t.Figure("annotated_to_kept_s", bears(t, t.Seen.PodsOn(keptNode), nil, annotated).Seconds())
	bears(t, without(t.Seen.PodsOn(shortNode), longer), ptr.To(int64(shortFor.Seconds())), annotated)
	made := time.Now()
	late := barePod(t, "late", keptNode, own)
	t.Figure("new_pod_to_kept_s", bears(t, []types.UID{late}, nil, made).Seconds())

	t.Say("cutting the power of %s, %s and %s", plainNode, shortNode, keptNode)
	off := time.Now()
	for _, node := range []string{plainNode, shortNode, keptNode} {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.All))
	}
	t.Eventually(t.Config.Timing.Grace+15*time.Second, "the three are tainted as unreachable", func() error {
		for _, node := range []string{plainNode, shortNode, keptNode} {
			if lostAt(t, node).IsZero() {
				return fmt.Errorf("%s is not", node)
			}
		}
		return nil
	})
	kept := t.Seen.PodsOn(keptNode)

	evicted(t, without(t.Seen.PodsOn(plainNode), patient), lostAt(t, plainNode), t.Config.Timing.Toleration)
	t.Say("annotating %s for %v, of which a Pod is left whose eviction is due in less", plainNode, lateFor)
	changed := time.Now()
	annotate(t, plainNode, edge.AnnotationAutonomyDuration, lateFor.String())
	evicted(t, without(t.Seen.PodsOn(shortNode), longer), lostAt(t, shortNode), shortFor)
	evicted(t, []types.UID{patient}, changed, holdFor+lateFor)

	for _, uid := range append(kept, longer) {
		switch p := t.Seen.Pod(uid); {
		case p.Ends():
			t.Fail("the Pod %s was evicted %.1fs after its node was lost", p.Name, p.At.Sub(off).Seconds())
		case p.Ready:
			t.Fail("the Pod %s is ready on a node that is lost: it would be a Service's endpoint", p.Name)
		}
	}
	changedIt := func(p kit.PodAt) bool { return p.Remembers || !equal(p.Unreachable, ptr.To(long)) }
	if at, touched := t.Seen.FirstPod(longer, time.Time{}, changedIt); touched {
		t.Fail("a Pod whose own time is longer was touched %.1fs after", at.Sub(annotated).Seconds())
	}
	if !slices.Contains(kept, late) || len(kept) < 2 {
		t.Fail("%s has the Pods %v, want some and the one that came later", keptNode, kept)
	}
	t.Figure("kept_past_plain_s", time.Since(lostAt(t, keptNode).Add(t.Config.Timing.Toleration)).Seconds())

	t.Say("taking the annotation of %s away", keptNode)
	changed = time.Now()
	annotate(t, keptNode, edge.AnnotationAutonomy, "")
	evicted(t, kept, changed, t.Config.Timing.Toleration)
	for _, uid := range kept {
		if p := t.Seen.Pod(uid); !equal(p.Unreachable, &own) || !equal(p.NotReady, &own) || p.Remembers {
			t.Fail("the Pod %s was left with %s", p.Name, borne(p))
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

// bears waits until both tolerations of each Pod bear the loss of its node for so many seconds; nil means forever. It returns
// the time from since until the last Pod had them.
func bears(t *kit.T, pods []types.UID, want *int64, since time.Time) time.Duration {
	if len(pods) == 0 {
		t.Fail("there is no Pod to keep")
	}
	wanted := "without end"
	if want != nil {
		wanted = fmt.Sprintf("for %d s", *want)
	}
	asWanted := func(p kit.PodAt) bool { return equal(p.Unreachable, want) && equal(p.NotReady, want) }
	last := since
	what := fmt.Sprintf("%d Pods bear the loss of their node %s", len(pods), wanted)
	t.Eventually(holdFor+10*time.Second, what, func() error {
		for _, uid := range pods {
			first, was := t.Seen.FirstPod(uid, time.Time{}, asWanted)
			if p := t.Seen.Pod(uid); !was || !asWanted(p) {
				return fmt.Errorf("the Pod %s has %s", p.Name, borne(p))
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
func evicted(t *kit.T, pods []types.UID, from time.Time, after time.Duration) {
	if len(pods) == 0 {
		t.Fail("there is no Pod to evict")
	}
	what := fmt.Sprintf("%d Pods on %s are evicted", len(pods), t.Seen.Pod(pods[0]).Node)
	t.Eventually(time.Until(from.Add(after))+15*time.Second, what, func() error {
		for _, uid := range pods {
			if p := t.Seen.Pod(uid); !p.Ends() {
				return fmt.Errorf("the Pod %s is not", p.Name)
			}
		}
		return nil
	})
	for _, uid := range pods {
		at, _ := t.Seen.FirstPod(uid, time.Time{}, kit.PodAt.Ends)
		// A tolerated time ends to the second of kube-controller-manager's clock, and the watch shows the taint a
		// moment later.
		took := at.Sub(from)
		if took < after-500*time.Millisecond || took > after+onTime {
			t.Fail("the Pod %s was evicted after %.1fs, want %v", t.Seen.Pod(uid).Name, took.Seconds(), after)
		}
		t.Figure("evicted_late_s", (took - after).Seconds())
	}
}

// borne says what a Pod tolerates.
func borne(p kit.PodAt) string {
	text := func(n *int64) string {
		if n == nil {
			return "without end"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("not-ready %s, unreachable %s, remembers: %v", text(p.NotReady), text(p.Unreachable), p.Remembers)
}

func equal(a, b *int64) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func without(pods []types.UID, one types.UID) []types.UID {
	return slices.DeleteFunc(pods, func(uid types.UID) bool { return uid == one })
}

// lostAt returns when a node was first seen to be lost; zero means never.
func lostAt(t *kit.T, node string) time.Time {
	at, _ := t.Seen.FirstNode(node, time.Time{}, func(n kit.NodeAt) bool { return n.Lost })
	return at
}
