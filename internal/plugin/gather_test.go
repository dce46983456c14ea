package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// server is a Reader of fakes.
type server struct {
	*Reader
	kube    *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	names   *metadatafake.FakeMetadataClient
}

// aServer has these objects.
func aServer(t *testing.T, all ...runtime.Object) server {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{metav1.AddMetaToScheme, v1alpha1.AddToScheme, v1beta2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var typed, ours, names []runtime.Object
	for _, o := range all {
		kinds, _, err := scheme.ObjectKinds(o)
		if err != nil {
			typed = append(typed, o)
			if n, ok := o.(*corev1.Node); ok {
				names = append(names, named(schema.GroupVersionKind{Version: "v1", Kind: "Node"}, n.Name))
			}
			continue
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: fields}
		u.SetGroupVersionKind(kinds[0])
		ours, names = append(ours, u), append(names, named(kinds[0], u.GetName()))
	}
	lists := map[schema.GroupVersionResource]string{
		nodePools: "NodePoolList", yurtCoordinators: "YurtCoordinatorList", poolSettings: "PoolSettingsList",
	}
	s := server{
		kube: fake.NewClientset(typed...), names: metadatafake.NewSimpleMetadataClient(scheme, names...),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, ours...),
	}
	s.Reader = &Reader{Kube: s.kube, Dynamic: s.dynamic, Metadata: s.names}
	return s
}

func named(kind schema.GroupVersionKind, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	o.SetGroupVersionKind(kind)
	return o
}

// asked says what requests there were, as VERB RESOURCE.
func (s server) asked() (all []string) {
	for _, f := range []*clienttesting.Fake{&s.kube.Fake, &s.dynamic.Fake, &s.names.Fake} {
		for _, a := range f.Actions() {
			all = append(all, strings.TrimSuffix(a.GetVerb()+" "+a.GetResource().Resource+"/"+a.GetSubresource(), "/"))
		}
	}
	return all
}

// without has the server not know a kind.
func (s server) without(kind schema.GroupVersionResource) {
	unknown := func(a clienttesting.Action) (bool, runtime.Object, error) {
		of := a.GetResource().GroupResource()
		if of != kind.GroupResource() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, a.GetVerb(), of, "", "", 0, true)
	}
	s.dynamic.PrependReactor("*", "*", unknown)
	s.names.PrependReactor("*", "*", unknown)
}

func aReport(pool, leader string) *coordinationv1.Lease {
	l := aLease(leader, 0, false)
	l.Spec.RenewTime.Time = time.Now()
	l.Namespace, l.Name = corev1.NamespaceNodeLease, edge.PoolName(pool).ReportLease(0)
	l.Labels = map[string]string{edge.LabelNodePool: pool}
	return &l
}

func aBeat(node string, mark bool) *coordinationv1.Lease {
	l := aLease(node, 0, mark)
	l.Spec.RenewTime.Time = time.Now()
	l.Namespace, l.Name = corev1.NamespaceNodeLease, node
	return &l
}

func aPool(name string, ready, unready int32) *v1beta2.NodePool {
	return &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta2.NodePoolStatus{
		ReadyNodeNum: ready, UnreadyNodeNum: unready, Nodes: []string{name + "1", name + "2", name + "3"},
	}}
}

// world is two pools of three nodes, one of which is cut off.
func world() []runtime.Object {
	a, b := aCoordinator("a", "a1", isReady), aCoordinator("b", "b1", isReady)
	a.Name, b.Name = "ca", "cb"
	a.Status.DelegatedNodes = []string{"a2"}
	all := []runtime.Object{aPool("a", 3, 0), aPool("b", 2, 1), &a, &b, aReport("a", "a1"), aReport("b", "b3")}
	for _, name := range []string{"a1", "a2", "a3", "b1", "b2", "b3"} {
		ready := corev1.ConditionTrue
		if name == "b2" {
			ready = corev1.ConditionFalse
		}
		n := aNode(name, name[:1], ready)
		all = append(all, &n, aBeat(name, name == "a2"))
	}
	return all
}

// The fleet is read without its Nodes, and a pool without the fleet's.
func TestWhatIsRead(t *testing.T) {
	s := aServer(t, world()...)
	o, err := s.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pools := PoolsOf(o, time.Now())
	if len(pools) != 2 || pools[0].Leader != "a1" || !slices.Equal(pools[0].Delegated, []string{"a2"}) || pools[1].Ready != 2 ||
		pools[1].Nodes != 3 || len(pools[1].Problems) != 1 {
		t.Errorf("pools: %+v", pools)
	}
	want := []string{"list leases", "get leases", "list nodepools", "list yurtcoordinators"}
	if got := s.asked(); !reflect.DeepEqual(got, want) {
		t.Errorf("for the fleet it asks to %q, want %q", got, want)
	}
	s = aServer(t, world()...)
	if p, _, err := s.pool(t.Context(), "b"); err != nil || p.Leader != "b3" {
		t.Errorf("pool b: %+v, %v", p, err)
	}
	want = []string{
		"get leases", "get leases", "get leases", "get leases", "get nodepools", "list yurtcoordinators",
	} // three reports at most, and the controller's
	if got := s.asked(); !reflect.DeepEqual(got, want) {
		t.Errorf("for a pool it asks to %q, want %q", got, want)
	}
	s = aServer(t, world()...)
	subject, err := s.Subject(t.Context(), "a2", time.Now())
	if err != nil || subject.Pool == nil || subject.Pool.Leader != "a1" || subject.Lease == nil || subject.Node == nil {
		t.Errorf("node a2: %+v, %v", subject, err)
	}
	for _, got := range s.asked() {
		if strings.HasPrefix(got, "list") && got != "list yurtcoordinators" && got != "list events" &&
			got != "list configmaps" {
			t.Errorf("for a node it asks to %s", got)
		}
	}
	untold := slices.DeleteFunc(world(), func(o runtime.Object) bool {
		c, is := o.(*v1alpha1.YurtCoordinator)
		return is && c.Name == "ca"
	})
	s = aServer(t, untold...)
	for _, names := range [][]string{nil, {"a"}} {
		o, err := s.Objects(t.Context(), names...)
		if err != nil {
			t.Fatal(err)
		}
		p := find(PoolsOf(o, time.Now()), "a")
		if p.Coordinator != CoordinatorReady || !slices.Equal(p.Delegated, []string{"a2"}) {
			t.Errorf("a pool whose coordinator somebody else runs: %+v", p)
		}
	}
	if _, _, err := s.pool(t.Context(), "c"); err == nil || !strings.Contains(err.Error(), "the pools are a, b") {
		t.Errorf("a pool that is not there: %v", err)
	}
	if subject, err := s.Subject(t.Context(), "x", time.Now()); err != nil || subject.Node != nil || subject.Pool != nil {
		t.Errorf("a node that is not there: %+v, %v", subject, err)
	}
	if names, err := s.NodeNames(t.Context()); err != nil || len(names) != 6 {
		t.Errorf("nodes: %q, %v", names, err)
	}
}

// A descheduler's policy is found by the label of its chart, if its plugin for taints is on and does not leave ours out.
func TestPoliciesThatEvict(t *testing.T) {
	policy := func(name, app, text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "kube-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": app},
			},
			Data: map[string]string{"policy.yaml": text},
		}
	}
	s := aServer(t, append(world(),
		policy("evicts", "descheduler", "- name: RemovePodsViolatingNodeTaints"),
		policy("leaves-out", "descheduler",
			"- name: RemovePodsViolatingNodeTaints\n  args: {excludedTaints: ["+edge.TaintUnschedulable+"]}"),
		policy("off", "descheduler", "- name: RemoveDuplicates"),
		policy("another", "another", "- name: RemovePodsViolatingNodeTaints"))...)
	subject, err := s.Subject(t.Context(), "a2", time.Now())
	if want := []string{"kube-system/evicts"}; err != nil || !slices.Equal(subject.Evictors, want) {
		t.Errorf("%q, %v; want %q", subject.Evictors, err, want)
	}
	s.kube.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
	})
	if subject, err := s.Subject(t.Context(), "a2", time.Now()); err != nil || subject.Evictors != nil {
		t.Errorf("who may not read them: %q, %v", subject.Evictors, err)
	}
}

// Where nobody has installed our kinds there are no pools to tell of. Without YurtCoordinators alone, somebody else runs them.
func TestWithoutOurKinds(t *testing.T) {
	s := aServer(t, world()...)
	s.without(yurtCoordinators)
	for _, names := range [][]string{nil, {"a"}} {
		o, err := s.Objects(t.Context(), names...)
		if err != nil {
			t.Fatal(err)
		}
		if p := find(PoolsOf(o, time.Now()), "a"); p.Leader != "a1" || !slices.Equal(p.Delegated, []string{"a2"}) {
			t.Errorf("without YurtCoordinators, asked for %q: %+v", names, p)
		}
	}
	s.without(nodePools)
	for _, names := range [][]string{nil, {"a"}} {
		if _, err := s.Objects(t.Context(), names...); !errors.Is(err, errNoNodePools) {
			t.Errorf("without NodePools, asked for %q: %v", names, err)
		}
	}
	if _, err := s.PoolNames(t.Context()); err == nil {
		t.Error("without NodePools it has names of pools")
	}
}

// A server is asked for some objects at a time; that the list has changed meanwhile does not matter.
func TestPages(t *testing.T) {
	for _, expires := range []bool{false, true} {
		s := aServer(t)
		const all = 2*chunk + 7
		var limits []int64
		s.kube.PrependReactor("list", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			o := a.(clienttesting.ListActionImpl).ListOptions
			limits = append(limits, o.Limit)
			from, _ := strconv.Atoi(o.Continue)
			if expires && from > 0 {
				return true, nil, apierrors.NewResourceExpired("too old")
			}
			to := all
			if o.Limit > 0 {
				to = min(all, from+int(o.Limit))
			}
			page := &coordinationv1.LeaseList{}
			for i := from; i < to; i++ {
				page.Items = append(page.Items, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
			}
			if to < all {
				page.Continue = strconv.Itoa(to)
			}
			return true, page, nil
		})
		leases, err := s.leases(t.Context(), metav1.ListOptions{})
		if err != nil || len(leases) != all || leases[all-1].Name != fmt.Sprint("n", all-1) {
			t.Errorf("expires %t: %d Leases, %v", expires, len(leases), err)
		}
		want := []int64{chunk, chunk, chunk}
		if expires {
			want = []int64{chunk, chunk, 0}
		}
		if !slices.Equal(limits, want) {
			t.Errorf("expires %t: asked with limits %d, want %d", expires, limits, want)
		}
	}
}

// What changes is shown, in the cloud and at a coordinator, until its reader has enough.
func TestFollow(t *testing.T) {
	for _, within := range []edge.PoolName{"", "a"} {
		synctest.Test(t, func(t *testing.T) {
			s := aServer(t, world()...)
			s.Within = within
			var refuses atomic.Bool
			s.kube.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return refuses.Load(), nil, apierrors.NewServiceUnavailable("soon")
			})
			o, err := s.Objects(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var shown []Pool
			complaints := 0
			f := follower{reader: s.Reader, pools: []string{"a"}, complain: func(error) { complaints++ },
				show: func(pools []Pool, _ time.Time) error {
					shown = append(shown, pools...)
					return nil
				}}
			ended := make(chan error, 1)
			go func() { ended <- f.run(ctx, shownOf(PoolsOf(o, time.Now()), false)) }()
			look := func() {
				time.Sleep(2 * lookAgain)
				synctest.Wait()
			}
			change := func(mark bool, leader string) {
				t.Helper()
				l := aReport("a", leader)
				if within != "" {
					l = aBeat("a3", mark)
				}
				leases := s.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
				if _, err := leases.Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			look()
			if len(shown) > 0 {
				t.Errorf("within %q: nothing has changed, and it shows %+v", within, shown)
			}
			change(true, "a3")
			look()
			if len(shown) != 1 || shown[0].Name != "a" || within == "" && shown[0].Leader != "a3" ||
				within != "" && !slices.Equal(shown[0].Delegated, []string{"a2", "a3"}) {
				t.Errorf("within %q: shown %+v", within, shown)
			}
			refuses.Store(true)
			look()
			refuses.Store(false)
			change(false, "a1")
			look()
			if complaints == 0 || len(shown) != 2 {
				t.Errorf("within %q: after %d complaints shown %+v", within, complaints, shown)
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("within %q: %v", within, err)
			}
		})
	}
}
