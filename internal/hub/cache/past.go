package cache

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/stream"
)

const (
	// backoffMin and backoffMax bound the pause after a failure at a source.
	backoffMin = 100 * time.Millisecond
	backoffMax = 30 * time.Second

	// deniedPause is the pause after a denial: an answer that waiting seldom changes, such as 403 or 404. Up to half as much is
	// added at random.
	deniedPause = 20 * time.Second
	// deniedFirst replaces deniedPause if a denial is the first failure in a row. For a second failure the pause is twice as
	// long, for a third four times.
	deniedFirst = time.Second

	// promptPause replaces deniedPause while a client waits for a better answer, and at a leader, because its pool waits. Up to a
	// quarter as much is added at random.
	promptPause = 4 * time.Second

	// mirrorPause is how long the feed does not ask a mirror that refused or was useless. Up to as much is added at random.
	mirrorPause = 5 * time.Second

	// pastPatience is how many failures in a row make a source Refusing.
	pastPatience = 3

	// shortLife is how long a stream must last to count as working.
	shortLife = time.Second
	// steadyLife replaces shortLife for a stream that ended because its source forgot the revision: each such end costs a list.
	steadyLife = time.Minute

	// orderlyLife is less than the time after which a running API server ends a stream, because a feed asks for streams of 5
	// minutes or more. A stream that ends within orderlyLife hints at a new server.
	orderlyLife = 4 * time.Minute
)

// past is how one source behaved lately.
type past struct {
	failures  int
	notBefore time.Time     // nothing is attempted until then
	doubted   time.Time     // no list before then: the last list is in doubt
	prompt    time.Time     // after a denial: when to try again if somebody waits
	is        Access        // what the source is until the time below: Refusing, or Stale if it is a mirror
	until     time.Time     // when that ends
	forgot    edge.Revision // a revision from which the source can't resume: it forgot the changes since
	recheck   time.Time     // after a mirror forgot: when to check whether the sink has moved on
}

// recovered clears failures when the link comes up.
func (p *past) recovered() { *p = past{forgot: p.forgot} }

// answered returns the HTTP status with which an API server answered; 0 means that none did. An answer that is no Kubernetes
// Status comes from something on the way, such as a load balancer or a proxy. The exceptions are 404 and 429, which API servers
// also send as plain text.
func answered(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	code := status.Status().Code
	if code != http.StatusNotFound && code != http.StatusTooManyRequests &&
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return 0
	}
	return code
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

// stranger reports whether a source answered 401, for example because the node's certificate has expired. That says nothing about
// the resource, so the known content stays.
func stranger(err error) bool { return answered(err) == http.StatusUnauthorized }

// failing reports whether the cloud could not answer: it answered 502, 503 or 504, or not at all. An open stream that broke says
// nothing yet; the next attempt will.
func (o Ended) failing() bool {
	return o.Err != nil && !o.Opened && unanswered(o.Err)
}

// refused reports whether an API server refused the attempt, for example with 403, 429 or 500. Clients that read there may then
// see newer content than the sink's. 401 is no refusal. Nor is 410 (an expired revision), because a list follows.
func (o Ended) refused() bool {
	if o.Err == nil || o.Opened || o.failing() || stranger(o.Err) {
		return false
	}
	code := answered(o.Err)
	return code != 0 && code != http.StatusGone
}

// unanswered reports whether an error means that no API server has answered.
func unanswered(err error) bool {
	switch answered(err) {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case 0:
		return !errors.Is(err, stream.ErrExpired) && !errors.Is(err, errDoubtful) && !errors.Is(err, stream.ErrSink)
	}
	return false
}

// shaken reports whether a stream's end hints at a new server. A running API server ends each stream in an orderly way, when the
// requested time is over.
func (o Ended) shaken() bool {
	return o.Opened && (!errors.Is(o.Err, io.EOF) || o.Lived < orderlyLife)
}

// calledOff reports whether the attempt ended because it was cancelled.
func (o Ended) calledOff() bool { return errors.Is(o.Err, context.Canceled) }

// note records how an attempt ended. doubt is the pause before the feed repeats a list that it doubts.
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
		*p = past{failures: p.failures}
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
		// The sink will always refuse what it has refused three times. Another resume from here is useless, and each one would
		// cancel the stream that can move the sink on. recheck is when to check whether it has moved.
		if p.forgot, p.notBefore = e.Position, backoff; mirror {
			p.recheck = later
		}
	case errors.Is(o.Err, errDoubtful):
		// A watch, if one is possible, need not wait: where the list contradicts the watch, the list is wrong.
		p.notBefore, p.doubted = time.Time{}, e.At.Add(doubt)
	case deniedPast(o.Err):
		p.deny(e)
	case errors.Is(o.Err, errNotNewer):
		p.is, p.until, p.notBefore = Stale, later, later
	case mirror && (a.List || errors.Is(o.Err, stream.ErrNotReady)):
		// While the mirror refuses, another source may do better, so the feed does not wait for it.
		p.is, p.until, p.notBefore = Refusing, later, later
	default:
		if p.notBefore = backoff; p.failures >= pastPatience {
			if p.is, p.until = Refusing, backoff; mirror {
				p.until = later
			}
		}
	}
}

// deny records a denial. Its first pauses are short, because a cluster that is being set up has nodes before it has all roles.
func (p *past) deny(e Event) {
	pause := deniedPause
	if p.failures <= pastPatience {
		pause = deniedFirst << (p.failures - 1)
	}
	p.notBefore, p.prompt = e.after(pause, pause/2), e.after(promptPause, promptPause/4)
	p.is, p.until = Refusing, p.notBefore
}

// observe puts recheck off if the sink has not moved on since the mirror could not resume from its position.
func (p *past) observe(e Event) {
	if p.forgot != 0 && p.forgot == e.Position && !p.recheck.IsZero() && !e.At.Before(p.recheck) {
		p.recheck = e.after(mirrorPause, mirrorPause)
	}
}

// access returns what the feed can expect of this source while its link is up. position is the sink's position. p.is counts until
// p.until, and beyond that time while a list over the WAN is under way (listing).
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
