package world

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// clause is a promise about nodes, or about coordinators. broken says how the facts break it; "" means that they don't.
type clause[F any] struct {
	name   string
	broken func(f *F) string
}

// clauses are what the oracle asks of each node at each moment. They know what the world did, and what is seen at the cloud,
// and nothing else. oracle_test.go has a breach of each.
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
	// Whoever renews a Lease does it for a heartbeat of kubelet's: the Lease of a dead node ages.
	{"dead", func(f *facts) string {
		if after := f.renewed.Sub(f.beat); !f.beat.IsZero() && after > aged+travels {
			return fmt.Sprintf("its Lease was renewed %v after kubelet had sent its last heartbeat", after)
		}
		return ""
	}},
	// What kubelet was told to be taken is soon in the cloud, unless no route was whole all the time. A hub that leads and can't
	// write has its time to give the term back.
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
	// What is written stands for a heartbeat of kubelet's, and is written little more than once. After a clock went back, or by
	// who does not know that it is there already, with the least stamp that is later than what was there.
	{"writers", func(f *facts) string {
		moved := f.step > 0 && f.step <= steps.Microseconds()
		switch age := f.now.Sub(f.sent); {
		case f.renewed != f.now || moved:
		case f.sent.IsZero():
			return fmt.Sprintf("its Lease was renewed with %d, which kubelet never sent; that is %d later than before",
				f.stamp, f.step)
		case age > aged+travels:
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
	// … and no longer than its NodePool says. A clock that is set back makes it longer.
	{"held", func(f *facts) string {
		is := f.now.Sub(f.heldSince)
		if !f.heldSince.IsZero() && is > f.holds+settles && f.controlled > takesOver && f.dated > is {
			return fmt.Sprintf("it is held for %v, of %v", is, f.holds)
		}
		return ""
	}},
	// When its own line is back, all is as before. While another route is whole, the node is well.
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

// slotClauses are what the oracle asks of each coordinator.
var slotClauses = []clause[slotFacts]{
	// A coordinator that a hub with a whole line reaches has a leader.
	{"led", func(f *slotFacts) string {
		if gone := f.now.Sub(f.led); f.reached > leads && gone > leads {
			return fmt.Sprintf("nobody has led for %v; the hub of %s has a line, and reaches it for %v", gone, f.hub, f.reached)
		}
		return ""
	}},
	// One hub leads at a time: of whom led before, a coordinator that began anew knows nothing.
	{"writers", func(f *slotFacts) string {
		if f.former > 0 && f.former < term {
			return fmt.Sprintf("another leads %v after the one before, who may not know it, has renewed its term", f.former)
		}
		return ""
	}},
}

// Bounds of the clauses: SIMULATION §4.
const (
	// oldest is how old a living node's Lease may be, and for how long one route must have been whole for that:
	// node-monitor-grace-period, 50 s, less one heartbeat.
	oldest = 40 * time.Second
	// verdict is how much later kube-controller-manager has seen what a Lease says: two of its periods, of 5 s.
	verdict = 10 * time.Second
	// sees is how long kube-controller-manager may take until it follows the API server again: client-go's longest pause between
	// tries is 30 s, and as much again by chance.
	sees = 90 * time.Second
	// aged is after how long since kubelet's last heartbeat nobody renews any more.
	aged = 12 * time.Second
	// travels is how long that write may be on its way: an unharmed path takes 10 ms, and Look comes once a second.
	travels = 2 * time.Second
	// arrives is how long a heartbeat may be on its way to the cloud that kubelet was told to be taken.
	arrives = 15 * time.Second
	// givesBack is how long a leader may take whose writes nobody takes (heartbeat's patience, 15 s), and one heartbeat.
	givesBack = 25 * time.Second
	// blind is for how long a hub may not see that connections of a line that was harmed are dead: link's longest patience.
	blind = 20 * time.Second
	// leads is how long a coordinator may be without a leader. Look sees a renewal up to a second late.
	leads = 16 * time.Second
	// hears is how long it takes until a node has heard who relays: the other's next heartbeat, and its own question, which a
	// hub asks each minute (relay's keepEvery), or 10 s after one that failed.
	hears = 90 * time.Second
	// term is how long a leader may go on after it has renewed its term, edge.ElectionTerm, less what Look may be late.
	term = edge.ElectionTerm - time.Second
	// unmarks is after how long a heartbeat has gone by the node's own line: kubelet's next one, and one that fails. Between two
	// are 10 s and by chance up to 4 % more; Look sees it up to a second late.
	unmarks = 22 * time.Second
	// calm is for how long coordinator-controller leaves a taint that has changed twice.
	calm = time.Minute
	// takesOver is how long it takes coordinator-controller until it leads again, and sees everything: 15 s for the former one's
	// lock, and client-go's longest pause.
	takesOver = 15*time.Second + sees
	// steps is what a stamp moves on by, a microsecond, as often as it may be between two looks.
	steps = 10 * time.Microsecond
	// puts is how often somebody may renew a Lease with one stamp: the second time if the first met a conflict.
	puts = 2
	// rests is how long nothing is harmed until a pool is as before; it is a little less than the rest that histories end with.
	rests = healing - 5*time.Second
	// settles is how long coordinator-controller may take to write what it has decided.
	settles = 10 * time.Second
	// healing is how long it takes until all is as before.
	healing = 3 * time.Minute
)

// lives reports whether nothing has kept the node's heartbeats from the cloud for a time.
func (f *facts) lives(d time.Duration) bool { return min(f.lived, f.routed) > d }

// shownReady reports whether the cloud has no reason to call the node anything but Ready.
func (f *facts) shownReady() bool { return f.lives(oldest+verdict) && f.judged > sees }

// well reports whether the node is Ready, and nothing evicts its Pods.
func (f *facts) well() bool { return f.ready == corev1.ConditionTrue && !f.doomed }

// How many requests a node sends in a minute, if nothing has been harmed for some minutes: what is sent each so many seconds, and
// one more at the minute's edge. Streams, as the presence of a hub or a push, are one request for as long as they last.
const (
	// asksCloud: a heartbeat each 10 s; a status report each 5 minutes and the leader's report each 3 (docs/wan-cost.md). A
	// leader follows seven selections there, each of which begins again each 5 to 10 minutes, with a list at most: all in one
	// minute, if chance has it.
	asksCloud = 7 + 1 + 1 + 7*2
	// asksPool: a copy of each heartbeat; the stream of the pool's state, which begins again each 10 minutes; the question who
	// relays, each minute (relay's keepEvery); and the three resources that Pods read there, as the hub serves them
	// (docs/pool-resources.md), which begin again as those of the cloud do.
	asksPool = 7 + 1 + 2 + 3*2
	// asksLeading: a leader renews its term each second (lead's renewEvery), and each 2 s asks where the mirror stands and
	// declares what is current (docs/TOUR.md). With its term it reads the election Lease, and begins to push four resources; a
	// push begins again when its source changes, and when the selection that it is of begins again.
	asksLeading = asksPool + 61 + 31 + 31 + 1 + 4*3
)
