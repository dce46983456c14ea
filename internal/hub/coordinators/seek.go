package coordinators

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/lookout"
	"yurtcoordinator/internal/run"
)

// SeekerConfig configures a Seeker. All fields are required.
type SeekerConfig struct {
	// Finder has the coordinator's last address, and gets the new one.
	Finder *Finder
	// Slot is the coordinator's.
	Slot edge.Slot
	// Cloud and Coordinator are the states of the hub's links.
	Cloud, Coordinator *live.Value[link.State]
	// Certificate, Dial, Now and Chance are as in lookout.Search.
	Certificate func() (*tls.Certificate, error)
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
	Now         func() time.Time
	Chance      ends.Chance
}

// Seeker searches for a coordinator on the LAN while neither the coordinator nor the cloud can be reached. The coordinator may
// have moved to another node, and only the cloud announces that.
type Seeker struct{ cfg SeekerConfig }

// NewSeeker returns a Seeker. It does no I/O.
func NewSeeker(cfg SeekerConfig) *Seeker { return &Seeker{cfg} }

// Run looks until ctx ends, and returns nil.
func (s *Seeker) Run(ctx context.Context) error {
	for {
		cloud, cloudChanged := s.cfg.Cloud.Watch()
		coordinator, coordinatorChanged := s.cfg.Coordinator.Watch()
		if !lost(cloud, coordinator) {
			select {
			case <-cloudChanged:
			case <-coordinatorChanged:
			case <-ctx.Done():
				return nil
			}
			continue
		}
		n := s.scan(ctx)
		if run.Pause(ctx, lookout.Pause(n, s.cfg.Chance)) != nil {
			return nil //nolint:nilerr // asked to stop
		}
	}
}

// lost reports whether neither the cloud nor the coordinator can be asked. A failing cloud cannot tell where the coordinator
// is; a cloud that is reached over a neighbour's line can.
func lost(cloud, coordinator link.State) bool {
	return (cloud == link.Down || cloud == link.Failing) && coordinator == link.Down
}

// scan tries all nodes once. It records a coordinator of the slot whose generation is later than that of the known one. It
// returns how many addresses it tried.
func (s *Seeker) scan(ctx context.Context) int {
	known := s.cfg.Finder.Target()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(known.CA))
	search := lookout.Search{
		ServerName: s.cfg.Finder.pool.CoordinatorServerName(), Roots: roots,
		Certificate: s.cfg.Certificate, Dial: s.cfg.Dial, Now: s.cfg.Now, Chance: s.cfg.Chance,
	}
	all := known.candidates(s.cfg.Slot)
	search.Look(ctx, all, func(at string, is edge.Generation) {
		if is.Slot == s.cfg.Slot && s.cfg.Finder.found(ctx, known.CA, Place{at, is}) {
			klog.FromContext(ctx).Info("The coordinator has moved, and was found on the LAN", "address", at,
				"generation", is.String(), "was", known.In(is.Slot).Address)
		}
	})
	return len(all)
}
