package front

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/hub/proof"
	"yurtcoordinator/internal/hub/route"
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

func classOf(info *request.RequestInfo, long bool, to route.Kind) class {
	switch {
	case to == route.OwnLease:
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

func sourceOf(v proof.Verdict) source {
	if v == proof.Kubelet {
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

// shareOfOne is which part of the guests' places one address may have: a fourth. A Pod has an address of its own.
const shareOfOne = 4

// shares bound the requests in flight of each address, so that no guest can take the places of all others.
type shares struct {
	mu    sync.Mutex
	taken map[portion]int64 // without zeros
}

// portion is what one address has of a class.
type portion struct {
	of    netip.Addr
	class class
}

// enter counts a request in, or returns false if its address has a fourth of most already.
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
