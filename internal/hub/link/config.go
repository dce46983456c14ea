package link

import (
	"context"
	"time"

	"yurtcoordinator/internal/ends"
)

const (
	// failAfter is the number of answers in a row with 502, 503 or 504, to core reads or requests for Leases, that make the
	// link failing.
	failAfter = 2
	// serveAfter is the number of other answers in a row that end it. It grows by one, up to serveAfterMax, each time the link is
	// failing again within Timing.FlapWindow.
	serveAfter, serveAfterMax = 2, 4
	// checkTimeout is how long a check may take.
	checkTimeout = 10 * time.Second
)

// Timing says how fast a link is judged, and so what it costs while nothing else crosses it. A hub has Standard, Metered or
// Satellite for the cloud, and Near for its pool's coordinator, or Beside if there are several; Nowhere while it knows of none.
type Timing struct {
	// Interval is the time without anything from the other end after which a link that is not down is probed.
	Interval time.Duration
	// Quiet is the time without an answer after which it is probed though bytes arrive: more than Interval.
	Quiet time.Duration
	// Knocks: until Quiet, a question needs no answer but an acknowledgement (see Knock).
	Knocks bool
	// MinPatience and MaxPatience bound how long nothing may arrive after a question before the link is down. In between it is
	// twice what TCP would wait for an answer (RFC 6298: the smoothed round trip and four times its variance).
	MinPatience, MaxPatience time.Duration
	// Trust is how long bytes may arrive, and no answer, before the link is down. It is less than Kubernetes' grace period for a
	// node (40 s) less two of kubelet's heartbeats.
	Trust time.Duration
	// MinRepeat is the least time after which an unanswered probe is repeated on a connection of its own; else one and a half
	// times what TCP would wait.
	MinRepeat time.Duration
	// DeepAfter is the time without an answer of the API after which a probe asks it, not its connection alone.
	DeepAfter time.Duration
	// DownInterval is the time between the starts of two probes while the link is down, shortened at random by up to a fifth so
	// that the nodes of a healed site do not probe in step.
	DownInterval time.Duration
	// DownTimeout is how long such a probe may take at first. It grows by half with each that gets no answer, up to
	// MaxDownTimeout: a line that came back slower than it was is found, too.
	DownTimeout, MaxDownTimeout time.Duration
	// ConfirmInterval is the time from the start of an answered probe to the next one while the link is down.
	ConfirmInterval time.Duration
	// MinGap is the least time between the starts of two probes, however urgent. It bounds how many probes failing traffic and
	// refused probes can cause.
	MinGap time.Duration
	// DownAfter is the number of refused probes in a row that take the link down.
	DownAfter int
	// UpAfter is the number of answered probes in a row that bring the link up again. From Unknown, one does.
	UpAfter int
	// UpAfterMax bounds UpAfter, which grows by one each time the link goes down within FlapWindow of having come up.
	UpAfterMax int
	// FlapWindow is the time that a link must stay up for its past to be forgotten.
	FlapWindow time.Duration
	// CheckInterval is the time between two checks while the link is failing, shortened at random by up to a fifth. A check that
	// was answered well is repeated after ConfirmInterval.
	CheckInterval time.Duration
}

// Standard is the timing of a hub that nobody told otherwise (DESIGN §8: a silent cut of a good line is noticed within 8 s). Its
// patience outlasts a queue of 512 KB that fills at once on a line of 1 Mbit/s, 4.2 s.
func Standard() Timing {
	return Timing{
		Interval:    2600 * time.Millisecond, // three probes between two of kubelet's heartbeats, which are 10 s apart
		Quiet:       10400 * time.Millisecond,
		Knocks:      true,
		MinPatience: 5200 * time.Millisecond,
		MaxPatience: 15 * time.Second,
		Trust:       20 * time.Second,
		MinRepeat:   time.Second,
		DeepAfter:   30 * time.Second,

		DownInterval:    time.Second,
		DownTimeout:     3 * time.Second, // three round trips, and one lost SYN, which is sent again after 1 s
		MaxDownTimeout:  10 * time.Second,
		ConfirmInterval: 500 * time.Millisecond,
		MinGap:          200 * time.Millisecond,
		DownAfter:       2,
		UpAfter:         2,
		UpAfterMax:      4, // about 3 s from healing to up
		FlapWindow:      time.Minute,
		CheckInterval:   3 * time.Second,
	}
}

// Metered is the timing of a hub that pays for each byte: kubelet's heartbeats are all the proof it needs while they are
// answered, and a silent cut is noticed within 18 s.
func Metered() Timing {
	t := Standard()
	t.Interval, t.Quiet = 11*time.Second, 22*time.Second
	t.Knocks = false // it asks when a heartbeat is missing, and then wants an answer
	t.MinPatience = 7 * time.Second
	t.MinRepeat = 2 * time.Second
	t.DeepAfter = 2 * time.Minute
	t.DownInterval = 2 * time.Second
	t.CheckInterval = 10 * time.Second
	return t
}

// Satellite is the timing for round trips of most of a second that vary: a silent cut is noticed within 13 s.
func Satellite() Timing {
	t := Standard()
	t.Interval, t.Quiet = 5*time.Second, 15*time.Second
	t.MinPatience = 8 * time.Second
	t.MinRepeat = 2 * time.Second
	t.DownTimeout = 6 * time.Second
	t.DownInterval = 2 * time.Second
	t.ConfirmInterval = time.Second
	return t
}

// Near is the timing for who is on the same LAN, where probes cost nothing: silence is noticed within 5 s.
func Near() Timing {
	t := Standard()
	t.Interval, t.Quiet = 2*time.Second, 8*time.Second
	t.Knocks = false
	t.MinPatience = 3 * time.Second
	return t
}

// Beside is the timing for one of several on the same LAN. Silence is noticed within 3 s, and who is wrong about it loses
// nothing: another takes the place.
func Beside() Timing {
	t := Near()
	t.Interval, t.Quiet = time.Second, 4*time.Second
	t.MinPatience = 2 * time.Second
	return t
}

// Nowhere is the timing for who is not known to be anywhere: asking costs processor time, and nobody answers. Give it another
// once that is known.
func Nowhere() Timing {
	t := Near()
	t.DownInterval = 30 * time.Second
	return t
}

// Ask is how a probe asks.
type Ask uint8

const (
	// Ping asks the other end of a connection that is there.
	Ping Ask = iota
	// Get asks the API over a connection that is there.
	Get
	// Fresh asks the API over a connection of its own.
	Fresh
	// Knock asks for an acknowledgement on a connection that is there, which costs half of a Ping. Whoever ends the connection
	// on the way may give it, so it counts as bytes that arrived, not as an answer.
	Knock
)

// String returns "ping", "get", "fresh" or "knock".
func (a Ask) String() string {
	return [...]string{Ping: "ping", Get: "get", Fresh: "fresh", Knock: "knock"}[a]
}

// Config is what a Monitor needs.
type Config struct {
	Timing
	// Check, if not nil, makes one cheap core read, and reports what was answered to Monitor.CoreAnswered before it
	// returns. Without it the link is never failing. It must return soon after its context ends.
	Check func(ctx context.Context)
	// Probe asks the server one cheap question and returns nil if it answered, however. An error that comes before ctx ends is
	// a refusal, unless it is a time-out. It must return soon after its context ends.
	Probe func(ctx context.Context, ask Ask) error
	// Heard, if not nil, returns when bytes of the verified other end last arrived; zero if never.
	Heard func() time.Time
	// WentDown is called by Run each time the link went down, after State has changed and before the next probe, with the
	// reason. It must not block.
	WentDown func(cause error)
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}
