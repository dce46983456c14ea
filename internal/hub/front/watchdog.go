package front

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/run"
)

// Watchdog reports to systemd that the hub is alive, as long as the hub answers its own requests. Ask is required.
type Watchdog struct {
	// Begun are channels that are all closed once the hub must answer. Before that, the hub may wait for the node's certificate,
	// or read its disk.
	Begun []<-chan struct{}
	// Ask sends a request to the hub as kubelet does, and returns nil if any answer comes before ctx ends.
	Ask func(ctx context.Context) error

	// within is systemd's timeout (WatchdogSec); 0 means that systemd does not watch. tell sends a state to systemd.
	within time.Duration
	tell   func(state string) error
}

// Run tells systemd that the ports are open, and then regularly that the hub answers, until ctx ends. While the hub does not
// answer, Run tells nothing, and systemd restarts the hub after WatchdogSec. If systemd has not started this program, Run tells
// nothing.
func (w Watchdog) Run(ctx context.Context) (err error) {
	if w.within, err = daemon.SdWatchdogEnabled(false); err != nil {
		return fmt.Errorf("systemd's watchdog: %w", err)
	}
	w.tell = func(state string) error {
		_, err := daemon.SdNotify(false, state)
		return err
	}
	return w.run(ctx)
}

// run asks four times within the timeout, and waits for each answer for half the timeout.
func (w Watchdog) run(ctx context.Context) error {
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
		err := w.answers(ctx)
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

// answers returns nil if the hub answers, or need not answer yet.
func (w Watchdog) answers(ctx context.Context) error {
	for _, begun := range w.Begun {
		select {
		case <-begun:
		default:
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, w.within/2)
	defer cancel()
	return w.Ask(ctx)
}
