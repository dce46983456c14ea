package front

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"

	"yurtcoordinator/internal/ends"
)

// maxNewcomers bounds the connections to kubelet's port on which nobody has proved yet who he is. Where a hub has been away,
// kubelet comes back with one for each watch, some 200.
const maxNewcomers = 512

// Programs returns how kubelet and the host's programs are served, over TLS, but for who is told of refusals. A request that came
// before anything is followed would go to the cloud, and a watch would stay there: after is closed when that is over.
func (f *Front) Programs(secure *tls.Config, after <-chan struct{}) ServerConfig {
	// HTTP/1.1 alone, as client-go speaks without TLS: in Go, HTTP/2 costs more of the hub's time for each GET.
	return ServerConfig{Handler: f, After: after, TLS: secure, HTTP1: true, Newcomers: maxNewcomers}
}

// Port is where something is served.
type Port struct {
	// Name names it in errors of Run, and Flag is the flag that says where it is.
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

// ListenAll listens at all ports of a network, or at none: then the error names the flag of the port that is to blame.
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
