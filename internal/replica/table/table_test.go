package table_test

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/replica/table"
)

func addresses(n int) []corev1.EndpointAddress {
	all := []string{"10.0.0.1", "10.0.0.2", "fd00::1", "10.0.0.4", "10.0.0.5"}
	var got []corev1.EndpointAddress
	for _, a := range all[:n] {
		got = append(got, corev1.EndpointAddress{IP: a})
	}
	return got
}

func TestCells(t *testing.T) {
	now := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)
	m := metav1.ObjectMeta{Name: "x", CreationTimestamp: metav1.NewTime(now.Add(-3 * time.Hour))}
	slice, endpoints := discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), corev1.SchemeGroupVersion.WithKind("Endpoints")
	service := corev1.SchemeGroupVersion.WithKind("Service")
	for _, test := range []struct {
		name string
		kind schema.GroupVersionKind
		o    runtime.Object
		want []any
	}{
		{"empty slice", slice, &discoveryv1.EndpointSlice{AddressType: "IPv4"}, []any{"x", "IPv4", "<unset>", "<unset>", "3h"}},
		{"ports", slice, &discoveryv1.EndpointSlice{
			AddressType: "IPv6",
			Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}, {Name: ptr.To("http")}, {}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"a", "b"}}, {Addresses: []string{"c"}}},
		}, []any{"x", "IPv6", "80,http,*", "a,b,c", "3h"}},
		{"more", slice, &discoveryv1.EndpointSlice{
			Ports:     []discoveryv1.EndpointPort{{}, {}, {}, {}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"a", "b"}}, {Addresses: []string{"c", "d", "e"}}},
		}, []any{"x", "", "*,*,* + 1 more...", "a,b,c + 2 more...", "3h"}},
		{"no endpoints", endpoints, &corev1.Endpoints{}, []any{"x", "<none>", "3h"}},
		{"none that are ready", endpoints, &corev1.Endpoints{
			Subsets: []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Port: 1}}}},
		}, []any{"x", "", "3h"}},
		{"headless", endpoints, &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: addresses(2)}}},
			[]any{"x", "10.0.0.1,10.0.0.2", "3h"}},
		{"two ports", endpoints, &corev1.Endpoints{Subsets: []corev1.EndpointSubset{
			{Addresses: addresses(3), Ports: []corev1.EndpointPort{{Port: 80}, {Port: 443}}},
		}}, []any{"x", "10.0.0.1:80,10.0.0.2:80,[fd00::1]:80 + 3 more...", "3h"}},
		{"cluster IP", service, &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIPs: []string{"10.96.0.1", "fd00::1"}, ClusterIP: "10.96.0.1",
			Ports:    []corev1.ServicePort{{Port: 53, Protocol: "UDP"}, {Port: 53, Protocol: "TCP", NodePort: 30053}},
			Selector: map[string]string{"b": "2", "a": "1"},
		}}, []any{"x", "ClusterIP", "10.96.0.1", "<none>", "53/UDP,53:30053/TCP", "3h", "a=1,b=2"}},
		{"external", service, &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "example.org",
		}}, []any{"x", "ExternalName", "<none>", "example.org", "<none>", "3h", "<none>"}},
		{"pending", service, &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{"None"},
		}}, []any{"x", "LoadBalancer", "None", "<pending>", "<none>", "3h", "<none>"}},
		{"balanced", service, &corev1.Service{
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ExternalIPs: []string{"9.9.9.9"}},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
				{Hostname: "lb.example.org"}, {IP: "1.2.3.4"}, {IP: "1.2.3.4", Hostname: "other"},
			}}},
		}, []any{"x", "LoadBalancer", "<none>", "1.2.3.4,lb.example.org,9.9.9.9", "<none>", "3h", "<none>"}},
		{"node port", service, &corev1.Service{Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ExternalIPs: []string{"1.1.1.1", "2.2.2.2"},
		}}, []any{"x", "NodePort", "<none>", "1.1.1.1,2.2.2.2", "<none>", "3h", "<none>"}},
		{"anything else", schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"}, nil,
			[]any{"x", "2024-01-02T00:04:05Z"}},
	} {
		c := table.For(test.kind)
		got, err := c.Cells(&m, test.o, now)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q %v, want %q", test.name, got, err, test.want)
		}
		if len(got) != len(c.Definitions) {
			t.Errorf("%s: %d cells for %d columns", test.name, len(got), len(c.Definitions))
		}
	}
}

func TestCellsOfAnotherKind(t *testing.T) {
	c := table.For(corev1.SchemeGroupVersion.WithKind("Service"))
	if cells, err := c.Cells(&metav1.ObjectMeta{}, &corev1.Pod{}, time.Time{}); err == nil {
		t.Errorf("%v of a Pod, want an error", cells)
	}
}
