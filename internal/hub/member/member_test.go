package member

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/compare"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/role"
	"yurtcoordinator/internal/hub/upstream"
)

// TestAlone: who has no coordinator is a member of nothing, and says so. Kubelet's heartbeats are its own all the same.
func TestAlone(t *testing.T) {
	files := upstream.Config{Name: "cloud", Servers: []*url.URL{{Scheme: "https", Host: "cloud.example"}}, CAFile: "ca",
		CertFile: "cert", KeyFile: "key"}
	cloud, err := upstream.New(files)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Alone(Config{Node: "n1", Cloud: cloud, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if m.Heartbeats() == nil {
		t.Error("nobody takes kubelet's heartbeats")
	}
	m.Changed()
	if m.Link().Get() != link.Down || m.Standing().Get() != (role.Standing{}) || m.Mirror() != nil || m.URL() != "" {
		t.Errorf("the link is %v, the standing %+v, the coordinator at %q", m.Link().Get(), m.Standing().Get(), m.URL())
	}
	if _, err := m.Dial(t.Context(), "any"); !errors.Is(err, errNoCoordinator) {
		t.Errorf("it dials a coordinator that there is not: %v", err)
	}
	if w := m.Word(); w.Known || len(w.Clients) > 0 {
		t.Errorf("of a coordinator that there is not, the cloud has said %+v", w)
	}
}

// TestProve: whoever may not read the pool's report is unfit to lead; a cloud that answers with anything else proves nothing.
func TestProve(t *testing.T) {
	leases := coordinationv1.Resource("leases")
	for name, tt := range map[string]struct {
		answer error
		unfit  bool
		fails  bool
	}{
		"there is a report":     {nil, false, false},
		"there is none yet":     {apierrors.NewNotFound(leases, "report"), false, false},
		"it may not":            {apierrors.NewForbidden(leases, "report", errors.New("no")), true, true},
		"its certificate":       {apierrors.NewUnauthorized("no"), true, true},
		"the cloud is troubled": {apierrors.NewServiceUnavailable("no"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := fake.NewClientset()
			var asked string
			cloud.PrependReactor("get", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
				get, _ := a.(clienttesting.GetAction)
				asked = get.GetNamespace() + "/" + get.GetName()
				return true, &coordinationv1.Lease{}, tt.answer
			})
			err := prove(cloud.CoordinationV1(), "p1")(t.Context())
			if (err != nil) != tt.fails || errors.Is(err, role.ErrUnfit) != tt.unfit {
				t.Errorf("%v", err)
			}
			if tt.unfit && !strings.Contains(err.Error(), "NodePool p1") {
				t.Errorf("%v; want to hear what to look at", err)
			}
			if want := corev1.NamespaceNodeLease + "/" + edge.PoolName("p1").ReportLease(); asked != want {
				t.Errorf("it has asked for %s, want %s", asked, want)
			}
		})
	}
}

// TestHowOftenThePoolCompares: as the link has it, or as a test says.
func TestHowOftenThePoolCompares(t *testing.T) {
	for name, tt := range map[string]struct {
		over  v1alpha1.LinkProfile
		every time.Duration
		want  compare.Timing
	}{
		"on a plain link":     {v1alpha1.LinkNormal, 0, compare.Standard()},
		"by satellite":        {v1alpha1.LinkSatellite, 0, compare.Standard()},
		"paid for by bytes":   {v1alpha1.LinkMetered, 0, compare.Metered()},
		"in a test":           {v1alpha1.LinkNormal, time.Minute, compare.Standard().Every(time.Minute)},
		"in a test, by bytes": {v1alpha1.LinkMetered, time.Minute, compare.Metered().Every(time.Minute)},
	} {
		m := &Membership{cfg: Config{CompareEvery: tt.every, LinkProfile: func() v1alpha1.LinkProfile { return tt.over }}}
		if got := m.comparing(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestWhoCompares: this node, and the others that have a link, but not the leader, whose word is compared.
func TestWhoCompares(t *testing.T) {
	lease := func(node string, labels map[string]string) *coordinationv1.Lease {
		meta := metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node, Labels: labels}
		return &coordinationv1.Lease{ObjectMeta: meta}
	}
	coordinator := fake.NewClientset(lease("n1", nil), lease("n2", nil), lease("n3", nil),
		lease("cut", map[string]string{edge.DelegateHeartbeat: "true"}))
	ask := whoCompares("n1", coordinator.CoordinationV1())
	got, err := ask(t.Context(), "n3")
	if want := []edge.NodeName{"n1", "n2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	coordinator.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("no")
	})
	if _, err := ask(t.Context(), "n3"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a coordinator that does not answer: %v", err)
	}
}
