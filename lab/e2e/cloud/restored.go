package cloud

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
	"yurtcoordinator/lab/wire"
)

var restoredScenarios = []kit.Scenario{{
	Name: "cloud-restored", Lab: kit.HubsAlone, Run: cloudRestored,
	Doc: "The cloud is restored from a backup that lacks 200 changes, and this is noticed at once or only after the new " +
		"history has passed the old. Within a minute every hub's clients, the coordinator and the disks have what the " +
		"cloud has.",
}}

const (
	// restoredChanges are lost with each restore.
	restoredChanges = 200
	// restoredPatience is three times as long as it may take until all clients have what the cloud has. The scenario's figure
	// says how long it took.
	restoredPatience = 180 * time.Second
	// kubeletAgent is a User-Agent that hubs take for a kubelet's.
	kubeletAgent = "kubelet/played"
)

// restored is a pool whose cloud loses its memory.
type restored struct {
	*kit.T
	site kubernetes.Interface
	all  []restoredClient
}

// restoredClient is one of client-go's informers at a hub.
type restoredClient struct {
	who, node string
	spec      load.FollowSpec
	follower  *load.Follower
	hub       kubernetes.Interface // as the same program
}

func cloudRestored(t *kit.T) {
	leader := t.Pool.SettledAway()
	r := &restored{T: t, site: t.Pool.Coordinator(lab.Operator)}
	r.furnish()
	r.follow()
	r.agree("from the start", time.Now(), "")
	r.stayBelow(t.Pool.Follower(leader))
	r.pass(t.Pool.Follower(leader))
}

// stayBelow restores the cloud, which then has no revision as new as the clients' and hubs' last one.
func (r *restored) stayBelow(node string) {
	lost := r.lose("below")
	r.Must(r.Lab.Restore(r.Ctx))
	back := time.Now()
	r.Say("the cloud is back at revision %d, it was at %d", r.revision(), lost)
	r.agree("below", back, "back_to_agreed_below_s")
	r.change("below-new", 40)
	r.agree("what is changed in the new history", time.Now(), "")
	if now := r.revision(); now >= lost {
		r.Fail("the new history is at revision %d, past %d: this shows nothing", now, lost)
	}
	r.onDisk(node, back)
}

// pass restores the cloud while the pool is cut off, until its revision has passed the clients' and hubs' last one.
func (r *restored) pass(node string) {
	lost := r.lose("passed")
	r.Cut("pool/p1")
	r.Must(r.Lab.Restore(r.Ctx))
	r.Say("the cloud is back at revision %d, it was at %d", r.revision(), lost)
	if now := r.revision(); now >= lost {
		r.Fail("the backup is at revision %d, past %d", now, lost)
	}
	r.change("passed-new", restoredChanges+60)
	for i := 0; r.revision() <= lost+50; i++ {
		r.change(fmt.Sprintf("passed-more-%d", i), 50)
	}
	r.Say("the cloud is at revision %d", r.revision())
	r.Heal("pool/p1")
	healed := time.Now()
	r.agree("passed", healed, "healed_to_agreed_passed_s")
	r.onDisk(node, healed)
}

// lose makes a backup, and then changes that the backup lacks. When it returns, all clients have the changes, and the cloud is
// at the returned revision.
func (r *restored) lose(tag string) uint64 {
	r.Must(r.Lab.BackUp(r.Ctx))
	r.Say("there is a backup of revision %d", r.revision())
	r.change(tag, restoredChanges)
	r.turn()
	r.agree("what will be lost", time.Now(), "")
	return r.revision()
}

// furnish makes Nodes, Services, and Pods with their ConfigMaps.
func (r *restored) furnish() {
	_, err := load.Services(r.Ctx, r.Cloud, load.Spec{Services: 40, EndpointsEach: 10, Nodes: r.Pool.Nodes()})
	r.Must(err)
	r.Eventually(30*time.Second, "Pods may be made", func() error {
		_, err := r.Cloud.CoreV1().ServiceAccounts(kit.Namespace).Get(r.Ctx, "default", metav1.GetOptions{})
		return err
	})
	for _, node := range r.Pool.Nodes() {
		_, err := r.Cloud.CoreV1().Nodes().Create(r.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: node, Labels: map[string]string{edge.LabelNodePool: "p1", corev1.LabelHostname: node},
		}}, metav1.CreateOptions{})
		r.Must(err)
		for _, name := range configMapsOf(node)[:2] {
			r.configure(name)
		}
		r.pod("stays-"+node, node, configMapsOf(node))
		r.pod("deleted-"+node, node, nil)
	}
}

// configMapsOf are the ConfigMaps that the Pod staying on a node may use: one that is changed, one that is deleted, one that is
// created.
func configMapsOf(node string) []string {
	return []string{"changed-" + node, "deleted-" + node, "created-" + node}
}

func (r *restored) configure(name string) {
	_, err := r.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(r.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"KEY": "first"},
	}, metav1.CreateOptions{})
	r.Must(err)
}

// pod binds a Pod to a node, where no kubelet runs it.
func (r *restored) pod(name, node string, configMaps []string) {
	var from []corev1.EnvFromSource
	for _, c := range configMaps {
		from = append(from, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: c}, Optional: ptr.To(true),
		}})
	}
	_, err := r.Cloud.CoreV1().Pods(kit.Namespace).Create(r.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false),
			Containers:  []corev1.Container{{Name: "c", Image: kit.WebImage, EnvFrom: from}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	r.Must(err)
}

// follow starts informers that follow what a node's kube-proxy, CoreDNS and kubelet follow. They have these programs' names,
// because hubs keep what programs of these names read.
func (r *restored) follow() {
	proxy, dns := load.KubeProxy(), load.CoreDNS()
	proxy.Agent, dns.Agent = "kube-proxy/played", "coredns/played"
	for _, node := range r.Pool.Nodes() {
		specs := map[string]load.FollowSpec{
			"kube-proxy": proxy,
			"CoreDNS":    dns,
			"kubelet": {Agent: kubeletAgent, Streams: []load.Stream{
				{Resource: load.PodsResource, Fields: "spec.nodeName=" + node},
				{Resource: load.NodesResource, Fields: "metadata.name=" + node},
			}},
		}
		for _, name := range configMapsOf(node) {
			specs["kubelet, for "+name] = load.FollowSpec{Agent: kubeletAgent, Namespace: kit.Namespace, Streams: []load.Stream{
				{Resource: load.ConfigMapsResource, Fields: "metadata.name=" + name},
			}}
		}
		for who, spec := range specs {
			r.seat(who, node, spec)
		}
	}
}

func (r *restored) seat(who, node string, spec load.FollowSpec) {
	access, err := r.Lab.HubConfig(node)
	r.Must(err)
	f, err := load.NewFollower(access, spec)
	r.Must(err)
	access.UserAgent = spec.Agent
	hub := r.Client(access)
	r.all = append(r.all, restoredClient{who, node, spec, f, hub})
	r.Background.Go(func() { _ = f.Run(r.Ctx) })
}

// change makes n changes of the objects that clients follow. Changes of a Service include its cluster IP.
func (r *restored) change(tag string, n int) {
	endpointSlices, configMaps := r.Cloud.DiscoveryV1().EndpointSlices(load.Namespace), r.Cloud.CoreV1().ConfigMaps(kit.Namespace)
	services, nodes := r.Cloud.CoreV1().Services(load.Namespace), r.Pool.Nodes()
	old, err := endpointSlices.List(r.Ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelManagedBy + "=" + load.ManagedBy})
	r.Must(err)
	made := func(i int) string { return fmt.Sprintf("%s-%d", tag, i) }
	for i := range n {
		node := nodes[i/10%len(nodes)]
		switch i % 10 {
		case 0, 5:
			_, err = services.Create(r.Ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: made(i)},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}, metav1.CreateOptions{})
		case 1, 6:
			_, err = endpointSlices.Create(r.Ctx, &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Name: made(i), Labels: map[string]string{
					discoveryv1.LabelServiceName: made(i - 1), discoveryv1.LabelManagedBy: "restored",
				}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.99.%d.1", i%250)}}},
			}, metav1.CreateOptions{})
		case 2, 7:
			o := old.Items[i/5%(len(old.Items)/2)].DeepCopy()
			_, err = endpointSlices.Patch(r.Ctx, o.Name, types.MergePatchType, fmt.Appendf(nil,
				`{"metadata":{"annotations":{"changed":%q}}}`, made(i)), metav1.PatchOptions{})
		case 3, 8:
			_, err = configMaps.Patch(r.Ctx, configMapsOf(node)[0], types.MergePatchType,
				fmt.Appendf(nil, `{"data":{"KEY":%q}}`, made(i)), metav1.PatchOptions{})
		case 4:
			err = services.Delete(r.Ctx, made(i-4), metav1.DeleteOptions{})
		case 9:
			if err = endpointSlices.Delete(r.Ctx, made(i-3), metav1.DeleteOptions{}); err == nil && i/10 < 10 {
				err = endpointSlices.Delete(r.Ctx, old.Items[len(old.Items)-1-i/10].Name, metav1.DeleteOptions{})
			}
		}
		r.Must(err)
	}
	r.Say("%d changes were made (%s)", n, tag)
}

// turn deletes the Pods and ConfigMaps that exist, and creates those that do not.
func (r *restored) turn() {
	for _, node := range r.Pool.Nodes() {
		for _, name := range configMapsOf(node)[1:] {
			err := r.Cloud.CoreV1().ConfigMaps(kit.Namespace).Delete(r.Ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				r.configure(name)
				continue
			}
			r.Must(err)
		}
		for _, name := range []string{"deleted-" + node, "created-" + node} {
			at := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
			err := r.Cloud.CoreV1().Pods(kit.Namespace).Delete(r.Ctx, name, at)
			if apierrors.IsNotFound(err) {
				r.pod(name, node, nil)
				continue
			}
			r.Must(err)
		}
	}
}

// revision returns the cloud's revision.
func (r *restored) revision() uint64 {
	list, err := r.Cloud.CoreV1().Namespaces().List(r.Ctx, metav1.ListOptions{})
	r.Must(err)
	now, err := edge.ParseRevision(list.ResourceVersion)
	r.Must(err)
	return uint64(now)
}

// agree waits until all clients, and the coordinator, have exactly what the cloud has. It records the time from since as the
// figure; an empty name means no figure.
func (r *restored) agree(what string, since time.Time, figure string) {
	last, began := "", time.Now()
	r.Eventually(restoredPatience, "all have what the cloud has: "+what, func() error {
		err := errors.Join(r.clientsAgree(), r.siteAgrees())
		if err == nil {
			return nil
		}
		if err.Error() != last && time.Since(began) > 5*time.Second {
			last = err.Error()
			r.Say("%.1fs after: %s", time.Since(since).Seconds(), strings.ReplaceAll(last, "\n", "; "))
		}
		r.Pause(250*time.Millisecond, "they do not agree yet")
		return err
	})
	if figure != "" {
		r.Figure(figure, time.Since(since).Seconds())
	}
}

// clientsAgree fails with all clients that differ from the cloud.
func (r *restored) clientsAgree() error {
	var all []error
	for _, c := range r.all {
		want, err := load.Read(r.Ctx, r.Cloud, c.spec)
		if err != nil {
			return err
		}
		if difference := c.follower.State().Diff(want); difference != "" {
			all = append(all, fmt.Errorf("%s on %s: %s", c.who, c.node, difference))
		}
	}
	return errors.Join(all...)
}

// onDisk restarts a node's hub while the hub can ask nobody, and expects it to have what the cloud had before. It compares with
// the time before the cut, because the hub can't know how the cloud then changes the node that is cut off.
func (r *restored) onDisk(node string, since time.Time) {
	r.Hold(5*time.Second, "the hub of "+node+" writes to its disk")
	had := r.cloudHas(node)
	for _, network := range []lab.Network{lab.WAN, lab.LAN} {
		r.Must(r.Lab.Cut(r.Ctx, network, node, wire.Drop))
	}
	r.Must(r.Lab.Node(r.Ctx, lab.Restart, node, lab.Hub))
	r.Eventually(30*time.Second, "the hub of "+node+", cut off and started anew, has what the cloud has", func() error {
		err := r.hubAgrees(node, had)
		if err != nil {
			r.Pause(250*time.Millisecond, "it does not yet")
		}
		return err
	})
	r.Say("that was %.1fs after the cloud was back", time.Since(since).Seconds())
	for _, network := range []lab.Network{lab.WAN, lab.LAN} {
		r.Must(r.Lab.Heal(r.Ctx, network, node))
	}
	r.Pool.Settled(60 * time.Second)
	r.agree("after "+node+" is back", time.Now(), "")
}

// cloudHas returns what each of a node's programs would read from the cloud now.
func (r *restored) cloudHas(node string) map[string]load.State {
	has := map[string]load.State{}
	for _, c := range r.all {
		if c.node == node {
			state, err := load.Read(r.Ctx, r.Cloud, c.spec)
			r.Must(err)
			has[c.who] = state
		}
	}
	return has
}

// hubAgrees fails if a node's programs would now read from its hub something else than they should.
func (r *restored) hubAgrees(node string, should map[string]load.State) error {
	for _, c := range r.all {
		want, its := should[c.who]
		if !its || c.node != node {
			continue
		}
		try, cancel := context.WithTimeout(r.Ctx, 5*time.Second)
		has, err := load.Read(try, c.hub, c.spec)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", c.who, err)
		}
		if difference := has.Diff(want); difference != "" {
			return fmt.Errorf("%s: %s", c.who, difference)
		}
	}
	return nil
}
