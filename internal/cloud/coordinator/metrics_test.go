package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

func TestStateOfMetrics(t *testing.T) {
	ok := func(reason string) finding { return finding{OK: true, Reason: reason} }
	no := func(reason string) finding { return finding{Reason: reason} }
	for _, test := range []struct {
		pending, certs, ready finding
		want                  string
	}{
		{ok(ReasonDeployed), ok(ReasonIssued), ok(ReasonServing), "Ready Serving"},
		{no(ReasonTooFewNodes), no(ReasonPending), no(ReasonPending), "Pending TooFewNodes"},
		{ok(ReasonDeployed), no(ReasonNotScheduled), no(ReasonNoNode), "NotReady NoNode"},
		{ok(ReasonDeployed), no(ReasonNotScheduled), no(ReasonNoPod), "NotReady NoPod"},
		{ok(ReasonDeployed), no(ReasonNoNodeAddress), no(ReasonPodNotReady), "NoCertificates NoNodeAddress"},
		{ok(ReasonDeployed), no(ReasonKubeletClientNotSigned), ok(ReasonServing), "Ready Serving"},
		{ok(ReasonDeployed), no(ReasonNotScheduled), ok(ReasonServing), "Ready Serving"},
		{ok(ReasonDeployed), ok(ReasonIssued), no(ReasonPodNotReady), "NotReady PodNotReady"},
		{ok(ReasonRemoving), no(ReasonRemoving), no(ReasonRemoving), "Removing Removing"},
	} {
		state, reason := wantedStatus{pending: test.pending, certs: test.certs, ready: test.ready}.state()
		if got := state + " " + reason; got != test.want {
			t.Errorf("%v: %s, want %s", test, got, test.want)
		}
	}
}

// measure compares some of the metrics, without their help, with want, which has a line for each series.
func (w *world) measure(name, want string) {
	w.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.r.Metrics())
	name = "coordinator_controller_" + name
	families, err := registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		text := fmt.Sprintf("# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n", name, f.GetHelp(), strings.ToLower(f.GetType().String()))
		for line := range strings.Lines(want) {
			text += name + strings.TrimSpace(line) + "\n"
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), name); err != nil {
			w.t.Error(err)
		}
		return
	}
	if want != "" {
		w.t.Errorf("there is no %s", name)
	}
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.lives = certs.Lives{Authority: 100 * time.Hour, Serving: 30 * time.Hour, Operator: 60 * time.Hour}
	w.restart()
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.coordinator("c2", "p1")
	w.coordinator("c3", "none")
	w.turns(9)
	w.create(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: corev1.NamespaceNodeLease, Name: edge.PoolName("p1").ReportLease(0),
		Annotations: map[string]string{edge.AnnotationReachedNodes: "p1-n1"},
	}})
	w.turns(1)
	w.measure("coordinators", `{reason="PoolNotFound",state="Pending"} 1
		{reason="SecondCoordinator",state="Pending"} 1
		{reason="Serving",state="Ready"} 1`)
	w.measure("coordinator_not_ready", `{pool="none",reason="PoolNotFound",state="Pending",yurtcoordinator="c3"} 1
		{pool="p1",reason="SecondCoordinator",state="Pending",yurtcoordinator="c2"} 1`)
	w.measure("outside_pool_nodes", `{pool="p1"} 2`)
	w.measure("certificates_issued_total", `{kind="authority"} 1
		{kind="kubelet-client"} 1
		{kind="operator"} 1
		{kind="serving"} 1`)
	w.measure("certificate_failures_total", "")

	var c v1alpha1.YurtCoordinator
	for _, name := range []string{"c1", "c2", "c3"} {
		w.get("", name, &c)
		w.delete(&c)
	}
	w.turns(6)
	if len(w.r.metrics.byName) != 3 { // who is gone is looked at once more
		t.Errorf("%v", w.r.metrics.byName)
	}
	for _, name := range []string{"c1", "c2", "c3"} {
		if _, err := w.r.reconcileCoordinator(t.Context(), requestFor(name)); err != nil {
			t.Error(err)
		}
	}
	for _, gone := range []string{"coordinators", "coordinator_not_ready", "outside_pool_nodes"} {
		w.measure(gone, "")
	}
	if len(w.r.metrics.ends) != 0 {
		t.Errorf("remembers the certificates of what is gone: %v", w.r.metrics.ends)
	}
}

// The gauges are of the certificate that ends first, and of the one that has the least left, which may be another.
func TestMetricsOfCertificates(t *testing.T) {
	w := newWorld(t)
	for i, life := range []time.Duration{100 * time.Hour, 10 * time.Hour} {
		pair, err := certs.SelfSigned("x", life, w.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		w.r.metrics.holds(certOf{name: fmt.Sprint(i), kind: kindServing}, pair)
		w.clock.SetTime(w.clock.Now().Add(-95 * time.Hour))
	}
	w.clock.SetTime(start)
	later := start.Add(-85 * time.Hour) // the second one's end
	w.measure("certificate_expiry_timestamp_seconds", fmt.Sprintf(`{kind="serving"} %d`, later.Unix()))
	w.measure("certificate_life_left_ratio", `{kind="serving"} 0`)
	w.r.metrics.holds(certOf{name: "1", kind: kindServing}, certs.Pair{})
	w.clock.SetTime(start.Add(100 * time.Hour * 3 / 4))
	w.measure("certificate_expiry_timestamp_seconds", fmt.Sprintf(`{kind="serving"} %d`, start.Add(100*time.Hour).Unix()))
	if left := w.r.metrics.ends[certOf{name: "0", kind: kindServing}].left(w.clock.Now()); left < 0.249 || left > 0.25 {
		t.Errorf("%v of a life is left, want a quarter", left)
	}
}

func TestMetricsOfFailures(t *testing.T) {
	m := newWorld(t).r.metrics
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "s", errors.New("changed"))
	for _, err := range []error{nil, conflict, errors.New("refused")} {
		if got := m.tried(kindOperator, err); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	if n := testutil.ToFloat64(m.failures.WithLabelValues(string(kindOperator))); n != 1 {
		t.Errorf("%v failures, want 1", n)
	}
	w := newWorld(t) // a signer that refuses
	w.signs = false
	w.pool("p1", 3)
	w.coordinator("c1", "p1")
	w.turns(1)
	w.deny()
	w.clock.SetTime(w.clock.Now().Add(refusedWait))
	w.turns(1)
	if n := testutil.ToFloat64(w.r.metrics.failures.WithLabelValues(string(kindKubelet))); n != 1 {
		t.Errorf("%v failures, want 1", n)
	}
}
