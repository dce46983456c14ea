package relay

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

// forget is how long a neighbour that failed comes after all others.
const forget = 15 * time.Second

// neighbour is a node whose hub relays.
type neighbour struct {
	Name edge.NodeName  `json:"name"`
	At   netip.AddrPort `json:"at"`
}

// renewals are the stamps of Leases, each with when it was seen first, by this machine's running clock.
type renewals map[edge.NodeName]renewal

type renewal struct {
	stamp time.Time
	seen  time.Time
}

// alive reports whether a Lease has been renewed within its duration, as far as is known, and notes in next since when it has
// been as it is. Neither the node's clock nor the coordinator's is asked: a stamp only differs from the one before.
func (r renewals) alive(lease *coordinationv1.Lease, next renewals, now time.Time) bool {
	name, is := edge.NodeName(lease.Name), renewal{ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time, now}
	if was, ok := r[name]; ok && was.stamp.Equal(is.stamp) {
		is = was
	}
	next[name] = is
	return now.Sub(is.seen) < time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second
}

// neighbours returns those that relay, by the coordinator's copies of their Leases. A Lease that says so of a node that is not
// its holder, or is delegated or relayed itself, or renews itself no more, says nothing. seen is of the question before; next
// takes what is seen now.
func neighbours(
	self edge.NodeName, copies []coordinationv1.Lease, seen, next renewals, now time.Time,
) (all []neighbour) {
	for i := range copies {
		lease := &copies[i]
		name := edge.NodeName(lease.Name)
		at, err := netip.ParseAddrPort(lease.Annotations[edge.AnnotationRelaysAt])
		switch {
		case err != nil, !at.Addr().IsValid() || at.Addr().IsUnspecified() || at.Addr().IsMulticast() || at.Port() == 0:
		case name == self, ptr.Deref(lease.Spec.HolderIdentity, "") != lease.Name:
		case !seen.alive(lease, next, now):
		case lease.Annotations[edge.DelegateHeartbeat] != "", lease.Annotations[edge.AnnotationRelayedBy] != "":
		default:
			all = append(all, neighbour{name, at})
		}
	}
	return all
}

// rank orders neighbours as this node tries them: each node has an order of its own, which changes only where a neighbour comes
// or goes (rendezvous hashing). So the nodes of a pool spread over those that have a line, without agreeing on anything.
func rank(self edge.NodeName, all []neighbour) {
	weight := func(n neighbour) []byte {
		sum := sha256.Sum256([]byte(string(self) + "\x00" + string(n.Name)))
		return sum[:]
	}
	slices.SortFunc(all, func(a, b neighbour) int { return bytes.Compare(weight(a), weight(b)) })
}

// failures remembers which neighbours have failed lately.
type failures map[edge.NodeName]time.Time

// note takes in how a try at a neighbour ended.
func (f failures) note(name edge.NodeName, ok bool, now time.Time) {
	for other, at := range f {
		if now.Sub(at) >= forget {
			delete(f, other)
		}
	}
	delete(f, name)
	if !ok {
		f[name] = now
	}
}

// last puts those that have failed lately behind the others, those first that failed first.
func (f failures) last(all []neighbour, now time.Time) {
	when := func(n neighbour) time.Time {
		if at, ok := f[n.Name]; ok && now.Sub(at) < forget {
			return at
		}
		return time.Time{}
	}
	slices.SortStableFunc(all, func(a, b neighbour) int { return when(a).Compare(when(b)) })
}
