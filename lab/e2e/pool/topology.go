package pool

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/load"
)

var topologyScenarios = []kit.Scenario{{
	Name: "topology", Tier: kit.Core, Run: topology,
	Lab: lab.Config{Pools: 2, Nodes: 2, Timing: lab.Quick, Kubelet: lab.Hollow},
	Doc: "`openyurt.io/topologyKeys` is set, changed and removed on a Service. Informers and kube-proxies on every " +
		"node see the endpoints meant for them at once, while they watch.",
}}

// sight is what an informer's handlers have been told about EndpointSlices. The informer's store may know more, but kube-proxy
// acts only on what its handlers are told.
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
func look(t *kit.T, name string, access *rest.Config) *sight {
	client := t.Client(access)
	s := &sight{name: name, has: map[string]map[string][]string{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(load.Namespace))
	_, err := factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.take(o, false) },
		UpdateFunc: func(_, o any) { s.take(o, false) },
		DeleteFunc: func(o any) { s.take(o, true) },
	})
	t.Must(err)
	factory.Start(t.Ctx.Done())
	t.Background.Go(func() { <-t.Ctx.Done(); factory.Shutdown() })
	return s
}

// watched is one node with an informer at its hub.
type watched struct {
	node  string
	sight *sight
	// near says which nodes' endpoints are near, by the Service's present topology.
	near map[string][]string
}

func topology(t *kit.T) {
	var nodes []string
	byPool := map[string][]string{}
	for p := 1; p <= t.Config.Pools; p++ {
		for i := 1; i <= t.Config.Nodes; i++ {
			name := fmt.Sprintf("p%d-n%d", p, i)
			nodes = append(nodes, name)
			byPool[fmt.Sprintf("p%d", p)] = append(byPool[fmt.Sprintf("p%d", p)], name)
		}
	}
	t.Pool.Settled(30 * time.Second)
	spec := load.Spec{Services: 6, EndpointsEach: 12, Nodes: nodes}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	atCloud := look(t, "the cloud", access)
	var all []watched
	for _, node := range nodes {
		through, err := t.Lab.HubConfig(node)
		t.Must(err)
		pool, _, _ := strings.Cut(node, "-")
		all = append(all, watched{node, look(t, "the hub of "+node, through), map[string][]string{
			"": nodes, edge.TopologyNodePool: byPool[pool], edge.TopologyHostname: {node},
		}})
	}
	const service = "load-00001"
	var steady []*steadyWatch
	for _, w := range all {
		steady = append(steady, newSteadyWatch(t, w.node))
	}
	for _, keys := range []string{"", edge.TopologyNodePool, edge.TopologyHostname, edge.TopologyNodePool, ""} {
		t.Say("%s has %s=%q", service, edge.AnnotationTopologyKeys, keys)
		value := `null`
		if keys != "" {
			value = fmt.Sprintf("%q", keys)
		}
		_, err := t.Cloud.CoreV1().Services(load.Namespace).Patch(t.Ctx, service, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, edge.AnnotationTopologyKeys, value), metav1.PatchOptions{})
		t.Must(err)
		t.Figure("topology_to_informers_s", informed(t, all, atCloud, service, keys).Seconds())
		changes := t.Churn(spec, 30)
		t.Hold(2*time.Second, "30 changes of EndpointSlices a second")
		t.End(changes)
		informed(t, all, atCloud, service, keys)
		t.Figure("topology_to_rules_s", routed(t, all, service, keys).Seconds())
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

// newSteadyWatch lists the load's EndpointSlices at a hub once, and watches them from there.
func newSteadyWatch(t *kit.T, node string) *steadyWatch {
	access, err := t.Lab.HubConfig(node)
	t.Must(err)
	client := t.Client(access)
	at := client.DiscoveryV1().EndpointSlices(load.Namespace)
	list, err := at.List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	watching, err := at.Watch(t.Ctx, metav1.ListOptions{
		ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](3600),
	})
	t.Must(err)
	w := &steadyWatch{node: node, ended: make(chan error, 1)}
	t.Background.Go(func() {
		defer watching.Stop()
		for {
			select {
			case <-t.Ctx.Done():
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

// standing expects that the watch still runs.
func (w *steadyWatch) standing(t *kit.T) {
	select {
	case err := <-w.ended:
		t.Must(fmt.Errorf("the watch at the hub of %s had to list again: %w", w.node, err))
	default:
	}
}

// wanted returns the endpoints of the load that a node with these near nodes has, by Service; only ready ones, or all.
func wanted(t *kit.T, service string, near []string, ready bool) map[string][]string {
	list, err := t.Cloud.DiscoveryV1().EndpointSlices(load.Namespace).List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
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
func informed(t *kit.T, all []watched, atCloud *sight, service, keys string) time.Duration {
	// A reflector that gets 410 repeatedly waits longer each time, at the fifth up to 26 s.
	return t.Eventually(45*time.Second, "every informer has what concerns its node", func() error {
		everything := wanted(t, "", nil, false)
		for _, w := range append([]watched{{node: "", sight: atCloud}}, all...) {
			want := everything
			if w.node != "" {
				want = wanted(t, service, w.near[keys], false)
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

// routed waits until every node's kube-proxy has rules for what concerns its node.
func routed(t *kit.T, all []watched, service, keys string) time.Duration {
	// As above; in an installed lab kube-proxy was refused at its start, before the chart was there: up to 60 s.
	return t.Eventually(75*time.Second, "every kube-proxy has the rules that concern its node", func() error {
		for _, w := range all {
			saved, err := t.Lab.Output(t.Ctx, w.node, "iptables-save", "-t", "nat")
			if err != nil {
				return err
			}
			rules, want := serviceRules(saved), map[string]map[string]bool{}
			for name, addresses := range wanted(t, service, w.near[keys], true) {
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

// rulesOf returns the rules that name one Service of the load.
func rulesOf(rules, service string) string {
	var b bytes.Buffer
	for line := range strings.Lines(rules) {
		if strings.Contains(line, "\""+load.Namespace+"/"+service+":") {
			b.WriteString(line)
		}
	}
	return b.String()
}
