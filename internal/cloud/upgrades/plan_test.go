package upgrades

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yurtcoordinator/apis"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

const (
	older, newer = "v0.2.0", "v0.3.0"
)

// well returns a node that is well, and of a version.
func well(name, version string) node {
	return node{name: edge.NodeName(name), version: version, takes: true, ready: true, connected: true}
}

func (n node) with(w work, of string, since time.Duration) node {
	n.work, n.of, n.since = w, of, noon.Add(-since)
	return n
}

// site returns a pool whose hubs are to be newer.
func site(name string, nodes ...node) pool {
	return pool{name: edge.PoolName(name), version: newer, most: 1, open: true, nodes: nodes}
}

func names(steps []step) (all []string) {
	for _, s := range steps {
		all = append(all, string(s.node))
	}
	return all
}

func TestPlan(t *testing.T) {
	cut := func(n node) node { n.connected = false; return n }
	dead := func(n node) node { n.ready = false; return n }
	bare := func(n node) node { n.takes = false; return n }
	leads := func(n node) node { n.leads = true; return n }
	said := func(n node, why string) node { n.why = why; return n }
	a, b, c := well("a", older), well("b", older), well("c", older)
	for name, tt := range map[string]struct {
		pool   pool
		state  state
		pull   string
		give   string
		forget string
		says   string
		again  time.Duration
	}{
		"nobody wants anything":   {pool: pool{name: "p", nodes: []node{a, b}}},
		"nothing is left to want": {pool: pool{name: "p", nodes: []node{a.with(wentBack, newer, time.Minute)}}, forget: "a"},
		"all are there":           {pool: site("p", well("a", newer), well("b", newer)), state: UpToDate},
		"no nodes":                {pool: site("p"), state: UpToDate},
		"the first is pulled":     {pool: site("p", a, b, c), state: Upgrading, pull: "a", says: "pulled on a"},
		"one pull at a time":      {pool: site("p", a.with(pulling, newer, 1), b, c), state: Upgrading},
		"the pull does not go on": {
			pool: site("p", said(a.with(pulling, newer, 1), "ErrImagePull: no"), b), state: Upgrading, says: "ErrImagePull: no",
		},
		"what is pulled is delivered": {pool: site("p", a.with(pulled, newer, 1), b, c), state: Upgrading, give: "a", pull: "b"},
		"the next is pulled meanwhile": {
			pool: site("p", a.with(busy, newer, 1), b, c), state: Upgrading, pull: "b", says: "Upgrading: a.",
		},
		"the next waits for the former": {pool: site("p", a.with(busy, newer, 1), b.with(pulled, newer, 1), c), state: Upgrading,
			pull: "c"},
		"it has answered, and does not say so yet": {
			pool: site("p", a.with(done, newer, 1), b.with(pulled, newer, 1), c.with(pulled, newer, 1)), state: Upgrading,
		},
		"it says so, and is not Ready": {
			pool:  site("p", dead(well("a", newer)).with(done, newer, 1), b.with(pulled, newer, 1), c.with(pulled, newer, 1)),
			state: Upgrading,
		},
		"it says so": {
			pool: site("p", well("a", newer).with(done, newer, 1), b.with(pulled, newer, 1), c), state: Upgrading, give: "b",
			pull: "c", forget: "a",
		},
		"the last has answered": {
			pool: site("p", well("a", newer), b.with(done, newer, 1)), state: Upgrading, says: "Upgrading: b.",
		},
		"its upgrader still runs": {
			pool: site("p", well("a", newer).with(busy, newer, 1), b.with(pulled, newer, 1)), state: Upgrading,
		},
		"the leader is last": {pool: site("p", leads(a), b, c), state: Upgrading, pull: "b"},
		"a cut node is passed over": {
			pool: site("p", cut(a), b.with(pulled, newer, 1), c), state: Upgrading, give: "b", pull: "c",
		},
		"a dead one too": {pool: site("p", dead(a), b), state: Upgrading, pull: "b"},
		"one that takes none too": {
			pool: site("p", bare(a), b), state: Upgrading, pull: "b",
		},
		"only a cut one is left":     {pool: site("p", cut(a), well("b", newer)), state: Waiting, says: "a is cut off"},
		"only a dead one":            {pool: site("p", dead(a), well("b", newer)), state: Waiting, says: "a is not Ready"},
		"only one that takes none":   {pool: site("p", cut(bare(a))), state: NotUpgradable, says: "--release-key"},
		"one of which time helps":    {pool: site("p", bare(a), cut(b)), state: Waiting, says: "a takes no upgrades"},
		"only one that says nothing": {pool: site("p", cut(well("a", ""))), state: NotUpgradable, says: "not report its version"},
		"a node of before can't be":  {pool: site("p", bare(well("a", ""))), state: NotUpgradable, says: "its version"},
		"cut while under way": {
			pool:  site("p", cut(a).with(busy, newer, time.Minute), b.with(pulled, newer, 1), c.with(pulled, newer, 1)),
			state: Upgrading, again: patience - time.Minute,
		},
		"cut for long": {
			pool: site("p", cut(a).with(busy, newer, time.Hour), b.with(pulled, newer, 1)), state: Upgrading, give: "b",
		},
		"without an answer: again":    {pool: site("p", a.with(lost, newer, 1), b), state: Upgrading, pull: "b", forget: "a"},
		"a former version's upgrader": {pool: site("p", a.with(wentBack, "v0.2.9", 1)), state: Upgrading, forget: "a"},
		"a former version's is busy": {
			pool: site("p", a.with(busy, "v0.2.9", 1), b.with(pulled, newer, 1)), state: Upgrading, pull: "",
		},
		"paused": {
			pool: func() pool {
				p := site("p", a.with(busy, newer, 1), b.with(pulled, newer, 1))
				p.paused = true
				return p
			}(),
			state: Paused,
		},
		"paused, and all are there": {
			pool: func() pool { p := site("p", well("a", newer)); p.paused = true; return p }(), state: UpToDate,
		},
		"outside the window": {
			pool: func() pool {
				p := site("p", a.with(pulled, newer, 1), b)
				p.open, p.opens = false, noon.Add(time.Hour)
				return p
			}(),
			state: OutsideWindow, says: "2026-11-26 13:00 UTC", again: time.Hour,
		},
		"long before the window": {
			pool: func() pool {
				p := site("p", a)
				p.open, p.opens = false, noon.Add(6*24*time.Hour)
				return p
			}(),
			state: OutsideWindow, again: clockAgain,
		},
		"before the window, and only a cut one is left": {
			pool: func() pool {
				p := site("p", cut(a))
				p.open, p.opens = false, noon.Add(time.Hour)
				return p
			}(),
			state: Waiting,
		},
		"settings that can't be used": {
			pool: func() pool { p := site("p", a); p.bad = "no such zone"; return p }(), state: BadSettings, says: "no such zone",
		},
		"two at a time": {
			pool: func() pool {
				p := site("p", a.with(pulled, newer, 1), b.with(pulled, newer, 1), c)
				p.most = 2
				return p
			}(),
			state: Upgrading, give: "a b", pull: "c",
		},
		"a refusal": {
			pool:  site("p", said(a.with(refused, newer, 1), "below the floor"), b.with(pulled, newer, 1)),
			state: Stopped, says: "a refuses v0.3.0: below the floor",
		},
		"one went back": {
			pool:  site("p", said(a.with(wentBack, newer, 1), "no yurthub answers"), b.with(pulled, newer, 1)),
			state: Stopped, says: "No other node gets v0.3.0, since a went back: no yurthub answers",
		},
		"back to the version before": {
			pool: func() pool {
				p := site("p", said(a.with(wentBack, newer, 1), "no"), well("b", newer))
				p.version = older
				return p
			}(),
			state: Upgrading, forget: "a", pull: "b",
		},
	} {
		all, again := plan([]pool{tt.pool}, noon)
		d := all[0]
		var forget []string
		for _, n := range d.forget {
			forget = append(forget, string(n))
		}
		if d.state != tt.state || !slices.Equal(names(d.pull), strings.Fields(tt.pull)) ||
			!slices.Equal(names(d.deliver), strings.Fields(tt.give)) || !slices.Equal(forget, strings.Fields(tt.forget)) ||
			!strings.Contains(d.message, tt.says) {
			t.Errorf("%s: %q, pull %v, deliver %v, forget %v: %q", name, d.state, names(d.pull), names(d.deliver), forget,
				d.message)
		}
		if again != tt.again {
			t.Errorf("%s: looked at again after %v, want %v", name, again, tt.again)
		}
	}
}

// TestOneVersionForAll: what one node of a fleet was not well with, no other gets, in whichever pool. A refusal is its pool's.
func TestOneVersionForAll(t *testing.T) {
	a := well("a", older).with(wentBack, newer, time.Minute)
	other := site("q", well("b", older).with(pulled, newer, 1))
	calm := site("r", well("c", older).with(pulled, "v0.4.0", 1))
	calm.version = "v0.4.0"
	all, _ := plan([]pool{site("p", a), other, calm}, noon)
	if all[0].state != Stopped || all[1].state != Stopped || len(all[1].deliver) > 0 || all[2].state != Upgrading ||
		len(all[2].deliver) != 1 {
		t.Errorf("%+v", all)
	}
	a.work = refused
	if all, _ = plan([]pool{site("p", a), other}, noon); all[0].state != Stopped || all[1].state != Upgrading {
		t.Errorf("%+v", all)
	}
}

// TestStoppedWhateverThePoolWantsNext: a node that went back stops the version for all others, whichever one its own pool is to
// have by then. Once nobody wants that version any more, the node gets another.
func TestStoppedWhateverThePoolWantsNext(t *testing.T) {
	other := site("q", well("b", older).with(pulled, newer, 1))
	for what, own := range map[string]string{"the version that it has": older, "another one": "v0.2.1", "none": ""} {
		p := site("p", well("a", older).with(wentBack, newer, time.Minute))
		p.version = own
		all, _ := plan([]pool{p, other}, noon)
		if len(all[0].forget) > 0 || all[1].state != Stopped || len(all[1].deliver) > 0 {
			t.Errorf("its own pool is to have %s: %+v", what, all)
		}
		if own == "v0.2.1" && (all[0].state != NotUpgradable || !strings.Contains(all[0].message, "a went back from v0.3.0")) {
			t.Errorf("its own pool is to have %s: %+v", what, all[0])
		}
		calm := other
		calm.version = older
		if all, _ = plan([]pool{p, calm}, noon); !slices.Equal(all[0].forget, []edge.NodeName{"a"}) {
			t.Errorf("its own pool is to have %s, and nobody wants the other one: %+v", what, all[0])
		}
	}
}

// TestATenth: no more pools are under way than a tenth, one at least; what is under way comes first.
func TestATenth(t *testing.T) {
	for _, n := range []int{1, 3, 9, 10, 25, 100} {
		var pools []pool
		for i := range n {
			a := well(fmt.Sprintf("n%d-a", i), older).with(pulled, newer, 1)
			if i == n-1 {
				a.work = busy
			}
			pools = append(pools, site(fmt.Sprintf("p%03d", i), a, well(fmt.Sprintf("n%d-b", i), older)))
		}
		all, again := plan(pools, noon)
		under := 0
		for _, d := range all {
			if d.state == Upgrading {
				under++
			} else if d.state != WaitsItsTurn || len(d.deliver)+len(d.pull) > 0 {
				t.Errorf("of %d: %+v", n, d)
			}
		}
		if want := max(1, n/10); under != want || all[n-1].state != Upgrading || again != 0 {
			t.Errorf("of %d pools %d are under way, want %d; the last is %s", n, under, want, all[n-1].state)
		}
	}
}

// TestRollouts plays whole rollouts, with nodes that are cut, die and come back, and holds each step to what may never happen.
func TestRollouts(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var pools []pool
		for p := range 1 + r.IntN(25) {
			s := site(fmt.Sprintf("p%02d", p))
			s.most = 1 + r.IntN(2)
			for n := range 1 + r.IntN(4) {
				s.nodes = append(s.nodes, well(fmt.Sprintf("p%02d-n%d", p, n), older))
			}
			pools = append(pools, s)
		}
		now := noon
		for turn := 0; ; turn++ {
			all, _ := plan(pools, now)
			under := 0
			for i, d := range all {
				p := &pools[i]
				if len(d.deliver) > 0 || p.underWay(now) {
					under++
				}
				for _, s := range d.deliver {
					n := p.find(s.node)
					if !n.can() || n.is(newer) || n.work != pulled {
						t.Fatalf("seed %d: %s gets it, and is %+v", seed, s.node, n)
					}
					n.work, n.since = busy, now
				}
				if busy := p.onTheWay(now); busy > p.most {
					t.Fatalf("seed %d: %d of %s are under way, %d may be", seed, busy, p.name, p.most)
				}
				for _, s := range d.pull {
					n := p.find(s.node)
					n.work, n.of, n.since = pulling, s.of, now
				}
				for _, name := range d.forget {
					n := p.find(name)
					n.work, n.of = idle, ""
				}
			}
			if may := max(1, len(pools)/part); under > may {
				t.Fatalf("seed %d: %d of %d pools are under way", seed, under, len(pools))
			}
			if !slices.ContainsFunc(all, func(d decision) bool { return d.state != UpToDate }) {
				break
			}
			if turn > 3000 {
				t.Fatalf("seed %d: no end: %+v", seed, all)
			}
			now = now.Add(2 * time.Second)
			for i := range pools {
				for j := range pools[i].nodes {
					chance(r, turn, &pools[i].nodes[j])
				}
			}
		}
	}
}

// chance has something happen to a node; in the end only good things.
func chance(r *rand.Rand, turn int, n *node) {
	bad := turn < 300
	switch r.IntN(6) {
	case 0:
		n.connected = !bad || r.IntN(3) > 0
	case 1:
		n.ready = !bad || r.IntN(5) > 0
	case 2:
		switch {
		case n.work == pulling:
			n.work = pulled
		case n.work == busy && n.connected && bad && r.IntN(8) == 0:
			n.work = lost
		case n.work == busy && n.connected:
			n.work = done
		case n.work == done && n.connected:
			n.version = newer
		}
	}
}

func (p *pool) find(name edge.NodeName) *node {
	i := slices.IndexFunc(p.nodes, func(n node) bool { return n.name == name })
	return &p.nodes[i]
}

// TestAnUpgraderOfANodeThatLeft takes no pool's turn, and goes: its node may be dead, or it may never get one.
func TestAnUpgraderOfANodeThatLeft(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{apis.AddToScheme, corev1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	c := Controller{cfg: Config{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).Build(),
		Clock:  clocktesting.NewFakePassiveClock(noon),
	}}
	upgrader := c.cfg.podFor(prefixDeliver, "q", step{"gone", newer})
	upgrader.CreationTimestamp = metav1.NewTime(noon.Add(-patience))
	pools, err := c.pools(t.Context(), nil, map[string]*corev1.Pod{upgrader.Name: upgrader})
	if err != nil || len(pools) != 2 {
		t.Fatalf("%+v, %v", pools, err)
	}
	all, _ := plan(append(pools, site("r", well("a", older))), noon)
	for _, d := range all {
		switch {
		case d.pool == "" && !slices.Equal(d.forget, []edge.NodeName{"gone"}):
			t.Errorf("of nodes in no pool, %q are forgotten", d.forget)
		case d.pool == "r" && d.state != Upgrading:
			t.Errorf("another pool is %s: %s", d.state, d.message)
		}
	}
}
