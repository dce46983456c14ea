package access

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

func TestDecideFiller(t *testing.T) {
	const alive, lapsed = true, false
	led := errors.New("somebody leads")
	long := mark("a", 5)
	long.term = edge.FillerTurn + time.Second
	endless := mark("a", 5)
	endless.term = 0
	for _, c := range []struct {
		name      string
		old, next leaseMark
		live      bool
		unled     error
		Refused   string // part of the reason; empty: allowed
	}{
		{"first ever", leaseMark{}, mark("a", 1), lapsed, nil, ""},
		{"somebody leads, or may come to", leaseMark{}, mark("a", 1), lapsed, led, "leads"},
		{"not counted", mark("", 4), mark("a", 4), lapsed, nil, "leaseTransitions must be 5"},
		{"for another", mark("", 4), mark("b", 5), lapsed, nil, "only itself"},
		{"after a turn that was given up", mark("", 4), mark("a", 5), lapsed, nil, ""},
		{"after a turn that is over", mark("b", 4), mark("a", 5), lapsed, nil, ""},
		{"during another's turn", mark("b", 4), mark("a", 5), alive, nil, "not over"},
		{"a turn is not renewed", mark("a", 4), mark("a", 4), alive, nil, "not renewed"},
		{"nor when it is over", mark("a", 4), mark("a", 4), lapsed, nil, "not renewed"},
		{"another turn", mark("a", 4), mark("a", 5), alive, nil, ""},
		{"another turn while somebody leads", mark("a", 4), mark("a", 5), alive, led, "leads"},
		{"given up", mark("a", 4), mark("", 4), alive, nil, ""},
		{"given up while somebody leads", mark("a", 4), mark("", 4), alive, led, ""},
		{"given up and counted", mark("a", 4), mark("", 5), alive, nil, "leaseTransitions must stay 4"},
		{"another's is given up", mark("b", 4), mark("", 4), alive, nil, "may release"},
		{"another's that is over is given up", mark("b", 4), mark("", 4), lapsed, nil, "may release"},
		{"what nobody holds is given up", mark("", 4), mark("", 4), lapsed, nil, "may release"},
		{"a turn too long", mark("", 4), long, lapsed, nil, "leaseDurationSeconds"},
		{"no time", mark("", 4), endless, lapsed, nil, "leaseDurationSeconds"},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, decideFiller("a", c.old, c.next, c.live, c.unled), c.Refused) })
	}
}

func TestDecideFill(t *testing.T) {
	for _, c := range []struct {
		name    string
		filler  leaseMark
		unled   error
		Refused string
	}{
		{"its turn", mark("a", 3), nil, ""},
		{"somebody leads", mark("a", 3), errors.New("somebody leads"), "somebody leads"},
		{"nobody's", mark("", 3), nil, "only the filler"},
		{"another's", mark("b", 3), nil, "only the filler"},
		{"an earlier turn", mark("a", 4), nil, "turn 3"},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, decideFill("a", 3, c.filler, c.unled), c.Refused) })
	}
}

// TestNobodyFillsSoonAfterALeader: a hub with a link has 2 s to come to lead once it may.
func TestNobodyFillsSoonAfterALeader(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	e := NewElection(nil, ends.Clock{Ran: clock.Now})
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
	check(t, e.unled(leaseMark{}), "for 6s") // the coordinator is new
	pass(fillAfter - 1)
	check(t, e.unled(leaseMark{}), "nobody fills")
	pass(1)
	check(t, e.unled(leaseMark{}), "")
	check(t, e.unled(mark("a", 1)), `node "a" leads`)

	e.vacancy.admitted()
	pass(time.Second)
	e.vacancy.admitted() // given up: the link was cut
	check(t, e.unled(mark("", 1)), "for 6s")
	pass(fillAfter)
	check(t, e.unled(mark("", 1)), "")
}
