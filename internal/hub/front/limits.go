package front

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/conns"
)

// class is a kind of request that has a limit of its own.
type class uint8

const (
	readOnly class = iota
	mutating
	longRunning
	heartbeat
	classes
)

// String returns the name that metrics and messages use.
func (c class) String() string {
	return [...]string{"read-only", "mutating", "long-running", "heartbeat"}[c]
}

func classOf(info *request.RequestInfo, long bool, to Kind) class {
	switch {
	case to == OwnLease:
		return heartbeat
	case long:
		return longRunning
	}
	switch info.Verb {
	case "get", "list", "head", "options":
		return readOnly
	}
	return mutating
}

// limits bound the requests in flight of one source, by class.
type limits [classes]limit

// source is who has places of his own. kubelet's are taken by nobody else: whoever fills his own with requests that do not
// end keeps no heartbeat and no status of a Pod waiting.
type source uint8

const (
	kubelets source = iota
	others
	sources
)

func sourceOf(v Verdict) source {
	if v == Kubelet {
		return kubelets
	}
	return others
}

// limit bounds how many requests are in flight.
type limit struct {
	max int64
	now atomic.Int64
}

// enter counts a request in, or returns false if there are too many.
func (l *limit) enter() bool {
	if l.now.Add(1) > l.max {
		l.now.Add(-1)
		return false
	}
	return true
}

func (l *limit) leave() { l.now.Add(-1) }

// shareOfOne is which part of the places one client may have: a fourth.
const shareOfOne = 4

// shares bound the requests in flight of each client, so that nobody can take the places of all others.
type shares struct {
	mu    sync.Mutex
	taken map[portion]int64 // without zeros
}

// portion is what one client has of a class.
type portion struct {
	of    string
	class class
}

// guestOf says which guest a request is of: a Pod has an address of its own.
func guestOf(r *http.Request) string { return conns.SourceOf(r).String() }

// programOf says which of the host's programs a request is of: what it shows, once the cloud has known whose that is, or else
// the user whose process it is. So tokens that somebody makes up bring no places, and neither does his user take those of others.
func programOf(r *http.Request) string {
	if c := conns.NewcomerOf(r.Context()); c != nil && !c.Proved() {
		return "uid " + c.Owner
	}
	sum := sha256.Sum256([]byte(Bearer(r)))
	return string(sum[:])
}

// enter counts a request in, or returns false if its client has a fourth of most already.
func (s *shares) enter(one portion, most int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[one] >= (most+shareOfOne-1)/shareOfOne {
		return false
	}
	s.taken[one]++
	return true
}

func (s *shares) leave(one portion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[one]--; s.taken[one] == 0 {
		delete(s.taken, one)
	}
}
