package views

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/replica/viewtest"
	"yurtcoordinator/internal/stream"
)

func TestTopologyConforms(t *testing.T) {
	web := stream.Key{Namespace: "ns", Name: "web"}
	for _, form := range []schema.GroupVersionKind{sliceKind, endpointsKind} {
		t.Run(form.Kind, func(t *testing.T) {
			viewtest.Run(t, func(t *testing.T) viewtest.Subject { return topologySubject(t, form, web) })
		})
	}
}

func topologySubject(t *testing.T, kind schema.GroupVersionKind, web stream.Key) viewtest.Subject {
	current := &state{node: "n1", nodes: nodeSet{"n1": {}}}
	var views []*Topology
	s := viewtest.Subject{
		Resource: schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "endpointslices"},
		Type:     stream.Type{GroupVersionKind: kind, Encoding: stream.Protobuf},
		Keys: []stream.Key{
			{Namespace: "ns", Name: "web-1"}, {Namespace: "ns", Name: "web-2"}, {Namespace: "ns", Name: "web"},
		},
		View: func() replica.View {
			v := NewTopology(TopologyConfig{Node: "n1", Source: from(newScript(serviceType, 1), nil)})
			v.state.Set(current)
			views = append(views, v)
			return v
		},
		Turn: func(random *rand.Rand) {
			next := &state{node: "n1", services: maps.Clone(current.services), nodes: current.nodes}
			if random.IntN(2) == 0 {
				next.nodes = nodeSet{"n1": {}, edge.NodeName([]string{"n2", "n3", "n4"}[random.IntN(3)]): {}}
			} else {
				next.services = map[stream.Key]scope{}
				if near := scope(random.IntN(4)); near != everywhere {
					next.services[web] = near
				}
			}
			current = next
			for _, v := range views {
				v.state.Set(next)
			}
		},
	}
	s.Make = func(random *rand.Rand, k stream.Key, revision edge.Revision) stream.Object {
		some := slices.Clone(places)
		random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		some = some[:random.IntN(len(some)+1)]
		var m message
		o := sliceOf(t, revision, some...)
		if kind == endpointsKind {
			o = endpointsOf(t, revision, some...)
			var named corev1.Endpoints
			decode(t, o.Raw, &named)
			named.Name = k.Name
			m = &named
		} else {
			var named discoveryv1.EndpointSlice
			decode(t, o.Raw, &named)
			named.Name = k.Name
			m = &named
		}
		return stream.Object{Key: k, Revision: revision, Raw: encode(t, m)}
	}
	return s
}

func TestMasterConforms(t *testing.T) {
	viewtest.Run(t, func(t *testing.T) viewtest.Subject {
		at := netip.MustParseAddrPort("10.0.0.7:10268")
		var views []*Master
		return viewtest.Subject{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "services"}, Type: serviceType,
			Keys: []stream.Key{masterService, {Namespace: "default", Name: "web"}},
			View: func() replica.View {
				views = append(views, NewMaster(at))
				return views[len(views)-1]
			},
			Turn: func(random *rand.Rand) {
				at = netip.AddrPort{}
				if n := random.IntN(4); n > 0 {
					at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 10268)
				}
				for _, v := range views {
					v.Move(at)
				}
			},
			Make: func(_ *rand.Rand, k stream.Key, revision edge.Revision) stream.Object {
				s := kubernetesService()
				s.Name, s.Namespace, s.ResourceVersion = k.Name, k.Namespace, revision.String()
				return stream.Object{Key: k, Revision: revision, Raw: encode(t, s)}
			},
		}
	})
}
