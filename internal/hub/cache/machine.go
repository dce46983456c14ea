package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
)

// preciousFor bounds how long MachineConfig.Precious counts after the end of a watch of the cloud that worked. It is more than
// twice as long as a list may be doubted (doubt.Policy.Longest).
const preciousFor = 90 * time.Second

var (
	// errNotNewer says that a mirror's snapshot is not newer, and so is useless.
	errNotNewer = errors.New("the snapshot is not newer than what is here")
	// errDoubtful says that the Machine does not yet believe a list from the cloud.
	errDoubtful = errors.New("the list is not believed yet")
)

// Event tells a Machine what has happened, and the state of its surroundings at that moment.
type Event struct {
	At time.Time
	// Chance is a random number for this step, from [0, 1).
	Chance float64
	// Position and Counted are the sink's revision, and the history to which it belongs.
	Position edge.Revision
	Counted  edge.History
	Looked
	// What is what happened. nil means that time has passed, or that the surroundings have changed.
	What Happening
}

// after returns the time of the event plus a pause and a random share of part.
func (e Event) after(pause, part time.Duration) time.Time {
	return e.At.Add(pause + time.Duration(e.Chance*float64(part)))
}

// Looked is the state of a feed's surroundings.
type Looked struct {
	Cloud, Coordinator link.State
	Standing           lead.Standing
	// Covered says that the leader declares the mirror current, in the history Declared.
	Covered  bool
	Declared edge.History
	// Filling says that the leader declares that it is reading the resource from the cloud.
	Filling bool
	// History is what is known about the cloud's history.
	History HistoryState
}

// Happening is one of Opened, CaughtUp, Fetched, Ended, Admitted and Refreshed.
type Happening any

type (
	// Opened says that the watch under way is open.
	Opened struct{}
	// CaughtUp says that the watch has replayed everything.
	CaughtUp struct{}
	// Fetched says that the list under way has arrived, as of a Revision of a History. Have counts the sink's objects, and Lost
	// those that the list lacks. WentBack says that the list has some object in an older state than the sink.
	Fetched struct {
		Revision   edge.Revision
		History    edge.History
		Have, Lost int
		WentBack   bool
	}
	// Ended says that the attempt under way is over. Err is nil for a list that was applied.
	Ended struct {
		Err error
		// Opened says that a watch was open, for the time Lived. Told says that the watch sent something.
		Opened, Told bool
		Lived        time.Duration
		// Pages is how many pages of the list the feed has. Progress says that this attempt brought some of them.
		Pages    int
		Progress bool
	}
	// Admitted says that it is this feed's turn to list over the WAN.
	Admitted struct{}
	// Refreshed says that a client waits for the present state.
	Refreshed struct{}
)

// Attempt is a list or a resume.
type Attempt struct {
	From Origin
	List bool
	// History is the history in which the cloud is read. Floor is the HistoryState's Floor when the attempt began.
	History edge.History
	Floor   edge.Revision
	// Pages says to read the list in pages. Continue says to resume the list after the kept pages.
	Pages, Continue bool
	// Choice says that the cloud could be asked when the attempt began, so the feed need not wait for a mirror.
	Choice bool
	// Why is for people.
	Why string
}

// Decision is what the Feed must do after an event, in the order of the fields.
type Decision struct {
	// Raise, Shaken and Prove say which methods of the History the Feed must call. Raise is also the argument for History.Raise;
	// 0 means no call. After a call the Feed calls Step again at once, because the History's state has changed.
	Raise         edge.History
	Shaken, Prove bool
	// Apply says to apply the list that has arrived, and to report the outcome by Ended. If Raise is not 0, it is the list's
	// history.
	Apply bool
	// Stop cancels the attempt under way, which then reports its end by Ended.
	Stop bool
	// Start is the attempt to begin; From is None if there is none.
	Start Attempt
	// Keep says to keep the pages of a list that broke off.
	Keep bool
	// Admit says that a list over the WAN waits for its turn. Admitted reports the turn.
	Admit bool
	// Wake is when to Step again if nothing happens earlier; zero means never.
	Wake time.Time
	// Status is the feed's state after the step.
	Status FeedStatus
}

// settled reports whether the decision asks for no call to the History. Such a call would change the surroundings.
func (d Decision) settled() bool { return d.Raise == 0 && !d.Shaken && !d.Prove }

// demand says whether a client waits for the present state.
type demand uint8

const (
	nobody demand = iota
	// asking means that a client waits, and that the Machine wants a list even where a resume would do.
	asking
	// waiting means that a client waits, and that the list was already tried.
	waiting
)

// MachineConfig configures a Machine.
type MachineConfig struct {
	// Name is the resource's name in errors.
	Name string
	// Pool says that the hub has a coordinator. Precious is FeedConfig.Precious.
	Pool, Precious bool
	// Pages says that the cloud's lists are read in pages.
	Pages bool
}

// Machine makes a Feed's decisions: which source feeds the sink, whether by a list or a resume, when to retry, and which lists to
// believe. It has no clock, draws no random numbers and does no I/O. Make one with NewMachine; use it from one goroutine.
type Machine struct {
	config MachineConfig
	looked Looked
	held   edge.Revision // the sink's position while nothing runs

	running struct { // from None: nothing runs
		Attempt
		refresh   bool // a client waits for it
		current   bool // it has caught up
		calledOff bool
	}
	cloud, mirror past
	guard         doubt.Guard
	older         doubt.Doubt // of lists from the cloud that are older than the sink

	heard   time.Time     // when the last watch of the cloud that worked ended; zero means that none has
	shown   bool          // a source has shown its content; until then the sink has only the disk's
	foreign bool          // some of the sink's content came from elsewhere than the cloud since the last proof
	floor   edge.Revision // HistoryState.Floor when the last list from the cloud began; it concerns only older content
	demand  demand

	kept  kept
	whole bool // the next list comes in one piece: the server forgot the revision of a paged one

	needs  time.Time // since when the cloud is up and the sink needs a list; zero means that it does not
	choice Choice
	since  time.Time // when choice was made
	drawn  float64   // the chance drawn for choice.Jitter

	status FeedStatus
}

// NewMachine returns the machine of a feed whose sink stands at a position.
func NewMachine(c MachineConfig, position edge.Revision) *Machine {
	return &Machine{config: c, held: position, foreign: position != 0}
}

// Step processes an event and returns what to do now.
func (m *Machine) Step(e Event) (d Decision) {
	if m.running.From != None {
		d = m.heardOf(e)
	}
	if d.Status = m.status; d.Apply {
		return d
	}
	if e.What == Happening(Refreshed{}) && !m.status.Fresh {
		m.demand = asking
	}
	d.Raise = m.observe(e)
	if d.settled() {
		m.decide(e, &d)
	}
	d.Keep = m.keeps(e)
	switch s := &m.status; {
	case m.running.From != None && s.Source != m.running.From:
		s.Source, s.Live = m.running.From, false
	case m.running.From == None && m.choice.From == None:
		s.Source, s.Live = None, false
	}
	d.Status = m.status
	return d
}

// heardOf records what happened to the running attempt.
func (m *Machine) heardOf(e Event) (d Decision) {
	switch what := e.What.(type) {
	case Opened:
		s := &m.status
		s.Source, s.Live, s.Refused, s.Denied, s.Stranger = m.running.From, true, "", false, false
		s.Failing = s.Failing && s.Source != Cloud
	case CaughtUp:
		m.running.current = true
	case Fetched:
		return m.fetched(e, what)
	case Ended:
		d.Shaken = m.ended(e, what)
	}
	return d
}

// observe records the surroundings. It returns the history that the leader declares if that is later than ours, otherwise 0.
func (m *Machine) observe(e Event) (later edge.History) {
	is, was := e.Looked, m.looked
	if e.At.Before(is.History.Alone) {
		is.Coordinator, is.Covered, is.Filling = link.Down, false, false
	}
	if is.Covered && is.Declared > is.History.Number && is.Declared.Believable() {
		later = is.Declared
	}
	is.Covered = is.Covered && is.Declared == is.History.Number
	if is.Cloud.Answers() && !was.Cloud.Answers() {
		m.cloud.recovered()
	}
	if is.Coordinator == link.Up && was.Coordinator != link.Up || is.Covered && !was.Covered {
		m.mirror = past{} // the mirror may have begun anew
	}
	m.looked = is
	switch {
	case is.Cloud == link.Down:
		m.status.Failing = false
	case !is.History.Sure && is.History.Failing:
		m.status.Failing = true // the history's question went unanswered, so the feed's would
	case is.History.Sure && !was.History.Sure, !is.History.Sure && is.History.Refused != "":
		m.status.Failing = false // it was answered: a feed that a mirror feeds does not ask the cloud itself
	}
	if m.running.From == None {
		m.held = e.Position
		if !is.History.Sure && is.History.Refused != "" && is.Cloud.Reachable() {
			m.status.Fresh, m.status.Refused, m.status.Stranger = false, is.History.Refused, is.History.Stranger
		}
	}
	if m.running.current {
		m.caughtUp(m.running.From) // the mirror may be covered only now
	}
	return later
}

// situation returns the Situation for Choose.
func (m *Machine) situation(e Event) Situation {
	s := Situation{
		Role:        m.looked.Standing.Role,
		Pool:        m.config.Pool,
		LeaderKnown: m.looked.Standing.Leader != "",
		Covered:     m.looked.Covered,
		Filling:     m.looked.Filling,
		Empty:       m.held == 0,
		Listing:     m.running.From == Cloud && m.running.List,
	}
	if m.looked.Cloud.Reachable() {
		s.Cloud = m.cloud.access(e.At, false, m.held)
		if h := m.looked.History; m.held != 0 && (e.Counted < h.Number || m.held < h.Floor && m.floor != h.Floor) {
			s.Cloud = Expired // the sink's content belongs to another history, or may
		}
	}
	if m.looked.Coordinator == link.Up {
		m.mirror.observe(e)
		s.Coordinator = m.mirror.access(e.At, s.Listing, e.Position)
	}
	return s
}

// decide fills in d what must stop and what may begin.
func (m *Machine) decide(e Event, d *Decision) {
	s := m.situation(e)
	m.choose(e, s)
	due := m.due(s)
	if m.choice.From == Cloud {
		if m.foreign && !m.choice.List && !e.At.Before(due) {
			m.foreign, d.Prove = false, true
			return
		}
		if !m.looked.History.Sure {
			due = e.At.Add(time.Minute) // a change of the State wakes it before
		}
	}
	ripe := !e.At.Before(due)
	switch idle := m.running.From == None; {
	case !idle && !m.running.calledOff && m.gives(ripe):
		m.running.calledOff, d.Stop = true, true
	case !idle || m.choice.From == None:
	case !ripe:
		if p := m.choice.Meanwhile; p != None && !e.At.Before(m.past(p).notBefore) {
			d.Start = m.start(e, p, false)
		}
	case m.choice.From == Cloud && m.choice.List && e.What != Happening(Admitted{}):
		d.Admit = true
	default:
		d.Start = m.start(e, m.choice.From, m.choice.List)
	}
	d.Wake = m.wake(e.At, due)
}

// wake returns the first time after now at which something is due, or may have changed by itself.
func (m *Machine) wake(now, due time.Time) (first time.Time) {
	times := []time.Time{due, m.looked.History.Alone}
	for _, p := range []*past{&m.cloud, &m.mirror} {
		times = append(times, p.notBefore, p.prompt, p.doubted, p.until, p.recheck)
	}
	for _, t := range times {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// choose records the best choice, and since when it is the best.
func (m *Machine) choose(e Event, s Situation) {
	switch needed := s.Cloud != Down && (s.Empty || s.Cloud == Expired); {
	case !needed:
		m.needs = time.Time{}
	case m.needs.IsZero():
		m.needs = e.At
	}
	c := Choose(s)
	switch {
	case m.demand == asking:
		c = refreshed(s, c)
	case m.demand == waiting && c.From == Cloud && c.List && !s.Empty:
		c.After, c.Jitter = 0, 0
	}
	if c == m.choice {
		return
	}
	if c.Jitter != m.choice.Jitter {
		m.drawn = e.Chance
	}
	m.choice, m.since = c, e.At
}

// due returns when the chosen attempt may begin.
func (m *Machine) due(s Situation) time.Time {
	c, p, due := m.choice, m.past(m.choice.From), m.since
	if c.From == Cloud && c.List {
		due = m.needs
	}
	due = due.Add(c.After + time.Duration(m.drawn*float64(c.Jitter)))
	pause := p.notBefore
	if waits := m.demand != nobody || s.Role == lead.Leader; waits && !p.prompt.IsZero() && p.prompt.Before(pause) {
		pause = p.prompt
	}
	if c.List && p.doubted.After(pause) {
		pause = p.doubted
	}
	if pause.After(due) {
		return pause
	}
	return due
}

// gives reports whether the running attempt must end in favour of the chosen one.
func (m *Machine) gives(ripe bool) bool {
	switch from := m.running.From; {
	case m.choice.From == from:
		// A running list may end, even if a resume was chosen meanwhile.
		return m.choice.List && !m.running.List
	case m.choice.From == None, from == Cloud && !m.looked.Cloud.Reachable(),
		from == Coordinator && m.looked.Coordinator != link.Up:
		return true
	default:
		return ripe
	}
}

func (m *Machine) past(o Origin) *past {
	if o == Coordinator {
		return &m.mirror
	}
	return &m.cloud
}

// start begins an attempt.
func (m *Machine) start(e Event, from Origin, list bool) Attempt {
	m.running.Attempt = Attempt{
		From: from, List: list, History: m.looked.History.Number, Floor: m.looked.History.Floor,
		Choice: m.looked.Cloud.Answers(), Why: m.choice.Why,
	}
	m.running.refresh = list && m.demand == asking
	if list && from == Cloud && m.config.Pages {
		m.running.Pages = !m.whole
		m.running.Continue = m.running.Pages && m.keeps(e) && !m.running.refresh // who asks means now, not when the list began
	}
	if m.running.refresh {
		m.demand = waiting
	}
	m.foreign = m.foreign && from == Cloud && !list || from == Coordinator
	return m.running.Attempt
}

// caughtUp records that the sink has everything that a source has.
func (m *Machine) caughtUp(from Origin) {
	if from == Coordinator && !m.looked.Covered {
		return // the mirror may be complete, but as of any time in the past
	}
	m.status.Fresh, m.demand = true, nobody
}

// ended records the end of the running attempt, and reports whether it casts doubt on the cloud's history.
func (m *Machine) ended(e Event, o Ended) (shaken bool) {
	ran := m.running
	m.running.Attempt, m.running.refresh, m.running.current, m.running.calledOff = Attempt{}, false, false, false
	moved := e.Position != m.held
	m.held = e.Position
	p := m.past(ran.From)
	if ran.List && ran.From == Cloud {
		m.keep(e, ran.Attempt, o)
	}
	if ran.calledOff && o.calledOff() {
		return false // a better source was chosen: this says nothing about this one
	}
	if o.Told || o.Lived >= shortLife || ran.List && o.Err == nil {
		m.shown = true
		if ran.From == Cloud && !ran.List {
			m.heard = e.At
		}
	}
	policy := m.policy()
	p.note(e, ran.Attempt, o, policy.Pause()+time.Duration(e.Chance*float64(policy.Spread())))
	if moved && ran.From == Cloud && m.mirror.is == Stale {
		m.mirror.until = time.Time{}
	}
	s := &m.status
	s.Live, s.Refused, s.Stranger, s.Denied = false, "", false, false
	if o.Err != nil && (!p.notBefore.IsZero() || errors.Is(o.Err, errDoubtful)) {
		s.Refused, s.Stranger, s.Denied = o.Err.Error(), stranger(o.Err), deniedPast(o.Err) && !stranger(o.Err)
	}
	if ran.From == Cloud {
		s.Failing = o.failing() && m.looked.Cloud != link.Down
		s.Fresh = s.Fresh && !o.refused()
	}
	if ran.List && ran.From == Cloud && o.Err == nil {
		m.floor = ran.Floor
	}
	if ran.List && o.Err == nil {
		m.caughtUp(ran.From)
	}
	return ran.From == Cloud && o.shaken()
}

// fetched decides what to do with a list that has arrived. If the Machine does not apply the list, the attempt has ended.
func (m *Machine) fetched(e Event, l Fetched) (d Decision) {
	err := context.Canceled
	if !m.running.calledOff {
		d, err = m.worth(e, l)
	}
	if err != nil {
		err = fmt.Errorf("list %s at the %s: %w", m.config.Name, m.running.From, err)
	}
	if !d.Apply {
		m.ended(e, Ended{Err: err})
	}
	if d.Apply && d.Raise > m.looked.History.Number {
		m.looked.Covered = false // what the leader has declared is of an earlier history
	}
	return d
}

// worth decides whether to apply a list. If not, it returns an error, with one exception. If a client asked for the list, and it
// is of the mirror, of the sink's history and not newer than the sink, there is nothing to apply, and worth returns no error.
func (m *Machine) worth(e Event, l Fetched) (d Decision, err error) {
	ran, position := m.running, e.Position
	switch {
	case l.Revision == 0:
		return d, errors.New("it has no revision")
	case ran.From == Coordinator && l.History > e.History.Number && !l.History.Believable():
		return d, fmt.Errorf("it is of history %s, which no cloud reaches; ours is %s", l.History, e.History.Number)
	case ran.From == Coordinator && position != 0 && l.History < e.Counted:
		return d, fmt.Errorf("%w: it is of history %s, ours is %s", errNotNewer, l.History, e.Counted)
	case l.History > e.Counted:
		d.Raise, position = l.History, 0 // revisions of two histories cannot be compared
	}
	switch {
	case ran.From == Cloud:
		return m.believe(e, l, position, d)
	case l.Revision > position:
		d.Apply = true
	case !ran.refresh:
		err = fmt.Errorf("%w: it is of revision %s, ours is %s", errNotNewer, l.Revision, position)
	}
	return d, err
}

// believe decides whether to apply a list from the cloud.
func (m *Machine) believe(e Event, l Fetched, position edge.Revision, d Decision) (Decision, error) {
	policy := m.policy()
	if l.Revision >= position {
		m.older.Clear()
	} else if !m.older.Offer(e.At, policy) {
		return d, fmt.Errorf("%w: it is of revision %s, and what is here of %s", errDoubtful, l.Revision, position)
	}
	minimum := doubt.Minimum
	if m.config.Precious && !m.heard.IsZero() && e.At.Sub(m.heard) < preciousFor {
		minimum = 1
	}
	if err := m.guard.Check(e.At, policy, minimum, l.Have, l.Lost); err != nil {
		return d, fmt.Errorf("%w: %w", errDoubtful, err)
	}
	m.older.Clear()
	if d.Apply = true; l.Revision < position || l.WentBack && position != 0 {
		d.Raise = m.running.History + 1 // the cloud's history was set back: within one history nothing goes back
	}
	return d, nil
}

// policy returns for how long to doubt a list from the cloud that contradicts the sink. The list's history does not matter,
// because a cloud that has lost everything also looks like a later history.
func (m *Machine) policy() doubt.Policy {
	if m.shown {
		return doubt.Shown()
	}
	return doubt.Restored()
}
