package access

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// maxElectionTerm bounds the duration that a leader may claim. If the leader dies right after that claim, its pool has no leader
// for as long. Kubernetes must not evict Pods in that time; by default it takes minutes.
const maxElectionTerm = 60 * time.Second

// leaseMark distinguishes one write of a Lease from the next.
type leaseMark struct {
	holder      edge.NodeName // empty means that nobody holds it
	transitions int32
	renewed     int64         // renewTime as its writer gave it, microseconds: opaque, never compared with our clock
	term        time.Duration // leaseDurationSeconds
}

// decideElection returns why caller may not replace the election Lease old by next; nil means that it may. oldLive says that the
// holder of old has renewed it within its term, by this process's clock. vacant is why no term may begin yet; nil means that one
// may.
//
//	old holder │ next holder │ allowed
//	nobody     │ caller      │ if a term may begin, transitions + 1
//	caller     │ caller      │ yes, transitions unchanged (a renewal)
//	caller     │ caller      │ if a term may begin, transitions + 1 (a restarted hub)
//	caller     │ nobody      │ yes, transitions unchanged (a release)
//	other      │ caller      │ if other has lapsed and a term may begin, transitions + 1
//	other      │ nobody      │ no: a term ends if its holder releases it, or lapses
//	any        │ other       │ no: nobody writes for another
func decideElection(caller edge.NodeName, old, next leaseMark, oldLive bool, vacant error) error {
	if err := decideHolder(caller, old, next); err != nil {
		return err
	}
	if next.holder == "" {
		if old.holder != caller {
			return fmt.Errorf("only its holder %q may release the Lease", old.holder)
		}
		return nil
	}
	if next.term <= 0 || next.term > maxElectionTerm {
		return fmt.Errorf("leaseDurationSeconds must be 1 to %d", int(maxElectionTerm.Seconds()))
	}
	if old.holder != "" && old.holder != caller && oldLive {
		return fmt.Errorf("node %q holds the Lease and has renewed it within its term", old.holder)
	}
	if termOf(next) != termOf(old) {
		return vacant
	}
	return nil
}

// decideSync returns why caller may not replace the Lease old by next; nil means that it may. The Lease is leader-informer-sync,
// which declares the pool's resources current. Only the present leader may write it, whoever wrote it before. leader is the
// holder of the election Lease; empty means that nobody holds it.
func decideSync(caller edge.NodeName, old, next leaseMark, leader edge.NodeName) error {
	if leader != caller {
		if leader == "" {
			return fmt.Errorf("only the leader may write it, but nobody holds the Lease %s now", edge.LeaseElection)
		}
		return fmt.Errorf("only the leader may write it, but node %q leads", leader)
	}
	return decideHolder(caller, old, next)
}

// decideHolder holds the rules that decideElection and decideSync share.
func decideHolder(caller edge.NodeName, old, next leaseMark) error {
	if next.holder != "" && next.holder != caller {
		return fmt.Errorf("node %q may write only itself as the holder, not %q", caller, next.holder)
	}
	unchanged := next.transitions == old.transitions
	counted := next.transitions == old.transitions+1
	switch {
	case next.holder == "" && !unchanged:
		return fmt.Errorf("leaseTransitions must stay %d when the Lease is released, not become %d",
			old.transitions, next.transitions)
	case next.holder != "" && next.holder != old.holder && !counted:
		return fmt.Errorf("leaseTransitions must be %d, one more, when the Lease gets a new holder, not %d",
			old.transitions+1, next.transitions)
	case next.holder != "" && next.holder == old.holder && !unchanged && !counted:
		return fmt.Errorf("leaseTransitions must stay %d in a renewal, or be one more if the node was restarted, "+
			"not %d",
			old.transitions, next.transitions)
	}
	return nil
}

// decideHeartbeat says whether a node may write this holder into its own Lease.
func decideHeartbeat(caller, holder edge.NodeName) error {
	if holder == "" {
		return errors.New("holderIdentity must be the node's own name")
	}
	if holder != caller {
		return fmt.Errorf("holderIdentity must be the node's own name, not %q", holder)
	}
	return nil
}

// relaysAt returns the address at which a node's hub relays for other nodes, from the annotations of the node's Lease; the zero
// value means that it does not relay. A hub whose own heartbeats are delegated or relayed does not. Because other hubs dial the
// address, it must be a unicast one, with the port where hubs relay.
func relaysAt(of map[string]string) netip.AddrPort {
	at, err := netip.ParseAddrPort(of[edge.AnnotationRelaysAt])
	if err != nil || !at.Addr().Unmap().IsGlobalUnicast() || at.Port() != edge.PortHubRelay ||
		of[edge.DelegateHeartbeat] != "" || of[edge.AnnotationRelayedBy] != "" {
		return netip.AddrPort{}
	}
	return at
}

// terms knows how long each Lease has stayed unchanged, by this process's own clock. The nodes' clocks may differ by minutes, and
// a renewTime is only what its writer says.
//
// terms sees each write twice: when it is admitted, and when the next request finds it stored. The age of a stored write counts
// from its admission. If the age counted from the next request, the first node that tries could not replace a lapsed leader. A
// write that was admitted but not stored does not count. A Lease that terms sees for the first time has age zero.
type terms struct {
	clock ends.Clock

	mu     sync.Mutex
	leases map[string]*term
}

type term struct {
	stored, admitted seenMark
}

type seenMark struct {
	mark leaseMark
	at   time.Time
}

func newTerms(c ends.Clock) *terms {
	return &terms{clock: c, leases: map[string]*term{}}
}

// Live reports whether the stored Lease has a holder that renewed it within its term.
func (t *terms) Live(name string, stored leaseMark) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Running()
	seen := t.leases[name]
	if seen == nil {
		seen = &term{}
		t.leases[name] = seen
	}
	switch stored {
	case seen.admitted.mark:
		seen.stored = seen.admitted
	case seen.stored.mark:
	default:
		seen.stored = seenMark{stored, now}
	}
	return stored.holder != "" && now.Sub(seen.stored.at) < stored.term
}

// Admitted notes that next is about to be stored.
func (t *terms) Admitted(name string, next leaseMark) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.leases[name]
	if seen == nil {
		seen = &term{}
		t.leases[name] = seen
	}
	seen.admitted = seenMark{next, t.clock.Running()}
}
