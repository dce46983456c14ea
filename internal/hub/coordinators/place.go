package coordinators

import (
	"net"
	"net/url"
	"strconv"

	"yurtcoordinator/internal/edge"
)

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

// Clients returns the credential ids of the certificates that the coordinators may show to this node's kubelet. known is false
// while this node knows of no coordinator. It is then also unknown whether the node is in the pool.
func (f *Finder) Clients() (ids []string, known bool) {
	t := f.Target()
	return t.Clients(), !t.IsZero()
}
