package discover

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
)

// Target is where a coordinator is. The zero Target is none.
type Target struct {
	// Address is IP:PORT.
	Address string `json:"address"`
	// CA is the PEM bundle that verifies its certificate.
	CA string `json:"ca"`
	// KubeletClients are the credential ids of the certificates that it may show to kubelets, one per line.
	KubeletClients string `json:"kubeletClients,omitempty"`
	// Owner and OwnerUID are the name and uid of its YurtCoordinator. Empty means that the ConfigMap has no such owner.
	Owner    string    `json:"owner,omitempty"`
	OwnerUID types.UID `json:"ownerUID,omitempty"`
}

// The type of the object that owns the ConfigMap.
const (
	kindOwner       = "YurtCoordinator"
	apiVersionOwner = "apps.openyurt.io/v1alpha1"
)

// maxClients is the most credential ids that are read.
const maxClients = 32

// Clients returns the credential ids of the certificates that the coordinator may show to kubelets.
func (t Target) Clients() []string { return strings.Fields(t.KubeletClients) }

// elsewhere reports whether u is reached otherwise than t.
func (t Target) elsewhere(u Target) bool { return t.Address != u.Address || t.CA != u.CA }

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
	server, err := url.Parse(data[edge.DiscoveryServer])
	if err != nil || server.Scheme != "https" || server.Port() == "" || (server.Path != "" && server.Path != "/") ||
		server.User != nil || server.RawQuery != "" || server.Fragment != "" {
		return Target{}, fmt.Errorf("%s is %q, want https://IP:PORT", edge.DiscoveryServer, data[edge.DiscoveryServer])
	}
	t := Target{Address: net.JoinHostPort(server.Hostname(), server.Port()), CA: data[edge.DiscoveryCA]}
	ids := strings.Fields(data[edge.DiscoveryClients])
	t.KubeletClients = strings.Join(ids[:min(len(ids), maxClients)], "\n")
	if err := t.validate(); err != nil {
		return Target{}, err
	}
	return t, nil
}

func (t Target) validate() error {
	if _, err := netip.ParseAddrPort(t.Address); err != nil {
		// A name would need a DNS server, and the site's may be in the cloud.
		return fmt.Errorf("the address %q is not IP:PORT", t.Address)
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
