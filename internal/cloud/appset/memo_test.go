package appset

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
)

func TestWhatIsRenderedIsUsedAgain(t *testing.T) {
	c, set := New(Config{}), deployments("web", nil)
	pools := []*v1beta2.NodePool{nodePool("a", "x=y")}
	first := c.render(set, pools, nil)
	if again := c.render(set, pools, nil); first[0].Object == nil || again[0].Object != nil || again[0].Hash != first[0].Hash {
		t.Errorf("%+v, then %+v", first, again)
	}
	workload := &set.Spec.Workload
	tweak := func(replicas int32, pools ...string) v1beta1.WorkloadTweak {
		return v1beta1.WorkloadTweak{
			Pools: pools, NodePoolSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"x": "z"}},
			Tweaks: v1beta1.Tweaks{Replicas: &replicas},
		}
	}
	for _, test := range []struct {
		name   string
		change func()
		anew   bool
	}{
		{"another generation", func() { set.Generation++ }, false},
		{"another pool in the spec", func() { set.Spec.Pools = append(set.Spec.Pools, "q") }, false},
		{"another set", func() { set.UID = "other" }, true},
		{"another template", func() { workload.WorkloadTemplate.DeploymentTemplate.Spec.MinReadySeconds = 7 }, true},
		{"a tweak of others", func() { workload.WorkloadTweaks = tweaks{tweak(1, "q")} }, false},
		{"a tweak", func() { workload.WorkloadTweaks[0].Pools = []string{"a", "q"} }, true},
		{"another tweak", func() { workload.WorkloadTweaks[0] = tweak(2, "a") }, true},
		{"no tweak", func() { workload.WorkloadTweaks[0].Pools = nil }, true},
		{"a tweak by a label", func() { pools[0] = nodePool("a", "x=z") }, true},
		{"another label", func() { pools[0] = nodePool("a", "x=z", "y=z") }, false},
		{"one more pool", func() { pools = append(pools, nodePool("c")) }, false},
		{"another pool", func() { pools[0] = nodePool("b", "x=z") }, true},
	} {
		test.change()
		got := c.render(set, pools, nil)
		if anew := got[0].Object != nil; anew != test.anew || got[0].Hash != Render(set, pools, nil)[0].Hash {
			t.Errorf("%s: rendered anew %v, want %v, and as Render does", test.name, anew, test.anew)
		}
	}
	workload.WorkloadTweaks[0].NodePoolSelector.MatchLabels = map[string]string{"not a label": "!"}
	if got := c.render(set, pools, nil); got[0].Err == nil {
		t.Error("what was rendered before hides what is wrong now")
	}
	c.remember(client.ObjectKeyFromObject(set), "gone", known{})
	c.keepOnly(client.ObjectKeyFromObject(set), first)
	if m := c.known[client.ObjectKeyFromObject(set)]; len(m.pools) != 0 {
		t.Errorf("it knows %v", m.pools)
	}
	if c.forget(client.ObjectKeyFromObject(set)); len(c.known) != 0 {
		t.Error("it forgets nothing")
	}
}

// BenchmarkRenderAgain is what a thousand pools cost where nothing has changed.
func BenchmarkRenderAgain(b *testing.B) {
	c, set := New(Config{}), deployments("web", nil)
	var pools []*v1beta2.NodePool
	for i := range 1000 {
		pools = append(pools, nodePool(fmt.Sprintf("pool-%04d", i), "site=north"))
	}
	c.render(set, pools, nil)
	b.ReportAllocs()
	for b.Loop() {
		if c.render(set, pools, nil)[0].Object != nil {
			b.Fatal("it is rendered again")
		}
	}
}

// TestWhatIsRefusedSaysWhatToDo: RBAC's own words tell nobody how a namespace is opened.
func TestWhatIsRefusedSaysWhatToDo(t *testing.T) {
	of := schema.GroupResource{Group: "apps", Resource: "deployments"}
	closed := apierrors.NewForbidden(of, "web-p1",
		errors.New(`User "c" cannot patch resource "deployments" in the namespace "shop"`))
	if got := refusal(closed, false); !strings.Contains(got, "yurtAppSets.namespaces") || !strings.Contains(got, "cannot patch") {
		t.Error(got)
	}
	policy := apierrors.NewForbidden(of, "web-p1", errors.New("denied request: label the namespace"))
	if got := refusal(policy, false); strings.Contains(got, "yurtAppSets.namespaces") || !strings.Contains(got, "label the") {
		t.Error(got)
	}
}
