package views

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

var web = stream.Key{Namespace: "ns", Name: "web"}

func typeOf(kind schema.GroupVersionKind) stream.Type {
	return stream.Type{GroupVersionKind: kind, Encoding: stream.Protobuf}
}

func key(pod string) stream.Key { return stream.Key{Namespace: "ns", Name: pod} }

func ips(all ...string) (parsed []netip.Addr) {
	for _, ip := range all {
		parsed = append(parsed, netip.MustParseAddr(ip))
	}
	return parsed
}

// at is an endpoint: a Pod "a" has the UID "uid-a", unless it is told otherwise.
type at struct {
	pod, uid, node, ip string
	conditions         string // of r, s, t; "-" before one means that it is false; without it is missing
}

func (a at) reference() *corev1.ObjectReference {
	if a.pod == "" {
		return nil
	}
	uid := a.uid
	if uid == "" {
		uid = "uid-" + a.pod
	}
	return &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: a.pod, UID: types.UID(uid)}
}

func condition(all, name string) *bool {
	i := strings.Index(all, name)
	if i < 0 {
		return nil
	}
	return ptr.To(i == 0 || all[i-1] != '-')
}

func objectMeta(name string, r edge.Revision) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "ns", Name: name, ResourceVersion: r.String(),
		Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: managedBy},
	}
}

func knownSlice(r edge.Revision, all ...at) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: objectMeta("web-1", r), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
	}
	for _, a := range all {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: strings.Split(a.ip, " "), TargetRef: a.reference(), NodeName: ptr.To(a.node), Zone: ptr.To("z"),
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}},
			Conditions: discoveryv1.EndpointConditions{
				Ready: condition(a.conditions, "r"), Serving: condition(a.conditions, "s"),
				Terminating: condition(a.conditions, "t"),
			},
		})
	}
	return s
}

// knownEndpoints returns Endpoints of one subset with all.
func knownEndpoints(r edge.Revision, all ...at) *corev1.Endpoints {
	o := &corev1.Endpoints{ObjectMeta: objectMeta("web", r)}
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Port: 80}}}
	for _, a := range all {
		address := corev1.EndpointAddress{IP: a.ip, TargetRef: a.reference(), NodeName: ptr.To(a.node), Hostname: "h"}
		if ready := condition(a.conditions, "r"); ready == nil || *ready {
			s.Addresses = append(s.Addresses, address)
		} else {
			s.NotReadyAddresses = append(s.NotReadyAddresses, address)
		}
	}
	if len(all) > 0 {
		o.Subsets = append(o.Subsets, s)
	}
	return o
}

// sliceText is a slice as text: "name ip conditions".
func sliceText(s *discoveryv1.EndpointSlice) (all []string) {
	for _, e := range s.Endpoints {
		flag := func(name string, value *bool) string {
			switch {
			case value == nil:
				return ""
			case *value:
				return name
			}
			return "-" + name
		}
		name := ""
		if e.TargetRef != nil {
			name = e.TargetRef.Name
		}
		all = append(all, fmt.Sprint(name, " ", strings.Join(e.Addresses, " "), " ",
			flag("r", e.Conditions.Ready)+flag("s", e.Conditions.Serving)+flag("t", e.Conditions.Terminating)))
	}
	return all
}

// saidOf is Endpoints as text: "name ip r" or "name ip -r".
func saidOf(o *corev1.Endpoints) (all []string) {
	for _, s := range o.Subsets {
		for _, a := range s.Addresses {
			all = append(all, a.TargetRef.Name+" "+a.IP+" r")
		}
		for _, a := range s.NotReadyAddresses {
			all = append(all, a.TargetRef.Name+" "+a.IP+" -r")
		}
	}
	return all
}

func TestEndpointsShow(t *testing.T) {
	// The object is of revision 100. What is known of a Pod is of revision 50 and firm, unless it says otherwise.
	known := func(change ...func(*Known)) *Known {
		k := &Known{Node: "n1", Pods: map[stream.Key]*KnownPod{}}
		for _, c := range change {
			c(k)
		}
		return k
	}
	pod := func(name string, p KnownPod) func(*Known) {
		return func(k *Known) {
			if p.UID == "" {
				p.UID = "uid-" + name
			}
			if p.Node == "" {
				p.Node = "n2"
			}
			if p.Revision == 0 {
				p.Revision, p.Firm = 50, true
			}
			p.Key = key(name)
			k.Pods[key(name)] = &p
		}
	}
	silent := func(node edge.NodeName) func(*Known) {
		return func(k *Known) { k.Silent = map[edge.NodeName]struct{}{node: {}} }
	}
	tolerant := func(k *Known) { k.Unready = map[stream.Key]struct{}{web: {}} }
	own := func(r edge.Revision) func(*Known) { return func(k *Known) { k.OwnAsOf = r } }
	one := at{pod: "a", node: "n2", ip: "10.0.0.1", conditions: "rs-t"}
	with := func(change func(*at)) at {
		a := one
		change(&a)
		return a
	}
	const asItWas = "as it was"
	for _, c := range []struct {
		name        string
		endpoint    at
		known       *Known
		slice       string
		inEndpoints string // in Endpoints
	}{
		{"nothing is known", one, known(), asItWas, asItWas},
		{"it is as known", one, known(pod("a", KnownPod{IPs: ips("10.0.0.1"), Ready: true})), asItWas, asItWas},
		{"not ready", one, known(pod("a", KnownPod{IPs: ips("10.0.0.1")})), "a 10.0.0.1 -r-s-t", "a 10.0.0.1 -r"},
		{
			"ready again", with(func(a *at) { a.conditions = "-r-s-t" }),
			known(pod("a", KnownPod{IPs: ips("10.0.0.1"), Ready: true})), "a 10.0.0.1 rs-t", "a 10.0.0.1 r",
		},
		{"another address", one, known(pod("a", KnownPod{IPs: ips("10.0.0.9"), Ready: true})), "a 10.0.0.9 rs-t", "a 10.0.0.9 r"},
		{"another address, of another family first", one,
			known(pod("a", KnownPod{IPs: ips("fd00::9", "10.0.0.9"), Ready: true})), "a 10.0.0.9 rs-t", "a 10.0.0.9 r"},
		{"another address of that family", with(func(a *at) { a.ip = "fd00::1" }),
			known(pod("a", KnownPod{IPs: ips("10.0.0.9", "fd00::9"), Ready: true})), "a fd00::9 rs-t", "a fd00::9 r"},
		{"no address of that family", one, known(pod("a", KnownPod{IPs: ips("fd00::9"), Ready: true})), "", ""},
		{"an address that is each client's own", one, known(pod("a", KnownPod{IPs: ips("127.0.0.1"), Ready: true})), "", ""},
		{"and the cloud's metadata", one, known(pod("a", KnownPod{IPs: ips("169.254.169.254", "10.0.0.9"), Ready: true})),
			"a 10.0.0.9 rs-t", "a 10.0.0.9 r"},
		{"no address yet", one, known(pod("a", KnownPod{})), "", ""},
		{"finished", one, known(pod("a", KnownPod{IPs: ips("10.0.0.1"), Ready: true, Finished: true})), "", ""},
		{"finished, of a Service that wants all", one,
			known(tolerant, pod("a", KnownPod{IPs: ips("10.0.0.1"), Ready: true, Finished: true})), "", ""},
		{"being deleted", one, known(pod("a", KnownPod{IPs: ips("10.0.0.1"), Ready: true, Terminating: true})),
			"a 10.0.0.1 -rst", ""},
		{"being deleted, the cloud knows alone", with(func(a *at) { a.conditions = "-rst" }),
			known(pod("a", KnownPod{IPs: ips("10.0.0.1"), Ready: true})), asItWas, "a 10.0.0.1 r"},
		{"being deleted, and not ready any more", with(func(a *at) { a.conditions = "-rst" }),
			known(pod("a", KnownPod{IPs: ips("10.0.0.1")})), "a 10.0.0.1 -r-st", asItWas},
		{"not ready, of a Service that wants all", one, known(tolerant, pod("a", KnownPod{IPs: ips("10.0.0.1")})),
			"a 10.0.0.1 r-s-t", asItWas},
		{"being deleted, of a Service that wants all", one,
			known(tolerant, pod("a", KnownPod{IPs: ips("10.0.0.1"), Terminating: true})), "a 10.0.0.1 r-st", asItWas},
		{"another Pod of that name", with(func(a *at) { a.uid = "another" }), known(pod("a", KnownPod{})), asItWas, asItWas},
		{"the Pod is said to be on another node", one, known(pod("a", KnownPod{Node: "n3"})), asItWas, asItWas},
		{"the object is newer than what is known", one, known(pod("a", KnownPod{Revision: 99})), asItWas, asItWas},
		{"and as new", one, known(pod("a", KnownPod{Revision: 100})), asItWas, asItWas},
		{"and older", one, known(pod("a", KnownPod{Revision: 101, IPs: ips("10.0.0.1")})), "a 10.0.0.1 -r-s-t", "a 10.0.0.1 -r"},
		{"no conditions", with(func(a *at) { a.conditions = "" }),
			known(pod("a", KnownPod{IPs: ips("10.0.0.1"), Ready: true})), asItWas, asItWas},
		{"no conditions, not ready", with(func(a *at) { a.conditions = "" }), known(pod("a", KnownPod{IPs: ips("10.0.0.1")})),
			"a 10.0.0.1 -r-s-t", "a 10.0.0.1 -r"},

		{"a silent node", one, known(silent("n2")), "a 10.0.0.1 -r-s-t", "a 10.0.0.1 -r"},
		{"another silent node", one, known(silent("n3")), asItWas, asItWas},
		{"a silent node, whose Pod is known to be ready elsewhere", one,
			known(silent("n2"), pod("a", KnownPod{IPs: ips("10.0.0.9"), Ready: true})), "a 10.0.0.9 -r-s-t", "a 10.0.0.9 -r"},
		{"a silent node, of a Service that wants all", one, known(silent("n2"), tolerant), "a 10.0.0.1 r-s-t", asItWas},
		{"a silent node, being deleted", with(func(a *at) { a.conditions = "-rst" }), known(silent("n2")),
			"a 10.0.0.1 -r-st", asItWas},

		{"this node's, and gone", with(func(a *at) { a.node = "n1" }), known(own(100)), "", ""},
		{"this node's, and another of that name is there", with(func(a *at) { a.node = "n1" }),
			known(own(100), pod("a", KnownPod{UID: "another", Node: "n1", IPs: ips("10.0.0.9"), Ready: true})), "", ""},
		{"this node's, and new", with(func(a *at) { a.node = "n1" }), known(own(99)), asItWas, asItWas},
		{"this node's, and nobody knows", with(func(a *at) { a.node = "n1" }), known(), asItWas, asItWas},
		{"another node's, and not known", one, known(own(100)), asItWas, asItWas},

		{"no Pod", with(func(a *at) { a.pod = "" }), known(silent("n2"), own(100)), asItWas, ""},
		{"a name", with(func(a *at) { a.ip = "example.com" }), known(silent("n2"), pod("a", KnownPod{})), asItWas, asItWas},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := knownSlice(100, at{pod: "other", node: "n9", ip: "10.1.0.1", conditions: "rs-t"}, c.endpoint)
			want := []string{"other 10.1.0.1 rs-t", c.slice}
			if c.slice == asItWas {
				want = sliceText(s)
			}
			checkShown(t, c.known, sliceKind, s, slices.DeleteFunc(want, isEmpty), &discoveryv1.EndpointSlice{})
			if c.endpoint.pod == "" {
				return
			}
			o := knownEndpoints(100, at{pod: "other", node: "n9", ip: "10.1.0.1", conditions: "r"}, c.endpoint)
			want = []string{"other 10.1.0.1 r", c.inEndpoints}
			if c.inEndpoints == asItWas {
				want = saidOf(o)
			}
			checkShown(t, c.known, endpointsKind, o, slices.DeleteFunc(want, isEmpty), &corev1.Endpoints{})
		})
	}
}

func isEmpty(s string) bool { return s == "" }

// checkShown compares how an object is shown, and that the rest of it is as it was.
func checkShown(t *testing.T, k *Known, kind schema.GroupVersionKind, o message, want []string, into message) {
	t.Helper()
	raw := encode(t, o)
	before := bytes.Clone(raw)
	at := stream.Object{Key: stream.Key{Namespace: "ns", Name: "web"}, Revision: 100, Raw: raw}
	got, _ := k.show(typeOf(kind), at)
	decode(t, got, into)
	var has, had []string
	switch shown := into.(type) {
	case *discoveryv1.EndpointSlice:
		was := o.(*discoveryv1.EndpointSlice)
		has, had = sliceText(shown), sliceText(was)
		for _, each := range shown.Endpoints {
			if each.Zone == nil || *each.Zone != "z" || each.Hints == nil || each.NodeName == nil {
				t.Errorf("an endpoint lost something: %+v", each)
			}
		}
		rest, wasRest := shown.DeepCopy(), was.DeepCopy()
		rest.Endpoints, wasRest.Endpoints = nil, nil
		if !equality.Semantic.DeepEqual(rest, wasRest) {
			t.Errorf("the rest was changed: %+v", rest)
		}
	case *corev1.Endpoints:
		has, had = saidOf(shown), saidOf(o.(*corev1.Endpoints))
		for _, each := range shown.Subsets {
			if len(each.Ports) != 1 || len(each.Addresses)+len(each.NotReadyAddresses) == 0 {
				t.Errorf("a subset lost its ports, or is empty: %+v", each)
			}
			for _, a := range slices.Concat(each.Addresses, each.NotReadyAddresses) {
				if a.Hostname != "h" || a.NodeName == nil {
					t.Errorf("an address lost something: %+v", a)
				}
			}
		}
	}
	if !slices.Equal(has, want) {
		t.Errorf("%s: shown %q, want %q", kind.Kind, has, want)
	}
	if same := &got[0] == &raw[0]; same != slices.Equal(has, had) {
		t.Errorf("%s: the same bytes: %t, for %q in place of %q", kind.Kind, same, has, had)
	}
	if !bytes.Equal(raw, before) {
		t.Error("the object itself was changed")
	}
}

func TestOthersSlicesStayAsTheyAre(t *testing.T) {
	k := &Known{Silent: map[edge.NodeName]struct{}{"n2": {}}}
	for _, change := range []func(*discoveryv1.EndpointSlice){
		func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "somebody" },
		func(s *discoveryv1.EndpointSlice) { s.Labels = nil },
		func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef = nil },
		func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef.Kind = "Node" },
		func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil },
	} {
		s := knownSlice(100, at{pod: "a", node: "n2", ip: "10.0.0.1", conditions: "rs-t"})
		change(s)
		o := stream.Object{Key: web, Revision: 100, Raw: encode(t, s)}
		if raw, _ := k.show(typeOf(sliceKind), o); &raw[0] != &o.Raw[0] {
			t.Errorf("%+v is shown in another form", s)
		}
	}
}

// Fields of a newer API server come through, of the object and of an endpoint that is shown in another form.
func TestWhatIsNotKnownIsKept(t *testing.T) {
	k := &Known{Silent: map[edge.NodeName]struct{}{"n2": {}}}
	unknown := []byte("\x9a\x06\x03new") // field 99
	one := at{pod: "a", node: "n2", ip: "10.0.0.1", conditions: "rs-t"}
	for kind, o := range map[schema.GroupVersionKind]message{
		sliceKind: knownSlice(100, one), endpointsKind: knownEndpoints(100, one),
	} {
		raw, err := edit.Change(encode(t, o), func(f edit.Field) ([]byte, error) {
			return slices.Concat(f.Value, unknown), nil
		}, edit.SliceEndpoints, edit.EndpointsSubsets)
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, unknown...)
		shown, _ := k.show(typeOf(kind), stream.Object{Key: web, Revision: 100, Raw: raw})
		if bytes.Equal(shown, raw) || bytes.Count(shown, unknown) != 2 {
			t.Errorf("%s: %q is shown as %q", kind.Kind, raw, shown)
		}
	}
}
