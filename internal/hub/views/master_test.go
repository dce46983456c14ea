package views

import (
	"bytes"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/stream"
)

func kubernetesService() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", UID: "u", ResourceVersion: "7"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "https", Port: 443}, {Name: "other", Port: 9}},
		},
	}
}

func TestMasterServiceIsTheHub(t *testing.T) {
	for address, family := range map[string]corev1.IPFamily{
		"10.0.0.7": corev1.IPv4Protocol, "fd00::7": corev1.IPv6Protocol, "::ffff:10.0.0.7": corev1.IPv4Protocol,
	} {
		m, _ := NewMaster(netip.AddrPortFrom(netip.MustParseAddr(address), 10268)).looks.Watch()
		raw := encode(t, kubernetesService())
		before := bytes.Clone(raw)
		in := stream.Object{Key: stream.Key{Namespace: "default", Name: "kubernetes"}, Revision: 7, Raw: raw}
		out, visible := m.Show(serviceType, in)
		got := &corev1.Service{}
		decode(t, out, got)
		want := kubernetesService()
		ip := m.at.Addr().String()
		want.Spec.ClusterIP, want.Spec.ClusterIPs, want.Spec.IPFamilies = ip, []string{ip}, []corev1.IPFamily{family}
		want.Spec.Ports[0].Port = 10268
		if !visible || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%+v\nwant\n%+v", address, got, want)
		}
		if !bytes.Equal(in.Raw, before) {
			t.Error("the replica's own copy was changed")
		}
		for _, other := range []stream.Object{
			{Key: stream.Key{Namespace: "default", Name: "web"}, Raw: raw},
			{Key: stream.Key{Namespace: "mine", Name: "kubernetes"}, Raw: raw},
			{Key: masterService, Raw: []byte("\x00rubbish")},
		} {
			if shown, visible := m.Show(serviceType, other); !visible || !bytes.Equal(shown, other.Raw) {
				t.Errorf("%v is shown as another", other.Key)
			}
		}
	}
}

// TestMasterServiceMoves: while nobody knows where Pods find the hub, the Service is the cloud's.
func TestMasterServiceMoves(t *testing.T) {
	raw := encode(t, kubernetesService())
	m := NewMaster(netip.AddrPort{})
	for _, at := range []string{"", "10.0.0.7:10268", "10.0.0.8:10268", ""} {
		to, want := netip.AddrPort{}, "10.96.0.1:443"
		if at != "" {
			to, want = netip.MustParseAddrPort(at), at
		}
		_, changed := m.Look()
		moves := m.looks.Get() != master{to}
		m.Move(to)
		select {
		case <-changed:
		default:
			if moves {
				t.Errorf("%s: who watches the Service is not told", at)
			}
		}
		look, _ := m.Look()
		shown, visible := look.Show(serviceType, stream.Object{Key: masterService, Revision: 7, Raw: raw})
		got := &corev1.Service{}
		decode(t, shown, got)
		if at := net.JoinHostPort(got.Spec.ClusterIP, strconv.Itoa(int(got.Spec.Ports[0].Port))); !visible || at != want {
			t.Errorf("it is shown at %s, want %s", at, want)
		}
	}
}
