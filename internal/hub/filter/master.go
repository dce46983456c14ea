package filter

import (
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// Master shows the Service default/kubernetes at the hub's address. kubelet tells Pods by environment variables where the
// API server is, and so sends them to the hub. Master is a replica.View of Services.
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

// Look implements replica.View. It never changes.
func (m *Master) Look() (replica.Look, <-chan struct{}) { return m, nil }

// Show implements replica.Look. It shows an object that it can't read unchanged.
func (m *Master) Show(t stream.Type, o stream.Object) ([]byte, bool) {
	if o.Key != masterService || t.Kind != "Service" || t.Group != corev1.GroupName {
		return o.Raw, true
	}
	s := &corev1.Service{}
	read, write := s.Unmarshal, s.Marshal
	if t.Encoding == stream.JSON {
		read, write = func(raw []byte) error { return json.Unmarshal(raw, s) }, func() ([]byte, error) { return json.Marshal(s) }
	}
	if err := read(o.Raw); err != nil {
		return o.Raw, true
	}
	m.redirect(s)
	raw, err := write()
	if err != nil {
		return o.Raw, true
	}
	return raw, true
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
