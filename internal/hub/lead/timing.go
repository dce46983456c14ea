package lead

import (
	"time"

	"yurtcoordinator/internal/edge"
)

// The times of an election. A leader must have stopped before any other hub may lead:
//
//	max(renewEvery, writeTimeout) + retryPeriod + renewDeadline + leadGrace < leaseDuration
//	             1 s              +    0.1 s    +      2 s      +   0.5 s   <      4 s
//
// The left side is the longest that a leader continues after it sent its last acknowledged renewal. The elector counts from the
// last successful Update of the lock. That may be renewEvery after the renewal was sent, because until then Update succeeds
// without a write. Or it may be writeTimeout after, because the answer may take that long. Then the elector waits for retryPeriod
// and retries for renewDeadline. After that, the duty gets leadGrace to return.
//
// The right side is the shortest that another hub waits after it saw that renewal, which is later than it was sent. Each side
// uses its own monotonic clock; no wall clocks are compared.
//
// A Term is valid for at most leaseDuration - fenceMargin after the leader sent that renewal, even if the scheduler delays the
// leader.
const (
	// leaseDuration is how long other hubs wait after the last renewal that they saw. Polling adds a little: a new leader follows
	// at most 4.3 s after the crash of the former, within the budget of 5 s.
	leaseDuration = edge.ElectionTerm

	// renewDeadline is how long a leader that cannot renew keeps trying.
	renewDeadline = 2 * time.Second

	// retryPeriod is how often the elector asks its lock; a follower's lock answers only when there is something new.
	retryPeriod = 100 * time.Millisecond

	// pollMax is the longest pause between two polls of a follower, because client-go draws the pause between 1 and 2.2 times
	// retryPeriod. It bounds how long a released Lease stays unclaimed.
	pollMax = 220 * time.Millisecond

	// renewEvery is the least time between two renewals that are written.
	renewEvery = time.Second

	// writeTimeout bounds each request to the coordinator.
	writeTimeout = time.Second

	// refusedPause is how long a hub waits after the coordinator has refused to let it lead.
	refusedPause = 500 * time.Millisecond

	// unfitPause is how long a hub that could not do a leader's duty waits while another leads.
	unfitPause = 30 * time.Second

	// yieldWait is how long other hubs leave a yielded Lease to its heir. It is enough for some attempts of the heir, and less
	// than the budget for a change of leader.
	yieldWait = 2 * time.Second

	// leadGrace is how long a duty may take to return once its context has ended, before the Lease is released anyway.
	leadGrace = 500 * time.Millisecond

	// fenceMargin is how much earlier than leaseDuration a term stops being valid.
	fenceMargin = 500 * time.Millisecond

	// backoffMin and backoffMax bound the pause before the next campaign if a duty, or the proof before it, has failed
	// (run.Backoff). A campaign that lasted for steadyTerm resets the pause to backoffMin.
	backoffMin = time.Second
	backoffMax = 30 * time.Second
	steadyTerm = time.Minute
)
