//go:debug randseednop=0

package stock_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/stock"
)

// silent is how long a request waits on a dead HTTP/2 connection: client-go pings after 30 s, and waits for 15 s.
const silent = 45 * time.Second

// line is a machine's way to API servers, which can be cut.
type line struct {
	to          http.RoundTripper
	mu          sync.Mutex
	cut         bool
	connections chan struct{} // closed when they are
}

func newLine(to http.RoundTripper) *line { return &line{to: to, connections: make(chan struct{})} }

func (l *line) state() (cut bool, connections <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut, l.connections
}

// set cuts or heals the line. A cut ends what is under way at once, which a real one would do later.
func (l *line) set(cut bool) {
	l.mu.Lock()
	l.cut = cut
	l.mu.Unlock()
	if cut {
		l.close()
	}
}

func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.connections)
	l.connections = make(chan struct{})
}

var errLost = errors.New("client connection lost")

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	cut, connections := l.state()
	if cut {
		t := time.NewTimer(silent)
		defer t.Stop()
		select {
		case <-t.C:
		case <-connections:
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
		return nil, errLost
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	go func() {
		select {
		case <-connections:
			cancel(errLost)
		case <-ctx.Done():
		}
	}()
	answer, err := l.to.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answer.Body = &cuttable{answer.Body, cancel}
	return answer, nil
}

type cuttable struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

func (c *cuttable) Close() error {
	c.end(nil)
	return c.ReadCloser.Close()
}

// cluster is zones of nodes, all at one API server, and kube-controller-manager.
type cluster struct {
	t      *testing.T
	ctx    context.Context
	seed   int64
	began  time.Time
	random *rand.Rand
	api    *kubernetes.Clientset // for the test
	server *model.Gray
	nodes  []*node
	// controllers stops kube-controller-manager; stops stop all that runs.
	controllers func()
	stops       []func()

	mu    sync.Mutex
	trace []string // of writes
}

type node struct {
	*corev1.Node
	*line
	stock.Containers
	stop func()
}

// config returns how somebody reaches the API server.
func (c *cluster) config(name string) *rest.Config {
	return &rest.Config{Host: "http://cloud", QPS: -1, Transport: &network{
		cluster: c, from: name, asked: map[string]int{},
		Wire: model.Wire{Handler: c.server, User: &user.DefaultInfo{Name: name}},
	}}
}

// network delays each request, and each piece of an answer, by an own time of up to 5 ms, so that no two arrive at one
// instant. The time follows from what is asked for how often, and not from the order in which goroutines happen to run.
type network struct {
	*cluster
	model.Wire
	from  string
	mu    sync.Mutex
	asked map[string]int
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	what := n.from + " " + r.Method + " " + r.URL.Path
	n.mu.Lock()
	n.asked[what]++
	what = fmt.Sprintf("%s %d", what, n.asked[what])
	n.mu.Unlock()
	urgent := model.IsUrgent(r.Context())
	if !urgent {
		n.delay(what)
	}
	if r.Method != http.MethodGet {
		n.note(what, r)
	}
	answer, err := n.Wire.RoundTrip(r)
	if err == nil && !urgent {
		answer.Body = &delayed{answer.Body, func(piece int) { n.delay(fmt.Sprintf("%s: %d", what, piece)) }, 0}
	}
	return answer, err
}

func (n *network) delay(what string) {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", n.seed, what)
	time.Sleep(time.Duration(h.Sum64() % uint64(5*time.Millisecond)))
}

// delayed is a body whose pieces come late.
type delayed struct {
	io.ReadCloser
	delay  func(piece int)
	pieces int
}

func (d *delayed) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err == nil {
		d.pieces++
		d.delay(d.pieces)
	}
	return n, err
}

// note notes a write: when it arrived, and what it is.
func (c *cluster) note(what string, r *http.Request) {
	sum := fnv.New64a()
	if body, err := r.GetBody(); err != nil {
		c.t.Error(err)
	} else if _, err := io.Copy(sum, body); err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trace = append(c.trace, fmt.Sprintf("%v %s %x", time.Since(c.began), what, sum.Sum64()))
}

const controllers = "kube-controller-manager"

// run runs a cluster with zones of so many nodes in a bubble, from a minute after its start on.
func run(t *testing.T, seed int64, zones []int, test func(*cluster)) {
	t.Helper()
	if err := stock.Prepare(seed); err != nil {
		t.Fatal(err)
	}
	start := cpu()
	var simulated time.Duration
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, seed: seed, began: time.Now(), random: rand.New(model.NewRandom(uint64(seed)))}
		c.server = &model.Gray{Handler: model.NewServer(model.Config{
			Store: model.NewStore(), Clock: clock.RealClock{}, Random: model.NewRandom(uint64(seed)),
		})}
		var err error
		if c.api, err = kubernetes.NewForConfig(c.config("test")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"default", corev1.NamespaceNodeLease} {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := c.api.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		c.ctx = ctx
		c.controllers = c.start(c.judge)
		for zone, size := range zones {
			for i := range size {
				c.add(string(rune('a'+zone)), fmt.Sprintf("%c%d", 'a'+zone, i))
			}
		}
		time.Sleep(time.Minute)
		test(c)
		stop()
		for _, stop := range c.stops {
			stop()
		}
		time.Sleep(time.Second) // for client-go's watches, which nobody waits for
		simulated = time.Since(c.began)
	})
	if seconds := (cpu() - start).Seconds(); seconds > 0 {
		t.Logf("%v simulated, %.0f s per processor second", simulated, simulated.Seconds()/seconds)
	}
}

// cpu returns how much processor time this process has had.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// start starts something, and returns what stops it and waits until it has stopped.
func (c *cluster) start(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	c.stops = append(c.stops, stop)
	return stop
}

func (c *cluster) judge(ctx context.Context) error {
	return stock.RunControllers(ctx, c.config(controllers), stock.DefaultJudgement())
}

// add starts a machine with a kubelet, a Pod and a DaemonSet's Pod.
func (c *cluster) add(zone, name string) {
	enough := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	n := &node{
		line: newLine(c.config("system:node:" + name).Transport),
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
			Status:     corev1.NodeStatus{Capacity: enough, Allocatable: enough},
		},
	}
	c.nodes = append(c.nodes, n)
	n.stop = c.start(c.kubelet(n))
	c.pod("app-"+name, name)
	c.pod("agent-"+name, name, corev1.Toleration{Operator: corev1.TolerationOpExists})
}

// kubelet returns a kubelet, which begins some time in the next ten seconds.
func (c *cluster) kubelet(n *node) func(context.Context) error {
	after := time.Duration(c.random.Int64N(int64(10 * time.Second)))
	k := stock.Kubelet{
		Client: &rest.Config{Host: "http://cloud", Transport: n.line}, CloseConnections: n.close,
		Node: n.Node, Containers: &n.Containers, Stop: time.Second,
	}
	return func(ctx context.Context) error {
		time.Sleep(after)
		return k.Run(ctx)
	}
}

func (c *cluster) pod(name, node string, tolerations ...corev1.Toleration) {
	_, err := c.api.CoreV1().Pods("default").Create(c.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Tolerations: tolerations, RestartPolicy: corev1.RestartPolicyAlways},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Error(err)
	}
}

// ready returns a Node's condition, and when it came to be so.
func (c *cluster) ready(n *node) (corev1.ConditionStatus, time.Time) {
	_, condition := nodeutil.GetNodeCondition(&c.get(n).Status, corev1.NodeReady)
	if condition == nil {
		return "", time.Time{}
	}
	return condition.Status, condition.LastTransitionTime.Time
}

func (c *cluster) get(n *node) *corev1.Node {
	o, err := c.api.CoreV1().Nodes().Get(c.t.Context(), n.Name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

// tainted returns when a Node was tainted as unreachable, with NoExecute.
func (c *cluster) tainted(n *node) (time.Time, bool) {
	for _, t := range c.get(n).Spec.Taints {
		if t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute {
			return t.TimeAdded.Time, true
		}
	}
	return time.Time{}, false
}

// evicted returns the names of the Pods that are deleted, or are no more.
func (c *cluster) evicted() (names []string) {
	pods, err := c.api.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	there := map[string]bool{}
	for _, p := range pods.Items {
		there[p.Name] = p.DeletionTimestamp == nil
	}
	for _, n := range c.nodes {
		for _, name := range []string{"agent-" + n.Name, "app-" + n.Name} {
			if !there[name] {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (c *cluster) renewed(n *node) time.Time {
	l, err := c.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(c.t.Context(), n.Name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return l.Spec.RenewTime.Time
}

// healthy checks that nothing is wrong.
func (c *cluster) healthy() {
	c.t.Helper()
	for _, n := range c.nodes {
		if status, _ := c.ready(n); status != corev1.ConditionTrue || len(c.get(n).Spec.Taints) > 0 || len(n.Running()) != 2 {
			c.t.Errorf("%s: Ready is %s, taints are %v, %d Pods run", n.Name, status, c.get(n).Spec.Taints, len(n.Running()))
		}
	}
	pods, err := c.api.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range pods.Items {
		ready := slices.ContainsFunc(p.Status.Conditions, func(o corev1.PodCondition) bool {
			return o.Type == corev1.PodReady && o.Status == corev1.ConditionTrue
		})
		if !ready || p.Status.Phase != corev1.PodRunning {
			c.t.Errorf("Pod %s is %s, ready: %v", p.Name, p.Status.Phase, ready)
		}
	}
}

// until waits until something is so, looking each 100 ms, and returns when it was.
func (c *cluster) until(within time.Duration, what string, so func() bool) time.Time {
	c.t.Helper()
	for end := time.Now().Add(within); !so(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("after %v, not so: %s", within, what)
		}
	}
	return time.Now()
}

// evictAfter is the time for which the admission plugin DefaultTolerationSeconds lets Pods stay.
const evictAfter = 300 * time.Second

func (c *cluster) isEvicted(want ...string) {
	c.t.Helper()
	if got := c.evicted(); !slices.Equal(got, want) {
		c.t.Errorf("evicted are %q, must be %q", got, want)
	}
}

// areUnknown waits until nodes that were cut are Unknown, and returns when the last one is.
//
// The Lease's renewal is seen at the next look, of which there is one each --node-monitor-period. The condition changes
// at the first look that is more than --node-monitor-grace-period later (tryUpdateNodeHealth).
func (c *cluster) areUnknown(nodes ...*node) time.Time {
	c.t.Helper()
	j := stock.DefaultJudgement()
	left := slices.Clone(nodes)
	return c.until(2*time.Minute, "all are Unknown", func() bool {
		left = slices.DeleteFunc(left, func(n *node) bool {
			status, _ := c.ready(n)
			if d := time.Since(c.renewed(n)); status == corev1.ConditionUnknown &&
				(d <= j.Grace || d > j.Grace+2*j.MonitorPeriod+100*time.Millisecond) {
				c.t.Errorf("%s is Unknown %v after its last renewal", n.Name, d)
			}
			return status == corev1.ConditionUnknown
		})
		return len(left) == 0
	})
}

// heal heals lines, and waits until all is well, with new Pods in the evicted ones' places.
func (c *cluster) heal(nodes ...*node) {
	c.t.Helper()
	gone := c.evicted()
	began := time.Now()
	for _, n := range nodes {
		n.set(false)
	}
	ready := c.until(2*time.Minute, "all are Ready", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool {
			status, _ := c.ready(n)
			return status != corev1.ConditionTrue
		})
	})
	c.until(stock.DefaultJudgement().MonitorPeriod, "no taints", func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool { return len(c.get(n).Spec.Taints) > 0 })
	})
	c.t.Logf("healed: Ready after %v", ready.Sub(began))
	time.Sleep(time.Minute)
	pods := c.api.CoreV1().Pods("default")
	for _, name := range gone {
		if _, err := pods.Get(c.t.Context(), name, metav1.GetOptions{}); err == nil {
			c.t.Errorf("%s is still there", name)
		}
		c.pod(name, strings.TrimPrefix(name, "app-"))
	}
	time.Sleep(time.Minute)
	c.healthy()
}

func TestOneNodeCut(t *testing.T) {
	run(t, 2, []int{3, 3, 3}, func(c *cluster) {
		n := c.nodes[0]
		n.set(true)
		unknown := c.areUnknown(n)
		// --node-eviction-rate lets a first node through at once; the taint is set within NodeEvictionPeriod, 100 ms.
		tainted := c.until(200*time.Millisecond, "tainted", func() bool {
			_, is := c.tainted(n)
			return is
		})
		c.isEvicted()
		gone := c.until(evictAfter+time.Second, "evicted", func() bool { return len(c.evicted()) > 0 })
		if d := gone.Sub(tainted); d < evictAfter-200*time.Millisecond {
			t.Errorf("evicted after %v", d)
		}
		t.Logf("Unknown, tainted after %v, evicted after %v", tainted.Sub(unknown), gone.Sub(unknown))
		time.Sleep(3 * time.Minute)
		c.isEvicted("app-a0")
		if got := len(n.Running()); got != 2 {
			t.Errorf("%d Pods run on the node that is cut off", got)
		}
		c.heal(n)
	})
}

// In a zone that is dark as a whole, Pods are evicted as in a healthy one: one node each ten seconds, by --node-eviction-rate
// (stateFullDisruption, HealthyQPSFunc).
func TestZoneCut(t *testing.T) {
	run(t, 3, []int{3, 3, 3}, func(c *cluster) {
		var times []time.Time
		for _, n := range c.nodes[:3] {
			n.set(true)
		}
		for len(times) < 3 {
			c.until(2*time.Minute, "one more is tainted", func() bool {
				count := 0
				for _, n := range c.nodes {
					if _, is := c.tainted(n); is {
						count++
					}
				}
				return count > len(times)
			})
			times = append(times, time.Now())
		}
		for i := range times[1:] {
			if d := times[i+1].Sub(times[i]); d < 10*time.Second-200*time.Millisecond {
				t.Errorf("a node is tainted %v after another", d)
			}
		}
		c.isEvicted()
		time.Sleep(evictAfter + time.Second)
		c.isEvicted("app-a0", "app-a1", "app-a2")
		time.Sleep(2 * time.Minute)
		c.isEvicted("app-a0", "app-a1", "app-a2")
		c.heal(c.nodes[:3]...)
	})
}

// When --unhealthy-zone-threshold of a zone is not Ready, and at least three nodes, evictions stop in a zone of up to
// --large-cluster-size-threshold nodes (statePartialDisruption, ReducedQPSFunc). Those that were tainted before stay so.
func TestZonePartlyCut(t *testing.T) {
	run(t, 4, []int{5, 3}, func(c *cluster) {
		for _, n := range c.nodes[:3] {
			n.set(true)
		}
		c.areUnknown(c.nodes[:3]...)
		time.Sleep(evictAfter + 3*time.Minute)
		var want []string
		for _, n := range c.nodes {
			if _, is := c.tainted(n); is {
				want = append(want, "app-"+n.Name)
			}
		}
		if len(want) > 2 {
			t.Errorf("%d nodes are tainted", len(want))
		}
		c.isEvicted(want...)
		c.heal(c.nodes[:3]...)
	})
}

// When all zones are dark, kube-controller-manager takes itself to be the one that is cut off: nobody is evicted, and taints go
// (handleDisruption).
func TestAllCut(t *testing.T) {
	run(t, 5, []int{3, 3, 3}, func(c *cluster) {
		for _, n := range c.nodes {
			n.set(true)
		}
		c.areUnknown(c.nodes...)
		time.Sleep(evictAfter + 3*time.Minute)
		c.isEvicted()
		for _, n := range c.nodes {
			if _, is := c.tainted(n); is {
				t.Errorf("%s is tainted", n.Name)
			}
		}
		c.heal(c.nodes...)
	})
}

// An API server that is slow with a node's taint delays nothing else. Meanwhile the zone comes to be partly dark, so the
// node stays as it is.
func TestSlowServer(t *testing.T) {
	run(t, 9, []int{5, 3}, func(c *cluster) {
		c.server.Set(model.Fault{User: controllers, Path: "/api/v1/nodes/a1", Writes: true, Delay: 20 * time.Second})
		for _, n := range c.nodes[:3] {
			n.set(true)
			time.Sleep(20 * time.Second)
		}
		time.Sleep(evictAfter + 3*time.Minute)
		for _, n := range c.nodes[:3] {
			if status, _ := c.ready(n); status != corev1.ConditionUnknown {
				c.t.Errorf("%s: Ready is %s", n.Name, status)
			}
		}
		c.isEvicted("app-a0")
		c.server.Set()
		c.heal(c.nodes[:3]...)
	})
}

// A kube-controller-manager that has just begun takes each node to be heard of at that moment.
func TestControllersRestart(t *testing.T) {
	run(t, 6, []int{3, 3}, func(c *cluster) {
		n := c.nodes[0]
		n.set(true)
		time.Sleep(45 * time.Second)
		c.controllers()
		began := time.Now()
		c.start(c.judge)
		at := c.until(2*time.Minute, "Unknown", func() bool {
			status, _ := c.ready(n)
			return status == corev1.ConditionUnknown
		})
		if d, j := at.Sub(began), stock.DefaultJudgement(); d < j.Grace || d > j.Grace+2*j.MonitorPeriod {
			t.Errorf("Unknown %v after the restart", d)
		}
		c.heal(n)
	})
}

// A kubelet that is restarted finds its Pods, and judges them anew.
func TestKubeletRestart(t *testing.T) {
	run(t, 7, []int{1}, func(c *cluster) {
		n := c.nodes[0]
		before := n.Running()
		n.stop()
		n.stop = c.start(c.kubelet(n))
		time.Sleep(time.Minute)
		if got := n.Running(); !slices.Equal(got, before) {
			t.Errorf("%q run, not %q", got, before)
		}
		c.healthy()

		c.controllers()
		o := c.get(n)
		o.Spec.Taints = []corev1.Taint{{Key: "out", Effect: corev1.TaintEffectNoExecute}}
		if _, err := c.api.CoreV1().Nodes().Update(c.t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := n.Running(); len(got) != 2 {
			t.Errorf("kubelet has evicted: %q run", got)
		}
		n.stop()
		n.stop = c.start(c.kubelet(n))
		time.Sleep(time.Minute)
		if got := n.Running(); len(got) != 1 {
			t.Errorf("%q run", got)
		}
		p, err := c.api.CoreV1().Pods("default").Get(c.t.Context(), "app-"+n.Name, metav1.GetOptions{})
		if err != nil || p.Status.Phase != corev1.PodFailed || p.Status.Reason != "TaintToleration" {
			t.Errorf("the Pod is %v, %v", p.Status, err)
		}
	})
}

// What is left alone stays well, past the ends of watches and the statuses that kubelets write each five minutes.
func TestIdle(t *testing.T) {
	run(t, 1, []int{3, 3, 3}, func(c *cluster) {
		c.healthy()
		time.Sleep(12 * time.Minute)
		c.healthy()
	})
}

// One seed gives the same trace of writes: their times, order and contents.
func TestSameSeed(t *testing.T) {
	const runs = 20
	traces := map[string]int{}
	for range runs {
		run(t, 8, []int{3, 3, 3}, func(c *cluster) {
			for _, n := range c.nodes[:3] {
				n.set(true)
			}
			time.Sleep(80 * time.Second)
			for _, n := range c.nodes[:3] {
				n.set(false)
			}
			time.Sleep(40 * time.Second)
			c.mu.Lock()
			defer c.mu.Unlock()
			traces[strings.Join(c.trace, "\n")]++
		})
	}
	all := slices.SortedFunc(maps.Keys(traces), func(a, b string) int { return traces[b] - traces[a] })
	t.Logf("%d of %d runs have the same trace of %d writes", traces[all[0]], runs, strings.Count(all[0], "\n")+1)
	if traces[all[0]] < runs*19/20 {
		t.Error("that is too few")
	}
	for _, other := range all[1:] {
		a, b := strings.Split(all[0], "\n"), strings.Split(other, "\n")
		for i := range min(len(a), len(b)) {
			if a[i] != b[i] {
				t.Logf("%d differ from there on:\n%s\n%s", traces[other], a[i], b[i])
				break
			}
		}
	}
}
