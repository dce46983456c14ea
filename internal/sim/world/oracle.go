package world

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// clause is a promise about nodes, or about coordinators. The function broken says how the facts break the promise; "" means that
// they keep it.
type clause[F any] struct {
	name   string
	broken func(f *F) string
}

// clauses are the promises that the oracle checks for each node at each look. The facts are only what the world did and what the
// cloud shows. oracle_test.go has a breach of each clause.
var clauses = []clause[facts]{
	// A node lives while its kubelet and its hub run and one and the same route to the cloud is whole.
	{"alive", func(f *facts) string {
		if age := f.now.Sub(f.renewed); f.lives(oldest) && age > oldest {
			return fmt.Sprintf("its Lease is %v old; whole for %v: %s", age, f.routed, f.route)
		}
		return ""
	}},
	{"alive", func(f *facts) string {
		if f.shownReady() && !f.fell && !f.well() {
			return fmt.Sprintf("Ready is %q, it is to be evicted: %t; whole for %v: %s", f.ready, f.doomed, f.routed, f.route)
		}
		return ""
	}},
	{"alive", func(f *facts) string {
		if f.lost && !f.fell {
			return "its Pod is evicted, and it was never allowed to be called dead"
		}
		return ""
	}},
	// Every renewal of a Lease stands for a heartbeat of kubelet's, so the Lease of a dead node ages.
	{"dead", func(f *facts) string {
		if after := f.renewed.Sub(f.beat); !f.beat.IsZero() && after > aged+travels {
			return fmt.Sprintf("its Lease was renewed %v after kubelet had sent its last heartbeat", after)
		}
		return ""
	}},
	// If kubelet was told that a heartbeat is taken, the cloud soon has that heartbeat, unless no route was whole all the
	// time. A hub that leads and can't write gets more time, in which it gives up its term.
	{"told", func(f *facts) string {
		may := arrives + time.Duration(f.grays)*givesBack
		if f.leaves {
			may += givesBack
		}
		if late := f.now.Sub(f.owed); !f.owed.IsZero() && late > may {
			return fmt.Sprintf("a heartbeat that was taken is not in the cloud after %v; whole for %v: %s",
				late, f.routed, f.route)
		}
		return ""
	}},
	// A node with a line of its own is not said to have none.
	{"unmarked", func(f *facts) string {
		if line := min(f.lived, f.lined); line > unmarks && f.marked {
			return fmt.Sprintf("its line is whole for %v, and its Lease has the mark", line)
		}
		return ""
	}},
	{"unmarked", func(f *facts) string {
		if min(f.lived, f.lined) > unmarks+calm && f.controlled > takesOver+calm && f.tainted {
			return fmt.Sprintf("its line is whole for %v, and it has the taint", f.lined)
		}
		return ""
	}},
	// Each renewal stands for a heartbeat of kubelet's, and few are written for the same heartbeat. If a clock went back, a
	// writer may use the least stamp that is later than the present one. It may also do so if it does not know that the cloud
	// already has the heartbeat.
	{"writers", func(f *facts) string {
		moved := f.step > 0 && f.step <= steps.Microseconds()
		switch age := f.now.Sub(f.sent); {
		case f.renewed != f.now || moved:
		case f.sent.IsZero():
			return fmt.Sprintf("its Lease was renewed with %d, which kubelet never sent; that is %d later than before",
				f.stamp, f.step)
		case age > aged+travels && f.paths > resends, age > aged+resends+travels:
			return fmt.Sprintf("its Lease was renewed with what kubelet had sent %v before", age)
		}
		return ""
	}},
	{"writers", func(f *facts) string {
		if f.times > puts {
			return fmt.Sprintf("%s has renewed its Lease %d times with one stamp", f.by, f.times)
		}
		return ""
	}},
	// When nothing is wrong, little is asked.
	{"bounded", func(f *facts) string {
		if f.calm > rests && f.asks > asksCloud {
			return fmt.Sprintf("it has sent %d requests to the cloud in a minute", f.asks)
		}
		return ""
	}},
	{"bounded", func(f *facts) string {
		most := asksPool
		if f.leads {
			most = asksLeading
		}
		if f.calm > rests && f.asksPool > most {
			return fmt.Sprintf("it has sent %d requests to a coordinator in a minute, of %d", f.asksPool, most)
		}
		return ""
	}},
	// A pool that is cut off as a whole keeps its Pods. Taints may come first while coordinator-controller is down, or changes
	// its leader.
	{"held", func(f *facts) string {
		if f.kept && f.doomed && f.steady > f.cut+takesOver {
			return fmt.Sprintf("it is to be evicted; its pool has been cut off for %v", f.cut)
		}
		return ""
	}},
	{"held", func(f *facts) string {
		if f.kept && f.lost && min(f.controlled, f.judged) > takesOver && f.dated > f.cut {
			return fmt.Sprintf("its Pod is evicted; its pool has been cut off for %v", f.cut)
		}
		return ""
	}},
	// Pods are held no longer than the NodePool says, unless a clock was set back.
	{"held", func(f *facts) string {
		is := f.now.Sub(f.heldSince)
		if !f.heldSince.IsZero() && is > f.holds+settles && f.controlled > takesOver && f.dated > is {
			return fmt.Sprintf("it is held for %v, of %v", is, f.holds)
		}
		return ""
	}},
	// When the node's own line is back, all is as before. While another route is whole, the node is well.
	{"healed", func(f *facts) string {
		ours := f.marked || f.tainted || f.down != corev1.ConditionFalse || !f.heldSince.IsZero()
		if min(f.judged, f.controlled) > healing && f.lives(healing) && (f.lined > healing && ours || !f.well()) {
			return fmt.Sprintf("whole for %v: %s; Ready is %q, it is to be evicted: %t, it has our mark: %t, our taint: %t, "+
				"CloudLinkDown is %q, it is held: %t", f.routed, f.route, f.ready, f.doomed, f.marked, f.tainted, f.down,
				!f.heldSince.IsZero())
		}
		return ""
	}},
}

// slotClauses are the promises that the oracle checks for each coordinator.
var slotClauses = []clause[slotFacts]{
	// A coordinator that a hub with a whole line reaches has a leader.
	{"led", func(f *slotFacts) string {
		if gone := f.now.Sub(f.led); f.reached > leads && gone > leads {
			return fmt.Sprintf("nobody has led for %v; the hub of %s has a line, and reaches it for %v", gone, f.hub, f.reached)
		}
		return ""
	}},
	// One hub leads at a time. A coordinator that began anew does not know who led before. So the next hub must wait until the
	// former term has ended.
	{"writers", func(f *slotFacts) string {
		if f.former > 0 && f.former < term {
			return fmt.Sprintf("another leads %v after the one before, who may not know it, has renewed its term", f.former)
		}
		return ""
	}},
}

// The bounds of the clauses.
const (
	// oldest is how old a node's Lease may be if one route has been whole for as long. It is node-monitor-grace-period (50 s)
	// less one heartbeat.
	oldest = 40 * time.Second
	// verdict is how long kube-controller-manager may take to see a change of a Lease: two of its periods, of 5 s each.
	verdict = 10 * time.Second
	// sees is how long kube-controller-manager may take until it follows the API server again. client-go's longest pause between
	// two tries is 30 s, to which chance adds up to 30 s. The bound leaves another 30 s.
	sees = 90 * time.Second
	// aged is how long after kubelet's last heartbeat a renewal may still be written.
	aged = 12 * time.Second
	// travels is how long a renewal may be on its way over an unharmed path. The path takes 10 ms, and Look comes once a second.
	// resends is what a path that loses packets may add. It is the hub's unackedTimeout, for which the kernel sends again.
	travels = 2 * time.Second
	resends = 12 * time.Second
	// arrives is how long a heartbeat may be on its way to the cloud after kubelet was told that it is taken.
	arrives = 15 * time.Second
	// givesBack is how long a leader may lead while nobody takes its writes. It is the patience of package heartbeat, 15 s, and
	// one heartbeat.
	givesBack = 25 * time.Second
	// blind is how long a hub may take to see that the connections of a harmed line are dead. It is package link's Trust.
	blind = 20 * time.Second
	// leads is how long a coordinator may be without a leader. Look sees a renewal up to a second late.
	leads = 16 * time.Second
	// hears is how long a node may take to learn that another one relays. First the other node sends its next heartbeat, which
	// may take 10 s. Then the node's hub asks the coordinator: within a minute (relay's keepEvery), or 10 s later if that
	// question fails.
	hears = 90 * time.Second
	// term is how long a leader may lead after it has renewed its term. It is edge.ElectionTerm, less the second by which Look
	// may see the renewal late.
	term = edge.ElectionTerm - time.Second
	// unmarks is how long it takes until a heartbeat has gone over the node's own line. It is the time for two heartbeats,
	// because the first may fail. They are up to 10.4 s apart, and Look may see one a second late.
	unmarks = 22 * time.Second
	// calm is how long coordinator-controller leaves a taint alone that has changed twice.
	calm = time.Minute
	// takesOver is how long coordinator-controller may take until it leads again and sees everything. The former leader's lock
	// lasts 15 s, and then client-go's longest pauses follow (sees).
	takesOver = 15*time.Second + sees
	// steps is by how much a stamp may move on between two looks: a microsecond each time that a writer moves it on.
	steps = 10 * time.Microsecond
	// puts is how often one client may renew a Lease with one stamp. It may try a second time after a conflict.
	puts = 2
	// rests is how long nothing must have been harmed before the oracle checks how much nodes ask. It is a little less than the
	// rest at the end of a history.
	rests = healing - 5*time.Second
	// settles is how long coordinator-controller may take to write what it has decided.
	settles = 10 * time.Second
	// healing is how long it may take until all is as before.
	healing = 3 * time.Minute
)

// lives reports whether, for longer than d, nothing has kept the node's heartbeats from the cloud.
func (f *facts) lives(d time.Duration) bool { return min(f.lived, f.routed) > d }

// shownReady reports whether the cloud has no reason to call the node anything but Ready.
func (f *facts) shownReady() bool { return f.lives(oldest+verdict) && f.judged > sees }

// well reports whether the node is Ready, and nothing evicts its Pods.
func (f *facts) well() bool { return f.ready == corev1.ConditionTrue && !f.doomed }

// The most requests that a node sends in a minute, if nothing has been harmed for some minutes (rests). A minute may contain one
// request more than its share, such as 7 heartbeats that are 10 s apart. A stream, such as a hub's presence or a push, is one
// request for as long as it lasts.
const (
	// asksCloud is 7 heartbeats (one in 10 s), a status report (one in 5 minutes), and the leader's report (one in 3 minutes,
	// docs/wan-cost.md). A leader also follows 7 selections at the cloud. Each of them begins again after 5 to 10 minutes with a
	// list and a watch, by chance all of them in one minute.
	asksCloud = 7 + 1 + 1 + 7*2
	// asksPool is what a hub asks a coordinator. It sends 7 copies of heartbeats. It opens one stream of the pool's state, every
	// 10 minutes. It asks twice which nodes relay (relay's keepEvery). It follows 3 resources for Pods (docs/pool-resources.md).
	// Each of them may begin again with a list and a watch, all of them in the same minute.
	asksPool = 7 + 1 + 2 + 3*2
	// asksLeading adds what a leader does in a minute. It renews its term 61 times (lead's renewEvery). It asks 31 times how far
	// the mirror has come, and declares 31 times what is current (docs/TOUR.md). It reads the election Lease once. It pushes 4
	// resources. Each push may begin 3 times: with the term, when its source changes, and when its selection begins again.
	asksLeading = asksPool + 61 + 31 + 31 + 1 + 4*3
)
