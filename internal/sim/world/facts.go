package world

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/sim/history"
	"yurtcoordinator/internal/sim/pki"
)

// Judge is the oracle. At each look it records what the world does and what the cloud shows of it, and checks each clause.
type Judge struct {
	w     *World
	whole since
	// Cut says which nodes must be held. reports are the last reports of the leaders, by slot.
	Cut     cut
	reports [edge.MaxSlots]report
	nodes   map[string]*facts
	slots   map[*server]*slotFacts
	// Breaches are the promises that were not kept, at most one for each clause and node.
	Breaches []string
	told     map[string]bool
	asked    map[string]*minute   // requests to a server, by "NODE at SERVER"
	grays    map[string]time.Time // when a hub last led with a line that was not whole, or had only just become so
	// knows says for each pair of nodes, as "NODE of NODE", whether the first must have heard that the second relays.
	knows map[string]bool
	// bare says since when a node's disk has been empty. It contains only nodes that have not spoken with the cloud since then.
	bare map[string]time.Time
	// restored and jolts are the world's counts at the last look.
	restored, jolts int
}

// minute counts what comes within a minute. It has the total at each look of the last minute, and at the look before that.
type minute struct {
	had [61]int
	i   int
}

// add takes in the present total, and returns how many have come within the minute.
func (m *minute) add(n int) int {
	came := n - m.had[m.i]
	m.had[m.i] = n
	m.i = (m.i + 1) % len(m.had)
	return came
}

// since says since when something is so. What is not so now has no entry.
type since map[string]time.Time

// keep notes whether something is so now.
func (s since) keep(what string, is bool, now time.Time) {
	switch _, was := s[what]; {
	case !is:
		delete(s, what)
	case !was:
		s[what] = now
	}
}

// facts are what is known of a node at one moment: first what the world did, then what the cloud shows.
type facts struct {
	now time.Time
	// These fields say for how long something has been so; 0 means that it is not so now.
	//
	//	lived       kubelet and hub run
	//	routed      one and the same way of the node's heartbeats to the cloud is whole (route)
	//	lined       the node's own line is whole
	//	judged      the cloud and kube-controller-manager are unharmed
	//	controlled  the cloud and a replica of coordinator-controller are unharmed; counts anew when any replica becomes harmed
	//	steady      the cloud and all replicas of coordinator-controller are unharmed
	//	paths       no event loses or delays what is sent to or from the cloud
	lived, routed, lined, judged, controlled, steady, paths time.Duration
	route                                                   string // the route that has been whole the longest
	// beat is when kubelet last sent a heartbeat. owed is when kubelet was told that its heartbeat is taken, if the cloud does
	// not show that heartbeat. Of several such heartbeats, the first counts. Zero means that there is none.
	beat, owed time.Time

	// leaves says that the node's hub may still use a server of the cloud that does not work, and must change to one that does.
	leaves bool
	// grays counts the hubs that have led since owed with a line that was not whole, or had only just become so.
	grays int

	// renewed is when the Lease was last renewed, by the API server's clock; zero means never.
	renewed time.Time
	version string
	// stamp is the Lease's renewTime in microseconds. step is how much later it is than the stamp before. sent is when kubelet
	// sent this stamp; zero means never.
	stamp, step int64
	sent        time.Time
	// times is how often one client has renewed the Lease with the same stamp. by is that client.
	by    string
	times int
	// asks is how many requests the node has sent to the cloud in the last minute. asksPool is how many it has sent to the
	// coordinator that it asked most. calm is for how long nothing has been harmed. ledAt is when the node last led at a
	// coordinator, and leads says that this was within the last minute. Even in a calm pool, a leader may give the lead to a hub
	// with a better line.
	asks, asksPool int
	calm           time.Duration
	leads          bool
	ledAt          time.Time
	// marked says that the Lease has the mark of a heartbeat that was forwarded, or came over another node's line.
	marked bool
	// ready and down are the statuses of the Node's conditions Ready and CloudLinkDown. doomed says that the Node has a taint
	// with the effect NoExecute, and tainted that it has edge.TaintUnschedulable.
	ready, down     corev1.ConditionStatus
	doomed, tainted bool
	// pod is the UID of the node's Pod; empty means that the Pod is gone or being deleted. lost says that this has happened since
	// the last look.
	pod  string
	lost bool
	// heldSince is since when the condition EvictionsHeld has been True; zero means that it is not. holds is the longest time for
	// which it may be True. dated is for how long the wall clocks of coordinator-controller have been right.
	heldSince    time.Time
	holds, dated time.Duration
	// kept says that evictions from the node have to be held. cut is for how long the pool has been cut off; 0 means that it is
	// not. A pool that speaks while a hold is in progress still counts as cut off.
	kept bool
	cut  time.Duration
	// fell says that the node was not Ready, or was doomed, when no clause forbade that. It ends when the node is well again.
	fell bool
}

// NewJudge returns a Judge that has seen nothing yet. It assumes that nothing has been harmed since the world began.
func (w *World) NewJudge() *Judge {
	j := &Judge{
		w: w, whole: since{"judges": began, "controlled": began, controls[0]: began, controls[1]: began},
		nodes: map[string]*facts{}, slots: map[*server]*slotFacts{},
		told: map[string]bool{}, asked: map[string]*minute{}, grays: map[string]time.Time{}, knows: map[string]bool{},
		bare: map[string]time.Time{},
	}
	for _, n := range w.nodes {
		j.nodes[n.name] = &facts{}
		j.whole[n.name+" goes"] = began
	}
	for _, h := range w.hearsays() {
		j.whole[h.name] = began
	}
	for _, s := range w.slots {
		j.slots[s] = &slotFacts{}
		j.whole[s.machine.name+remembers] = began
	}
	return j
}

// runs reports whether a program runs, and its machine does not keep it from doing anything.
func (w *World) runs(machine, program string) bool {
	return !w.keptDown(machine, program) && len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Machine && w.within(e.On, machine)
	})) == 0
}

// asks reports whether a node's hub runs, and can trust a server's certificate.
func (w *World) asks(node string) bool {
	return w.runs(node, "hub") && !w.outlived(node)
}

// open reports whether nothing harms the path between two machines.
func (w *World) open(a, b string) bool {
	return a == b || len(w.harmed(func(e history.Event) bool {
		return (e.Does == history.Path || e.Does == history.OneWay) &&
			(w.within(e.On, a) && w.within(e.To, b) || w.within(e.On, b) && w.within(e.To, a))
	})) == 0
}

// serves reports whether a server does all that it should for a node, or for everybody if node is "".
func (w *World) serves(server, node string) bool {
	program := "yurt-coordinator"
	if server == "cloud" {
		program = "kube-apiserver"
	}
	return w.runs(server, program) && !w.outlived(server) && len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Server && e.On == server && (e.To == "" || e.To == node || node == "")
	})) == 0
}

// line reports whether a node's own line is whole.
func (w *World) line(node string) bool {
	return w.enough(node) && len(w.harmed(atSecond)) == 0
}

// enough reports whether a node's own line can serve as a route. The line is whole, except that the cloud's second server may be
// sick. The hub must then leave its connections to that server. New connections lead to the first server.
func (w *World) enough(node string) bool {
	return w.asks(node) && w.open(node, "cloud") && w.serves("cloud", node) &&
		len(w.harmed(atSecond)) == len(w.harmed(sickSecond))
}

func atSecond(e history.Event) bool { return e.Does == history.Server && e.On == second }

// sickSecond reports whether an event harms the second server in a way that a balancer sees. A balancer sees everything except
// slow answers and statuses of 4xx.
func sickSecond(e history.Event) bool {
	return atSecond(e) && e.How != "slow" && !strings.HasPrefix(e.How, "4")
}

// lined, ownLine and remembers are parts of the keys of Judge.whole. They mean that a node's line is whole, that the node's own
// line is enough as a route, and that a machine's coordinator has not begun anew.
const lined, ownLine, remembers = " has a line", "own line", " remembers"

// routes returns those routes of the node that are whole now: over its own line, or over a coordinator and another node's hub.
func (j *Judge) routes(node string) (all []string) {
	w := j.w
	if !w.asks(node) {
		return nil
	}
	if w.enough(node) {
		all = append(all, ownLine)
	}
	for _, s := range w.slots {
		at := s.machine.name
		if !w.serves(at, node) || !w.open(node, at) || !j.has(node, at) {
			continue
		}
		for _, n := range w.nodes {
			if n.name != node && w.line(n.name) && w.open(n.name, at) && w.serves(at, n.name) && w.serves("cloud", node) {
				all = append(all, "coordinator of "+at+", hub of "+n.name)
			}
		}
	}
	return all
}

// has reports whether a node that reaches a coordinator, but not the cloud, can have a Lease. A node that has its Node on its
// disk can: kubelet makes a new Lease. If the disk is empty, kubelet needs the coordinator's copy of the Lease. The coordinator
// has a copy if it had run for longer than oldest when the disk was lost.
func (j *Judge) has(node, at string) bool {
	lost, is := j.bare[node]
	had, has := j.whole[at+remembers]
	return !is || has && lost.Sub(had) > oldest
}

// empty notes which nodes' disks are empty.
func (j *Judge) empty(now time.Time) {
	for _, n := range j.w.nodes {
		j.whole.keep(n.name+remembers, j.w.runs(n.name, "yurt-coordinator"), now)
		j.whole.keep(n.name+" is blank", j.w.blank(n.name), now)
		if at, is := j.whole[n.name+" is blank"]; is {
			j.bare[n.name] = at
		} else if j.whole.lasts(n.name+": "+ownLine, now) > oldest {
			delete(j.bare, n.name)
		}
	}
}

// hearsay is one way for a node to hear, at a coordinator, that another node relays.
type hearsay struct{ name, node, of, at string }

// hearsays returns all possible hearsays.
func (w *World) hearsays() (all []hearsay) {
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			for _, s := range w.slots {
				if at := s.machine.name; a != b {
					all = append(all, hearsay{a.name + " hears of " + b.name + " at " + at, a.name, b.name, at})
				}
			}
		}
	}
	return all
}

// relays reports whether a node's hub lends its line to other nodes.
func (w *World) relays(node string) bool {
	return !w.cfg.Unrelayed && w.line(node)
}

// outlived reports whether all certificates have expired by a machine's clock. Such a machine trusts nobody.
func (w *World) outlived(machine string) bool {
	return len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Clock && e.On == machine && e.Much > pki.DefaultTTL.Seconds()/2
	})) > 0
}

// hear notes for each pair of nodes whether the first must know that the second relays. A node hears that from a coordinator if
// all has been well there for longer than hears. A node that can ask no coordinator goes on with what it knows, which is also on
// its disk.
func (j *Judge) hear(now time.Time) {
	heard, asks := map[string]bool{}, map[string]bool{}
	for _, h := range j.w.hearsays() {
		is := j.w.relays(h.of) && j.w.runs(h.of, "kubelet") && j.w.asks(h.node)
		for _, n := range []string{h.node, h.of} {
			is = is && j.w.open(n, h.at) && j.w.serves(h.at, n)
		}
		j.whole.keep(h.name, is, now)
		key := h.node + " of " + h.of
		heard[key] = heard[key] || j.whole.lasts(h.name, now) > hears
		asks[key] = asks[key] || j.w.asks(h.node) && j.w.runs(h.at, "yurt-coordinator") && !j.w.cutOff(h.node, h.at)
	}
	for key, is := range heard {
		node, _, _ := strings.Cut(key, " ")
		j.knows[key] = is || j.knows[key] && !asks[key] && !j.w.blank(node)
	}
}

// cutOff reports whether nothing at all passes between two machines, in either direction.
func (w *World) cutOff(a, b string) bool {
	return len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Path && e.How == "silent" &&
			(w.within(e.On, a) && w.within(e.To, b) || w.within(e.On, b) && w.within(e.To, a))
	})) > 0
}

// blank reports whether a machine is off, and comes back without its disk.
func (w *World) blank(machine string) bool {
	return len(w.harmed(func(e history.Event) bool {
		return e.Does == history.Machine && e.How == "blank" && w.within(e.On, machine)
	})) > 0
}

// lent returns those routes of the node over its neighbours' lines that are whole now.
func (j *Judge) lent(node string) (all []string) {
	for _, n := range j.w.nodes {
		if n.name != node && j.knows[node+" of "+n.name] && j.w.asks(node) &&
			j.w.relays(n.name) && j.w.open(node, n.name) && j.w.serves("cloud", node) {
			all = append(all, "line of "+n.name)
		}
	}
	return all
}

// Look takes in the present state, and checks all clauses.
func (j *Judge) Look() {
	now, set := time.Now(), j.w.restored != j.restored
	if j.restored = j.w.restored; set {
		clear(j.whole) // what was seen of the cloud is no longer so
	}
	j.whole.keep("judges", j.w.serves("cloud", "") && j.w.runs("cloud", j.w.judges.name), now)
	j.whole.keep("calm", len(j.w.harms) == 0 && j.w.jolts == j.jolts, now)
	j.jolts = j.w.jolts
	one := false
	for _, m := range controls {
		is := j.w.serves("cloud", "") && j.w.runs(m, controller) && j.w.open(m, "cloud")
		if _, was := j.whole[m]; was && !is {
			delete(j.whole, "controlled") // it may have led, and the next one must wait until its lock has ended
		}
		j.whole.keep(m, is, now)
		one = one || is
	}
	j.whole.keep("controlled", one, now)
	j.whole.keep("paths", len(j.w.harmed(func(e history.Event) bool {
		return (e.Does == history.Path || e.Does == history.OneWay) && (e.On == "cloud" || e.To == "cloud") &&
			!slices.Contains([]string{"refused", "half", "forgets"}, e.How)
	})) == 0, now)
	j.whole.keep("dates", len(j.w.harmed(func(e history.Event) bool {
		return e.Does == history.Clock && slices.Contains(controls, e.On)
	})) == 0, now)
	leases, nodes, pods := map[string]*coordinationv1.Lease{}, map[string]*corev1.Node{}, map[string]*corev1.Pod{}
	for _, o := range j.w.cloud.store.Objects(coordinationv1.Resource("leases")) {
		if l, ok := o.(*coordinationv1.Lease); ok && l.Namespace == corev1.NamespaceNodeLease {
			leases[l.Name] = l
		}
	}
	for _, o := range j.w.cloud.store.Objects(corev1.Resource("nodes")) {
		if n, ok := o.(*corev1.Node); ok {
			nodes[n.Name] = n
		}
	}
	for _, o := range j.w.cloud.store.Objects(corev1.Resource("pods")) {
		if p, ok := o.(*corev1.Pod); ok {
			pods[p.Name] = p
		}
	}
	j.hear(now)
	j.empty(now)
	for _, slot := range j.w.slots {
		j.slot(j.slots[slot], slot, now) // first: what a node may ask depends on whether it leads now
	}
	for _, n := range j.w.nodes {
		f := j.nodes[n.name]
		j.did(f, n.name, now)
		f.seen(leases[n.name], nodes[n.name], pods[n.name], set)
		f.sent = n.beats.sentAt(f.stamp)
		f.by, f.times = j.w.cloud.most(n.name)
		if by, times := j.w.second.most(n.name); times > f.times {
			f.by, f.times = by, times
		}
		f.asks, f.asksPool = j.asks(n.name, j.w.cloud)+j.asks(n.name, j.w.second), 0
		for _, s := range j.w.slots {
			f.asksPool = max(f.asksPool, j.asks(n.name, s))
			if j.slots[s].holder == n.name {
				f.ledAt = now
			}
		}
		f.leads = now.Sub(f.ledAt) <= time.Minute
		if f.owed, f.beat = n.beats.owed(f.renewed); !f.lives(now.Sub(f.owed)) {
			n.beats.forgive() // there was no route that was whole all the time since then
			f.owed = time.Time{}
		}
		f.grays = 0
		for _, at := range j.grays {
			if !f.owed.IsZero() && !at.Before(f.owed) {
				f.grays++
			}
		}
	}
	j.reads(now)
	for _, slot := range edge.Slots() {
		j.reports[slot].seen(leases[edge.PoolName(ownPool).ReportLease(slot)], now, set)
	}
	j.Cut.look(now, j.w.cfg.Holds, j.nodes, j.reports[:]...)
	for _, n := range j.w.nodes {
		f := j.nodes[n.name]
		for _, c := range clauses {
			if breach := c.broken(f); breach != "" {
				j.breach(c.name, n.name, breach)
			}
		}
		f.fell = !f.well() && (f.fell || !f.shownReady())
	}
	for _, slot := range j.w.slots {
		f := j.slots[slot]
		for _, c := range slotClauses {
			if breach := c.broken(f); breach != "" {
				j.breach(c.name, "coordinator of "+slot.machine.name, breach)
			}
		}
		if f.holder != "" && j.whole.lasts(f.holder+lined, now) < blind {
			j.grays[f.holder] = now
		}
	}
}

// asks returns how many requests a node has made to a server in the last minute.
func (j *Judge) asks(node string, s *server) int {
	key := node + " at " + s.address()
	if j.asked[key] == nil {
		j.asked[key] = &minute{}
	}
	return j.asked[key].add(s.asks(node))
}

// slotFacts are what is known of a coordinator.
type slotFacts struct {
	now time.Time
	// reached is the longest time for which one hub with a whole line has reached the coordinator, and hub is the node of that
	// hub. 0 means that no such hub reaches it now.
	reached time.Duration
	hub     string
	// led is when the election Lease was last seen to be held and renewed; zero: never.
	led     time.Time
	version string
	// holder is the hub that last led, and lease is the UID of its election Lease. former is set only if a look finds another
	// holder with a new Lease, which means that the coordinator has begun anew. It is the time since the former holder was last
	// seen to renew. Otherwise it is zero.
	holder string
	lease  types.UID
	former time.Duration
}

// slot notes what the world did to a coordinator, and who leads at it.
func (j *Judge) slot(f *slotFacts, s *server, now time.Time) {
	at := s.machine.name
	f.now, f.hub, f.reached, f.former = now, "", 0, 0
	for _, n := range j.w.nodes {
		reaches := j.w.serves(at, "") && j.w.line(n.name) && j.w.open(n.name, at)
		what := at + " is reached by " + n.name
		j.whole.keep(what, reaches, now)
		if d := j.whole.lasts(what, now); d > f.reached {
			f.reached, f.hub = d, n.name
		}
	}
	for _, o := range s.store.Objects(coordinationv1.Resource("leases")) {
		l, ok := o.(*coordinationv1.Lease)
		if !ok || l.Namespace != edge.NamespaceSystem || l.Name != edge.LeaseElection {
			continue
		}
		if holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder != "" && l.ResourceVersion != f.version {
			if f.lease != l.UID && f.holder != "" && f.holder != holder {
				f.former = now.Sub(f.led)
			}
			f.led, f.holder, f.lease = now, holder, l.UID
		}
		f.version = l.ResourceVersion
	}
}

// did notes what the world did to a node.
func (j *Judge) did(f *facts, name string, now time.Time) {
	f.now = now
	j.whole.keep("lives "+name, j.w.runs(name, "hub") && j.w.runs(name, "kubelet"), now)
	routes := map[string]bool{}
	for _, r := range append(j.routes(name), j.lent(name)...) {
		routes[name+": "+r] = true
	}
	for r := range routes {
		j.whole.keep(r, true, now)
	}
	f.route, f.routed = "", 0
	for _, r := range slices.Sorted(maps.Keys(j.whole)) {
		if !strings.HasPrefix(r, name+": ") {
			continue
		}
		j.whole.keep(r, routes[r], now)
		if at, is := j.whole[r]; is && (f.route == "" || now.Sub(at) > f.routed) {
			f.route, f.routed = r, now.Sub(at)
		}
	}
	j.whole.keep(name+lined, j.w.line(name), now)
	f.lived, f.lined = j.whole.lasts("lives "+name, now), j.whole.lasts(name+lined, now)
	f.paths = j.whole.lasts("paths", now)
	f.leaves = routes[name+": "+ownLine] && f.lined < blind
	if j.w.truth == nil { // what changes all the time is pushed and asked for all the time
		f.calm = j.whole.lasts("calm", now)
	}
	f.judged, f.dated = j.whole.lasts("judges", now), j.whole.lasts("dates", now)
	f.controlled, f.steady = j.whole.lasts("controlled", now), math.MaxInt64
	for _, m := range controls {
		f.steady = min(f.steady, j.whole.lasts(m, now))
	}
}

// lasts returns for how long something has been so; 0 means that it is not.
func (s since) lasts(what string, now time.Time) time.Duration {
	if at, is := s[what]; is {
		return now.Sub(at)
	}
	return 0
}

// seen notes what the cloud has of a node; each object may be nil. If setBack is true, the storage was set back. A changed Lease
// is then no renewal, and a missing Pod is not lost.
func (f *facts) seen(lease *coordinationv1.Lease, node *corev1.Node, pod *corev1.Pod, setBack bool) {
	if lease != nil && lease.ResourceVersion != f.version {
		f.version = lease.ResourceVersion
		stamp := lease.Spec.RenewTime.UnixMicro()
		f.stamp, f.step = stamp, stamp-f.stamp
		if f.step != 0 && !setBack && !putBack(lease) {
			f.renewed = f.now
		}
	}
	f.marked = lease != nil && lease.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn
	isHeld := false
	if f.ready, f.down, f.doomed, f.tainted = "", "", false, false; node != nil {
		for _, c := range node.Status.Conditions {
			switch c.Type {
			case edge.ConditionEvictionsHeld:
				isHeld = c.Status == corev1.ConditionTrue
			case corev1.NodeReady:
				f.ready = c.Status
			case edge.ConditionCloudLinkDown:
				f.down = c.Status
			}
		}
		for _, t := range node.Spec.Taints {
			f.doomed = f.doomed || t.Effect == corev1.TaintEffectNoExecute
			f.tainted = f.tainted || t.Key == edge.TaintUnschedulable
		}
	}
	if !isHeld {
		f.heldSince = time.Time{}
	} else if f.heldSince.IsZero() {
		f.heldSince = f.now
	}
	had := f.pod
	if f.pod = ""; pod != nil && pod.DeletionTimestamp == nil {
		f.pod = string(pod.UID)
	}
	f.lost = had != "" && f.pod != had && !setBack
}

// seen notes the leader's report, as the cloud has it. The Lease may be nil.
func (r *report) seen(lease *coordinationv1.Lease, now time.Time, setBack bool) {
	if lease == nil || lease.ResourceVersion == r.version {
		return
	}
	if setBack {
		now = r.at
	}
	*r = report{
		at: now, version: lease.ResourceVersion, leader: ptr.Deref(lease.Spec.HolderIdentity, ""),
		reached: edge.SplitNodes(lease.Annotations[edge.AnnotationReachedNodes]),
	}
}

// putBack reports whether coordinator-controller has put the Lease's renewTime back, as an annotation says. This is no renewal.
func putBack(lease *coordinationv1.Lease) bool {
	to := lease.Annotations[edge.AnnotationPutBack]
	return to != "" && lease.Spec.RenewTime != nil && to == lease.Spec.RenewTime.UTC().Format(metav1.RFC3339Micro)
}

func (j *Judge) breach(clause, node, says string) {
	if key := clause + " " + node; !j.told[key] {
		j.told[key] = true
		text := fmt.Sprintf("%s: %s: %s", clause, node, says)
		j.Breaches = append(j.Breaches, text)
		j.w.say("BREACH %s", text)
	}
}
