//go:debug randseednop=0

package world

import (
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/sim/history"
	"yurtcoordinator/internal/sim/stock"
)

func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// disk returns where machines' disks are: in memory, if there is a place for such files. Each write waits for a real disk, which
// takes as long as all else.
func disk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sim")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func prepare(t *testing.T, seed uint64) {
	t.Helper()
	debug.SetGCPercent(400) // a world is small
	if err := stock.Prepare(int64(seed)); err != nil {
		t.Fatal(err)
	}
}

// TestHeartbeats: nodes register and renew their Leases through their hubs.
func TestHeartbeats(t *testing.T) {
	dir := disk(t)
	before := spent()
	prepare(t, 0)
	synctest.Test(t, func(t *testing.T) {
		w, err := New(Config{Nodes: 3, Dir: dir, Say: t.Logf})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		c := kubernetes.NewForConfigOrDie(w.client())
		leases, err := c.CoordinationV1().Leases("kube-node-lease").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases.Items {
			t.Logf("%s is %v old", l.Name, time.Since(l.Spec.RenewTime.Time))
			if time.Since(l.Spec.RenewTime.Time) > 11*time.Second {
				t.Errorf("%s is old", l.Name)
			}
		}
		if len(leases.Items) != 3+steadyNodes {
			t.Errorf("%d leases", len(leases.Items))
		}
		w.End()
	})
	t.Logf("%v of processor time for 6 minutes", spent()-before)
}

// TestEvicted: kube-controller-manager evicts the Pods of dead nodes, even if it is all nodes of a pool, and no others.
func TestEvicted(t *testing.T) { evicts(t, 0) }

// TestHeld: … but not while evictions are held from a pool that died as a whole.
func TestHeld(t *testing.T) { evicts(t, 4*time.Minute) }

func evicts(t *testing.T, holds time.Duration) {
	dir := disk(t)
	prepare(t, 0)
	synctest.Test(t, func(t *testing.T) {
		w, err := New(Config{Nodes: 3, Holds: holds, Dir: dir, Say: t.Logf})
		if err != nil {
			t.Fatal(err)
		}
		stay := func() (all []string) {
			for _, o := range w.cloud.store.Objects(corev1.Resource("pods")) {
				if p, ok := o.(*corev1.Pod); ok && p.DeletionTimestamp == nil {
					all = append(all, p.Name)
				}
			}
			return all
		}
		want := func(names ...string) {
			t.Helper()
			if got := stay(); !slices.Equal(got, names) {
				t.Errorf("after %v: %q stay, want %q", time.Since(began), got, names)
			}
		}
		die := func(names ...string) {
			for _, n := range names {
				e := history.Event{Does: history.Machine, On: n, How: "dead"}
				w.harms = append(w.harms, happening{0, e})
				w.harm(e)
			}
		}
		time.Sleep(ready)
		die("n1")
		time.Sleep(50 * time.Second)
		want("n1", "n2", "n3")
		time.Sleep((stays + 15) * time.Second)
		want("n2", "n3")
		die("n1", "n2", "n3")
		if holds > 0 {
			time.Sleep(holds)
			want("n2", "n3")
		}
		time.Sleep((50 + stays + 35) * time.Second)
		want()
		w.End()
	})
}

// A world has a minute to begin, and three to recover.
const ready, recovery = time.Minute, 3 * time.Minute

// live lets one history happen, and returns what was not kept.
func live(t *testing.T, h history.History) (breaches []string, held bool) {
	return watched(t, h, func(*World, *Judge) {})
}

// watched is live that calls look each time that the oracle has looked.
func watched(t *testing.T, h history.History, look func(w *World, j *Judge)) (breaches []string, held bool) {
	dir := disk(t)
	prepare(t, h.Seed)
	synctest.Test(t, func(t *testing.T) {
		say := t.Logf
		if os.Getenv("SIM_SAY") == "" {
			say = nil
		}
		w, err := New(Config{
			Seed: h.Seed, Nodes: h.Nodes, Coordinators: h.Coordinators, Unrelayed: h.Unrelayed, Readers: h.Readers,
			Holds: h.Holds, Dir: dir, Say: say,
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(ready)
		j := w.NewJudge()
		rest := recovery
		if h.Readers && slices.ContainsFunc(h.Events, suspends) {
			rest += wakes
		}
		w.Live(h, rest, func() {
			j.Look()
			look(w, j)
		})
		breaches, held = j.Breaches, j.Cut.Ever
		w.End()
	})
	return breaches, held
}

// silent is a path that is cut in silence, from some time on and for good.
func silent(at time.Duration, from, to string) history.Event {
	return history.Event{At: at, Does: history.Path, On: from, To: to, How: "silent"}
}

// TestRelayed: a node whose line is cut goes on over a neighbour's while there is no coordinator, and that is the route which
// the oracle counts. In a pool that does not relay it has none.
func TestRelayed(t *testing.T) {
	for _, unrelayed := range []bool{false, true} {
		h := history.History{Nodes: 3, Coordinators: 1, Unrelayed: unrelayed, Long: 3 * time.Minute, Events: []history.Event{
			{At: 40 * time.Second, Does: history.Program, On: "n1/yurt-coordinator", How: "killed"},
			silent(time.Minute, "n3", "cloud"),
		}}
		age, route, by := time.Duration(0), "", ""
		got, _ := watched(t, h, func(w *World, j *Judge) {
			if time.Since(began) > ready+h.Long-time.Second {
				return
			}
			f := j.nodes["n3"]
			age, route, by = f.now.Sub(f.renewed), f.route, ""
			for _, o := range w.cloud.store.Objects(coordinationv1.Resource("leases")) {
				if l, ok := o.(*coordinationv1.Lease); ok && l.Name == "n3" {
					by = l.Annotations[edge.AnnotationRelayedBy]
				}
			}
		})
		if len(got) > 0 {
			t.Error(got)
		}
		switch {
		case unrelayed && (age < time.Minute || route != "" || by != ""),
			!unrelayed && (age > 12*time.Second || !strings.HasPrefix(route, "n3: line of ") || by == ""):
			t.Errorf("relays: %t; the Lease is %v old, relayed by %q; whole: %q", !unrelayed, age, by, route)
		}
	}
}

// atServer is one of two API servers that is sick for three minutes.
func atServer(how string, nodes, coordinators int) history.History {
	sick := history.Event{At: 10 * time.Second, For: 3 * time.Minute, Does: history.Server, On: second, How: how}
	return history.History{
		Nodes: nodes, Coordinators: coordinators, Unrelayed: true, Long: 4 * time.Minute, Events: []history.Event{sick},
	}
}

// TestKept: histories after which nothing is to be said.
func TestKept(t *testing.T) {
	for name, h := range map[string]history.History{
		"one node is cut off": {Nodes: 5, Coordinators: 1, Long: 3 * time.Minute, Events: []history.Event{
			silent(0, "n3", "cloud"),
		}},
		"the leader too, later": {Nodes: 4, Coordinators: 1, Long: 4 * time.Minute, Events: []history.Event{
			silent(0, "n3", "cloud"), silent(time.Minute, "n1", "cloud"), silent(90*time.Second, "n2", "cloud"),
		}},
		"a machine dies": {Nodes: 4, Coordinators: 1, Long: 4 * time.Minute, Events: []history.Event{
			silent(0, "n3", "cloud"), {At: time.Minute, Does: history.Machine, On: "n3", How: "dead"},
		}},
		"the coordinator dies for a while": {Nodes: 4, Coordinators: 1, Long: 4 * time.Minute, Events: []history.Event{
			silent(0, "n3", "cloud"),
			{At: time.Minute, For: 30 * time.Second, Does: history.Program, On: "n1/yurt-coordinator", How: "killed"},
		}},
		"clocks are wrong": {Nodes: 4, Coordinators: 1, Long: 4 * time.Minute, Events: []history.Event{
			{At: 0, Does: history.Clock, On: "n3", Much: -3600}, {At: 0, Does: history.Clock, On: "n2", Much: 3600},
			silent(10*time.Second, "n3", "cloud"),
		}},
		// Each of the next four is made for a fault of internal/sim/cmd.
		"a line is back": {Nodes: 3, Coordinators: 1, Long: 2 * time.Minute, Events: []history.Event{
			{At: 0, For: time.Minute, Does: history.Path, On: "n3", To: "cloud", How: "silent"},
		}},
		"three neighbours are relayed by the fourth": {Nodes: 5, Coordinators: 1, Long: 5 * time.Minute, Events: []history.Event{
			silent(0, "n3", "cloud"), silent(0, "n5", "cloud"), silent(0, "n2", "cloud"),
			{At: 3 * time.Minute, Does: history.Program, On: "n1/yurt-coordinator", How: "killed"},
			silent(190*time.Second, "n4", "cloud"),
		}},
		"three neighbours are out of reach": {Nodes: 5, Coordinators: 1, Long: 3 * time.Minute, Events: []history.Event{
			{At: 40 * time.Second, Does: history.Program, On: "n1/yurt-coordinator", How: "killed"},
			silent(45*time.Second, "n3", "n5"), silent(45*time.Second, "n3", "n1"), silent(45*time.Second, "n3", "n2"),
			silent(50*time.Second, "n3", "cloud"),
		}},
		"a hub starts while nobody relays": {Nodes: 3, Coordinators: 1, Long: 5 * time.Minute, Events: []history.Event{
			{At: 20 * time.Second, For: time.Minute, Does: history.Path, On: "n1", To: "cloud", How: "silent"},
			{At: 20 * time.Second, For: time.Minute, Does: history.Path, On: "n2", To: "cloud", How: "silent"},
			{At: 40 * time.Second, For: 5 * time.Second, Does: history.Program, On: "n3/hub", How: "killed"},
			{At: 3 * time.Minute, Does: history.Program, On: "n1/yurt-coordinator", How: "killed"},
			silent(190*time.Second, "n3", "cloud"),
		}},
		"a cut node is heard by a standby alone": {
			Nodes: 4, Coordinators: 2, Unrelayed: true, Long: 4 * time.Minute, Events: []history.Event{
				silent(10*time.Second, "n3", "n1"), silent(20*time.Second, "n3", "cloud"),
			},
		},
		"a standby that the leader at home does not reach": {
			Nodes: 5, Coordinators: 2, Unrelayed: true, Long: 4 * time.Minute, Events: []history.Event{
				silent(10*time.Second, "n1", "n2"), silent(10*time.Second, "n3", "n1"), silent(20*time.Second, "n3", "cloud"),
			},
		},
		"a coordinator answers pings and reads, and takes no write": {
			Nodes: 4, Coordinators: 2, Unrelayed: true, Long: 4 * time.Minute, Events: []history.Event{
				{At: 10 * time.Second, Does: history.Server, On: "n1", How: "readonly"}, silent(20*time.Second, "n3", "cloud"),
			},
		},
		"a coordinator that led hangs for writes, and the line of the leader fails later": {
			Nodes: 5, Coordinators: 2, Unrelayed: true, Long: 4 * time.Minute, Events: []history.Event{
				silent(10*time.Second, "n3", "cloud"), {At: 40 * time.Second, Does: history.Server, On: "n1", How: "readonly"},
				silent(90*time.Second, "n1", "cloud"), silent(90*time.Second, "n2", "cloud"),
			},
		},
		// A middlebox forgets one connection to the cloud, and others live on. The link is up, so nothing resets the dead one,
		// and heartbeats were sent on it for a minute and a half. Found by seed 110.
		"a connection is forgotten": {Seed: 110, Nodes: 3, Coordinators: 1, Long: 2 * time.Second, Events: []history.Event{
			{At: 0, For: time.Second, Does: history.Path, On: "n3", To: "cloud", How: "half"},
		}},
		"a connection is forgotten, without a coordinator": {
			Seed: 110, Nodes: 3, Coordinators: 0, Long: 2 * time.Second, Events: []history.Event{
				{At: 0, For: time.Second, Does: history.Path, On: "n3", To: "cloud", How: "half"},
			},
		},
		// Hubs kept the Lease of the highest revision that they had seen: each heartbeat met a conflict, and no node was heard.
		// Found by seed 1001, all.
		"the cloud's storage is set back": {Nodes: 3, Coordinators: 1, Unrelayed: true, Holds: 24 * time.Hour,
			Long: 3 * time.Minute, Events: []history.Event{{At: time.Minute, Does: history.Restore, On: "cloud", Much: 30}},
		},
		// Hubs judged by witnesses alone, and the leader's had not changed since the backup. It stayed in the history of before,
		// so a follower that knew of the later one asked the mirror again and again, and was fed nothing. Found by seed 1.
		"the cloud's storage is set back twice": {Seed: 1, Nodes: 5, Coordinators: 1, Unrelayed: true, Holds: 24 * time.Hour,
			Long: 378 * time.Second, Events: []history.Event{
				{At: 91 * time.Second, For: 73 * time.Second, Does: history.Program, On: "n3/hub", How: "killed"},
				{At: 212 * time.Second, Does: history.Restore, On: "cloud", Much: 120},
				{At: 288 * time.Second, Does: history.Compact, On: "n1"},
				{At: 343 * time.Second, For: 69 * time.Second, Does: history.Server, On: "cloud", To: "n4", How: "hang"},
				{At: 377 * time.Second, For: time.Second, Does: history.Server, On: "cloud", How: "503", Much: 5},
				{At: 377 * time.Second, Does: history.Restore, On: "cloud", Much: 30},
			},
		},
		// A machine starts in 1943 on an empty disk: no server's certificate was valid yet, and it was cut off. Found by seed
		// 253254042, machines.
		"a machine with a lost disk starts long ago": {Nodes: 3, Coordinators: 1, Holds: 2 * time.Minute, Long: 3 * time.Minute,
			Events: []history.Event{
				{At: 10 * time.Second, For: 150 * time.Second, Does: history.Clock, On: "n3", Much: -1.8e+09},
				{At: 20 * time.Second, For: 13 * time.Second, Does: history.Machine, On: "n3", How: "blank"},
			},
		},
		// … and with it the pool's only coordinator: its Lease was nowhere, and kubelet does not make one before it has seen its
		// Node. The oracle took it for a node that can speak. Found by seed 193227535, links.
		"a machine with a lost disk, and its coordinator": {Nodes: 3, Coordinators: 1, Unrelayed: true, Long: time.Minute,
			Events: []history.Event{
				{At: 0, For: time.Second, Does: history.Machine, On: "n1", How: "blank"},
				{At: time.Second, For: 58 * time.Second, Does: history.OneWay, On: "cloud", To: "n1", How: "silent"},
			},
		},
		// Two terms ended while all was well, since the leader had lost its line: the next one pushes to each coordinator. The
		// oracle took it for too much.
		"a leader gives all slots back": {
			Seed: 12037648, Nodes: 5, Coordinators: 3, Holds: 24 * time.Hour, Long: 129 * time.Second, Events: []history.Event{
				{At: 5 * time.Second, For: 83500 * time.Millisecond, Does: history.Server, On: "n1", To: "n1", How: "403"},
				{At: 47 * time.Second, For: 15 * time.Second, Does: history.Server, On: "cloud/2", How: "hang"},
				{At: 64 * time.Second, For: 12 * time.Second, Does: history.Server, On: "n3", How: "readonly"},
				{At: 71 * time.Second, For: 7 * time.Second, Does: history.Program, On: "n3/yurt-coordinator", How: "killed"},
			},
		},
		// A hub starts while no certificate is valid any more by its clock: it trusts nobody. The oracle took that for harm to
		// its line, and not to its way to the coordinator. Found by seed 170375871, machines.
		"a machine starts after the end of certificates": {Nodes: 3, Coordinators: 1, Unrelayed: true, Long: 150 * time.Second,
			Events: []history.Event{
				{At: 10 * time.Second, For: 2 * time.Minute, Does: history.Clock, On: "n3", Much: 2.5e+09},
				{At: 20 * time.Second, For: 3 * time.Second, Does: history.Machine, On: "n3", How: "dead"},
			},
		},
		// An API server says when to ask again. client-go waits for that until the time of the heartbeat is over. The hub took
		// that for a Lease that hangs, counted refusals by twos, and never left the server. Found by seed 9022, data.
		"a server says when to ask again, and so does the coordinator": {
			Nodes: 3, Coordinators: 1, Unrelayed: true, Long: 2 * time.Minute, Events: []history.Event{
				{At: 8 * time.Second, For: 90 * time.Second, Does: history.Server, On: "cloud/2", How: "503", Much: 5},
				{At: 10 * time.Second, For: 80 * time.Second, Does: history.Server, On: "n1", How: "503", Much: 5},
			},
		},
		// One of two API servers is sick, and half of the hubs are with it.
		"a server takes no writes":        atServer("readonly", 3, 1),
		"a server hangs":                  atServer("hang", 3, 1),
		"a server has no storage":         atServer("500", 3, 1),
		"a server is not ready":           atServer("503", 3, 1),
		"a server takes no writes, alone": atServer("readonly", 1, 0),
		"a server hangs, alone":           atServer("hang", 1, 0),
		"a server has no storage, alone":  atServer("500", 1, 0),
		"a server is not ready, alone":    atServer("503", 1, 0),
		// A write was carried out when the server that held it was well again, long after its hub had given it up. Found by seed
		// 79346030, servers.
		"a server holds writes, and their hubs can't take them back": {
			Nodes: 3, Coordinators: 1, Long: 5 * time.Minute, Events: []history.Event{
				{At: 8 * time.Second, For: 45 * time.Second, Does: history.Server, On: "cloud", How: "readonly"},
				{At: 20 * time.Second, For: 2 * time.Minute, Does: history.Path, On: ownPool, To: "cloud", How: "silent"},
			},
		},
		// Programs read what changes all the time.
		"the leader is cut off, and programs read": {Nodes: 3, Coordinators: 1, Readers: true, Long: 4 * time.Minute,
			Events: []history.Event{
				{At: 20 * time.Second, For: 2 * time.Minute, Does: history.Path, On: "n1", To: "cloud", How: "silent"},
				{At: 40 * time.Second, For: 5 * time.Second, Does: history.Program, On: "n2/hub", How: "killed"},
			},
		},
		"the coordinator begins anew, the cloud forgets, and programs read": {
			Nodes: 3, Coordinators: 1, Unrelayed: true, Readers: true, Long: 4 * time.Minute, Events: []history.Event{
				{At: 20 * time.Second, For: 5 * time.Second, Does: history.Program, On: "n1/yurt-coordinator", How: "killed"},
				{At: 60 * time.Second, For: time.Minute, Does: history.Path, On: "n3", To: "cloud", How: "silent"},
				{At: 100 * time.Second, Does: history.Compact, On: "cloud"},
				{At: 130 * time.Second, For: 20 * time.Second, Does: history.Server, On: "cloud", How: "hang"},
				{At: 3 * time.Minute, For: 10 * time.Second, Does: history.Machine, On: "n2", How: "dead"},
			},
		},
		// The API servers answer from their watch caches, and take no write. Hubs must find out that the line is of no use.
		"the cloud's etcd is away": {Nodes: 4, Coordinators: 1, Unrelayed: true, Long: 4 * time.Minute, Events: []history.Event{
			{At: 20 * time.Second, For: 3 * time.Minute, Does: history.Server, On: "cloud", How: "etcd"},
			silent(40*time.Second, "n3", "cloud"),
		}},
		"one of the cloud's API servers does not reach etcd": {
			Nodes: 4, Coordinators: 1, Unrelayed: true, Long: 4 * time.Minute, Events: []history.Event{
				{At: 20 * time.Second, For: 3 * time.Minute, Does: history.Server, On: second, How: "etcd"},
			},
		},
		// The other replica of coordinator-controller has to wait for the end of the leader's lock.
		"the leader of coordinator-controller dies as a hold ends": {
			Nodes: 3, Coordinators: 1, Holds: 2 * time.Minute, Long: 4 * time.Minute, Events: []history.Event{
				{At: 15 * time.Second, For: 182 * time.Second, Does: history.Path, On: ownPool, To: "cloud", How: "silent"},
				{At: 155 * time.Second, For: 6500 * time.Millisecond, Does: history.Machine, On: controls[0], How: "blank"},
			},
		},
		// The leader's line forgets what is idle. Each heartbeat that it forwards meets a dead connection, and it hears its own
		// Lease taken in between, so it goes on leading.
		"a leader forwards over connections that are forgotten": {
			Seed: 252984262, Nodes: 5, Coordinators: 1, Long: 249 * time.Second, Events: []history.Event{
				{At: 0, For: 17500 * time.Millisecond, Does: history.Path, On: "n1", To: "cloud", How: "silent"},
				{At: 91 * time.Second, For: 196 * time.Second, Does: history.OneWay, On: "cloud", To: "n5", How: "silent"},
				{At: 116 * time.Second, For: 262500 * time.Millisecond, Does: history.Path, On: "n2", To: "cloud", How: "half"},
				{At: 3 * time.Minute, For: 3500 * time.Millisecond, Does: history.Machine, On: "cloud", How: "suspended"},
			},
		},
		// A heartbeat is sent in time, and the kernel sends it again until it arrives.
		"a line loses most of what the pool sends": {
			Seed: 252984418, Nodes: 5, Coordinators: 1, Holds: 2 * time.Minute, Long: 581 * time.Second, Events: []history.Event{
				{At: 209 * time.Second, For: 3 * time.Minute, Does: history.Path, On: "n4", To: "n2", How: "silent"},
				{
					At: 296 * time.Second, For: 267 * time.Second, Does: history.OneWay, On: ownPool, To: "cloud", How: "loss",
					Much: 0.6,
				},
				{At: 302 * time.Second, For: 17 * time.Second, Does: history.Path, On: ownPool, To: "cloud", How: "far", Much: 2},
				{At: 350 * time.Second, For: time.Second, Does: history.Machine, On: controls[1], How: "dead"},
				{At: 387 * time.Second, For: 3 * time.Second, Does: history.OneWay, On: "cloud", To: controls[1], How: "refused"},
				{At: 438 * time.Second, For: 73 * time.Second, Does: history.Path, On: "n5", To: "cloud", How: "silent"},
				{At: 450 * time.Second, For: 194 * time.Second, Does: history.OneWay, On: "cloud", To: "n3", How: "refused"},
				{At: 564 * time.Second, For: 69 * time.Second, Does: history.Path, On: "n5", To: "cloud", How: "half"},
			},
		},
		// The other hubs' streams from it are dead, and nothing tells them so. One of them wins the election over a connection
		// that was refused, and so made anew.
		"the coordinator's machine is off for a moment": {
			Seed: 239474887, Nodes: 5, Coordinators: 1, Unrelayed: true, Long: 48 * time.Second, Events: []history.Event{
				{At: 0, For: 47 * time.Second, Does: history.OneWay, On: "n1", To: "cloud", How: "small", Much: 1200},
				{At: 21 * time.Second, For: time.Second, Does: history.Machine, On: "n1", How: "dead"},
			},
		},
		// The second server says once that it fails, and then hangs. Its hub must leave it before the coordinator fails, too.
		"a server behind the balancer fails, and then hangs": {
			Seed: 239477434, Nodes: 5, Coordinators: 1, Holds: 2 * time.Minute, Long: 268 * time.Second, Events: []history.Event{
				{At: 196 * time.Second, For: 82 * time.Second, Does: history.Server, On: second, How: "503", Much: 5},
				{At: 197 * time.Second, For: 234 * time.Second, Does: history.Server, On: second, How: "etcd"},
				{At: 216 * time.Second, For: 233 * time.Second, Does: history.Server, On: "n1", How: "etcd"},
			},
		},
		"a pool is cut off": {Nodes: 4, Coordinators: 1, Holds: 24 * time.Hour, Long: 5 * time.Minute, Events: []history.Event{
			{At: 10 * time.Second, For: 4 * time.Minute, Does: history.Path, On: ownPool, To: "cloud", How: "silent"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := live(t, h); len(got) > 0 {
				t.Errorf("%q\n%s", got, h.Table())
			}
		})
	}
}

// TestSeeds: random histories. It is what internal/sim/cmd runs: SIM_FROM and SIM_COUNT choose the seeds, SIM_NODES and
// SIM_COORDINATORS the pool, SIM_WEIGHTS what happens (links, servers, machines, all). SIM_SHRINK is how often a history that
// breaks may be tried again, to make it smaller.
func TestSeeds(t *testing.T) {
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return otherwise
	}
	weights := map[string]history.Weights{
		"": history.All, "all": history.All, "links": history.Links, "servers": history.Servers,
		"machines": history.Machines, "data": history.Data,
	}[os.Getenv("SIM_WEIGHTS")]
	if weights == nil {
		t.Fatal("SIM_WEIGHTS: use links, servers, machines, data or all")
	}
	from, nodes, coordinators := number("SIM_FROM", 0), number("SIM_NODES", 5), number("SIM_COORDINATORS", 1)
	for seed := from; seed < from+number("SIM_COUNT", 4); seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			h := history.Random(uint64(seed), nodes, coordinators, Cast(nodes, coordinators), weights)
			h.Readers = os.Getenv("SIM_WEIGHTS") == "data"
			began := spent()
			got, held := live(t, h)
			cpu, simulated := spent()-began, h.Long+ready+recovery
			t.Logf("seed %d: %d simulated seconds for one of a processor; a pool to hold: %t", seed,
				int(simulated.Seconds()/cpu.Seconds()), held)
			if len(got) == 0 {
				return
			}
			clause, _, _ := strings.Cut(got[0], ":")
			small := history.Shrink(h, 2, number("SIM_SHRINK", 0), func(c history.History) bool {
				again, _ := live(t, c)
				return slices.ContainsFunc(again, func(breach string) bool { return strings.HasPrefix(breach, clause+":") })
			})
			t.Errorf("BREACH of seed %d: %q\n%s", seed, got, small.Table())
		})
	}
}
