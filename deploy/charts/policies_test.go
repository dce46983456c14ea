package charts

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/cloudtest"
	cloudcoordinator "yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/cloud/roll"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// The package's server gets the policies once. Before it has them it gets what they would refuse.
var installed sync.Once

const bothPool = "both"

// unreadablePool is a NodePool whose duration to hold evictions can't be read, and with a label that it may not give.
const unreadablePool = "unreadable"

// dottedPool is a NodePool with a dot in its name.
const dottedPool = "eu.shop-0"

func policed(t testing.TB) *rest.Config {
	t.Helper()
	cfg := cloudtest.Start(t)
	installed.Do(func() {
		c := cloudtest.Client(t, cfg)
		create(t, c, node("both", bothPool, map[string]string{edge.AnnotationAutonomy: edge.AutonomyOn}))
		create(t, c, coordinator("both", bothPool))
		create(t, c, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{
			Name: unreadablePool, Annotations: map[string]string{edge.AnnotationHoldEvictions: "no duration"},
		}, Spec: v1beta2.NodePoolSpec{Labels: map[string]string{"node-role.kubernetes.io/master": ""}}})
		create(t, c, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: dottedPool}})
		create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: edge.NamespaceKeys}})
		applyPolicies(t, c)
		awaitPolicies(t, cfg)
	})
	return cfg
}

func applyPolicies(t testing.TB, c client.Client) {
	t.Helper()
	var policies []source
	for _, s := range verbatim(t) {
		if strings.HasPrefix(s.file, "files/policies/") {
			policies = append(policies, s)
		}
	}
	// The one that awaitPolicies sees the effect of comes last.
	last := func(s source) int { return strings.Index(s.file, "delegate-annotation") }
	slices.SortFunc(policies, func(a, b source) int {
		return cmp.Or(cmp.Compare(last(a), last(b)), cmp.Compare(id(a.object), id(b.object)))
	})
	for _, p := range policies {
		create(t, c, p.object)
	}
}

// awaitPolicies waits until the API server has taken them up.
func awaitPolicies(t testing.TB, cfg *rest.Config) {
	t.Helper()
	admin := cloudtest.Client(t, cfg)
	cloudtest.Eventually(t, "the policies are enforced", func() error {
		err := admin.Create(t.Context(), lease("any", corev1.NamespaceNodeLease, true), client.DryRunAll)
		if err == nil {
			return fmt.Errorf("a marked Lease is accepted")
		}
		if !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		return nil
	})
}

func create(t testing.TB, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func node(name, pool string, annotations map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
	if pool != "" {
		n.Labels = map[string]string{edge.LabelNodePool: pool}
	}
	return n
}

func coordinator(name, pool string) *v1alpha1.YurtCoordinator {
	return &v1alpha1.YurtCoordinator{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.YurtCoordinatorSpec{NodePool: pool},
	}
}

func lease(name, namespace string, marked bool) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	if marked {
		l.Annotations = map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
	}
	return l
}

// refused wants an error whose message has all words.
func refused(err error, words ...string) error {
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("got %w, want it forbidden", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return fmt.Errorf("%w: want a message that says %q", err, w)
		}
	}
	return nil
}

func mustRefuse(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted", what)
	} else if err := refused(err, words...); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func mustAccept(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// nowRefused waits for the API server to know of what a policy compares with.
func nowRefused(t *testing.T, what string, do func() error, words ...string) {
	t.Helper()
	cloudtest.Eventually(t, what, func() error {
		err := do()
		if err == nil {
			return fmt.Errorf("accepted")
		}
		return refused(err, words...)
	})
}

// rolls keeps the ConfigMaps of policies on pools, as coordinator-controller does.
func rolls(t *testing.T, cfg *rest.Config) {
	t.Helper()
	coordinated := roll.Roll[*v1alpha1.YurtCoordinator]{
		Name: "coordinated", ConfigMap: edge.ConfigMapCoordinatedPools,
		Object: &v1alpha1.YurtCoordinator{}, List: &v1alpha1.YurtCoordinatorList{},
		Of: func(c *v1alpha1.YurtCoordinator) (roll.Entry, bool) {
			return roll.Entry{Key: c.Spec.NodePool, Value: c.Name}, true
		},
	}
	autonomous := roll.Roll[*corev1.Node]{
		Name: "autonomous", ConfigMap: edge.ConfigMapAutonomousPools, Object: &corev1.Node{}, List: &corev1.NodeList{},
		Of: func(n *corev1.Node) (roll.Entry, bool) {
			_, duration := n.Annotations[edge.AnnotationAutonomyDuration]
			on := duration || n.Annotations[edge.AnnotationAutonomy] == edge.AutonomyOn
			return roll.Entry{Key: n.Labels[edge.LabelNodePool], Value: n.Name}, on && n.Labels[edge.LabelNodePool] != ""
		},
	}
	cloudtest.Manager(t, cfg, manager.Options{}, func(mgr manager.Manager) error {
		return errors.Join(coordinated.AddTo(mgr, ends.Chance{}), autonomous.AddTo(mgr, ends.Chance{}))
	})
}

func TestOneCoordinatorPerPool(t *testing.T) {
	cfg := policed(t)
	rolls(t, cfg)
	c := cloudtest.Client(t, cfg)
	create(t, c, coordinator("one-a", "one"))
	nowRefused(t, "a second YurtCoordinator", func() error {
		return c.Create(t.Context(), coordinator("one-b", "one"), client.DryRunAll)
	}, "pool one has the YurtCoordinator one-a", "delete it")
	for _, pool := range []string{"one-other", "on", "ne"} {
		mustAccept(t, "one for pool "+pool, c.Create(t.Context(), coordinator("one-c", pool), client.DryRunAll))
	}
	if err := c.Delete(t.Context(), coordinator("one-a", "one")); err != nil {
		t.Fatal(err)
	}
	mustAccept(t, "the same, made again at once", c.Create(t.Context(), coordinator("one-a", "one"), client.DryRunAll))
	cloudtest.Eventually(t, "another after the first is gone", func() error {
		return c.Create(t.Context(), coordinator("one-b", "one"), client.DryRunAll)
	})
}

func TestAutonomyOfANode(t *testing.T) {
	cfg := policed(t)
	rolls(t, cfg)
	c := cloudtest.Client(t, cfg)
	create(t, c, coordinator("ex", "ex"))
	annotate := func(n *corev1.Node, key, value string) error {
		n = n.DeepCopy()
		patch := client.MergeFrom(n.DeepCopy())
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
		return c.Patch(t.Context(), n, patch, client.DryRunAll)
	}
	inside, outside, plain := node("ex-in", "ex", nil), node("ex-out", "ex-other", nil), node("ex-none", "", nil)
	autonomous := node("ex-auto", "", map[string]string{edge.AnnotationAutonomyDuration: "2h"})
	for _, n := range []*corev1.Node{inside, outside, plain, autonomous} {
		create(t, c, n)
	}
	nowRefused(t, "autonomy in the pool", func() error { return annotate(inside, edge.AnnotationAutonomy, "true") },
		"pool ex has the YurtCoordinator ex", edge.AnnotationAutonomy)
	mustRefuse(t, "a duration in the pool", annotate(inside, edge.AnnotationAutonomyDuration, "0s"), "YurtCoordinator ex")
	mustAccept(t, "autonomy that is off", annotate(inside, edge.AnnotationAutonomy, "false"))
	mustAccept(t, "another annotation", annotate(inside, "example.org/note", "true"))
	mustAccept(t, "autonomy in a pool without", annotate(outside, edge.AnnotationAutonomy, "true"))
	for _, n := range []*corev1.Node{node("ex-begin", "e", nil), node("ex-end", "x", nil)} {
		create(t, c, n)
		mustAccept(t, "autonomy in pool "+n.Labels[edge.LabelNodePool], annotate(n, edge.AnnotationAutonomy, "true"))
	}
	mustAccept(t, "autonomy in no pool", annotate(plain, edge.AnnotationAutonomy, "true"))

	join := func(pool string) error {
		n := autonomous.DeepCopy()
		patch := client.MergeFrom(n.DeepCopy())
		n.Labels = map[string]string{edge.LabelNodePool: pool}
		return c.Patch(t.Context(), n, patch, client.DryRunAll)
	}
	mustRefuse(t, "an autonomous node that joins", join("ex"), "YurtCoordinator ex")
	mustAccept(t, "one that joins another pool", join("ex-other"))
	both := map[string]string{edge.AnnotationAutonomy: "true"}
	mustRefuse(t, "a new node", c.Create(t.Context(), node("ex-new", "ex", both), client.DryRunAll), "YurtCoordinator ex")
	mustAccept(t, "a new node elsewhere", c.Create(t.Context(), node("ex-new", "ex-other", both), client.DryRunAll))
}

// What is both already, since it was so before the policies, must still be tainted, reported and repaired.
func TestANodeThatIsBothAlready(t *testing.T) {
	cfg := policed(t)
	rolls(t, cfg)
	c := cloudtest.Client(t, cfg)
	nowRefused(t, "one that becomes so", func() error {
		autonomous := map[string]string{edge.AnnotationAutonomy: edge.AutonomyOn}
		return c.Create(t.Context(), node("both-2", bothPool, autonomous), client.DryRunAll)
	}, "YurtCoordinator both")
	get := func() *corev1.Node {
		n := &corev1.Node{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "both"}, n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	tainted := get()
	patch := client.MergeFrom(tainted.DeepCopy())
	tainted.Spec.Taints = append(tainted.Spec.Taints, corev1.Taint{Key: "example.org/t", Effect: corev1.TaintEffectNoSchedule})
	tainted.Annotations[edge.AnnotationAutonomyDuration] = "2h"
	mustAccept(t, "a taint", c.Patch(t.Context(), tainted, patch))

	reported := get()
	patch = client.MergeFrom(reported.DeepCopy())
	reported.Status.NodeInfo.KubeletVersion = "v1.36.3"
	mustAccept(t, "its status", c.Status().Patch(t.Context(), reported, patch))

	moved := get()
	patch = client.MergeFrom(moved.DeepCopy())
	moved.Labels = map[string]string{edge.LabelNodePool: "elsewhere"}
	mustAccept(t, "out of the pool", c.Patch(t.Context(), moved, patch, client.DryRunAll))

	repaired := get()
	patch = client.MergeFrom(repaired.DeepCopy())
	repaired.Annotations = nil
	mustAccept(t, "without autonomy", c.Patch(t.Context(), repaired, patch, client.DryRunAll))
}

func TestCoordinatorForAPoolWithAnAutonomousNode(t *testing.T) {
	cfg := policed(t)
	rolls(t, cfg)
	c := cloudtest.Client(t, cfg)
	auto := node("au-1", "au", map[string]string{edge.AnnotationAutonomyDuration: "2h"})
	create(t, c, auto)
	create(t, c, node("au-2", "au", map[string]string{edge.AnnotationAutonomy: "false"}))
	nowRefused(t, "a YurtCoordinator", func() error {
		return c.Create(t.Context(), coordinator("au", "au"), client.DryRunAll)
	}, "node au-1 of pool au", "kubectl annotate node au-1")
	mustAccept(t, "one for another pool", c.Create(t.Context(), coordinator("au", "au-other"), client.DryRunAll))
	patch := client.MergeFrom(auto.DeepCopy())
	auto.Annotations = nil
	if err := c.Patch(t.Context(), auto, patch); err != nil {
		t.Fatal(err)
	}
	cloudtest.Eventually(t, "a YurtCoordinator when no node is autonomous", func() error {
		return c.Create(t.Context(), coordinator("au", "au"), client.DryRunAll)
	})
}

func TestDeletionOfANodePool(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	pool, empty := &v1beta2.NodePool{}, &v1beta2.NodePool{}
	pool.Name, empty.Name = "del", "del-empty"
	create(t, c, pool)
	create(t, c, empty)
	has := func(nodes ...string) {
		t.Helper()
		pool.Status.Nodes = nodes
		if err := c.Status().Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	has("del-1", "del-2")
	mustRefuse(t, "a NodePool with nodes", c.Delete(t.Context(), pool, client.DryRunAll),
		"node del-1 is in pool del", "kubectl label node -l apps.openyurt.io/nodepool=del")
	mustRefuse(t, "it among others", c.DeleteAllOf(t.Context(), &v1beta2.NodePool{}, client.DryRunAll), "node del-1")
	mustAccept(t, "one without a status", c.Delete(t.Context(), empty))
	has()
	mustAccept(t, "it without nodes", c.Delete(t.Context(), pool))
}

// TestDeletionOfTheCoordinatorsYurtAppSets takes a confirmation where many run. Those of others are not looked at.
func TestDeletionOfTheCoordinatorsYurtAppSets(t *testing.T) {
	c := cloudtest.Client(t, policed(t))
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sets"}}); err != nil {
		t.Fatal(err)
	}
	running := func(namespace, name string, n int32, confirms string) *v1beta1.YurtAppSet {
		t.Helper()
		set, err := cloudcoordinator.AppSet(cloudcoordinator.Config{
			Program: cloudcoordinator.Program{Rollout: cloudcoordinator.Rollout{MaxUnavailable: "10%"}},
		}, 0)
		if err != nil {
			t.Fatal(err)
		}
		set.Namespace, set.Name = namespace, name
		if confirms != "" {
			set.Annotations = map[string]string{appset.AnnotationConfirmRemoval: confirms}
		}
		create(t, c, set)
		set.Status.TotalWorkloads = n
		if err := c.Status().Update(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		return set
	}
	const name, standbys = "yurt-coordinator", "yurt-coordinator--1"
	for _, refused := range []*v1beta1.YurtAppSet{
		running(edge.NamespaceSystem, name, 3, ""), running(edge.NamespaceSystem, standbys, 3, "2"),
	} {
		mustRefuse(t, refused.Name, c.Delete(t.Context(), refused), "would remove 3 coordinators", "delete its YurtCoordinator",
			"annotate yurtappset "+refused.Name+" -n kube-system --overwrite apps.openyurt.io/confirm-removal=3")
		mustRefuse(t, "it among others",
			c.DeleteAllOf(t.Context(), &v1beta1.YurtAppSet{}, client.InNamespace(edge.NamespaceSystem)), "3 coordinators")
		refused.Annotations = map[string]string{appset.AnnotationConfirmRemoval: "3"}
		if err := c.Update(t.Context(), refused); err != nil {
			t.Fatal(err)
		}
		mustAccept(t, "confirmed", c.Delete(t.Context(), refused))
	}
	mustAccept(t, "a single one", c.Delete(t.Context(), running(edge.NamespaceSystem, name, 1, "")))
	mustAccept(t, "without a status", c.Delete(t.Context(), running(edge.NamespaceSystem, standbys, 0, "")))
	mustAccept(t, "another", c.Delete(t.Context(), running(edge.NamespaceSystem, "web", 3, "")))
	mustAccept(t, "elsewhere", c.Delete(t.Context(), running("sets", name, 3, "")))
}

// labelDesired is OpenYurt's, whose webhook turns it into the pool of a node that has none.
const labelDesired = "apps.openyurt.io/desired-nodepool"

// podOn is a client with a token of a Pod on a node.
func podOn(t *testing.T, cfg *rest.Config, node string) client.Client {
	t.Helper()
	as := cloudtest.As(cfg, "system:serviceaccount:kube-flannel:flannel", "system:masters")
	as.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	return cloudtest.Client(t, as)
}

// TestPoolMembership: a node can't go over to another pool by itself.
func TestPoolMembership(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	create(t, admin, node("member-1", "member", nil))
	create(t, admin, node("member-2", "", nil))
	for _, name := range []string{"member-1", "member-2"} {
		self := cloudtest.Client(t, cloudtest.As(cfg, "system:node:"+name, "system:nodes", "system:masters"))
		moved := node(name, "", nil)
		move := func(c client.Client, key, pool string) error {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(moved), moved); err != nil {
				t.Fatal(err)
			}
			base := client.MergeFrom(moved.DeepCopy())
			metav1.SetMetaDataLabel(&moved.ObjectMeta, key, pool)
			return c.Patch(t.Context(), moved, base)
		}
		for _, key := range []string{edge.LabelNodePool, labelDesired} {
			mustRefuse(t, name+" moves itself by "+key, move(self, key, "other"), "can not change its own pool",
				"kubectl label node "+name)
			mustRefuse(t, "a Pod on "+name+" moves it by "+key, move(podOn(t, cfg, name), key, "other"),
				"can not change its own pool")
		}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(moved), moved); err != nil {
			t.Fatal(err)
		}
		base := client.MergeFrom(moved.DeepCopy())
		metav1.SetMetaDataLabel(&moved.ObjectMeta, "example.org/other", "x")
		mustAccept(t, name+" gives itself another label", self.Patch(t.Context(), moved, base))
		mustAccept(t, "an administrator moves "+name, move(admin, edge.LabelNodePool, "other"))
		mustAccept(t, "an administrator wants "+name+" moved", move(admin, labelDesired, "other"))
	}
}

// TestLANAddress: where a node is on the LAN is an administrator's word, and an address.
func TestLANAddress(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	create(t, admin, node("on-lan", "", nil))
	self := cloudtest.Client(t, cloudtest.As(cfg, "system:node:on-lan", "system:nodes", "system:masters"))
	say := func(c client.Client, key, value string) error {
		n := node("on-lan", "", nil)
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(n), n); err != nil {
			t.Fatal(err)
		}
		base := client.MergeFrom(n.DeepCopy())
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
		return c.Patch(t.Context(), n, base)
	}
	const key = edge.AnnotationLANAddress
	const says = "can not say by itself where it is on the LAN"
	mustRefuse(t, "a node says it", say(self, key, "192.0.2.7"), says, "kubectl annotate node on-lan")
	for _, good := range []string{"192.0.2.7", "fd00::7, 192.0.2.7", "192.0.2.7,fd00::7"} {
		if _, err := edge.ParseLANAddresses(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
		mustAccept(t, "an administrator says "+good, say(admin, key, good))
	}
	mustRefuse(t, "a node says another", say(self, key, "192.0.2.8"), says)
	mustRefuse(t, "a Pod on it says another", say(podOn(t, cfg, "on-lan"), key, "192.0.2.8"), says)
	mustAccept(t, "a Pod elsewhere says another", say(podOn(t, cfg, "elsewhere"), key, "192.0.2.8"))
	mustRefuse(t, "a node takes it back", say(self, key, ""), says)
	mustAccept(t, "a node says something else", say(self, "example.org/other", "x"))
	for _, bad := range []string{
		"192.0.2.7,192.0.2.8", "fd00::7,192.0.2.7,192.0.2.8", "127.0.0.1", "::1", "fe80::1", "0.0.0.0", "192.0.2.0/24",
		"192.0.2.7:10270", "shop-1.example", "224.0.0.1",
	} {
		if _, err := edge.ParseLANAddresses(bad); err == nil {
			t.Errorf("%q is an address", bad)
		}
		mustRefuse(t, "an administrator says "+bad, say(admin, key, bad), "want one IP address")
	}
	registers := node("on-lan-2", "", map[string]string{key: "192.0.2.9"})
	mustRefuse(t, "a node says it when it registers", self.Create(t.Context(), registers, client.DryRunAll), says)
	mustAccept(t, "an administrator's Node", admin.Create(t.Context(), registers, client.DryRunAll))
}

// TestPoolOfANewNode: which pool a node is in when it registers is not its own word, unless it has the right to join.
func TestPoolOfANewNode(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	give := func(name, user string, rule rbacv1.PolicyRule) {
		create(t, admin, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})
		create(t, admin, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
	}
	const token, old = "system:bootstrap:abcdef", "kubelet"
	for i, user := range []string{"system:node:new-1", "system:node:new-2", "system:node:new-3", token, old} {
		give(fmt.Sprintf("new-node-%d", i), user, cloudtest.May("", "nodes", "create", "get"))
	}
	const joins = "system:node:new-2"
	give("new-node-joins", joins, rbacv1.PolicyRule{
		APIGroups: []string{"apps.openyurt.io"}, Resources: []string{"nodepools"}, ResourceNames: []string{"open"},
		Verbs: []string{"join"},
	})
	register := func(user, group string, n *corev1.Node) error {
		as := cloudtest.Client(t, cloudtest.As(cfg, user, group, "system:authenticated"))
		return as.Create(t.Context(), n, client.DryRunAll)
	}
	cloudtest.Eventually(t, "rights", func() error { return register(joins, "system:nodes", node("new-2", "open", nil)) })
	mustAccept(t, "in no pool", register("system:node:new-1", "system:nodes", node("new-1", "", nil)))
	const says = "can not say by itself that it is in pool shop"
	for user, group := range map[string]string{
		"system:node:new-1": "system:nodes", "system:node:new-3": "system:nodes", joins: "system:nodes",
		token: "system:bootstrappers:kubeadm:default-node-token", old: "system:nodes",
	} {
		name := strings.TrimPrefix(user, "system:node:")
		name = strings.ReplaceAll(name, ":", "-")
		mustRefuse(t, user+" registers in a pool", register(user, group, node(name, "shop", nil)),
			says, "kubectl label node "+name+" apps.openyurt.io/nodepool=shop", "right to join")
	}
	mustRefuse(t, "in the open pool, without the right",
		register("system:node:new-1", "system:nodes", node("new-1", "open", nil)), "right to join")
	empty := node("new-2", "", nil)
	empty.Labels = map[string]string{edge.LabelNodePool: ""}
	mustRefuse(t, "in the pool without a name", register(joins, "system:nodes", empty), "can not say")
	for pool, wants := range map[string]string{"": "shop", "open": "shop", "shop": "open"} {
		desired := node("new-2", pool, nil)
		metav1.SetMetaDataLabel(&desired.ObjectMeta, labelDesired, wants)
		mustRefuse(t, "in pool "+pool+" and then in "+wants, register(joins, "system:nodes", desired), "right to join")
	}
	both := node("new-2", "open", nil)
	metav1.SetMetaDataLabel(&both.ObjectMeta, labelDesired, "open")
	mustAccept(t, "in the pool that it may join, as OpenYurt says it", register(joins, "system:nodes", both))
	mustAccept(t, "an administrator's Node", admin.Create(t.Context(), node("new-4", "shop", nil), client.DryRunAll))
}

// TestReservedNodeNames: whoever makes such a Node.
func TestReservedNodeNames(t *testing.T) {
	cfg := policed(t)
	for _, user := range []string{"admin", "system:node:yurt-coordinator-p1"} {
		c := cloudtest.Client(t, cloudtest.As(cfg, user, "system:masters"))
		for _, name := range []string{
			edge.PoolName("p1").ReportLease(0), edge.PoolName("p1").ReportLease(2), "yurt-coordinator-x", "web.shop.svc",
			"web.shop.svc.cluster.local",
			edge.PoolName("p1").CoordinatorServerName(),
		} {
			mustRefuse(t, user+" makes "+name, c.Create(t.Context(), node(name, "", nil), client.DryRunAll), name, "another name")
		}
		for _, name := range []string{"yurt-coordinator", "my-yurt-coordinator-1", "svc", "svc.example.org", "a.svcs"} {
			mustAccept(t, user+" makes "+name, c.Create(t.Context(), node(name, "", nil), client.DryRunAll))
		}
	}
}

func TestDelegateAnnotation(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	const namespace = corev1.NamespaceNodeLease
	forwarder := edge.PoolName("p1").ForwardingUser()
	node1, node2 := edge.NodeName("dl-1").User(), edge.NodeName("dl-2").User()
	const controller = "system:serviceaccount:kube-system:coordinator-controller"
	for _, test := range []struct {
		user        string
		before, now bool
		want        bool
	}{
		{node1, false, false, true}, {node1, true, false, true}, {node1, false, true, true}, {node1, true, true, true},
		{forwarder, false, true, true}, {forwarder, true, true, true}, // without the mark: TestForwarderWrites
		{node2, false, true, false}, {node2, true, false, false}, {node2, true, true, true}, {node2, false, false, true},
		{controller, true, false, false},
		{"admin", false, true, false}, {"admin", true, false, false}, {"admin", true, true, true},
		{"system:node:dl-1x", false, true, false}, {forwarder[:len(forwarder)-3], false, true, false}, // of no pool
	} {
		what := fmt.Sprintf("%s: mark %t to %t", test.user, test.before, test.now)
		as := cloudtest.Client(t, cloudtest.As(cfg, test.user, "system:masters"))
		owner := cloudtest.Client(t, cloudtest.As(cfg, node1, "system:masters"))
		create(t, owner, heartbeatOf("dl-1", test.before))
		l := &coordinationv1.Lease{}
		if err := as.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "dl-1"}, l); err != nil {
			t.Fatal(err)
		}
		l.Annotations = lease("", "", test.now).Annotations
		l.Spec.HolderIdentity = new("dl-1")
		err := as.Update(t.Context(), l)
		switch {
		case test.want:
			mustAccept(t, what, err)
		case test.user == controller:
			mustRefuse(t, what, err) // by one of two policies
		default:
			mustRefuse(t, what, err, "only node dl-1 itself", "not "+test.user)
		}
		// Whoever may delete Leases may delete a marked one too.
		mustAccept(t, what+": deletion", admin.Delete(t.Context(), l))

		err = as.Create(t.Context(), heartbeatOf("dl-1", test.now), client.DryRunAll)
		if allowed := test.user == node1 || test.user == forwarder || !test.now; test.user == controller {
			mustRefuse(t, what+": creation", err)
		} else if allowed {
			mustAccept(t, what+": creation", err)
		} else {
			mustRefuse(t, what+": creation", err, "only node dl-1 itself")
		}
	}
	mustAccept(t, "another namespace", admin.Create(t.Context(), lease("dl-1", "default", true), client.DryRunAll))
}

// beat is a Lease, by a short name for tables.
type beat = coordinationv1.Lease

// heartbeatOf is a node's Lease as its kubelet makes it.
func heartbeatOf(node string, marked bool) *coordinationv1.Lease {
	l := lease(node, corev1.NamespaceNodeLease, marked)
	l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: "u1"}}
	l.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: &node, LeaseDurationSeconds: new(int32(40)), RenewTime: &metav1.MicroTime{Time: time.Unix(1e9, 1000)},
	}
	return l
}

// TestForwarderWrites: any node may act as its pool's forwarder, so what a forwarder writes is a forwarded heartbeat and shows.
func TestForwarderWrites(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	forwarder := cloudtest.As(cfg, edge.PoolName("fw").ForwardingUser(), "system:masters")
	as := cloudtest.Client(t, forwarder)
	const namespace = corev1.NamespaceNodeLease
	const forwarded = "fw-1"
	there := heartbeatOf(forwarded, false)
	there.Labels = map[string]string{"l": "1"}
	there.Annotations = map[string]string{"a": "1", edge.AnnotationRelayedBy: "fw-2"} // as the node left it
	create(t, admin, there)
	mark := func(l *beat) {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
	}
	type edit = func(*beat)
	for what, test := range map[string]struct {
		edit edit
		want string // of the refusal; empty: it is accepted
	}{
		"a renewal":                  {func(l *beat) {}, ""},
		"a renewal from years ahead": {func(l *beat) { l.Spec.RenewTime.Time = time.Unix(4e9, 0) }, ""},
		"one from the end of time":   {func(l *beat) { l.Spec.RenewTime.Time = time.Unix(2e11, 0) }, "before the year 2100"},
		"a stamp that goes back":     {func(l *beat) { l.Spec.RenewTime.Time = time.Unix(1e9, 0) }, "put the renewTime back"},
		"no stamp":                   {func(l *beat) { l.Spec.RenewTime = nil }, "must bear a renewTime"},
		"without the mark":           {func(l *beat) { delete(l.Annotations, edge.DelegateHeartbeat) }, "must bear"},
		"a mark that says nothing":   {func(l *beat) { l.Annotations[edge.DelegateHeartbeat] = "false" }, "must bear"},
		"another holder":             {func(l *beat) { *l.Spec.HolderIdentity = "fw-2" }, "holderIdentity"},
		"no holder":                  {func(l *beat) { l.Spec.HolderIdentity = nil }, "holderIdentity"},
		"a longer duration":          {func(l *beat) { *l.Spec.LeaseDurationSeconds = 4000 }, "renewTime only"},
		"no duration":                {func(l *beat) { l.Spec.LeaseDurationSeconds = nil }, "renewTime only"},
		"transitions":                {func(l *beat) { l.Spec.LeaseTransitions = new(int32(1)) }, "renewTime only"},
		"an acquire time":            {func(l *beat) { l.Spec.AcquireTime = l.Spec.RenewTime }, "renewTime only"},
		"another owner":              {func(l *beat) { l.OwnerReferences[0].UID = "u2" }, "ownerReferences"},
		"no owner":                   {func(l *beat) { l.OwnerReferences = nil }, "ownerReferences"},
		"a label":                    {func(l *beat) { l.Labels["m"] = "2" }, "labels"},
		"a finalizer":                {func(l *beat) { l.Finalizers = []string{"example.org/stay"} }, "finalizers"},
		"another annotation":         {func(l *beat) { l.Annotations["b"] = "1" }, "no other annotations"},
		"an annotation changed":      {func(l *beat) { l.Annotations["a"] = "2" }, "no other annotations"},
		"an annotation taken away":   {func(l *beat) { delete(l.Annotations, "a") }, "no other annotations"},
		"who relayed, taken away":    {func(l *beat) { delete(l.Annotations, edge.AnnotationRelayedBy) }, ""},
		"another who relays":         {func(l *beat) { l.Annotations[edge.AnnotationRelayedBy] = "fw-3" }, "may not set"},
		"a report's, on a heartbeat": {
			func(l *beat) { l.Annotations[edge.AnnotationReachedNodes] = "x" }, "no other annotations",
		},
		"a heartbeat without its own": {func(l *beat) { l.Annotations = nil }, "must bear"},
	} {
		l := &coordinationv1.Lease{}
		if err := as.Get(t.Context(), client.ObjectKeyFromObject(there), l); err != nil {
			t.Fatal(err)
		}
		l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(10 * time.Second)
		mark(l)
		test.edit(l)
		expect(t, what, as.Update(t.Context(), l, client.DryRunAll), test.want)
	}
	late := heartbeatOf("fw-late", true)
	late.Spec.RenewTime.Time = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	create(t, cloudtest.Client(t, cloudtest.As(cfg, edge.NodeName("fw-late").User(), "system:masters")), late)
	late.Spec.RenewTime.Time = late.Spec.RenewTime.Add(time.Microsecond)
	expect(t, "a late stamp, moved on", as.Update(t.Context(), late, client.DryRunAll), "")
	late.Spec.RenewTime.Time = late.Spec.RenewTime.Add(time.Hour)
	expect(t, "a late stamp, moved far on", as.Update(t.Context(), late, client.DryRunAll), "before the year 2100")
	for what, test := range map[string]struct {
		edit edit
		want string
	}{
		"a first heartbeat":      {mark, ""},
		"one without the mark":   {func(*beat) {}, "must bear"},
		"one without an owner":   {func(l *beat) { mark(l); l.OwnerReferences = nil }, "that Node as its one owner"},
		"one of another Node's":  {func(l *beat) { mark(l); l.OwnerReferences[0].Name = "fw-1" }, "that Node as its one owner"},
		"one that a Pod owns":    {func(l *beat) { mark(l); l.OwnerReferences[0].Kind = "Pod" }, "that Node as its one owner"},
		"one with a label":       {func(l *beat) { mark(l); l.Labels = map[string]string{"l": "1"} }, "without labels"},
		"one with more to say":   {func(l *beat) { mark(l); l.Annotations["a"] = "1" }, "no other annotations"},
		"one that was relayed":   {func(l *beat) { mark(l); l.Annotations[edge.AnnotationRelayedBy] = "fw-1" }, "may not set"},
		"one that another holds": {func(l *beat) { mark(l); *l.Spec.HolderIdentity = "fw-1" }, "holderIdentity"},
		"one named as a report":  {func(l *beat) { l.Name = "yurt-coordinator-fw2"; mark(l) }, "holderIdentity"},
	} {
		l := heartbeatOf("fw-new", false)
		test.edit(l)
		expect(t, what, as.Create(t.Context(), l, client.DryRunAll), test.want)
	}

	report := lease(edge.PoolName("fw").ReportLease(0), namespace, false)
	report.Labels = map[string]string{edge.LabelNodePool: "fw"}
	report.Annotations = map[string]string{edge.AnnotationReachedNodes: "fw-1", edge.AnnotationTraffic: "",
		edge.AnnotationKubelet: "fw-1=pinned", edge.AnnotationPoolResources: "services=current",
		edge.AnnotationHubVersion: "v0.2.0=fw-1"}
	report.Spec.HolderIdentity = new("fw-1")
	of := func(edit edit) *coordinationv1.Lease {
		l := report.DeepCopy()
		edit(l)
		return l
	}
	expect(t, "a report of nobody", as.Create(t.Context(), of(func(l *beat) { l.Spec.HolderIdentity = nil })),
		"which node leads")
	expect(t, "a report with a mark", as.Create(t.Context(), of(mark)), "no other annotations")
	expect(t, "a report with another label", as.Create(t.Context(), of(func(l *beat) {
		l.Labels["l"] = "1"
	})), "no label but that of its pool")
	for slot, want := range map[edge.Slot]string{1: "", 2: "", 3: "must bear"} {
		expect(t, fmt.Sprint("a report of slot ", slot), as.Create(t.Context(), of(func(l *beat) {
			l.Name = edge.PoolName("fw").ReportLease(slot)
		}), client.DryRunAll), want)
	}
	expect(t, "another pool's report of slot 1", as.Create(t.Context(), of(func(l *beat) {
		l.Name = edge.PoolName("fx").ReportLease(1)
	}), client.DryRunAll), "must bear")
	expect(t, "a report", as.Create(t.Context(), report), "")
	report.Annotations[edge.AnnotationReachedNodes], *report.Spec.HolderIdentity = "", "fw-2"
	report.Spec.LeaseTransitions = new(int32(7))
	expect(t, "another leader's report", as.Update(t.Context(), report), "")
	laterReports(t, as, report)
	report.Labels[edge.LabelNodePool] = "fx"
	expect(t, "a report that changes its pool", as.Update(t.Context(), report), "labels")

	for what, err := range map[string]error{
		"a Lease elsewhere":      as.Create(t.Context(), lease("fw-1", "default", true), client.DryRunAll),
		"a ConfigMap":            as.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: there.ObjectMeta}, client.DryRunAll),
		"a Node":                 as.Create(t.Context(), node("fw-1", "fw", nil), client.DryRunAll),
		"the end of a heartbeat": as.Delete(t.Context(), there, client.DryRunAll),
		"the end of all":         as.DeleteAllOf(t.Context(), &beat{}, client.InNamespace(namespace), client.DryRunAll),
	} {
		mustRefuse(t, what, err, "may write Leases in kube-node-lease and nothing else")
	}
	for _, c := range connections {
		for _, method := range c.methods {
			err := connect(t.Context(), t, forwarder, method, c.path)
			if method == http.MethodHead { // has no body to say why
				mustRefuse(t, method+" "+c.path, err)
				continue
			}
			mustRefuse(t, method+" "+c.path, err, "not CONNECT of")
		}
	}
	other := cloudtest.Client(t, cloudtest.As(cfg, "system:serviceaccount:kube-node-lease:other", "system:masters"))
	mustAccept(t, "another ServiceAccount's write", other.Create(t.Context(), node("fw-1", "fw", nil), client.DryRunAll))
}

// expect wants a refusal that says this; empty means none.
func expect(t *testing.T, what string, err error, refusal string) {
	t.Helper()
	if refusal == "" {
		mustAccept(t, what, err)
	} else {
		mustRefuse(t, what, err, refusal)
	}
}

// A cluster that lost our CRDs goes on as it is.
func TestWithoutCRDs(t *testing.T) {
	cfg := cloudtest.Start(t, cloudtest.WithoutCRDs())
	c := cloudtest.Client(t, cfg)
	applyPolicies(t, c)
	awaitPolicies(t, cfg)
	n := node("n1", "p1", map[string]string{edge.AnnotationAutonomy: edge.AutonomyOn})
	create(t, c, n)
	patch := client.MergeFrom(n.DeepCopy())
	n.Spec.Taints = []corev1.Taint{{Key: "example.org/t", Effect: corev1.TaintEffectNoExecute}}
	n.Annotations[edge.AnnotationAutonomyDuration] = "2h"
	mustAccept(t, "a taint", c.Patch(t.Context(), n, patch))
	asNode := cloudtest.Client(t, cloudtest.As(cfg, edge.NodeName("n1").User(), "system:masters"))
	create(t, asNode, lease("n1", corev1.NamespaceNodeLease, true))
}

// TestPodsThatLookLikeACoordinator: a node can't make one.
func TestPodsThatLookLikeACoordinator(t *testing.T) {
	cfg := policed(t)
	pod := func(namespace, app string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "forged-n1",
				Labels:      map[string]string{edge.LabelApp: app, edge.LabelNodePool: "p1"},
				Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
			},
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}
	}
	self := cloudtest.Client(t, cloudtest.As(cfg, "system:node:n1", "system:nodes", "system:masters"))
	mustRefuse(t, "a coordinator's labels", self.Create(t.Context(), pod("kube-system", edge.AppCoordinator), client.DryRunAll),
		"can not make a coordinator", "forged-n1")
	mustAccept(t, "another static Pod", self.Create(t.Context(), pod("kube-system", "yurthub"), client.DryRunAll))
	mustAccept(t, "another namespace", self.Create(t.Context(), pod("default", edge.AppCoordinator), client.DryRunAll))
	others := cloudtest.Client(t, cloudtest.As(cfg, "system:serviceaccount:kube-system:replicaset-controller", "system:masters"))
	made := pod("kube-system", edge.AppCoordinator)
	made.Annotations = nil
	mustAccept(t, "the Deployment's", others.Create(t.Context(), made, client.DryRunAll))
}
