package ops

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// followedName is the name of the objects that a follower follows. roundLabel is their label that changes.
const followedName, roundLabel = "followed", "round"

// currentWithin is how long a change in the cloud may take to a program of a node.
const currentWithin = 10 * time.Second

// follower is a program of a node that follows a Service, an EndpointSlice, a ConfigMap and a Pod of the node through the hub.
type follower struct {
	t     *kit.T
	round int
	has   map[string]cache.Store // by resource
}

// follow makes the objects, and begins to follow them.
func follow(t *kit.T, node string) *follower {
	meta := metav1.ObjectMeta{Name: followedName}
	_, err := t.Cloud.CoreV1().Services(kit.Namespace).Create(t.Ctx, &corev1.Service{
		ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	t.Must(err)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: *meta.DeepCopy(), AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: followedName}
	_, err = t.Cloud.DiscoveryV1().EndpointSlices(kit.Namespace).Create(t.Ctx, slice, metav1.CreateOptions{})
	t.Must(err)
	_, err = t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(t.Ctx, &corev1.ConfigMap{ObjectMeta: meta},
		metav1.CreateOptions{})
	t.Must(err)
	t.Node(node).RunPod(followedName, []string{"sleep", "1000000"}, func(p *corev1.Pod) {
		p.Spec.AutomountServiceAccountToken = ptr.To(false)
		p.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ // so the node may read it
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: followedName}},
		}}}
	})

	access, err := t.Lab.HubConfig(node)
	t.Must(err)
	access.UserAgent = "kubelet/e2e"
	client := t.Client(access)
	f := &follower{t: t, has: map[string]cache.Store{}}
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, followedName)
	for resource, r := range map[string]struct {
		of   fields.Selector
		like runtime.Object
	}{
		"services":       {fields.Everything(), &corev1.Service{}},
		"endpointslices": {fields.Everything(), &discoveryv1.EndpointSlice{}},
		"configmaps":     {named, &corev1.ConfigMap{}},
		"pods":           {fields.OneTermEqualSelector("spec.nodeName", node), &corev1.Pod{}},
	} {
		informer := cache.NewSharedIndexInformer(
			cache.NewListWatchFromClient(served(client, resource), resource, kit.Namespace, r.of), r.like, 0, nil)
		t.Background.Go(func() { informer.RunWithContext(t.Ctx) })
		f.has[resource] = informer.GetStore()
	}
	return f
}

// served returns the client of the group that has a resource.
func served(client kubernetes.Interface, resource string) rest.Interface {
	if resource == "endpointslices" {
		return client.DiscoveryV1().RESTClient()
	}
	return client.CoreV1().RESTClient()
}

// current changes each object in the cloud, and waits until the program has heard of each change.
func (f *follower) current() {
	f.round++
	round := strconv.Itoa(f.round)
	for resource := range f.has {
		f.t.Must(served(f.t.Cloud, resource).Patch(types.MergePatchType).Namespace(kit.Namespace).Resource(resource).
			Name(followedName).Body(fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, roundLabel, round)).
			Do(f.t.Ctx).Error())
	}
	took := f.t.Eventually(currentWithin, "a program of the node has all changes of round "+round, func() error {
		for resource, store := range f.has {
			object, there, err := store.GetByKey(kit.Namespace + "/" + followedName)
			if err != nil || !there {
				return fmt.Errorf("it has none of the %s, %w", resource, errors.Join(err))
			}
			if is := object.(metav1.Object).GetLabels()[roundLabel]; is != round { //nolint:forcetypeassert // all objects are
				return fmt.Errorf("of the %s it has round %s", resource, is)
			}
		}
		return nil
	})
	f.t.Figure("change_to_program_s", took.Seconds())
}

// calm is how often links had been down or failing at a moment, and what had been listed.
type calm struct {
	t              *kit.T
	since          time.Time
	listed         map[string]bool
	downs, failing map[string]float64
}

func calmSince(t *kit.T) *calm {
	c := &calm{t: t, listed: map[string]bool{}, downs: map[string]float64{}, failing: map[string]float64{}}
	for _, l := range lists(t) {
		c.listed[kit.Selection(l)] = true
	}
	for _, node := range t.Pool.Nodes() {
		c.downs[node], c.failing[node] = t.Node(node).LinkDowns(), failings(t, node)
	}
	c.since = time.Now()
	return c
}

// failings returns how often a node's hub has called the cloud failing.
func failings(t *kit.T, node string) float64 {
	return t.Node(node).Metric("yurthub_upstream_failings_total", `upstream="cloud"`)
}

// holds expects that since then no link was called down or failing, that every heartbeat was direct and in time, and that
// nothing was listed again.
func (c *calm) holds() {
	t := c.t
	for _, node := range t.Pool.Nodes() {
		if downs, failing := t.Node(node).LinkDowns(), failings(t, node); downs != c.downs[node] || failing != c.failing[node] {
			t.Fail("the hub of %s has called the cloud down %v times, before %v, and failing %v times, before %v",
				node, downs, c.downs[node], failing, c.failing[node])
		}
		if at, was := t.Seen.FirstLease(node, c.since, func(l kit.LeaseAt) bool { return l.Delegated }); was {
			t.Fail("a heartbeat of %s was delegated %v after", node, at.Sub(c.since))
		}
		age := t.Seen.LargestAge(node, c.since, time.Now())
		t.Figure("largest_lease_age_s", age.Seconds())
		if age > t.Config.Timing.Lease {
			t.Fail("%s had no heartbeat for %v", node, age)
		}
	}
	t.NeverNotReady(c.since, t.Pool.Nodes()...)
	for _, l := range lists(t) {
		if of := kit.Selection(l); l.At.After(c.since) && c.listed[of] {
			t.Fail("%s was listed again, %v after: %+v", of, l.At.Sub(c.since), l)
		}
	}
}

// lists returns the lists over the WAN of what nodes follow.
func lists(t *kit.T) (all []lab.FullRead) {
	for _, resource := range []string{"services", "endpointslices", "configmaps", "pods", "nodes", "secrets"} {
		all = append(all, t.Pool.ListsOverWAN(resource)...)
	}
	return all
}

// auditAll has the cloud audit every request.
func auditAll(c lab.Config) lab.Config {
	c.AuditAll = true
	return c
}
