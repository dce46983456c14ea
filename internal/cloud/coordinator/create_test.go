package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

func TestWhichYurtCoordinatorsAreMade(t *testing.T) {
	three := []NodeFact{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}}
	autonomous := []NodeFact{{Name: "n1", Autonomous: true}, {Name: "n2"}, {Name: "n3"}}
	byHand := &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: "hand"}}
	byUs := &v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{
		Name: "ours", Labels: map[string]string{LabelCreatedBy: createdBySettings},
	}}
	leaving := byUs.DeepCopy()
	leaving.DeletionTimestamp = &metav1.Time{Time: start}
	made := func(all ...*v1alpha1.YurtCoordinator) []*v1alpha1.YurtCoordinator { return all }
	for what, c := range map[string]struct {
		exists, always, held bool
		made                 []*v1alpha1.YurtCoordinator
		nodes                []NodeFact
		want                 string
	}{
		"as it says":                      {true, true, false, nil, three, "true []"},
		"too few nodes":                   {true, true, false, nil, three[:2], "false []"},
		"autonomous nodes":                {true, true, false, nil, autonomous, "false []"},
		"paused":                          {true, true, true, nil, three, "false []"},
		"on request":                      {true, false, false, nil, three, "false []"},
		"somebody has made one":           {true, true, false, made(byHand), three, "false []"},
		"there is one":                    {true, true, false, made(byUs), three, "false []"},
		"there is one, and few are left":  {true, true, false, made(byUs), three[:1], "false []"},
		"one is still on its way out":     {true, true, false, made(leaving), three, "false []"},
		"no longer":                       {true, false, false, made(byUs), three, "false [ours]"},
		"no longer, and it leaves":        {true, false, false, made(leaving), three, "false []"},
		"no longer, but paused":           {true, false, true, made(byUs), three, "false []"},
		"no longer, and one by hand":      {true, false, false, made(byHand), three, "false []"},
		"no longer, and both":             {true, false, false, made(byHand, byUs), three, "false [ours]"},
		"the pool is gone":                {false, true, false, made(byUs), nil, "false [ours]"},
		"the pool is gone, by hand":       {false, true, false, made(byHand), nil, "false []"},
		"the pool is gone, and is paused": {false, true, true, made(byUs), nil, "false [ours]"},
	} {
		s := site{
			exists: c.exists, always: c.always, held: c.held,
			census: Census{Pool: "p", PoolExists: c.exists, Coordinators: c.made, Nodes: c.nodes},
		}
		create, remove := s.chooses()
		names := []string{}
		for _, yc := range remove {
			names = append(names, yc.Name)
		}
		if got := fmt.Sprint(create, " ", names); got != c.want {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

// TestEveryPoolGetsOne where settings say so, and loses it where they no longer do, unless somebody has made it.
func TestEveryPoolGetsOne(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.pool("p2", 3)
	w.pool("small", 2)
	w.pool("taken", 3)
	w.coordinator("by-hand", "p2")
	w.coordinator("taken", "p1-elsewhere") // a name that is in use
	makes := func() {
		t.Helper()
		if _, err := w.r.reconcileCreate(t.Context(), createRequest); err != nil {
			t.Fatal(err)
		}
	}
	all := func() (names []string) {
		var list v1alpha1.YurtCoordinatorList
		w.list(&list)
		for _, yc := range list.Items {
			names = append(names, yc.Name+"="+yc.Spec.NodePool)
		}
		return names
	}
	expect := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(all()); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	const before = "[by-hand=p2 taken=p1-elsewhere]"
	makes()
	expect("nobody says anything", before)
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Create = v1alpha1.CreateAlways })
	makes()
	const made = "[by-hand=p2 p1=p1 taken=p1-elsewhere taken-99341d56=taken]"
	expect("always", made)
	makes()
	expect("once more", made)
	w.turns(7)
	if got := w.status("p1"); got != allReady+"p1-n1" {
		t.Errorf("it does not run: %s", got)
	}
	w.says("small", func(s *v1alpha1.PoolSettingsSpec) {
		s.NodePoolSelector, s.Pools, s.Coordinator.MinNodes = nil, []string{"small"}, ptr.To[int32](2)
	})
	makes()
	expect("two nodes are enough", "[by-hand=p2 p1=p1 small=small taken=p1-elsewhere taken-99341d56=taken]")
	var pool v1beta2.NodePool
	w.get("", "small", &pool)
	w.delete(&pool)
	makes()
	expect("its pool is gone", made)
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Create = "" })
	w.r.cfg.PoolSettings = false
	makes()
	expect("PoolSettings are no longer followed", made)
	w.r.cfg.PoolSettings = true
	makes()
	w.turns(9)
	expect("no longer, and it may be a mistake", made)
	w.clock.SetTime(w.clock.Now().Add(10 * time.Minute))
	for range 2 { // one in a minute
		makes()
		w.turns(9)
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
	}
	expect("no longer", before)
}

// identities are the UIDs of all YurtCoordinators and of the Secrets of their pools.
func (w *world) identities() string {
	w.t.Helper()
	var ids []string
	var all v1alpha1.YurtCoordinatorList
	w.list(&all)
	for _, c := range all.Items {
		ids = append(ids, c.Name+" "+string(c.UID))
		for _, o := range []types.NamespacedName{
			{Namespace: edge.NamespaceKeys, Name: edge.PoolName(c.Spec.NodePool).AuthoritySecret()},
			{Namespace: edge.NamespaceSystem, Name: edge.PoolName(c.Spec.NodePool).CoordinatorSecret()},
		} {
			var s corev1.Secret
			w.get(o.Namespace, o.Name, &s)
			ids = append(ids, o.Name+" "+string(s.UID))
		}
	}
	for _, p := range w.podsIn(0) {
		ids = append(ids, p.Name)
	}
	return strings.Join(ids, "\n")
}

// createWorld has five pools that have a coordinator because of settings.
func createWorld(t *testing.T) (w *world, always func(), makes func()) {
	w = newWorld(t)
	for i := range 5 {
		w.pool(fmt.Sprintf("p%d", i), 3)
	}
	always = func() {
		t.Helper()
		w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Create = v1alpha1.CreateAlways })
	}
	makes = func() {
		t.Helper()
		if _, err := w.r.reconcileCreate(t.Context(), createRequest); errors.Is(err, errKilled) {
			w.restart()
		} else if err != nil {
			t.Fatal(err)
		}
		w.turns(1)
	}
	always()
	makes()
	w.turns(10)
	for i := range 5 {
		if name := fmt.Sprintf("p%d", i); w.status(name) != allReady+name+"-n1" {
			t.Fatal(w.status(name))
		}
	}
	return w, always, makes
}

// TestReplacedSettings: the PoolSettings because of which pools have coordinators is deleted, and made again minutes later.
func TestReplacedSettings(t *testing.T) {
	w, always, makes := createWorld(t)
	before := w.identities()
	for _, gone := range []time.Duration{time.Second, 9 * time.Minute} {
		w.delete(&v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "all"}})
		makes()
		if got := w.condition("p3", v1alpha1.YurtCoordinatorStalled); got != "True/RemovalWaits" {
			t.Errorf("Stalled is %s", got)
		}
		got := w.message("p3", v1alpha1.YurtCoordinatorStalled)
		if !strings.HasPrefix(got, "5 of 5 YurtCoordinators are no longer asked for. ") || !strings.HasSuffix(got,
			"annotate yurtappset yurt-coordinator -n kube-system --overwrite apps.openyurt.io/confirm-removal=5") {
			t.Errorf("it says %s", got)
		}
		w.measure("removals_waiting", `{kind="YurtCoordinator",namespace="kube-system",yurtappset="yurt-coordinator"} 5`)
		w.clock.SetTime(w.clock.Now().Add(gone))
		makes()
		always()
		makes()
		if got := w.identities(); got != before {
			t.Errorf("after %v it is\n%s\nwas\n%s", gone, got, before)
		}
		if got := w.condition("p3", v1alpha1.YurtCoordinatorStalled); got != "False/NotStalled" {
			t.Errorf("Stalled is %s", got)
		}
		w.measure("removals_waiting", "")
	}
	if n := count(w.events, "Warning RemovalWaits Stalled is true: 5 of 5"); n != 10 {
		t.Errorf("%d Events, want one for each YurtCoordinator and time: %q", n, w.events)
	}
}

// TestRemovalsOfSettings: meant removals go little by little, are paused, and go at once where a person confirms them.
func TestRemovalsOfSettings(t *testing.T) {
	w, _, makes := createWorld(t)
	left := func() int {
		var all v1alpha1.YurtCoordinatorList
		w.list(&all)
		return len(all.Items)
	}
	expect := func(when string, want int) {
		t.Helper()
		w.turns(6)
		if got := left(); got != want {
			t.Errorf("%s: %d are left, want %d", when, got, want)
		}
	}
	says := func(annotation string, paused bool) {
		var app v1beta1.YurtAppSet
		w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
		app.Spec.Rollout.Paused = paused
		app.Annotations = map[string]string{appset.AnnotationConfirmRemoval: annotation}
		w.update(&app)
	}
	w.delete(&v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "all"}})
	makes()
	expect("at once", 5)
	w.restart()
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	makes()
	expect("after a restart", 5)
	says("", true)
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	makes()
	expect("paused", 5)
	says("", false)
	makes()
	expect("no longer paused", 4)
	var pool v1beta2.NodePool
	w.get("", "p4", &pool)
	w.delete(&pool)
	makes()
	expect("a pool is gone", 3)
	says("2", false)
	makes()
	expect("confirmed with a wrong number", 3)
	says("3", false)
	w.fatal = w.writes + 2
	makes()
	expect("killed in the middle", 1)
	makes()
	expect("the only one that is left", 0)
}

// TestDeletedByHand: the YurtAppSets' brake does not hold back what somebody has deleted.
func TestDeletedByHand(t *testing.T) {
	w, _, _ := createWorld(t)
	w.holds = true
	for i := range 5 {
		w.delete(&v1alpha1.YurtCoordinator{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i)}})
	}
	w.turns(6)
	for i := range 5 {
		if got := w.status(fmt.Sprintf("p%d", i)); got != "gone" {
			t.Errorf("p%d: %s", i, got)
		}
	}
}

// TestNoNameIsLeft: a pool that gets no YurtCoordinator is an error, which is tried again and logged.
func TestNoNameIsLeft(t *testing.T) {
	w := newWorld(t)
	w.pool("taken", 3)
	w.coordinator("taken", "elsewhere")
	w.coordinator("taken-99341d56", "elsewhere")
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Create = v1alpha1.CreateAlways })
	if _, err := w.r.reconcileCreate(t.Context(), createRequest); err == nil || !strings.Contains(err.Error(), "pool taken") {
		t.Error(err)
	}
}

// TestCreatedWithoutPoolSettings: what the program's own settings say holds where no PoolSettings are followed.
func TestCreatedWithoutPoolSettings(t *testing.T) {
	cfg := cloudtest.Start(t)
	k := &cluster{c: cloudtest.Client(t, cfg), cfg: cfg, world: &world{t: t}}
	cloudtest.Manager(t, cfg, manager.Options{Cache: cache.Options{ByObject: allCached()}}, func(m manager.Manager) error {
		return addTo(m, Config{
			Client: m.GetClient(), Reader: m.GetAPIReader(), Events: m.GetEventRecorder("coordinator-controller"),
			Program:  Program{Image: image, Release: "v0.2.0", Kubernetes: "v1.36.3"},
			Settings: v1alpha1.CoordinatorSettings{Create: v1alpha1.CreateAlways},
		})
	})
	k.must(k.c.Create(t.Context(), &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "always"}}))
	for i := range 3 {
		k.must(k.c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("always-n%d", i), Labels: map[string]string{edge.LabelNodePool: "always"},
		}}))
	}
	var made v1alpha1.YurtCoordinator
	cloudtest.Eventually(t, "YurtCoordinator", func() error {
		return k.c.Get(t.Context(), client.ObjectKey{Name: "always"}, &made)
	})
	if made.Spec.NodePool != "always" {
		t.Errorf("%+v", made.Spec)
	}
}
