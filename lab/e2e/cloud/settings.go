package cloud

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var settingsScenarios = []kit.Scenario{{
	Name: "settings", Tier: kit.Core, Lab: kit.OnePool.AsInstalled(), Run: settingsOfAPool,
	Doc: "A PoolSettings is changed once and reaches all hubs of its pool while they run; a hub that was cut off and " +
		"restarted meanwhile gets it when its link heals. A bad value is refused, or hubs keep the former one and say so.",
}}

const (
	slicesV1 = "discovery.k8s.io/v1/endpointslices"
	pools    = "apps.openyurt.io/v1beta2/nodepools"
)

func settingsOfAPool(t *kit.T) {
	leader := t.Pool.SettledAway()
	all := t.Pool.Nodes()
	began := time.Now()
	t.Eventually(30*time.Second, "all hubs know that the pool has no settings yet", func() error {
		return runWith(t, all, 1)
	})

	share(t, "v1/services", slicesV1, pools)
	t.FigureOnce("settings_reach_s", t.Eventually(30*time.Second, "all hubs do as the pool says", func() error {
		return shared(t, all, 2, true)
	}).Seconds())
	t.Eventually(10*time.Second, "the PoolSettings says so", func() error { return says(t, settingsAllNodes, "True", 3, "1:3") })

	cutOff := t.Pool.Follower(leader)
	others := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == cutOff })
	t.Say("cutting the WAN link of %s, silently", cutOff)
	cut := t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)
	share(t, "v1/services", slicesV1)
	t.Eventually(30*time.Second, "the others no longer share NodePools", func() error { return shared(t, others, 3, false) })
	t.Eventually(10*time.Second, "the PoolSettings says for whom it waits", func() error {
		return says(t, settingsWaiting, "False", 2, "2:2 1:1")
	})
	t.Must(shared(t, []string{cutOff}, 2, true))
	t.Say("restarting the hub of %s, which is cut off", cutOff)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, cutOff, lab.Hub))
	t.Must(t.Lab.Node(t.Ctx, lab.Start, cutOff, lab.Hub))
	t.Eventually(30*time.Second, "it has what the pool said before the cut, from its disk", func() error {
		return shared(t, []string{cutOff}, 2, true)
	})
	t.Heal(cutOff)
	took := t.Eventually(40*time.Second, "it does as the pool says now", func() error { return shared(t, all, 3, false) })
	t.Figure("heal_to_settings_s", took.Seconds())
	t.Eventually(10*time.Second, "the PoolSettings says so", func() error { return says(t, settingsAllNodes, "True", 3, "2:3") })

	badValues(t, all)
	restarts(t, all)
	ownSettings(t, all)
	t.Figure("settings_s", time.Since(began).Seconds())
}

// badValues sets bad values, and expects the API server to refuse them if it can tell, or else the hubs.
func badValues(t *kit.T, all []string) {
	err := apply(t, map[string]any{"poolScopeResources": []string{"services"}})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "poolScopeResources") {
		t.Fail("the API server takes a resource without a version: %w", err)
	}
	t.Say("the API server refuses a resource without a version: %v", err)
	share(t, "v1/services", slicesV1, "discovery.k8s.io/v1beta1/endpointslices")
	t.Eventually(30*time.Second, "the hubs refuse a resource in two versions", func() error {
		return states(t, all, lab.SettingsStatus{Generation: 4, Running: 3, State: string(edge.SettingsRefused)})
	})
	t.Must(shared(t, all, 0, false))
	t.Eventually(10*time.Second, "the PoolSettings says who refuses", func() error {
		return says(t, settingsRefused, "False", 0, "2:3")
	})
	t.Eventually(10*time.Second, "an Event says so", func() error {
		events, err := t.Cloud.CoreV1().Events(metav1.NamespaceDefault).List(t.Ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=PoolSettings,reason=" + settingsRefused,
		})
		if err == nil && (len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, "given twice")) {
			err = fmt.Errorf("there is none among %d", len(events.Items))
		}
		return err
	})
	share(t, "v1/services", slicesV1)
	t.Eventually(30*time.Second, "all is well again", func() error { return says(t, settingsAllNodes, "True", 3, "") })
}

// restarts sets a value that takes a restart, restarts one hub, and takes the value back.
func restarts(t *kit.T, all []string) {
	t.Must(apply(t, map[string]any{"poolScopeResources": []string{"v1/services", slicesV1}, "ownObjects": false}))
	t.Eventually(30*time.Second, "the hubs say that they need a restart", func() error {
		return states(t, all, lab.SettingsStatus{
			Generation: 6, Running: 5, State: string(edge.SettingsNeedRestart), Why: "own-objects",
		})
	})
	again := all[1]
	restart := func() {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, again, lab.Hub))
		t.Must(t.Lab.Node(t.Ctx, lab.Start, again, lab.Hub))
	}
	restart()
	t.Eventually(30*time.Second, again+" has it after a restart", func() error { return runWith(t, []string{again}, 6) })
	t.Eventually(10*time.Second, "the PoolSettings says so", func() error { return says(t, settingsRestart, "False", 1, "") })
	share(t, "v1/services", slicesV1)
	t.Eventually(30*time.Second, "taken back, it is the one that needs a restart", func() error {
		return states(t, []string{again}, lab.SettingsStatus{
			Generation: 7, Running: 6, State: string(edge.SettingsNeedRestart), Why: "own-objects",
		})
	})
	others := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == again })
	t.Eventually(30*time.Second, "the others need none", func() error { return runWith(t, others, 7) })
	restart()
	t.Eventually(30*time.Second, "after another restart nobody does", func() error { return runWith(t, all, 7) })
}

// ownSettings gives a node settings of its own, in a file of the new form: they win.
func ownSettings(t *kit.T, all []string) {
	node := all[2]
	t.Must(apply(t, map[string]any{"poolScopeResources": []string{"v1/services", slicesV1, pools}}))
	t.Must(t.Lab.HubSettings(node, "apiVersion: hub.openyurt.io/v1alpha1\nkind: YurtHubConfiguration\n"+
		"poolScopeResources: [v1/services, "+slicesV1+"]\n"))
	t.Eventually(30*time.Second, node+" keeps to its own", func() error {
		h := t.Pool.Hubs()[node]
		if _, has := h.Replica(kit.AllNodePools.Name); has || h.Settings == nil || h.Settings.Running != 8 ||
			!slices.Equal(h.Settings.Own, []string{"pool-scope-resources"}) {
			return fmt.Errorf("it has NodePools: %t, and says %+v", has, h.Settings)
		}
		return nil
	})
	t.Eventually(30*time.Second, "the others do as the pool says", func() error {
		return shared(t, slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == node }), 8, true)
	})
}

// Reasons of the condition Followed.
const (
	settingsAllNodes = "AllNodes"
	settingsWaiting  = "Waiting"
	settingsRefused  = "Refused"
	settingsRestart  = "RestartNeeded"
)

// share makes the PoolSettings say that the pool shares these resources.
func share(t *kit.T, resources ...string) {
	t.Must(apply(t, map[string]any{"poolScopeResources": resources}))
	t.Say("the PoolSettings says that the pool shares %v", resources)
}

// apply makes the pool's PoolSettings say this for hubs.
func apply(t *kit.T, hub map[string]any) error {
	content, err := json.Marshal(map[string]any{
		"apiVersion": lab.PoolSettings.GroupVersion().String(), "kind": "PoolSettings", "metadata": map[string]any{"name": "p1"},
		"spec": map[string]any{"pools": []string{"p1"}, "hub": hub},
	})
	t.Must(err)
	force := true
	_, err = t.Cloud.Objects.Resource(lab.PoolSettings).Patch(t.Ctx, "p1", types.ApplyPatchType, content,
		metav1.PatchOptions{FieldManager: "somebody", Force: &force})
	return err
}

// says fails unless the PoolSettings' condition Followed has this reason and status, its status counts this many updated nodes,
// and its generations have these numbers of nodes ("2:3" is three nodes at generation 2). Empty generations are not compared.
func says(t *kit.T, reason, status string, updated int32, generations string) error {
	o, err := t.Cloud.Objects.Resource(lab.PoolSettings).Get(t.Ctx, "p1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	s, err := poolSettings(o)
	if err != nil {
		return err
	}
	var counted []string
	for _, g := range s.Status.Generations {
		counted = append(counted, fmt.Sprintf("%d:%d", g.Generation, g.Nodes))
	}
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.PoolSettingsFollowed)
	if c == nil || c.Reason != reason || string(c.Status) != status || s.Status.UpdatedNodes != updated || s.Status.Nodes != 3 ||
		generations != "" && strings.Join(counted, " ") != generations || c.ObservedGeneration != s.Generation ||
		!meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.PoolSettingsReady) {
		return fmt.Errorf("generation %d has the status %+v", s.Generation, s.Status)
	}
	return nil
}

func poolSettings(o *unstructured.Unstructured) (*v1alpha1.PoolSettings, error) {
	s := &v1alpha1.PoolSettings{}
	return s, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, s)
}

// states fails unless the hubs of these nodes say this of their settings. An empty Why is not compared.
func states(t *kit.T, nodes []string, want lab.SettingsStatus) error {
	hubs := t.Pool.Hubs()
	for _, node := range nodes {
		s := hubs[node].Settings
		if s == nil || s.Generation != want.Generation || s.Running != want.Running || s.State != want.State ||
			want.Why != "" && s.Why != want.Why {
			return fmt.Errorf("%s says %+v, want %+v", node, s, want)
		}
	}
	return nil
}

// runWith fails unless the hubs of these nodes run with this generation, and nothing is wrong.
func runWith(t *kit.T, nodes []string, generation int64) error {
	return states(t, nodes, lab.SettingsStatus{Generation: generation, Running: generation})
}

// shared fails unless the hubs of these nodes share NodePools or not, and run with this generation; 0 is any.
func shared(t *kit.T, nodes []string, generation int64, want bool) error {
	hubs := t.Pool.Hubs()
	for _, node := range nodes {
		h := hubs[node]
		if r, has := h.Replica(kit.AllNodePools.Name); has && r.Shared != want || !has && want {
			return fmt.Errorf("%s shares NodePools: %t, want %t", node, has && r.Shared, want)
		}
		if generation > 0 && (h.Settings == nil || h.Settings.Running != generation) {
			return fmt.Errorf("%s says %+v, want generation %d", node, h.Settings, generation)
		}
	}
	return nil
}
