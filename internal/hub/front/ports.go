package front

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	"yurtcoordinator/internal/ends"
)

// maxNewcomers bounds the connections to kubelet's port whose client has not authenticated yet. After a hub's absence, kubelet
// reconnects with one connection for each watch, some 200.
const maxNewcomers = 512

// Programs returns the configuration for serving kubelet and the host's programs over TLS, without ServerConfig.Refused. The
// server accepts requests once the channel after is closed. The hub must follow its selections by then. Otherwise a request would
// go to the cloud, and a watch would stay there.
func (f *Front) Programs(secure *tls.Config, after <-chan struct{}) ServerConfig {
	// HTTP/1.1 alone, as client-go speaks without TLS: in Go, HTTP/2 costs more of the hub's time for each GET.
	return ServerConfig{Handler: f, After: after, TLS: secure, HTTP1: true, Newcomers: maxNewcomers}
}

// Port is a port to serve at.
type Port struct {
	// Name is used in errors of Run. Flag is the flag that sets the port.
	Name, Flag string
	Address    string
	Number     int
	Config     ServerConfig
}

// Listener is a Server with its Port's name.
type Listener struct {
	Name string
	*Server
}

// ListenAll listens at all ports, or at none: its error then names the flag of the failing port.
func ListenAll(on ends.Net, ports ...Port) ([]Listener, error) {
	var all []Listener
	for _, p := range ports {
		server, err := Listen(on, net.JoinHostPort(p.Address, strconv.Itoa(p.Number)), p.Config)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--%s: %w", p.Flag, err), CloseAll(all))
		}
		all = append(all, Listener{p.Name, server})
	}
	return all, nil
}

// CloseAll closes servers that do not run.
func CloseAll(all []Listener) (err error) {
	for _, l := range all {
		err = errors.Join(err, l.Close())
	}
	return err
}
