package coordinators

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// world is a pool with coordinators, as one hub sees it.
type world struct {
	*Home
	cloud     *live.Value[link.State]
	links     []*live.Value[link.State]
	standings []*live.Value[lead.Standing]
	complete  []atomic.Bool
}

func newWorld(t *testing.T, slots int, metrics ...prometheus.Registerer) *world {
	t.Helper()
	w := &world{cloud: live.NewValue(link.Up), complete: make([]atomic.Bool, slots)}
	c := HomeConfig{Cloud: w.cloud}
	for _, m := range metrics {
		c.Metrics = m
	}
	for i := range slots {
		w.links = append(w.links, live.NewValue(link.Up))
		w.standings = append(w.standings, live.NewValue(lead.Standing{Role: lead.Follower}))
		c.Slots = append(c.Slots, Slot{Link: w.links[i], Transport: answers(i)})
	}
	w.Home = NewHome(c)
	for i := range slots {
		w.Elects(i, election{w.standings[i]}, func(context.Context) (bool, error) { return w.complete[i].Load(), nil })
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return w
}

// election is one whose leader renews all the time.
type election struct{ standing *live.Value[lead.Standing] }

func (e election) Standing() *live.Value[lead.Standing] { return e.standing }
func (election) Renewed() time.Time                     { return time.Now() }

// answers is a coordinator that answers its slot, and then waits until the request ends.
type answers int

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	out, in := io.Pipe()
	go func() {
		_, _ = io.WriteString(in, string(rune('0'+int(a))))
		<-r.Context().Done()
		_ = in.CloseWithError(r.Context().Err())
	}()
	return &http.Response{StatusCode: http.StatusOK, Body: out, Request: r}, nil
}

func (w *world) is(t *testing.T, at int, state link.State, leader edge.NodeName, campaigns ...link.State) {
	t.Helper()
	synctest.Wait()
	if got := w.At().Get(); got != at || w.Link().Get() != state || w.Standing().Get().Leader != leader {
		t.Errorf("home is %d, %s, led by %q; want %d, %s, %q", got, w.Link().Get(), w.Standing().Get().Leader, at, state, leader)
	}
	for i, want := range campaigns {
		if got := w.Campaign(i).Get(); got != want {
			t.Errorf("at slot %d the cloud is %s for the election, want %s", i, got, want)
		}
	}
}

func TestHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.is(t, 0, link.Up, "", link.Up, link.Down, link.Down)
		for i := range w.standings { // another leads at all of them
			w.standings[i].Set(lead.Standing{Role: lead.Follower, Leader: "n2", Transitions: int32(i + 1)})
		}
		w.is(t, 0, link.Up, "n2", link.Up, link.Down, link.Down)
		w.links[0].Set(link.Down)
		w.is(t, 1, link.Up, "n2", link.Down, link.Up, link.Down)

		w.links[0].Set(link.Up)
		time.Sleep(settled + askEvery)
		w.is(t, 1, link.Up, "n2")
		w.complete[0].Store(true)
		time.Sleep(askEvery)
		w.is(t, 0, link.Up, "n2", link.Up, link.Down, link.Down)

		w.cloud.Set(link.Down)
		w.is(t, 0, link.Up, "n2", link.Down, link.Down, link.Down)
		for _, l := range slices.Backward(w.links) { // home last: with the others up, this hub would go there
			l.Set(link.Down)
		}
		w.is(t, 0, link.Down, "n2", link.Down, link.Down, link.Down)
	})
}

// TestLeaderGoesOn: a leader whose home dies leads at the next one already, and its campaign there never falters.
func TestLeaderGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for i := range w.standings {
			w.standings[i].Set(lead.Standing{Role: lead.Leader, Leader: "n1"})
		}
		w.is(t, 0, link.Up, "n1", link.Up, link.Up, link.Up)
		fell := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			defer close(fell)
			_, _ = w.Campaign(1).Wait(ctx, func(s link.State) bool { return s != link.Up })
		}()
		down := make(chan link.State, 1)
		go func() {
			s, _ := w.Link().Wait(ctx, func(s link.State) bool { return s != link.Up })
			down <- s
		}()
		w.links[0].Set(link.Down)
		w.standings[0].Set(lead.Standing{})
		w.is(t, 1, link.Up, "n1", link.Up, link.Up, link.Up)
		select {
		case <-fell:
			t.Error("it stopped to stand for election at its next home")
		case s := <-down:
			t.Errorf("home was %s meanwhile", s)
		default:
		}
		stop()
		<-fell
		<-down

		w.standings[1].Set(lead.Standing{Role: lead.Follower, Leader: "n3"}) // deposed
		w.is(t, 1, link.Up, "n3", link.Down, link.Up, link.Up)               // at the third it leads on
	})
}

// TestFailing: home is left when it has refused two of this node's copies in a row, if another takes them.
func TestFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.Served(0, false)
		w.Served(0, true)
		w.Served(0, false)
		w.is(t, 0, link.Up, "")
		w.Served(0, false)
		w.is(t, 1, link.Up, "")
		w.Served(1, false)
		w.Served(1, false)
		w.is(t, 2, link.Up, "")
		w.Served(2, false)
		w.Served(2, false)
		w.is(t, 2, link.Up, "") // nowhere is better
		w.Served(0, true)
		w.is(t, 0, link.Up, "")

		w.Served(0, false)
		w.Served(0, false)
		w.Served(1, true)
		w.is(t, 1, link.Up, "")
		w.complete[0].Store(true)
		w.Served(0, true)
		time.Sleep(settled - askEvery)
		w.is(t, 1, link.Up, "")
		time.Sleep(2 * askEvery)
		w.is(t, 0, link.Up, "")
	})
}

// TestStandsWhereNobodyLeads: the leader at home does not reach a standby, and this hub does.
func TestStandsWhereNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.standings[0].Set(lead.Standing{Role: lead.Follower, Leader: "n2"})
		w.is(t, 0, link.Up, "n2", link.Up, link.Down)
		time.Sleep(vacancy)
		w.is(t, 0, link.Up, "n2", link.Up, link.Up)
		if got := w.Anywhere().Get(); got != (lead.Standing{Role: lead.Follower, Leader: "n2"}) {
			t.Errorf("it leads nowhere: %v", got)
		}
		w.standings[1].Set(lead.Standing{Role: lead.Leader, Leader: "n1"})
		w.is(t, 0, link.Up, "n2", link.Up, link.Up)
		if got := w.Anywhere().Get(); got != (lead.Standing{Role: lead.Leader, Leader: "n2"}) {
			t.Errorf("it leads at the second: %v", got)
		}
	})
}

// TestLeave: a standby is left to the leader at home, once that has been the same for a while, and once in a while only.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		var rested atomic.Bool
		rested.Store(true)
		ctx, stop := context.WithCancel(t.Context())
		result := make(chan error, 1)
		leave := func() {
			go func() {
				result <- w.Leave(ctx, 1, "n1", func(to edge.NodeName) bool { return to == "n2" && rested.Load() })
			}()
		}
		goesOn := func(what string, d time.Duration) {
			t.Helper()
			time.Sleep(d)
			select {
			case err := <-result:
				t.Fatalf("%s: %v", what, err)
			default:
			}
		}
		leave()
		goesOn("nobody leads at home", 3*held)
		w.standings[0].Set(lead.Standing{Role: lead.Leader, Leader: "n1"})
		goesOn("this hub leads there itself", 3*held)
		w.standings[0].Set(lead.Standing{Role: lead.Follower, Leader: "n3"})
		goesOn("n3 has just begun", held-2*lookEvery)
		w.standings[0].Set(lead.Standing{Role: lead.Follower, Leader: "n2"})
		goesOn("n2 has just begun", held-2*lookEvery)
		time.Sleep(4 * lookEvery)
		if yield := (*lead.Yield)(nil); !errors.As(<-result, &yield) || yield.To != "n2" {
			t.Errorf("it is left to %v", yield)
		}
		rested.Store(false)
		leave()
		goesOn("n2 does not reach it", 3*held)
		w.links[0].Set(link.Down)
		synctest.Wait()
		rested.Store(true)
		goesOn("it is home", 3*held)
		stop()
		if err := <-result; err != nil {
			t.Errorf("asked to stop: %v", err)
		}
	})
}

func TestWhatRunsAtHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		var each, only atomic.Int32
		each.Store(-1)
		ctx, stop := context.WithCancel(t.Context())
		results := make(chan error, 2)
		go func() {
			results <- w.Each(func(ctx context.Context, slot int) error {
				each.Store(int32(slot))
				<-ctx.Done()
				return errors.New("called off")
			})(ctx)
		}()
		duty := w.Only(1, lead.Duty{Name: "duty", Run: func(ctx context.Context, term edge.Term) error {
			only.Store(term.Transitions)
			defer only.Store(0)
			<-ctx.Done()
			return nil
		}})
		go func() { results <- duty.Run(ctx, edge.Term{Transitions: 7}) }()
		synctest.Wait()
		if each.Load() != 0 || only.Load() != 0 {
			t.Errorf("at slot 0: each at %d, only for %d", each.Load(), only.Load())
		}
		w.links[0].Set(link.Down)
		synctest.Wait()
		if each.Load() != 1 || only.Load() != 7 {
			t.Errorf("at slot 1: each at %d, only for %d", each.Load(), only.Load())
		}
		stop()
		for range 2 {
			if err := <-results; err != nil {
				t.Errorf("asked to stop: %v", err)
			}
		}
		failure := errors.New("failed")
		fails := func(context.Context, int) error { return failure }
		if err := w.Each(fails)(t.Context()); !errors.Is(err, failure) {
			t.Errorf("what failed at home: %v", err)
		}
		if err := w.Each(func(context.Context, int) error { return nil })(t.Context()); err == nil {
			t.Error("what ended by itself is not run for ever")
		}
		failing := w.Only(1, lead.Duty{Run: func(context.Context, edge.Term) error { return failure }})
		if err := failing.Run(t.Context(), edge.Term{}); !errors.Is(err, failure) {
			t.Errorf("a duty that failed: %v", err)
		}
	})
}

func TestTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		get := func() (string, *http.Response) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://c/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := w.Transport().RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			one := make([]byte, 1)
			if _, err := io.ReadFull(response.Body, one); err != nil {
				t.Fatal(err)
			}
			return string(one), response
		}
		slot, first := get()
		w.links[0].Set(link.Down)
		synctest.Wait()
		if _, err := io.ReadAll(first.Body); slot != "0" || !errors.Is(err, errElsewhere) {
			t.Errorf("slot %s answered, and then: %v", slot, err)
		}
		if err := first.Body.Close(); err != nil {
			t.Error(err)
		}
		slot, second := get()
		if err := second.Body.Close(); slot != "1" || err != nil {
			t.Errorf("slot %s answered: %v", slot, err)
		}
	})
}

// TestOneCoordinator: with a single one, all is that one's own.
func TestOneCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if w.Link() != w.links[0] || w.Standing() != w.standings[0] || w.Anywhere() != w.standings[0] ||
			w.Campaign(0) != w.cloud || w.Transport() != answers(0) {
			t.Error("something stands between")
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		w := newWorld(t, 2, registry)
		w.links[0].Set(link.Down)
		synctest.Wait()
		want := `
			# HELP yurthub_coordinator_home 1 for the slot of the coordinator that this hub works with.
			# TYPE yurthub_coordinator_home gauge
			yurthub_coordinator_home{slot="0"} 0
			yurthub_coordinator_home{slot="1"} 1
			# HELP yurthub_coordinator_home_changes_total Times that this hub went on with another of its pool's coordinators.
			# TYPE yurthub_coordinator_home_changes_total counter
			yurthub_coordinator_home_changes_total 1
		`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}
