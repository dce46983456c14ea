package cloudscale

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/bench"
)

func TestValidate(t *testing.T) {
	good := Default()
	good.Etcd, good.KubeAPIServer, good.KubeControllerManager, good.CoordinatorController, good.Chart = "e", "a", "m", "c", "d"
	if err := good.Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	for want, change := range map[string]func(*Config){
		"--pools":  func(c *Config) { c.Pools = 0 },
		"--nodes":  func(c *Config) { c.Nodes = 3 },
		"--cut":    func(c *Config) { c.Cut = 8 },
		"--rate":   func(c *Config) { c.Rate = 1001 },
		"want 101": func(c *Config) { c.Rate = 100 },
		"--steady": func(c *Config) { c.Steady = time.Second },
		"programs": func(c *Config) { c.Chart = "" },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error that says %q", err, want)
		}
	}
}

// A real Node is of 8 to 10 KB.
func TestTheSizeOfANode(t *testing.T) {
	n := makeNode(17, 3, time.Now())
	if size := n.Size(); size < 8_000 || size > 10_000 {
		t.Errorf("%d bytes", size)
	}
	if n.Name != "p0017-n03" || n.Labels[edge.LabelNodePool] != "p0017" || n.Status.Addresses[0].Address != "10.32.17.3" {
		t.Errorf("%s %v %v", n.Name, n.Labels, n.Status.Addresses)
	}
}

func TestPick(t *testing.T) {
	var all []*member // two pools of three
	for _, name := range []edge.NodeName{"a1", "b1", "a2", "b2", "a3", "b3"} {
		all = append(all, &member{name: name})
	}
	var got []string
	for _, m := range pick(all, 2, 2, 3, 3) {
		got = append(got, string(m.name))
	}
	if want := []string{"a2", "a3", "b2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done, slow atomic.Int64
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		paced(ctx, 4, func() float64 { return 20 }, func(int) { done.Add(1) })
		if n := done.Load(); n < 199 || n > 200 {
			t.Errorf("%d in 10 s at 20 a second", n)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		paced(ctx, 4, func() float64 { return 20 }, func(int) {
			if time.Since(began) < 5*time.Second {
				time.Sleep(time.Second)
			}
			slow.Add(1)
		})
		// Four a second for 5 s, then 20 a second: what was late is not made up for.
		if n := slow.Load(); n < 115 || n > 125 {
			t.Errorf("%d, want 120", n)
		}
	})
}

func TestEach(t *testing.T) {
	var done atomic.Int64
	if err := each(100, func(int) error { done.Add(1); return nil }); err != nil || done.Load() != 100 {
		t.Errorf("%d of 100, %v", done.Load(), err)
	}
	broken := errors.New("broken")
	done.Store(0)
	err := each(100_000, func(i int) error {
		if done.Add(1); i >= 10 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || done.Load() > 10+2*writers {
		t.Errorf("%v after %d", err, done.Load())
	}
	if err := each(0, nil); err != nil {
		t.Error(err)
	}
}

// leases answers updates; it is what a heartbeat is sent to.
type leases struct {
	coordinationclient.LeaseInterface
	got  []*coordinationv1.Lease
	as   []any
	fail error
}

func (l *leases) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.got, l.as = append(l.got, lease), append(l.as, ctx.Value(userOf{}))
	written := lease.DeepCopy()
	written.ResourceVersion += "1"
	return written, l.fail
}

func (l *leases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "9"}}, nil
}

func TestBeats(t *testing.T) {
	direct, leader := &leases{}, &leases{}
	l := &load{
		direct:  []coordinationclient.LeaseInterface{direct},
		leaders: []coordinationclient.LeaseInterface{nil, leader},
	}
	m := &member{name: "n", pool: 1, lease: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"}}}
	annotated := func(l *coordinationv1.Lease) bool { return l.Annotations[edge.DelegateHeartbeat] == "true" }
	l.clock(true)
	for _, cut := range []bool{false, true, false} {
		if _, err := l.link(t.Context(), m, cut); err != nil {
			t.Fatal(err)
		}
	}
	if len(direct.got) != 2 || len(leader.got) != 1 || annotated(direct.got[0]) || !annotated(leader.got[0]) ||
		annotated(direct.got[1]) || direct.as[0] != edge.NodeName("n") {
		t.Errorf("direct %v as %v, by the leader %v", direct.got, direct.as, leader.got)
	}
	if direct.got[1].ResourceVersion != "111" || !direct.got[1].Spec.RenewTime.After(leader.got[0].Spec.RenewTime.Time) {
		t.Errorf("the last one is not after the one before: %v", direct.got[1])
	}
	if l.beats() != 3 || l.sentDelegated.Load() != 1 || len(l.clock(false)) != 3 {
		t.Errorf("%d beats, %d delegated", l.beats(), l.sentDelegated.Load())
	}
	direct.fail = apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "n", errors.New("changed"))
	if err := l.beat(t.Context(), m); err == nil || l.failed.Load() != 1 || l.trouble() == nil || m.lease.ResourceVersion != "9" {
		t.Errorf("%v; %d failed, Lease %v", err, l.failed.Load(), m.lease)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAsNode(t *testing.T) {
	var got http.Header
	as := asNode{roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r.Header
		return nil, errors.New("nobody is there")
	})}
	ctx := context.WithValue(t.Context(), userOf{}, edge.NodeName("n1"))
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = as.RoundTrip(r)
	if got.Get("Impersonate-User") != "system:node:n1" || got.Get("Impersonate-Group") != "system:nodes" || len(r.Header) > 0 {
		t.Errorf("%v, and the caller's own %v", got, r.Header)
	}
	_, _ = as.RoundTrip(r.WithContext(t.Context()))
	if len(got) > 0 {
		t.Errorf("as somebody without need: %v", got)
	}
}

func TestTracker(t *testing.T) {
	tr, second := newTracker(), time.Unix(0, 0)
	at := func(n int) time.Time { return second.Add(time.Duration(n) * time.Second) }
	node := func(n int, tainted bool, down corev1.ConditionStatus) {
		o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		if tainted {
			o.Spec.Taints = []corev1.Taint{{Key: edge.TaintUnschedulable}}
		}
		if down != "" {
			o.Status.Conditions = []corev1.NodeCondition{{Type: edge.ConditionCloudLinkDown, Status: down}}
		}
		tr.sawNode(o, at(n))
	}
	coordinator := func(n int, delegated ...string) {
		c := &v1alpha1.YurtCoordinator{Spec: v1alpha1.YurtCoordinatorSpec{NodePool: "p"}}
		c.Status.DelegatedNodes = delegated
		for _, kind := range []v1alpha1.YurtCoordinatorConditionType{"CertsReady", "Ready"} {
			c.Status.Conditions = append(c.Status.Conditions, v1alpha1.YurtCoordinatorCondition{Type: kind, Status: "True"})
		}
		tr.sawCoordinator(c, at(n))
	}
	cut := map[edge.NodeName]time.Time{"n1": at(1)}
	node(0, false, "")
	node(1, false, corev1.ConditionFalse)
	coordinator(2, "n1")
	node(3, true, corev1.ConditionFalse)
	if _, ok := tr.since(cut, true); ok {
		t.Error("all is said before the condition is")
	}
	node(5, true, corev1.ConditionTrue)
	node(8, true, corev1.ConditionTrue) // another change
	coordinator(8, "n1")
	l, ok := tr.since(cut, true)
	want := lags{[]time.Duration{2 * time.Second}, []time.Duration{4 * time.Second}, []time.Duration{time.Second}}
	if !ok || !reflect.DeepEqual(l, want) {
		t.Errorf("%v %v, want %v", l, ok, want)
	}
	node(10, false, corev1.ConditionFalse)
	if _, ok := tr.since(cut, false); ok {
		t.Error("all is said before the status is")
	}
	coordinator(11)
	if l, ok := tr.since(map[edge.NodeName]time.Time{"n1": at(9)}, false); !ok || l.listed[0] != 2*time.Second {
		t.Errorf("%v %v", l, ok)
	}
	tr.sawPool(&v1beta2.NodePool{Status: v1beta2.NodePoolStatus{ReadyNodeNum: 1, Nodes: []string{"n1"}}}, 1)
	if n, err := tr.tally(); err != nil || n != (tally{judged: 1, counted: 1, ready: 1}) {
		t.Errorf("%+v %v", n, err)
	}
}

func TestAudit(t *testing.T) {
	line := func(verb, resource, sub, namespace string) string {
		return `{"verb":"` + verb + `","user":{"username":"x"},"objectRef":{"resource":"` + resource + `","subresource":"` + sub +
			`","namespace":"` + namespace + `"}}` + "\n"
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	log := &auditLog{path: path}
	text := line("patch", "nodes", "", "") + line("patch", "nodes", "status", "") + line("patch", "nodes", "status", "") +
		line("update", "leases", "", "kube-system") + line("delete", "leases", "", "kube-node-lease") +
		line("get", "secrets", "", "kube-system") + line("create", "events", "", "") + `{"verb":"get"}` + "\n"
	half := line("list", "nodes", "", "")
	if err := os.WriteFile(path, []byte(text+half[:9]), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := log.take()
	want := "2 patch nodes/status, 1 create events, 1 delete leases, 1 get secrets, 1 patch nodes"
	if err != nil || got.String() != want || got.total() != 6 || got.writes() != 4 || got.acute() != 5 {
		t.Errorf("%v (%d, %d, %d) %v, want %s", got, got.total(), got.writes(), got.acute(), err, want)
	}
	if err := os.WriteFile(path, []byte(text+half), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := log.take(); err != nil || got.String() != "1 list nodes" {
		t.Errorf("%v %v, want what came since", got, err)
	}
	if _, err := parseAudit("{\n"); err == nil {
		t.Error("what can't be read is read")
	}
}

func TestSums(t *testing.T) {
	got := sums([]byte("# HELP a b\na{x=\"1 2\"} 3\na{x=\"4\"} 5e+00\nb 1.5\nc NaN-\n"))
	if want := map[string]float64{"a": 8, "b": 1.5}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSpread(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i)*time.Millisecond)
	}
	if s := spreadOf(all); s.String() != "50 ms / 99 ms / 100 ms" {
		t.Error(s)
	}
	if s := spreadOf([]time.Duration{1500 * time.Millisecond}); s.String() != "1.5 s / 1.5 s / 1.5 s" {
		t.Error(s)
	}
	if s := spreadOf(nil); s != (Spread{}) {
		t.Error(s)
	}
}

func TestReport(t *testing.T) {
	r := Report{
		Config: Default(),
		Fill:   Work{Took: 90 * time.Second, Requests: requests{"get secrets": 3000, "patch roles": 1000, "create events": 500}},
		Steady: Steady{
			Elapsed: 10 * time.Second, Beats: 5000, Delegated: 500, CPU: 2 * time.Second, Allocated: 50e6,
			Controller: bench.Usage{Memory: bench.Memory{RSS: 150e6}},
		},
		Lags: []Lag{
			{Nodes: 1, Taint: Spread{P99: time.Second}}, {Nodes: 1000, Untaint: Spread{P99: 1001 * time.Millisecond}},
		},
	}
	figures := r.Figures()
	for key, want := range map[string]float64{
		"fill_s": 90, "fill_requests_per_pool": 4.5, "fill_writes_per_pool": 1, "steady_beats_per_s": 500,
		"steady_cpu_per_1000_s": 0.4, "steady_cpu_ms_per_s": 200, "steady_garbage_mb_per_s": 5, "steady_rss_mb": 150,
		"lag_1000_untaint_p99_s": 1.001, "over_budget": 1,
	} {
		if got, found := figures[key]; !found || got != want {
			t.Errorf("%s is %v (%v), want %v", key, got, found, want)
		}
	}
	if rows := r.Rows(); len(figures) != len(rows)+1 {
		t.Errorf("%d figures of %d rows: keys are used twice", len(figures), len(rows))
	}
	var out bytes.Buffer
	if err := r.Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"OVER BUDGET", "\n1 over budget", "3000 get secrets, 1000 patch roles", "links of 1 node at once",
	} {
		if n := strings.Count(out.String(), want); n != 1 {
			t.Errorf("%d times %q in\n%s", n, want, out.String())
		}
	}
}

// A program that ends too early is told of with its last words; one that does not end is killed.
func TestProcess(t *testing.T) {
	dir := t.TempDir()
	p, err := startProcess(dir, "talker", "/bin/sh", "-c", "echo I can not; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	for _, want := range []string{"talker ended: exit status 3", "I can not"} {
		if err := p.died(); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p.stop() // once more is no harm
	if p, err = startProcess(dir, "sleeper", "/bin/sh", "-c", "exec sleep 60"); err != nil {
		t.Fatal(err)
	}
	if u, err := p.usage(); err != nil || u.Memory.RSS == 0 {
		t.Errorf("%+v, %v", u, err)
	}
	p.stop()
	if p.err == nil {
		t.Error("it was not ended")
	}
	if _, err := startProcess(dir, "none", filepath.Join(dir, "none")); err == nil {
		t.Error("what is not there starts")
	}
}
