package pool

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/pool/pooltest"
)

// TestNamespacesOfWhatIsShown: there is one as long as a node has an object in it, and the coordinator's own stay.
func TestNamespacesOfWhatIsShown(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	alice := c.as(t, pooltest.Operator()).CoreV1()
	one := c.hub(t, "n1")
	one.Ask()
	systems := []string{"kube-node-lease", "kube-system"}
	are := func(want ...string) {
		t.Helper()
		if err := eventually(t.Context(), func() error {
			list, err := alice.Namespaces().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			var got []string
			for i := range list.Items {
				ns := &list.Items[i]
				if made := ns.Labels["openyurt.io/made-by-coordinator"] == "true"; made == slices.Contains(systems,
					ns.Name) || ns.UID == "" {
					return fmt.Errorf("made here: %v: %+v", made, ns)
				}
				got = append(got, ns.Name)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("there are %v, want %v", got, want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	are("kube-node-lease", "kube-system")
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10)))
	are("kube-node-lease", "kube-system", "shop")
	one.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n1", "a", 11)))
	are("kube-node-lease", "kube-system")
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "b", 12)))
	are("kube-node-lease", "kube-system", "shop")
}
