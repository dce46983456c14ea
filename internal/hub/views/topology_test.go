package views

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

var (
	sliceKind     = schema.GroupVersionKind{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}
	endpointsKind = schema.GroupVersionKind{Version: "v1", Kind: "Endpoints"}
	serviceType   = stream.Type{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Encoding: stream.Protobuf,
	}
	poolType = stream.Type{
		GroupVersionKind: schema.GroupVersionKind{Group: "apps.openyurt.io", Version: "v1beta2", Kind: "NodePool"},
		Encoding:         stream.JSON,
	}
)

type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

func encode(t testing.TB, o message) []byte {
	t.Helper()
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func decode(t testing.TB, raw []byte, o message) {
	t.Helper()
	if err := o.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
}

func meta(name string, r edge.Revision) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "ns", Name: name, ResourceVersion: r.String(), Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
	}
}

// A place is an endpoint's node and zone; "" is none. Its address is its name.
type place struct{ name, node, zone string }

var places = []place{
	{"self", "n1", "z1"}, {"mate", "n2", "z2"}, {"near", "n3", "z1"}, {"far", "n4", "z4"}, {"homeless", "", ""},
}

func nameOrNone(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func sliceOf(t testing.TB, r edge.Revision, all ...place) stream.Object {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: meta("web-1", r), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](80)}},
	}
	for _, p := range all {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{p.name}, NodeName: nameOrNone(p.node), Zone: nameOrNone(p.zone),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
		})
	}
	return stream.Object{Key: stream.Key{Namespace: "ns", Name: "web-1"}, Revision: r, Raw: encode(t, s)}
}

func endpointsOf(t testing.TB, r edge.Revision, all ...place) stream.Object {
	o := &corev1.Endpoints{ObjectMeta: meta("web", r)}
	for _, p := range all {
		// One subset for each place, ready and not ready in turn, and one with all, half of them ready.
		address := corev1.EndpointAddress{IP: p.name, NodeName: nameOrNone(p.node)}
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Port: 80}}}
		if len(o.Subsets)%2 == 0 {
			subset.Addresses = []corev1.EndpointAddress{address}
		} else {
			subset.NotReadyAddresses = []corev1.EndpointAddress{address}
		}
		o.Subsets = append(o.Subsets, subset)
	}
	return stream.Object{Key: stream.Key{Namespace: "ns", Name: "web"}, Revision: r, Raw: encode(t, o)}
}

// seen reads which places an object has, and its revision.
func seen(t testing.TB, typ stream.Type, raw []byte) (names []string, resourceVersion string) {
	t.Helper()
	if typ.Kind == "EndpointSlice" {
		var s discoveryv1.EndpointSlice
		decode(t, raw, &s)
		for _, e := range s.Endpoints {
			names = append(names, e.Addresses...)
		}
		if s.AddressType != discoveryv1.AddressTypeIPv4 || len(s.Ports) != 1 || s.Labels[discoveryv1.LabelServiceName] != "web" {
			t.Errorf("something else was changed: %v", s)
		}
		return names, s.ResourceVersion
	}
	var o corev1.Endpoints
	decode(t, raw, &o)
	for _, s := range o.Subsets {
		for _, a := range slices.Concat(s.Addresses, s.NotReadyAddresses) {
			names = append(names, a.IP)
		}
		if len(s.Ports) != 1 || len(s.Addresses)+len(s.NotReadyAddresses) == 0 {
			t.Errorf("a subset lost its ports, or is empty: %v", s)
		}
	}
	return names, o.ResourceVersion
}

func TestShow(t *testing.T) {
	web := stream.Key{Namespace: "ns", Name: "web"}
	all := []string{"self", "mate", "near", "far", "homeless"}
	everywhereElse := nodeSet{"n1": {}, "n2": {}, "n3": {}, "n4": {}, "": {}}
	for _, c := range []struct {
		name            string
		services        map[stream.Key]scope
		nodes           nodeSet // nil: n1 and n2
		slice, endpoint []string
		verbatim        bool
	}{
		{"no topology anywhere", nil, nil, all, all, true},
		{"another Service's topology", map[stream.Key]scope{{Namespace: "ns", Name: "db"}: onNode}, nil, all, all, true},
		{
			"another namespace's topology", map[stream.Key]scope{{Namespace: "other", Name: "web"}: onNode}, nil,
			all, all, true,
		},
		{"hostname", map[stream.Key]scope{web: onNode}, nil, []string{"self"}, []string{"self"}, false},
		{"pool", map[stream.Key]scope{web: inPool}, nil, []string{"self", "mate"}, []string{"self", "mate"}, false},
		{"a pool that takes nothing away", map[stream.Key]scope{web: inPool}, everywhereElse, all, all, true},
	} {
		if c.nodes == nil {
			c.nodes = nodeSet{"n1": {}, "n2": {}}
		}
		s := &state{node: "n1", services: c.services, nodes: c.nodes}
		for _, o := range []struct {
			kind schema.GroupVersionKind
			o    stream.Object
			want []string
		}{
			{sliceKind, sliceOf(t, 100, places...), c.slice},
			{endpointsKind, endpointsOf(t, 100, places...), c.endpoint},
		} {
			t.Run(c.name+"/"+o.kind.Kind, func(t *testing.T) {
				typ := stream.Type{GroupVersionKind: o.kind, Encoding: stream.Protobuf}
				before := bytes.Clone(o.o.Raw)
				got, visible := s.Show(typ, o.o)
				names, version := seen(t, typ, got)
				if !slices.Equal(names, o.want) || version != "100" || !visible {
					t.Errorf("shown %v at %s, %t; want %v", names, version, visible, o.want)
				}
				if c.verbatim != (&got[0] == &o.o.Raw[0]) {
					t.Errorf("the same bytes: %t, want %t", !c.verbatim, c.verbatim)
				}
				if !bytes.Equal(before, o.o.Raw) {
					t.Error("the object itself was changed")
				}
			})
		}
	}
}

func TestShowLeavesTheRestAlone(t *testing.T) {
	s := &state{services: map[stream.Key]scope{{Namespace: "ns", Name: "web"}: onNode}, node: "n1"}
	o := sliceOf(t, 100, places...)
	o.Key.Name = "web"
	for _, k := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Service"}, {Group: "discovery.k8s.io", Version: "v1", Kind: "Endpoints"},
		{Version: "v1", Kind: "EndpointSlice"},
	} {
		if got := s.show(stream.Type{GroupVersionKind: k, Encoding: stream.Protobuf}, o); &got[0] != &o.Raw[0] {
			t.Errorf("%v was filtered", k)
		}
	}
	for _, raw := range []string{"", "garbage", "\x0a\xff"} {
		o.Raw = []byte(raw)
		for _, k := range []schema.GroupVersionKind{sliceKind, endpointsKind} {
			if got := s.show(stream.Type{GroupVersionKind: k, Encoding: stream.Protobuf}, o); !bytes.Equal(got, o.Raw) {
				t.Errorf("%q as %v was changed", raw, k)
			}
		}
	}
}

// TestCutKeepsWhatItDoesNotKnow: fields of a newer API server come through.
func TestCutKeepsWhatItDoesNotKnow(t *testing.T) {
	unknown := []byte("\x9a\x06\x03new") // field 99
	raw := slices.Concat(sliceOf(t, 100, places...).Raw, unknown)
	got, err := cutObject(slice, raw, func(n string) bool { return n == "n1" })
	if err != nil || !bytes.HasSuffix(got, unknown) {
		t.Errorf("an unknown field of a slice is gone: %v", err)
	}
}

func FuzzCut(f *testing.F) {
	f.Add(uint8(slice), sliceOf(f, 100, places...).Raw)
	f.Add(uint8(endpoints), endpointsOf(f, 100, places...).Raw)
	f.Fuzz(func(t *testing.T, kind uint8, raw []byte) {
		before := bytes.Clone(raw)
		keep := func(node string) bool { return len(node)%2 == 1 }
		out, err := cutObject(form(kind), raw, keep)
		if !bytes.Equal(before, raw) {
			t.Fatal("the object itself was changed")
		}
		if err != nil {
			return
		}
		again, err := cutObject(form(kind), out, keep)
		if err != nil || !bytes.Equal(again, out) {
			t.Fatalf("what was cut, cut again, is another: %v", err)
		}
	})
}

func FuzzScopeOf(f *testing.F) {
	for _, s := range []string{
		"", "openyurt.io/nodepool", " kubernetes.io/zone ", "kubernetes.io/hostname,openyurt.io/nodepool", "*",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		want := everywhere
		switch strings.TrimSpace(value) {
		case "kubernetes.io/hostname":
			want = onNode
		case "openyurt.io/nodepool", "kubernetes.io/zone":
			want = inPool
		}
		if s := scopeOf(value); s != want {
			t.Errorf("%q is read as %v, want %v", value, s, want)
		}
	})
}

// script is a source whose content a test sets.
type script struct {
	typ stream.Type

	mu       sync.Mutex
	err      error // of Begin
	snapshot stream.Snapshot
	events   []stream.Event
	wake     chan struct{}
	watches  int
	broken   error // what the watches end with
}

func newScript(typ stream.Type, r edge.Revision, objects ...stream.Object) *script {
	return &script{typ: typ, snapshot: stream.Snapshot{Type: typ, Revision: r, Objects: objects}, wake: make(chan struct{})}
}

func (s *script) Begin(context.Context) (stream.Snapshot, stream.Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return stream.Snapshot{}, nil, s.err
	}
	s.watches++
	return s.snapshot, &scriptWatch{s: s, after: s.snapshot.Revision}, nil
}

func (s *script) tell(kind stream.EventType, o stream.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, stream.Event{Type: kind, Object: o})
	close(s.wake)
	s.wake = make(chan struct{})
}

// breakOff makes the watches end with an error, and the content what it is given.
func (s *script) breakOff(err error, snapshot stream.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = snapshot
	s.events = append(s.events, stream.Event{})
	s.err = nil
	s.broken = err
	close(s.wake)
	s.wake = make(chan struct{})
}

type scriptWatch struct {
	s     *script
	after edge.Revision
}

func (w *scriptWatch) Next(ctx context.Context) ([]stream.Event, error) {
	for {
		w.s.mu.Lock()
		wake := w.s.wake
		for i, e := range w.s.events {
			if e.Type == 0 {
				w.s.events = w.s.events[i+1:]
				err := w.s.broken
				w.s.mu.Unlock()
				return nil, err
			}
			if e.Object.Revision > w.after {
				w.after = e.Object.Revision
				w.s.mu.Unlock()
				return []stream.Event{e}, nil
			}
		}
		w.s.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (w *scriptWatch) Close() error { return nil }

func service(t testing.TB, name string, r edge.Revision, topology string) stream.Object {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: r.String()}}
	if topology != "" {
		s.Annotations = map[string]string{annotation: topology}
	}
	return stream.Object{Key: stream.Key{Namespace: "ns", Name: name}, Revision: r, Raw: encode(t, s)}
}

func nodePool(r edge.Revision, nodes ...string) stream.Object {
	list, _ := json.Marshal(nodes)
	return stream.Object{Key: stream.Key{Name: "hangzhou"}, Revision: r, Raw: []byte(`{"status":{"nodes":` + string(list) + `}}`)}
}

// running runs a Topology in a bubble of synctest.
type running struct {
	t *testing.T
	*Topology
	services, pools *script
	states          int
	last            replica.Look
}

// from gives Services and NodePools.
func from(services, pools stream.Beginner) func(cache.Selection) stream.Beginner {
	return func(what cache.Selection) stream.Beginner {
		if what == Services {
			return services
		}
		return pools
	}
}

func start(t *testing.T, services, pools *script) *running {
	r := &running{t: t, services: services, pools: pools}
	c := TopologyConfig{Node: "n1", Pool: "hangzhou", Source: from(services, pools)}
	if pools == nil {
		c.Pool = ""
	}
	topology := NewTopology(c)
	r.Topology = topology
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	done := make(chan error)
	go func() { done <- topology.Run(ctx) }()
	t.Cleanup(func() {
		cancel(stop)
		if err := <-done; err != nil && !errors.Is(err, stop) && !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
	r.settle()
	return r
}

// settle lets all that is under way come to rest.
func (r *running) settle() {
	time.Sleep(500 * time.Millisecond) // synctest's time
	synctest.Wait()
}

// expect holds what is shown, and how many looks there have been that were looked for.
func (r *running) expect(looks int, names ...string) {
	r.t.Helper()
	look, _ := r.Look()
	if look != r.last {
		r.states, r.last = r.states+1, look
	}
	raw, visible := look.Show(stream.Type{GroupVersionKind: sliceKind, Encoding: stream.Protobuf},
		sliceOf(r.t, 500, places...))
	got, _ := seen(r.t, stream.Type{GroupVersionKind: sliceKind, Encoding: stream.Protobuf}, raw)
	if r.states != looks || !slices.Equal(got, names) || !visible {
		r.t.Errorf("look %d shows %v; want look %d, %v", r.states, got, looks, names)
	}
}

var everyone = []string{"self", "mate", "near", "far", "homeless"}

func TestTopologyFollowsTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services := newScript(serviceType, 900, service(t, "web", 600, "openyurt.io/nodepool"), service(t, "db", 700, ""))
		pools := newScript(poolType, 950, nodePool(800, "n1", "n2"))
		r := start(t, services, pools)
		if !r.complete.Get() {
			t.Fatal("not complete")
		}
		r.expect(1, "self", "mate")

		// What does not change what is shown makes no other look.
		services.tell(stream.Modified, service(t, "db", 1001, ""))
		services.tell(stream.Modified, service(t, "web", 1002, "openyurt.io/nodepool"))
		services.tell(stream.Bookmark, stream.Object{Revision: 1003})
		pools.tell(stream.Modified, nodePool(1004, "n2", "n1"))
		r.settle()
		r.expect(1, "self", "mate")

		pools.tell(stream.Modified, nodePool(1010, "n1", "n2", "n4"))
		r.settle()
		r.expect(2, "self", "mate", "far")

		// Many changes at once are one look.
		_, over := r.Look()
		for i := range edge.Revision(20) {
			services.tell(stream.Modified, service(t, "web", 1011+i, []string{"kubernetes.io/hostname", ""}[i%2]))
		}
		services.tell(stream.Modified, service(t, "web", 1040, "kubernetes.io/hostname"))
		<-over
		r.expect(3, "self")
		r.settle()
		r.expect(3, "self")

		// The Service goes.
		services.tell(stream.Deleted, service(t, "web", 1150, "kubernetes.io/hostname"))
		r.settle()
		r.expect(4, everyone...)
		time.Sleep(time.Hour)
		r.expect(4, everyone...)
	})
}

func TestTopologyWithoutAPool(t *testing.T) {
	notFound := errors.New("the server could not find the requested resource")
	for name, pools := range map[string]*script{
		"no source":   nil,
		"no CRD":      {typ: poolType, err: notFound, wake: make(chan struct{})},
		"no NodePool": newScript(poolType, 10),
		"other pools": newScript(poolType, 10, stream.Object{
			Key: stream.Key{Name: "other"}, Revision: 5, Raw: []byte(`{"status":{"nodes":["n4"]}}`),
		}),
		"garbage": newScript(poolType, 10, stream.Object{
			Key: stream.Key{Name: "hangzhou"}, Revision: 5, Raw: []byte(`{"status":[]}`),
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if pools != nil {
					pools.wake = make(chan struct{}) // of this bubble
				}
				services := newScript(serviceType, 900, service(t, "web", 600, "openyurt.io/nodepool"))
				r := start(t, services, pools)
				if !r.complete.Get() {
					t.Fatal("not complete")
				}
				r.expect(1, "self")
				if pools == nil {
					return
				}
				pools.mu.Lock()
				pools.err = nil
				pools.snapshot = stream.Snapshot{Type: poolType, Revision: 1500, Objects: []stream.Object{nodePool(1400, "n2")}}
				pools.mu.Unlock()
				pools.breakOff(stream.ErrExpired, pools.snapshot)
				time.Sleep(time.Minute)
				r.expect(2, "self", "mate")
			})
		})
	}
}

func TestTopologySurvivesItsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services := newScript(serviceType, 900)
		services.err = stream.ErrNotReady
		r := start(t, services, newScript(poolType, 950, nodePool(800, "n1", "n2")))
		time.Sleep(10 * time.Minute)
		if r.complete.Get() {
			t.Fatal("complete without Services")
		}
		services.mu.Lock()
		services.err = nil
		services.snapshot.Objects = []stream.Object{service(t, "web", 600, "kubernetes.io/hostname")}
		services.mu.Unlock()
		time.Sleep(time.Minute)
		r.expect(1, "self")

		services.breakOff(io.EOF, services.snapshot)
		services.tell(stream.Modified, service(t, "web", 960, "openyurt.io/nodepool"))
		time.Sleep(time.Minute)
		r.expect(2, "self", "mate")

		// What a new snapshot has not changed makes no other look; what it lacks is gone.
		same := stream.Snapshot{Type: serviceType, Revision: 1100, Objects: []stream.Object{
			service(t, "web", 1090, "openyurt.io/nodepool"),
		}}
		services.breakOff(stream.ErrExpired, same)
		time.Sleep(time.Minute)
		r.expect(2, "self", "mate")
		services.breakOff(stream.ErrExpired, stream.Snapshot{Type: serviceType, Revision: 1200})
		time.Sleep(time.Minute)
		r.expect(3, everyone...)

		// A Service that cannot be read keeps what it had.
		services.tell(stream.Added, service(t, "web", 1210, "kubernetes.io/hostname"))
		time.Sleep(time.Minute)
		r.expect(4, "self")
		bad := service(t, "web", 1220, "")
		bad.Raw = []byte("\x0a\xffgarbage")
		services.tell(stream.Modified, bad)
		time.Sleep(time.Minute)
		r.expect(4, "self")
		if services.watches > 20 {
			t.Errorf("%d watches: it does not pause", services.watches)
		}
	})
}

func BenchmarkShow(b *testing.B) {
	var fifty []place
	for i := range 50 {
		fifty = append(fifty, place{fmt.Sprintf("10.0.%d.%d", i, i), fmt.Sprintf("n%d", i), "z1"})
	}
	typ := stream.Type{GroupVersionKind: sliceKind, Encoding: stream.Protobuf}
	o := sliceOf(b, 100, fifty...)
	for name, services := range map[string]map[stream.Key]scope{
		"no topology anywhere":      nil,
		"of another Service":        {{Name: "x"}: onNode},
		"of this Service, filtered": {{Namespace: "ns", Name: "web"}: inPool},
	} {
		s := &state{services: services, nodes: nodeSet{"n1": {}, "n2": {}}}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.show(typ, o)
			}
		})
	}
	b.Run("decoded and encoded, for comparison", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var s discoveryv1.EndpointSlice
			decode(b, o.Raw, &s)
			s.Endpoints = s.Endpoints[:2]
			encode(b, &s)
		}
	})
}
