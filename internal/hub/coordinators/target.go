package coordinators

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
)

// Place is where one of a pool's coordinators is. The zero Place is none.
type Place struct {
	// Address is IP:PORT.
	Address string `json:"address,omitempty"`
	// Generation is that of its certificate, as far as is known.
	Generation edge.Generation `json:"generation,omitzero"`
}

// Target is where a pool's coordinators are. The zero Target is none.
type Target struct {
	// The coordinator of slot 0.
	Place
	// Others are those of the other slots, in order.
	Others [edge.MaxSlots - 1]Place `json:"others,omitzero"`
	// CA is the PEM bundle that verifies their certificates.
	CA string `json:"ca"`
	// Nodes are addresses of the pool's nodes, one per line, as the cloud said last.
	Nodes string `json:"nodes,omitempty"`
	// KubeletClients are the credential ids of the certificates that they may show to kubelets, one per line.
	KubeletClients string `json:"kubeletClients,omitempty"`
	// Owner and OwnerUID are the name and uid of their YurtCoordinator. Empty means that the ConfigMap has no such owner.
	Owner    string    `json:"owner,omitempty"`
	OwnerUID types.UID `json:"ownerUID,omitempty"`
}

// The type of the object that owns the ConfigMap.
const (
	kindOwner       = "YurtCoordinator"
	apiVersionOwner = "apps.openyurt.io/v1alpha1"
)

// maxClients is the most credential ids that are read, maxNodes the most addresses.
const (
	maxClients = 32
	maxNodes   = 1024
)

// Clients returns the credential ids of the certificates that the coordinators may show to kubelets.
func (t Target) Clients() []string { return strings.Fields(t.KubeletClients) }

// In returns where the coordinator of a slot is.
func (t Target) In(s edge.Slot) Place {
	if s == 0 {
		return t.Place
	}
	return t.Others[s-1]
}

// with returns t with the coordinator of a slot somewhere else.
func (t Target) with(s edge.Slot, p Place) Target {
	if s == 0 {
		t.Place = p
	} else {
		t.Others[s-1] = p
	}
	return t
}

// candidates are where the coordinator of a slot may be that has moved: at an address of each node, at the port of before.
func (t Target) candidates(s edge.Slot) (all []string) {
	was := t.In(s).Address
	_, port, err := net.SplitHostPort(was)
	if err != nil {
		return nil
	}
	for n := range strings.FieldsSeq(t.Nodes) {
		if at := net.JoinHostPort(n, port); at != was {
			all = append(all, at)
		}
	}
	return all
}

// elsewhere reports whether the coordinator of a slot is reached otherwise by u than by t.
func (t Target) elsewhere(u Target, s edge.Slot) bool {
	was, is := t.In(s).Address, u.In(s).Address
	return was != is || is != "" && t.CA != u.CA
}

// Servers returns where the coordinators are, https://IP:PORT, in the order of their slots.
func (t Target) Servers() (all []string) {
	for s := range edge.Slot(edge.MaxSlots) {
		if at := t.In(s).Address; at != "" {
			all = append(all, "https://"+at)
		}
	}
	return all
}

// ownedBy returns t with the YurtCoordinator that owns the ConfigMap.
func (t Target) ownedBy(m *corev1.ConfigMap) Target {
	for _, o := range m.OwnerReferences {
		if o.Kind == kindOwner && o.APIVersion == apiVersionOwner {
			t.Owner, t.OwnerUID = o.Name, o.UID
		}
	}
	return t
}

// IsZero reports whether there is no coordinator.
func (t Target) IsZero() bool { return t == Target{} }

// Read returns what a pool's ConfigMap says, or an error that says what is wrong with it.
func Read(pool edge.PoolName, data map[string]string) (Target, error) {
	if name, want := data[edge.DiscoveryServerName], pool.CoordinatorServerName(); name != want {
		return Target{}, fmt.Errorf("%s is %q, want %q", edge.DiscoveryServerName, name, want)
	}
	t := Target{CA: data[edge.DiscoveryCA]}
	for s := range edge.Slot(edge.MaxSlots) {
		p, err := readPlace(s, data)
		if err != nil {
			return Target{}, err
		}
		t = t.with(s, p)
	}
	ids := strings.Fields(data[edge.DiscoveryClients])
	t.KubeletClients = strings.Join(ids[:min(len(ids), maxClients)], "\n")
	nodes := slices.DeleteFunc(strings.Fields(data[edge.DiscoveryNodes]), func(n string) bool {
		_, err := netip.ParseAddr(n)
		return err != nil
	})
	t.Nodes = strings.Join(nodes[:min(len(nodes), maxNodes)], "\n")
	if err := t.validate(); err != nil {
		return Target{}, err
	}
	return t, nil
}

// readPlace returns where a ConfigMap says that the coordinator of a slot is. It need not say so of each.
func readPlace(s edge.Slot, data map[string]string) (Place, error) {
	said, ok := data[s.ServerKey()]
	if !ok {
		return Place{}, nil
	}
	server, err := url.Parse(said)
	if err != nil || server.Scheme != "https" || server.Port() == "" || (server.Path != "" && server.Path != "/") ||
		server.User != nil || server.RawQuery != "" || server.Fragment != "" {
		return Place{}, fmt.Errorf("%s is %q, want https://IP:PORT", s.ServerKey(), said)
	}
	p := Place{Address: net.JoinHostPort(server.Hostname(), server.Port()), Generation: edge.Generation{Slot: s}}
	if number := data[s.GenerationKey()]; number != "" {
		if p.Generation, err = edge.ParseGeneration(number); err != nil {
			return Place{}, fmt.Errorf("%s: %w", s.GenerationKey(), err)
		}
	}
	return p, nil
}

func (t Target) validate() error {
	some := false
	for s := range edge.Slot(edge.MaxSlots) {
		p := t.In(s)
		if p == (Place{}) {
			continue
		}
		some = true
		if _, err := netip.ParseAddrPort(p.Address); err != nil {
			// A name would need a DNS server, and the site's may be in the cloud.
			return fmt.Errorf("the address %q is not IP:PORT", p.Address)
		}
		if p.Generation.Slot != s {
			return fmt.Errorf("generation %v is not of slot %d", p.Generation, s)
		}
	}
	if !some {
		return fmt.Errorf("%s is missing", edge.DiscoveryServer)
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(t.CA)) {
		return fmt.Errorf("%s holds no certificate in PEM form", edge.DiscoveryCA)
	}
	return nil
}

// remembered is the content of the file.
type remembered struct {
	Pool edge.PoolName `json:"pool"`
	Target
}

// recall returns what a file says about a pool. A file about another pool, which the node was in before, does not
// count.
func recall(pool edge.PoolName, content []byte) (Target, error) {
	var r remembered
	if err := json.Unmarshal(content, &r); err != nil {
		return Target{}, err
	}
	if r.Pool != pool {
		return Target{}, errors.New("it is about another pool")
	}
	if err := r.validate(); err != nil {
		return Target{}, err
	}
	return r.Target, nil
}
