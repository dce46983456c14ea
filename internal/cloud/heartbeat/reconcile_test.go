package heartbeat

import (
	"errors"
	"slices"
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

	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

// healthy is a world with one node that renews its Lease and is known to.
func healthy(t testing.TB) *world {
	w := newWorld(t)
	w.createNode(aNode(false, no, ReasonDirect))
	w.renew("n1", false)
	w.pass(10 * time.Second)
	w.renew("n1", false)
	w.pass(time.Second)
	if said := w.said(); said != nil {
		t.Fatalf("wrote %v for a healthy node", said)
	}
	return w
}

func TestConflictIsRetried(t *testing.T) {
	for _, failing := range []string{"taint", "condition"} {
		t.Run(failing, func(t *testing.T) {
			w := healthy(t)
			writes, failed := 0, 0
			w.fail = func(node string) error {
				writes++
				if (failing == "taint") == (writes%2 == 1) && failed < 2 {
					failed++
					writes -= 1 - writes%2 // the condition is tried alone the next time
					return conflict(node)
				}
				return nil
			}
			w.renew("n1", true)
			w.pass(time.Second)
			want := []string{"taint", "condition True", "event Warning CloudLinkDown"}
			if said := w.said(); !slices.Equal(said, want) || failed == 0 {
				t.Errorf("wrote %v after %d conflicts, want %v", said, failed, want)
			}
		})
	}
}

// TestOutdatedCopy: what the cache shows may be older than what the API server has. It must refuse what is decided on
// such a copy, whole: a list of taints written blindly would undo somebody else's.
func TestOutdatedCopy(t *testing.T) {
	w := healthy(t)
	outdated := w.node("n1")
	w.editNode("n1", func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "new", Effect: corev1.TaintEffectNoExecute})
	})
	delegated := Finding{Verdict: Delegated, Annotated: true, Patience: testSilence}
	err := w.policy.apply(t.Context(), outdated.DeepCopy(), plan(outdated, delegated, wish{show: ShowReady}))
	if !apierrors.IsConflict(err) {
		t.Errorf("taint: %v, want a conflict", err)
	}
	only := plan(outdated, delegated, wish{show: ShowReady})
	only.Taint = Keep
	if err := w.policy.apply(t.Context(), outdated.DeepCopy(), only); !apierrors.IsConflict(err) {
		t.Errorf("condition: %v, want a conflict", err)
	}
	if said := w.said(); said != nil {
		t.Errorf("wrote %v", said)
	}
	if n := len(w.node("n1").Spec.Taints); n != 3 {
		t.Errorf("%d taints, want the three others'", n)
	}
}

func TestFailures(t *testing.T) {
	t.Run("an error of the API server is returned, with the Node's name", func(t *testing.T) {
		w := healthy(t)
		refused := errors.New("refused")
		w.fail = func(string) error { return refused }
		w.renew("n1", true)
		_, err := w.policy.Reconcile(t.Context(), control.Request("n1"))
		if !errors.Is(err, refused) || !strings.Contains(err.Error(), "Node n1") {
			t.Errorf("Reconcile = %v", err)
		}
	})
	t.Run("a Node that goes away between read and write is nothing", func(t *testing.T) {
		w := healthy(t)
		w.fail = func(node string) error {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, node)
		}
		w.renew("n1", true)
		if result, err := w.policy.Reconcile(t.Context(), control.Request("n1")); err != nil || !result.IsZero() {
			t.Errorf("Reconcile = %v, %v", result, err)
		}
	})
	t.Run("a Node that never was", func(t *testing.T) {
		w := newWorld(t)
		w.renew("ghost", true)
		w.pass(time.Minute)
		if said := w.said(); said != nil || len(w.due) != 0 {
			t.Errorf("wrote %v, and %v is due", said, w.due)
		}
	})
	t.Run("a Node that is being deleted", func(t *testing.T) {
		w := healthy(t)
		w.editNode("n1", func(n *corev1.Node) { n.Finalizers = []string{"example.com/hold"} })
		if err := w.client.Delete(t.Context(), w.node("n1")); err != nil {
			t.Fatal(err)
		}
		w.renew("n1", true)
		w.pass(2 * time.Minute)
		if said := w.said(); said != nil {
			t.Errorf("wrote %v", said)
		}
	})
}

func TestTwoTransitionsBeforeTheFirstIsWritten(t *testing.T) {
	w := healthy(t)
	w.renew("n1", true)
	w.renew("n1", false)
	w.pass(time.Second)
	if said := w.said(); said != nil {
		t.Errorf("wrote %v for a link that is up", said)
	}

	// The same, with the first half of the first one written.
	flapped := false
	w.fail = func(node string) error {
		if len(w.writes) == 1 && !flapped {
			flapped = true
			w.renew("n1", false) // while the taint is in and the condition is not
			return conflict(node)
		}
		return nil
	}
	w.pass(9 * time.Second)
	w.renew("n1", true)
	w.pass(time.Second)
	if said, want := w.said(), []string{"taint", "taint"}; !slices.Equal(said, want) {
		t.Errorf("wrote %v, want %v", said, want)
	}
}

// TestSteadyStateIsSilent: what 1000 nodes do all day must cost next to nothing.
func TestSteadyStateIsSilent(t *testing.T) {
	w := healthy(t)
	before := w.reconciles
	for range 360 {
		w.renew("n1", false)
		w.pass(10 * time.Second)
	}
	if said := w.said(); said != nil {
		t.Errorf("wrote %v in an hour of direct heartbeats", said)
	}
	// Each reconcile is due when the Lease would turn silent, had it not been renewed since.
	if n := w.reconciles - before; n > 3600/30+1 {
		t.Errorf("%d reconciles in an hour", n)
	}
}

func TestMetrics(t *testing.T) {
	w := healthy(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.policy.Metrics()...)
	w.createNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n2", Labels: map[string]string{edge.LabelNodePool: "p2"}},
	})
	w.editNode("n1", func(n *corev1.Node) { n.Labels = map[string]string{edge.LabelNodePool: "p1"} })
	for range 2 {
		w.renew("n1", true)
		w.renew("n2", false)
		w.pass(10 * time.Second)
	}
	want := `
# HELP coordinator_controller_cloud_link_transitions_total Changes written to the CloudLinkDown condition of Nodes, by the status before (None if there was no condition) and after.
# TYPE coordinator_controller_cloud_link_transitions_total counter
coordinator_controller_cloud_link_transitions_total{from="False",to="True"} 1
coordinator_controller_cloud_link_transitions_total{from="None",to="False"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestStrip(t *testing.T) {
	deleted := &metav1.Time{Time: time.Unix(1, 0)}
	meta := metav1.ObjectMeta{
		Namespace: "x", Name: "n1", UID: "u1", ResourceVersion: "7", DeletionTimestamp: deleted,
		Labels:        map[string]string{edge.LabelNodePool: "p1"},
		Annotations:   map[string]string{edge.DelegateHeartbeat: "true", "other": "y"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
	}
	node := aNode(true, yes, ReasonDelegated)
	node.ObjectMeta = meta
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"busybox"}}}
	node.Annotations["kept"] = "z"
	stripped, err := stripNode(func(*corev1.Node) []string { return []string{"kept", "absent"} })(node)
	if err != nil {
		t.Fatal(err)
	}
	n := stripped.(*corev1.Node)
	if n.ManagedFields != nil || n.Status.Images != nil || len(n.Annotations) != 1 {
		t.Errorf("kept too much of a Node: %+v", n)
	}
	if n.Name != "n1" || n.UID != "u1" || n.ResourceVersion != "7" || n.DeletionTimestamp != deleted ||
		poolOf(n) != "p1" || n.Annotations["kept"] != "z" || len(n.Spec.Taints) != 3 ||
		ConditionOf(n, edge.ConditionCloudLinkDown).Status != yes {
		t.Errorf("kept too little of a Node: %+v", n)
	}

	for _, key := range edge.AnnotationsOfReports {
		said := metav1.ObjectMeta{Annotations: map[string]string{key: "said"}}
		report, err := stripLease(&coordinationv1.Lease{ObjectMeta: said})
		if err != nil || report.(*coordinationv1.Lease).Annotations[key] != "said" {
			t.Errorf("kept too little of a report: %s is gone, %v", key, err)
		}
	}
	leader := "n2"
	report, err := stripLease(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{edge.AnnotationReachedNodes: "n1"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &leader},
	})
	if err != nil || report.(*coordinationv1.Lease).Spec.HolderIdentity == nil {
		t.Errorf("kept too little of a report: who wrote it is gone, %v", err)
	}

	renewed := metav1.NowMicro()
	seconds, holder := int32(40), "n1"
	stripped, err = stripLease(&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{
		RenewTime: &renewed, LeaseDurationSeconds: &seconds, HolderIdentity: &holder}})
	if err != nil {
		t.Fatal(err)
	}
	l := stripped.(*coordinationv1.Lease)
	if l.ManagedFields != nil || l.Labels != nil || l.Spec.HolderIdentity != nil || len(l.Annotations) != 1 {
		t.Errorf("kept too much of a Lease: %+v", l)
	}
	if l.Namespace != "x" || l.Name != "n1" || l.UID != "u1" || l.Annotations[edge.DelegateHeartbeat] != "true" ||
		l.Spec.RenewTime != &renewed || *l.Spec.LeaseDurationSeconds != 40 {
		t.Errorf("kept too little of a Lease: %+v", l)
	}

	for _, strip := range []func(any) (any, error){stripNode(nil), stripLease} {
		if got, err := strip("tombstone"); got != "tombstone" || err != nil {
			t.Errorf("strip = %v, %v", got, err)
		}
	}
}
