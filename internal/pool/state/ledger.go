package state

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

const (
	// defaultLease is what a Lease without a duration is taken for, as kubelet's default. maxLease bounds it.
	defaultLease, maxLease = 40 * time.Second, 10 * time.Minute
	// maxGone bounds what is remembered of Pods that are not here any more. Who has been told less than that is told everything.
	maxGone = 1024
)

// graceOf returns how many seconds a node may be silent: five quarters of its Lease's duration. kubelet renews the Lease after
// each quarter of that duration. With Kubernetes' defaults the result is the cloud's own grace period, 50 s.
func graceOf(lease time.Duration) int {
	if lease <= 0 {
		lease = defaultLease
	}
	return int((min(lease, maxLease)*5/4 + time.Second - 1) / time.Second)
}

// ledger is what is known. It does no I/O and asks no clock.
type ledger struct {
	number uint64 // of the last change, from 1 on: 0 is before all
	pods   map[stream.Key]numbered[edge.PodPresence]
	nodes  map[edge.NodeName]*node
	gone   []numbered[edge.PodName] // in order
	// forgotten is the number of the last change that is not in gone any more.
	forgotten uint64
	// ran is for how many seconds it has been told of renewals, counted up to the grace of a Lease without a duration.
	ran int
}

// numbered is something with the number of the change that made it so.
type numbered[T any] struct {
	number uint64
	is     T
}

// node is one that was seen to renew.
type node struct {
	number uint64
	quiet  int // seconds since it renewed
	grace  int // in seconds
	silent bool
	// relays is where its hub relays; not valid means nowhere.
	relays netip.AddrPort
}

func newLedger() *ledger {
	return &ledger{number: 1, pods: map[stream.Key]numbered[edge.PodPresence]{}, nodes: map[edge.NodeName]*node{}}
}

// shown notes a Pod as it is here now, and reports whether that is new.
func (l *ledger) shown(p edge.PodPresence) bool {
	key := stream.Key{Namespace: p.Namespace, Name: p.Name}
	if old, ok := l.pods[key]; ok && same(old.is, p) {
		return false
	}
	l.number++
	l.pods[key] = numbered[edge.PodPresence]{l.number, p}
	return true
}

func same(a, b edge.PodPresence) bool {
	return a.UID == b.UID && a.Node == b.Node && a.Revision == b.Revision && a.History == b.History && a.Said == b.Said &&
		slices.Equal(a.IPs, b.IPs) && a.Ready == b.Ready && a.Overruled == b.Overruled && a.Terminating == b.Terminating &&
		a.Finished == b.Finished
}

// hidden notes that a Pod is not here any more, and reports whether it was.
func (l *ledger) hidden(key stream.Key) bool {
	if _, ok := l.pods[key]; !ok {
		return false
	}
	delete(l.pods, key)
	l.number++
	l.gone = append(l.gone, numbered[edge.PodName]{l.number, edge.PodName{Namespace: key.Namespace, Name: key.Name}})
	if len(l.gone) > maxGone {
		l.forgotten = l.gone[0].number
		l.gone = slices.Delete(l.gone, 0, 1)
	}
	return true
}

// renewed notes that a node has renewed, and reports whether that is news.
func (l *ledger) renewed(name edge.NodeName, lease time.Duration) bool {
	n := l.nodes[name]
	news := n == nil || n.silent || n.grace != graceOf(lease)
	if n == nil {
		n = &node{}
		l.nodes[name] = n
	}
	n.quiet, n.grace, n.silent = 0, graceOf(lease), false
	if news {
		l.number++
		n.number = l.number
	}
	return news
}

// relays notes where a node that renews relays; not valid means nowhere.
func (l *ledger) relays(name edge.NodeName, at netip.AddrPort) {
	if n := l.nodes[name]; n != nil {
		n.relays = at
	}
}

// relaying returns, in no order, the nodes that relay and have renewed within the duration of their Leases. It leaves out the
// node that asks. sure says that an empty answer can be trusted. In the first grace period an empty answer is not sure, because a
// new ledger has not heard from all living nodes.
func (l *ledger) relaying(asks edge.NodeName) (all []edge.Neighbour, sure bool) {
	for name, n := range l.nodes {
		if name != asks && n.relays.IsValid() && n.quiet < n.grace*4/5 { // graceOf is five quarters of the duration
			all = append(all, edge.Neighbour{Name: name, At: n.relays})
		}
	}
	return all, len(all) > 0 || l.ran >= graceOf(0)
}

// forget drops the nodes that are not of the pool any more. Nobody asks for them.
func (l *ledger) forget(member func(edge.NodeName) bool) {
	for name := range l.nodes {
		if !member(name) {
			delete(l.nodes, name)
		}
	}
}

// tick notes that a second has passed in which this process ran, and reports whether a node has fallen silent.
func (l *ledger) tick() (news bool) {
	l.ran = min(l.ran+1, graceOf(0))
	for _, n := range l.nodes {
		if n.quiet < n.grace {
			n.quiet++
		}
		if n.quiet >= n.grace && !n.silent {
			l.number++
			n.silent, n.number = true, l.number
			news = true
		}
	}
	return news
}

// heard returns how each node is heard of.
func (l *ledger) heard() []edge.Heard {
	all := make([]edge.Heard, 0, len(l.nodes))
	for name, n := range l.nodes {
		all = append(all, edge.Heard{
			Name: name, Quiet: time.Duration(n.quiet) * time.Second, Grace: time.Duration(n.grace) * time.Second,
			Silent: n.silent,
		})
	}
	return all
}

// since returns the changes after a change's number, and the number of the last change. The number 0 asks for everything.
func (l *ledger) since(number uint64) (edge.State, uint64) {
	said := edge.State{Whole: number == 0 || number < l.forgotten}
	if said.Whole {
		number = 0
	}
	for _, p := range l.pods {
		if p.number > number {
			said.Pods = append(said.Pods, p.is)
		}
	}
	for name, n := range l.nodes {
		if n.number > number {
			said.Nodes = append(said.Nodes, edge.NodePresence{Name: name, Silent: n.silent, GraceSeconds: n.grace})
		}
	}
	for _, p := range l.gone {
		if p.number > number && !said.Whole {
			said.Gone = append(said.Gone, p.is)
		}
	}
	slices.SortFunc(said.Pods, func(a, b edge.PodPresence) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(said.Nodes, func(a, b edge.NodePresence) int { return cmp.Compare(a.Name, b.Name) })
	return said, l.number
}
