package views

import (
	"net/netip"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/hub/cache"

	"yurtcoordinator/internal/edge"
)

func TestWhatATopologyLearnsFrom(t *testing.T) {
	for pool, want := range map[edge.PoolName][]string{
		"": {"services"}, "p1": {"services", "nodepools.apps.openyurt.io fields=metadata.name=p1"},
	} {
		topology := NewTopology(TopologyConfig{Node: "n1", Pool: pool, Source: from(newScript(serviceType, 1), nil)})
		var got []string
		for _, s := range topology.Learns() {
			got = append(got, s.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("in pool %q: %q, want %q", pool, got, want)
		}
		v := topology.View(slicesResource)
		if v == nil || v.View != topology || v.Complete != topology.complete ||
			!slices.Equal(append(slices.Clone(v.Also), v.From), append(topology.Learns()[1:], Services)) {
			t.Errorf("in pool %q, of EndpointSlices: %+v", pool, v)
		}
	}
}

func TestWhichResourcesAreShownOtherwise(t *testing.T) {
	topology := NewTopology(TopologyConfig{Node: "n1", Source: from(newScript(serviceType, 1), nil)})
	master := NewMaster(netip.MustParseAddrPort("10.0.0.7:10268"))
	for _, tt := range []struct {
		resource schema.GroupVersionResource
		cut      bool
		moved    bool
	}{
		{endpointsResource, true, false},
		{slicesResource, true, false},
		{Services.Resource, false, true},
		{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, false, false},
		{schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpoints"}, false, false},
	} {
		if got := topology.View(tt.resource) != nil; got != tt.cut {
			t.Errorf("service topology cuts %v: %v", tt.resource, got)
		}
		if got := Any(NewConfigMaps().View, master.View)(cache.Whole(tt.resource)) != nil; got != tt.moved {
			t.Errorf("kubelet sees another address in %v: %v", tt.resource, got)
		}
	}
}
