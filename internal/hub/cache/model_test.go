package cache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// naive checks a Machine against rules that always hold. It decides nothing: it obeys the machine in a random world, and records
// what it did.
type naive struct {
	t       *testing.T
	rand    *rand.Rand
	machine *Machine
	diary   []string

	event   Event
	wake    time.Time
	running Attempt
	stopped bool
	next    []Happening // of what runs, and when the first of them comes
	when    time.Time
	changes time.Time // when the world changes

	fresh   bool          // the sink has had all that its source had
	caught  bool          // what runs has told all
	asked   bool          // somebody waits for that
	denied  bool          // the last word was the cloud's 403, and nothing has changed since
	able    bool          // the cloud can be asked
	idle    time.Time     // since when it could be, and nothing runs
	begun   []time.Time   // attempts
	content Fetched       // the list that has come
	pages   int           // that were kept
	pagesIn edge.History  // in which their list was begun
	pagesAt edge.Revision // below which floor
	listed  edge.Revision // the floor when the last list of the cloud began
}

// TestAgainstNaiveModel throws events of all kinds at machines.
func TestAgainstNaiveModel(t *testing.T) {
	for seed := range uint64(500) {
		n := &naive{t: t, rand: rand.New(rand.NewPCG(seed, 3))}
		began := time.Unix(1_700_000_000, 0)
		n.event = Event{At: began, Looked: Looked{History: HistoryState{Sure: true}}}
		n.event.Position = edge.Revision(n.rand.IntN(2) * 100)
		pool := n.rand.IntN(3) > 0
		n.machine = NewMachine(MachineConfig{
			Name: "pods", Pool: pool, Precious: n.rand.IntN(2) == 0, Pages: n.rand.IntN(2) == 0,
		}, n.event.Position)
		n.idle, n.changes = began, began
		for range 300 {
			n.diary = append(n.diary, "")
			n.live(pool)
		}
	}
}

// live lets the next thing happen.
func (n *naive) live(pool bool) {
	at := n.changes
	if !n.wake.IsZero() && n.wake.Before(at) {
		at = n.wake
	}
	if len(n.next) > 0 && n.when.Before(at) {
		at = n.when
	}
	n.event.At, n.event.Chance = at, n.rand.Float64()
	switch {
	case len(n.next) > 0 && at.Equal(n.when):
		what := n.next[0]
		n.next, n.when = n.next[1:], at.Add(n.some(2*time.Minute))
		n.step(what)
	case at.Equal(n.changes):
		n.changes = at.Add(n.some(3 * time.Minute))
		n.change(pool)
	default:
		n.step(nil)
	}
}

// some returns a time up to a longest one, mostly a short one.
func (n *naive) some(longest time.Duration) time.Duration {
	return time.Duration(float64(longest) * n.rand.Float64() * n.rand.Float64() * n.rand.Float64())
}

// change changes the world.
func (n *naive) change(pool bool) {
	n.denied = false
	e := &n.event
	switch n.rand.IntN(9) {
	case 0, 1:
		e.Cloud = link.State(n.rand.IntN(4))
	case 2:
		e.Cloud = link.Up
	case 3:
		if pool {
			e.Coordinator = link.State(n.rand.IntN(4))
		}
	case 4:
		e.Standing = lead.Standing{Role: lead.Role(n.rand.IntN(3)), Leader: edge.NodeName([]string{"", "n2"}[n.rand.IntN(2)])}
	case 5:
		e.Filling = pool && n.rand.IntN(4) == 0
		e.Covered = pool && n.rand.IntN(2) == 0
		e.Declared = e.History.Number + edge.History(n.rand.IntN(8)/7)
	case 6:
		e.History.Sure = n.rand.IntN(3) > 0
		if n.rand.IntN(4) == 0 {
			e.History.Number++
		} else if n.rand.IntN(4) == 0 {
			e.History.Floor = e.Position + 1
		}
	case 7:
		n.asked = n.asked || !n.machine.status.Fresh
		n.step(Refreshed{})
		return
	default:
		e.History.Sure = true
	}
	n.step(nil)
}

// step tells the machine what has happened, checks its decision, and carries it out.
func (n *naive) step(what Happening) {
	if n.stopped && what != nil && what != Happening(Refreshed{}) {
		what, n.next = Ended{Err: context.Canceled}, nil
	}
	for range 8 {
		n.take(what)
		n.event.What = what
		d := n.machine.Step(n.event)
		e := n.event
		n.diary = append(n.diary, fmt.Sprintf("%s at %d of %d, %+v\n  %T%+v\n  -> %+v",
			e.At.Format("04:05.000"), e.Position, e.Counted, e.Looked, what, what, d))
		n.hold(what, d)
		switch n.do(what, d); {
		case d.Apply:
			what = Ended{}
		case d.Admit:
			what = Admitted{}
		case !d.settled():
			what = nil
		default:
			return
		}
	}
	n.fail("it does not settle")
}

// take keeps what the machine is told.
func (n *naive) take(what Happening) {
	switch w := what.(type) {
	case CaughtUp:
		n.caught = true
	case Fetched:
		n.content = w
		n.caught = n.running.From == Coordinator && w.Revision <= n.event.Position // if it was asked for by somebody who waits
	case Ended:
		n.denied = n.running.From == Cloud && w.Err != nil && answered(w.Err) == 403
	}
	covered := n.event.Covered && n.event.Declared == n.event.History.Number
	n.fresh = n.fresh || n.caught && (n.running.From == Cloud || covered)
	if over(what) {
		n.event.Position += edge.Revision(n.rand.IntN(2)) * min(n.event.Position, 1)
	}
}

// hold checks a decision.
func (n *naive) hold(what Happening, d Decision) {
	e, a := n.event, d.Start
	begins := a.From != None
	if over(what) && !d.Apply {
		if ended, is := what.(Ended); is && n.running.Pages {
			n.pages, n.pagesIn, n.pagesAt = ended.Pages, n.running.History, n.running.Floor
		}
		n.running = Attempt{}
	}
	if !d.Keep && !d.Apply {
		n.pages = 0
	}
	up := map[Origin]bool{Cloud: e.Cloud.Reachable(), Coordinator: e.Coordinator == link.Up}
	atCloud := begins && a.From == Cloud
	outlived := e.Counted < e.History.Number || e.Position < e.History.Floor && n.listed != e.History.Floor
	for why, broken := range map[string]bool{
		"two sources at once":                    begins && n.running.From != None,
		"asks where nothing can be reached":      begins && !up[a.From],
		"resumes nothing":                        begins && !a.List && e.Position == 0,
		"at a cloud whose history is not known":  atCloud && !e.History.Sure,
		"resumes what is of another history":     atCloud && !a.List && outlived,
		"lists over the WAN out of turn":         atCloud && a.List && what != Happening(Admitted{}),
		"stops what does not run":                d.Stop && (n.running.From == None || n.stopped),
		"goes on after pages that are not there": a.Continue && (n.pages == 0 || !a.List || a.From != Cloud),
		"goes on in another history":             a.Continue && n.pagesIn != a.History,
		"goes on below another floor":            a.Continue && n.pagesAt != a.Floor,
		"wakes in the past":                      !d.Wake.IsZero() && !d.Wake.After(e.At),
		"goes on before the history was told":    !d.settled() && !d.Apply && (begins || d.Stop || d.Admit),
		"applies what has not come":              d.Apply && what != Happening(n.content),
		"is fresh though not all has been told":  d.Status.Fresh && !n.fresh && !d.Apply,
		"is live where nothing runs":             d.Status.Live && n.running.From == None,
	} {
		if broken {
			n.fail(why)
		}
	}
	n.asked = n.asked && !d.Status.Fresh
	waits := n.asked || e.Standing.Role == lead.Leader
	longest := time.Minute
	if e.Filling {
		longest = fillWait + time.Minute
	}
	if n.denied && waits && n.machine.cloud.doubted.Before(e.At) {
		longest = 5 * time.Second
	}
	was := n.able
	if n.able = e.Cloud == link.Up && e.History.Sure; !was || !n.able || over(what) || n.running.From != None {
		n.idle = e.At
	} else if e.At.Sub(n.idle) > longest {
		n.fail("nothing has run for " + e.At.Sub(n.idle).String())
	}
}

// do does what was decided.
func (n *naive) do(what Happening, d Decision) {
	e := &n.event
	e.History.Number = max(e.History.Number, d.Raise)
	if d.Shaken || d.Prove {
		e.History.Sure = false
		n.changes = e.At.Add(time.Second)
	}
	if d.Apply {
		counted := n.content.History
		if n.running.From == Cloud {
			counted, n.listed = max(counted, d.Raise), n.running.Floor
		}
		if counted < e.Counted || counted == e.Counted && n.content.Revision < e.Position {
			n.fail(fmt.Sprintf("revision %d of %d over what is here", n.content.Revision, counted))
		}
		e.Position, e.Counted, n.caught = n.content.Revision, counted, true
	}
	if d.Stop {
		n.stopped, n.when = true, e.At
		n.next = []Happening{nil}
	}
	if d.Start.From != None {
		n.begin(d.Start)
	}
	if !d.Apply {
		n.wake = d.Wake
	}
}

// begin makes up how an attempt will go.
func (n *naive) begin(a Attempt) {
	n.running, n.stopped, n.caught = a, false, false
	if n.begun = append(n.begun, n.event.At); len(n.begun) > 100 && n.event.At.Sub(n.begun[len(n.begun)-100]) < 10*time.Second {
		n.fail("a busy loop: 100 attempts in 10 s")
	}
	errs := []string{"reset", "expired", "403", "403", "401", "503", "not-ready", "unfit"}
	failed := Ended{Err: failures[errs[n.rand.IntN(len(errs))]]}
	if a.Pages && n.rand.IntN(2) == 0 {
		failed.Progress, failed.Pages = true, 1+n.rand.IntN(5)
		if a.Continue {
			failed.Pages += n.pages
		}
	} else if a.Continue {
		failed.Pages = n.pages
	}
	n.when = n.event.At.Add(n.some(2 * time.Minute))
	switch fails := n.rand.IntN(3) == 0; {
	case fails:
		n.when = n.event.At
		n.next = []Happening{failed}
	case a.List:
		f := Fetched{Revision: n.event.Position + edge.Revision(n.rand.IntN(20)) + 1, History: a.History, Have: 20}
		if n.rand.IntN(3) == 0 {
			f.Revision = max(f.Revision, 15) - 14
		}
		if f.Lost = n.rand.IntN(21); a.From == Coordinator {
			f.History = max(n.event.Declared, 1) - 1 + edge.History(n.rand.IntN(2))
		}
		n.next = []Happening{f}
	default:
		o := Ended{Err: stream.ErrExpired, Opened: true, Told: n.rand.IntN(2) == 0, Lived: n.some(10 * time.Minute)}
		if n.rand.IntN(3) > 0 {
			o.Err = failures["eof"]
		}
		n.next = []Happening{Opened{}, CaughtUp{}, o}
	}
}

func (n *naive) fail(why string) {
	n.t.Helper()
	n.t.Fatalf("%s, after:\n%s", why, strings.Join(n.diary[max(0, len(n.diary)-30):], "\n"))
}
