package plugin

import (
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
)

func TestProblems(t *testing.T) {
	type conditionType = v1alpha1.YurtCoordinatorConditionType
	condition := func(of conditionType, is v1alpha1.ConditionStatus, message string) v1alpha1.YurtCoordinatorCondition {
		return v1alpha1.YurtCoordinatorCondition{Type: of, Status: is, Reason: "R", Message: message}
	}
	const yes, no = v1alpha1.ConditionTrue, v1alpha1.ConditionFalse
	well := Pool{Name: "a", Nodes: 3, Ready: 3, Coordinator: CoordinatorReady, Leader: "a1"}
	but := func(change func(*Pool)) Pool {
		p := well
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		p    Pool
		want []string
	}{
		"none":                         {well, nil},
		"no coordinator, as is wanted": {Pool{Nodes: 2, Ready: 2, Coordinator: CoordinatorNone}, nil},
		"a new one":                    {Pool{Coordinator: CoordinatorNew}, []string{"check that coordinator-controller runs"}},
		"nobody leads":                 {but(func(p *Pool) { p.Leader = "" }), []string{"no hub reports"}},
		"nodes": {
			but(func(p *Pool) {
				p.Ready, p.Delegated, p.Outside = 1, []string{"a2"}, []string{"1", "2", "3", "4", "5", "6", "7"}
			}),
			[]string{"2 of 3 nodes are not Ready", "down on a2", "do not reach the coordinator: 1, 2, 3, 4, 5 and 2 more"},
		},
		"pending": {
			but(func(p *Pool) {
				p.Coordinator = "TooFewNodes"
				p.conditions = []v1alpha1.YurtCoordinatorCondition{
					condition(v1alpha1.YurtCoordinatorReady, no, "there is no Pod"),
					condition(v1alpha1.YurtCoordinatorPending, yes, "it has two nodes"),
					condition(v1alpha1.YurtCoordinatorCertsReady, no, "no certificates"),
				}
			}),
			[]string{"no coordinator serves: it has two nodes"},
		},
		"not ready": {
			but(func(p *Pool) {
				p.Coordinator = "PodNotReady"
				p.conditions = []v1alpha1.YurtCoordinatorCondition{condition(v1alpha1.YurtCoordinatorReady, no, "")}
			}),
			[]string{"no coordinator serves: R"},
		},
		"not ready, and nobody says why": {
			but(func(p *Pool) { p.Coordinator = "NotReady" }), []string{"does not say why"},
		},
		"conditions": {
			but(func(p *Pool) {
				p.conditions = []v1alpha1.YurtCoordinatorCondition{
					condition(v1alpha1.YurtCoordinatorResourcesCurrent, no, "endpoints are behind"),
					condition(v1alpha1.YurtCoordinatorEvictionsHeld, yes, "until noon"),
					condition(v1alpha1.YurtCoordinatorKubeletsVerifiable, no, "a2 is not known"),
					condition(v1alpha1.YurtCoordinatorStandbysReady, yes, "all are"),
					condition(v1alpha1.YurtCoordinatorReconciling, yes, "it waits for its turn"),
					condition(v1alpha1.YurtCoordinatorStalled, yes, "the settings contradict each other"),
				}
			}),
			[]string{"held: until noon", "contradict", "a2 is not known", "endpoints are behind"},
		},
	} {
		got := problemsOf(&c.p)
		if len(got) != len(c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%s: %q, want %q", name, got[i], c.want[i])
			}
		}
	}
}

func TestSummary(t *testing.T) {
	fine, ill := Pool{}, Pool{Problems: []string{"x"}}
	for want, pools := range map[string][]Pool{
		"no pools": {}, "1 pool: all fine": {fine}, "2 pools: all fine": {fine, fine}, "1 pool with trouble": {ill},
		"2 pools with trouble": {ill, ill}, "1 pool fine, 2 with trouble": {ill, fine, ill},
		"2 pools fine, 1 with trouble": {fine, ill, fine},
	} {
		if got := summary(pools); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Who counts on what the controller has written is told when nobody writes any more.
func TestStale(t *testing.T) {
	renewed := func(ago time.Duration) Objects {
		l := aLease("x", ago, false)
		return Objects{Controller: &l}
	}
	for name, c := range map[string]struct {
		o    Objects
		want string
	}{
		"unknown":    {Objects{}, ""},
		"runs":       {renewed(time.Second), ""},
		"clocks":     {renewed(-time.Hour), ""},
		"is gone":    {renewed(time.Hour), "60m ago"},
		"never rose": {Objects{Controller: &coordinationv1.Lease{}}, ""},
	} {
		if got := stale(c.o, noon); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A watch shows what differs, and each thing once.
func TestShown(t *testing.T) {
	at := noon
	pool := func(name, leader string, problems ...string) Pool {
		at = at.Add(time.Second)
		said := at
		return Pool{Name: name, Leader: leader, LeaderSaid: &said, Problems: problems}
	}
	names := func(pools []Pool) (all []string) {
		for i := range pools {
			all = append(all, pools[i].Name)
		}
		return all
	}
	steps := func(s *shown, all ...[]Pool) (got [][]string) {
		for _, pools := range all {
			got = append(got, names(s.changed(pools)))
		}
		return got
	}
	got := steps(shownOf([]Pool{pool("a", "1"), pool("b", "1")}, false),
		[]Pool{pool("a", "1"), pool("b", "1")}, []Pool{pool("a", "2"), pool("b", "1")}, []Pool{pool("a", "2")},
		[]Pool{pool("a", "2"), pool("b", "1")}, []Pool{pool("a", "2", "x"), pool("b", "1"), pool("c", "1")})
	if want := [][]string{nil, {"a"}, nil, {"b"}, {"a", "c"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("all: %v, want %v", got, want)
	}
	got = steps(shownOf([]Pool{pool("a", "1"), pool("b", "1", "x")}, true),
		[]Pool{pool("a", "2"), pool("b", "1", "x")}, []Pool{pool("a", "2", "y"), pool("b", "1", "z")},
		[]Pool{pool("a", "2"), pool("b", "1", "z")}, []Pool{pool("a", "3"), pool("b", "1", "z")})
	if want := [][]string{nil, {"a", "b"}, {"a"}, nil}; !reflect.DeepEqual(got, want) {
		t.Errorf("problems: %v, want %v", got, want)
	}
}
