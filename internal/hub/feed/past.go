package feed

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	// backoffMin and backoffMax bound the pause after a failure at a source; each is drawn from its upper half.
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

	// preciousFor is for how long after the cloud's last word few objects are guarded, too (Config.Precious): as long as three
	// lists with their pauses take, twice over.
	preciousFor = 90 * time.Second

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

// outcome is how one attempt ended.
type outcome struct {
	list  bool
	err   error         // nil for a list that was applied
	lived time.Duration // of a stream, since it was open; 0 if it never was
	told  bool          // the stream told something

	opened bool         // the stream was open
	policy doubt.Policy // how the source is doubted
}

// past is what one source did lately. It is told the time and does no I/O; pauses are drawn at random, and asking for access may
// set when to look again.
type past struct {
	failures  int
	notBefore time.Time     // nothing is attempted until then
	doubted   time.Time     // nothing is listed until then: what was listed last is not believed
	refusing  time.Time     // until then it is Refusing
	prompt    time.Time     // after an answer that waiting seldom changes: from then on it is attempted if somebody waits
	stale     time.Time     // of a mirror: until then it is Stale
	forgot    edge.Revision // a revision after which it does not remember the changes
	recheck   time.Time     // of a mirror that forgot: when to look whether we stand elsewhere now
	silent    int           // streams of the cloud in a row that told nothing
}

// jittered is d less up to half of it.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }

// longer is d and up to a part of it more.
func longer(d, part time.Duration) time.Duration { return d + rand.N(part) }

func (p *past) backoff() time.Duration {
	d := backoffMax
	if shift := p.failures - 1; shift < 9 {
		d = min(backoffMin<<max(shift, 0), backoffMax)
	}
	return jittered(d)
}

// recovered forgets failures: the link has come up, or the pool says that it covers the resource.
func (p *past) recovered() {
	*p = past{forgot: p.forgot}
}

// denied reports whether an error is an answer that waiting seldom changes.
func denied(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusNotAcceptable:
		return true
	}
	return false
}

// failing reports whether the cloud could not answer: another failed to reach it, or nobody answered. A stream that was open
// and broke says nothing yet: the next attempt will.
func failing(o outcome) bool {
	var status apierrors.APIStatus
	switch {
	case o.err == nil, o.opened:
		return false
	case errors.As(o.err, &status):
		switch status.Status().Code {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	default:
		return !errors.Is(o.err, stream.ErrExpired) && !errors.Is(o.err, errDoubtful) && !errors.Is(o.err, errUnfit)
	}
}

// shaken reports whether a stream ended as none does whose server goes on: API servers end each in order, when the time that was
// asked for is over.
func shaken(o outcome) bool {
	return o.opened && (!errors.Is(o.err, io.EOF) || o.lived < silentLife)
}

// stranger reports whether a source does not know who asks: a node whose certificate has expired. That says nothing of what
// is asked for, and what was known of it stays.
func stranger(err error) bool { return apierrors.IsUnauthorized(err) }

// note takes in how an attempt at the cloud, or at a mirror, ended. position is the sink's now.
func (p *past) note(now time.Time, mirror bool, o outcome, position edge.Revision) {
	worked := o.lived >= shortLife
	if worked && (!errors.Is(o.err, stream.ErrExpired) || o.lived >= steadyLife) {
		p.failures = 0
	}
	p.hear(mirror, o, position)
	switch {
	case o.list && o.err == nil:
		// Not yet a reason to forget failures: a source that forgets at once what it has just listed is to be asked
		// ever less often.
		*p = past{failures: p.failures, silent: p.silent}
		return
	case errors.Is(o.err, io.EOF) && worked:
		p.notBefore = time.Time{}
		return
	}
	p.failures++
	p.prompt = time.Time{}
	forgot := errors.Is(o.err, stream.ErrExpired)
	if errors.Is(o.err, errUnfit) && p.failures >= patience {
		forgot = true // what does not fit three times never will: begin anew
	}
	switch {
	case forgot:
		// For as long as we stand there: asking again is of no use, and would each time break off the stream that can
		// take us further. Whether we do is looked at from time to time.
		if mirror {
			p.recheck = now.Add(longer(mirrorPause, mirrorPause))
		}
		p.forgot = position
		p.notBefore = now.Add(p.backoff())
	case errors.Is(o.err, errNotNewer) && mirror:
		p.stale = now.Add(longer(mirrorPause, mirrorPause))
		p.notBefore = p.stale
	case errors.Is(o.err, errDoubtful):
		// A watch need not wait, if there can be one: what the list says and the watch does not is not so.
		p.notBefore = time.Time{}
		p.doubted = now.Add(longer(o.policy.Pause(), o.policy.Spread()))
	case denied(o.err):
		// Roles may be on their way: a cluster that is being set up has its nodes before it has all of its roles.
		pause := deniedPause
		if p.failures <= patience {
			pause = deniedFirst << (p.failures - 1)
		}
		p.refusing = now.Add(longer(pause, pause/2))
		p.notBefore = p.refusing
		p.prompt = now.Add(longer(promptPause, promptPause/4))
	case mirror && (o.list || errors.Is(o.err, stream.ErrNotReady)):
		// It is asked only where there is something better to do than to wait for it.
		p.refusing = now.Add(longer(mirrorPause, mirrorPause))
		p.notBefore = p.refusing
	default:
		p.notBefore = now.Add(p.backoff())
		if p.failures >= patience {
			p.refusing = p.notBefore
			if mirror {
				p.refusing = now.Add(longer(mirrorPause, mirrorPause))
			}
		}
	}
}

// hear counts streams of the cloud that told nothing.
func (p *past) hear(mirror bool, o outcome, position edge.Revision) {
	switch {
	case mirror || o.list:
	case o.told:
		p.silent = 0
	case o.lived >= silentLife:
		if p.silent++; p.silent >= silentTries {
			p.silent, p.forgot = 0, position
		}
	}
}

// access is what can be expected of the source now. While a list over the WAN is under way, what a mirror has said
// stays said.
func (p *past) access(now time.Time, up, listing bool, position edge.Revision) Access {
	still := func(until time.Time) bool { return now.Before(until) || listing && !until.IsZero() }
	switch {
	case !up:
		return Down
	case p.forgot != 0 && p.forgot == position:
		if !p.recheck.IsZero() && !now.Before(p.recheck) {
			p.recheck = now.Add(longer(mirrorPause, mirrorPause))
		}
		return Expired
	case p.forgot != 0 && now.Before(p.recheck):
		return Expired
	case still(p.refusing):
		return Refusing
	case still(p.stale):
		return Stale
	default:
		return Up
	}
}

// next is the earliest moment after now at which access may change by itself; zero if there is none.
func (p *past) next(now time.Time) time.Time {
	var first time.Time
	for _, t := range []time.Time{p.notBefore, p.prompt, p.doubted, p.refusing, p.stale, p.recheck} {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}
