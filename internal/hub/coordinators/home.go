package coordinators

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

const (
	// askEvery is how often Home asks a lower slot that is up whether it is complete; askTimeout bounds the question.
	askEvery, askTimeout = 2 * time.Second, 2 * time.Second
	// refusals is how many refused copies in a row make a coordinator failing.
	refusals = 2
	// held is how long another hub must have led at home before this hub leaves a slot to it. lookEvery is how often this hub
	// checks that.
	held, lookEvery = 10 * time.Second, time.Second
)

// errElsewhere ends requests to a coordinator that is no longer home.
var errElsewhere = errors.New("this hub works with another of its pool's coordinators now")

// Slot is one coordinator. All fields are required.
type Slot struct {
	// Link is the state of the link to it. Transport reaches it with the node's credentials.
	Link      *live.Value[link.State]
	Transport http.RoundTripper
}

// HomeConfig configures a Home. All fields are required unless they say otherwise.
type HomeConfig struct {
	// Slots are the coordinators, the lowest slot first; there is at least one.
	Slots []Slot
	// Cloud is the state of the link to the cloud.
	Cloud *live.Value[link.State]
	// Metrics registers the metrics. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Clock is this machine's.
	Clock ends.Clock
}

// Home decides which coordinator is home. Make one with NewHome; call Elects for each slot before Run.
type Home struct {
	config   HomeConfig
	at       *live.Value[int]
	link     *live.Value[link.State]
	standing *live.Value[lead.Standing]
	anywhere *live.Value[lead.Standing]
	places   []place
	changes  prometheus.Counter
}

// place is Home's state of one slot.
type place struct {
	campaign *live.Value[link.State]
	standing *live.Value[lead.Standing]
	renewed  func() time.Time
	complete func(ctx context.Context) (bool, error)
	is       *live.Value[bool] // complete, as last asked
	stand    *Stand
	refused  atomic.Int32      // consecutive refused copies of this node's heartbeat
	failing  *live.Value[bool] // refused has reached refusals
}

// NewHome returns a Home. It registers its metrics, and does no I/O.
func NewHome(c HomeConfig) *Home {
	h := &Home{
		config: c, at: live.NewValue(0), link: live.NewValue(link.Unknown), standing: &live.Value[lead.Standing]{},
		anywhere: &live.Value[lead.Standing]{}, places: make([]place, len(c.Slots)),
		changes: promauto.With(c.Metrics).NewCounter(prometheus.CounterOpts{
			Name: "yurthub_coordinator_home_changes_total",
			Help: "Times that this hub went on with another of its pool's coordinators.",
		}),
	}
	for i := range h.places {
		h.places[i].campaign, h.places[i].is, h.places[i].stand = live.NewValue(link.Down), live.NewValue(false), &Stand{}
		h.places[i].failing = live.NewValue(false)
		promauto.With(c.Metrics).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "yurthub_coordinator_home", Help: "1 for the slot of the coordinator that this hub works with.",
			ConstLabels: prometheus.Labels{"slot": strconv.Itoa(i)},
		}, func() float64 {
			if h.at.Get() == i {
				return 1
			}
			return 0
		})
	}
	if len(c.Slots) == 1 { // then nothing has to be decided
		h.link, h.places[0].campaign = c.Slots[0].Link, c.Cloud
	}
	return h
}

// Election is a slot's election; lead.Elector is one.
type Election interface {
	// Standing returns this hub's standing in it.
	Standing() *live.Value[lead.Standing]
	// Renewed returns when a leader was last seen to renew its term, by this machine's running clock.
	Renewed() time.Time
}

// Elects sets a slot's election. The election must use Home.Campaign as its link to the cloud. The function complete asks the
// slot's coordinator whether it has everything that this hub could bring there.
func (h *Home) Elects(slot int, in Election, complete func(ctx context.Context) (bool, error)) {
	standing := in.Standing()
	h.places[slot].standing, h.places[slot].renewed, h.places[slot].complete = standing, in.Renewed, complete
	if len(h.places) == 1 {
		h.standing, h.anywhere = standing, standing
	}
}

// Served records whether the coordinator in a slot accepted a copy of this node's heartbeat. A coordinator that refuses copies
// serves nobody, even if it answers. After two refusals in a row by home, home becomes another coordinator that is up, if there
// is one.
func (h *Home) Served(slot int, took bool) {
	p := &h.places[slot]
	if took {
		p.refused.Store(0)
		p.failing.Set(false)
	} else if p.refused.Add(1) >= refusals {
		p.failing.Set(true)
	}
}

// At returns the slot of home, now and as it changes.
func (h *Home) At() *live.Value[int] { return h.at }

// Link returns the state of the link to home. The link does not go down when home changes from a lost coordinator to one that
// is up.
func (h *Home) Link() *live.Value[link.State] { return h.link }

// Standing returns this hub's place in its pool, at home. Call Elects before.
func (h *Home) Standing() *live.Value[lead.Standing] { return h.standing }

// Anywhere returns the same as Standing, except that the role is Leader if this hub leads at any coordinator. A hub that leads
// there needs the shared resources from the cloud, because it brings them to that coordinator. Call Elects before.
func (h *Home) Anywhere() *live.Value[lead.Standing] { return h.anywhere }

// Campaign returns the link state that a slot's election must use as that of the cloud.
func (h *Home) Campaign(slot int) *live.Value[link.State] { return h.places[slot].campaign }

// Run decides until ctx ends, and returns nil.
func (h *Home) Run(ctx context.Context) error {
	if len(h.places) == 1 {
		<-ctx.Done()
		return nil
	}
	bell := make(chan struct{}, 1)
	var owned sync.WaitGroup
	defer owned.Wait()
	follow(ctx, &owned, h.config.Cloud, bell)
	for i := range h.places {
		p := &h.places[i]
		follow(ctx, &owned, h.config.Slots[i].Link, bell)
		follow(ctx, &owned, p.standing, bell)
		follow(ctx, &owned, p.is, bell)
		follow(ctx, &owned, p.failing, bell)
		owned.Go(func() { h.pollComplete(ctx, i) })
	}
	var machine Machine
	for {
		again := h.step(ctx, &machine)
		due, stop := h.after(again)
		select {
		case <-bell:
		case <-due:
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// after returns a channel that receives at a time; if the time is zero, it never does. The caller must call stop.
func (h *Home) after(at time.Time) (due <-chan time.Time, stop func()) {
	if at.IsZero() {
		return nil, func() {}
	}
	timer := time.NewTimer(h.config.Clock.Until(at))
	return timer.C, func() { timer.Stop() }
}

// follow rings bell whenever a value changes, until ctx ends.
func follow[T comparable](ctx context.Context, owned *sync.WaitGroup, v *live.Value[T], bell chan<- struct{}) {
	owned.Go(func() {
		for {
			_, changed := v.Watch()
			select {
			case bell <- struct{}{}:
			default: // it is ringing
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
}

// step decides once. It reads this hub's roles before the links. So if this hub no longer leads because a link went down, step
// also sees that the link is down. It can then move home in the same step, and the campaign at the next home continues.
func (h *Home) step(ctx context.Context, machine *Machine) (again time.Time) {
	standings, cloud := make([]lead.Standing, len(h.places)), h.config.Cloud.Get()
	for i := range h.places {
		p := &h.places[i]
		standings[i] = p.standing.Get()
	}
	slots := make([]Sight, len(h.places))
	for i := range h.places {
		p := &h.places[i]
		slots[i] = Sight{h.config.Slots[i].Link.Get(), p.is.Get()}
		if slots[i].Link == link.Up && p.failing.Get() {
			slots[i].Link = link.Failing
		}
	}
	was := h.at.Get()
	now := h.config.Clock.Running()
	at, again := machine.Step(now, slots)
	leads := standings[at].Role == lead.Leader
	if at != was {
		h.changes.Inc()
		klog.FromContext(ctx).Info("Another of the pool's coordinators is this hub's home now", "slot", at, "was", was,
			"leader", standings[at].Leader)
	}
	for i := range h.places {
		p := &h.places[i]
		stands, due := p.stand.Step(now, standings[i], p.renewed(), i != at, leads, cloud)
		p.campaign.Set(stands)
		if again.IsZero() || !due.IsZero() && due.Before(again) {
			again = due
		}
	}
	h.at.Set(at)
	h.link.Set(h.config.Slots[at].Link.Get())
	h.standing.Set(standings[at])
	anywhere := standings[at]
	for i, s := range standings {
		if s.Role == lead.Leader && h.config.Slots[i].Link.Get() == link.Up {
			anywhere.Role = lead.Leader
		}
	}
	h.anywhere.Set(anywhere)
	return again
}

// pollComplete asks a slot below home, repeatedly until ctx ends, whether it is complete.
func (h *Home) pollComplete(ctx context.Context, slot int) {
	for ctx.Err() == nil {
		if _, err := h.at.Wait(ctx, func(at int) bool { return slot < at }); err != nil {
			return
		}
		if _, err := h.config.Slots[slot].Link.Wait(ctx, func(s link.State) bool { return s == link.Up }); err != nil {
			return
		}
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		complete, err := h.places[slot].complete(asking)
		cancel()
		if err != nil {
			klog.FromContext(ctx).V(1).Info("Cannot ask a coordinator whether it is complete", "slot", slot, "err", err)
		}
		h.places[slot].is.Set(complete && err == nil)
		_ = run.Pause(ctx, askEvery) // the loop ends with ctx
	}
}

// Each returns a function that calls the argument of Each with the slot of home, and again after every change of home. The calls
// do not overlap. If a call returns before home changes or ctx ends, the returned function returns an error.
func (h *Home) Each(each func(ctx context.Context, slot int) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for ctx.Err() == nil {
			at := h.at.Get()
			if err := h.while(ctx, at, func(ctx context.Context) error { return each(ctx, at) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// Only returns a duty that runs only while a slot is home.
func (h *Home) Only(slot int, duty lead.Duty) lead.Duty {
	run := duty.Run
	duty.Run = func(ctx context.Context, term edge.Term) error {
		for ctx.Err() == nil {
			if _, err := h.at.Wait(ctx, func(at int) bool { return at == slot }); err != nil {
				return nil //nolint:nilerr // only the context ends it
			}
			if err := h.while(ctx, slot, func(ctx context.Context) error { return run(ctx, term) }); err != nil {
				return err
			}
		}
		return nil
	}
	return duty
}

// Leave is a duty of a hub that leads at a slot: it hands the lead to the leader at home. It returns a lead.Yield once another
// slot is home and the same other node has led there for 10 s (the constant held). Leave calls its last argument to ask whether
// that node can also lead at this slot; if not, Leave goes on.
func (h *Home) Leave(ctx context.Context, slot int, self edge.NodeName, can func(edge.NodeName) bool) error {
	type leader struct {
		at   int
		node edge.NodeName
	}
	var seen leader
	var since time.Time
	for {
		now := h.config.Clock.Running()
		if is := (leader{h.at.Get(), h.standing.Get().Leader}); is != seen {
			seen, since = is, now
		}
		if seen.at != slot && seen.node != "" && seen.node != self && now.Sub(since) >= held && can(seen.node) {
			return &lead.Yield{To: seen.node}
		}
		if err := run.Pause(ctx, lookEvery); err != nil {
			return nil //nolint:nilerr // only the context ends it
		}
	}
}

// while calls the function f, and ends its context when a slot is no longer home. If f returns earlier, while returns an error.
func (h *Home) while(ctx context.Context, slot int, f func(context.Context) error) error {
	ctx, stop := h.at.While(ctx, func(at int) bool { return at == slot }, errElsewhere)
	defer stop()
	err := f(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = errors.New("it returned before it was asked to")
	}
	return err
}

// Transport reaches whichever coordinator is home, with the node's credentials. Requests, and the reading of their answers, end
// when home changes.
func (h *Home) Transport() http.RoundTripper {
	if len(h.places) == 1 {
		return h.config.Slots[0].Transport
	}
	return transport{h}
}

type transport struct{ home *Home }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	at := t.home.at.Get()
	ctx, stop := t.home.at.While(r.Context(), func(now int) bool { return now == at }, errElsewhere)
	response, err := t.home.config.Slots[at].Transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = elsewhere(ctx, err)
		stop()
		return nil, err
	}
	response.Body = &body{response.Body, ctx, stop}
	return response, nil
}

// elsewhere returns err, or errElsewhere if a change of home caused it.
func elsewhere(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errElsewhere) {
		return errElsewhere
	}
	return err
}

// body is the body of an answer.
type body struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // it is the answer's
	stop func()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = elsewhere(b.ctx, err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.stop()
	return err
}
