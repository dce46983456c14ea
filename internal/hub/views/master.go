package views

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// Master is a replica.View that shows the Service default/kubernetes at the hub's address. kubelet tells Pods that address in
// environment variables, and so sends them to the hub.
type Master struct{ looks *live.Value[master] }

// master is a replica.Look. While the hub's address is unknown, it shows the Service as it is.
type master struct{ at netip.AddrPort }

// NewMaster returns the view that shows the Service at an address and port. An invalid AddrPort shows the Service as it is.
func NewMaster(at netip.AddrPort) *Master {
	m := &Master{live.NewValue(master{})}
	m.Move(at)
	return m
}

// Move changes the address from now on. Watches of the Service report it.
func (m *Master) Move(at netip.AddrPort) {
	m.looks.Set(master{netip.AddrPortFrom(at.Addr().Unmap(), at.Port())})
}

var masterService = stream.Key{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// Look implements replica.View.
func (m *Master) Look() (replica.Look, <-chan struct{}) { return m.looks.Watch() }

// Show implements replica.Look. An object that it can't read stays unchanged.
func (m master) Show(t stream.Type, o stream.Object) ([]byte, bool) {
	if !m.at.IsValid() || o.Key != masterService || t.Kind != "Service" || t.Group != corev1.GroupName {
		return o.Raw, true
	}
	s := &corev1.Service{}
	if err := s.Unmarshal(o.Raw); err != nil {
		return o.Raw, true
	}
	m.redirect(s)
	raw, err := s.Marshal()
	if err != nil {
		return o.Raw, true
	}
	return raw, true
}

func (m master) redirect(s *corev1.Service) {
	s.Spec.ClusterIP, s.Spec.ClusterIPs = m.at.Addr().String(), []string{m.at.Addr().String()}
	s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	if m.at.Addr().Is6() {
		s.Spec.IPFamilies[0] = corev1.IPv6Protocol
	}
	for i := range s.Spec.Ports {
		if p := &s.Spec.Ports[i]; p.Name == "https" || len(s.Spec.Ports) == 1 {
			p.Port = int32(m.at.Port())
		}
	}
}
