package link

import (
	"context"
	"time"

	"yurtcoordinator/internal/ends"
)

const (
	// failAfter is the number of failing answers in a row that make the link failing (see Monitor.CoreAnswered).
	failAfter = 2
	// serveAfter is the number of good answers in a row after which the link is no longer failing. The number grows by one, up to
	// serveAfterMax, each time the link is failing again within Timing.FlapWindow.
	serveAfter, serveAfterMax = 2, 4
	// checkTimeout is how long a check may take.
	checkTimeout = 10 * time.Second
)

// Timing says how fast a Monitor judges a link, and thereby how much traffic an idle link costs. For the cloud a hub uses
// Standard, Metered or Satellite. For a coordinator it uses Near, or Beside if the pool has several, or Nowhere while it knows no
// address.
type Timing struct {
	// Interval is the time without anything from the other end after which a link that is not down is probed.
	Interval time.Duration
	// Quiet is the time without an answer after which the link is probed even though bytes arrive. It is more than Interval.
	Quiet time.Duration
	// Knocks says that until Quiet a probe needs only an acknowledgement, not an answer (see Knock).
	Knocks bool
	// MinPatience and MaxPatience bound Machine.Patience: how long the link may be silent after a probe before it counts as down.
	// Between these bounds it is twice TCP's retransmission timeout (RFC 6298: smoothed round trip plus four times its variance).
	MinPatience, MaxPatience time.Duration
	// Trust is how long bytes may arrive without an answer before the link counts as down. Trust plus two intervals of kubelet's
	// heartbeats (10 s each) must be less than Kubernetes' grace period for a node (50 s by default).
	Trust time.Duration
	// MinRepeat is the least time that a probe waits for its answer before the hub also probes over a new connection. The time is
	// 1.5 times TCP's retransmission timeout if that is longer.
	MinRepeat time.Duration
	// DeepAfter is the time without an answer of the API after which a probe asks it, not its connection alone.
	DeepAfter time.Duration
	// DownInterval is the time between the starts of two probes while the link is down. It is shortened at random by up to a
	// fifth, so that the nodes of a site do not all probe at once.
	DownInterval time.Duration
	// DownTimeout is how long the first probe may take after the link has gone down, or three of TCP's retransmission timeouts if
	// that is longer. Each probe without an answer makes the next timeout half as long again, up to MaxDownTimeout. So a link
	// that comes back slower is also found.
	DownTimeout, MaxDownTimeout time.Duration
	// ConfirmInterval is the time from the start of an answered probe to the next one while the link is down.
	ConfirmInterval time.Duration
	// MinGap is the least time between the starts of two probes, however urgent the next one is. It bounds how many probes
	// failing traffic and refused probes can cause.
	MinGap time.Duration
	// DownAfter is the number of refused probes in a row that take the link down.
	DownAfter int
	// UpAfter is the number of answered probes in a row that bring the link up again. From Unknown, one does.
	UpAfter int
	// UpAfterMax bounds UpAfter, which grows by one each time the link goes down within FlapWindow of having come up.
	UpAfterMax int
	// FlapWindow is the time that a link must stay up for its past to be forgotten.
	FlapWindow time.Duration
	// CheckInterval is the time between two checks while the link is failing, shortened at random by up to a fifth. After a good
	// answer, the next check follows after ConfirmInterval.
	CheckInterval time.Duration
}

// Standard is a hub's default timing: it notices a silent cut of a good line within 8 s. MinPatience is longer than the 4.2 s by
// which a full queue of 512 KB delays an answer on a line of 1 Mbit/s.
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

// Metered is the timing of a hub that pays for each byte. While the cloud answers kubelet's heartbeats, the hub needs no
// probes. It notices a silent cut within 18 s.
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

// Near is the timing for a server on the same LAN, where probes cost nothing: silence is noticed within 5 s.
func Near() Timing {
	t := Standard()
	t.Interval, t.Quiet = 2*time.Second, 8*time.Second
	t.Knocks = false
	t.MinPatience = 3 * time.Second
	return t
}

// Beside is the timing for one of several coordinators on the same LAN. It notices silence within 3 s. A wrong verdict costs
// nothing, because another coordinator takes over.
func Beside() Timing {
	t := Near()
	t.Interval, t.Quiet = time.Second, 4*time.Second
	t.MinPatience = 2 * time.Second
	return t
}

// Nowhere is the timing for a server whose address is not known. Probes are rare, because they cost processor time and nobody
// answers. The caller changes the timing once it knows the address.
func Nowhere() Timing {
	t := Near()
	t.DownInterval = 30 * time.Second
	return t
}

// Ask is how a probe asks.
type Ask uint8

const (
	// Ping pings the other end over an open connection.
	Ping Ask = iota
	// Get asks the API over an open connection.
	Get
	// Fresh asks the API over a new connection.
	Fresh
	// Knock asks for an acknowledgement on an open connection, which costs half of a Ping. A middlebox that terminates TCP may
	// send the acknowledgement, so a Knock counts as arrived bytes and not as an answer.
	Knock
)

// String returns "ping", "get", "fresh" or "knock".
func (a Ask) String() string {
	return [...]string{Ping: "ping", Get: "get", Fresh: "fresh", Knock: "knock"}[a]
}

// Config is what a Monitor needs.
type Config struct {
	Timing
	// Check makes one cheap core read, and reports the answer to Monitor.CoreAnswered before it returns. Check must return soon
	// after its context ends. If it is nil, the link is never failing.
	Check func(ctx context.Context)
	// Probe asks the server one cheap question, and returns nil for any answer. An error before ctx ends is a refusal, unless it
	// is a timeout. Probe must return soon after ctx ends.
	Probe func(ctx context.Context, ask Ask) error
	// Heard, if not nil, returns when bytes of the verified other end last arrived; zero if never.
	Heard func() time.Time
	// WentDown is called by Run with the reason, each time the link goes down. By then the Monitor's State has changed, and the
	// next probe has not begun. WentDown must not block.
	WentDown func(cause error)
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}
