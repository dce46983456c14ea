package coordinators

import (
	"net"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// OnThisMachine reports whether the coordinator is at an address of this machine, as far as is known.
func (f Found) OnThisMachine() bool {
	host, _, err := net.SplitHostPort(f.finder.Target().In(f.slot).Address)
	return err == nil && isOwnAddress(host, f.finder.own)
}

// Name returns the URL that requests use for the coordinator, wherever it is.
func (f *Finder) Name() *url.URL {
	host := net.JoinHostPort(f.pool.CoordinatorServerName(), strconv.Itoa(edge.PortCoordinator))
	return &url.URL{Scheme: "https", Host: host}
}

// URL returns where the coordinator is; empty while that is not known.
func (f Found) URL() string {
	if at := f.finder.Target().In(f.slot).Address; at != "" {
		return "https://" + at
	}
	return ""
}

// Clients returns the credential ids of the certificates that the coordinator may show to this node's kubelet. known is false
// while the cloud has not shown this node its pool's ConfigMap. Until then it is unknown whether the node is in the pool.
func (f Found) Clients() (ids []string, known bool) {
	t := f.finder.Target()
	return t.Clients(), !t.IsZero()
}

// About returns the object that Events refer to: the YurtCoordinator, or the NodePool if the cloud has not named one.
func (f Found) About() corev1.ObjectReference {
	t := f.finder.Target()
	if t.Owner == "" {
		return aboutPool(f.finder.pool)
	}
	return corev1.ObjectReference{APIVersion: apiVersionOwner, Kind: kindOwner, Name: t.Owner, UID: t.OwnerUID}
}

func aboutPool(pool edge.PoolName) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "apps.openyurt.io/v1beta2", Kind: "NodePool", Name: string(pool)}
}

// Fixed is a coordinator with a configured address.
type Fixed struct {
	At   *url.URL
	Pool edge.PoolName
	// Own returns this machine's addresses; nil means net.InterfaceAddrs.
	Own func() ([]net.Addr, error)
}

// OnThisMachine reports whether the address is this machine's.
func (f Fixed) OnThisMachine() bool { return isOwnAddress(f.At.Hostname(), f.Own) }

// URL returns the address.
func (f Fixed) URL() string { return f.At.String() }

// Clients returns nothing: the cloud has said nothing about it.
func (Fixed) Clients() (ids []string, known bool) { return nil, false }

// About returns the NodePool: a coordinator that is started by hand has no object in the cloud.
func (f Fixed) About() corev1.ObjectReference { return aboutPool(f.Pool) }

// isOwnAddress reports whether an IP address is this machine's. A name never is.
func isOwnAddress(host string, own func() ([]net.Addr, error)) bool {
	if own == nil {
		own = net.InterfaceAddrs
	}
	ip := net.ParseIP(host)
	all, err := own()
	if ip == nil || err != nil {
		return false
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}
