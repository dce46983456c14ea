package member

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
	"yurtcoordinator/internal/hub/link"
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
	if m.Link().Get() != link.Down || m.Standing().Get() != (lead.Standing{}) || m.Mirror() != nil || m.URL() != "" {
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
			if (err != nil) != tt.fails || errors.Is(err, lead.ErrUnfit) != tt.unfit {
				t.Errorf("%v", err)
			}
			if tt.unfit && !strings.Contains(err.Error(), "NodePool p1") {
				t.Errorf("%v; want to hear what to look at", err)
			}
			if want := corev1.NamespaceNodeLease + "/" + edge.PoolName("p1").ReportLease(0); asked != want {
				t.Errorf("it has asked for %s, want %s", asked, want)
			}
		})
	}
}
