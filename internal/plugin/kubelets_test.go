package plugin

import (
	"maps"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// TestKubelets: how a kubelet is known is read from the pool's report, at a coordinator from each hub's own word.
func TestKubelets(t *testing.T) {
	says := func(value string) coordinationv1.Lease {
		return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{edge.AnnotationKubelet: value}}}
	}
	now := time.Now()
	pools := []v1beta2.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	for name, tt := range map[string]struct {
		o    Objects
		want map[edge.NodeName]edge.KubeletWay
	}{
		"the cloud": {
			Objects{Pools: pools, Leases: map[string]coordinationv1.Lease{
				"yurt-coordinator-a": says("a1=pinned,a2=unapproved,junk"), "a1": says("missing"),
			}},
			map[edge.NodeName]edge.KubeletWay{"a1": edge.KubeletPinned, "a2": edge.KubeletUnapproved},
		},
		"a coordinator": {
			Objects{Within: "a", Leases: map[string]coordinationv1.Lease{
				"a1": says("pinned/" + strings.Repeat("0a", 32)), "a2": says("pinned"), "a3": says("ended"),
			}},
			map[edge.NodeName]edge.KubeletWay{"a1": edge.KubeletPinned, "a3": edge.KubeletEnded},
		},
		"nobody": {Objects{Pools: pools}, nil},
	} {
		found := PoolsOf(tt.o, now)
		if len(found) != 1 || !maps.Equal(found[0].Kubelets, tt.want) {
			t.Errorf("%s: %+v, want %v", name, found, tt.want)
		}
	}
	p := Pool{Name: "a", Kubelets: map[edge.NodeName]edge.KubeletWay{"a2": edge.KubeletUnapproved}}
	for node, want := range map[string]string{"a2": "nobody has approved its certificate", "a1": ""} {
		said := ""
		for _, i := range Explain(Subject{Name: node, Pool: &p, Lease: &coordinationv1.Lease{}}, now).Evidence {
			if i.What == "Kubelet, at the coordinator" {
				said = i.Says
			}
		}
		if !strings.Contains(said, want) || (said == "") != (want == "") {
			t.Errorf("of %s it says %q, want %q", node, said, want)
		}
	}
}
