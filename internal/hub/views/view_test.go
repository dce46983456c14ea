package views

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/replica/viewtest"
	"yurtcoordinator/internal/stream"
)

// dice makes random objects and knowledge of five Pods on three nodes.
type dice struct{ *rand.Rand }

func (d dice) pod() (name string, node edge.NodeName) {
	n := d.IntN(5)
	return string(rune('a' + n)), edge.NodeName(fmt.Sprint("n", n%3+1))
}

func (d dice) uid(name string) string {
	if d.IntN(6) == 0 {
		return "another"
	}
	return "uid-" + name
}

func (d dice) ip() string { return fmt.Sprint("10.0.0.", 1+d.IntN(3)) }

func (d dice) known() *Known {
	k := &Known{
		Node: "n1", Pods: map[stream.Key]*KnownPod{}, Silent: map[edge.NodeName]struct{}{}, Unready: map[stream.Key]struct{}{},
	}
	for range d.IntN(6) {
		name, node := d.pod()
		k.Pods[key(name)] = d.about(name, node)
	}
	for n := range 3 {
		if d.IntN(4) == 0 {
			k.Silent[edge.NodeName(fmt.Sprint("n", n+1))] = struct{}{}
		}
	}
	if d.IntN(4) == 0 {
		k.Unready[web] = struct{}{}
	}
	if d.IntN(3) == 0 {
		k.OwnAsOf = edge.Revision(d.IntN(200))
	}
	return k
}

func (d dice) about(name string, node edge.NodeName) *KnownPod {
	p := &KnownPod{
		Key: key(name), UID: d.uid(name), Node: node, Revision: edge.Revision(d.IntN(200)), Firm: d.IntN(2) == 0,
		Ready: d.IntN(2) == 0, Terminating: d.IntN(4) == 0, Finished: d.IntN(6) == 0,
	}
	for range d.IntN(3) {
		p.IPs = append(p.IPs, netip.MustParseAddr([]string{d.ip(), "fd00::1"}[min(len(p.IPs), 1)]))
	}
	return p
}

func (d dice) endpoints() (all []at) {
	for range d.IntN(6) {
		name, node := d.pod()
		all = append(all, at{
			pod: name, uid: d.uid(name), node: string(node), ip: d.ip(),
			conditions: []string{"rs-t", "-r-s-t", "-rst", "-r-st", "rst", "", "r", "-r"}[d.IntN(8)],
		})
	}
	return all
}

// model says in the plainest way what becomes of an endpoint; nil means that it is gone.
func model(k *Known, r edge.Revision, e discoveryv1.Endpoint) *discoveryv1.Endpoint {
	is := ptr.Deref[bool]
	c := e.Conditions
	ready := is(c.Ready, true)
	serving, terminating := is(c.Serving, ready), is(c.Terminating, false)
	node := edge.NodeName(*e.NodeName)
	var about *KnownPod
	there := false
	for at, p := range k.Pods {
		if at.Name == e.TargetRef.Name && p.UID == string(e.TargetRef.UID) {
			there = true
			if p.Node == node && (p.Firm || p.Revision > r) {
				about = p
			}
		}
	}
	_, silent := k.Silent[node]
	_, tolerant := k.Unready[web]
	if about == nil && !there && node == k.Node && k.OwnAsOf > 0 && k.OwnAsOf >= r {
		return nil
	}
	if about == nil && !silent {
		return &e
	}
	address := e.Addresses
	if about != nil {
		address = nil
		for _, ip := range about.IPs {
			if ip.Is4() {
				address = []string{ip.String()}
			}
		}
		if about.Finished || address == nil {
			return nil
		}
		serving, terminating = about.Ready, terminating || about.Terminating
	}
	serving = serving && !silent
	becomes := tolerant || serving && !terminating
	now := e.DeepCopy()
	now.Addresses = address
	if is(c.Ready, true) != becomes || is(c.Serving, ready) != serving || is(c.Terminating, false) != terminating ||
		!slices.Equal(address, e.Addresses) {
		now.Conditions = discoveryv1.EndpointConditions{Ready: &becomes, Serving: &serving, Terminating: &terminating}
	}
	return now
}

// TestModel compares what is shown, one look after another, with a model that knows no bytes and remembers nothing.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		d := dice{rand.New(rand.NewPCG(seed, 48))}
		view := NewEndpointsView()
		known := d.known()
		view.Set(known)
		objects := map[string]*discoveryv1.EndpointSlice{}
		raws := map[string][]byte{}
		for step := range 60 {
			switch d.IntN(4) {
			case 0:
				known = d.known()
				view.Set(known)
			case 1: // what is known of one Pod
				name, node := d.pod()
				next := *known
				next.Pods = maps.Clone(known.Pods)
				if d.IntN(4) == 0 {
					delete(next.Pods, key(name))
				} else {
					next.Pods[key(name)] = d.about(name, node)
				}
				known = &next
				view.Set(known)
			default:
				name := fmt.Sprint("web-", d.IntN(4))
				s := knownSlice(edge.Revision(1+d.IntN(200)), d.endpoints()...)
				s.Name = name
				objects[name], raws[name] = s, encode(t, s)
			}
			look, _ := view.Look()
			for name, s := range objects {
				revision, err := edge.ParseRevision(s.ResourceVersion)
				if err != nil {
					t.Fatal(err)
				}
				before := bytes.Clone(raws[name])
				raw, _ := look.Show(typeOf(sliceKind),
					stream.Object{Key: key(name), Revision: revision, Raw: raws[name]})
				var got, want discoveryv1.EndpointSlice
				decode(t, raw, &got)
				decode(t, raws[name], &want)
				all := want.Endpoints
				want.Endpoints = nil
				for _, each := range all {
					if now := model(known, revision, each); now != nil {
						want.Endpoints = append(want.Endpoints, *now)
					}
				}
				if !equality.Semantic.DeepEqual(got, want) || !bytes.Equal(before, raws[name]) {
					t.Fatalf("seed %d, step %d: shown %q, want %q", seed, step, sliceText(&got), sliceText(&want))
				}
			}
		}
	}
}

func TestConforms(t *testing.T) {
	for _, kind := range []schema.GroupVersionKind{sliceKind, endpointsKind} {
		t.Run(kind.Kind, func(t *testing.T) {
			viewtest.Run(t, func(t *testing.T) viewtest.Subject { return subject(t, kind) })
		})
	}
}

func subject(t *testing.T, kind schema.GroupVersionKind) viewtest.Subject {
	var current *Known
	var views []*EndpointsView
	return viewtest.Subject{
		Resource: schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "endpointslices"},
		Type:     typeOf(kind),
		Keys:     []stream.Key{web, key("web-1"), key("web-2")},
		View: func() replica.View {
			v := NewEndpointsView()
			v.Set(current)
			views = append(views, v)
			return v
		},
		Turn: func(random *rand.Rand) {
			if current = (dice{random}).known(); random.IntN(5) == 0 {
				current = nil
			}
			for _, v := range views {
				v.Set(current)
			}
		},
		Make: func(random *rand.Rand, k stream.Key, revision edge.Revision) stream.Object {
			s := knownSlice(revision, dice{random}.endpoints()...)
			s.Name = k.Name
			var m message = s
			if kind == endpointsKind {
				o := knownEndpoints(revision, dice{random}.endpoints()...)
				o.Name = k.Name
				m = o
			}
			return stream.Object{Key: k, Revision: revision, Raw: encode(t, m)}
		},
	}
}

// TestWhatNothingChanged shows a look that is told what it knows already.
func TestWhatNothingChanged(t *testing.T) {
	view := NewEndpointsView()
	_, over := view.Look()
	view.Set(nil)
	k := dice{rand.New(rand.NewPCG(1, 1))}.known()
	select {
	case <-over:
		t.Error("nothing is known, as before, and it is another look")
	default:
	}
	view.Set(k)
	_, over = view.Look()
	again := *k
	again.Pods = maps.Clone(k.Pods)
	view.Set(&again)
	select {
	case <-over:
		t.Error("the same is known, and it is another look")
	default:
	}
	view.Set(nil)
	<-over
}

func TestChanged(t *testing.T) {
	view := NewEndpointsView()
	typ := typeOf(sliceKind)
	view.Set(&Known{Silent: map[edge.NodeName]struct{}{"n2": {}}})
	for i, node := range []string{"n1", "n2"} {
		s := knownSlice(100, at{pod: "a", node: node, ip: "10.0.0.1", conditions: "rs-t"})
		look, _ := view.Look()
		look.Show(typ, stream.Object{Key: key(fmt.Sprint(i)), Revision: 100, Raw: encode(t, s)})
	}
	if n := view.Changed(); n != 1 {
		t.Errorf("%d objects are shown in another form, want 1", n)
	}
	if view.Set(nil); view.Changed() != 0 {
		t.Error("some still are, without a cut")
	}
}

func FuzzShow(f *testing.F) {
	k := dice{rand.New(rand.NewPCG(3, 3))}.known()
	k.Silent["n2"] = struct{}{}
	d := dice{rand.New(rand.NewPCG(5, 5))}
	f.Add(true, encode(f, knownSlice(100, d.endpoints()...)))
	f.Add(false, encode(f, knownEndpoints(100, d.endpoints()...)))
	f.Fuzz(func(t *testing.T, slice bool, raw []byte) {
		kind, into := endpointsKind, message(&corev1.Endpoints{})
		if slice {
			kind, into = sliceKind, &discoveryv1.EndpointSlice{}
		}
		before := bytes.Clone(raw)
		shown, _ := k.show(typeOf(kind), stream.Object{Key: web, Revision: 100, Raw: raw})
		if !bytes.Equal(raw, before) {
			t.Fatal("the object itself was changed")
		}
		if into.Unmarshal(raw) == nil && into.Unmarshal(shown) != nil {
			t.Fatal("what could be read can't be read as it is shown")
		}
	})
}

// site is 1000 slices of 50 endpoints, of 1000 Pods on 20 nodes: each Pod is in 50 of them.
func site(b *testing.B) (typ stream.Type, objects []stream.Object, k *Known) {
	k = &Known{Node: "n0", OwnAsOf: 1, Pods: map[stream.Key]*KnownPod{}}
	for i := range 1000 {
		name := fmt.Sprint("pod-", i)
		k.Pods[key(name)] = &KnownPod{
			Key: key(name), UID: "uid-" + name, Node: edge.NodeName(fmt.Sprint("n", i%20)), Revision: 10, Firm: true, Ready: true,
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})},
		}
	}
	for s := range 1000 {
		var all []at
		for j := range 50 {
			i := (s + j*20) % 1000
			name := fmt.Sprint("pod-", i)
			ip := k.Pods[key(name)].IPs[0].String()
			all = append(all, at{pod: name, node: fmt.Sprint("n", i%20), ip: ip, conditions: "rs-t"})
		}
		o := knownSlice(100, all...)
		o.Name = fmt.Sprint("web-", s)
		objects = append(objects, stream.Object{Key: key(o.Name), Revision: 100, Raw: encode(b, o)})
	}
	return typeOf(sliceKind), objects, k
}

// BenchmarkUnchanged shows 1000 unchanged slices of 50 endpoints again: the cost of a change elsewhere, of a list, and of each
// event of another slice.
func BenchmarkUnchanged(b *testing.B) {
	typ, objects, k := site(b)
	view := NewEndpointsView()
	view.Set(k)
	showAll(view, typ, objects)
	for b.Loop() {
		showAll(view, typ, objects)
	}
}

// BenchmarkChange makes one Pod of 1000 not ready, or ready, and shows all 1000 slices: 50 of them have that Pod.
func BenchmarkChange(b *testing.B) {
	typ, objects, k := site(b)
	view := NewEndpointsView()
	view.Set(k)
	showAll(view, typ, objects)
	for b.Loop() {
		next := *k
		next.Pods = maps.Clone(k.Pods)
		p := *k.Pods[key("pod-7")]
		p.Ready = !p.Ready
		next.Pods[key("pod-7")] = &p
		k = &next
		view.Set(k)
		showAll(view, typ, objects)
	}
}

// BenchmarkFirst shows all 1000 slices for the first time in a cut.
func BenchmarkFirst(b *testing.B) {
	typ, objects, k := site(b)
	for b.Loop() {
		view := NewEndpointsView()
		view.Set(k)
		showAll(view, typ, objects)
	}
}

func showAll(view *EndpointsView, typ stream.Type, objects []stream.Object) {
	look, _ := view.Look()
	for _, o := range objects {
		look.Show(typ, o)
	}
}
