package upgrades

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// world is a real API server with the controller; the test is its kubelets and hubs.
type world struct {
	*testing.T
	c      client.Client
	events *events.FakeRecorder
}

func newWorld(t *testing.T) *world {
	cfg := cloudtest.Start(t)
	w := &world{T: t, c: cloudtest.Client(t, cfg), events: events.NewFakeRecorder(1000)}
	cloudtest.Manager(t, cfg, manager.Options{}, func(mgr manager.Manager) error {
		return New(Config{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: w.events, Clock: clock.RealClock{},
			Program: Program{Image: "r/yurthub", PullPolicy: corev1.PullIfNotPresent},
		}).AddTo(mgr)
	})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// node makes a Node of a pool that is well, with a hub of a version.
func (w *world) node(pool, name, version string) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{edge.LabelNodePool: pool}}}
	w.must(w.c.Create(w.Context(), n))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.must(w.c.Status().Update(w.Context(), n))
	w.says(name, version)
}

// says is a hub that says its version.
func (w *world) says(node, version string) {
	w.Helper()
	n := &corev1.Node{}
	w.must(w.c.Get(w.Context(), client.ObjectKey{Name: node}, n))
	base := client.MergeFrom(n.DeepCopy())
	is := edge.HubProgram{Version: version, Upgradable: true}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, edge.AnnotationProgram, is.String())
	w.must(w.c.Patch(w.Context(), n, base))
}

// wants changes what somebody wants.
func (w *world) wants(settings, upgrade string) {
	w.Helper()
	s := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: settings}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"upgrade":`+upgrade+`}}`))
	w.must(w.c.Patch(w.Context(), s, patch))
}

// pod waits for an upgrader.
func (w *world) pod(name string) *corev1.Pod {
	w.Helper()
	p := &corev1.Pod{}
	cloudtest.Eventually(w, name+" is there", func() error {
		return w.c.Get(w.Context(), client.ObjectKey{Namespace: edge.NamespaceSystem, Name: name}, p)
	})
	return p
}

// ends is a kubelet whose Pod has ended.
func (w *world) ends(p *corev1.Pod, phase corev1.PodPhase, message string) {
	w.Helper()
	p.Status.Phase = phase
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "yurthub", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}},
	}}
	w.must(w.c.Status().Update(w.Context(), p))
}

// gone waits until there is no such Pod.
func (w *world) gone(name string) {
	w.Helper()
	cloudtest.Eventually(w, name+" is gone", func() error {
		p := &corev1.Pod{}
		err := w.c.Get(w.Context(), client.ObjectKey{Namespace: edge.NamespaceSystem, Name: name}, p)
		if err == nil && p.DeletionTimestamp != nil { // kubelet ends it
			err = w.c.Delete(w.Context(), p, client.GracePeriodSeconds(0))
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
}

// condition waits until the PoolSettings say so.
func (w *world) condition(settings string, reason state, says string) v1alpha1.PoolSettingsStatus {
	w.Helper()
	s := &v1alpha1.PoolSettings{}
	cloudtest.Eventually(w, "the status says "+string(reason), func() error {
		err := w.c.Get(w.Context(), client.ObjectKey{Name: settings}, s)
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.PoolSettingsHubsUpgraded)
		if c == nil || c.Reason != string(reason) || !strings.Contains(c.Message, says) {
			return fmt.Errorf("it says %+v", s.Status)
		}
		return nil
	})
	return s.Status
}

// TestALife follows a rollout over a pool at a real API server: one node after the other, a stop, and the way back.
func TestALife(t *testing.T) {
	w := newWorld(t)
	p := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "life"}}
	p.Spec.Type = v1beta2.Edge
	w.must(w.c.Create(t.Context(), p))
	w.node("life", "life-n1", older)
	w.node("life", "life-n2", older)
	w.node("life", "life-n3", older)
	s := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "life"}}
	s.Spec.Pools, s.Spec.Upgrade.Version = []string{"life"}, newer
	w.must(w.c.Create(t.Context(), s))

	w.ends(w.pod("yurthub-pull-life-n1"), corev1.PodSucceeded, "")
	first := w.pod("yurthub-upgrade-life-n1")
	if image := first.Spec.Containers[0].Image; image != "r/yurthub:v0.3.0" || objects.PinnedTo(first) != "life-n1" {
		t.Errorf("%s on %s", image, objects.PinnedTo(first))
	}
	w.ends(w.pod("yurthub-pull-life-n2"), corev1.PodSucceeded, "") // meanwhile
	w.condition("life", Upgrading, "0 of 3 hubs run it. life: Upgrading: life-n1.")
	w.ends(first, corev1.PodSucceeded, `{"outcome":"Upgraded"}`)
	if err := w.c.Get(t.Context(), client.ObjectKey{Namespace: edge.NamespaceSystem, Name: "yurthub-upgrade-life-n2"},
		&corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("life-n2 is upgraded before life-n1 says that it is of the version: %v", err)
	}
	w.says("life-n1", newer)
	second := w.pod("yurthub-upgrade-life-n2")
	w.gone("yurthub-pull-life-n1")
	w.gone("yurthub-upgrade-life-n1")
	w.ends(w.pod("yurthub-pull-life-n3"), corev1.PodSucceeded, "")

	w.ends(second, corev1.PodFailed, `{"outcome":"WentBack","why":"yurthub: no yurthub answers"}`)
	status := w.condition("life", Stopped, "life-n2 went back: yurthub: no yurthub answers")
	if u := status.Upgrade; u.Nodes != 3 || u.UpgradedNodes != 1 || len(u.Pools) != 1 || u.Pools[0].State != string(Stopped) {
		t.Errorf("%+v", u)
	}
	cloudtest.Eventually(t, "there is an Event", func() error {
		for {
			select {
			case said := <-w.events.Events:
				if strings.Contains(said, "HubsStopped") && strings.Contains(said, "no yurthub answers") {
					return nil
				}
			default:
				return errors.New("there is none")
			}
		}
	})

	// Somebody has mended the node, and tries the same version again.
	w.must(w.c.Delete(t.Context(), second, client.GracePeriodSeconds(0)))
	w.condition("life", Upgrading, "life-n2")
	w.ends(w.pod("yurthub-upgrade-life-n2"), corev1.PodFailed, `{"outcome":"WentBack","why":"again"}`)
	w.condition("life", Stopped, "life-n2 went back: again")

	// Somebody has looked, and wants another version.
	w.wants("life", `{"version":"`+older+`"}`)
	w.gone("yurthub-upgrade-life-n2")
	w.ends(w.pod("yurthub-pull-life-n1"), corev1.PodSucceeded, "")
	w.ends(w.pod("yurthub-upgrade-life-n1"), corev1.PodSucceeded, `{"outcome":"Upgraded"}`)
	w.says("life-n1", older)
	w.condition("life", UpToDate, "All hubs run the version that is set for them: 3.")
	for _, name := range []string{"pull-life-n1", "upgrade-life-n1", "pull-life-n2", "pull-life-n3"} {
		w.gone("yurthub-" + name)
	}

	w.wants("life", `{"version":"`+newer+`"}`)
	w.pod("yurthub-pull-life-n1")
	w.must(w.c.Delete(t.Context(), p)) // its nodes are in no pool any more
	w.gone("yurthub-pull-life-n1")
	w.wants("life", "null")
	cloudtest.Eventually(t, "nothing is said of upgrades", func() error {
		if err := w.c.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil || s.Status.Upgrade != nil {
			return errors.Join(err, fmt.Errorf("it says %+v", s.Status))
		}
		return nil
	})
}
