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

	"yurtcoordinator/internal/edge"
)

// Place is the address of one coordinator. The zero Place means none.
type Place struct {
	// Address is IP:PORT.
	Address string `json:"address,omitempty"`
	// Generation is the generation in its certificate, as far as is known.
	Generation edge.Generation `json:"generation,omitzero"`
}

// Target has the addresses of a pool's coordinators. The zero Target means none.
type Target struct {
	// The coordinator of slot 0.
	Place
	// Others are the coordinators of the other slots, in order.
	Others [edge.MaxSlots - 1]Place `json:"others,omitzero"`
	// CA is the PEM bundle that verifies their certificates.
	CA string `json:"ca"`
	// Nodes are addresses of the pool's nodes, one per line, as the cloud last stated them.
	Nodes string `json:"nodes,omitempty"`
	// KubeletClients are the credential ids of the certificates that the coordinators may show to kubelets, one per line.
	KubeletClients string `json:"kubeletClients,omitempty"`
	// Denied are the nodes and hubs whose certificates no longer hold in the pool, one per line: see edge.DiscoveryDenied.
	Denied string `json:"denied,omitempty"`
}

// maxClients bounds the credential ids that are read, maxNodes the addresses, maxDenied who is denied.
const (
	maxClients = 32
	maxNodes   = 1024
	maxDenied  = 1000
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

// with returns t with another place for a slot's coordinator.
func (t Target) with(s edge.Slot, p Place) Target {
	if s == 0 {
		t.Place = p
	} else {
		t.Others[s-1] = p
	}
	return t
}

// candidates returns where a slot's coordinator may have moved to: each node's address, with the former port.
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

// elsewhere reports whether u reaches a slot's coordinator differently from t.
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

// IsZero reports whether there is no coordinator.
func (t Target) IsZero() bool { return t == Target{} }

// Read parses a pool's ConfigMap. Its error says what is wrong with it.
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
	denied := strings.Fields(data[edge.DiscoveryDenied])
	t.Denied = strings.Join(denied[:min(len(denied), maxDenied)], "\n")
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

// readPlace parses the place of a slot's coordinator in a ConfigMap. A missing slot is the zero Place.
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

// recall parses the file's content. It returns an error if the file is about another pool, which the node was in before.
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
