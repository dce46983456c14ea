package cache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// FeedStatus is the state of a feed.
type FeedStatus struct {
	// Source is the source of the attempt under way, or of the last one.
	Source Origin
	// Live says that a watch of that source is open.
	Live bool
	// Refused is why the last attempt failed; empty once a stream is open again.
	Refused string
	// Denied says that the last attempt failed with an answer that waiting seldom changes, such as 403 or 404. After 401, only
	// Stranger is set.
	Denied bool
	// Stranger says that the last attempt failed with 401: the client's certificate or token may have expired.
	Stranger bool
	// Fresh says that since this feed began, the sink has once had everything that its source had: the feed applied a list, or a
	// resumed watch replayed all changes. The mirror counts as a source only while the leader keeps it current. Fresh ends when
	// an API server refuses the feed. Without Fresh, the sink's content may be of any age.
	Fresh bool
	// Failing says that the last attempt at the cloud got 502, 503, 504 or no answer, although the link is not down.
	Failing bool
}

// Feed fills one Sink: it observes its surroundings and carries out its Machine's decisions. Make one with NewFeed.
type Feed struct {
	config  FeedConfig
	status  *live.Value[FeedStatus]
	refresh chan struct{}

	// Only Run uses these.
	machine *Machine
	history History
	logged  [2]string // the last error logged about the cloud and about the mirror
	last    Origin    // of the last attempt
	kept    *pages    // the pages of a list that broke off
	limit   int       // of the next page; 0 before the first

	filling atomic.Int64

	mu     sync.Mutex
	newest Witness // the newest object that the sink got; the reading goroutine writes it
}

// Refresh requests one immediate list instead of a resume, unless the sink's content is Fresh. It does not block. Call it for a
// small selection that a client waits for: after a resume the feed needs a while to know that nothing is missing.
func (f *Feed) Refresh() {
	select {
	case f.refresh <- struct{}{}:
	default:
	}
}

// FillsNext is what Filling returns for a list that waits for its turn.
const FillsNext = -1

// Status returns the state of the feed, now and as it changes.
func (f *Feed) Status() *live.Value[FeedStatus] { return f.status }

// Filling returns the number, from 1, of the page at which a list from the cloud is, or at which it broke off and will continue.
// FillsNext means that a list waits until other lists are done. 0 means that there is no list in pages.
func (f *Feed) Filling() int { return int(f.filling.Load()) }

// Run feeds the sink until ctx ends, and waits for what it started. The sink keeps what it has.
func (f *Feed) Run(ctx context.Context) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("resource", f.config.Resource.GroupResource().String()))
	f.history = f.config.History()
	defer f.history.Leave()
	f.begin(ctx)
	defer f.config.Metrics.forget(f.config.Resource)
	defer f.status.Set(FeedStatus{})
	var what Happening
	var running *reading
	for ctx.Err() == nil {
		event, changed := f.observe(what)
		d := f.machine.Step(event)
		f.informHistory(d)
		if d.Apply {
			what = Ended{Err: f.apply(ctx, running, d.Raise)}
			continue
		}
		f.show(ctx, running, what, d)
		running = f.act(ctx, running, what, d)
		if what = nil; d.settled() {
			what = f.wait(ctx, running, d, changed)
		}
	}
	f.end(running, what)
}

// begin records what the sink has.
func (f *Feed) begin(ctx context.Context) {
	position := f.config.Sink.Position()
	f.machine = NewMachine(MachineConfig{
		Name: f.config.Resource.Resource, Pool: f.config.Coordinator != nil, Precious: f.config.Precious,
		Pages: f.config.Pages != nil,
	}, position)
	if position == 0 {
		return
	}
	if s, err := f.config.Sink.Snapshot(ctx); err == nil {
		f.renew(s.Objects)
	}
}

// observe returns an Event that has the parameter what and the present state of the surroundings. It also returns the channels
// that are closed when that state changes.
func (f *Feed) observe(what Happening) (e Event, changed [7]<-chan struct{}) {
	c := &f.config
	e.What, e.At, e.Chance = what, f.config.Ends.Running(), f.config.Ends.Float64()
	e.Cloud, changed[0] = c.CloudLink.Watch()
	e.Coordinator, changed[1] = c.CoordinatorLink.Watch()
	e.Standing, changed[2] = c.Standing.Watch()
	e.Covered, changed[3] = c.Covered.Watch()
	e.Declared, changed[4] = c.CoveredHistory.Watch()
	e.History, changed[5] = f.history.State().Watch()
	e.Filling, changed[6] = c.Filling.Watch()
	e.Position, e.Counted = c.Sink.Position(), c.Sink.History()
	return e, changed
}

// informHistory tells the History what the Machine decided about it.
func (f *Feed) informHistory(d Decision) {
	if d.Raise != 0 {
		f.history.Raise(d.Raise)
	}
	if d.Shaken {
		f.history.Shaken()
	}
	if d.Prove {
		f.history.Prove(f.witness())
	}
}

// apply gives a list to the sink. If raised is not 0, the list is the first of that history.
func (f *Feed) apply(ctx context.Context, from *reading, raised edge.History) error {
	s := from.content
	if from.From == Cloud && raised > s.History {
		s.History = raised
		klog.FromContext(ctx).Info("The cloud's history was set back; following it", "revision", s.Revision.String(),
			"was", f.config.Sink.Position().String(), "history", raised)
	}
	if err := f.config.Sink.Replace(ctx, s); err != nil {
		return err
	}
	f.renew(s.Objects)
	if from.From == Cloud {
		f.history.Saw(f.witness())
	}
	return nil
}

// act releases an ended attempt, cancels one that must stop, and starts one that may begin.
func (f *Feed) act(ctx context.Context, running *reading, what Happening, d Decision) *reading {
	if over(what) {
		f.release(running)
		if running.pages != nil {
			f.kept, f.limit = running.pages, running.pages.limit
		}
		running = nil
	}
	if !d.Keep {
		f.kept = nil
	}
	switch {
	case running != nil || f.kept != nil:
	case d.Admit && f.config.Pages != nil:
		f.filling.Store(FillsNext)
	default:
		f.filling.Store(0)
	}
	if d.Stop {
		running.cancel()
	}
	switch {
	case d.Start.From != None:
		return f.start(ctx, d.Start)
	case what == Happening(Admitted{}):
		<-f.config.Lists // the list for this turn is no longer wanted
	}
	return running
}

// wait returns what happens next. nil means that the surroundings have changed, or that it is time to Step.
func (f *Feed) wait(ctx context.Context, running *reading, d Decision, changed [7]<-chan struct{}) Happening {
	var passed <-chan time.Time
	if !d.Wake.IsZero() {
		timer := time.NewTimer(f.config.Ends.Until(d.Wake))
		defer timer.Stop()
		passed = timer.C
	}
	var turn chan<- struct{}
	if d.Admit {
		turn = f.config.Lists
	}
	var told <-chan Happening
	if running != nil {
		told = running.told
	}
	select {
	case <-ctx.Done():
	case turn <- struct{}{}:
		return Admitted{}
	case what := <-told:
		return what
	case <-f.refresh:
		return Refreshed{}
	case <-passed:
	case <-changed[0]:
	case <-changed[1]:
	case <-changed[2]:
	case <-changed[3]:
	case <-changed[4]:
	case <-changed[5]:
	case <-changed[6]:
	}
	return nil
}

// end cancels the attempt under way, waits for its end and releases it.
func (f *Feed) end(running *reading, what Happening) {
	if what == Happening(Admitted{}) {
		<-f.config.Lists
	}
	if running == nil {
		return
	}
	running.cancel()
	for !over(what) {
		what = <-running.told
	}
	f.release(running)
}

// start begins an attempt.
func (f *Feed) start(ctx context.Context, a Attempt) *reading {
	resource := label(f.config.Resource)
	if a.From != f.last {
		klog.FromContext(ctx).V(1).Info("Feeding from another source", "source", a.From, "was", f.last, "list", a.List,
			"position", f.config.Sink.Position().String(), "because", a.Why)
		if f.last != None {
			f.config.Metrics.switches.WithLabelValues(resource).Inc()
		}
		f.last = a.From
	}
	r := &reading{Attempt: a, Source: f.config.Cloud, Sink: f.config.Sink, feed: f, told: make(chan Happening, 3)}
	if a.From == Coordinator {
		r.Source = f.config.Coordinator
	}
	ctx, r.cancel = context.WithCancel(ctx)
	switch {
	case a.Continue:
		r.pages = f.kept
		klog.FromContext(ctx).Info("A list that broke off goes on where it stood", "pages", r.pages.count,
			"objects", len(r.pages.content.Objects), "revision", r.pages.content.Revision.String())
		f.config.Metrics.continued.WithLabelValues(resource).Inc()
	case a.Pages:
		r.pages = newPages(f.limit, f.config.Ends.Clock)
	}
	if a.List {
		if !a.Continue {
			f.config.Metrics.lists.WithLabelValues(resource, a.From.String()).Inc()
		}
		go func() { r.told <- r.list(ctx) }()
	} else {
		go func() { r.told <- r.resume(ctx) }()
	}
	return r
}

// release gives back what an ended attempt held.
func (f *Feed) release(r *reading) {
	r.cancel()
	if r.From == Cloud && r.List {
		<-f.config.Lists
	}
}

// show publishes the feed's state, and logs when a source's trouble begins, changes or ends.
func (f *Feed) show(ctx context.Context, running *reading, what Happening, d Decision) {
	s := d.Status
	f.status.Set(s)
	f.config.Metrics.show(f.config.Resource, s.Source)
	if running == nil {
		return
	}
	logger, said := klog.FromContext(ctx), &f.logged[running.From-Cloud]
	switch {
	case over(what) && s.Refused != "" && s.Refused != *said:
		*said = s.Refused
		logger.Info("A source cannot be used as it is; trying again", "source", running.From, "list", running.List,
			"pause", max(f.config.Ends.Until(d.Wake), 0).Round(time.Millisecond), "err", s.Refused)
	case what == Happening(Opened{}) && *said != "":
		*said = ""
		logger.Info("The source can be used again", "source", running.From)
	}
}

// renew finds the newest object among all that the sink now has.
func (f *Feed) renew(objects []stream.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := Witness{From: f.config.Cloud}
	for _, o := range objects {
		if o.Revision > w.Revision {
			w.Key, w.Revision = o.Key, o.Revision
		}
	}
	f.newest = w
}

// witness returns the witness for the sink's content.
func (f *Feed) witness() Witness {
	f.mu.Lock()
	w := f.newest
	f.mu.Unlock()
	w.Held, w.History = f.config.Sink.Position(), f.config.Sink.History()
	return w
}

// remember records the newest object of a stream's events.
func (f *Feed) remember(from Origin, events []stream.Event) {
	f.mu.Lock()
	for _, e := range events {
		if e.Type == stream.Added || e.Type == stream.Modified {
			f.newest.Key, f.newest.Revision = e.Object.Key, e.Object.Revision
		}
	}
	f.mu.Unlock()
	if from == Cloud {
		f.history.Saw(f.witness())
	}
}
