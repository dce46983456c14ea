package coordinator

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
)

// TestPlaceOnTheLAN: hubs are told the address that an administrator says; the certificate is for the others, too.
func TestPlaceOnTheLAN(t *testing.T) {
	for _, tt := range []struct {
		said, host string
		want       []string
		server     string
	}{
		{"", "10.0.0.7", []string{"10.0.0.7"}, "https://10.0.0.7:10270"},
		{"192.168.7.11", "10.0.0.7", []string{"192.168.7.11", "10.0.0.7"},
			"https://192.168.7.11:10270"},
		{"fd00::11,192.168.7.11", "10.0.0.7", []string{"fd00::11", "192.168.7.11", "10.0.0.7"},
			"https://[fd00::11]:10270"},
		{"10.0.0.7", "10.0.0.7", []string{"10.0.0.7"}, "https://10.0.0.7:10270"},
		{"127.0.0.1", "10.0.0.7", []string{"10.0.0.7"}, "https://10.0.0.7:10270"},
		{"192.168.7.11", "", []string{"192.168.7.11", "10.0.0.7"}, "https://192.168.7.11:10270"},
	} {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1",
			Annotations: map[string]string{edge.AnnotationLANAddress: tt.said}}}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}}
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{HostIP: tt.host}}
		got := placeOf(pod, &node)
		if !slices.Equal(got.Addresses, tt.want) || got.server() != tt.server {
			t.Errorf("%q on %q: %v, %s; want %v, %s", tt.said, tt.host, got.Addresses, got.server(), tt.want, tt.server)
		}
		other := node.DeepCopy()
		other.Annotations[edge.AnnotationLANAddress] = "192.168.7.99"
		if !nodeChanged(&node, other) {
			t.Error("a change of the annotation goes unnoticed")
		}
		held := node.DeepCopy()
		held.Status.Conditions = []corev1.NodeCondition{
			{Type: edge.ConditionEvictionsHeld, Status: corev1.ConditionTrue, Message: "until tomorrow"},
		}
		if !nodeChanged(&node, held) {
			t.Error("the beginning of a hold goes unnoticed")
		}
	}
}

// TestPlaceOfBothFamilies: of a node's two InternalIPs hubs are told the one that the coordinator binds, in whatever order its
// status has them; the certificate is for both.
func TestPlaceOfBothFamilies(t *testing.T) {
	for _, tt := range []struct {
		said, host, server string
		internal, want     []string
	}{
		{"", "10.0.0.7", "https://10.0.0.7:10270", []string{"10.0.0.7", "fd00::7"}, []string{"10.0.0.7", "fd00::7"}},
		{"", "10.0.0.7", "https://10.0.0.7:10270", []string{"fd00::7", "10.0.0.7"}, []string{"10.0.0.7", "fd00::7"}},
		{"", "fd00::7", "https://[fd00::7]:10270", []string{"10.0.0.7", "fd00::7"}, []string{"fd00::7", "10.0.0.7"}},
		{"fd00::7", "10.0.0.7", "https://[fd00::7]:10270", []string{"10.0.0.7", "fd00::7"}, []string{"fd00::7", "10.0.0.7"}},
	} {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1",
			Annotations: map[string]string{edge.AnnotationLANAddress: tt.said}}}
		for _, address := range tt.internal {
			node.Status.Addresses = append(node.Status.Addresses,
				corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
		}
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{HostIP: tt.host}}
		got := placeOf(pod, &node)
		if !slices.Equal(got.Addresses, tt.want) || got.server() != tt.server {
			t.Errorf("%q on %v: %v, %s; want %v, %s", tt.said, tt.internal, got.Addresses, got.server(), tt.want, tt.server)
		}
	}
}

// TestWhereACoordinatorMayBe: at the addresses at which the pool's nodes are told to be reached, each once, in order.
func TestWhereACoordinatorMayBe(t *testing.T) {
	node := func(said string, addresses ...corev1.NodeAddress) corev1.Node {
		return corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{edge.AnnotationLANAddress: said}},
			Status:     corev1.NodeStatus{Addresses: addresses},
		}
	}
	internal := func(address string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
	}
	nodes := []corev1.Node{
		node("", internal("10.0.0.9"), internal("fd00::9"), corev1.NodeAddress{Type: corev1.NodeHostName, Address: "n9"}),
		node("", corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.1"}),
		node("192.168.7.8,fd00::8", internal("10.0.0.8")),
		node("nonsense", internal("10.0.0.7")),
		node("", internal("10.0.0.9")),
	}
	want := []string{"10.0.0.7", "10.0.0.9", "192.168.7.8", "fd00::8", "fd00::9"}
	if got := addressesOf(nodes); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := addressesOf(nil); len(got) != 0 {
		t.Errorf("without nodes: %v", got)
	}
}
