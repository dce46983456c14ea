// Package lab is a whole cloud and its pools on one machine: genuine Kubernetes components, each host a separate
// machine (package machine), joined by cables that can be cut (package wire).
//
// One process, the lab's own, holds everything. It is pid 1 of a pid namespace in which everything else runs, and the
// switches live in its network namespace. However it ends, the kernel ends every process of the lab, and all
// interfaces, mounts and namespaces go with them. Only files and cgroups remain, and Remove removes them. The
// alternative, a network of named namespaces and a list of pids to kill, leaves behind whatever a crash left.
//
// Other processes talk to it over a Unix socket in the lab's directory: Client.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/machine"
	"yurtcoordinator/lab/wire"
)

// Lab is a lab, in the lab's own process.
type Lab struct {
	cfg    Config
	dir    string
	bins   build.Binaries
	images Images
	all    []place
	// importing limits the machines that import images at a time to the number of processors. An import must end within a
	// minute, and of thirty in parallel none would.
	importing *semaphore.Weighted
	// snapshotter is containerd's, found when the lab boots.
	snapshotter string
	// authority is the hash of the lab's authority.
	authority string

	// shaping is held while cables are put on lines or taken off: one order at a time. Take it before host.busy.
	shaping sync.Mutex
	// linking is held while links are cut or healed: the kernel gets all cuts at once, and the newest must come last.
	linking sync.Mutex

	mu    sync.Mutex
	hosts map[string]*host // by machine name
	cuts  map[link]wire.Fault
	lines map[link]*shapedLine
	mark  map[string]wire.Bytes
	// accesses are the operators' kubeconfigs in an installed lab, by pool, as last read from the cloud.
	accesses map[int][]byte

	watching atomic.Pointer[watcher]
}

// watch returns the watcher that follows the cloud. In a bare lab it follows nothing before there is a cloud.
func (l *Lab) watch() *watcher { return l.watching.Load() }

// host is a machine with everything needed to power it on again. All fields except lost are constant, or guarded by
// Lab.mu.
type host struct {
	spec   machine.Spec
	place  place
	cables []wire.Cable
	routes []wire.Route
	start  func(ctx context.Context, m *machine.Machine) error

	busy    sync.Mutex                // one order at a time
	machine *machine.Machine          // nil while it has no power
	shaped  map[Network]*wire.Carried // the cables that are on lines
	// lost is what the WAN link carried before the last power cut.
	lost wire.Bytes
}

// newLab lays out a lab in dir. Nothing runs yet.
func newLab(cfg Config, dir string, bins build.Binaries, images Images) *Lab {
	return &Lab{
		cfg: cfg, dir: dir, bins: bins, images: images, all: cfg.places(),
		importing: semaphore.NewWeighted(int64(runtime.NumCPU())),
		hosts:     map[string]*host{}, cuts: map[link]wire.Fault{}, lines: map[link]*shapedLine{},
		mark: map[string]wire.Bytes{}, accesses: map[int][]byte{},
	}
}

func (l *Lab) disk(name string) string { return filepath.Join(l.dir, "machines", name) }
func (l *Lab) pki() string             { return filepath.Join(l.dir, "pki") }

// cgroup returns the lab's own cgroup, below the root of each hierarchy.
func cgroup(name string) string { return "yurtlab-" + name }

func (l *Lab) node(p place) node {
	return node{
		place: p, cfg: l.cfg.of(p.pool), bins: l.bins, disk: l.disk(string(p.name())),
		images: l.images.of(p), importing: l.importing,
		snapshotter: l.snapshotter, authority: l.authority,
	}
}

// boot starts everything and returns when all nodes are Ready. It calls progress with each step.
func (l *Lab) boot(ctx context.Context, progress func(string)) error {
	if err := l.plugSwitches(); err != nil {
		return err
	}
	progress("laid the network of " + edge.Count(len(l.all), "node", "nodes"))
	l.snapshotter = snapshotter(l.dir)

	cloud := l.cloudHost(progress)
	l.hosts[cloudMachine] = cloud
	for _, p := range l.all {
		l.hosts[string(p.name())] = l.nodeHost(p)
	}
	if l.cfg.Bare {
		return l.makeDisks()
	}

	poolsReady := make(chan error, 1) // nothing in the boot waits for the NodePools
	cloudUp := func(starting context.Context) error {
		if err := l.powerOn(starting, cloud); err != nil {
			return err
		}
		go func() { poolsReady <- l.makePools(ctx, progress) }()
		return nil
	}
	if err := l.startAll(ctx, cloudUp); err != nil {
		return err
	}
	progress("all machines have started")
	if !l.cfg.NoKubelet {
		if err := l.watch().waitReady(ctx, l.nodePlaces(), progress); err != nil {
			return err
		}
	}
	select {
	case err := <-poolsReady:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the NodePools are missing: %w", context.Cause(ctx))
	}
}

// nodePlaces returns the places of all Nodes of the cloud.
func (l *Lab) nodePlaces() []place {
	if l.cfg.Installed {
		return append(slices.Clone(l.all), inCloud)
	}
	return l.all
}

func (l *Lab) cloudHost(progress func(string)) *host {
	spec := machine.Spec{
		Name: cloudMachine, Disk: l.disk(cloudMachine), Hosts: hosts(inCloud.internal(l.cfg), cloudMachine),
		Keep: l.keep(),
	}
	if l.cfg.Installed && !l.cfg.NoCgroups {
		spec.Cgroup = filepath.Join(cgroup(l.cfg.Name), cloudMachine)
	}
	routes := cloudRoutes(l.all, l.cfg.families())
	if l.cfg.Bare { // as any machine has: without a route nobody gets so far that kube-proxy's rules apply
		for _, f := range l.cfg.families() {
			routes = append(routes, wire.Route{To: f.everything, Via: f.wan.at(selfPool, selfNode)})
		}
	}
	return &host{
		spec: spec, place: inCloud,
		cables: []wire.Cable{inCloud.wanCable(l.cfg.families())},
		routes: routes,
		start: func(ctx context.Context, m *machine.Machine) error {
			if l.cfg.Bare {
				return l.node(inCloud).start(ctx, m)
			}
			return l.startCloud(ctx, m, progress)
		},
	}
}

// makePools makes the NodePools, in an installed lab also the coordinators, and returns when they exist. In a lab without
// coordinator-controller's Pod, the lab itself keeps the NodePools up to date for the rest of its life.
func (l *Lab) makePools(ctx context.Context, progress func(string)) error {
	if l.cfg.Installed {
		return l.makeCoordinators(ctx, progress)
	}
	p, err := newPools(l.watch(), l.all)
	if err != nil {
		return err
	}
	if err := p.install(ctx); err != nil {
		return err
	}
	go p.keep(l.watch().ctx) // ends with the lab's own process
	return nil
}

func (l *Lab) plugSwitches() error {
	if err := wire.LoopbackUp(); err != nil {
		return err
	}
	for _, s := range switches(l.cfg.Pools, l.cfg.families()) {
		if err := s.Up(); err != nil {
			return err
		}
	}
	if err := wire.LayAside(); err != nil {
		return err
	}
	return wire.Apply(nil) // a kernel that can't do this fails now, not at the first cut
}

func (l *Lab) nodeHost(p place) *host {
	n := l.node(p)
	spec := machine.Spec{
		Name: string(p.name()), Disk: n.disk, Hosts: hosts(p.lans(l.cfg.families()), string(p.name())),
		Keep: l.keep(),
	}
	if n.containers() && !l.cfg.NoCgroups {
		spec.Cgroup = filepath.Join(cgroup(l.cfg.Name), string(p.name()))
	}
	return &host{
		spec: spec, place: p, shaped: map[Network]*wire.Carried{},
		cables: []wire.Cable{p.wanCable(l.cfg.families()), p.lanCable(l.cfg.families())},
		routes: p.routes(l.cfg.of(p.pool).Nodes, l.cfg.families()),
		start: func(ctx context.Context, m *machine.Machine) error {
			if l.cfg.Bare {
				return n.start(ctx, m)
			}
			if err := l.handOut(n.disk, n.keys()...); err != nil {
				return err
			}
			return n.start(ctx, m)
		},
	}
}

// keep returns the host's directories that every machine needs: programs and images.
func (l *Lab) keep() []string {
	dirs := slices.Clone(l.bins.Dirs)
	for _, i := range l.images.of(inCloud) {
		dirs = append(dirs, filepath.Dir(i))
	}
	return dirs
}

// start starts a node's programs on its freshly booted machine.
func (n node) start(ctx context.Context, m *machine.Machine) error {
	if err := n.writeFiles(); err != nil {
		return err
	}
	for _, c := range n.components() {
		if err := n.startComponent(ctx, m, c); err != nil {
			return err
		}
	}
	if !n.takenOver() {
		return nil
	}
	return m.Start(ctx, machine.Command{
		Name: bootScript, Argv: []string{"/bin/sh", n.file(bootScript)}, Log: n.file("boot.log"), MustEnd: true,
	})
}

func (n node) startComponent(ctx context.Context, m *machine.Machine, c Component) error {
	if err := m.Start(ctx, n.command(c)); err != nil {
		return err
	}
	switch c {
	case Containerd:
		return n.importImages(ctx, m)
	case Hub:
		return n.waitKeys(ctx)
	}
	return nil
}

// importImages gives containerd the lab's images, once in the life of the machine's disk.
func (n node) importImages(ctx context.Context, m *machine.Machine) error {
	if err := m.Start(ctx, machine.Command{
		Name: "containerd-ready", Log: n.file("images.log"), MustEnd: true,
		Argv: []string{"/bin/sh", "-c", "i=0; until " + n.bins.Ctr + " version >/dev/null 2>&1; " +
			"do i=$((i+1)); [ $i -lt 300 ] || exit 1; sleep 0.1; done"},
	}); err != nil {
		return fmt.Errorf("containerd on %s does not answer: %w", n.name(), err)
	}
	for _, image := range n.images {
		done := n.file("image-" + filepath.Base(image) + ".imported")
		if _, err := os.Stat(done); err == nil {
			continue
		}
		if err := n.importing.Acquire(ctx, 1); err != nil {
			return fmt.Errorf("image %s on %s waited for other machines' images: %w", filepath.Base(image), n.name(), err)
		}
		err := m.Start(ctx, machine.Command{
			Name: "image-import", Log: n.file("images.log"), MustEnd: true,
			Argv: []string{n.bins.Ctr, "-n", "k8s.io", "images", "import", "--snapshotter", n.snapshotter, image},
		})
		n.importing.Release(1)
		if err != nil {
			return fmt.Errorf("image %s on %s: %w", filepath.Base(image), n.name(), err)
		}
		if err := os.WriteFile(done, nil, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) startCloud(ctx context.Context, m *machine.Machine, progress func(string)) error {
	disk := l.disk(cloudMachine)
	if err := os.WriteFile(filepath.Join(disk, "audit-policy.yaml"), []byte(l.cfg.auditPolicy()), 0o600); err != nil {
		return err
	}
	if err := l.handOut(disk, controlPlaneKeys(l.cfg)...); err != nil {
		return err
	}
	asNode, asNodeCtx := errgroup.WithContext(ctx)
	if l.cfg.Installed { // its kubelet waits for the rest
		n := l.node(inCloud)
		if err := l.handOut(disk, n.keys()...); err != nil {
			return err
		}
		asNode.Go(func() error { return n.start(asNodeCtx, m) })
	}
	if err := l.startControlPlane(ctx, m, progress); err != nil {
		return errors.Join(err, asNode.Wait())
	}
	return asNode.Wait()
}

func (l *Lab) startControlPlane(ctx context.Context, m *machine.Machine, progress func(string)) error {
	core, rest := controlPlane(l.bins, l.disk(cloudMachine), l.cfg)
	for _, c := range core {
		if err := m.Start(ctx, c); err != nil {
			return err
		}
	}
	if err := l.watch().waitServing(ctx, l.cfg.bootTimeout()); err != nil {
		return fmt.Errorf("%w; see: yurtlab logs cloud kube-apiserver", err)
	}
	progress("the cloud's kube-apiserver is ready")
	if err := l.applyManifests(ctx); err != nil {
		return err
	}
	for _, c := range rest {
		if err := m.Start(ctx, c); err != nil {
			return err
		}
	}
	if err := l.watch().start(ctx); err != nil || !l.cfg.Installed {
		return err
	}
	return l.install(ctx, progress)
}

// mostAtOnce is how many machines may start at once beside the cloud. With more, two processors have so little time left for
// kube-apiserver that it gives up, because it must answer itself within 30 s. Coordinators then come so late that hubs list for
// themselves. A lab with more machines starts the cloud first, then the machines with a coordinator, and then the others,
// startingAtOnce at a time.
const mostAtOnce, startingAtOnce = 50, 12

// startAll starts the cloud and all machines.
func (l *Lab) startAll(ctx context.Context, cloudUp func(context.Context) error) error {
	if len(l.all) <= mostAtOnce {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return cloudUp(ctx) })
		for _, p := range l.all {
			g.Go(func() error { return l.powerOn(ctx, l.hosts[string(p.name())]) })
		}
		return g.Wait()
	}
	if err := cloudUp(ctx); err != nil {
		return err
	}
	for _, first := range []bool{true, false} {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(startingAtOnce)
		for _, p := range l.all {
			n := l.node(p)
			if n.runsCoordinator() != first {
				continue
			}
			h := l.hosts[string(p.name())]
			g.Go(func() error {
				if err := l.powerOn(ctx, h); err != nil || n.takenOver() || n.cfg.noHub {
					return err
				}
				return l.waitHub(ctx, h, first)
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// powerOn boots a machine that has no power, plugs in its cables and starts its programs.
func (l *Lab) powerOn(ctx context.Context, h *host) error {
	h.busy.Lock()
	defer h.busy.Unlock()
	l.mu.Lock()
	running := h.machine != nil
	l.mu.Unlock()
	if running {
		return fmt.Errorf("%s is already running", h.spec.Name)
	}
	m, err := machine.PowerOn(ctx, h.spec)
	if err != nil {
		return err
	}
	if err := l.connect(h, m); err != nil {
		m.PowerOff()
		err = errors.Join(err, h.offLines())
		return fmt.Errorf("machine %s: %w", h.spec.Name, err)
	}
	l.mu.Lock()
	h.machine = m
	l.mu.Unlock()
	return h.start(ctx, m)
}

func (l *Lab) connect(h *host, m *machine.Machine) error {
	for _, c := range h.cables {
		if err := c.Plug(m.PID); err != nil {
			return err
		}
	}
	if err := wire.Routes(m.PID, h.routes); err != nil {
		return err
	}
	if err := l.carry(h, m); err != nil {
		return err
	}
	l.mu.Lock()
	refused := refusals(l.cuts, l.all, l.cfg.families())[h.spec.Name]
	l.mu.Unlock()
	if len(refused) == 0 {
		return nil
	}
	return wire.Refuse(m.PID, refused)
}

// powerOff cuts a machine's power. It changes nothing for a machine without power.
func (l *Lab) powerOff(h *host) {
	h.busy.Lock()
	defer h.busy.Unlock()
	l.mu.Lock()
	m := h.machine
	l.mu.Unlock()
	if m == nil {
		return
	}
	carried := h.cables[0].Counted()
	m.PowerOff()
	if err := h.offLines(); err != nil { // the rest of the line disturbs nobody
		fmt.Fprintf(os.Stderr, "yurtlab: %s without power: %v\n", h.spec.Name, err)
	}
	l.mu.Lock()
	h.machine = nil
	h.lost = h.lost.Add(carried)
	l.mu.Unlock()
}

// down ends all machines in parallel.
func (l *Lab) down() {
	var wg sync.WaitGroup
	for _, h := range l.hosts {
		wg.Go(func() { l.powerOff(h) })
	}
	wg.Wait()
	l.endLines()
}

// Link cuts or heals the links of target (NODE or pool/POOL) to a network; wire.None heals.
func (l *Lab) Link(network Network, target string, fault wire.Fault) error {
	which, err := targets(l.all, target)
	if err != nil {
		return err
	}
	l.linking.Lock()
	defer l.linking.Unlock()
	l.mu.Lock()
	before := refusals(l.cuts, l.all, l.cfg.families())
	for _, p := range which {
		c := link{p, network}
		if fault == wire.None {
			delete(l.cuts, c)
		} else {
			l.cuts[c] = fault
		}
	}
	faults := map[string]wire.Fault{}
	for c, f := range l.cuts {
		faults[c.port()] = f
	}
	refused := refusals(l.cuts, l.all, l.cfg.families())
	pids := map[string]int{}
	for name, h := range l.hosts {
		if h.machine != nil {
			pids[name] = h.machine.PID
		}
	}
	l.mu.Unlock()

	errs := []error{wire.Apply(faults)}
	for name, pid := range pids {
		if len(before[name])+len(refused[name]) > 0 {
			errs = append(errs, wire.Refuse(pid, refused[name]))
		}
	}
	return errors.Join(errs...)
}

// Action is what can be done to a node or to one of its programs.
type Action string

// Actions.
const (
	Kill   Action = "kill"
	Start  Action = "start"
	Pause  Action = "pause"
	Resume Action = "resume"
	// Restart is Kill and Start in one.
	Restart Action = "restart"
)

// Node performs an action on a component of a node; All means the whole machine.
func (l *Lab) Node(ctx context.Context, a Action, name string, c Component) error {
	h, n, err := l.host(name)
	if err != nil {
		return err
	}
	if c == Coordinator && l.cfg.Installed {
		return l.containerised(ctx, a, h, edge.AppCoordinator)
	}
	if c != All && !slices.Contains(n.components(), c) {
		return fmt.Errorf("%s has no %s: want one of %v, or all", name, c, n.components())
	}
	return l.component(ctx, a, h, n, c)
}

// component performs an action on a program of a node that the lab starts.
func (l *Lab) component(ctx context.Context, a Action, h *host, n node, c Component) error {
	if a == Restart {
		_ = l.order(ctx, Kill, h, c, nil) // a program that has died is started all the same
		a = Start
	}
	return l.order(ctx, a, h, c, func(ctx context.Context, m *machine.Machine) error {
		return n.startComponent(ctx, m, c)
	})
}

// order performs an action (except Restart) on a machine or on one of its programs, which start starts.
func (l *Lab) order(ctx context.Context, a Action, h *host, c Component,
	start func(context.Context, *machine.Machine) error,
) error {
	switch {
	case a == Kill && c == All:
		l.powerOff(h)
		return nil
	case a == Start && c == All:
		return l.powerOn(ctx, h)
	}

	h.busy.Lock()
	defer h.busy.Unlock()
	l.mu.Lock()
	m := h.machine
	l.mu.Unlock()
	if m == nil {
		how := "node start " + h.spec.Name
		if h.spec.Name == cloudMachine {
			how = "cloud start all"
		}
		return fmt.Errorf("%s has no power; start it with: yurtlab %s", h.spec.Name, how)
	}
	target := string(c)
	if c == All {
		target = ""
	}
	switch a {
	case Kill:
		return m.Signal(ctx, target, syscall.SIGKILL)
	case Start:
		return start(ctx, m)
	case Pause:
		return m.Signal(ctx, target, syscall.SIGSTOP)
	case Resume:
		return m.Signal(ctx, target, syscall.SIGCONT)
	}
	return fmt.Errorf("unknown action %q: want kill, start, restart, pause or resume", a)
}

func (l *Lab) host(name string) (*host, node, error) {
	if name == cloudMachine && l.cfg.Bare {
		return l.hosts[name], l.node(inCloud), nil
	}
	for _, p := range l.all {
		if string(p.name()) == name {
			return l.hosts[name], l.node(p), nil
		}
	}
	return nil, node{}, fmt.Errorf("no node %q in this lab: want one of %s … %s", name, l.all[0].name(),
		l.all[len(l.all)-1].name())
}

// Traffic returns what each node's WAN link has carried, by node, since the start or since the mark.
func (l *Lab) Traffic(sinceMark bool) map[string]wire.Bytes {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]wire.Bytes{}
	for _, p := range l.all {
		name := string(p.name())
		out[name] = l.hosts[name].carried()
		if sinceMark {
			out[name] = out[name].Sub(l.mark[name])
		}
	}
	return out
}

func (h *host) carried() wire.Bytes {
	if h.machine == nil {
		return h.lost
	}
	return h.lost.Add(h.cables[0].Counted())
}

// MarkTraffic sets the mark.
func (l *Lab) MarkTraffic() {
	now := l.Traffic(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mark = now
}

// bootTimeout bounds a boot. Three real machines take 16 s on two cores; thirty hollow ones take a few minutes.
func (c Config) bootTimeout() time.Duration {
	nodes := len(c.places())
	if c.Installed {
		nodes += 1 + 2*c.Pools // the cloud is one more; a coordinator comes after its nodes
	}
	return time.Minute + time.Duration(nodes)*15*time.Second
}
