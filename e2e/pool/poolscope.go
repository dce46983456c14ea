package pool

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/load"
)

var poolScopeScenarios = []kit.Scenario{
	{
		Name: "pool-scope", Lab: kit.HubsAlone, Run: poolScope,
		Doc: "Services and a custom resource join and leave the set of shared resources while the hubs run. Watches stay " +
			"exact, a new resource costs one list over the WAN, and kubectl prints what it would print in the cloud.",
	},
	{
		Name: "topology", Tier: kit.Core, Run: topology,
		Lab: lab.Config{Pools: 2, Nodes: 2, Timing: lab.Quick, Kubelet: lab.Hollow},
		Doc: "`openyurt.io/topologyKeys` is set, changed and removed on a Service. Informers and kube-proxies on every " +
			"node see the endpoints meant for them at once, while they watch.",
	},
}

// share sets the pool resources of all hubs of the first pool, besides endpoints. If Services are not among them, each
// hub has its own copy of them, for service topology.
func share(t *kit.T, more ...string) {
	all := append([]string{"v1/endpoints", "discovery.k8s.io/v1/endpointslices"}, more...)
	for _, node := range t.Pool.Nodes() {
		t.Must(t.Lab.HubSettings(node, fmt.Sprintf("pool-scope-resources: [%s]\n", strings.Join(all, ", "))))
	}
	t.Say("the hubs' files say that the pool shares %v", all)
}

func poolScope(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	share(t)
	servicesUnshared(t)
	slicesSeen, services, pools := t.Record(kit.EndpointSlices), t.Record(kit.AllServices), t.Record(kit.AllNodePools)
	spec := load.Spec{Services: 20, EndpointsEach: 5, Nodes: t.Pool.Nodes()}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	var ofServices, ofPools []string
	for i := range 5 {
		ofServices = append(ofServices, fmt.Sprintf("/api/v1/namespaces/%s/services/load-%05d", load.Namespace, i))
		ofPools = append(ofPools, fmt.Sprintf("%s/more-%d", kit.AllNodePools.Path, i))
		t.Cloud.MakePool(fmt.Sprintf("more-%d", i))
	}
	t.Pool.Shared(30*time.Second, slicesSeen.Name)
	// The first request for EndpointSlices makes each hub learn by itself what service topology needs.
	slicesSeen.Seat(t, t.Pool.Nodes())

	services.Seat(t, t.Pool.Nodes())
	pools.Sit(t, t.Pool.Nodes())
	stop := []func(){t.Patching(ofServices...), t.Patching(ofPools...)}
	before := map[string]int{}
	for _, a := range []*kit.Audience{services, pools} {
		before[a.Resource] = len(t.Pool.ListsOverWAN(a.Resource))
	}

	share(t, "v1/services", "apps.openyurt.io/v1beta2/nodepools")
	// Every hub had its own copy of Services, and has it on its disk.
	for a, want := range map[*kit.Audience]int{services: 0, pools: 1} {
		t.Pool.Shared(60*time.Second, a.Name)
		a.Seat(t, t.Pool.Nodes())
		if lists := t.Pool.NewLists(a.Resource, before[a.Resource]); len(lists) != want {
			t.Fail("%s joined the pool with %d lists over the WAN, want %d", a.Name, len(lists), want)
		}
	}
	slicesSeen.ListedOnce(t)
	sameToKubectl(t) // whose tables the cloud makes, from all objects each time
	tables := len(t.Pool.ListsOverWAN(slicesSeen.Resource))
	t.Hold(3*time.Second, "both are shared, and change")

	share(t)
	eachForItself(t)
	for _, a := range []*kit.Audience{services, pools} {
		a.CaughtUp(t, 30*time.Second)
	}
	t.Hold(3*time.Second, "neither is shared, both change")
	for _, s := range stop {
		s()
	}
	// A hub's copy of Services is also for service topology: joining and leaving each make a new one.
	twice := map[string]int{}
	for _, node := range t.Pool.Nodes() {
		twice[node] = 2
	}
	services.Judge(t, twice)
	pools.Judge(t, nil)
	slicesSeen.Judge(t, nil)
	if again := t.Pool.NewLists(slicesSeen.Resource, tables); len(again) > 0 {
		t.Fail("%s were listed over the WAN again: %+v", slicesSeen.Name, again)
	}
}

// servicesUnshared waits until no hub shares Services.
func servicesUnshared(t *kit.T) {
	t.Eventually(30*time.Second, "no hub shares Services", func() error {
		for node, h := range t.Pool.Hubs() {
			if r, ok := h.Replica(kit.AllServices.Name); ok && r.Shared {
				return fmt.Errorf("%s still has %+v", node, r)
			}
		}
		return nil
	})
}

// eachForItself waits until the pool shares neither NodePools, which no hub has a copy of then, nor Services.
func eachForItself(t *kit.T) {
	t.Eventually(60*time.Second, "no hub has a copy of NodePools any more, each has Services for itself", func() error {
		for node, h := range t.Pool.Hubs() {
			if r, ok := h.Replica(kit.AllNodePools.Name); ok {
				return fmt.Errorf("%s still has %+v", node, r)
			}
			if r, ok := h.Replica(kit.AllServices.Name); !ok || r.Source != "cloud" || r.Revision == 0 {
				return fmt.Errorf("%s has %+v", node, r)
			}
		}
		return nil
	})
}

// asTable is what kubectl asks for.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// sameToKubectl expects that kubectl shows EndpointSlices, which must be at rest, as it would show them at the cloud:
// columns and cells through a hub; and at the coordinator all of each object, except its resourceVersion, which is the
// coordinator's own.
func sameToKubectl(t *kit.T) {
	cloud, err := t.Lab.CloudConfig()
	t.Must(err)
	hub, err := t.Lab.HubConfig(t.Pool.Nodes()[1])
	t.Must(err)
	operator, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	t.Eventually(10*time.Second, "kubectl get endpointslices shows through a hub what it shows at the cloud", func() error {
		want, err := t.List(cloud, kit.EndpointSlices.Path, asTable)
		t.Must(err)
		has, err := t.List(hub, kit.EndpointSlices.Path, asTable)
		t.Must(err)
		rows, _ := want["rows"].([]any)
		if want["kind"] != "Table" || len(rows) < 20 {
			return fmt.Errorf("the cloud answers a %v of %d rows", want["kind"], len(rows))
		}
		delete(want, "metadata") // the revision of the list
		delete(has, "metadata")
		return kit.Differs(want, has) // an age may have grown by a second between the two
	})
	t.Eventually(10*time.Second, "the coordinator has the cloud's objects, with all that is in them", func() error {
		want, err := t.List(cloud, kit.EndpointSlices.Path, "application/json")
		t.Must(err)
		has, err := t.List(operator, kit.EndpointSlices.Path, "application/json")
		t.Must(err)
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
		return kit.Differs(want, has)
	})
}
