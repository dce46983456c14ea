package world

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/sim/history"
)

// asks are requests a second, by who is asked, who asks, and what for.
type asks map[asking]float64

type asking struct{ at, by, what string }

// state is what is cut in a pool: the lines to the cloud of the node of a number and of all later ones.
type state struct {
	name  string
	first func(nodes int) int
}

// states are in the order in which a pool goes through them; n1 has the coordinator.
var states = []state{
	{"idle", func(n int) int { return n + 1 }},
	{"one cut", func(n int) int { return n }},
	{"half cut", func(n int) int { return n - n/2 + 1 }},
	{"one line left", func(int) int { return 2 }},
	{"all cut", func(int) int { return 1 }},
}

// TestAsked lets a pool of SIM_NODES, 5 if that is not set, go through the states, and prints what is asked in each: requests a
// second. What a node that does not lead asks of its coordinator and of the cloud is bounded, in each state and a pool of any
// size.
func TestAsked(t *testing.T) {
	nodes, err := strconv.Atoi(os.Getenv("SIM_NODES"))
	if err != nil {
		nodes = 5
	}
	dir, before := t.TempDir(), spent()
	defer func() { t.Logf("%v of processor time", spent()-before) }()
	prepare(t, 0)
	synctest.Test(t, func(t *testing.T) {
		var say func(string, ...any)
		if os.Getenv("SIM_SAY") != "" {
			say = t.Logf
		}
		w, err := New(Config{Nodes: nodes, Coordinators: 1, Holds: 24 * time.Hour, Dir: dir, Say: say})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ready)
		cut := nodes + 1
		for _, s := range states {
			for ; cut > s.first(nodes); cut-- {
				e := history.Event{Does: history.Path, On: fmt.Sprintf("n%d", cut-1), To: "cloud", How: "silent"}
				w.harms = append(w.harms, happening{cut, e})
				w.harm(e)
			}
			time.Sleep(settled)
			had := w.asked()
			time.Sleep(counted)
			now := w.asked().since(had, w.leader())
			t.Logf("%s, %d nodes:\n%s", s.name, nodes, now)
			for _, at := range []string{"coordinator", "cloud"} {
				if each := now.to(at, "node") / float64(nodes); each > mostAsked {
					t.Errorf("%s: each node asks the %s %.2f times a second, of %.2f", s.name, at, each, mostAsked)
				}
			}
		}
		w.End()
	})
}

const (
	// settled is how long a state lasts before its requests are counted, for as long as counted: the longest pause of who looks
	// for a neighbour, twice.
	settled, counted = time.Minute, time.Minute
	// mostAsked is how often a node may ask a server, in times a second: a heartbeat every 10 s, the stream of the pool's state
	// once in the minute that is counted, a look at the mirror every 10 s, and for a neighbour every 15 s.
	mostAsked = 0.1 + 1.0/60 + 0.1 + 1.0/15
)

// asked returns how often who has asked for what until now, by the names of their certificates.
func (w *World) asked() asks {
	all := asks{}
	for s, at := range map[*server]string{w.slots[0]: "coordinator", w.cloud: "cloud", w.second: "cloud"} {
		s.mu.Lock()
		for by, kinds := range s.asked {
			for what, times := range kinds {
				all[asking{at, by, what}] += float64(times)
			}
		}
		s.mu.Unlock()
	}
	return all
}

// leader returns who holds the Lease of the election at the coordinator.
func (w *World) leader() string {
	for _, o := range w.slots[0].store.Objects(coordinationv1.Resource("leases")) {
		if l, ok := o.(*coordinationv1.Lease); ok && l.Namespace == edge.NamespaceSystem && l.Name == edge.LeaseElection {
			return ptr.Deref(l.Spec.HolderIdentity, "")
		}
	}
	return ""
}

// since returns what was asked a second in the time counted, by the leader, by all other hubs of the pool, and by others.
func (a asks) since(had asks, leader string) asks {
	all := asks{}
	for k, times := range a {
		came := (times - had[k]) / counted.Seconds()
		if came == 0 {
			continue
		}
		switch name := strings.TrimPrefix(k.by, "system:node:"); {
		case name == leader:
			k.by = "leader"
		case strings.HasPrefix(name, "n"):
			k.by = "node"
		default:
			k.by = "others"
		}
		all[k] += came
	}
	return all
}

// to returns how often something is asked for at a server, by whoever it is.
func (a asks) to(at, by string) (sum float64) {
	for k, times := range a {
		if k.at == at && k.by == by {
			sum += times
		}
	}
	return sum
}

// String is a table, those first that are most.
func (a asks) String() string {
	var b strings.Builder
	for _, k := range slices.SortedFunc(maps.Keys(a), func(x, y asking) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.by, y.by), cmp.Compare(a[y], a[x]), cmp.Compare(x.what, y.what))
	}) {
		fmt.Fprintf(&b, "%-11s %-6s %8.3f  %s\n", k.at, k.by, a[k], k.what)
	}
	return b.String()
}
