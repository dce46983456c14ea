package lead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// hub is one hub of a test pool.
type hub struct {
	name               string
	cloud, coordinator *live.Value[link.State]
	keeper             *Elector
	stop               context.CancelFunc
	stopped            chan struct{}

	mu      sync.Mutex
	led     []edge.Term
	leading bool // between the duty's start and its return
	task    func(context.Context, edge.Term) error
	unfit   error // what proof ends with
	doubts  bool  // the cloud does not answer
	proofs  int
}

func (h *hub) prove(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.proofs++
	return h.unfit
}

func (h *hub) doubtful() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.doubts
}

func (h *hub) isDoubtful(doubts bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubts = doubts
}

func (h *hub) isUnfit(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unfit = err
}

// terms returns the terms that the hub has led so far.
func (h *hub) terms() []edge.Term {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.led)
}

// duty sets what the hub does in the terms to come.
func (h *hub) duty(task func(context.Context, edge.Term) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.task = task
}

// mayLead reports whether the hub is on duty in a valid term.
func (h *hub) mayLead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leading && h.led[len(h.led)-1].Valid()
}

func (h *hub) lead(ctx context.Context, term edge.Term) error {
	h.mu.Lock()
	h.led, h.leading = append(h.led, term), true
	task := h.task
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leading = false
	}()
	return task(ctx, term)
}

type pool struct {
	t      *testing.T
	server *hubtest.LeaseServer
	hubs   []*hub
}

func newPool(t *testing.T, names ...string) *pool {
	p := &pool{t: t, server: hubtest.NewLeaseServer(1000)}
	for _, name := range names {
		p.start(name, edge.NodeName(name))
	}
	return p
}

func (p *pool) start(name string, node edge.NodeName) *hub {
	p.t.Helper()
	h := &hub{
		name: name, cloud: live.NewValue(link.Up), coordinator: live.NewValue(link.Up), stopped: make(chan struct{}),
		task: func(ctx context.Context, _ edge.Term) error { <-ctx.Done(); return ctx.Err() },
	}
	state := stateOf(p.server, name, h.coordinator)
	h.keeper = NewElector(ElectorConfig{
		Node: node, Cloud: h.cloud, Coordinator: h.coordinator, Leases: p.server.Client(name), Seen: state.Election(),
		Lead: h.lead, Prove: h.prove, Doubtful: h.doubtful, Metrics: prometheus.NewRegistry(),
	})
	h.keeper.instance = name
	logger := ktesting.NewLogger(p.t, ktesting.NewConfig())
	ctx, cancel := context.WithCancel(klog.NewContext(p.t.Context(), logger))
	h.stop = cancel
	told, stopTelling := context.WithCancel(p.t.Context())
	go func() { _ = state.Run(told) }()
	go func() {
		defer close(h.stopped)
		defer stopTelling()
		if err := h.keeper.Run(ctx); err != nil {
			p.t.Errorf("%s: Run = %v", name, err)
		}
	}()
	p.hubs = append(p.hubs, h)
	return h
}

func (p *pool) stop() {
	for _, h := range p.hubs {
		p.server.Heal(h.name)
		h.stop()
		<-h.stopped
	}
}

// leaders returns the hubs that may act as leader right now.
func (p *pool) leaders() (names []string) {
	for _, h := range p.hubs {
		if h.mayLead() {
			names = append(names, h.name)
		}
	}
	return names
}

// pass lets time pass in small steps, and checks at each that at most one hub may lead.
func (p *pool) pass(d time.Duration) {
	p.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		if l := p.leaders(); len(l) > 1 {
			p.t.Fatalf("two leaders: %v", l)
		}
	}
}

// until passes time until exactly one hub other than not leads, and returns it and how long it took.
func (p *pool) until(not string, limit time.Duration) (*hub, time.Duration) {
	p.t.Helper()
	began := time.Now()
	for time.Since(began) <= limit {
		p.pass(10 * time.Millisecond)
		for _, h := range p.hubs {
			if h.name != not && slices.Equal(p.leaders(), []string{h.name}) {
				return h, time.Since(began)
			}
		}
	}
	p.t.Fatalf("nobody but %q led within %s", not, limit)
	return nil, 0
}

func TestOneLeaderAndFollowersCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, "n1", "n2", "n3")
		defer p.stop()
		leader, _ := p.until("", 5*time.Second)
		p.pass(3 * time.Second)
		p.server.Calls()
		p.pass(10 * time.Second)
		renewals := 0
		for _, c := range p.server.Calls() {
			if c.Client == leader.name && c.Verb == "update" {
				renewals++
			} else {
				t.Errorf("%s sent %q while nothing happened", c.Client, c)
			}
		}
		if renewals < 7 || renewals > 10 {
			t.Errorf("%d renewals in 10 s, want about one in %s", renewals, renewEvery)
		}
		for _, h := range p.hubs {
			want := Standing{Role: Follower, Leader: edge.NodeName(leader.name)}
			if h == leader {
				want.Role = Leader
			}
			if got := h.keeper.Standing().Get(); got != want {
				t.Errorf("%s stands as %+v, want %+v", h.name, got, want)
			}
		}
	})
}

func TestTakeover(t *testing.T) {
	const clings = "the duty clings to its term: released without it"
	tests := []struct {
		name  string
		fault func(p *pool, leader *hub)
		// within bounds the time to the next leader; keeps means that the old one goes on.
		within time.Duration
		keeps  bool
	}{
		{"cloud link down: released", func(_ *pool, l *hub) { l.cloud.Set(link.Down) }, time.Second, false},
		{"cloud link unknown: released", func(_ *pool, l *hub) { l.cloud.Set(link.Unknown) }, time.Second, false},
		{"cloud failing: released", func(_ *pool, l *hub) { l.cloud.Set(link.Failing) }, time.Second, false},
		{"hub stopped: released", func(_ *pool, l *hub) { l.stop() }, time.Second, false},
		{"hub gone silent", func(p *pool, l *hub) { p.server.Cut(l.name) }, 5 * time.Second, false},
		{"coordinator link down at the leader alone", func(p *pool, l *hub) {
			p.server.Cut(l.name)
			l.coordinator.Set(link.Down)
		}, 5 * time.Second, false},
		{clings, func(_ *pool, l *hub) { l.cloud.Set(link.Down) }, 2 * time.Second, false},
		{"answers to renewals lost, and the hub with them", func(p *pool, l *hub) {
			p.server.After(func(ctx context.Context, c hubtest.LeaseCall) error {
				if c.Client == l.name && c.Verb == "update" {
					p.server.Cut(l.name)
					return errors.New("connection reset")
				}
				return nil
			})
		}, 7 * time.Second, false},
		{"slow coordinator: the leader stays", func(p *pool, _ *hub) {
			p.server.Before(func(ctx context.Context, c hubtest.LeaseCall) error {
				if c.Verb == "update" {
					time.Sleep(900 * time.Millisecond)
				}
				return nil
			})
		}, 0, true},
		{"every other answer lost: the leader stays", func(p *pool, _ *hub) {
			var n atomic.Int32
			p.server.After(func(_ context.Context, c hubtest.LeaseCall) error {
				if c.Verb == "update" {
					if n.Add(1)%2 == 0 {
						return errors.New("connection reset")
					}
				}
				return nil
			})
		}, 0, true},
		{"every watch breaks: the leader stays", func(p *pool, _ *hub) { p.server.Break() }, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, "n1", "n2", "n3")
				defer p.stop()
				if tt.name == clings {
					for _, h := range p.hubs {
						h.duty(func(ctx context.Context, _ edge.Term) error {
							<-ctx.Done()
							time.Sleep(20 * time.Second)
							return nil
						})
					}
				}
				old, _ := p.until("", 5*time.Second)
				p.pass(3 * time.Second)
				terms := len(old.terms())
				tt.fault(p, old)
				if tt.keeps {
					p.pass(time.Minute)
					if l := p.leaders(); !slices.Equal(l, []string{old.name}) || len(old.terms()) != terms {
						t.Errorf("leader is %v with %d more terms, want %s in its term", l,
							len(old.terms())-terms, old.name)
					}
					return
				}
				next, took := p.until(old.name, tt.within)
				t.Logf("%s leads after %s", next.name, took)
				p.server.After(nil)
				was, is := old.terms()[terms-1].Transitions, next.terms()[len(next.terms())-1].Transitions
				if is <= was {
					t.Errorf("transitions went from %d to %d", was, is)
				}
				if old.terms()[terms-1].Valid() {
					t.Error("the old term is still valid")
				}
				p.pass(5 * time.Second)
				if s := old.keeper.Standing().Get(); s.Role == Leader {
					t.Errorf("the old leader stands as %+v", s)
				}
			})
		})
	}
}

func TestStoppedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, "n1", "n2")
		defer p.stop()
		old, _ := p.until("", 5*time.Second)
		p.pass(2 * time.Second)
		p.server.Cut(old.name)
		p.until(old.name, 5*time.Second)
		p.pass(time.Minute)
		p.server.Heal(old.name) // a minute of buffered events arrives
		p.pass(10 * time.Second)
		want := Follower
		if s := old.keeper.Standing().Get(); s.Role != want || s.Leader == edge.NodeName(old.name) || s.Leader == "" {
			t.Errorf("after a minute's stop: %+v, want a follower of the other", s)
		}
		if len(old.terms()) != 1 {
			t.Errorf("it led %d times, want once", len(old.terms()))
		}
	})
}

func TestCoordinatorBackEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, "n1", "n2", "n3")
		defer p.stop()
		p.until("", 5*time.Second)
		p.pass(3 * time.Second)
		for _, h := range p.hubs {
			h.coordinator.Set(link.Down)
		}
		p.server.Before(func(context.Context, hubtest.LeaseCall) error { return errors.New("connection refused") })
		p.pass(time.Second)
		for _, h := range p.hubs {
			if s := h.keeper.Standing().Get(); s != (Standing{}) {
				t.Errorf("%s stands as %+v without a coordinator, want Pending", h.name, s)
			}
		}
		p.server.Restart(7)
		p.server.Before(nil)
		for _, h := range p.hubs {
			h.coordinator.Set(link.Up)
		}
		next, took := p.until("", 5*time.Second)
		t.Logf("%s leads %s after the coordinator came back", next.name, took)
	})
}

// TestLeaseVanishes: the links never went down, but the Lease is another, or none.
func TestLeaseVanishes(t *testing.T) {
	for name, vanish := range map[string]func(*hubtest.LeaseServer){
		"restarted": func(s *hubtest.LeaseServer) { s.Restart(1) },
		"deleted":   func(s *hubtest.LeaseServer) { s.Remove(edge.NamespaceSystem, edge.LeaseElection) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, "n1", "n2")
				defer p.stop()
				old, _ := p.until("", 5*time.Second)
				p.pass(3 * time.Second)
				terms := len(old.terms())
				vanish(p.server)
				p.pass(leaseDuration - time.Second)
				if len(p.leaders()) != 0 {
					t.Errorf("leaders: %v, while a former term may not be over", p.leaders())
				}
				p.pass(2*time.Second + retryPeriod)
				if old.terms()[terms-1].Valid() {
					t.Error("the term outlived its Lease")
				}
				if len(p.leaders()) != 1 {
					t.Errorf("leaders: %v, want one", p.leaders())
				}
			})
		})
	}
}

func TestDutyThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, "n1")
		defer p.stop()
		p.hubs[0].duty(func(context.Context, edge.Term) error { return errors.New("cannot") })
		p.pass(10 * time.Minute)
		// 1+2+4+8+16 s, then 30 s each, each pause at least half of that.
		if n := len(p.hubs[0].terms()); n < 10 || n > 60 {
			t.Errorf("%d terms in ten minutes, want a pause that grows to %s", n, backoffMax)
		}
		if holder := p.server.Peek(edge.NamespaceSystem, edge.LeaseElection).Spec.HolderIdentity; *holder != "" {
			t.Errorf("the Lease is held by %q while the duty is not done", *holder)
		}
	})
}

// startUnfit starts a hub that the cloud refuses from its first campaign on.
func (p *pool) startUnfit(name string) *hub {
	h := p.start(name, edge.NodeName(name))
	h.isUnfit(fmt.Errorf("%w: 403", ErrUnfit))
	h.cloud.Set(link.Down) // it has begun already
	p.pass(time.Second)
	h.cloud.Set(link.Up)
	return h
}

// A hub that the cloud refuses leaves the Lease to others: it proves first that it may lead.
func TestProofComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		defer p.stop()
		h := p.startUnfit("n1")
		p.pass(5 * time.Minute)
		for _, c := range p.server.Calls() {
			if c.Verb == "update" || c.Verb == "create" {
				t.Errorf("it campaigns though the cloud refuses it: %s", c)
			}
		}
		if h.proofs < 10 || h.proofs > 30 {
			t.Errorf("asked %d times in five minutes, want at last one in %s to %s", h.proofs, backoffMax/2, backoffMax)
		}
		h.isUnfit(nil)
		p.until("", backoffMax+5*time.Second)
	})
}

// A new pool's hubs come up before the controller has given them their rights: they don't wait long for a first leader.
func TestALateRightIsUsedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		defer p.stop()
		h := p.startUnfit("n1")
		p.pass(2 * time.Second)
		h.isUnfit(nil)
		if _, took := p.until("", 10*time.Second); took > 5*time.Second {
			t.Errorf("it leads %s after it may", took)
		}
	})
}

// TestADoubtfulHubTakesNoTerm checks a hub whose question the cloud leaves unanswered: it continues a term that it has, but takes
// none until there is an answer.
func TestADoubtfulHubTakesNoTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, "n1", "n2", "n3")
		defer p.stop()
		leader, _ := p.until("", 5*time.Second)
		leader.isDoubtful(true)
		p.pass(time.Minute)
		if l := p.leaders(); !slices.Equal(l, []string{leader.name}) {
			t.Fatalf("%v lead, want %s, whose term it is", l, leader.name)
		}
		var others []*hub
		for _, h := range p.hubs {
			if h != leader {
				others = append(others, h)
			}
		}
		others[0].isDoubtful(true)
		p.server.Cut(leader.name)
		if next, took := p.until(leader.name, 10*time.Second); next != others[1] || took > 5*time.Second {
			t.Errorf("%s leads after %v, want %s", next.name, took, others[1].name)
		}
		p.server.Cut(others[1].name)
		p.pass(10 * time.Second)
		if l := p.leaders(); len(l) > 0 {
			t.Errorf("%v lead, in doubt or out of reach", l)
		}
		others[0].isDoubtful(false)
		if _, took := p.until("", time.Second); took > 500*time.Millisecond {
			t.Errorf("led %v after the answer", took)
		}
	})
}

// A leader that can't do its duty releases the Lease, and is not back while another leads.
func TestAnUnfitLeaderLeavesItToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, "n1")
		defer p.stop()
		p.hubs[0].duty(func(ctx context.Context, _ edge.Term) error {
			_ = run.Pause(ctx, time.Second)
			return fmt.Errorf("forward heartbeats: %w", ErrUnfit)
		})
		p.until("", 5*time.Second)
		p.pass(time.Minute)
		// Nobody else can lead: it tries again after a term.
		if n := len(p.hubs[0].terms()); n < 8 {
			t.Errorf("%d terms in a minute of the only one that there is", n)
		}
		other := p.start("n2", "n2")
		if h, took := p.until("n1", 5*time.Second); h != other || took > 2*time.Second {
			t.Errorf("%s leads after %s", h.name, took)
		}
		before := len(p.hubs[0].terms())
		p.pass(5 * time.Minute)
		if n := len(p.hubs[0].terms()) - before; n != 0 {
			t.Errorf("%d terms of the one that can't, while the other leads", n)
		}
		other.stop()
		p.until("n2", 5*time.Second) // it is no longer kept from trying
	})
}

// A coordinator that lets nobody lead yet is not asked ten times a second.
func TestRefusedByTheCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		defer p.stop()
		nobody := ""
		p.server.Edit(edge.NamespaceSystem, edge.LeaseElection, func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &nobody })
		var refused atomic.Int32
		p.server.Before(func(_ context.Context, c hubtest.LeaseCall) error {
			if c.Verb != "update" {
				return nil
			}
			refused.Add(1)
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), edge.LeaseElection, errors.New("vacant"))
		})
		p.start("n1", "n1")
		p.pass(leaseDuration)
		if n := refused.Load(); n < 4 || n > 10 {
			t.Errorf("asked %d times in %s", n, leaseDuration)
		}
		p.server.Before(nil)
		if _, took := p.until("", 2*time.Second); took > time.Second {
			t.Errorf("led after %s", took)
		}
	})
}

func TestNamesakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		defer p.stop()
		first := p.start("one", "n1")
		p.until("", 5*time.Second)
		second := p.start("two", "n1")
		p.pass(time.Minute)
		if len(first.terms()) != 1 || len(second.terms()) != 0 {
			t.Errorf("terms: %d and %d; want the first to lead on alone", len(first.terms()), len(second.terms()))
		}
		if got := testutil.ToFloat64(second.keeper.metrics.clash); got != 1 {
			t.Errorf("clash shown as %v at the second", got)
		}
		// A hub that crashed and came back is a namesake of its predecessor, and leads once it has seen that the predecessor is
		// dead.
		p.server.Cut("one")
		if _, took := p.until("one", 5*time.Second); took < leaseDuration/2 {
			t.Errorf("took over after %s, not waiting for a possible namesake", took)
		}
		if got := second.terms()[0].Transitions; got != 1 {
			t.Errorf("the successor's term has transitions %d, want 1: another term", got)
		}
	})
}

func TestHolderThatClaimsADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		defer p.stop()
		p.server.Edit(edge.NamespaceSystem, edge.LeaseElection, func(l *coordinationv1.Lease) {
			name, day := "liar", int32(86400)
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &name, &day
		})
		p.start("n1", "n1")
		p.until("", 5*time.Second)
	})
}

// TestAnyFaults draws faults at random, and checks throughout (in pass) that there are never two leaders, and at the end that
// there is one once all faults are over.
func TestAnyFaults(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 2))
				p := newPool(t, "n1", "n2", "n3")
				defer p.stop()
				var story []string
				for range 40 {
					h := p.hubs[r.IntN(len(p.hubs))]
					act := []struct {
						name string
						do   func()
					}{
						{"cut " + h.name, func() { p.server.Cut(h.name) }},
						{"heal " + h.name, func() { p.server.Heal(h.name) }},
						{"cloud down " + h.name, func() { h.cloud.Set(link.Down) }},
						{"cloud up " + h.name, func() { h.cloud.Set(link.Up) }},
						{"coordinator down " + h.name, func() { h.coordinator.Set(link.Down) }},
						{"coordinator up " + h.name, func() { h.coordinator.Set(link.Up) }},
						{"break", p.server.Break},
						{"compact", p.server.Compact},
						{"answers lost", func() {
							p.server.After(func(_ context.Context, c hubtest.LeaseCall) error {
								if c.Verb == "update" && rand.IntN(2) == 0 {
									return errors.New("lost")
								}
								return nil
							})
						}},
						{"answers back", func() { p.server.After(nil) }},
						{"slow", func() {
							p.server.Before(func(ctx context.Context, c hubtest.LeaseCall) error {
								select {
								case <-time.After(rand.N(1500 * time.Millisecond)):
									return nil
								case <-ctx.Done():
									return ctx.Err()
								}
							})
						}},
						{"fast", func() { p.server.Before(nil) }},
					}[r.IntN(12)]
					story = append(story, act.name)
					act.do()
					p.pass(time.Duration(r.Int64N(int64(6 * time.Second))))
					if t.Failed() {
						t.Fatal(strings.Join(story, ", "))
					}
				}
				p.server.Before(nil)
				p.server.After(nil)
				for _, h := range p.hubs {
					p.server.Heal(h.name)
					h.cloud.Set(link.Up)
					h.coordinator.Set(link.Up)
				}
				p.pass(leaseDuration + 3*time.Second)
				if len(p.leaders()) != 1 {
					t.Errorf("leaders once all is well: %v; after %s", p.leaders(), strings.Join(story, ", "))
				}
			})
		})
	}
}
