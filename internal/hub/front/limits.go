package front

import (
	"crypto/sha256"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/conns"
)

// class is a kind of request with a limit of its own.
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

// source is a group of clients with limits of its own. kubelet is a source, so that other clients' requests, even endless ones,
// delay no heartbeat and no status of a Pod.
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

// enter counts a request, or returns false if there are too many.
func (l *limit) enter() bool {
	if l.now.Add(1) > l.max {
		l.now.Add(-1)
		return false
	}
	return true
}

func (l *limit) leave() { l.now.Add(-1) }

// shareOfOne is the divisor for one client's share of the places: a quarter.
const shareOfOne = 4

// shares bound the requests in flight of each client, so that no client can take all places.
type shares struct {
	mu    sync.Mutex
	taken map[portion]int64 // without zeros
}

// portion is one client's share of a class.
type portion struct {
	of    string
	class class
}

// guestOf returns the guest that a request belongs to, by its address: each Pod has its own.
func guestOf(r *http.Request) string { return conns.SourceOf(r).String() }

// programOf returns a name for the program of the host that sent a request. Once the cloud has accepted a token on the
// connection, the name is the digest of the request's token. Before that, it is the user ID of the client's process, so that
// made-up tokens get no shares of their own.
func programOf(r *http.Request) string {
	if c := conns.NewcomerOf(r.Context()); c != nil && !c.Proved() {
		return "uid " + c.Owner
	}
	sum := sha256.Sum256([]byte(Bearer(r)))
	return string(sum[:])
}

// enter counts a request. It returns false if the client already has its share of the class's places; most is their number.
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
