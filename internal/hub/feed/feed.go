package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/history"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// mirrorListTimeout bounds a list at the coordinator: on a LAN of 100 Mbit/s it is enough for some 150 MB. A leader that
// has nothing waits for it before it turns to the cloud.
const mirrorListTimeout = 15 * time.Second

// quietTime is how long a resumed watch must be quiet, if no bookmark comes, to have told what it had to replay: API servers
// send what they remember at once, and know no way to say that this was all.
const quietTime = 500 * time.Millisecond

// replayTime is how long after it has opened a watch that is never quiet counts as having told what it had to replay. A server
// replays from memory, all at once; what comes later is news. A resource that changes all the time, and whose bookmarks come
// once a minute, would have nobody answered for that long.
const replayTime = 2 * time.Second

// behindTime is how long a mirror that has not come as far as the sink may tell nothing, while the cloud can be asked. What its
// leader pushes takes milliseconds.
const behindTime = 10 * time.Second

var (
	// errNotNewer says that a mirror's snapshot is of no use.
	errNotNewer = errors.New("the snapshot is not newer than what is here")
	// errDoubtful says that a list of the cloud is not believed yet.
	errDoubtful = errors.New("the list is not believed yet")
	// errBehind says that a mirror has not come as far as the sink, and does not come on. It is Expired, as a resume there is
	// of no use for a while.
	errBehind = fmt.Errorf("the mirror has not come as far as what is here: %w", stream.ErrExpired)
	// errUnfit says that the sink does not take what a stream tells.
	errUnfit = errors.New("the stream does not fit")
)

// Sink is what a Feed feeds; replica.Replica is one. A Feed uses it from one goroutine at a time.
type Sink interface {
	stream.Sink
	// Get returns one object.
	Get(key stream.Key) (stream.Object, bool)
	// Stats has the number of objects.
	Stats() replica.Stats
}

// Resetter is a Sink that can be emptied; all that watch it have to begin anew. A Feed needs it only where the cloud's
// history was set back.
type Resetter interface {
	Reset()
}

// Config is what a Feed needs. All fields are required unless it says otherwise.
type Config struct {
	// Resource is what is fed; it names it in logs and metrics.
	Resource schema.GroupVersionResource
	Sink     Sink
	// Cloud is the resource at the cloud, CloudLink the state of the link there.
	Cloud     stream.Source
	CloudLink *live.Value[link.State]
	// Coordinator is the mirror of the resource in the coordinator. Default: there is no coordinator, and the fields
	// below that are about it are ignored.
	Coordinator     stream.Source
	CoordinatorLink *live.Value[link.State]
	// Standing is this hub's place in its pool.
	Standing *live.Value[role.Standing]
	// Covered says that the leader keeps the mirror of this resource complete (Coverage.Of).
	Covered *live.Value[bool]
	// CoveredHistory is the history that the mirror counts in while it is covered (Coverage.History). nil means the sink's.
	CoveredHistory *live.Value[edge.History]
	// Lists has room for as many elements as lists over the WAN may be under way at a time: 1, in a channel that all
	// feeds of a hub share. Default: there is no limit but this feed's own.
	Lists chan struct{}
	// Precious: it does more harm if objects are lost that are still there than if they stay for half a minute after they are
	// gone. A list that would remove more than half of them is doubted however few they are, if the cloud's watch has shown
	// them within preciousFor. (Not for longer: a node that was away may have lost its Pods to others meanwhile.)
	Precious bool
	// History says which history the cloud is in. Default: the one that it was always in.
	History History
	// Metrics counts. Default: nothing does.
	Metrics *Metrics
}

// History follows the cloud's history; history.Keeper is one.
type History interface {
	State() *live.Value[history.State]
	// Saw takes in what the cloud has told, Prove what came from elsewhere and is to be resumed there.
	Saw(history.Witness)
	Prove(history.Witness)
	// Shaken takes in that a stream of the cloud broke.
	Shaken()
	// Raise takes in that there is a later history.
	Raise(edge.History)
}

// Mirror is a source whose content may be of another history; remote.Source is one.
type Mirror interface {
	// WatchIn is Watch, for a revision of a history. It returns how far the source has come, 0 if it does not say, and fails with
	// stream.ErrExpired if it is in another history.
	WatchIn(ctx context.Context, in edge.History, after edge.Revision) (stream.Watch, edge.Revision, error)
}

// steady is a cloud whose history never changes.
type steady struct{ state *live.Value[history.State] }

func (s steady) State() *live.Value[history.State] { return s.state }
func (steady) Saw(history.Witness)                 {}
func (steady) Prove(history.Witness)               {}
func (steady) Shaken()                             {}
func (steady) Raise(edge.History)                  {}

// Status is how a feed stands.
type Status struct {
	// Source is where the sink is fed from: the source of the attempt that is under way, or of the last one.
	Source Origin
	// Live: a watch of that source is open.
	Live bool
	// Refused is why the last attempt failed; empty once a stream is open again.
	Refused string
	// Denied: it failed with an answer that waiting seldom changes: no permission, no such resource. That it does not know who
	// asks is none.
	Denied bool
	// Stranger says that the last attempt failed because the source does not know who asks: a certificate or a token that has
	// expired.
	Stranger bool
	// Fresh says that since this feed began the sink has had all that its source had: a list was applied, or a resumed watch
	// has told what it had to replay. A mirror counts only while the leader keeps it complete. What the sink has without it
	// is from the disk, as old as that may be.
	Fresh bool
	// Failing says that the last attempt at the cloud ended with 502, 503, 504 or without an answer, although the link is
	// not down.
	Failing bool
}

// Feed keeps one Sink fed. Make one with New.
type Feed struct {
	config   Config
	status   *live.Value[Status]
	position edge.Revision // of the sink, when no attempt is under way
	cloud    past
	mirror   past
	guard    doubt.Guard
	older    doubt.Doubt // of lists of the cloud that are older than what is here
	heard    time.Time   // until when a watch of the cloud has told what is so; zero means that none did
	shown    bool        // a source has shown what is so since this feed began; until then the sink's content is the disk's
	foreign  bool        // what the sink has did not come from the cloud alone, since it was last proven
	refresh  chan struct{}
	waited   bool // somebody waits for what is so now
	anew     bool // so a list is due, though a resume might do
	was      inputs
	needs    time.Time // since when the cloud is up and a list is needed; zero if not
	decided  Decision
	since    time.Time // when it was decided
	draw     float64   // of the random part of the present wait, in [0, 1)
	logged   [2]string // the last error logged of the cloud and of the mirror
	last     Origin    // of the last attempt

	mu     sync.Mutex
	newest history.Witness // of all that the sink was given; an attempt writes it
}

// inputs are the values that a Feed follows.
type inputs struct {
	cloud, coordinator link.State
	standing           role.Standing
	covered            bool
	history            history.State
}

// New returns a Feed. It does no I/O.
func New(c Config) (*Feed, error) {
	if c.Sink == nil || c.Cloud == nil || c.CloudLink == nil {
		return nil, errors.New("feed: Sink, Cloud and CloudLink are required")
	}
	if c.Coordinator != nil && (c.CoordinatorLink == nil || c.Standing == nil || c.Covered == nil) {
		return nil, errors.New("feed: with a Coordinator, CoordinatorLink, Standing and Covered are required")
	}
	if c.Coordinator == nil {
		c.CoordinatorLink, c.Standing, c.Covered = live.NewValue(link.Down), &live.Value[role.Standing]{}, &live.Value[bool]{}
	}
	if c.CoveredHistory == nil {
		c.CoveredHistory = &live.Value[edge.History]{}
	}
	if c.History == nil {
		c.History = steady{live.NewValue(history.State{Sure: true})}
	}
	if c.Lists == nil {
		c.Lists = make(chan struct{}, 1)
	}
	if c.Metrics == nil {
		m, err := NewMetrics(prometheus.NewRegistry())
		if err != nil {
			return nil, err
		}
		c.Metrics = m
	}
	return &Feed{config: c, status: live.NewValue(Status{}), refresh: make(chan struct{}, 1)}, nil
}

// Refresh asks for a list instead of a resume, once, if the sink's content is not Fresh: at the mirror if it is covered, else
// at the cloud, at once. It does not block. A resume tells the same a little later, but it can't be sure for a while that it
// has told all; a list costs as much as there is. So it is for small selections that somebody waits for.
func (f *Feed) Refresh() {
	select {
	case f.refresh <- struct{}{}:
	default:
	}
}

// Status is how the feed stands, now and as it changes.
func (f *Feed) Status() *live.Value[Status] { return f.status }

// attempt is a list or a resume under way.
type attempt struct {
	from      Origin
	list      bool
	cancel    context.CancelFunc
	calledOff bool
	done      chan outcome
	refresh   bool          // it was asked for by Refresh
	history   edge.History  // what is read at the cloud counts in it
	choice    bool          // it began while the other source could be asked
	opened    chan struct{} // closed when a watch is open; nil once that was seen
	caughtUp  chan struct{} // closed when a watch has told what it had to replay; nil once that was seen
	current   bool          // that was seen
}

// Run feeds the sink until ctx ends, and returns nil when nothing of it is left. The sink keeps what it has.
func (f *Feed) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx).WithValues("resource", f.config.Resource.GroupResource().String())
	ctx = klog.NewContext(ctx, logger)
	f.begin(ctx)
	defer f.config.Metrics.forget(f.config.Resource)
	defer f.status.Set(Status{})
	var running *attempt
	for {
		changes := f.look()
		if running != nil && running.current {
			f.catch(running) // the mirror may be covered now
		}
		now := time.Now()
		due := f.decide(now, running)
		if running != nil && f.gives(running, now, due) {
			running.calledOff = true
			running.cancel()
			f.note(ctx, running, <-running.done)
			running = nil
			continue
		}
		var turn chan struct{}
		if running == nil {
			switch d := f.decided; {
			case d.From == None:
			case now.Before(due):
				if d.Meanwhile != None && !now.Before(f.past(d.Meanwhile).notBefore) {
					running = f.start(ctx, d.Meanwhile, false)
				}
			case d.From == Cloud && d.List:
				turn = f.config.Lists
			default:
				running = f.start(ctx, d.From, d.List)
			}
		}
		f.show(running)
		timer := f.timer(now, due)
		select {
		case <-ctx.Done():
			timer.Stop()
			if running != nil {
				running.cancel()
				<-running.done
				f.release(running)
			}
			return nil
		case turn <- struct{}{}:
			running = f.start(ctx, Cloud, true)
		case o := <-running.ended():
			f.note(ctx, running, o)
			running = nil
		case <-running.opening():
			running.opened = nil
			f.open(logger, running)
		case <-running.catching():
			running.caughtUp, running.current = nil, true
			f.catch(running)
		case <-f.refresh:
			f.waited = !f.status.Get().Fresh
			f.anew = f.waited
		case <-timer.C:
		case <-changes.cloud:
		case <-changes.coordinator:
		case <-changes.standing:
		case <-changes.covered:
		case <-changes.history:
		case <-changes.declared:
		}
		timer.Stop()
	}
}

// ended is where an attempt's outcome comes; it may be asked of none.
func (a *attempt) ended() <-chan outcome {
	if a == nil {
		return nil
	}
	return a.done
}

func (a *attempt) opening() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.opened
}

func (a *attempt) catching() <-chan struct{} {
	if a == nil {
		return nil
	}
	return a.caughtUp
}

// signals say when an input has changed.
type signals struct{ cloud, coordinator, standing, covered, history, declared <-chan struct{} }

// look takes in how the inputs stand, and what follows for what is remembered.
func (f *Feed) look() signals {
	var is inputs
	var s signals
	is.cloud, s.cloud = f.config.CloudLink.Watch()
	is.coordinator, s.coordinator = f.config.CoordinatorLink.Watch()
	is.standing, s.standing = f.config.Standing.Watch()
	is.covered, s.covered = f.config.Covered.Watch()
	var declared edge.History
	if declared, s.declared = f.config.CoveredHistory.Watch(); is.covered {
		f.config.History.Raise(declared)
	}
	is.history, s.history = f.config.History.State().Watch()
	is.covered = is.covered && declared == is.history.Number
	if is.cloud == link.Up && f.was.cloud != link.Up {
		f.cloud.recovered()
	}
	if is.coordinator == link.Up && f.was.coordinator != link.Up || is.covered && !f.was.covered {
		f.mirror = past{} // it may have begun anew
	}
	switch s := f.status.Get(); {
	case is.cloud == link.Down:
		s.Failing = false
		f.status.Set(s)
	case !is.history.Sure && is.history.Failing:
		s.Failing = true // another has asked for all
		f.status.Set(s)
	}
	f.was = is
	return s
}

// begin takes in what the sink has.
func (f *Feed) begin(ctx context.Context) {
	f.position = f.config.Sink.Position()
	f.foreign = f.position != 0
	f.newest.From, _ = f.config.Cloud.(history.Prover)
	source, can := f.config.Sink.(interface {
		Snapshot(ctx context.Context) (stream.Snapshot, error)
	})
	if f.position == 0 || !can || f.newest.From == nil {
		return
	}
	if s, err := source.Snapshot(ctx); err == nil {
		f.renew(s.Objects)
	}
}

// renew takes in all that the sink has now.
func (f *Feed) renew(objects []stream.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.newest = newestOf(history.Witness{From: f.newest.From}, objects)
}

func newestOf(w history.Witness, objects []stream.Object) history.Witness {
	for _, o := range objects {
		if o.Revision > w.Revision {
			w.Key, w.Revision = o.Key, o.Revision
		}
	}
	return w
}

// witness is what the sink can prove.
func (f *Feed) witness() history.Witness {
	f.mu.Lock()
	w := f.newest
	f.mu.Unlock()
	w.Held, w.History = f.config.Sink.Position(), f.counted()
	return w
}

// counted is the history that the sink's position counts in.
func (f *Feed) counted() edge.History {
	if s, can := f.config.Sink.(interface{ History() edge.History }); can {
		return s.History()
	}
	return f.config.History.State().Get().Number
}

// outlived reports whether what the sink has can't be resumed at the cloud: it is of another history, or may be.
func (f *Feed) outlived() bool {
	h := f.was.history
	return f.position != 0 && (f.counted() < h.Number || f.position < h.Floor)
}

func (f *Feed) situation(now time.Time, running *attempt) Situation {
	listing := running != nil && running.from == Cloud && running.list
	atCloud := f.cloud.access(now, f.was.cloud.Reachable(), false, f.position)
	if atCloud != Down && f.outlived() {
		atCloud = Expired
	}
	return Situation{
		Role:        f.was.standing.Role,
		Cloud:       atCloud,
		Coordinator: f.mirror.access(now, f.was.coordinator == link.Up, listing, f.config.Sink.Position()),
		Pool:        f.config.Coordinator != nil,
		LeaderKnown: f.was.standing.Leader != "",
		Covered:     f.was.covered,
		Empty:       f.position == 0,
		Listing:     listing,
	}
}

// decide chooses, and returns when what it chose is due.
func (f *Feed) decide(now time.Time, running *attempt) time.Time {
	s := f.situation(now, running)
	needed := s.Cloud != Down && (s.Empty || s.Cloud == Expired)
	switch {
	case !needed:
		f.needs = time.Time{}
	case f.needs.IsZero():
		f.needs = now
	}
	d := Choose(s)
	switch {
	case f.anew:
		d = refreshed(s, d)
	case f.waited && d.From == Cloud && d.List && !s.Empty:
		d.After, d.Jitter = 0, 0
	}
	if d != f.decided {
		if d.Jitter != f.decided.Jitter {
			f.draw = rand.Float64()
		}
		f.decided, f.since = d, now
	}
	d = f.decided
	from := f.since
	if d.From == Cloud && d.List {
		from = f.needs
	}
	due := from.Add(d.After + time.Duration(f.draw*float64(d.Jitter)))
	p := f.past(d.From)
	earliest := p.notBefore
	if waits := f.waited || s.Role == role.Leader; waits && !p.prompt.IsZero() && p.prompt.Before(earliest) {
		earliest = p.prompt
	}
	if earliest.After(due) {
		due = earliest
	}
	if d.List && p.doubted.After(due) {
		due = p.doubted
	}
	if d.From == Cloud {
		due = f.verified(d, now, due)
	}
	return due
}

// verified is when something may begin at the cloud that is due: not before its history is known.
func (f *Feed) verified(d Decision, now, due time.Time) time.Time {
	if f.foreign && !d.List && !now.Before(due) {
		f.foreign = false
		f.config.History.Prove(f.witness())
	}
	if !f.config.History.State().Get().Sure {
		return now.Add(time.Minute) // its change is waited for
	}
	return due
}

// gives reports whether what runs is to give way to what was decided.
func (f *Feed) gives(running *attempt, now, due time.Time) bool {
	d := f.decided
	switch {
	case d.From == running.from:
		// What became of the wish to resume is seen when the list has ended.
		return d.List && !running.list
	case d.From == None, running.from == Cloud && !f.was.cloud.Reachable(),
		running.from == Coordinator && f.was.coordinator != link.Up:
		return true
	default:
		return !now.Before(due)
	}
}

func (f *Feed) past(o Origin) *past {
	if o == Coordinator {
		return &f.mirror
	}
	return &f.cloud
}

// timer fires when something is due or may have changed by itself.
func (f *Feed) timer(now, due time.Time) *time.Timer {
	next := due
	for _, t := range []time.Time{f.cloud.next(now), f.mirror.next(now)} {
		if !t.IsZero() && (!next.After(now) || t.Before(next)) {
			next = t
		}
	}
	if !next.After(now) {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return timer
	}
	return time.NewTimer(next.Sub(now))
}

// start begins an attempt.
func (f *Feed) start(ctx context.Context, from Origin, list bool) *attempt {
	a := &attempt{
		from: from, list: list, done: make(chan outcome, 1), opened: make(chan struct{}), caughtUp: make(chan struct{}),
	}
	a.history = f.config.History.State().Get().Number
	a.choice = f.was.cloud == link.Up
	f.foreign = f.foreign && from == Cloud && !list || from == Coordinator
	if list && f.anew {
		a.refresh, f.anew = true, false
	}
	if from != f.last {
		klog.FromContext(ctx).V(1).Info("Feeding from another source", "source", from, "was", f.last, "list", list,
			"position", f.position.String(), "because", f.decided.Why)
		if f.last != None {
			f.config.Metrics.switches.WithLabelValues(label(f.config.Resource)).Inc()
		}
		f.last = from
	}
	source := f.config.Cloud
	if from == Coordinator {
		source = f.config.Coordinator
	}
	ctx, a.cancel = context.WithCancel(ctx)
	opened, caughtUp := a.opened, a.caughtUp
	if list {
		f.config.Metrics.lists.WithLabelValues(label(f.config.Resource), from.String()).Inc()
		go func() { a.done <- outcome{list: true, err: f.list(ctx, a, source)} }()
	} else {
		position := f.position
		go func() { a.done <- f.resume(ctx, a, source, position, opened, caughtUp) }()
	}
	return a
}

// release gives back what an attempt that has ended held.
func (f *Feed) release(a *attempt) {
	a.cancel()
	if a.from == Cloud && a.list {
		<-f.config.Lists
	}
	f.position = f.config.Sink.Position()
}

// note takes in the end of an attempt.
func (f *Feed) note(ctx context.Context, a *attempt, o outcome) {
	before := f.position
	f.release(a)
	if ctx.Err() != nil || a.calledOff && errors.Is(o.err, context.Canceled) {
		return // called off for something better: it says nothing of the source
	}
	if o.told || o.lived >= shortLife || o.list && o.err == nil {
		f.shown = true
		if a.from == Cloud && !o.list {
			f.heard = time.Now()
		}
	}
	if a.from == Cloud && shaken(o) {
		f.config.History.Shaken()
	}
	p := f.past(a.from)
	o.policy = f.policy(a)
	p.note(time.Now(), a.from == Coordinator, o, f.position)
	if f.position != before && a.from == Cloud {
		f.mirror.stale = time.Time{}
	}
	refused := ""
	if o.err != nil && (!p.notBefore.IsZero() || errors.Is(o.err, errDoubtful)) {
		refused = o.err.Error()
		f.log(ctx, a, refused, p)
	}
	s := f.status.Get()
	s.Live, s.Refused, s.Stranger = false, refused, refused != "" && stranger(o.err)
	s.Denied = refused != "" && denied(o.err) && !s.Stranger
	if a.from == Cloud {
		s.Failing = failing(o) && f.config.CloudLink.Get() != link.Down
	}
	f.status.Set(s)
	if o.list && o.err == nil {
		f.catch(a)
	}
}

// log tells of a failure, once as long as it stays the same.
func (f *Feed) log(ctx context.Context, a *attempt, err string, p *past) {
	said := &f.logged[a.from-Cloud]
	if *said == err {
		return
	}
	*said = err
	klog.FromContext(ctx).Info("A source can't be used as it is, trying again", "source", a.from, "list", a.list,
		"pause", max(time.Until(p.notBefore), time.Until(p.doubted), 0).Round(time.Millisecond), "err", err)
}

// open takes in that a watch is open.
func (f *Feed) open(logger klog.Logger, a *attempt) {
	s := f.status.Get()
	s.Source, s.Live, s.Refused, s.Denied, s.Stranger = a.from, true, "", false, false
	if a.from == Cloud {
		s.Failing = false
	}
	f.status.Set(s)
	if said := &f.logged[a.from-Cloud]; *said != "" {
		*said = ""
		logger.Info("The source can be used again", "source", a.from)
	}
}

// catch takes in that the sink has all that the source of an attempt has.
func (f *Feed) catch(a *attempt) {
	if a.from == Coordinator && !f.was.covered {
		return // complete it may be, but as of some day
	}
	s := f.status.Get()
	s.Fresh = true
	f.status.Set(s)
	f.waited, f.anew = false, false
}

// policy is how a list of the cloud is doubted that contradicts what the sink has.
func (f *Feed) policy(a *attempt) doubt.Policy {
	if f.shown && a.history <= f.counted() {
		return doubt.Shown()
	}
	return doubt.Restored()
}

// show publishes where the sink is fed from.
func (f *Feed) show(running *attempt) {
	s := f.status.Get()
	switch {
	case running != nil && s.Source != running.from:
		s.Source, s.Live = running.from, false
	case running == nil && f.decided.From == None:
		s.Source, s.Live = None, false
	}
	f.status.Set(s)
	f.config.Metrics.show(f.config.Resource, s.Source)
}

// list reads all of a source into the sink.
func (f *Feed) list(ctx context.Context, a *attempt, source stream.Source) error {
	from := a.from
	if from == Coordinator {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, mirrorListTimeout)
		defer cancel()
	}
	s, err := source.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("list %s at the %s: %w", f.config.Resource.Resource, from, err)
	}
	position := f.config.Sink.Position()
	if from == Cloud {
		s.History = a.history
	}
	counted := f.counted()
	switch {
	case from == Coordinator && position != 0 && s.History < counted:
		return fmt.Errorf("list %s at the %s: %w: it is of history %s, ours is %s", f.config.Resource.Resource, from,
			errNotNewer, s.History, counted)
	case s.History > counted:
		f.config.History.Raise(s.History)
		position = 0 // revisions of two histories do not compare
	}
	switch {
	case s.Revision == 0:
		return fmt.Errorf("list %s at the %s: it has no revision", f.config.Resource.Resource, from)
	case from == Coordinator && s.Revision <= position && a.refresh:
		return nil // what is here is as new
	case from == Coordinator && s.Revision <= position:
		return fmt.Errorf("list %s at the %s: %w: it is of revision %s, ours is %s", f.config.Resource.Resource, from,
			errNotNewer, s.Revision, position)
	case from == Cloud:
		if err := f.believe(a, s, position); err != nil {
			return fmt.Errorf("list %s at the %s: %w", f.config.Resource.Resource, from, err)
		}
		if s.Revision < position {
			if _, never := f.config.History.(steady); !never {
				f.config.History.Raise(a.history + 1)
				return fmt.Errorf("%w: the cloud's history was set back from revision %s to %s",
					errDoubtful, position, s.Revision)
			}
			resetter, can := f.config.Sink.(Resetter)
			if !can {
				return fmt.Errorf("%w: the cloud's history was set back from revision %s to %s; restart this hub",
					errDoubtful, position, s.Revision)
			}
			klog.FromContext(ctx).Info("The cloud's history was set back, following it", "revision", s.Revision.String(),
				"was", position.String())
			resetter.Reset()
		}
	}
	if err := f.config.Sink.Replace(ctx, s); err != nil {
		return err
	}
	f.renew(s.Objects)
	if from == Cloud {
		f.config.History.Saw(f.witness())
	}
	return nil
}

// believe says whether a list of the cloud is to be applied.
func (f *Feed) believe(a *attempt, s stream.Snapshot, position edge.Revision) error {
	now := time.Now()
	if s.Revision >= position {
		f.older.Clear()
	} else if !f.older.Offer(now, f.policy(a)) {
		return fmt.Errorf("%w: it is of revision %s, and what is here of %s", errDoubtful, s.Revision, position)
	}
	have, kept := f.config.Sink.Stats().Objects, 0
	for _, o := range s.Objects {
		if _, has := f.config.Sink.Get(o.Key); has {
			kept++
		}
	}
	minimum := doubt.Minimum
	if f.config.Precious && !f.heard.IsZero() && now.Sub(f.heard) < preciousFor {
		minimum = 1
	}
	if err := f.guard.Check(now, f.policy(a), minimum, have, have-kept); err != nil {
		return fmt.Errorf("%w: %w", errDoubtful, err)
	}
	f.older.Clear()
	return nil
}

// watch asks a source for what follows a revision, and returns how far it has come, if it says so.
func (f *Feed) watch(
	ctx context.Context, a *attempt, source stream.Source, after edge.Revision,
) (stream.Watch, edge.Revision, error) {
	if m, can := source.(Mirror); can && a.from == Coordinator {
		return m.WatchIn(ctx, f.counted(), after)
	}
	w, err := source.Watch(ctx, after)
	return w, 0, err
}

// remember takes in the newest object that a stream told of.
func (f *Feed) remember(a *attempt, events []stream.Event) {
	f.mu.Lock()
	for _, e := range events {
		if e.Type == stream.Added || e.Type == stream.Modified {
			f.newest.Key, f.newest.Revision = e.Object.Key, e.Object.Revision
		}
	}
	f.mu.Unlock()
	if a.from == Cloud {
		f.config.History.Saw(f.witness())
	}
}

// resume watches a source from the sink's position and applies what it tells. It closes opened when the watch is open, and
// caughtUp when it has told what it had to replay.
func (f *Feed) resume(
	ctx context.Context, a *attempt, source stream.Source, after edge.Revision, opened, caughtUp chan<- struct{},
) (o outcome) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w, at, err := f.watch(ctx, a, source, after)
	if err != nil {
		o.err = fmt.Errorf("watch %s after revision %s: %w", f.config.Resource.Resource, after, err)
		return o
	}
	began := time.Now()
	o.opened = true
	close(opened)
	told := sync.OnceFunc(func() { close(caughtUp) })
	quiet := time.AfterFunc(quietTime, told)
	replayed := time.AfterFunc(replayTime, told)
	behind := time.NewTimer(time.Hour)
	behind.Stop()
	if at != 0 && at < after && a.choice {
		behind = time.AfterFunc(behindTime, func() { cancel(errBehind) })
	}
	defer func() {
		quiet.Stop()
		replayed.Stop()
		behind.Stop()
		o.lived = time.Since(began)
		_ = w.Close()
	}()
	for {
		events, err := w.Next(ctx)
		if err == nil {
			o.told = o.told || len(events) > 0
			quiet.Stop()
			behind.Stop()
			if err = f.config.Sink.Apply(ctx, events); err != nil {
				err = fmt.Errorf("%w: %w", errUnfit, err)
			} else {
				f.remember(a, events)
			}
		}
		if err != nil {
			o.err = fmt.Errorf("watch %s: %w", f.config.Resource.Resource, err)
			return o
		}
		if slices.ContainsFunc(events, func(e stream.Event) bool { return e.Type == stream.Bookmark }) {
			told()
		} else {
			quiet.Reset(quietTime)
		}
	}
}
