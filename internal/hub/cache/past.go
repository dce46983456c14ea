package cache

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// backoffMin and backoffMax bound the pause after a failure at a source.
	backoffMin = 100 * time.Millisecond
	backoffMax = 30 * time.Second

	// deniedPause is the pause, and half as much again at random, after an answer that waiting seldom changes: no
	// permission, no such resource.
	deniedPause = 20 * time.Second
	// deniedFirst is the first such pause; the second is twice as long, and so on.
	deniedFirst = time.Second

	// promptPause is the pause after such an answer while somebody waits for a better one, as a leader's pool does, and a
	// quarter as much again at random.
	promptPause = 4 * time.Second

	// mirrorPause is how long a mirror that refused, or was useless, is left alone, and as much again at random.
	mirrorPause = 5 * time.Second

	// pastPatience is how many failures in a row make a source Refusing.
	pastPatience = 3

	// shortLife is what a stream must have lasted to count as one that worked.
	shortLife = time.Second
	// steadyLife is the same for a stream that ended because its source forgot the revision: each such end costs a
	// list.
	steadyLife = time.Minute

	// silentLife is how long a stream of the cloud must tell nothing, not even a bookmark (API servers send one a
	// minute), to count as silent. After silentTries silent streams in a row the cloud is taken not to have reached our
	// revision: its history was set back.
	silentLife  = 4 * time.Minute
	silentTries = 2
)

// past is what one source has done lately.
type past struct {
	failures  int
	notBefore time.Time     // nothing is attempted until then
	doubted   time.Time     // nothing is listed until then: the last list is not believed
	prompt    time.Time     // after a denial: when to try again if somebody waits
	is        Access        // Refusing, or a mirror Stale,
	until     time.Time     // until then
	forgot    edge.Revision // a revision since which it does not remember the changes
	recheck   time.Time     // of a mirror that forgot: when to look whether the sink has moved on
	silent    int           // streams of the cloud in a row that told nothing
}

// recovered forgets failures: the link has come up. It does not forget silence: a link that flaps would hide it.
func (p *past) recovered() {
	*p = past{forgot: p.forgot, silent: p.silent}
}

// answered returns the code of an API server's answer; 0 if err is not one.
func answered(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// deniedPast reports whether an error is an answer that waiting seldom changes.
func deniedPast(err error) bool {
	switch answered(err) {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusNotAcceptable:
		return true
	}
	return false
}

// stranger reports whether a source does not know who asks, such as a node whose certificate has expired. That says nothing
// about what was asked for, so what is known stays.
func stranger(err error) bool { return apierrors.IsUnauthorized(err) }

// failing reports whether the cloud could not answer: a balancer failed to reach it, or nobody answered. A stream that was
// open and broke says nothing yet; the next attempt will.
func (o Ended) failing() bool {
	if o.Err == nil || o.Opened {
		return false
	}
	switch answered(o.Err) {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 0:
		return !errors.Is(o.Err, stream.ErrExpired) && !errors.Is(o.Err, errDoubtful) && !errors.Is(o.Err, stream.ErrSink)
	}
	return false
}

// shaken reports whether a stream ended in a way that hints at a new server: a running API server ends each stream in an
// orderly way, when the requested time is over.
func (o Ended) shaken() bool {
	return o.Opened && (!errors.Is(o.Err, io.EOF) || o.Lived < silentLife)
}

// calledOff reports whether the attempt ended because it was told to.
func (o Ended) calledOff() bool { return errors.Is(o.Err, context.Canceled) }

// note takes in how an attempt ended. doubt is how long to wait before a list that is not believed is repeated.
func (p *past) note(e Event, a Attempt, o Ended, doubt time.Duration) {
	worked := o.Lived >= shortLife
	if o.Progress {
		p.failures = 0 // a list that goes on where it stood is worth the next attempt
	}
	if worked && (!errors.Is(o.Err, stream.ErrExpired) || o.Lived >= steadyLife) {
		p.failures = 0
	}
	switch {
	case a.List && o.Err == nil:
		// Failures still count: a source that forgets at once what it has just listed is asked ever less often.
		*p = past{failures: p.failures, silent: p.silent}
		return
	case errors.Is(o.Err, io.EOF) && worked:
		p.notBefore = time.Time{}
		return
	}
	p.failures++
	p.prompt = time.Time{}
	backoff := e.At.Add(run.Backoff{Min: backoffMin, Max: backoffMax}.After(p.failures, e.Chance))
	later := e.after(mirrorPause, mirrorPause)
	switch mirror := a.From == Coordinator; {
	case errors.Is(o.Err, stream.ErrExpired), errors.Is(o.Err, stream.ErrSink) && p.failures >= pastPatience:
		// What the sink has refused three times it always will. While the sink stands here, another resume is useless, and
		// would each time break off the stream that can take it further. recheck is when to look whether it has moved.
		if p.forgot, p.notBefore = e.Position, backoff; mirror {
			p.recheck = later
		}
	case errors.Is(o.Err, errDoubtful):
		// A watch need not wait, if one is possible: what the list says and the watch does not is wrong.
		p.notBefore, p.doubted = time.Time{}, e.At.Add(doubt)
	case deniedPast(o.Err):
		p.deny(e)
	case errors.Is(o.Err, errNotNewer):
		p.is, p.until, p.notBefore = Stale, later, later
	case mirror && (a.List || errors.Is(o.Err, stream.ErrNotReady)):
		// The mirror was asked only because there is something better to do than to wait for it.
		p.is, p.until, p.notBefore = Refusing, later, later
	default:
		if p.notBefore = backoff; p.failures >= pastPatience {
			if p.is, p.until = Refusing, backoff; mirror {
				p.until = later
			}
		}
	}
}

// deny takes in an answer that waiting seldom changes. The first pauses are short: a cluster that is being set up has its
// nodes before all of its roles.
func (p *past) deny(e Event) {
	pause := deniedPause
	if p.failures <= pastPatience {
		pause = deniedFirst << (p.failures - 1)
	}
	p.notBefore, p.prompt = e.after(pause, pause/2), e.after(promptPause, promptPause/4)
	p.is, p.until = Refusing, p.notBefore
}

// hear counts streams of the cloud in a row that told nothing.
func (p *past) hear(a Attempt, o Ended, position edge.Revision) {
	switch {
	case a.From == Coordinator || a.List:
	case o.Told:
		p.silent = 0
	case o.Lived >= silentLife:
		if p.silent++; p.silent >= silentTries {
			p.silent, p.forgot = 0, position
		}
	}
}

// look takes in where the sink stands now. If the sink has not moved, a mirror that forgot is left alone for longer.
func (p *past) look(e Event) {
	if p.forgot != 0 && p.forgot == e.Position && !p.recheck.IsZero() && !e.At.Before(p.recheck) {
		p.recheck = e.after(mirrorPause, mirrorPause)
	}
}

// access returns what a source whose link is up can be expected to do for a sink at a position. While a list over the WAN is
// under way, a mirror's last answer stands.
func (p *past) access(now time.Time, listing bool, position edge.Revision) Access {
	lately := now.Before(p.until) || listing && !p.until.IsZero()
	switch {
	case lately && p.is == Stale: // it is Expired as well, and its list has shown that it is of no use either
		return Stale
	case p.forgot != 0 && (p.forgot == position || now.Before(p.recheck)):
		return Expired
	case lately:
		return p.is
	}
	return Up
}
