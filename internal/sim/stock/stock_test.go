//go:debug randseednop=0

package stock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	to  http.RoundTripper
	mu  sync.Mutex
	cut chan struct{} // closed when the line is cut
}

// isCut reports whether the line is cut, and returns what closes when it is.
func (l *line) isCut() (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.cut:
		return true, l.cut
	default:
		return false, l.cut
	}
}

func (l *line) set(whole bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if whole {
		l.cut = make(chan struct{})
	} else {
		close(l.cut)
	}
}

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(r *http.Request) (*http.Response, error) {
	dead, cut := l.isCut()
	if dead {
		t := time.NewTimer(silent)
		defer t.Stop()
		select {
		case <-t.C:
			return nil, errors.New("client connection lost")
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	answer, err := l.to.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answer.Body = &cuttable{answer.Body, cancel}
	go func() {
		select {
		case <-cut:
			cancel(errors.New("client connection lost"))
		case <-ctx.Done():
		}
	}()
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
	t       *testing.T
	began   time.Time
	random  *rand.Rand
	api     *kubernetes.Clientset // for the test
	server  http.Handler
	nodes   []*node
	running sync.WaitGroup
	stop    context.CancelFunc

	mu    sync.Mutex
	trace []string // of writes
}

type node struct {
	*corev1.Node
	*line
	stock.Containers
}

// write is a handler that notes who writes what, and when.
func (c *cluster) write(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		c.mu.Lock()
		c.trace = append(c.trace, fmt.Sprintf("%v %s %s", time.Since(c.began), r.Method, r.URL.Path))
		c.mu.Unlock()
	}
	c.server.ServeHTTP(w, r)
}

func (c *cluster) config(name string) *rest.Config {
	return &rest.Config{Host: "http://cloud", Transport: &model.Wire{
		Handler: http.HandlerFunc(c.write), User: &user.DefaultInfo{Name: name},
	}}
}

// run runs a cluster with zones of so many nodes in a bubble, from a minute after its start on.
func run(t *testing.T, seed int64, zones []int, test func(*cluster)) {
	if err := stock.Prepare(seed); err != nil {
		t.Fatal(err)
	}
	var source [32]byte
	source[0] = byte(seed)
	start := cpu()
	var simulated time.Duration
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, began: time.Now(), random: rand.New(rand.NewChaCha8(source))}
		c.server = model.NewServer(model.Config{
			Store: model.NewStore(), Clock: clock.RealClock{}, Random: rand.NewChaCha8(source),
		})
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
		c.stop = stop
		c.running.Go(func() {
			if err := stock.RunControllers(ctx, c.config("kube-controller-manager"), stock.DefaultJudgement()); err != nil {
				t.Error(err)
			}
		})
		for zone, size := range zones {
			for i := range size {
				c.boot(ctx, string(rune('a'+zone)), fmt.Sprintf("%c%d", 'a'+zone, i))
			}
		}
		time.Sleep(time.Minute)
		test(c)
		stop()
		c.running.Wait()
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

// boot starts a machine with a kubelet, a Pod and a DaemonSet's Pod.
func (c *cluster) boot(ctx context.Context, zone, name string) {
	enough := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	cfg := c.config("system:node:" + name)
	n := &node{
		line: &line{to: cfg.Transport, cut: make(chan struct{})},
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
			Status:     corev1.NodeStatus{Capacity: enough, Allocatable: enough},
		},
	}
	cfg.Transport = n.line
	c.nodes = append(c.nodes, n)
	k := stock.Kubelet{Client: cfg, Node: n.Node, Containers: &n.Containers, Stop: time.Second}
	after := time.Duration(c.random.Int64N(int64(10 * time.Second)))
	c.running.Go(func() {
		time.Sleep(after)
		if err := k.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	c.pod("app-"+name, name)
	c.pod("agent-"+name, name, corev1.Toleration{Operator: corev1.TolerationOpExists})
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
	for _, n := range c.nodes {
		for _, name := range []string{"agent-" + n.Name, "app-" + n.Name} {
			p, err := c.api.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
			if err != nil || p.DeletionTimestamp != nil {
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

func TestIdle(t *testing.T) {
	run(t, 1, []int{3, 3, 3}, func(c *cluster) {
		c.healthy()
		before := len(c.trace)
		time.Sleep(time.Hour)
		c.healthy()
		t.Log(len(c.trace)-before, "writes in an hour")
		for _, l := range c.trace[:before] {
			if !strings.Contains(l, "leases") {
				t.Log(l)
			}
		}
	})
}
