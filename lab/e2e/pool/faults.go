package pool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/line"
	"yurtcoordinator/lab/load"
	"yurtcoordinator/lab/wire"
)

var faultsScenarios = []kit.Scenario{
	{
		Name: "random-faults", Run: randomFaults,
		Lab: lab.Config{Pools: 1, Nodes: 3, Timing: lab.Quick, Kubelet: lab.Hollow},
		Doc: "40 random faults, often two at a time, while 20 objects change every second. Every client's watch is exact, and " +
			"no living node is NotReady. `" + seedVariable + "` repeats a run's faults.",
	},
}

// seedVariable is an environment variable. With the seed of an earlier run of random-faults it repeats that run.
const seedVariable = "YURTLAB_SEED"

const (
	// drawnFaults are made in one run.
	drawnFaults = 40
	// faultsBetweenRests is the number of faults after which everything must be whole again.
	faultsBetweenRests = 8
	// longestFault is the length of a fault. It keeps two faults and their effects below the grace period of 20 s: after that,
	// a node whose heartbeats reach nobody is rightly NotReady.
	longestFault = 9 * time.Second
	// betweenSilences is how long, at least, the cloud hears the pool between two faults in which it hears no node.
	betweenSilences = 20 * time.Second
)

// drawn is a fault that can begin and end.
type drawn struct {
	// at is the thing that breaks. Two faults at a time are about two different things.
	at, what   string
	begin, end func() error
	// silences says that the cloud hears no node of the pool.
	silences bool
	// forgets are the nodes whose hubs forget what they have told: each client there may be told 410 once.
	forgets []string
}

func randomFaults(t *kit.T) {
	seed := uint64(time.Now().UnixNano()) % 1_000_000
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		t.Must(err)
	}
	t.Say("%s=%d repeats the draws", seedVariable, seed)
	r := rand.New(rand.NewPCG(seed, 6))
	t.Pool.Settled(30 * time.Second)
	slices, services := t.Record(kit.EndpointSlices), t.Record(kit.AllServices)
	spec := load.Spec{Services: 30, EndpointsEach: 10, Nodes: t.Pool.Nodes()}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	audiences := []*kit.Audience{slices, services}
	for _, a := range audiences {
		t.Pool.Shared(30*time.Second, a.Name)
		a.Seat(t, t.Pool.Nodes())
		a.SeatKept(t, t.Pool.Nodes())
	}
	t.Eventually(60*time.Second, "all nodes are Ready", t.Pool.NodesReady)
	began := time.Now()
	changes := t.Churn(spec, 20)
	expired := map[string]int{}
	d := drawing{T: t, r: r, expired: expired}
	for i := range drawnFaults {
		d.fault()
		if (i+1)%faultsBetweenRests == 0 {
			healed := time.Now()
			t.Pool.Settled(60 * time.Second)
			for _, a := range audiences {
				a.CaughtUp(t, 60*time.Second)
			}
			t.Figure("slowest_recovery_s", time.Since(healed).Seconds())
		}
	}
	t.Figure("changes", float64(t.End(changes)))
	t.NeverNotReady(began, t.Pool.Nodes()...)
	for _, a := range audiences {
		a.Judge(t, expired)
	}
}

// drawing draws faults, and makes them.
type drawing struct {
	*kit.T
	r *rand.Rand
	// expired is how often clients on a node may have been told 410.
	expired map[string]int
	// heard is when the last fault ended in which the cloud heard no node.
	heard time.Time
}

// below returns a random duration of less than most.
func (d *drawing) below(most time.Duration) time.Duration {
	return time.Duration(d.r.Int64N(int64(most)))
}

func (d *drawing) pick(of ...string) string { return of[d.r.IntN(len(of))] }

// fault makes one fault, or two of which the second begins within the first.
func (d *drawing) fault() {
	all := []drawn{d.one("")}
	if d.r.IntN(2) == 0 {
		all = append(all, d.one(all[0].at))
	}
	for i, f := range all {
		if i > 0 {
			d.Pause(d.below(2*time.Second), "until the second fault")
		}
		d.Say("FAULT %s", f.what)
		d.Must(f.begin())
		for _, node := range f.forgets {
			d.expired[node]++
		}
	}
	d.Pause(time.Second+d.below(longestFault-3*time.Second), "the fault lasts")
	d.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, f := range all {
		d.Say("ends: %s", f.what)
		d.Must(f.end())
		if f.silences {
			d.heard = time.Now()
		}
	}
	d.Pause(time.Second+d.below(5*time.Second), "until the next fault")
}

// one draws a fault. It must not be about the thing named by but, and must not silence the pool for too long.
func (d *drawing) one(but string) drawn {
	for {
		f := d.any()
		if f.at != but && (!f.silences || time.Since(d.heard) > betweenSilences) {
			return f
		}
	}
}

func (d *drawing) any() drawn {
	node := d.Pool.Nodes()[d.r.IntN(d.Config.Nodes)]
	how := d.pick("kill", "pause")
	switch d.r.IntN(9) {
	case 0, 1:
		return d.cut(lab.WAN, node, []wire.Fault{wire.Drop, wire.Reject, wire.OneWay}[d.r.IntN(3)])
	case 2:
		return d.cut(lab.LAN, node, []wire.Fault{wire.Drop, wire.Reject, wire.OneWay}[d.r.IntN(3)])
	case 3:
		f := d.cut(lab.WAN, "pool/p1", wire.Drop)
		f.silences = true
		return f
	case 4:
		return d.shape(node)
	case 5:
		return d.node(node, lab.Hub, how)
	case 6:
		return d.node(d.Pool.CoordinatorNode(), lab.Coordinator, how)
	case 7:
		for name, h := range d.Pool.Hubs() {
			if h.Role == kit.RoleLeader {
				node = name
			}
		}
		return d.node(node, lab.Hub, how)
	default:
		return d.cloud(lab.Component(d.pick(string(lab.KubeAPIServer), string(lab.Etcd))), how)
	}
}

func (d *drawing) cut(n lab.Network, target string, how wire.Fault) drawn {
	return drawn{
		at: string(n) + "/" + target, what: fmt.Sprintf("the %s link of %s is cut (%s)", n, target, how),
		begin: func() error { return d.Lab.Cut(d.Ctx, n, target, how) },
		end:   func() error { return d.Lab.Heal(d.Ctx, n, target) },
	}
}

func (d *drawing) shape(node string) drawn {
	shape := line.Shape{
		Rate: uint64(500_000 + d.r.IntN(2_000_000)), Delay: 20*time.Millisecond + d.below(200*time.Millisecond),
		Jitter: 10 * time.Millisecond, Loss: float64(d.r.IntN(4)) / 100, Queue: 256 << 10,
	}
	return drawn{
		at: string(lab.WAN) + "/" + node, what: fmt.Sprintf("the WAN link of %s: %s", node, shape),
		begin: func() error {
			return d.Lab.Shape(d.Ctx, lab.WAN, node, lab.LinkShape{Shape: shape, Seed: d.r.Uint64()})
		},
		end: func() error { return d.Lab.Unshape(d.Ctx, lab.WAN, node) },
	}
}

func (d *drawing) node(node string, program lab.Component, how string) drawn {
	begin, end := actions(how)
	f := drawn{
		at: string(program) + "/" + node, what: fmt.Sprintf("%s the %s of %s", how, program, node),
		begin: func() error { return d.Lab.Node(d.Ctx, begin, node, program) },
		end:   func() error { return d.Lab.Node(d.Ctx, end, node, program) },
	}
	if program == lab.Hub && how == "kill" {
		f.forgets = []string{node}
	}
	return f
}

func (d *drawing) cloud(program lab.Component, how string) drawn {
	begin, end := actions(how)
	f := drawn{
		at: "the cloud", what: fmt.Sprintf("%s %s", how, program), silences: true,
		begin: func() error { return d.Lab.Cloud(d.Ctx, begin, program) },
		end:   func() error { return d.Lab.Cloud(d.Ctx, end, program) },
	}
	if program == lab.KubeAPIServer && how == "kill" {
		f.forgets = d.Pool.Nodes() // a new one has no history in its watch cache
	}
	return f
}

func actions(how string) (begin, end lab.Action) {
	if how == "pause" {
		return lab.Pause, lab.Resume
	}
	return lab.Kill, lab.Start
}
