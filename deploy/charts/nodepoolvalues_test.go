package charts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/cloud/control"
	"yurtcoordinator/internal/cloud/nodepool"
	"yurtcoordinator/internal/edge"
)

// TestNodePoolValues: the policy refuses what a Node does, and takes what a Node does.
func TestNodePoolValues(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	long := strings.Repeat("a", 64)
	labels := func(key, value string) v1beta2.NodePoolSpec {
		return v1beta2.NodePoolSpec{Labels: map[string]string{key: value}}
	}
	annotations := func(key, value string) v1beta2.NodePoolSpec {
		return v1beta2.NodePoolSpec{Annotations: map[string]string{key: value}}
	}
	taint := func(key, value string) v1beta2.NodePoolSpec {
		return v1beta2.NodePoolSpec{Taints: []corev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}}
	}
	domain := strings.Repeat(strings.Repeat("d", 62)+".", 4) + "d" // 253 characters
	for name, tt := range map[string]struct {
		spec v1beta2.NodePoolSpec
		bad  bool
	}{
		"nothing":                     {v1beta2.NodePoolSpec{}, false},
		"a label":                     {labels("example.org/Rack_1", "A.b-c_1"), false},
		"an empty label":              {labels("a", ""), false},
		"the longest":                 {labels(domain+"/"+long[1:], long[1:]), false},
		"a prefix that is too long":   {labels(domain+"d/a", ""), true},
		"a name that is too long":     {labels("a/"+long, ""), true},
		"a value that is too long":    {labels("a", long), true},
		"a value with a blank":        {labels("a", "two words"), true},
		"a value that ends in a dash": {labels("a", "b-"), true},
		"a key with a blank":          {labels("two words", ""), true},
		"a key with two slashes":      {labels("a/b/c", ""), true},
		"a key without a name":        {labels("a/", ""), true},
		"a prefix in upper case":      {labels("A/b", ""), true},
		"an annotation":               {annotations("example.org/note", "any text, of any length: "+long), false},
		"an annotation's key":         {annotations("no note", ""), true},
		"a taint":                     {taint("edge", "yes"), false},
		"a taint without a value":     {taint("edge", ""), false},
		"a taint's key":               {taint("on the edge", ""), true},
		"a taint's value":             {taint("edge", "Zürich"), true},
	} {
		pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "values"}, Spec: tt.spec}
		err := c.Create(t.Context(), pool, client.DryRunAll)
		if tt.bad != apierrors.IsInvalid(err) || !tt.bad && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "values", Labels: tt.spec.Labels, Annotations: tt.spec.Annotations,
		}, Spec: corev1.NodeSpec{Taints: tt.spec.Taints}}
		if err := c.Create(t.Context(), node, client.DryRunAll); tt.bad != apierrors.IsInvalid(err) || !tt.bad && err != nil {
			t.Errorf("%s: a Node: %v", name, err)
		}
	}
	pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "values"}}
	create(t, c, pool)
	pool.Spec.Labels = map[string]string{"a": "two words"}
	if err := c.Update(t.Context(), pool); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "two words") {
		t.Errorf("a change: %v", err)
	}
}

// TestNodePoolNames: a new NodePool has no dot in its name. One from before can still be written.
func TestNodePoolNames(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	named := func(name string) *v1beta2.NodePool {
		return &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	mustAccept(t, "a name", c.Create(t.Context(), named("eu-shop-1"), client.DryRunAll))
	generated := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{GenerateName: "eu.shop-"}}
	for _, pool := range []*v1beta2.NodePool{named("eu.shop-1"), generated} {
		err := c.Create(t.Context(), pool, client.DryRunAll)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "eu.shop-") || !strings.Contains(err.Error(), "no dot") {
			t.Errorf("%+v: %v", pool.ObjectMeta, err)
		}
	}
	old := &v1beta2.NodePool{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: dottedPool}, old); err != nil {
		t.Fatal(err)
	}
	old.Spec.Labels = map[string]string{"site": "x"}
	mustAccept(t, "a change of one from before", c.Update(t.Context(), old, client.DryRunAll))
}

// TestNodePoolsSayNotWhatANodeIs: the policy refuses what coordinator-controller leaves out, and nothing else.
func TestNodePoolsSayNotWhatANodeIs(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	for _, key := range []string{
		"site", "example.org/site", "kubernetes.io.example.org/x", "mykubernetes.io/x", "kubernetes.io",
		"apps.openyurt.io/example",
		"node.openyurt.io/autonomy-duration", "node-role.kubernetes.io/edge", "node-role.kubernetes.io/control-plane",
		"node-restriction.kubernetes.io/pci", "k8s.io/x", "node.alpha.k8s.io/x", "topology.kubernetes.io/other",
		"node.cloudprovider.kubernetes.io/shutdown", corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelNodeExcludeBalancers, corev1.LabelHostname, corev1.LabelOSStable, corev1.TaintNodeUnreachable,
		edge.LabelExcludeDisruption, edge.LabelCoordinatorNode,
		labelDesired, edge.AnnotationLANAddress, edge.TaintUnschedulable,
		nodepool.AnnotationAttributes, nodepool.AnnotationTaints, nodepool.AnnotationPrevious,
	} {
		attributes := map[string]string{key: "x"}
		for what, spec := range map[string]v1beta2.NodePoolSpec{
			"label": {Labels: attributes}, "annotation": {Annotations: attributes},
			"taint": {Taints: []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}},
		} {
			pool := &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "reserved"}, Spec: spec}
			wanted := nodepool.WantedBy(pool)
			err := c.Create(t.Context(), pool, client.DryRunAll)
			if len(wanted.Labels)+len(wanted.Annotations)+len(wanted.Taints) > 0 {
				mustAccept(t, what+" "+key, err)
			} else {
				mustRefuse(t, what+" "+key, err, key, "set it on the nodes")
			}
		}
	}
}

// TestANodePoolOfBefore: one that has what is refused now can still be written, but gets no more of it.
func TestANodePoolOfBefore(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	pool := &v1beta2.NodePool{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: unreadablePool}, pool); err != nil {
		t.Fatal(err)
	}
	pool.Spec.Labels["site"] = "x"
	mustAccept(t, "another label", c.Update(t.Context(), pool, client.DryRunAll))
	pool.Spec.Annotations = map[string]string{corev1.LabelHostname: "x"}
	mustRefuse(t, "another of these", c.Update(t.Context(), pool, client.DryRunAll), corev1.LabelHostname)
}

// TestNodePoolsWithinThePolicies: coordinator-controller gives a node what its NodePool wants, and takes off what one has given
// before, also what is Kubernetes' own. What others have put there stays.
func TestNodePoolsWithinThePolicies(t *testing.T) {
	cfg := policed(t)
	c := cloudtest.Client(t, cfg)
	gave := func(key string) string { return fmt.Sprintf(`[{"key":%q,"effect":"NoSchedule"}]`, key) }
	const ours, theirs, former = "kubernetes.io/ours", "node-role.kubernetes.io/control-plane", "kubernetes.io/former"
	n := node("led-1", "led", map[string]string{
		nodepool.AnnotationTaints: gave(ours), nodepool.AnnotationPrevious: fmt.Sprintf(`{"labels":{%q:"x"}}`, former),
	})
	n.Labels[former] = "x"
	n.Spec.Taints = []corev1.Taint{
		{Key: ours, Effect: corev1.TaintEffectNoSchedule}, {Key: theirs, Effect: corev1.TaintEffectNoSchedule},
	}
	create(t, c, n)
	create(t, c, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "led"}, Spec: v1beta2.NodePoolSpec{
		Labels: map[string]string{"site": "x", corev1.LabelTopologyZone: "z"}, Annotations: map[string]string{"note": "y"},
		Taints: []corev1.Taint{{Key: "edge", Effect: corev1.TaintEffectNoSchedule}},
	}})
	controller := cloudtest.As(cfg, "system:serviceaccount:kube-system:coordinator-controller", "system:masters")
	cloudtest.Manager(t, controller, manager.Options{}, func(mgr manager.Manager) error {
		return errors.Join(control.IndexNodes(mgr), nodepool.New(nodepool.Config{
			Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("test"),
		}).AddTo(mgr))
	})
	cloudtest.Eventually(t, "the node has what its pool wants", func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			return err
		}
		var taints []string
		for _, taint := range n.Spec.Taints {
			taints = append(taints, taint.Key)
		}
		_, kept := n.Labels[former]
		if kept || n.Labels["site"] != "x" || n.Labels[corev1.LabelTopologyZone] != "z" || n.Annotations["note"] != "y" ||
			slices.Contains(taints, ours) || !slices.Contains(taints, theirs) || !slices.Contains(taints, "edge") {
			return fmt.Errorf("labels %v, annotations %v, taints %v", n.Labels, n.Annotations, taints)
		}
		return nil
	})
}
