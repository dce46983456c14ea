package filter

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Master shows the cluster's own Service, kubernetes in namespace default, at another address: the hub's. kubelet, which
// tells Pods by environment variables where the API server is, then sends them there. A replica.View of Services.
type Master struct {
	address netip.Addr
	port    int32
}

// NewMaster returns the view that shows the Service at an address and port.
func NewMaster(address string, port int) (*Master, error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("address of the master service: %w", err)
	}
	return &Master{a.Unmap(), int32(port)}, nil
}

var masterService = stream.Key{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// Epoch implements replica.View. It never changes.
func (m *Master) Epoch() (uint64, <-chan struct{}) { return 0, nil }

// Show implements replica.View. What cannot be read is shown as it came.
func (m *Master) Show(t stream.Type, o stream.Object, _ edge.Revision) (stream.Object, bool) {
	if o.Key != masterService || t.Kind != "Service" || t.Group != corev1.GroupName {
		return o, true
	}
	s := &corev1.Service{}
	if t.Encoding == stream.Protobuf {
		if err := s.Unmarshal(o.Raw); err != nil {
			return o, true
		}
		m.redirect(s)
		if raw, err := s.Marshal(); err == nil {
			o.Raw = raw
		}
		return o, true
	}
	if err := json.Unmarshal(o.Raw, s); err != nil {
		return o, true
	}
	m.redirect(s)
	if raw, err := json.Marshal(s); err == nil {
		o.Raw = raw
	}
	return o, true
}

func (m *Master) redirect(s *corev1.Service) {
	s.Spec.ClusterIP, s.Spec.ClusterIPs = m.address.String(), []string{m.address.String()}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	if m.address.Is6() {
		s.Spec.IPFamilies[0] = corev1.IPv6Protocol
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Name == "https" || len(s.Spec.Ports) == 1 {
			p.Port = m.port
		}
	}
}
