package feed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/history"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/role"
)

// preciousFor is for how long after the cloud's last word few objects are guarded, too (Config.Precious): as long as the
// three lists of a doubt with their pauses take, twice over.
const preciousFor = 90 * time.Second

var (
	// errNotNewer says that a mirror's snapshot is of no use.
	errNotNewer = errors.New("the snapshot is not newer than what is here")
	// errDoubtful says that a list of the cloud is not believed yet.
	errDoubtful = errors.New("the list is not believed yet")
)

// Event is something that a Machine is told, and how all that it follows stands at that moment.
type Event struct {
	At time.Time
	// Chance was drawn for this step, from [0, 1).
	Chance float64
	// Position and Counted are the sink's revision, and the history that it counts in.
	Position edge.Revision
	Counted  edge.History
	Looked
	// What has happened. nil means that time has passed, or that what is looked at has changed.
	What Happening
}

// after is the time after a pause, and up to a part of it more.
func (e Event) after(pause, part time.Duration) time.Time {
	return e.At.Add(pause + time.Duration(e.Chance*float64(part)))
}

// Looked is how the surroundings of a feed stand.
type Looked struct {
	Cloud, Coordinator link.State
	Standing           role.Standing
	// Covered: the leader declares that the mirror is complete, in the history Declared.
	Covered  bool
	Declared edge.History
	// History is what is known of the cloud's.
	History history.State
}

// Happening is one of Opened, CaughtUp, Fetched, Ended, Admitted and Refreshed.
type Happening any

type (
	// Opened says that the watch under way is open.
	Opened struct{}
	// CaughtUp says that it has told what it had to replay.
	CaughtUp struct{}
	// Fetched says that the list under way has come, as of a Revision of a History. It lacks Lost of the Have objects that
	// the sink has. WentBack: one that it has is as it was before what the sink has.
	Fetched struct {
		Revision   edge.Revision
		History    edge.History
		Have, Lost int
		WentBack   bool
	}
	// Ended says that the attempt under way is over. Err is nil for a list that was applied.
	Ended struct {
		Err error
		// Opened: it was a watch that was open, for the time Lived, and Told something.
		Opened, Told bool
		Lived        time.Duration
	}
	// Admitted says that it is this feed's turn to list over the WAN.
	Admitted struct{}
	// Refreshed says that somebody waits for what is so now.
	Refreshed struct{}
)

// Attempt is a list or a resume.
type Attempt struct {
	From Origin
	List bool
	// History is what is read at the cloud counts in.
	History edge.History
	// Choice: the cloud could be asked when it began, so that a mirror need not be waited for.
	Choice bool
	// Why is for people.
	Why string
}

// Decision is what must be done after an event, in the order of the fields.
type Decision struct {
	// Raise, Shaken and Prove are what the History must be told; Raise is 0 if there is nothing. Nothing begins in such a
	// step: Step again at once, with what has become of it.
	Raise         edge.History
	Shaken, Prove bool
	// Apply the list that has come, in the history Raise if that is not 0, and tell by Ended how that went.
	Apply bool
	// Stop calls off the attempt under way, which then tells by Ended when nothing of it is left.
	Stop bool
	// Start is the attempt that begins; from None if none does.
	Start Attempt
	// Admit asks for Admitted: a list over the WAN waits for its turn.
	Admit bool
	// Wake is when to Step again, if nothing happens before; zero means never.
	Wake time.Time
	// Status is how the feed stands then.
	Status Status
}

// settled reports whether the surroundings are as they were when it was decided.
func (d Decision) settled() bool { return d.Raise == 0 && !d.Shaken && !d.Prove }

// demand is who waits for what is so now.
type demand uint8

const (
	nobody demand = iota
	// asking: somebody does, and a list is due for that, though a resume might do.
	asking
	// waiting: the same, and the list has been tried.
	waiting
)

// MachineConfig is what a Machine is made for.
type MachineConfig struct {
	// Name is what errors call the resource.
	Name string
	// Pool: the hub has a coordinator. Precious is Config.Precious.
	Pool, Precious bool
}

// Machine decides all that a Feed does: where the sink is fed from, whether by a list or a resume, when to try again, and what
// is believed. It has no clock, draws nothing and does no I/O. Make one with NewMachine; it is used by one goroutine.
type Machine struct {
	config MachineConfig
	looked Looked
	held   edge.Revision // the sink's position while nothing runs

	running struct { // from None: nothing runs
		Attempt
		refresh   bool // it is made for somebody who waits
		current   bool // it has caught up
		calledOff bool
	}
	cloud, mirror past
	guard         doubt.Guard
	older         doubt.Doubt // of lists of the cloud that are older than what the sink has

	heard   time.Time // until when a watch of the cloud has told what is so; zero means that none has
	shown   bool      // a source has shown what is so; until then the sink's content is the disk's
	foreign bool      // the sink's content did not come from the cloud alone since it was last proven
	demand  demand

	needs  time.Time // since when the cloud is up and a list is needed; zero if it is not
	choice Choice
	since  time.Time // when it was chosen
	drawn  float64   // of the random part of its wait

	status Status
}

// NewMachine returns the machine of a feed whose sink stands at a position.
func NewMachine(c MachineConfig, position edge.Revision) *Machine {
	return &Machine{config: c, held: position, foreign: position != 0}
}

// Step takes in an event and returns what must be done now.
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
	d.Raise = m.look(e)
	if d.settled() {
		m.decide(e, &d)
	}
	switch s := &m.status; {
	case m.running.From != None && s.Source != m.running.From:
		s.Source, s.Live = m.running.From, false
	case m.running.From == None && m.choice.From == None:
		s.Source, s.Live = None, false
	}
	d.Status = m.status
	return d
}

// heardOf takes in what has become of what runs.
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

// look takes in how the surroundings stand, and returns the history that others know of, if it is later than ours.
func (m *Machine) look(e Event) (later edge.History) {
	is, was := e.Looked, m.looked
	if is.Covered && is.Declared > is.History.Number {
		later = is.Declared
	}
	is.Covered = is.Covered && is.Declared == is.History.Number
	if is.Cloud == link.Up && was.Cloud != link.Up {
		m.cloud.recovered()
	}
	if is.Coordinator == link.Up && was.Coordinator != link.Up || is.Covered && !was.Covered {
		m.mirror = past{} // it may have begun anew
	}
	m.looked = is
	switch {
	case is.Cloud == link.Down:
		m.status.Failing = false
	case !is.History.Sure && is.History.Failing:
		m.status.Failing = true // another has asked for all
	}
	if m.running.From == None {
		m.held = e.Position
	}
	if m.running.current {
		m.caughtUp(m.running.From) // the mirror may be covered only now
	}
	return later
}

// situation is what the choice depends on.
func (m *Machine) situation(e Event) Situation {
	s := Situation{
		Role:        m.looked.Standing.Role,
		Pool:        m.config.Pool,
		LeaderKnown: m.looked.Standing.Leader != "",
		Covered:     m.looked.Covered,
		Empty:       m.held == 0,
		Listing:     m.running.From == Cloud && m.running.List,
	}
	if m.looked.Cloud.Reachable() {
		s.Cloud = m.cloud.access(e.At, false, m.held)
		if h := m.looked.History; m.held != 0 && (e.Counted < h.Number || m.held < h.Floor) {
			s.Cloud = Expired // what the sink has is of another history, or may be
		}
	}
	if m.looked.Coordinator == link.Up {
		m.mirror.look(e)
		s.Coordinator = m.mirror.access(e.At, s.Listing, e.Position)
	}
	return s
}

// decide says what must stop and what may begin.
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
			due = e.At.Add(time.Minute) // its change is waited for
		}
	}
	ripe := !e.At.Before(due)
	switch idle := m.running.From == None; {
	case !idle && !m.running.calledOff && m.gives(ripe):
		m.running.calledOff, d.Stop = true, true
	case !idle || m.choice.From == None:
	case !ripe:
		if p := m.choice.Meanwhile; p != None && !e.At.Before(m.past(p).notBefore) {
			d.Start = m.start(p, false)
		}
	case m.choice.From == Cloud && m.choice.List && e.What != Happening(Admitted{}):
		d.Admit = true
	default:
		d.Start = m.start(m.choice.From, m.choice.List)
	}
	d.Wake = m.wake(e.At, due)
}

// wake is the first moment after now at which something is due, or may have changed by itself.
func (m *Machine) wake(now, due time.Time) (first time.Time) {
	times := []time.Time{due}
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

// choose finds the best choice, and notes since when it is.
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

// due is when what was chosen may begin.
func (m *Machine) due(s Situation) time.Time {
	c, p, due := m.choice, m.past(m.choice.From), m.since
	if c.From == Cloud && c.List {
		due = m.needs
	}
	due = due.Add(c.After + time.Duration(m.drawn*float64(c.Jitter)))
	pause := p.notBefore
	if waits := m.demand != nobody || s.Role == role.Leader; waits && !p.prompt.IsZero() && p.prompt.Before(pause) {
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

// gives reports whether what runs must give way to what was chosen.
func (m *Machine) gives(ripe bool) bool {
	switch from := m.running.From; {
	case m.choice.From == from:
		// What became of the wish to resume is seen when the list has ended.
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
func (m *Machine) start(from Origin, list bool) Attempt {
	m.running.Attempt = Attempt{
		From: from, List: list, History: m.looked.History.Number, Choice: m.looked.Cloud == link.Up, Why: m.choice.Why,
	}
	m.running.refresh = list && m.demand == asking
	if m.running.refresh {
		m.demand = waiting
	}
	m.foreign = m.foreign && from == Cloud && !list || from == Coordinator
	return m.running.Attempt
}

// caughtUp takes in that the sink has all that a source has.
func (m *Machine) caughtUp(from Origin) {
	if from == Coordinator && !m.looked.Covered {
		return // complete it may be, but as of some day
	}
	m.status.Fresh, m.demand = true, nobody
}

// ended takes in the end of what ran, and reports whether that gives cause to doubt the cloud's history.
func (m *Machine) ended(e Event, o Ended) (shaken bool) {
	ran := m.running
	m.running.Attempt, m.running.refresh, m.running.current, m.running.calledOff = Attempt{}, false, false, false
	moved := e.Position != m.held
	m.held = e.Position
	p := m.past(ran.From)
	p.hear(ran.Attempt, o, e.Position)
	if ran.calledOff && o.calledOff() {
		return false // for something better: it says nothing of the source
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
		s.Refused, s.Stranger, s.Denied = o.Err.Error(), stranger(o.Err), denied(o.Err) && !stranger(o.Err)
	}
	if ran.From == Cloud {
		s.Failing = o.failing() && m.looked.Cloud != link.Down
	}
	if ran.List && o.Err == nil {
		m.caughtUp(ran.From)
	}
	return ran.From == Cloud && o.shaken()
}

// fetched says what becomes of a list that has come. One that is not applied has ended with that.
func (m *Machine) fetched(e Event, l Fetched) (d Decision) {
	err := context.Canceled
	if !m.running.calledOff {
		d, err = m.judge(e, l)
	}
	if err != nil {
		err = fmt.Errorf("list %s at the %s: %w", m.config.Name, m.running.From, err)
	}
	if !d.Apply {
		m.ended(e, Ended{Err: err})
	}
	return d
}

// judge says whether a list is applied, and why not. It is not applied either if the sink has as much.
func (m *Machine) judge(e Event, l Fetched) (d Decision, err error) {
	ran, position := m.running, e.Position
	switch {
	case l.Revision == 0:
		return d, errors.New("it has no revision")
	case ran.From == Coordinator && position != 0 && l.History < e.Counted:
		return d, fmt.Errorf("%w: it is of history %s, ours is %s", errNotNewer, l.History, e.Counted)
	case l.History > e.Counted:
		d.Raise, position = l.History, 0 // revisions of two histories do not compare
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

// believe says whether a list of the cloud is applied.
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
		d.Raise = m.running.History + 1 // the cloud's history was set back: within one, nothing goes back
	}
	return d, nil
}

// policy is how a list of the cloud is doubted that contradicts what the sink has. A later history changes nothing: a cloud
// that has lost all looks like another one.
func (m *Machine) policy() doubt.Policy {
	if m.shown {
		return doubt.Shown()
	}
	return doubt.Restored()
}
