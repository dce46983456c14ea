package feed

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

	// promptPause is the pause after such an answer while somebody waits for another, as a leader's pool does, and a quarter as
	// much again at random.
	promptPause = 4 * time.Second

	// mirrorPause is how long a mirror that refused, or was of no use, is left alone, and as much again at random.
	mirrorPause = 5 * time.Second

	// patience is how many failures in a row make a source one that refuses.
	patience = 3

	// shortLife is what a stream must have lasted to count as one that worked.
	shortLife = time.Second
	// steadyLife is the same for one that ended because its source forgot: each costs a list.
	steadyLife = time.Minute

	// silentLife is how long a stream of the cloud must have told nothing at all, not even a bookmark (API servers send
	// one a minute), to be silent; after silentTries of them in a row our revision is held to be one that the cloud has
	// not reached: its history was set back.
	silentLife  = 4 * time.Minute
	silentTries = 2
)

// past is what one source did lately.
type past struct {
	failures  int
	notBefore time.Time     // nothing is attempted until then
	doubted   time.Time     // nothing is listed until then: what was listed last is not believed
	prompt    time.Time     // after an answer that waiting seldom changes: from then on it is attempted if somebody waits
	is        Access        // Refusing, or a mirror Stale,
	until     time.Time     // until then
	forgot    edge.Revision // a revision after which it does not remember the changes
	recheck   time.Time     // of a mirror that forgot: when to look whether the sink stands elsewhere now
	silent    int           // streams of the cloud in a row that told nothing
}

// recovered forgets failures: the link has come up. It does not forget silence: a link that flaps would hide it.
func (p *past) recovered() {
	*p = past{forgot: p.forgot, silent: p.silent}
}

// answered is the code of an API server's answer; 0 if err is none.
func answered(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}

// denied reports whether an error is an answer that waiting seldom changes.
func denied(err error) bool {
	switch answered(err) {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusNotAcceptable:
		return true
	}
	return false
}

// stranger reports whether a source does not know who asks: a node whose certificate has expired. That says nothing of what
// is asked for, and what was known of it stays.
func stranger(err error) bool { return apierrors.IsUnauthorized(err) }

// failing reports whether the cloud could not answer: another failed to reach it, or nobody answered. A stream that was open
// and broke says nothing yet: the next attempt will.
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

// shaken reports whether a stream ended as none does whose server goes on: API servers end each in order, when the time that was
// asked for is over.
func (o Ended) shaken() bool {
	return o.Opened && (!errors.Is(o.Err, io.EOF) || o.Lived < silentLife)
}

// calledOff reports whether the attempt ended because it was told to.
func (o Ended) calledOff() bool { return errors.Is(o.Err, context.Canceled) }

// note takes in how an attempt ended. doubt is for how long a list that is not believed is not repeated.
func (p *past) note(e Event, a Attempt, o Ended, doubt time.Duration) {
	worked := o.Lived >= shortLife
	if worked && (!errors.Is(o.Err, stream.ErrExpired) || o.Lived >= steadyLife) {
		p.failures = 0
	}
	switch {
	case a.List && o.Err == nil:
		// Not yet a reason to forget failures: a source that forgets at once what it has just listed is asked ever less often.
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
	case errors.Is(o.Err, stream.ErrExpired), errors.Is(o.Err, stream.ErrSink) && p.failures >= patience:
		// What the sink has refused three times it always will. As long as the sink stands here, to resume again is of no use,
		// and would each time break off the stream that can take it further. Whether it does is looked at from time to time.
		if p.forgot, p.notBefore = e.Position, backoff; mirror {
			p.recheck = later
		}
	case errors.Is(o.Err, errDoubtful):
		// A watch need not wait, if there can be one: what the list says and the watch does not is not so.
		p.notBefore, p.doubted = time.Time{}, e.At.Add(doubt)
	case denied(o.Err):
		p.deny(e)
	case errors.Is(o.Err, errNotNewer):
		p.is, p.until, p.notBefore = Stale, later, later
	case mirror && (a.List || errors.Is(o.Err, stream.ErrNotReady)):
		// It is asked only where there is something better to do than to wait for it.
		p.is, p.until, p.notBefore = Refusing, later, later
	default:
		if p.notBefore = backoff; p.failures >= patience {
			if p.is, p.until = Refusing, backoff; mirror {
				p.until = later
			}
		}
	}
}

// deny takes in an answer that waiting seldom changes. Roles may be on their way: a cluster that is being set up has its nodes
// before it has all of its roles.
func (p *past) deny(e Event) {
	pause := deniedPause
	if p.failures <= patience {
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

// look takes in where the sink stands now. A mirror that forgot is left alone for longer if the sink has not moved.
func (p *past) look(e Event) {
	if p.forgot != 0 && p.forgot == e.Position && !p.recheck.IsZero() && !e.At.Before(p.recheck) {
		p.recheck = e.after(mirrorPause, mirrorPause)
	}
}

// access is what can be expected of a source whose link is up, for a sink at a position. While a list over the WAN is under
// way, what a mirror has said stays said.
func (p *past) access(now time.Time, listing bool, position edge.Revision) Access {
	switch {
	case p.forgot != 0 && (p.forgot == position || now.Before(p.recheck)):
		return Expired
	case now.Before(p.until), listing && !p.until.IsZero():
		return p.is
	}
	return Up
}
