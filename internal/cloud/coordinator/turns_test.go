package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
)

// fleetOf returns n pools that serve with "old" and want "new".
func fleetOf(n int) []turn {
	var all []turn
	for i := range n {
		all = append(all, turn{
			pool: edge.PoolName(fmt.Sprintf("p%03d", i)), had: shipment{"old", "1"}, wants: shipment{"new", "2"}, serves: true,
			reachable: true,
		})
	}
	return all
}

// changed are the pools that get what they want and did not have.
func changed(all []turn) (names []string, again time.Duration) {
	gives, again := decide(all)
	for i, d := range gives {
		t := all[slices.IndexFunc(all, func(t turn) bool { return t.pool == d.pool })]
		if d.gives != t.wants && d.gives != t.had || d.waits != (d.gives != t.wants) || i > 0 && gives[i-1].pool >= d.pool {
			names = append(names, fmt.Sprintf("%s is given %v, waits %t", d.pool, d.gives, d.waits))
		}
		if d.gives != t.had {
			names = append(names, string(d.pool))
		}
	}
	return names, again
}

func TestDecide(t *testing.T) {
	is := func(i int, change func(*turn)) func([]turn) {
		return func(all []turn) { change(&all[i]) }
	}
	down := func(t *turn) { t.serves = false }
	has := func(t *turn) { t.had = t.wants }
	hold := func(t *turn) { t.held = true }
	cut := func(t *turn) { t.reachable = false }
	fresh := func(t *turn) { t.none, t.had, t.serves, t.reachable = true, shipment{}, false, false }
	all := func(change func(*turn)) func([]turn) {
		return func(all []turn) {
			for i := range all {
				change(&all[i])
			}
		}
	}
	for name, c := range map[string]struct {
		pools int
		is    []func([]turn)
		want  string
		again time.Duration
	}{
		"none":                                {0, nil, "", 0},
		"one at least":                        {3, nil, "p000", lookAgain},
		"a tenth":                             {40, nil, "p000 p001 p002 p003", lookAgain},
		"all have it":                         {3, []func([]turn){all(has)}, "", 0},
		"new ones at once":                    {3, []func([]turn){all(fresh)}, "p000 p001 p002", 0},
		"one is under way":                    {3, []func([]turn){is(0, has), is(0, down)}, "", lookAgain},
		"under way, and not to be waited for": {3, []func([]turn){is(0, has), is(0, down), is(0, cut)}, "p001", lookAgain},
		"under way, and paused":               {3, []func([]turn){is(0, has), is(0, down), is(0, hold)}, "p001", lookAgain},
		"the former is Ready":                 {3, []func([]turn){is(0, has)}, "p001", lookAgain},
		"one that does not serve is first":    {3, []func([]turn){is(2, down)}, "p002", lookAgain},
		"all that do not serve":               {3, []func([]turn){all(down)}, "p000 p001 p002", lookAgain},
		"cut off":                             {3, []func([]turn){is(0, cut)}, "p001", lookAgain},
		"all are cut off":                     {3, []func([]turn){all(cut)}, "", reachedAgain},
		"all are cut off, and do not serve":   {3, []func([]turn){all(cut), all(down)}, "", reachedAgain},
		"paused":                              {3, []func([]turn){all(hold)}, "", 0},
		"paused, and does not serve":          {3, []func([]turn){all(hold), all(down)}, "", 0},
		"one is paused":                       {3, []func([]turn){is(0, hold)}, "p001", lookAgain},
		"half a tenth is under way": {
			40, []func([]turn){is(9, has), is(9, down), is(30, has), is(30, down)}, "p000 p001", lookAgain,
		},
	} {
		fleet := fleetOf(c.pools)
		for _, change := range c.is {
			change(fleet)
		}
		slices.Reverse(fleet)
		names, again := changed(fleet)
		if got := strings.Join(names, " "); got != c.want || again != c.again {
			t.Errorf("%s: %q, again after %v, want %q, %v", name, got, again, c.want, c.again)
		}
	}
}

// TestDecideInAPool: of a pool one coordinator is changed at a time, slot 0 last, and a standby is made once those below serve.
func TestDecideInAPool(t *testing.T) {
	old, fresh := shipment{"old", "1"}, shipment{"new", "2"}
	serves := turn{had: old, wants: fresh, serves: true, reachable: true}
	with := func(change func(*turn)) turn {
		t := serves
		change(&t)
		return t
	}
	has := with(func(t *turn) { t.had = fresh })
	down := with(func(t *turn) { t.serves = false })
	starts := with(func(t *turn) { t.had, t.serves = fresh, false })
	lost := with(func(t *turn) { t.serves, t.reachable = false, false })
	none := turn{none: true, wants: fresh, reachable: true}
	held := with(func(t *turn) { t.held = true })
	for name, c := range map[string]struct {
		slots []turn
		want  string // of slots 0, 1, 2: - none, o old, n new
	}{
		"the highest first":                       {[]turn{serves, serves, serves}, "oon"},
		"then the next":                           {[]turn{serves, serves, has}, "onn"},
		"slot 0 last":                             {[]turn{serves, has, has}, "nnn"},
		"one is under way":                        {[]turn{serves, serves, starts}, "oon"},
		"one that does not serve is first":        {[]turn{serves, down, serves}, "ono"},
		"slot 0 does not serve":                   {[]turn{down, serves}, "no"},
		"none serves":                             {[]turn{down, down}, "nn"},
		"one that no node can run is not awaited": {[]turn{serves, lost}, "no"},
		"held":                                   {[]turn{held, held}, "oo"},
		"at first":                               {[]turn{none, none, none}, "n--"},
		"slot 0 serves":                          {[]turn{has, none, none}, "nn-"},
		"slot 0 does not serve yet":              {[]turn{starts, none}, "n-"},
		"slot 1 does not serve yet":              {[]turn{has, down, none}, "nn-"},
		"a standby beside what is to be changed": {[]turn{serves, none}, "nn"},
	} {
		var all []turn
		for i := range 60 { // so many that a tenth of all is no bound
			for slot, t := range c.slots {
				t.pool, t.slot = edge.PoolName(fmt.Sprintf("p%02d", i)), edge.Slot(slot)
				if i > 0 { // others serve as they are to
					t.had, t.wants, t.serves, t.reachable, t.none = fresh, fresh, true, true, false
				}
				all = append(all, t)
			}
		}
		gives, again := decide(all)
		got := make([]byte, len(c.slots))
		for _, d := range gives {
			if d.pool != "p00" {
				continue
			}
			got[d.slot] = map[shipment]byte{old: 'o', fresh: 'n', {}: '-'}[d.gives]
			if d.none != (got[d.slot] == '-') || d.waits != (d.gives != fresh) {
				t.Errorf("%s: %+v", name, d)
			}
		}
		if string(got) != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if strings.Contains(c.want, "-") && again != lookAgain {
			t.Errorf("%s: again after %v", name, again)
		}
	}
}

// TestARolloutComesToItsEnd with never more than a tenth under way, and a bad one goes no further than that.
func TestARolloutComesToItsEnd(t *testing.T) {
	for _, bad := range []bool{false, true} {
		fleet, rounds := fleetOf(57), 0
		for ; rounds < 1000; rounds++ {
			gives, again := decide(fleet)
			if again == 0 {
				break
			}
			for i, d := range gives {
				switch {
				case d.gives != fleet[i].had:
					fleet[i].had, fleet[i].serves = d.gives, false
				case !bad && !fleet[i].serves && rounds%3 == 0:
					fleet[i].serves = true
				}
			}
			down := 0
			for _, each := range fleet {
				if !each.serves {
					down++
				}
			}
			if down > 5 {
				t.Fatalf("round %d: %d of 57 do not serve", rounds, down)
			}
		}
		outdated := 0
		for _, each := range fleet {
			if each.had != each.wants {
				outdated++
			}
		}
		if want := map[bool]int{false: 0, true: 52}[bad]; outdated != want {
			t.Errorf("bad %t: after %d rounds %d have what was before, want %d", bad, rounds, outdated, want)
		}
	}
}

func TestProgress(t *testing.T) {
	pod := func(mark string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotationShipment: mark}}}
	}
	old, fresh := shipment{"o", "1"}, shipment{"n", "2"}
	for want, c := range map[string]struct {
		turn turn
		pod  *corev1.Pod
	}{
		ReasonUpToDate:     {turn{had: fresh, wants: fresh}, pod("2")},
		ReasonReplacing:    {turn{had: fresh, wants: fresh}, pod("1")},
		ReasonPaused:       {turn{had: old, wants: fresh, held: true}, pod("1")},
		ReasonUnreachable:  {turn{had: old, wants: fresh}, pod("1")},
		ReasonWaitsItsTurn: {turn{had: old, wants: fresh, reachable: true}, pod("1")},
	} {
		if f := progress(c.turn, c.pod); f.Reason != want || f.OK != (want != ReasonUpToDate) {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	if f := progress(turn{none: true, wants: fresh}, nil); f.Reason != ReasonReplacing || !f.OK {
		t.Errorf("not made yet: %+v", f)
	}
}

// says writes a PoolSettings about all pools, or changes it.
func (w *world) says(name string, change func(*v1alpha1.PoolSettingsSpec)) {
	w.t.Helper()
	s := &v1alpha1.PoolSettings{}
	found := w.get("", name, s)
	s.Name, s.Generation = name, s.Generation+1
	s.Spec.NodePoolSelector = &metav1.LabelSelector{}
	change(&s.Spec)
	if found {
		w.update(s)
	} else {
		w.create(s)
	}
}

// condition says one in short, and its message.
func (w *world) condition(name string, kind v1alpha1.YurtCoordinatorConditionType) string {
	w.t.Helper()
	var c v1alpha1.YurtCoordinator
	w.get("", name, &c)
	for _, condition := range c.Status.Conditions {
		if condition.Type == kind {
			return string(condition.Status) + "/" + condition.Reason
		}
	}
	return ""
}

// replaces plays the Deployments of those Pods that are of an earlier shipment, and says of which pools these were, and of which
// slot, as in p1/2.
func (w *world) replaces() (pools []string) {
	w.t.Helper()
	for _, slot := range edge.Slots() {
		var app v1beta1.YurtAppSet
		w.get(edge.NamespaceSystem, slot.App(), &app)
		given := shipped(&app)
		for _, p := range w.podsIn(slot) {
			if given[poolOf(&p)].made(&p) {
				continue
			}
			of := string(poolOf(&p))
			if slot > 0 {
				of = fmt.Sprintf("%s/%d", of, slot)
			}
			pools = append(pools, of)
			w.delete(&p)
		}
	}
	slices.Sort(pools)
	return pools
}

// TestSettingsAreTakenOverOneAfterAnother, and each says how far it is.
func TestSettingsAreTakenOverOneAfterAnother(t *testing.T) {
	w := newWorld(t)
	for _, pool := range []string{"p1", "p2", "p3"} {
		w.pool(pool, 3)
		w.coordinator("c-"+pool, pool)
	}
	w.turns(9)
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Verbosity = ptr.To[int32](2) })
	for i, pool := range []string{"p1", "p2", "p3"} {
		w.turns(3)
		if got := w.replaces(); !slices.Equal(got, []string{pool}) {
			t.Fatalf("changed are %v, want %s", got, pool)
		}
		if got := w.condition("c-p3", v1alpha1.YurtCoordinatorReconciling); i < 2 && got != "True/"+ReasonWaitsItsTurn ||
			!strings.Contains(w.status("c-p3"), "Ready=True/Serving") {
			t.Errorf("the last one: %s, %s", got, w.status("c-p3"))
		}
		if i == 1 { // in the midst of it
			w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Paused = ptr.To(true) })
			w.turns(9)
			is := w.condition("c-p3", v1alpha1.YurtCoordinatorReconciling)
			if got := w.replaces(); len(got) > 0 || is != "True/"+ReasonPaused {
				t.Fatalf("paused: %v, %s", got, is)
			}
			w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Paused = nil })
		}
		w.turns(5)
	}
	w.turns(5)
	var c v1alpha1.YurtCoordinator
	for _, pool := range []string{"p1", "p2", "p3"} {
		w.get("", "c-"+pool, &c)
		if got := w.condition("c-"+pool, v1alpha1.YurtCoordinatorReconciling); got != "False/"+ReasonUpToDate ||
			len(c.Status.Settings) != 1 || c.Status.Settings[0] != (v1alpha1.SettingsGeneration{Name: "all", Generation: 3}) {
			t.Errorf("%s: %s, %+v", pool, got, c.Status.Settings)
		}
		if got := w.status("c-" + pool); got != allReady+pool+"-n1" {
			t.Errorf("%s: %s", pool, got)
		}
	}
	if got := w.replaces(); len(got) > 0 {
		t.Errorf("again: %v", got)
	}
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.OwnQuota = quantity("1Gi") })
	w.turns(5)
	if got := w.condition("c-p1", v1alpha1.YurtCoordinatorStalled); got != "True/"+ReasonBadSettings || len(w.replaces()) > 0 ||
		!strings.Contains(w.message("c-p1", v1alpha1.YurtCoordinatorStalled), "ownQuota") {
		t.Errorf("settings that can't be: %s, %s", got, w.message("c-p1", v1alpha1.YurtCoordinatorStalled))
	}
	if !slices.ContainsFunc(w.events, func(e string) bool { return strings.HasPrefix(e, "Warning BadSettings") }) {
		t.Errorf("no Event says so: %v", w.events)
	}
}

// TestASmallPool gets its coordinator where somebody says so, and no other does.
func TestASmallPool(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 1)
	w.pool("p2", 1)
	w.coordinator("c1", "p1")
	w.coordinator("c2", "p2")
	w.says("small", func(s *v1alpha1.PoolSettingsSpec) {
		s.NodePoolSelector, s.Pools, s.Coordinator.MinNodes = nil, []string{"p1"}, ptr.To[int32](1)
	})
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	if got := w.condition("c2", v1alpha1.YurtCoordinatorStalled); got != "True/"+ReasonTooFewNodes {
		t.Errorf("c2: %s", got)
	}
}

// TestTheFleetGoesByWhatItHasRead: what it writes is refused if the YurtAppSet has changed since.
func TestTheFleetGoesByWhatItHasRead(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(7)
	var app v1beta1.YurtAppSet
	w.get(edge.NamespaceSystem, edge.AppCoordinator, &app)
	if app.ResourceVersion == "" {
		t.Fatal("this world has no resourceVersions")
	}
	w.says("all", func(s *v1alpha1.PoolSettingsSpec) { s.Coordinator.Verbosity = ptr.To[int32](2) })
	w.turns(1)
	if given := w.applies[len(w.applies)-1]; given != app.ResourceVersion {
		t.Errorf("it wrote over revision %q, and has read %s", given, app.ResourceVersion)
	}
}
