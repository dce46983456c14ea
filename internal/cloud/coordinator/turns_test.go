package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
)

// fleetOf returns n pools that serve with "old" and want "new", whose image is where it is to be.
func fleetOf(n int) []turn {
	var all []turn
	for i := range n {
		all = append(all, turn{
			pool: edge.PoolName(fmt.Sprintf("p%03d", i)), had: shipment{"old", "1"}, wants: shipment{"new", "2"}, serves: true,
			settled: true, reachable: true, coming: coming{state: ready, node: "n"},
		})
	}
	return all
}

// changed are the pools that get what they want and did not have, and those that others wait for, with !.
func changed(all []turn, most int) (names []string, again time.Duration) {
	is := decide(all, most)
	for i, d := range is.gives {
		t := all[slices.IndexFunc(all, func(t turn) bool { return t.pool == d.pool })]
		if d.gives != t.wants && d.gives != t.had || d.waits != (d.gives != t.wants) || i > 0 && is.gives[i-1].pool >= d.pool {
			names = append(names, fmt.Sprintf("%s is given %v, waits %t", d.pool, d.gives, d.waits))
		}
		if d.gives != t.had {
			names = append(names, string(d.pool))
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(is.stops)) {
		names = append(names, "!"+string(pool))
	}
	return names, is.again
}

// Changes of a turn.
var (
	down    = func(t *turn) { t.serves, t.settled = false, false }
	has     = func(t *turn) { t.had = t.wants }
	starts  = func(t *turn) { has(t); down(t) }
	fails   = func(t *turn) { starts(t); t.trouble = "its Pod crashes" }
	settles = func(t *turn) { has(t); t.settled = false }
	hold    = func(t *turn) { t.held = true }
	cut     = func(t *turn) { t.reachable = false }
	canary  = func(t *turn) { t.canary = true }
	fresh   = func(t *turn) { t.none, t.had, t.serves, t.settled, t.reachable = true, shipment{}, false, false, false }
	broken  = func(t *turn) { down(t); t.had = shipment{"broken", "0"} }
)

func TestDecide(t *testing.T) {
	is := func(i int, changes ...func(*turn)) func([]turn) {
		return func(all []turn) {
			for _, change := range changes {
				change(&all[i])
			}
		}
	}
	all := func(change func(*turn)) func([]turn) {
		return func(all []turn) {
			for i := range all {
				change(&all[i])
			}
		}
	}
	on := func(state comingState) func(*turn) { return func(t *turn) { t.coming.state = state } }
	for name, c := range map[string]struct {
		pools int
		is    []func([]turn)
		want  string
		again time.Duration
	}{
		"none":                                {0, nil, "", 0},
		"one tries it":                        {40, nil, "p000", lookAgain},
		"a tenth, once it has settled":        {40, []func([]turn){is(7, has)}, "p000 p001 p002 p003", lookAgain},
		"not before":                          {40, []func([]turn){is(7, settles)}, "", lookAgain},
		"all have it":                         {3, []func([]turn){all(has)}, "", 0},
		"new ones at once":                    {3, []func([]turn){all(fresh)}, "p000 p001 p002", 0},
		"one is under way":                    {3, []func([]turn){is(0, starts)}, "", lookAgain},
		"under way, and not to be waited for": {3, []func([]turn){is(0, starts, cut)}, "p001", lookAgain},
		"under way, and paused":               {3, []func([]turn){is(0, starts, hold)}, "p001", lookAgain},
		"the former is Ready":                 {3, []func([]turn){is(0, has)}, "p001", lookAgain},
		"cut off":                             {3, []func([]turn){is(0, cut)}, "p001", lookAgain},
		"all are cut off":                     {3, []func([]turn){all(cut)}, "", reachedAgain},
		"all are cut off, and do not serve":   {3, []func([]turn){all(cut), all(down)}, "", reachedAgain},
		"paused":                              {3, []func([]turn){all(hold)}, "", 0},
		"paused, and does not serve":          {3, []func([]turn){all(hold), all(down)}, "", 0},
		"one is paused":                       {3, []func([]turn){is(0, hold)}, "p001", lookAgain},
		"half a tenth is under way": {
			40, []func([]turn){is(7, has), is(9, starts), is(30, starts)}, "p000 p001", lookAgain,
		},
		"one fails with it": {40, []func([]turn){is(3, fails)}, "!p003", lookAgain},
		"one fails with it, and it is proven": {
			40, []func([]turn){is(7, has), is(3, fails)}, "p000 p001 p002", lookAgain,
		},
		"as many fail as may be under way": {
			40, []func([]turn){is(7, has), is(3, fails), is(4, fails), is(5, fails), is(6, fails)},
			"!p003 !p004 !p005 !p006", lookAgain,
		},
		"all but one of them": {
			40, []func([]turn){is(7, has), is(3, fails), is(4, fails), is(5, fails), is(6, starts)}, "", lookAgain,
		},

		"one that does not serve": {3, []func([]turn){is(2, broken)}, "p002", lookAgain},
		"all that do not serve":   {3, []func([]turn){all(broken)}, "p000 p001 p002", lookAgain},
		"the cure while a canary is to be changed": {
			3, []func([]turn){is(1, canary), is(2, broken)}, "p002", lookAgain,
		},
		"the trouble of one that has what serves elsewhere is its own": {
			40, []func([]turn){is(2, fails), is(5, down)}, "!p002", lookAgain,
		},
		"it is changed as soon as that has settled elsewhere": {
			3, []func([]turn){is(1, has), is(2, down)}, "p002", lookAgain,
		},

		"the canary first":                  {40, []func([]turn){is(9, canary)}, "p009", lookAgain},
		"one canary after another at first": {40, []func([]turn){is(9, canary), is(20, canary)}, "p009", lookAgain},
		"then the others": {
			40, []func([]turn){is(9, canary, has), is(20, canary), is(21, canary)}, "p020 p021", lookAgain,
		},
		"until all have settled": {40, []func([]turn){is(9, canary, has), is(20, canary, settles)}, "", lookAgain},
		"all have settled": {
			40, []func([]turn){is(9, canary, has), is(20, canary, has)}, "p000 p001 p002 p003", lookAgain,
		},
		"a canary that fails stops all":        {40, []func([]turn){is(9, canary, fails)}, "!p009", lookAgain},
		"also when it is proven":               {40, []func([]turn){is(9, canary, fails), is(3, has)}, "!p009", lookAgain},
		"a canary that is paused":              {3, []func([]turn){is(1, canary, hold)}, "p000", lookAgain},
		"one that is cut off":                  {3, []func([]turn){is(1, canary, cut)}, "p000", lookAgain},
		"it fails, and is cut off":             {3, []func([]turn){is(1, canary, fails, cut)}, "p000", lookAgain},
		"a canary that no node could run":      {3, []func([]turn){is(1, canary, on(nowhere))}, "!p001", lookAgain},
		"a canary that is new":                 {3, []func([]turn){is(1, canary, fresh)}, "p000 p001", lookAgain},
		"another that no node could run":       {3, []func([]turn){is(0, on(nowhere))}, "p001", lookAgain},
		"no image yet":                         {3, []func([]turn){all(on(notBegun))}, "", lookAgain},
		"the image comes":                      {3, []func([]turn){all(on(notBegun)), is(0, on(pulling))}, "", lookAgain},
		"the image does not come":              {3, []func([]turn){is(0, on(failed))}, "!p000", lookAgain},
		"the image of a canary does not come":  {3, []func([]turn){is(1, canary, on(failed)), is(2, has)}, "!p001", lookAgain},
		"it does not come to one, but is fine": {3, []func([]turn){is(0, on(failed)), is(2, has)}, "p001", lookAgain},
		"two have it already, and nobody tries": {
			3, []func([]turn){is(1, on(ready)), is(2, on(ready)), is(0, on(notBegun), hold)}, "p001", lookAgain,
		},
	} {
		fleet := fleetOf(c.pools)
		for _, change := range c.is {
			change(fleet)
		}
		slices.Reverse(fleet)
		for i := range fleet {
			if fleet[i].coming.state == failed {
				fleet[i].coming.why = "there is none"
			}
		}
		names, again := changed(fleet, max(1, c.pools/10))
		if got := strings.Join(names, " "); got != c.want || again != c.again {
			t.Errorf("%s: %q, again after %v, want %q, %v", name, got, again, c.want, c.again)
		}
	}
}

// TestWhoPulls: an image comes to as many pools at a time as may be under way, only to those whose turn it could be, and of a
// pool to one node.
func TestWhoPulls(t *testing.T) {
	pulls := func(all []turn, most int) (keys []string) {
		for _, d := range decide(all, most).gives {
			if d.pulls {
				keys = append(keys, fmt.Sprintf("%s/%d", d.pool, d.slot))
			}
		}
		return keys
	}
	fleet := func(state comingState) []turn {
		all := fleetOf(20)
		for i := range all {
			all[i].coming.state = state
		}
		return all
	}
	all := fleet(notBegun)
	if got := pulls(all, 3); !slices.Equal(got, []string{"p000/0"}) {
		t.Errorf("nobody has tried it: %v", got)
	}
	has(&all[19])
	if got := pulls(all, 3); !slices.Equal(got, []string{"p000/0", "p001/0", "p002/0"}) {
		t.Errorf("it is proven: %v", got)
	}
	all[0].coming.state, all[1].coming.state = failed, pulling
	if got := pulls(all, 3); !slices.Equal(got, []string{"p000/0", "p001/0", "p002/0", "p003/0"}) {
		t.Errorf("one has failed: %v", got)
	}
	canary(&all[18])
	if got := pulls(all, 3); !slices.Equal(got, []string{"p018/0"}) {
		t.Errorf("a canary comes first: %v", got)
	}
	all = fleet(notBegun)
	has(&all[19])
	for slot := edge.Slot(1); slot < 3; slot++ {
		standby := all[0]
		standby.slot = slot
		all = append(all, standby)
	}
	if got := pulls(all, 2); !slices.Equal(got, []string{"p000/2", "p001/0"}) {
		t.Errorf("with standbys: %v", got)
	}
	all = fleet(ready)
	has(&all[19])
	if got := pulls(all, 3); len(got) != 19 {
		t.Errorf("all are pulled, and %d are kept", len(got))
	}
}

// TestDecideInAPool: of a pool one coordinator is changed at a time, slot 0 last, and a standby is made once those below serve.
func TestDecideInAPool(t *testing.T) {
	old, fresh := shipment{"old", "1"}, shipment{"new", "2"}
	serves := turn{had: old, wants: fresh, serves: true, settled: true, reachable: true, coming: coming{state: ready}}
	with := func(changes ...func(*turn)) turn {
		t := serves
		for _, change := range changes {
			change(&t)
		}
		return t
	}
	has, down, starts, lost := with(has), with(down), with(starts), with(down, cut)
	none := turn{none: true, wants: fresh, reachable: true}
	held := with(hold)
	for name, c := range map[string]struct {
		slots []turn
		want  string // of slots 0, 1, 2: - none, o old, n new
	}{
		"the highest first":                       {[]turn{serves, serves, serves}, "oon"},
		"then the next":                           {[]turn{serves, serves, has}, "onn"},
		"slot 0 last":                             {[]turn{serves, has, has}, "nnn"},
		"one is under way":                        {[]turn{serves, serves, starts}, "oon"},
		"one has not settled yet":                 {[]turn{serves, serves, with(settles)}, "oon"},
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
					t.had, t.wants, t.serves, t.settled, t.reachable, t.none = fresh, fresh, true, true, true, false
				}
				all = append(all, t)
			}
		}
		is := decide(all, 6)
		got := make([]byte, len(c.slots))
		for _, d := range is.gives {
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
		if strings.Contains(c.want, "-") && is.again != lookAgain {
			t.Errorf("%s: again after %v", name, is.again)
		}
	}
}

// TestARolloutComesToItsEnd with never more under way than may be, canaries before all others, and each decided anew from what
// there is. A bad one goes no further than the first canary.
func TestARolloutComesToItsEnd(t *testing.T) {
	for _, bad := range []bool{false, true} {
		fleet, rounds := fleetOf(57), 0
		canary(&fleet[40])
		canary(&fleet[50])
		for i := range fleet {
			fleet[i].coming.state = notBegun
		}
		for ; rounds < 1000; rounds++ {
			is := decide(fleet, 5)
			if is.again == 0 {
				break
			}
			under := 0
			for i, d := range is.gives {
				each := &fleet[i]
				switch {
				case d.gives != each.had:
					if each.coming.state != ready {
						t.Fatalf("%s is changed before its image is there", d.pool)
					}
					each.had, each.serves, each.settled = d.gives, false, false
					if !d.canary && (!fleet[40].done() || !fleet[50].done()) {
						t.Fatalf("%s is changed before the canaries are well", d.pool)
					}
				case bad && !each.serves:
					each.trouble = "it crashes"
				case !each.serves && rounds%3 == 0:
					each.serves = true
				case each.serves && rounds%3 == 1:
					each.settled = true
				case d.pulls && each.coming.state == notBegun:
					each.coming.state = pulling
				case each.coming.state == pulling:
					each.coming.state = ready
				}
				if !each.settled {
					under++
				}
			}
			if under > 5 {
				t.Fatalf("round %d: %d of 57 are under way", rounds, under)
			}
		}
		outdated := 0
		for _, each := range fleet {
			if each.had != each.wants {
				outdated++
			}
		}
		if want := map[bool]int{false: 0, true: 56}[bad]; outdated != want {
			t.Errorf("bad %t: after %d rounds %d have what was before, want %d", bad, rounds, outdated, want)
		}
		if stops := decide(fleet, 5).stops; bad != (stops["p040"] == "it crashes") || len(stops) > 1 {
			t.Errorf("bad %t: it is stopped by %v", bad, stops)
		}
	}
}

// TestADeadlockOfTriers: what was proven is so no more when its only pool goes, and then one of those that have its image tries
// it.
func TestADeadlockOfTriers(t *testing.T) {
	fleet := fleetOf(30)
	for i := range fleet {
		fleet[i].coming.state = pulling
	}
	fleet[4].coming.state, fleet[11].coming.state, fleet[17].coming.state = ready, ready, ready
	for i := range 4 {
		hold(&fleet[i])
	}
	if got, _ := changed(fleet, 3); !slices.Equal(got, []string{"p004"}) {
		t.Errorf("%v", got)
	}
}

func TestRollout(t *testing.T) {
	for _, c := range []struct {
		most string
		all  int
		want int // 0: it can't be
	}{
		{"", 1000, 100}, {"10%", 57, 5}, {"10%", 3, 1}, {"25", 1000, 25}, {"25", 3, 25}, {"100%", 40, 40},
		{"-1", 1, 0}, {"0%", 1, 0}, {"101%", 1, 0}, {"ten", 1, 0},
	} {
		r := Rollout{MaxUnavailable: intstr.Parse(c.most)}
		if c.most == "" {
			r = Rollout{}
		}
		if err := CheckRollout(r); (err == nil) != (c.want > 0) {
			t.Errorf("%q: %v", c.most, err)
		} else if got := r.completed().most(c.all); err == nil && got != c.want {
			t.Errorf("%q of %d: %d, want %d", c.most, c.all, got, c.want)
		}
	}
	if CheckRollout(Rollout{Settle: -1}) == nil || CheckRollout(Rollout{PullTimeout: -1}) == nil {
		t.Error("a time that is less than none is taken")
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
		ReasonPulling:      {turn{had: old, wants: fresh, reachable: true, coming: coming{state: pulling}}, pod("1")},
		ReasonNotPulled:    {turn{had: old, wants: fresh, reachable: true, coming: coming{state: failed}}, pod("1")},
		ReasonNoNodeToCome: {turn{had: old, wants: fresh, reachable: true, coming: coming{state: nowhere}}, pod("1")},
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
