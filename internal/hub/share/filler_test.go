package share

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// site is a coordinator with the hubs of its pool, all of which may fill it.
type site struct {
	t      *testing.T
	leases *hubtest.LeaseServer

	mu       sync.Mutex
	instance int
	has      edge.Moment // of things, as a filler has them
	filled   bool        // by a filler; else by a leader
	closed   error       // why nobody may fill; nil means that somebody may
	broken   bool        // no request comes back
	refuses  int         // the code with which pushes are refused
	taken    []string    // who filled it, and to where
	pushes   int
	looks    int // how often it was asked what it has
}

// hub is one of the hubs.
type hub struct {
	site    *site
	name    edge.NodeName
	things  *source
	cloud   *live.Value[link.State]
	lan     *live.Value[link.State]
	leading *live.Value[edge.NodeName]
	stop    func()
}

func inSite(t *testing.T, test func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{t: t, leases: hubtest.NewLeaseServer(10)}
		s.leases.Edit(edge.NamespaceSystem, edge.LeaseFiller, func(*coordinationv1.Lease) {})
		s.leases.Before(func(_ context.Context, c hubtest.LeaseCall) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if c.Verb == "update" && *c.Lease.Spec.HolderIdentity != "" {
				return s.closed
			}
			return nil
		})
		test(s)
	})
}

func (s *site) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// hub begins a hub that cannot reach the cloud and has things at a moment; none if it is zero.
func (s *site) hub(name string, at edge.Moment) *hub {
	s.t.Helper()
	h := &hub{
		site: s, name: edge.NodeName(name), things: newSource(s.t, things), cloud: live.NewValue(link.Down),
		lan: live.NewValue(link.Up), leading: live.NewValue[edge.NodeName](""),
	}
	if at.Revision != 0 {
		h.stands(at)
	}
	resources := &set{}
	resources.become(h.things)
	filler := NewFiller(FillerConfig{
		Config: Config{
			Node: h.name, Transport: h, Base: &url.URL{Scheme: "https", Host: "coordinator"},
			Metrics: prometheus.NewRegistry(), Later: told(s.t),
		},
		Resources: resources, Leases: s.leases, CloudLink: h.cloud, Link: h.lan, Leader: h.leading.Watch,
	})
	ctx, cancel := context.WithCancel(klog.NewContext(s.t.Context(), ktesting.NewLogger(s.t, ktesting.NewConfig())))
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-time.After(time.Millisecond) // not before the test waits: it has set what it wants by then
		if err := filler.Run(ctx); err != nil {
			s.t.Errorf("Run = %v", err)
		}
	}()
	h.stop = func() {
		cancel()
		<-done
	}
	return h
}

// stands brings the hub's replica to a moment.
func (h *hub) stands(at edge.Moment) {
	h.site.t.Helper()
	if err := h.things.Replace(h.site.t.Context(), stream.Snapshot{
		Revision: at.Revision, History: at.History, Objects: []stream.Object{h.things.object("a", 1)},
		Type: stream.Type{GroupVersionKind: things.GroupVersion().WithKind("Thing"), Encoding: stream.JSON},
	}); err != nil {
		h.site.t.Fatal(err)
	}
}

// RoundTrip implements http.RoundTripper: the LAN between a hub and the coordinator.
func (h *hub) RoundTrip(r *http.Request) (*http.Response, error) {
	s := h.site
	if r.Body != nil {
		defer r.Body.Close()
	}
	var end stream.Event
	if r.Method == http.MethodPost {
		events, err := read(stream.NewFrameReader(r.Body, stream.JSON, 8<<20))
		if err != nil {
			return nil, err
		}
		end = events[len(events)-1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken {
		return nil, errors.New("connection reset")
	}
	w := httptest.NewRecorder()
	if r.Method == http.MethodGet {
		s.looks++
		w.Body = bytes.NewBuffer(s.indexLocked())
		return w.Result(), nil
	}
	code, text := s.takeLocked(h, r, end)
	w.WriteHeader(code)
	_, _ = w.WriteString(text)
	return w.Result(), nil
}

func (s *site) indexLocked() []byte {
	if s.has.Revision == 0 {
		return fmt.Appendf(nil, `{"instance":"%d","resources":[]}`, s.instance)
	}
	return fmt.Appendf(nil, `{"instance":"%d","resources":[{"group":%q,"version":"v1","resource":%q,"applied":"%d",`+
		`"history":%q,"filled":%t}]}`, s.instance, things.Group, things.Resource, s.has.Revision,
		s.has.History.OfCloud().String(), s.filled)
}

// takeLocked takes a push as a mirror does, or refuses it.
func (s *site) takeLocked(h *hub, r *http.Request, end stream.Event) (code int, text string) {
	refuse := func(code int, message string) (int, string) {
		return code, fmt.Sprintf(`{"kind":"Status","code":%d,"message":%q}`, code, message)
	}
	in, err := edge.ParseHistory(r.Header.Get(edge.HeaderHistory))
	if err != nil || !in.IsFilled() || r.URL.Query().Has("from") || end.Type != stream.InitialEventsEnd {
		s.t.Errorf("%s pushed %s in history %q: %v", h.name, r.URL, r.Header.Get(edge.HeaderHistory), err)
	}
	lease := s.leases.Peek(edge.NamespaceSystem, edge.LeaseFiller)
	if s.closed != nil || *lease.Spec.HolderIdentity != string(h.name) ||
		r.URL.Query().Get("term") != strconv.Itoa(int(*lease.Spec.LeaseTransitions)) {
		return refuse(http.StatusForbidden, "it is not your turn")
	}
	s.pushes++
	if h.cloud.Get() == link.Up {
		s.t.Errorf("%s fills with its link up", h.name)
	}
	offered := edge.Moment{History: in, Revision: end.Object.Revision}
	if s.refuses != 0 {
		return refuse(s.refuses, "not this")
	}
	if s.has.Revision != 0 && (!s.filled || offered.Before(s.has)) {
		return refuse(http.StatusConflict, "there is something later")
	}
	s.has, s.filled = offered, true
	s.taken = append(s.taken, fmt.Sprintf("%s %s@%s", h.name, in.OfCloud(), offered.Revision))
	return http.StatusOK, fmt.Sprintf(`{"applied":"%d"}`, offered.Revision)
}

func (s *site) pass(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

// wants holds the coordinator to what it has, and the Lease to nobody.
func (s *site) wants(moment edge.Moment) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.has.Revision != moment.Revision || s.has.History.OfCloud() != moment.History {
		s.t.Errorf("the coordinator has %s, want %s", s.has, moment)
	}
	if lease := s.leases.Peek(edge.NamespaceSystem, edge.LeaseFiller); lease.Spec.HolderIdentity != nil &&
		*lease.Spec.HolderIdentity != "" {
		s.t.Errorf("%s still has its turn", *lease.Spec.HolderIdentity)
	}
}

const (
	// twoLooks is within which every hub that was refused has looked again, and had its turn if it had something.
	twoLooks = 3 * time.Second
	// aLook is within which every hub looks.
	aLook = fillLook * 3 / 2
)

func TestTheLatestOfAllFillsACoordinator(t *testing.T) {
	inSite(t, func(s *site) {
		for name, at := range map[string]edge.Moment{
			"n1": {History: 0, Revision: 900}, "n2": {History: 1, Revision: 100}, "n3": {History: 1, Revision: 120}, "n4": {},
		} {
			defer s.hub(name, at).stop()
		}
		s.pass(4 * twoLooks)
		s.wants(edge.Moment{History: 1, Revision: 120})
		pushes := s.pushes
		if pushes > 3 {
			t.Errorf("%d pushes: %q", pushes, s.taken)
		}
		s.pass(time.Minute)
		if s.pushes != pushes {
			t.Errorf("%d more pushes of what is there", s.pushes-pushes)
		}
		s.set(func() { s.instance++; s.has = edge.Moment{} }) // it came back empty, and no link was seen to go
		s.pass(2 * fillLook)
		s.wants(edge.Moment{History: 1, Revision: 120})
	})
}

// TestAFullCoordinatorIsSeldomAsked: a whole pool may be cut off for a day, and each of its hubs looks.
func TestAFullCoordinatorIsSeldomAsked(t *testing.T) {
	inSite(t, func(s *site) {
		h := s.hub("n1", edge.Moment{Revision: 100})
		defer h.stop()
		s.set(func() { s.has = edge.Moment{Revision: 100} }) // a leader has left it
		s.pass(10 * time.Minute)
		if s.looks > 61 {
			t.Errorf("a hub that has nothing to bring has looked %d times in ten minutes", s.looks)
		}
		h.lan.Set(link.Down)
		s.set(func() { s.instance++; s.has = edge.Moment{} }) // it starts anew, empty
		s.pass(time.Second)
		h.lan.Set(link.Up)
		s.pass(time.Millisecond)
		s.wants(edge.Moment{Revision: 100})
	})
}

func TestWhoFills(t *testing.T) {
	at := edge.Moment{Revision: 100}
	for name, test := range map[string]struct {
		set   func(*hub)
		fills bool
	}{
		"a hub without a link":       {func(*hub) {}, true},
		"one whose cloud fails":      {func(h *hub) { h.cloud.Set(link.Failing) }, true},
		"one with a link":            {func(h *hub) { h.cloud.Set(link.Up) }, false},
		"one that does not know yet": {func(h *hub) { h.cloud.Set(link.Unknown) }, false},
		"one that can't reach it":    {func(h *hub) { h.lan.Set(link.Down) }, false},
		"one that has nothing":       {func(h *hub) { h.things.Reset() }, false},
		"while another may come to lead": {func(h *hub) {
			h.site.set(func() { h.site.closed = errors.New("wait") })
		}, false},
		"while a leader's content is there": {func(h *hub) {
			h.site.set(func() { h.site.has = edge.Moment{Revision: 1} })
		}, false},
		"one that has it from another filler": {func(h *hub) {
			h.things.Reset()
			h.stands(edge.Moment{History: at.History.Filled(), Revision: 7})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inSite(t, func(s *site) {
				h := s.hub("n1", at)
				defer h.stop()
				test.set(h)
				s.pass(4 * twoLooks)
				if fills := len(s.taken) > 0; fills != test.fills {
					t.Errorf("it fills: %v; %q", fills, s.taken)
				}
			})
		})
	}
}

// TestAFillerStopsAtOnce when its link is back, or somebody leads: the push under way breaks off, or is refused.
func TestAFillerStopsAtOnce(t *testing.T) {
	inSite(t, func(s *site) {
		h := s.hub("n1", edge.Moment{Revision: 100})
		defer h.stop()
		s.leases.After(func(_ context.Context, c hubtest.LeaseCall) error {
			if c.Verb == "update" && *c.Lease.Spec.HolderIdentity != "" {
				h.cloud.Set(link.Up)
			}
			return nil
		})
		s.pass(twoLooks)
		s.wants(edge.Moment{})
		s.leases.After(nil)
		s.set(func() { s.closed = errors.New("somebody leads") })
		h.cloud.Set(link.Down)
		s.pass(twoLooks)
		s.wants(edge.Moment{})
		s.set(func() { s.closed = nil })
		s.pass(twoLooks)
		s.wants(edge.Moment{Revision: 100})
	})
}

// TestATurnEndsByItself: what is pushed after it breaks off at the hub, whatever the coordinator says.
func TestATurnEndsByItself(t *testing.T) {
	inSite(t, func(s *site) {
		h := s.hub("n1", edge.Moment{})
		h.stop()
		f := NewFiller(FillerConfig{
			Config: Config{
				Node: "n1", Transport: h, Base: &url.URL{}, Later: told(t), Metrics: prometheus.NewRegistry(),
			},
			Resources: &set{}, Leases: s.leases, CloudLink: h.cloud, Link: h.lan, Leader: h.leading.Watch,
		})
		term, done, err := f.turn(s.t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.pass(edge.FillerTurn - turnMargin - 1)
		if !term.Valid() {
			t.Error("it is over too early")
		}
		s.pass(1)
		if term.Valid() {
			t.Error("it goes on")
		}
		done()
		s.wants(edge.Moment{})
	})
}

// TestWhatIsRefusedIsOfferedAgainLater, and with the next look when it is something else or the coordinator is.
func TestWhatIsRefusedIsOfferedAgainLater(t *testing.T) {
	inSite(t, func(s *site) {
		h := s.hub("n1", edge.Moment{Revision: 100})
		defer h.stop()
		s.set(func() { s.refuses = http.StatusConflict })
		s.pass(offerPause / 2)
		pushed := func(want int, what string) {
			t.Helper()
			if s.pushes != want {
				t.Errorf("%s: %d pushes, want %d", what, s.pushes, want)
			}
		}
		pushed(1, "refused")
		h.stands(edge.Moment{Revision: 101})
		s.pass(aLook)
		pushed(2, "something later")
		s.set(func() { s.instance++ })
		s.pass(aLook)
		pushed(3, "another coordinator")
		s.set(func() { s.refuses = 0 })
		s.pass(offerPause + aLook)
		pushed(4, "after a while")
		s.wants(edge.Moment{Revision: 101})
	})
}

// TestFillersByAModel runs hubs at random moments, with links that come and go, and a coordinator that restarts and fails. In the
// end the coordinator has the latest moment of the hubs that cannot reach the cloud.
func TestFillersByAModel(t *testing.T) {
	for seed := range uint64(30) {
		inSite(t, func(s *site) {
			random := rand.New(rand.NewPCG(seed, 2))
			var hubs []*hub
			var latest edge.Moment
			for i := range 5 {
				at := edge.Moment{History: edge.History(random.IntN(2)), Revision: edge.Revision(100 + random.IntN(5))}
				hubs = append(hubs, s.hub(fmt.Sprint("n", i), at))
				if latest.Before(at) {
					latest = at
				}
			}
			for range 40 {
				h := hubs[random.IntN(len(hubs))]
				switch random.IntN(6) {
				case 0:
					h.cloud.Set([]link.State{link.Up, link.Down, link.Failing, link.Unknown}[random.IntN(4)])
				case 1:
					h.lan.Set([]link.State{link.Up, link.Down}[random.IntN(2)])
				case 2:
					s.set(func() { s.instance++; s.has, s.filled = edge.Moment{}, false })
				case 3:
					s.set(func() { s.broken = !s.broken })
				case 4:
					s.set(func() { s.closed = []error{nil, errors.New("somebody leads")}[random.IntN(2)] })
				default:
					h.leading.Set([]edge.NodeName{"", "n9"}[random.IntN(2)])
				}
				s.pass(time.Duration(random.IntN(4000)) * time.Millisecond)
			}
			s.set(func() { s.broken, s.closed = false, nil; s.instance++; s.has, s.filled = edge.Moment{}, false })
			for _, h := range hubs {
				h.cloud.Set(link.Down)
				h.lan.Set(link.Up)
			}
			s.pass(3 * fillLook)
			s.wants(latest)
			for _, h := range hubs {
				h.stop()
			}
		})
	}
}

// TestALeaderDoesNotPassOffWhatWasFilled checks a hub with only a filler's content that comes to lead: it pushes only once the
// cloud has fed it, and then everything, on top of the filler's content.
func TestALeaderDoesNotPassOffWhatWasFilled(t *testing.T) {
	inWorld(t, func(w *world) {
		w.things.Reset()
		snapshot := func(in edge.History, at edge.Revision) {
			t.Helper()
			if err := w.things.Replace(w.t.Context(), stream.Snapshot{
				Revision: at, History: in, Objects: []stream.Object{w.things.object("a", 1)},
				Type: stream.Type{GroupVersionKind: things.GroupVersion().WithKind("Thing"), Encoding: stream.JSON},
			}); err != nil {
				t.Fatal(err)
			}
		}
		snapshot(edge.History(0).Filled(), 200)
		w.coordinator.histories = true
		w.coordinator.set(func() {
			w.coordinator.stores["/mirror/v1/example.com/v1/things"] = &store{applied: 200, history: "0", filled: true}
		})
		w.begin()
		w.pass(time.Minute)
		w.wantPosted()
		w.declared("{}")
		snapshot(0, 150)
		w.pass(time.Second)
		w.wantPosted("full 1")
		w.same(w.things)
	})
}

// told returns a Config.Later that must not be called.
func told(t *testing.T) func(edge.History) bool {
	return func(edge.History) bool {
		t.Error("a filler was told of a history")
		return false
	}
}
