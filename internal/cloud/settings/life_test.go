package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	hub "yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/edge"
)

func TestMain(m *testing.M) { os.Exit(cloudtest.Main(m)) }

// started runs a Controller.
func started(t *testing.T, cfg *rest.Config) {
	t.Helper()
	cloudtest.Manager(t, cfg, manager.Options{}, func(mgr manager.Manager) error {
		return errors.Join(control.IndexNodes(mgr), New(Config{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: events.NewFakeRecorder(1000), Clock: clock.RealClock{},
		}).AddTo(mgr))
	})
}

func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

func nodeIn(pool, name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{edge.LabelNodePool: pool}}}
}

// said returns the ConfigMap of a pool.
func said(t *testing.T, c client.Client, pool edge.PoolName) (*corev1.ConfigMap, hub.HubSettings, error) {
	t.Helper()
	m := &corev1.ConfigMap{}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: edge.NamespaceSystem, Name: pool.SettingsConfigMap()}, m)
	if err != nil {
		return nil, hub.HubSettings{}, err
	}
	s, unknown, err := hub.DecodeShared([]byte(m.Data[edge.SettingsConfiguration]))
	if unknown != "" {
		t.Errorf("it says what nobody knows: %s", unknown)
	}
	return m, s, err
}

// TestALife follows the settings of a pool from nothing to the end, at a real API server.
func TestALife(t *testing.T) {
	cfg := cloudtest.Start(t)
	c := cloudtest.Client(t, cfg)
	p := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "life", Labels: map[string]string{"test": "life"}}}
	p.Spec.Type = v1beta2.Edge
	create(t, c, p, nodeIn("life", "life-n1"), nodeIn("life", "life-n2"), nodeIn("other", "life-other"))
	started(t, cfg)

	expect := func(what, generation string, agents ...string) {
		t.Helper()
		cloudtest.Eventually(t, what, func() error {
			m, s, err := said(t, c, "life")
			if err == nil && (m.Data[edge.SettingsGeneration] != generation || !slices.Equal(s.CacheAgents, agents)) {
				err = fmt.Errorf("it says %v", m.Data)
			}
			return err
		})
	}
	expect("a pool without settings", "1")

	// The pool's nodes may read it, and nobody else's.
	read := func(node string) error {
		as := cloudtest.Client(t, cloudtest.As(cfg, edge.NodeName(node).User(), "system:authenticated"))
		key := client.ObjectKey{Namespace: edge.NamespaceSystem, Name: edge.PoolName("life").SettingsConfigMap()}
		return as.Get(t.Context(), key, &corev1.ConfigMap{})
	}
	cloudtest.Eventually(t, "its nodes read it", func() error { return read("life-n2") })
	if err := read("life-other"); !apierrors.IsForbidden(err) {
		t.Errorf("another pool's node: %v", err)
	}

	low := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "life-low"}}
	low.Spec.NodePoolSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"test": "life"}}
	low.Spec.Hub.CacheAgents = []string{"a"}
	create(t, c, low)
	expect("selected by its label", "2", "a")
	high := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "life-high"}}
	high.Spec.Pools, high.Spec.Priority, high.Spec.Hub.CacheAgents = []string{"life"}, 5, []string{"b"}
	create(t, c, high)
	expect("selected by its name, with a higher priority", "3", "b")

	report := func(node, text string) {
		t.Helper()
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, edge.AnnotationSettings, text)
		if err := c.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
	}
	status := func(what, name, reason string, updated int32, generations ...int64) {
		t.Helper()
		cloudtest.Eventually(t, what, func() error {
			s := &v1alpha1.PoolSettings{}
			if err := c.Get(t.Context(), client.ObjectKey{Name: name}, s); err != nil {
				return err
			}
			followed := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.PoolSettingsFollowed)
			ok := followed != nil && followed.Reason == reason && s.Status.UpdatedNodes == updated && s.Status.Nodes == 2 &&
				len(s.Status.Generations) == len(generations) &&
				meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.PoolSettingsReady)
			for i := range generations {
				ok = ok && s.Status.Generations[i].Generation == generations[i]
			}
			if !ok {
				return fmt.Errorf("%s says %+v", name, s.Status)
			}
			return nil
		})
	}
	status("nobody has said anything", "life-high", ReasonWaiting, 0)
	report("life-n1", "3/3//")
	status("one has", "life-high", ReasonWaiting, 1, 1)
	report("life-n2", "2/3/refused/it can't")
	status("the other can't", "life-high", ReasonRefused, 1, 1)
	status("… which is also so for the one that is beaten", "life-low", ReasonRefused, 1, 1)
	report("life-n2", "3/3//")
	status("all do", "life-high", ReasonAllNodes, 2, 1)

	if err := c.Delete(t.Context(), high); err != nil {
		t.Fatal(err)
	}
	expect("what has beaten the other is gone", "4", "a")
	status("nodes still run with what they had", "life-low", ReasonWaiting, 0, 1)

	// What others do to it is repaired, or goes with the pool.
	if err := c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "life-n2"}}); err != nil {
		t.Fatal(err)
	}
	cloudtest.Eventually(t, "a node that is gone has no right", func() error {
		b := &rbacv1.RoleBinding{}
		key := client.ObjectKey{Namespace: edge.NamespaceSystem, Name: edge.PoolName("life").SettingsConfigMap()}
		err := c.Get(t.Context(), key, b)
		if err == nil && len(b.Subjects) != 1 {
			err = fmt.Errorf("it is for %v", b.Subjects)
		}
		return err
	})
	if err := c.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	cloudtest.Eventually(t, "nothing is left of a pool that is gone", func() error {
		for _, o := range belongings("life") {
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T: %w", o, err)
			}
		}
		return nil
	})
}

// TestNothingIsWrittenTwice: a start finds all as it should be, and writes nothing.
func TestNothingIsWrittenTwice(t *testing.T) {
	cfg := cloudtest.Start(t)
	c := cloudtest.Client(t, cfg)
	p := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "twice"}}
	s := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "twice"}}
	s.Spec.Pools, s.Spec.Hub.CacheAgents = []string{"twice"}, []string{"a"}
	p.Spec.Type = v1beta2.Edge
	create(t, c, p, s, nodeIn("twice", "twice-n1"))
	started(t, cfg)
	cloudtest.Eventually(t, "it is told", func() error {
		_, settings, err := said(t, c, "twice")
		if err == nil && len(settings.CacheAgents) == 0 {
			err = errors.New("it says nothing")
		}
		return err
	})
	cloudtest.Eventually(t, "the status says so", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.PoolSettingsReady) {
			return fmt.Errorf("%+v", s.Status)
		}
		return nil
	})
	counted, requests := cloudtest.Count(cfg)
	started(t, counted)
	cloudtest.Eventually(t, "the second one has looked", func() error {
		path := "/api/v1/namespaces/kube-system/configmaps/" + edge.PoolName("twice").SettingsConfigMap()
		if !slices.Contains(requests.Sent(), "GET "+path) {
			return errors.New("it has not read the ConfigMap")
		}
		return nil
	})
	cloudtest.Quiet(t, requests.Writes, settle)
	if writes := requests.Writes(); len(writes) > 0 {
		t.Errorf("it has written %v", writes)
	}
}

// TestRefusedByTheAPIServer: what cannot work does not come to hubs.
func TestRefusedByTheAPIServer(t *testing.T) {
	c := cloudtest.Client(t, cloudtest.Start(t))
	yes, no := true, false
	for name, tt := range map[string]struct {
		change func(*v1alpha1.PoolSettings)
		want   string // empty: it is good
	}{
		"all of it": {func(s *v1alpha1.PoolSettings) {
			s.Spec.Hub = hub.HubSettings{
				PoolScopeResources: []string{"v1/services", "discovery.k8s.io/v1/endpointslices"},
				CacheAgents:        []string{"*", "kubelet"}, OwnObjects: &yes, OwnSecrets: &yes,
				Masterservice:         &yes,
				RememberIdentitiesFor: &metav1.Duration{Duration: 90 * 60e9}, LinkProfile: hub.LinkSatellite,
				Relay: hub.RelayHeartbeats,
			}
		}, ""},
		"no pools":           {func(s *v1alpha1.PoolSettings) { s.Spec.Pools = nil }, "say which pools"},
		"a pool twice":       {func(s *v1alpha1.PoolSettings) { s.Spec.Pools = []string{"a", "a"} }, "Duplicate"},
		"no version":         {shares("services"), "should match"},
		"upper case":         {shares("v1/Services"), "should match"},
		"a resource twice":   {shares("v1/a", "v1/a"), "Duplicate"},
		"too many":           {shares(many(33)...), "must have at most 32"},
		"two agents in one":  {keeps("a,b"), "should match"},
		"an agent's version": {keeps("kubelet/v1"), "should match"},
		"less than no time": {func(s *v1alpha1.PoolSettings) {
			s.Spec.Hub.RememberIdentitiesFor = &metav1.Duration{Duration: -1e9}
		}, "should match"},
		"no kind of relaying": {func(s *v1alpha1.PoolSettings) { s.Spec.Hub.Relay = "all" }, "Unsupported value"},
		"no kind of link":     {func(s *v1alpha1.PoolSettings) { s.Spec.Hub.LinkProfile = "cheap" }, "Unsupported value"},
		"Secrets of no Pods": {func(s *v1alpha1.PoolSettings) {
			s.Spec.Hub.OwnSecrets, s.Spec.Hub.OwnObjects = &yes, &no
		}, "ownSecrets needs"},
		"all of a coordinator": {func(s *v1alpha1.PoolSettings) { s.Spec.Coordinator = allOfACoordinator() }, ""},
		"a flag of the workload": {runs(func(c *v1alpha1.CoordinatorSettings) {
			c.ExtraArgs = []string{"--data-dir=/x"}
		}), "set by the workload itself"},
		"a flag with a field": {runs(func(c *v1alpha1.CoordinatorSettings) { c.ExtraArgs = []string{"--v=2"} }), "another field"},
		"a flag without a value": {runs(func(c *v1alpha1.CoordinatorSettings) {
			c.ExtraArgs = []string{"--service-cluster-ip-range", "x"}
		}), "should match"},
		"no nodes":       {runs(func(c *v1alpha1.CoordinatorSettings) { c.MinNodes = ptr.To[int32](0) }), "or equal to 1"},
		"no coordinator": {runs(func(c *v1alpha1.CoordinatorSettings) { c.Replicas = ptr.To[int32](0) }), "or equal to 1"},
		"four of them":   {runs(func(c *v1alpha1.CoordinatorSettings) { c.Replicas = ptr.To[int32](4) }), "or equal to 3"},
		"no quota": {runs(func(c *v1alpha1.CoordinatorSettings) {
			c.MirrorQuota = ptr.To(resource.MustParse("1"))
		}), "use 8Mi to"},
		"too much": {runs(func(c *v1alpha1.CoordinatorSettings) {
			c.EtcdQuota = ptr.To(resource.MustParse("17Gi"))
		}), "use 8Mi to"},
		"another pool": {runs(func(c *v1alpha1.CoordinatorSettings) {
			c.NodeSelector = map[string]string{edge.LabelNodePool: "p"}
		}), "leave apps.openyurt.io/nodepool out"},
		"any taint": {runs(func(c *v1alpha1.CoordinatorSettings) {
			c.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}), "name a taint"},
		"a dead node": {runs(func(c *v1alpha1.CoordinatorSettings) {
			c.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists}}
		}), "not a matter of settings"},
		"made sometimes":         {runs(func(c *v1alpha1.CoordinatorSettings) { c.Create = "Sometimes" }), "Unsupported value"},
		"too high":               {func(s *v1alpha1.PoolSettings) { s.Spec.Priority = 1001 }, "less than or equal to 1000"},
		"a name that's too long": {func(s *v1alpha1.PoolSettings) { s.Name = strings.Repeat("n", 64) }, "at most 63"},
	} {
		s := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
		s.Spec.Pools = []string{"refused"}
		tt.change(s)
		err := c.Create(t.Context(), s, client.DryRunAll)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func runs(change func(*v1alpha1.CoordinatorSettings)) func(*v1alpha1.PoolSettings) {
	return func(s *v1alpha1.PoolSettings) { change(&s.Spec.Coordinator) }
}

func allOfACoordinator() v1alpha1.CoordinatorSettings {
	return v1alpha1.CoordinatorSettings{
		Create: v1alpha1.CreateAlways, MinNodes: ptr.To[int32](1), Replicas: ptr.To[int32](3),
		ExtraArgs:  []string{"--service-cluster-ip-range=10.96.0.0/12", "--verbose=1"},
		OwnSecrets: ptr.To(true), Verbosity: ptr.To[int32](7),
		LoggingFormat: "json",
		MirrorQuota:   ptr.To(resource.MustParse("256Mi")), OwnQuota: ptr.To(resource.MustParse("67108864")),
		EtcdQuota: ptr.To(resource.MustParse("0.5Gi")), NodeSelector: map[string]string{"ups": "yes"},
		Resources: &v1alpha1.CoordinatorResources{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		},
		PreferredNodes: []string{"n1"},
		Tolerations:    []corev1.Toleration{{Key: "edge", Operator: corev1.TolerationOpExists}},
	}
}

// TestTheRuleOfExtraArgs: the CRD refuses those flags that coordinator-controller does.
func TestTheRuleOfExtraArgs(t *testing.T) {
	c := cloudtest.Client(t, cloudtest.Start(t))
	for _, flag := range v1alpha1.ReservedCoordinatorFlags() {
		s := &v1alpha1.PoolSettings{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
		s.Spec.Pools, s.Spec.Coordinator.ExtraArgs = []string{"refused"}, []string{"--" + flag + "=x"}
		err := c.Create(t.Context(), s, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "set by the workload itself") {
			t.Errorf("--%s: %v", flag, err)
		}
	}
}

// shares and keeps set what is shared, and whose reads are kept.
func shares(resources ...string) func(*v1alpha1.PoolSettings) {
	return func(s *v1alpha1.PoolSettings) { s.Spec.Hub.PoolScopeResources = resources }
}

func keeps(agents ...string) func(*v1alpha1.PoolSettings) {
	return func(s *v1alpha1.PoolSettings) { s.Spec.Hub.CacheAgents = agents }
}

func many(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("v1/r%d", i))
	}
	return all
}
