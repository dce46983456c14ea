package poolcut

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/cloud/heartbeat"
	"yurtcoordinator/internal/edge"
)

var testLimits = Limits{Silence: 30 * time.Second, Grace: 40 * time.Second}

// Nodes by what was seen of their Leases, so many seconds ago.

func seen(age int) heartbeat.Observation {
	return heartbeat.Observation{
		Found: true, Renewed: true, Age: time.Duration(age) * time.Second, LeaseDuration: 40 * time.Second,
	}
}

func alive(age int) Member { return Member{Lease: seen(age), Ready: corev1.ConditionTrue} }

func shown(age int, ready corev1.ConditionStatus) Member {
	return Member{Lease: seen(age), Ready: ready}
}

func found(age int) Member {
	m := shown(age, corev1.ConditionUnknown)
	m.Lease.Renewed = false
	return m
}

func delegated(m Member) Member { m.Lease.Annotated = true; return m }
func heldBy(m Member) Member    { m.Held = true; return m }
func spent(m Member) Member     { m.Spent = true; return m }
func refusing(m Member) Member  { m.Refused = true; return m }
func gone(m Member) Member      { m.Lease.Gone = true; return m }
func slow(m Member) Member      { m.Lease.LeaseDuration = 2 * time.Minute; return m }

const hour = time.Hour

var (
	off                 = Terms{}
	asked               = Terms{Rule: Asked, For: hour}
	mistyped            = Terms{Rule: Unreadable, Problem: "x"}
	default24           = Terms{Rule: ByDefault, For: 24 * hour}
	mistypedWithDefault = Terms{Rule: Unreadable, For: 24 * hour, Problem: "x"}
)

// The changes, short.
var (
	none    = Change{}
	hold    = Change{corev1.ConditionTrue, ReasonCut}
	speaks  = Change{corev1.ConditionFalse, ReasonNodeSpeaks}
	others  = Change{corev1.ConditionFalse, ReasonPoolSpeaks}
	expired = Change{corev1.ConditionFalse, ReasonExpired}
	undone  = Change{corev1.ConditionFalse, ReasonWithdrawn}
	left    = Change{corev1.ConditionFalse, ReasonLeft}
)

func TestBeginning(t *testing.T) {
	const s = time.Second
	for _, test := range []struct {
		name    string
		members []Member
		terms   Terms
		want    []Change
		begins  bool
		next    time.Duration
	}{
		{"an empty pool", nil, asked, []Change{}, false, 0},
		{"all are well: look when the last can be silent", []Member{alive(2), alive(9)}, asked,
			[]Change{none, none}, false, 28 * s},
		{"nobody asked for it", []Member{alive(31), alive(35)}, off, []Change{none, none}, false, 0},
		{"what is asked can't be read", []Member{alive(31), alive(35)}, mistyped, []Change{none, none}, false, 0},
		{"the default", []Member{alive(31), alive(35)}, default24, []Change{hold, hold}, true, 24 * hour},
		{"all are well, and the default", []Member{alive(2), alive(9)}, default24, []Change{none, none}, false, 28 * s},
		{"what is asked can't be read, and there is a default", []Member{alive(31), alive(35)}, mistypedWithDefault,
			[]Change{hold, hold}, true, 24 * hour},
		{"one speaks", []Member{alive(29), alive(35)}, asked, []Change{none, none}, false, s},
		{"one speaks, delegated", []Member{delegated(alive(29)), alive(35)}, asked, []Change{none, none}, false, s},
		{"all are silent", []Member{alive(30), alive(39)}, asked, []Change{hold, hold}, true, hour},
		{"all are silent that were delegated", []Member{delegated(alive(30)), alive(39)}, asked,
			[]Change{hold, hold}, true, hour},
		{"a long interval", []Member{alive(35), slow(alive(59))}, asked, []Change{none, none}, false, s},
		{"its end", []Member{alive(35), slow(alive(60))}, asked, []Change{hold, hold}, true, hour},
		{"one node alone", []Member{alive(30)}, asked, []Change{none}, false, 0},
		{"one of two was dead before", []Member{alive(30), alive(71)}, asked, []Change{none, none}, false, 0},
		{"one of three was dead before", []Member{alive(30), alive(70), alive(71)}, asked,
			[]Change{hold, hold, none}, true, hour},
		{"one never seen alive", []Member{alive(30), alive(31), found(50)}, asked, []Change{hold, hold, none}, true, hour},
		{"one without a Lease", []Member{alive(30), alive(31), {}}, asked, []Change{hold, hold, none}, true, hour},
		{"one that may be alive", []Member{alive(30), alive(31), found(12)}, asked, []Change{none, none, none}, false, 18 * s},
		{"after a start nothing is known", []Member{found(30), found(30)}, asked, []Change{none, none}, false, 0},
		{"deleted Leases", []Member{gone(alive(1)), gone(alive(1))}, asked, []Change{none, none}, false, 0},
		{"a node whose kubelet gave up before", []Member{alive(30), refusing(alive(31))}, asked,
			[]Change{hold, none}, true, hour},
		{"all gave up before", []Member{refusing(alive(30)), refusing(alive(31))}, asked, []Change{none, none}, false, 0},
		{"it was held already for this silence", []Member{spent(alive(99)), spent(alive(98))}, asked,
			[]Change{none, none}, false, 0},
		{"of three, one was", []Member{alive(30), alive(30), spent(alive(40))}, asked, []Change{hold, hold, none}, true, hour},
		{"what was spent speaks", []Member{spent(alive(3)), spent(alive(99))}, off, []Change{speaks, none}, false, 0},
		{"a node that came from a held pool", []Member{alive(3), heldBy(alive(99))}, asked, []Change{none, left}, false, 27 * s},
		{"and speaks", []Member{alive(3), heldBy(alive(4))}, off, []Change{none, speaks}, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := Decide(test.members, nil, test.terms, nil, testLimits)
			if !reflect.DeepEqual(d.Changes, test.want) || d.Begins != test.begins || d.Next != test.next || d.Ended != "" {
				t.Errorf("got %+v, want %v, begins %v, next %v", d, test.want, test.begins, test.next)
			}
		})
	}
}

func TestInProgress(t *testing.T) {
	const s, m = time.Second, time.Minute
	unknown, yes, no := corev1.ConditionUnknown, corev1.ConditionTrue, corev1.ConditionFalse
	silent := func(age int) Member { return heldBy(shown(age, unknown)) }
	cut := Hold{For: hour, Elapsed: 10 * m}
	healing := func(since time.Duration) Hold { return Hold{For: hour, Elapsed: 10 * m, Healing: true, Healed: since} }
	for _, test := range []struct {
		name    string
		members []Member
		terms   Terms
		h       Hold
		want    []Change
		ended   Outcome
		begins  bool
		next    time.Duration
	}{
		{"nobody speaks", []Member{silent(600), silent(610)}, asked, cut, []Change{hold, hold}, "", false, 50 * m},
		{"after a start", []Member{heldBy(found(1)), heldBy(found(1))}, asked, cut, []Change{hold, hold}, "", false, 50 * m},
		{"after a start, later", []Member{heldBy(found(99)), heldBy(found(99))}, asked, cut,
			[]Change{hold, hold}, "", false, 50 * m},
		{"a node that a failed write left out", []Member{silent(600), shown(599, unknown)}, asked, cut,
			[]Change{hold, hold}, "", false, 50 * m},
		{"one that was dead before", []Member{silent(600), silent(601), shown(700, unknown)}, asked, cut,
			[]Change{hold, hold, none}, "", false, 50 * m},
		{"a mistyped change of the annotation", []Member{silent(600), silent(610)}, mistyped, cut,
			[]Change{hold, hold}, "", false, 50 * m},
		{"a mistyped change where there is a default", []Member{silent(600), silent(610)}, mistypedWithDefault, cut,
			[]Change{hold, hold}, "", false, 50 * m},
		{"it can't be known how long", []Member{silent(600), silent(610)}, mistyped, Hold{Elapsed: m},
			[]Change{undone, undone}, Withdrawn, false, 0},
		{"the annotation goes", []Member{silent(600), silent(610)}, off, cut, []Change{undone, undone}, Withdrawn, false, 0},
		{"the time is over", []Member{silent(3600), silent(3610)}, asked, Hold{For: hour, Elapsed: hour},
			[]Change{expired, expired}, Expired, false, 0},
		{"the time is over in the healing", []Member{silent(3), silent(3610)},
			asked, Hold{For: hour, Elapsed: hour, Healing: true},
			[]Change{speaks, expired}, Expired, false, 27 * s},

		{"one speaks and is not shown so yet", []Member{silent(1), silent(610)}, asked, cut,
			[]Change{hold, hold}, "", false, 29 * s},
		{"one speaks and is", []Member{heldBy(shown(1, yes)), silent(610)}, asked, cut,
			[]Change{speaks, hold}, "", false, 29 * s},
		{"one speaks and says that it is not Ready", []Member{heldBy(shown(1, no)), silent(610)}, asked, cut,
			[]Change{speaks, hold}, "", false, 29 * s},
		{"one speaks that is not held", []Member{alive(1), silent(610)}, asked, cut, []Change{none, hold}, "", false, 29 * s},
		{"it falls silent again", []Member{silent(35), silent(610)}, asked, healing(36 * s),
			[]Change{hold, hold}, "", false, 50 * m},
		{"the others have had their time", []Member{alive(1), silent(610)}, asked, healing(40 * s),
			[]Change{none, others}, Spoke, false, 29 * s},
		{"it is silent again for longer", []Member{silent(41), silent(610)}, asked, healing(41 * s),
			[]Change{hold, hold}, "", false, 50 * m},
		{"it speaks and is still not shown so", []Member{delegated(silent(8)), silent(610)}, asked, healing(41 * s),
			[]Change{hold, others}, "", false, 22 * s},
		{"all speak", []Member{heldBy(shown(1, yes)), heldBy(shown(2, yes))}, asked, healing(9 * s),
			[]Change{speaks, speaks}, Spoke, false, 29 * s},
		{"all are cut off again before", []Member{silent(31), silent(35), silent(610)}, asked, healing(39 * s),
			[]Change{hold, hold, hold}, "", false, 50 * m},
		{"and after", []Member{silent(32), silent(36), silent(610)}, asked, healing(40 * s),
			[]Change{hold, hold, hold}, "", false, 50 * m},
		{"no held node is left", []Member{shown(700, unknown)}, asked, cut, []Change{none}, Emptied, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := Decide(test.members, nil, test.terms, &test.h, testLimits)
			if !reflect.DeepEqual(d.Changes, test.want) || d.Ended != test.ended || d.Begins != test.begins ||
				d.Next != test.next {
				t.Errorf("got %+v, want %v, ended %q, begins %v, next %v", d, test.want, test.ended, test.begins, test.next)
			}
		})
	}
}

func TestTermsOf(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"2h": 2 * time.Hour, "1ms": time.Millisecond, "168h": 168 * time.Hour,
		"": 0, "-1h": 0, "168h1ns": 0, "2": 0, "soon": 0,
	} {
		got := TermsOf(map[string]string{edge.AnnotationHoldEvictions: text}, 0)
		if got.For != want || (got.Rule == Asked) != (want > 0) || (got.Rule == Unreadable) != (got.Problem != "") {
			t.Errorf("%q: %+v, want %v", text, got, want)
		}
		byDefault := TermsOf(map[string]string{edge.AnnotationHoldEvictions: text}, 24*hour)
		if want == 0 {
			got.For = 24 * hour // what can't be read is as nothing
		}
		if byDefault != got {
			t.Errorf("%q where there is a default: %+v, want %+v", text, byDefault, got)
		}
	}
	for _, unless := range []time.Duration{0, 24 * hour} {
		for _, opt := range []string{"0s", "0h", "0"} {
			if got := TermsOf(map[string]string{edge.AnnotationHoldEvictions: opt}, unless); got != off {
				t.Errorf("%q: %+v, want it off whatever the default", opt, got)
			}
		}
	}
	if got := TermsOf(map[string]string{"other": "2h"}, 0); got != off {
		t.Errorf("no annotation: %+v", got)
	}
	if got := TermsOf(map[string]string{"other": "2h"}, 24*hour); got != default24 {
		t.Errorf("no annotation, and a default: %+v", got)
	}
	long := TermsOf(map[string]string{edge.AnnotationHoldEvictions: string(make([]byte, 5000))}, 0)
	if len(long.Problem) > 1000 {
		t.Errorf("a problem of %d bytes", len(long.Problem))
	}
}

// TestTheVerdictComesBeforeTheTaint is the argument for the threshold: whenever the nodes last renewed their Leases before a
// cut, all are silent to us before the first has been silent for kube-controller-manager's grace period.
func TestTheVerdictComesBeforeTheTaint(t *testing.T) {
	for _, test := range []struct{ silenceAfter, interval, grace time.Duration }{
		{40 * time.Second, 10*time.Second + 400*time.Millisecond, 50 * time.Second}, // Kubernetes' own, jittered by 4 %
		{16 * time.Second, 2 * time.Second, 20 * time.Second},                       // the lab's
	} {
		c := New(Config{SilenceAfter: test.silenceAfter})
		verdict := test.interval + c.limits.Silence // after the first node's last renewal
		if margin := test.grace - verdict; margin < test.grace/6 {
			t.Errorf("%+v: the verdict comes %v before the first taint", test, margin)
		}
	}
}
