package shareserver

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/stream"
)

const (
	// maxObjects and maxBytes bound what one node may have here. kubelet's default limit is 110 Pods. They and all that they
	// use are some hundred objects and a few MB.
	maxObjects = 2000
	maxBytes   = 16 << 20
	// maxUses bounds what one Pod may refer to.
	maxUses = 500
	// maxSilence is how long a node's objects stay after its hub's last request. By default, Kubernetes leaves Pods on a silent
	// node for as long.
	maxSilence = 5 * time.Minute
)

// claims record why each pushed object is here, and whose it is. A Node, a Pod or an Event has one claim, of its node. A
// ConfigMap, a Secret or a ServiceAccount has a claim of each node whose Pods use it, and stays as long as it has one.
//
// If two nodes claim a Pod of the same name, one of them is wrong, and the coordinator can't tell which. The first one may be the
// liar, and may be first again after every start of the coordinator. A person who opens a shell in the liar's Pod would type into
// it. So such a Pod is contested: both claims are kept, and the Pod is not shown until only one node claims it.
//
// claims only decides, and holds no object: the caller writes to etcd what it decides.
type claims struct {
	quota   int64 // bytes, of all nodes
	bytes   int64
	nodes   map[edge.NodeName]*nodeClaims
	objects map[stream.ID]*entry
}

// nodeClaims are the claims of one node.
type nodeClaims struct {
	// version rises with each push, and with each change that the node's hub was not told about.
	version uint64
	heard   time.Time
	bytes   int64
	claims  map[stream.ID]*claim
	used    map[stream.ID]int // how many of the node's Pods use each object
}

// claim is the reason why one node's object is here.
type claim struct {
	at    edge.Moment // of the state that the node pushed; zero means that the node must push it again
	local bool        // the node's own word, on top of the cloud's state at that moment
	bytes int64
	uses  []stream.ID
}

// entry is an object that at least one node claims.
type entry struct {
	at     edge.Moment // of the content in etcd; zero means unknown
	writer edge.NodeName
	nodes  map[edge.NodeName]struct{} // that have a claim
	single bool                       // only one node can have it
}

// contested reports whether several nodes say that they have what only one can have.
func (e *entry) contested() bool { return e.single && len(e.nodes) > 1 }

// offer is an object that a node's hub has pushed and judge has not accepted yet.
type offer struct {
	id    stream.ID
	at    edge.Moment
	local bool
	bytes int64
	// shared means that all nodes whose Pods use the object may push it; otherwise only node may.
	shared bool
	node   edge.NodeName
	// contestable means that two nodes may both say that they have the object.
	contestable bool
	uses        []stream.ID
	about       *stream.ID
}

func newClaims(quota int64) *claims {
	return &claims{quota: quota, nodes: map[edge.NodeName]*nodeClaims{}, objects: map[stream.ID]*entry{}}
}

// ofNode returns the claims of a node, and records that the node was heard from now.
func (l *claims) ofNode(n edge.NodeName, now time.Time) *nodeClaims {
	a := l.nodes[n]
	if a == nil {
		a = &nodeClaims{version: 1, claims: map[stream.ID]*claim{}, used: map[stream.ID]int{}}
		l.nodes[n] = a
	}
	a.heard = now
	return a
}

// judge decides whether a node may push an object. A refusal gives the reason. If write is false, the object is accepted but must
// not be written to etcd: etcd has newer content, or another node claims an object that only one node can have.
func (l *claims) judge(n edge.NodeName, o offer) (write bool, err error) {
	a, e := l.nodes[n], l.objects[o.id]
	have := a.claims[o.id]
	switch {
	case !o.shared && o.node != n:
		return false, exchange.Refused(http.StatusForbidden, "it belongs to node %q: a node pushes only its own objects", o.node)
	case o.shared && o.local:
		return false, exchange.Refused(http.StatusForbidden,
			"a node may add its own word only to its own Node, Pods and Events")
	case o.shared && a.used[o.id] == 0:
		return false, exchange.Refused(http.StatusConflict, "no Pod of node %q here uses it", n)
	case o.about != nil && a.claims[*o.about] == nil:
		return false, exchange.Refused(http.StatusConflict, "it is about %s, which node %q does not have here", *o.about, n)
	case !o.shared && e != nil && have == nil && !o.contestable:
		return false, exchange.Refused(http.StatusConflict, "node %q has it here, and must release it first", e.writer)
	case have != nil && o.at.Before(have.at):
		return false, exchange.Refused(http.StatusConflict, "it is here at %s, later than %s", have.at, o.at)
	case have == nil && len(a.claims) >= maxObjects:
		return false, exchange.Refused(http.StatusRequestEntityTooLarge, "node %q already has the limit of %d objects here", n,
			maxObjects)
	}
	more := o.bytes
	if have != nil {
		more -= have.bytes
	}
	switch {
	case more > 0 && a.bytes+more > maxBytes:
		return false, exchange.Refused(http.StatusRequestEntityTooLarge,
			"the objects of node %q take more than %d bytes", n, maxBytes)
	case more > 0 && l.bytes+more > l.quota:
		return false, exchange.Refused(http.StatusRequestEntityTooLarge, "the nodes' objects take more than %d bytes; raise "+
			"--own-quota-bytes of the coordinator", l.quota)
	}
	if e != nil && (e.contested() || e.single && have == nil) {
		return false, nil
	}
	return e == nil || !o.at.Before(e.at), nil
}

// hides returns the node whose object is shown and must not be shown any more, if this node claims it, too.
func (l *claims) hides(n edge.NodeName, id stream.ID) (shown edge.NodeName, yes bool) {
	e := l.objects[id]
	if e == nil || !e.single || e.contested() || l.nodes[n].claims[id] != nil {
		return "", false
	}
	for other := range e.nodes {
		shown = other
	}
	return shown, true
}

// shown reports whether an object that is claimed is to be in etcd.
func (l *claims) shown(id stream.ID) bool {
	e := l.objects[id]
	return e != nil && !e.contested()
}

// contestedObjects returns how many objects several nodes claim that only one can have.
func (l *claims) contestedObjects() (n int) {
	for _, e := range l.objects {
		if e.contested() {
			n++
		}
	}
	return n
}

// record records an object that judge has accepted, and returns the objects that nobody claims any more because of it.
func (l *claims) record(n edge.NodeName, o offer, written bool) (gone []stream.ID) {
	a, e := l.nodes[n], l.objects[o.id]
	if e == nil {
		e = &entry{nodes: map[edge.NodeName]struct{}{}, single: !o.shared}
		l.objects[o.id] = e
	}
	if written {
		e.at, e.writer = o.at, n
	}
	e.nodes[n] = struct{}{}
	old := a.claims[o.id]
	if old == nil {
		old = &claim{}
	}
	a.claims[o.id] = &claim{o.at, o.local, o.bytes, o.uses}
	l.count(a, o.bytes-old.bytes)
	for _, id := range o.uses {
		a.used[id]++
	}
	return l.unuse(n, old.uses)
}

func (l *claims) count(a *nodeClaims, bytes int64) {
	a.bytes += bytes
	l.bytes += bytes
}

// unuse counts one Pod fewer for each object, and releases those that no Pod of the node uses any more.
func (l *claims) unuse(n edge.NodeName, ids []stream.ID) (gone []stream.ID) {
	a := l.nodes[n]
	for _, id := range ids {
		if a.used[id]--; a.used[id] > 0 {
			continue
		}
		delete(a.used, id)
		if a.claims[id] != nil {
			a.version++ // the hub was not told
			gone = append(gone, l.release(n, id)...)
		}
	}
	return gone
}

// release ends a node's claim, if it has one. It returns the objects that nobody claims any more, which the caller must delete.
func (l *claims) release(n edge.NodeName, id stream.ID) (gone []stream.ID) {
	a, e := l.nodes[n], l.objects[id]
	if a == nil || a.claims[id] == nil {
		return nil
	}
	c := a.claims[id]
	delete(a.claims, id)
	delete(e.nodes, n)
	l.count(a, -c.bytes)
	switch {
	case len(e.nodes) == 0:
		delete(l.objects, id)
		gone = []stream.ID{id}
	case e.contested():
	case e.single: // it was contested until now: the one that is left must push it again
		l.doubt(id)
	case e.writer == n:
		l.distrust(id, e)
	}
	return append(gone, l.unuse(n, c.uses)...)
}

// distrust makes all claimants push an object again, because the node that wrote its content no longer claims it. If a claimant
// has pushed a state as new as that content, or newer, distrust does nothing.
func (l *claims) distrust(id stream.ID, e *entry) {
	for other := range e.nodes {
		if !l.nodes[other].claims[id].at.Before(e.at) {
			return
		}
	}
	l.doubt(id)
}

// doubt makes all claimants push an object again.
func (l *claims) doubt(id stream.ID) {
	e := l.objects[id]
	if e == nil {
		return
	}
	e.at = edge.Moment{}
	for n := range e.nodes {
		l.nodes[n].claims[id].at = edge.Moment{}
		l.nodes[n].version++
	}
}

// expel releases all claims of the nodes that which selects. It returns, by node, the objects that must be deleted.
func (l *claims) expel(which func(n edge.NodeName, heard time.Time) bool) map[edge.NodeName][]stream.ID {
	gone := map[edge.NodeName][]stream.ID{}
	for n, a := range l.nodes {
		if !which(n, a.heard) {
			continue
		}
		gone[n] = nil
		for _, id := range slices.Collect(maps.Keys(a.claims)) {
			gone[n] = append(gone[n], l.release(n, id)...)
		}
		delete(l.nodes, n)
	}
	return gone
}

// of lists the objects that a node claims, by resource and name.
func (l *claims) of(n edge.NodeName) []edge.NodeObject {
	all := []edge.NodeObject{}
	for id, c := range l.nodes[n].claims {
		all = append(all, edge.NodeObject{
			Resource: id.Resource, Namespace: id.Namespace, Name: id.Name, Revision: c.at.Revision, History: c.at.History,
			Local: c.local,
		})
	}
	slices.SortFunc(all, func(a, b edge.NodeObject) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name))
	})
	return all
}
