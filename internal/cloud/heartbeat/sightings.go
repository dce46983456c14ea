package heartbeat

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// Sightings remembers each node's Lease as last seen, and when its last renewal was seen. The entry of a deleted Lease stays
// while the Node exists. It is safe for concurrent use.
type Sightings struct {
	clock        ends.Clock
	silenceAfter time.Duration

	mu     sync.Mutex
	byNode map[edge.NodeName]sighting
}

type sighting struct {
	uid           types.UID
	revision      edge.Revision
	renewTime     time.Time // as last seen, by its writer's clock: only that it changes means something
	since         time.Time // by our running clock: when renewTime was seen to change or, until renewed, when first seen
	renewed       bool
	annotated     bool
	relayed       edge.Relayed
	gone          bool
	leaseDuration time.Duration
}

// NewSightings returns Sightings that have seen nothing yet. A Lease is silent after silenceAfter without a renewal.
func NewSightings(c ends.Clock, silenceAfter time.Duration) *Sightings {
	return &Sightings{clock: c, silenceAfter: silenceAfter, byNode: make(map[edge.NodeName]sighting)}
}

// Saw records a Lease as it is now, and reports whether the finding for its node changed.
func (s *Sightings) Saw(lease *coordinationv1.Lease) (news bool) {
	node := edge.NodeName(lease.Name)
	now := s.clock.Running()
	s.mu.Lock()
	defer s.mu.Unlock()
	was, found := s.byNode[node]
	before, _ := Judge(observe(was, found, now), s.silenceAfter)

	is := was
	is.uid, is.gone = lease.UID, false
	is.annotated = lease.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn
	is.relayed = edge.Relayed{}
	if is.annotated {
		is.relayed = edge.ParseRelayed(lease.Annotations[edge.AnnotationRelayedBy])
	}
	is.leaseDuration = 0
	if d := lease.Spec.LeaseDurationSeconds; d != nil {
		is.leaseDuration = time.Duration(*d) * time.Second
	}
	var renewTime time.Time
	if t := lease.Spec.RenewTime; t != nil {
		renewTime = t.Time
	}
	is.revision, _ = edge.ParseRevision(lease.ResourceVersion)
	is.renewTime = renewTime
	switch {
	case !found, is.uid == was.uid && is.revision < was.revision, is.uid != was.uid && !renewTime.After(was.renewTime):
		// Nobody knows when this Lease was written. A lower revision comes from a cloud that was restored from a backup. A Lease
		// that replaces another one without a newer renewTime may come from there, too.
		is.since, is.renewed = now, false
	case !renewTime.Equal(was.renewTime) && !isPutBack(lease):
		is.since, is.renewed = now, true
	}
	s.byNode[node] = is

	after, _ := Judge(observe(is, true, now), s.silenceAfter)
	return before != after
}

// Lost records that a Lease was deleted, and reports whether the finding for its node changed.
func (s *Sightings) Lost(lease *coordinationv1.Lease) (news bool) {
	node := edge.NodeName(lease.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	was, found := s.byNode[node]
	if !found || was.gone || was.uid != lease.UID {
		return false
	}
	was.gone = true
	s.byNode[node] = was
	return true
}

// Judge returns the finding for a node, and how long it holds if nothing happens; zero means forever.
func (s *Sightings) Judge(node edge.NodeName) (Finding, time.Duration) {
	now := s.clock.Running()
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, found := s.byNode[node]
	return Judge(observe(entry, found, now), s.silenceAfter)
}

// Observe returns what is known about a node's Lease at this moment.
func (s *Sightings) Observe(node edge.NodeName) Observation {
	now := s.clock.Running()
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, found := s.byNode[node]
	return observe(entry, found, now)
}

// stamp returns the renewTime of a node's Lease as last seen, by its writer's clock, and the Lease's revision then. False means
// that the node has no Lease.
func (s *Sightings) stamp(node edge.NodeName) (time.Time, edge.Revision, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, found := s.byNode[node]
	return entry.renewTime, entry.revision, found && !entry.gone
}

// Forget drops a node that has neither a Node object nor a Lease any more.
func (s *Sightings) Forget(node edge.NodeName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNode[node].gone {
		delete(s.byNode, node)
	}
}

func observe(entry sighting, found bool, now time.Time) Observation {
	if !found {
		return Observation{}
	}
	return Observation{
		Found:          true,
		Gone:           entry.gone,
		Annotated:      entry.annotated,
		Relayed:        entry.relayed.By != "",
		HeartbeatsOnly: entry.relayed.HeartbeatsOnly,
		Renewed:        entry.renewed,
		Age:            now.Sub(entry.since),
		LeaseDuration:  entry.leaseDuration,
	}
}
