package member

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/discover"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/upstream"
)

// reachCoordinator makes the upstream to the coordinator: at the configured address, or wherever the cloud says it is.
func (m *Membership) reachCoordinator() error {
	config := m.cfg.Via
	config.Name, config.Link = "coordinator", link.Near()
	if m.cfg.At != nil {
		m.address, m.place = m.cfg.At, discover.Fixed{At: m.cfg.At, Pool: m.cfg.Pool}
		config.CAFile = cmp.Or(m.cfg.CAFile, config.CAFile)
	} else {
		finder, err := m.findCoordinator()
		if err != nil {
			return err
		}
		m.address, m.place = finder.Name(), finder
		config.CAFile, config.Address, config.CA = "", finder.Address, finder.CA
	}
	config.Servers = []*url.URL{m.address}
	var err error
	if m.coordinator, err = upstream.New(config); err != nil {
		return fmt.Errorf("the pool's coordinator: %w", err)
	}
	m.reach.Add("coordinator", m.coordinator.Run)
	if finder, ok := m.place.(*discover.Finder); ok {
		seeker := discover.NewSeeker(discover.SeekerConfig{
			Finder: finder, Cloud: m.cfg.Cloud.Link(), Coordinator: m.coordinator.Link(), Dial: upstream.Dial,
			Certificate: func() (*tls.Certificate, error) {
				pair, err := tls.LoadX509KeyPair(m.cfg.Via.CertFile, m.cfg.Via.KeyFile)
				return &pair, err
			},
			Now: func() time.Time {
				if by := m.cfg.Via.CertificateTime; by != nil {
					return by.Now()
				}
				return time.Now()
			},
		})
		m.reach.Add("look for a coordinator that has moved", seeker.Run)
	}
	m.leases, err = coordinationv1client.NewForConfig(m.coordinator.RESTConfig())
	return err
}

// errNoCoordinator says that none is known to live.
var errNoCoordinator = errors.New("this hub reaches no coordinator of the pool")

// Dial opens a connection to the coordinator, if that is known to live.
func (m *Membership) Dial(ctx context.Context, _ string) (net.Conn, error) {
	at, err := url.Parse(m.place.URL())
	if err != nil || at.Host == "" || m.link.Get() != link.Up {
		return nil, errors.Join(errNoCoordinator, err)
	}
	return upstream.Dial(ctx, "tcp", at.Host)
}

func (m *Membership) findCoordinator() (*discover.Finder, error) {
	cloud, err := corev1client.NewForConfig(m.cfg.Cloud.RESTConfig())
	if err != nil {
		return nil, err
	}
	finder := discover.New(discover.Config{
		Pool: m.cfg.Pool, ConfigMaps: cloud.ConfigMaps(edge.NamespaceSystem), Dir: m.cfg.Dir,
		Reachable: m.cfg.Cloud.NotDown, Moved: func() { m.coordinator.Moved() },
	})
	m.reach.Add("where the coordinator is", finder.Run)
	return finder, nil
}
