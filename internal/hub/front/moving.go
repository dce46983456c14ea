package front

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/run"
)

// errMoved says that the node's address has changed.
var errMoved = errors.New("the node's address is another")

// listenPause bounds the pause between two tries to listen: the address may not be on an interface yet.
const listenPause = 10 * time.Second

// Moving serves at the node's address and follows its changes. All fields but On and Chance are required.
type Moving struct {
	// Address is the node's address; while it is invalid, Moving does not serve. Port never changes.
	Address *live.Value[netip.Addr]
	Port    uint16
	// What names what is served, in errors.
	What string
	// Config returns the server's configuration.
	Config func() ServerConfig
	// Serves is called when Moving has begun to listen at an address, and Ends when it no longer serves there. Fails is called
	// with the reason if it can't listen; Moving then tries again.
	Serves func(at netip.AddrPort)
	Fails  func(at netip.AddrPort, err error)
	Ends   func()
	// On is this machine's network, and Chance where random numbers come from.
	On     ends.Net
	Chance ends.Chance
}

// Run serves until ctx ends.
func (m *Moving) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		at, err := m.Address.Wait(ctx, netip.Addr.IsValid)
		if err != nil {
			return nil //nolint:nilerr // ctx has ended
		}
		same, stop := m.Address.While(ctx, func(now netip.Addr) bool { return now == at }, errMoved)
		err = m.serveAt(same, netip.AddrPortFrom(at, m.Port))
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Moving) serveAt(ctx context.Context, at netip.AddrPort) error {
	pause := run.Backoff{Min: time.Second, Max: listenPause}
	for ; ctx.Err() == nil; _ = run.Pause(ctx, pause.Next(m.Chance.Float64())) {
		server, err := Listen(m.On, at.String(), m.Config())
		if err != nil {
			m.Fails(at, err)
			continue
		}
		m.Serves(at)
		err = server.Run(ctx)
		m.Ends()
		if err != nil {
			return fmt.Errorf("%s at %s: %w", m.What, at, err)
		}
	}
	return nil
}
