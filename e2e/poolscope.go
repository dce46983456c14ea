package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/watchcheck"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/load"
)

var poolScopeScenarios = []Scenario{
	{
		Name: "pool-scope", Quick: true, Lab: hubsAlone, run: poolScope,
		Doc: "Services and a custom resource become pool resources while the hubs run, and cease to be: watches stay exact, " +
			"what no hub had costs one list over the WAN; kubectl sees what the cloud would show it",
	},
	{
		Name: "topology", Quick: true, run: topology,
		Lab: lab.Config{Pools: 2, Nodes: 2, Timing: lab.Quick, Kubelet: lab.Hollow},
		Doc: "a Service's openyurt.io/topologyKeys are set, changed and taken away: informers and kube-proxies of each node " +
			"have the endpoints that concern it, at once",
	},
}

var (
	allServices  = collection{"services", "services", "/api/v1/services", true}
	allNodePools = collection{
		"nodepools.apps.openyurt.io", "nodepools", "/apis/apps.openyurt.io/v1beta2/nodepools", false,
	}
)

// share sets the pool resources of all hubs of the first pool, besides endpoints. Of Services, if they are not among them, each
// hub has a copy of its own then, for service topology.
func (t *T) share(more ...string) {
	all := append([]string{"v1/endpoints", "discovery.k8s.io/v1/endpointslices"}, more...)
	for _, node := range t.nodeNames() {
		t.must(t.lab.HubSettings(node, fmt.Sprintf("pool-scope-resources: [%s]\n", strings.Join(all, ", "))))
	}
	t.say("the hubs' files say that the pool shares %v", all)
}

// patching patches objects at random, 20 a second, until stop is called.
func (t *T) patching(paths ...string) (stop func()) {
	ctx, cancel := context.WithCancel(t.ctx)
	done := make(chan error, 1)
	t.background.Go(func() {
		_, err := load.Patches(ctx, t.cloud.CoreV1().RESTClient(),
			load.PatchSpec{Paths: paths, MaxBytes: 200, PerSecond: 20}, time.Hour)
		done <- err
	})
	return func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.fail("patching %v: %w", paths, err)
		}
	}
}

// sit seats a client on each node of a resource that its hub has no copy of.
func (a *audience) sit(t *T, nodes []string) {
	for _, node := range nodes {
		through, err := t.lab.HubConfig(node)
		t.must(err)
		recorder, err := watchcheck.New(t.watcher(through, a.path))
		t.must(err)
		a.seats = append(a.seats, seat{node, "early", recorder})
		t.background.Go(func() { _ = recorder.Run(t.ctx) })
	}
	a.caughtUp(t, 60*time.Second)
}

func poolScope(t *T) {
	t.settled(30 * time.Second)
	t.share()
	t.eventually(30*time.Second, "no hub shares Services", func() error {
		for node, h := range t.hubs() {
			if r, ok := h.Replica(allServices.name); ok && r.Shared {
				return fmt.Errorf("%s still has %+v", node, r)
			}
		}
		return nil
	})
	slicesSeen, services, pools := t.record(endpointSlices), t.record(allServices), t.record(allNodePools)
	spec := load.Spec{Services: 20, EndpointsEach: 5, Nodes: t.nodeNames()}
	_, err := load.Services(t.ctx, t.cloud, spec)
	t.must(err)
	paths := map[string][]string{}
	for i := range 5 {
		paths["services"] = append(paths["services"], fmt.Sprintf("/api/v1/namespaces/%s/services/load-%05d", load.Namespace, i))
		paths["nodepools"] = append(paths["nodepools"], fmt.Sprintf("%s/more-%d", allNodePools.path, i))
		t.makePool(fmt.Sprintf("more-%d", i))
	}
	t.shared(30*time.Second, slicesSeen.name)
	// The first question for EndpointSlices has each hub learn what service topology needs, on its own.
	slicesSeen.seat(t, t.nodeNames())

	services.seat(t, t.nodeNames())
	pools.sit(t, t.nodeNames())
	stop := []func(){t.patching(paths["services"]...), t.patching(paths["nodepools"]...)}
	before := map[string]int{}
	for _, a := range []*audience{services, pools} {
		before[a.resource] = len(t.listsOverWAN(a.resource))
	}

	t.share("v1/services", "apps.openyurt.io/v1beta2/nodepools")
	// Services every hub had for itself, and has on its disk.
	for a, want := range map[*audience]int{services: 0, pools: 1} {
		t.shared(60*time.Second, a.name)
		a.seat(t, t.nodeNames())
		if lists := t.newLists(a.resource, before[a.resource]); len(lists) != want {
			t.fail("%s joined the pool with %d lists over the WAN, want %d", a.name, len(lists), want)
		}
	}
	t.sameToKubectl()
	t.hold(3*time.Second, "both are shared, and change")

	t.share()
	t.eventually(60*time.Second, "no hub has a copy of NodePools any more, each has Services for itself", func() error {
		for node, h := range t.hubs() {
			if r, ok := h.Replica(pools.name); ok {
				return fmt.Errorf("%s still has %+v", node, r)
			}
			if r, ok := h.Replica(services.name); !ok || r.Source != "cloud" || r.Revision == 0 {
				return fmt.Errorf("%s has %+v", node, r)
			}
		}
		return nil
	})
	for _, a := range []*audience{services, pools} {
		a.caughtUp(t, 30*time.Second)
	}
	t.hold(3*time.Second, "neither is shared, both change")
	for _, s := range stop {
		s()
	}
	// A hub's copy of Services is for service topology too: joining and leaving, each makes a new one.
	twice := map[string]int{}
	for _, node := range t.nodeNames() {
		twice[node] = 2
	}
	services.judge(t, twice)
	pools.judge(t, nil)
	slicesSeen.judge(t, nil)
	slicesSeen.listedOnce(t)
}

// makePool makes a NodePool that no node is in.
func (t *T) makePool(name string) {
	_, err := t.objects.Resource(lab.NodePools).Create(t.ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lab.NodePools.GroupVersion().String(), "kind": "NodePool",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"type": "Edge"},
	}}, metav1.CreateOptions{})
	t.must(err)
}

// asTable is what kubectl asks for.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// ask sends a GET as kubectl would.
func (t *T) ask(ctx context.Context, access *rest.Config, path, accept string) (*http.Response, error) {
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(access.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return nil, errors.Join(fmt.Errorf("GET %s: %s: %s", path, response.Status, body), response.Body.Close())
	}
	return response, nil
}

// list gets a list, as JSON.
func (t *T) list(access *rest.Config, path, accept string) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	response, err := t.ask(ctx, access, path, accept)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var list map[string]any
	return list, json.Unmarshal(body, &list)
}

// sameToKubectl expects kubectl to show of EndpointSlices, which must be at rest, what it would show at the cloud:
// columns and cells through a hub, by a list and by a watch; and at the coordinator all of each object, but for its
// resourceVersion, which is the coordinator's own.
func (t *T) sameToKubectl() {
	cloud, err := t.lab.CloudConfig()
	t.must(err)
	hub, err := t.lab.HubConfig(t.nodeNames()[1])
	t.must(err)
	operator, err := t.lab.CoordinatorConfig(1, lab.Operator)
	t.must(err)
	t.eventually(10*time.Second, "kubectl get endpointslices shows through a hub what it shows at the cloud", func() error {
		want, err := t.list(cloud, endpointSlices.path, asTable)
		t.must(err)
		has, err := t.list(hub, endpointSlices.path, asTable)
		t.must(err)
		rows, _ := want["rows"].([]any)
		if want["kind"] != "Table" || len(rows) < 20 {
			return fmt.Errorf("the cloud answers a %v of %d rows", want["kind"], len(rows))
		}
		delete(want, "metadata") // the revision of the list
		delete(has, "metadata")
		return differs(want, has) // an age may have become a second more between the two
	})
	t.eventually(10*time.Second, "the coordinator has the cloud's objects, with all that is in them", func() error {
		want, err := t.list(cloud, endpointSlices.path, "application/json")
		t.must(err)
		has, err := t.list(operator, endpointSlices.path, "application/json")
		t.must(err)
		items, _ := want["items"].([]any)
		if len(items) < 20 {
			return fmt.Errorf("the cloud has %d items", len(items))
		}
		for _, list := range []map[string]any{want, has} {
			delete(list, "metadata")
			items, _ := list["items"].([]any)
			for _, item := range items {
				if o, ok := item.(map[string]any); ok {
					unstructured.RemoveNestedField(o, "metadata", "resourceVersion")
				}
			}
		}
		return differs(want, has)
	})
	t.sameWatch(cloud, hub)
}

// differs names the first difference of two JSON values.
func differs(want, has any) error { return differsAt("", want, has) }

func differsAt(at string, want, has any) error {
	switch w := want.(type) {
	case map[string]any:
		h, ok := has.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: %v, want %v", at, has, want)
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if err := differsAt(at+"."+key, w[key], h[key]); err != nil {
				return err
			}
		}
		if len(h) > len(w) {
			return fmt.Errorf("%s has %v, want only %v", at, slices.Sorted(maps.Keys(h)), slices.Sorted(maps.Keys(w)))
		}
	case []any:
		h, ok := has.([]any)
		if !ok || len(h) != len(w) {
			return fmt.Errorf("%s: %.200v, want %d elements", at, has, len(w))
		}
		for i := range w {
			if err := differsAt(fmt.Sprintf("%s[%d]", at, i), w[i], h[i]); err != nil {
				return err
			}
		}
	default:
		if !reflect.DeepEqual(want, has) {
			return fmt.Errorf("%s: %v, want %v", at, has, want)
		}
	}
	return nil
}

// sameWatch compares what `kubectl get -w` reads of the same changes at two places. The ages are left out: the two are
// told a moment apart. As kubectl, it begins at the revision of a list of the hub's, and again when it is told 410: what a
// node shows changes once more after its start, when it gets to know its pool.
func (t *T) sameWatch(cloud, hub *rest.Config) {
	const changes = 3
	var told [2][]map[string]any
	for try := 1; ; try++ {
		var err error
		if told, err = t.watchTables(changes, cloud, hub); err == nil {
			break
		}
		if try == 3 || !apierrors.IsResourceExpired(err) {
			t.fail("watch as a Table, try %d: %w", try, err)
		}
	}
	for i := range told[0] {
		if err := differs(told[0][i], told[1][i]); err != nil {
			t.fail("kubectl get -w: event %d through the hub differs from the cloud's: %w", i, err)
		}
	}
	t.say("kubectl get -w shows %d changes through a hub as it does at the cloud", changes)
}

// watchTables changes EndpointSlices of the load and returns what is told of it, as Tables, at the cloud and at a hub.
func (t *T) watchTables(changes int, cloud, hub *rest.Config) (told [2][]map[string]any, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, 20*time.Second)
	defer cancel()
	through, err := kubernetes.NewForConfig(hub)
	t.must(err)
	now, err := through.DiscoveryV1().EndpointSlices(load.Namespace).List(ctx, metav1.ListOptions{})
	t.must(err)
	// Each of one object. The lab's API server writes an EndpointSlice of its own, in another namespace.
	path := "/apis/discovery.k8s.io/v1/namespaces/" + load.Namespace + "/endpointslices?watch=1&resourceVersion=" +
		now.ResourceVersion
	for i := range changes {
		s, err := t.cloud.DiscoveryV1().EndpointSlices(load.Namespace).Get(ctx, now.Items[i].Name, metav1.GetOptions{})
		t.must(err)
		s.Endpoints = s.Endpoints[:len(s.Endpoints)-1]
		_, err = t.cloud.DiscoveryV1().EndpointSlices(load.Namespace).Update(ctx, s, metav1.UpdateOptions{})
		t.must(err)
	}
	for i, access := range []*rest.Config{cloud, hub} {
		access = rest.CopyConfig(access)
		access.Timeout = 0
		response, err := t.ask(ctx, access, path, asTable)
		t.must(err)
		in := json.NewDecoder(response.Body)
		for range changes {
			var event map[string]any
			if err := in.Decode(&event); err != nil {
				return told, fmt.Errorf("at %s, after %v: %w", access.Host, told[i], err)
			}
			if event["type"] == string(watch.Error) {
				return told, errors.Join(apierrors.NewResourceExpired(fmt.Sprint(event["object"])), response.Body.Close())
			}
			dropAges(event)
			told[i] = append(told[i], event)
		}
		t.must(response.Body.Close())
	}
	return told, nil
}

// dropAges empties the cells of an EndpointSlice's last column that changes by itself.
func dropAges(event map[string]any) {
	rows, _, _ := unstructured.NestedSlice(event, "object", "rows")
	for _, row := range rows {
		if r, ok := row.(map[string]any); ok {
			if cells, ok := r["cells"].([]any); ok && len(cells) == 5 {
				cells[4] = ""
			}
		}
	}
	if len(rows) > 0 {
		_ = unstructured.SetNestedSlice(event, rows, "object", "rows") // it is a map: nothing to fail on
	}
}

// sight is what an informer's handlers have been told of EndpointSlices. Its store may know more: what handlers are not
// told, no kube-proxy acts on.
type sight struct {
	name string
	mu   sync.Mutex
	has  map[string]map[string][]string // addresses by Service and EndpointSlice
}

func (s *sight) take(object any, gone bool) {
	if d, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = d.Obj
	}
	o, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	var addresses []string
	for _, e := range o.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	service := o.Labels[discoveryv1.LabelServiceName]
	if s.has[service] == nil {
		s.has[service] = map[string][]string{}
	}
	if s.has[service][o.Name] = addresses; gone {
		delete(s.has[service], o.Name)
	}
}

// of returns the addresses of a Service, sorted.
func (s *sight) of(service string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, addresses := range s.has[service] {
		all = append(all, addresses...)
	}
	slices.Sort(all)
	return all
}

// look runs an informer of the load's EndpointSlices.
func (t *T) look(name string, access *rest.Config) *sight {
	client, err := kubernetes.NewForConfig(access)
	t.must(err)
	s := &sight{name: name, has: map[string]map[string][]string{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(load.Namespace))
	_, err = factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.take(o, false) },
		UpdateFunc: func(_, o any) { s.take(o, false) },
		DeleteFunc: func(o any) { s.take(o, true) },
	})
	t.must(err)
	factory.Start(t.ctx.Done())
	t.background.Go(func() { <-t.ctx.Done(); factory.Shutdown() })
	return s
}

// watched is one node with an informer at its hub.
type watched struct {
	node  string
	sight *sight
	// near says which nodes' endpoints are near, by the topology of the Service at the moment.
	near map[string][]string
}

func topology(t *T) {
	var nodes []string
	byPool := map[string][]string{}
	for p := 1; p <= t.cfg.Pools; p++ {
		for i := 1; i <= t.cfg.Nodes; i++ {
			name := fmt.Sprintf("p%d-n%d", p, i)
			nodes = append(nodes, name)
			byPool[fmt.Sprintf("p%d", p)] = append(byPool[fmt.Sprintf("p%d", p)], name)
		}
	}
	t.settled(30 * time.Second)
	spec := load.Spec{Services: 6, EndpointsEach: 12, Nodes: nodes}
	_, err := load.Services(t.ctx, t.cloud, spec)
	t.must(err)
	access, err := t.lab.CloudConfig()
	t.must(err)
	atCloud := t.look("the cloud", access)
	var all []watched
	for _, node := range nodes {
		through, err := t.lab.HubConfig(node)
		t.must(err)
		pool, _, _ := strings.Cut(node, "-")
		all = append(all, watched{node, t.look("the hub of "+node, through), map[string][]string{
			"": nodes, edge.TopologyNodePool: byPool[pool], edge.TopologyHostname: {node},
		}})
	}
	const service = "load-00001"
	var steady []*steadyWatch
	for _, w := range all {
		steady = append(steady, t.steadyWatch(w.node))
	}
	for _, keys := range []string{"", edge.TopologyNodePool, edge.TopologyHostname, edge.TopologyNodePool, ""} {
		t.say("%s has %s=%q", service, edge.AnnotationTopologyKeys, keys)
		value := `null`
		if keys != "" {
			value = fmt.Sprintf("%q", keys)
		}
		_, err := t.cloud.CoreV1().Services(load.Namespace).Patch(t.ctx, service, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, edge.AnnotationTopologyKeys, value), metav1.PatchOptions{})
		t.must(err)
		t.figure("topology_to_informers_s", t.informed(all, atCloud, service, keys).Seconds())
		changes := t.churn(spec, 30)
		t.hold(2*time.Second, "30 changes of EndpointSlices a second")
		t.end(changes)
		t.informed(all, atCloud, service, keys)
		t.figure("topology_to_rules_s", t.routed(all, service, keys).Seconds())
		for _, w := range steady {
			w.standing(t)
		}
	}
}

// steadyWatch is one watch at a hub that must not end while what the hub shows changes.
type steadyWatch struct {
	node  string
	ended chan error
}

// steadyWatch lists the load's EndpointSlices at a hub once, and watches them from there.
func (t *T) steadyWatch(node string) *steadyWatch {
	access, err := t.lab.HubConfig(node)
	t.must(err)
	client, err := kubernetes.NewForConfig(access)
	t.must(err)
	at := client.DiscoveryV1().EndpointSlices(load.Namespace)
	list, err := at.List(t.ctx, metav1.ListOptions{})
	t.must(err)
	watching, err := at.Watch(t.ctx, metav1.ListOptions{
		ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](3600),
	})
	t.must(err)
	w := &steadyWatch{node: node, ended: make(chan error, 1)}
	t.background.Go(func() {
		defer watching.Stop()
		for {
			select {
			case <-t.ctx.Done():
				return
			case e, ok := <-watching.ResultChan():
				if !ok {
					w.ended <- errors.New("it ended")
					return
				}
				if e.Type == watch.Error {
					w.ended <- apierrors.FromObject(e.Object)
					return
				}
			}
		}
	})
	return w
}

// standing holds that the watch is still there.
func (w *steadyWatch) standing(t *T) {
	select {
	case err := <-w.ended:
		t.must(fmt.Errorf("the watch at the hub of %s had to list again: %w", w.node, err))
	default:
	}
}

// wanted are the endpoints of the load that a node with these near nodes has, by Service; ready ones only, or all.
func (t *T) wanted(service string, near []string, ready bool) map[string][]string {
	list, err := t.cloud.DiscoveryV1().EndpointSlices(load.Namespace).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	want := map[string][]string{}
	for _, s := range list.Items {
		name := s.Labels[discoveryv1.LabelServiceName]
		for _, e := range s.Endpoints {
			if ready && !ptr.Deref(e.Conditions.Ready, true) ||
				name == service && !slices.Contains(near, ptr.Deref(e.NodeName, "")) {
				continue
			}
			want[name] = append(want[name], e.Addresses...)
		}
	}
	for _, addresses := range want {
		slices.Sort(addresses)
	}
	return want
}

// informed waits until every informer has what concerns it, and the one at the cloud everything.
func (t *T) informed(all []watched, atCloud *sight, service, keys string) time.Duration {
	// A reflector that is told 410 again and again waits longer each time, at the fifth up to 26 s.
	return t.eventually(45*time.Second, "every informer has what concerns its node", func() error {
		everything := t.wanted("", nil, false)
		for _, w := range append([]watched{{node: "", sight: atCloud}}, all...) {
			want := everything
			if w.node != "" {
				want = t.wanted(service, w.near[keys], false)
			}
			if keys != "" && w.node != "" && (len(want[service]) == 0 || len(want[service]) == len(everything[service])) {
				return fmt.Errorf("%s should have %d of %d endpoints, which shows nothing", w.node, len(want[service]),
					len(everything[service]))
			}
			for name := range everything {
				if has := w.sight.of(name); !slices.Equal(has, want[name]) {
					return fmt.Errorf("at %s Service %s has %v, want %v", w.sight.name, name, has, want[name])
				}
			}
		}
		return nil
	})
}

// routed waits until every node's kube-proxy has made rules for what concerns its node.
func (t *T) routed(all []watched, service, keys string) time.Duration {
	// As above; an installed lab's kube-proxy has been refused at its start, before the chart was there: up to 60 s.
	return t.eventually(75*time.Second, "every kube-proxy has the rules that concern its node", func() error {
		for _, w := range all {
			saved, err := t.lab.Output(t.ctx, w.node, "iptables-save", "-t", "nat")
			if err != nil {
				return err
			}
			rules, want := serviceRules(saved), map[string]map[string]bool{}
			for name, addresses := range t.wanted(service, w.near[keys], true) {
				want[name] = map[string]bool{}
				for _, a := range addresses {
					want[name][a] = true
				}
			}
			for name, addresses := range want {
				missing, strange := endpointsIn(rulesOf(rules, name), addresses)
				if missing != "" || strange != "" {
					return fmt.Errorf("on %s, Service %s: no rule for %q, a rule for %q", w.node, name, missing, strange)
				}
			}
		}
		return nil
	})
}

// rulesOf are the rules that name one Service of the load.
func rulesOf(rules, service string) string {
	var b bytes.Buffer
	for line := range strings.Lines(rules) {
		if strings.Contains(line, "\""+load.Namespace+"/"+service+":") {
			b.WriteString(line)
		}
	}
	return b.String()
}
