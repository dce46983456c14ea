package heartbeat

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// TestShownForReal: with a real API server and no more rights than it has, a delegated node of a pool that wants it so is
// shown NotReady and listed, also by a controller that starts while it is; and Ready, and off the list, when the pool no
// longer wants it, and when the YurtCoordinator goes.
func TestShownForReal(t *testing.T) {
	cfg := cloudtest.Start(t)
	c := cloudtest.Client(t, cfg)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	start := func() (stop func()) {
		as := cloudtest.Restricted(t, cfg, "heartbeat",
			cloudtest.May("", "nodes", "get", "list", "watch", "patch"), cloudtest.May("", "nodes/status", "patch"),
			cloudtest.May("", "configmaps", "get", "create", "patch", "delete"),
			cloudtest.May(coordinationv1.GroupName, "leases", "get", "list", "watch"),
			cloudtest.May(v1alpha1.GroupVersion.Group, "yurtcoordinators", "get", "list", "watch"),
			cloudtest.May(eventsv1.GroupName, "events", "create", "patch"))
		options := manager.Options{Cache: cache.Options{ByObject: Cached(func(*corev1.Node) []string { return nil })}}
		return cloudtest.Manager(t, as, options, func(m manager.Manager) error {
			p := New(Config{
				Client: m.GetClient(), Events: m.GetEventRecorder("test"), SilenceAfter: time.Minute,
			})
			return errors.Join(p.AddTo(m), p.FollowCoordinators(m))
		})
	}

	node := aNode(false, none, "")
	status := *node.Status.DeepCopy()
	node.Name, node.UID, node.Labels = "real-1", "", map[string]string{edge.LabelNodePool: "real"}
	must(c.Create(t.Context(), node))
	node.Status = status
	must(c.Status().Update(t.Context(), node))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: node.Name}}
	annotate(lease, true)
	must(c.Create(t.Context(), lease))
	beat := func() {
		t.Helper()
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		must(c.Update(t.Context(), lease))
	}
	pool := &v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: "real"},
		Spec:       v1alpha1.YurtCoordinatorSpec{NodePool: "real", DelegatedNodeStatus: v1alpha1.DelegatedNotReady},
	}
	must(c.Create(t.Context(), pool))
	isSo := func(wanted bool) {
		t.Helper()
		cloudtest.Eventually(t, fmt.Sprint("shown NotReady: ", wanted), func() error {
			beat()
			return shownAsWanted(t, c, node, wanted)
		})
	}

	stop := start()
	isSo(true)
	stop()
	stop = start()
	isSo(true)
	pool.Spec.DelegatedNodeStatus = ""
	must(c.Update(t.Context(), pool))
	isSo(false)
	pool.Spec.DelegatedNodeStatus = v1alpha1.DelegatedNotReady
	must(c.Update(t.Context(), pool))
	isSo(true)
	must(c.Delete(t.Context(), pool))
	isSo(false)
	stop()
}

// shownAsWanted returns an error unless the node and the list say so both. What the kubelet said of its own time is always
// there.
func shownAsWanted(t *testing.T, c client.Client, node *corev1.Node, wanted bool) error {
	t.Helper()
	was := ConditionOf(node, corev1.NodeReady)
	var now corev1.Node
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), &now); err != nil {
		return err
	}
	ready := ConditionOf(&now, corev1.NodeReady)
	if !ready.LastHeartbeatTime.Equal(&was.LastHeartbeatTime) {
		t.Fatalf("Ready is %+v, was %+v: the LastHeartbeatTime is the kubelet's", ready, was)
	}
	_, labelled := now.Labels[edge.LabelExcludeDisruption]
	var list corev1.ConfigMap
	key := client.ObjectKey{Namespace: edge.NamespaceSystem, Name: edge.ConfigMapShownNotReady}
	if err := c.Get(t.Context(), key, &list); client.IgnoreNotFound(err) != nil {
		return err
	}
	listed := strings.Contains(list.Data[edge.RollEntry], "\n"+node.Name+"=")
	if isShown(&now) != wanted || labelled != wanted || listed != wanted {
		return fmt.Errorf("%+v, labels %v, list %v", ready, now.Labels, list.Data)
	}
	return nil
}
