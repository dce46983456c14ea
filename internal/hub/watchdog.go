package hub

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/run"
)

// watchdog tells systemd that the hub lives for as long as it answers itself.
type watchdog struct {
	// within is how long systemd waits for a word; 0 means that it waits for none.
	within time.Duration
	// answers returns nil if the hub answers before ctx ends, whatever it says.
	answers func(ctx context.Context) error
	// tell tells systemd.
	tell func(state string) error
}

// beWatched tells systemd, if that has started this program, that the ports are open, and from then on that the hub does not hang,
// until ctx ends. A hub that does not answer says nothing, and systemd starts it again (WatchdogSec).
func (h *Hub) beWatched(ctx context.Context) error {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("systemd's watchdog: %w", err)
	}
	answers, end := h.asKubelet()
	defer end()
	return watchdog{within, answers, func(state string) error {
		_, err := daemon.SdNotify(false, state)
		return err
	}}.run(ctx)
}

// run asks four times in the time that systemd waits, and gives an answer half of it.
func (w watchdog) run(ctx context.Context) error {
	log := klog.FromContext(ctx)
	tell := func(state string) {
		if err := w.tell(state); err != nil {
			log.Error(err, "Cannot tell systemd how the hub is", "state", state)
		}
	}
	tell(daemon.SdNotifyReady)
	if w.within == 0 {
		<-ctx.Done()
		return nil
	}
	for {
		asking, cancel := context.WithTimeout(ctx, w.within/2)
		err := w.answers(asking)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // asked to stop
		case err != nil:
			log.Error(err, "The hub does not answer itself; if that goes on, systemd starts it again")
		default:
			tell(daemon.SdNotifyWatchdog)
		}
		if run.Pause(ctx, w.within/4) != nil {
			return nil //nolint:nilerr // asked to stop
		}
	}
}

// asKubelet returns what reads the node's Lease from this hub as kubelet does, but for that it takes the hub's own word for it and
// costs the line nothing. A hub that waits for the node's certificate, or reads its disk, need not answer yet. end closes its
// connections.
func (h *Hub) asKubelet() (answers func(ctx context.Context) error, end func()) {
	rt, end := h.proof.AsKubelet(h.ends.Dial)
	at := "https://" + net.JoinHostPort(config.Loopback, strconv.Itoa(h.cfg.Port)) + h.cfg.Node.LeasePath() + "?resourceVersion=0"
	return func(ctx context.Context) error {
		for _, begun := range []<-chan struct{}{h.certified, h.followed.Begun()} {
			select {
			case <-begun:
			default:
				return nil
			}
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
		if err != nil {
			return err
		}
		res, err := rt.RoundTrip(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}, end
}
