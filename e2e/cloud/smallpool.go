package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var smallPoolScenarios = []kit.Scenario{{
	Name: "small-pool", Lab: smallLab(), Run: smallPool,
	Doc: "A pool of two nodes has a coordinator because its owner says that two are enough. Each node's link is cut and " +
		"its heartbeats are delegated. Settings of the coordinator are applied, refused, held or paused, and `create: " +
		"Always` creates and removes a YurtCoordinator.",
}}

func smallLab() lab.Config {
	c := kit.OnePool.AsInstalled()
	c.Nodes = 2
	return c
}

func smallPool(t *kit.T) {
	began := time.Now()
	t.Pool.Settled(30 * time.Second)
	for _, node := range t.Pool.Nodes() {
		t.Say("cutting the WAN link of %s, silently; the coordinator is on %s", node, t.Pool.CoordinatorNode())
		cut := t.Cut(node)
		t.Node(node).Delegated(cut)
		t.Hold(time.Until(cut.Add(2*t.Config.Timing.Grace)), "two grace periods")
		t.NeverNotReady(cut, node)
		healed := t.Heal(node)
		t.Node(node).Direct(healed)
		t.Pool.Settled(30 * time.Second)
	}
	coordinatorTakesSettings(t)
	coordinatorsAreMade(t)
	t.Figure("small_pool_s", time.Since(began).Seconds())
}

// runAs says how the pools' coordinators are to run, besides that small pools may have one.
func runAs(t *kit.T, settings map[string]any) error {
	settings["minNodes"] = t.Config.Nodes
	content, err := json.Marshal(map[string]any{
		"apiVersion": lab.PoolSettings.GroupVersion().String(), "kind": "PoolSettings", "metadata": map[string]any{"name": "all"},
		"spec": map[string]any{"nodepoolSelector": map[string]any{}, "coordinator": settings},
	})
	t.Must(err)
	force := true
	_, err = t.Cloud.Objects.Resource(lab.PoolSettings).Patch(t.Ctx, "all", types.ApplyPatchType, content,
		metav1.PatchOptions{FieldManager: "somebody", Force: &force})
	return err
}

// coordinators fails unless the PoolSettings says this about coordinators, about its newest generation.
func coordinators(t *kit.T, kind, reason string) error {
	o, err := t.Cloud.Objects.Resource(lab.PoolSettings).Get(t.Ctx, "all", metav1.GetOptions{})
	if err != nil {
		return err
	}
	s, err := poolSettings(o)
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(s.Status.Conditions, kind)
	if c == nil || c.Reason != reason || c.ObservedGeneration != s.Generation {
		return fmt.Errorf("generation %d says %+v", s.Generation, s.Status.Conditions)
	}
	return nil
}

// coordinatorTakesSettings changes them, good ones and bad.
func coordinatorTakesSettings(t *kit.T) {
	const updated = v1alpha1.PoolSettingsCoordinatorsUpdated
	before := t.Pool.CoordinatorPod()
	changed := time.Now()
	t.Must(runAs(t, map[string]any{"verbosity": 2, "ownQuota": "96Mi", "mirrorQuota": "192Mi"}))
	t.Eventually(90*time.Second, "the coordinator runs as the settings say", func() error {
		return errors.Join(coordinators(t, updated, "AllCoordinators"),
			t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""),
			t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorReconciling, v1alpha1.ConditionFalse, "UpToDate"))
	})
	t.Figure("settings_to_coordinator_s", time.Since(changed).Seconds())
	pod := currentPod(t)
	limit := pod.Spec.Containers[0].Resources.Limits.Memory().String()
	if pod.UID == before.UID || limit != "704Mi" {
		t.Fail("the Pod %s (before: %s) has a limit of %s, want 704Mi", pod.Name, before.Name, limit)
	}
	t.Pool.Settled(time.Minute)

	if err := runAs(t, map[string]any{"extraArgs": []string{"--data-dir=/tmp"}}); !apierrors.IsInvalid(err) {
		t.Fail("a flag of the workload: %w", err)
	}
	t.Must(runAs(t, map[string]any{"verbosity": 2, "ownQuota": "1Gi"})) // more than all objects may take
	t.Eventually(30*time.Second, "settings that contradict each other are held, and the PoolSettings says so", func() error {
		return errors.Join(coordinators(t, updated, "BadSettings"),
			t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorStalled, v1alpha1.ConditionTrue, "BadSettings"),
			t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""))
	})
	t.Must(runAs(t, map[string]any{"verbosity": 1, "paused": true}))
	t.Eventually(30*time.Second, "paused ones wait, and the PoolSettings says so", func() error {
		return errors.Join(coordinators(t, updated, "Paused"),
			t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorReconciling, v1alpha1.ConditionTrue, "Paused"))
	})
	if now := currentPod(t); now.UID != pod.UID {
		t.Fail("the Pod %s was replaced by %s", pod.Name, now.Name)
	}
	t.Must(runAs(t, map[string]any{"verbosity": 2, "ownQuota": "96Mi", "mirrorQuota": "192Mi"}))
	t.Eventually(30*time.Second, "what was before is what it has", func() error {
		return coordinators(t, updated, "AllCoordinators")
	})
	if now := currentPod(t); now.UID != pod.UID {
		t.Fail("the Pod %s was replaced by %s", pod.Name, now.Name)
	}
}

// currentPod returns the coordinator's Pod that is not being deleted.
func currentPod(t *kit.T) *corev1.Pod {
	pods, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.Ctx,
		metav1.ListOptions{LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator})
	t.Must(err)
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return &pods.Items[i]
		}
	}
	t.Fail("there is no Pod of a coordinator")
	return nil
}

// coordinatorsAreMade removes the YurtCoordinator, has it made by settings, and removed by them.
func coordinatorsAreMade(t *kit.T) {
	const created = v1alpha1.PoolSettingsCoordinatorsCreated
	deleteCoordinator(t, "p1")
	t.Cloud.Gone("p1", "p1")
	t.Must(runAs(t, map[string]any{"create": "Always"}))
	t.Eventually(20*time.Second, "a YurtCoordinator is made", func() error { return coordinators(t, created, "AllPools") })
	coordinatorIsReady(t, "p1", time.Minute)
	t.Pool.Settled(time.Minute)
	t.Must(runAs(t, map[string]any{"create": "OnRequest"}))
	t.Cloud.Gone("p1", "p1")
	t.Must(makeCoordinator(t, "p1", "p1"))
	coordinatorIsReady(t, "p1", time.Minute)
	t.Must(runAs(t, map[string]any{"create": "Always"}))
	t.Must(runAs(t, map[string]any{"create": "OnRequest"}))
	t.Hold(5*time.Second, "what somebody has made stays")
	t.Must(t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorReady, v1alpha1.ConditionTrue, ""))
}
