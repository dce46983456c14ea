package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// answer is an API server's answer with a code.
func answer(code int) error {
	status := apierrors.NewGenericServerResponse(code, http.MethodGet, slices1.GroupResource(), "", "", 0, false).Status()
	return stream.ErrorOf(&status)
}

// failures are the ends of attempts that transcripts know.
var failures = map[string]error{
	"ok": nil, "eof": io.EOF, "reset": errors.New("connection reset"), "expired": stream.ErrExpired, "behind": errBehind,
	"unfit": stream.ErrSink, "not-ready": stream.ErrNotReady, "canceled": context.Canceled,
	"401": answer(http.StatusUnauthorized), "403": answer(http.StatusForbidden), "503": answer(http.StatusServiceUnavailable),
}

// script is a Machine in a transcript. The words of an event say what differs from the event before.
type script struct {
	t       *testing.T
	machine *Machine
	began   time.Time
	event   Event
	wake    time.Time // as last decided
	refused string    // as last told
}

// word takes in one word of an event.
func (s *script) word(word string) {
	name, value, _ := strings.Cut(word, "=")
	states := map[string]link.State{"unknown": link.Unknown, "up": link.Up, "down": link.Down, "failing": link.Failing}
	number := number(value)
	e := &s.event
	switch name {
	case "cloud":
		e.Cloud = states[value]
	case "coordinator":
		e.Coordinator = states[value]
	case "pending":
		e.Standing = lead.Standing{}
	case "follower":
		e.Standing = lead.Standing{Role: lead.Follower, Leader: edge.NodeName(value)}
	case "leader":
		e.Standing = lead.Standing{Role: lead.Leader, Leader: "n1"}
	case "covered", "uncovered":
		e.Covered, e.Declared = name == "covered", edge.History(number)
	case "filling", "filled":
		e.Filling = name == "filling"
	case "history":
		e.History.Number = edge.History(number)
	case "floor":
		e.History.Floor = edge.Revision(number)
	case "sure", "unsure":
		e.History.Sure = name == "sure"
	case "position":
		e.Position = edge.Revision(number)
	case "counted":
		e.Counted = edge.History(number)
	case "chance":
		e.Chance = float64(number) / 100
	default:
		s.what(word, name, value)
	}
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// what takes in a word that says what happened.
func (s *script) what(word, name, value string) {
	e := &s.event
	switch name {
	case "opened":
		e.What = Opened{}
	case "caught-up":
		e.What = CaughtUp{}
	case "admitted":
		e.What = Admitted{}
	case "refreshed":
		e.What = Refreshed{}
	case "wake":
		if e.At = s.wake; s.wake.IsZero() {
			s.t.Fatal("transcript waits for ever")
		}
	case "fetched":
		var f Fetched
		if _, err := fmt.Sscanf(value, "%d/%d,%d-%d", &f.Revision, &f.History, &f.Have, &f.Lost); err != nil {
			s.t.Fatalf("%q: %v", word, err)
		}
		e.What = f
	case "ended":
		err, known := failures[value]
		if !known {
			s.t.Fatalf("transcript has the unknown end %q", word)
		}
		e.What = Ended{Err: err}
	case "lived", "told":
		o, _ := e.What.(Ended)
		o.Opened, o.Told = true, o.Told || name == "told"
		if name == "lived" {
			o.Lived, _ = time.ParseDuration(value)
		}
		e.What = o
	case "pages", "more-pages":
		o, _ := e.What.(Ended)
		o.Pages, o.Progress = number(value), name == "more-pages"
		e.What = o
	default:
		after, err := time.ParseDuration(word)
		if err != nil {
			s.t.Fatalf("transcript has the unknown word %q", word)
		}
		e.At = e.At.Add(after)
	}
}

// step tells the machine a line, and returns what it made of it.
func (s *script) step(line string) string {
	s.event.What = nil
	for _, word := range strings.Fields(line) {
		s.word(word)
	}
	d := s.machine.Step(s.event)
	var words []string
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(d.Raise != 0, "raise to %s", d.Raise)
	add(d.Shaken, "shaken")
	add(d.Prove, "prove")
	add(d.Apply, "apply")
	add(d.Stop, "stop")
	how := ""
	if d.Start.Pages {
		how = " in pages"
	}
	add(d.Start.List && !d.Start.Continue, "list at the %s%s", d.Start.From, how)
	add(d.Start.Continue, "go on with the list at the %s", d.Start.From)
	add(d.Start.From != None && !d.Start.List, "resume at the %s", d.Start.From)
	add(d.Admit, "wait for a turn")
	if len(words) == 0 {
		words = []string{"nothing"}
	}
	if d.Start.From != None {
		words = append(words, "because "+d.Start.Why)
	}
	if !d.Wake.IsZero() {
		words = append(words, "wake after "+d.Wake.Sub(s.event.At).Round(time.Millisecond).String())
	}
	if d.Keep {
		words = append(words, "keep the pages")
	}
	s.wake = d.Wake
	is := d.Status
	state := is.Source.String()
	for _, each := range []struct {
		is   bool
		name string
	}{{is.Live, "live"}, {is.Fresh, "fresh"}, {is.Denied, "denied"}, {is.Stranger, "stranger"}, {is.Failing, "failing"}} {
		if each.is {
			state += " " + each.name
		}
	}
	text := fmt.Sprintf("  %s: %s\n  %s\n", s.event.At.Sub(s.began), strings.Join(words, ", "), state)
	if is.Refused != s.refused && is.Refused != "" {
		text += "  refused: " + is.Refused + "\n"
	}
	s.refused = is.Refused
	return text
}

// TestStories replays testdata/machine/*.txt: a line "machine" with its configuration, then lines "> event", each followed by the
// machine's reaction.
func TestStories(t *testing.T) {
	replay(t, "testdata/machine/*.txt", func() func(string) string {
		s := script{t: t, began: time.Unix(1_700_000_000, 0)}
		return func(line string) string {
			if event, is := strings.CutPrefix(line, "> "); is {
				return line + "\n" + s.step(event)
			}
			s.begin(line)
			return line + "\n"
		}
	})
}

// begin makes the machine of a line.
func (s *script) begin(line string) {
	config := MachineConfig{Name: "pods"}
	s.event = Event{At: s.began, Chance: 0.5, Looked: Looked{Cloud: link.Down, Coordinator: link.Down}}
	s.event.History.Sure = true
	for _, word := range strings.Fields(line)[1:] {
		switch word {
		case "pool":
			config.Pool = true
		case "precious":
			config.Precious = true
		case "in-pages":
			config.Pages = true
		default:
			s.word(word)
		}
	}
	s.machine, s.wake, s.refused = NewMachine(config, s.event.Position), time.Time{}, ""
}

// TestALeaderThatCountsTooFar: a history that no cloud reaches is not followed, whether the leader declares it or the mirror's
// content is of it.
func TestALeaderThatCountsTooFar(t *testing.T) {
	const far = 1 << 61
	s := script{t: t, began: time.Unix(1_700_000_000, 0)}
	s.begin("machine pool follower=n2 cloud=up coordinator=up position=100")
	s.event.Covered, s.event.Declared = true, far
	if d := s.machine.Step(s.event); d.Raise != 0 || !d.settled() {
		t.Errorf("declared by the leader: raise to %s, settled: %t", d.Raise, d.settled())
	}
	s.begin("machine pool follower=n2 cloud=up coordinator=up covered")
	if d := s.machine.Step(s.event); d.Start.From != Coordinator || !d.Start.List {
		t.Fatalf("it reads from the %s", d.Start.From)
	}
	s.event.What = Fetched{Revision: 200, History: far, Have: 0, Lost: 0}
	if d := s.machine.Step(s.event); d.Raise != 0 || d.Apply || !strings.Contains(d.Status.Refused, "which no cloud reaches") {
		t.Errorf("content of the mirror: raise to %s, apply: %t, refused: %s", d.Raise, d.Apply, d.Status.Refused)
	}
}

// TestWhoIsAloneReadsTheCloud, not the pool.
func TestWhoIsAloneReadsTheCloud(t *testing.T) {
	s := script{t: t, began: time.Unix(1_700_000_000, 0)}
	until := s.began.Add(time.Hour)
	s.begin("machine pool follower=n2 cloud=up coordinator=up covered=1")
	s.event.History.Alone = until
	d := s.machine.Step(s.event)
	for range 3 { // it waits for a leader's list, as without a coordinator
		if d.Admit {
			break
		}
		s.event.At = d.Wake
		d = s.machine.Step(s.event)
	}
	if d.Raise != 0 || !d.Admit || d.Start.From != None || s.event.At.After(until) {
		t.Errorf("alone: raise to %s, wants to list at the cloud: %t, starts at the %s", d.Raise, d.Admit, d.Start.From)
	}
	s.event.At = until
	if d = s.machine.Step(s.event); d.Raise != 1 {
		t.Errorf("no longer alone: raise to %s", d.Raise)
	}
	s.begin("machine pool follower=n2 cloud=down coordinator=up covered")
	s.event.History.Alone = until
	if d = s.machine.Step(s.event); d.Start.From != None {
		t.Errorf("alone and cut off: it reads from the %s", d.Start.From)
	}
	s.event.History.Alone = time.Time{} // the keeper trusts the pool again
	if d = s.machine.Step(s.event); d.Start.From != Coordinator {
		t.Errorf("trusting again: it reads from the %s", d.Start.From)
	}
}

// The waits for the end of a doubt follow from the doubt itself.
func TestTimesFitTheDoubt(t *testing.T) {
	longest := doubt.Shown().Longest()
	if wait := Choose(parse(t, "follower cloud=expired coordinator=stale pool led")).After; wait < longest {
		t.Errorf("a follower lists over the WAN after %v, while its leader may doubt for %v", wait, longest)
	}
	if preciousFor < 2*longest {
		t.Errorf("few objects are precious for %v, which is less than two doubts of %v", preciousFor, longest)
	}
	if mirrorListTimeout > doubt.Shown().For || coverWait < mirrorListTimeout {
		t.Errorf("a mirror's list may take %v, and a follower waits for %v until it is there", mirrorListTimeout, coverWait)
	}
}
