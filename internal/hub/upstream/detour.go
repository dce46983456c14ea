package upstream

import (
	"context"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// Use says for which requests a detour is used.
type Use uint8

const (
	// ForNothing means that the detour is not used.
	ForNothing Use = iota
	// ForSome means that the detour is used only for requests whose context comes from Anyway. For all others the link is down.
	ForSome
	// ForAll means that the detour is used for all requests.
	ForAll
)

// Detour is another way to an upstream's servers, through a neighbour. While requests use the detour, the hub still probes the
// servers over the node's own line, and returns to that line as soon as its link is no longer down. The detour has a link of its
// own, judged by the same rules.
type Detour struct {
	// DialContext opens connections to a server, HOST:PORT.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	// Use says which requests use the detour. It may change.
	Use *live.Value[Use]
}

const (
	// detourDrain is how long requests on the detour may continue once new ones use the node's own line.
	detourDrain = 5 * time.Second
	// detourPause is the time before another try if the detour cannot start.
	detourPause = 5 * time.Second
)

type anywayKey struct{}

// Anyway returns a context for requests that use the detour even if its Use is ForSome.
func Anyway(ctx context.Context) context.Context { return context.WithValue(ctx, anywayKey{}, true) }

// AnywayLink is the Link of requests whose context comes from Anyway.
func (u *Upstream) AnywayLink() *live.Value[link.State] { return u.anyway }

// Anyways returns a RoundTripper that makes each request with Anyway's context.
func Anyways(rt http.RoundTripper) http.RoundTripper { return anyways{rt} }

type anyways struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a anyways) RoundTrip(req *http.Request) (*http.Response, error) {
	return a.RoundTripper.RoundTrip(req.WithContext(Anyway(req.Context())))
}

// detourAnswers reports whether the detour may be used and the servers answer over it.
func (u *Upstream) detourAnswers() bool {
	d := u.detour.Load()
	return d != nil && d.link.Get() == link.Up && u.cfg.Detour.Use.Get() != ForNothing
}

// way returns the Upstream that makes a request: the detour while the request's link is relayed, else u.
func (u *Upstream) way(ctx context.Context) *Upstream {
	state := u.link
	if ctx.Value(anywayKey{}) != nil {
		state = u.anyway
	}
	if d := u.detour.Load(); d != nil && state.Get() == link.Relayed {
		return d
	}
	return u
}

// followDetour takes the detour whenever the node's own line is down, until ctx ends.
func (u *Upstream) followDetour(ctx context.Context) error {
	for ctx.Err() == nil {
		own, changed := u.own.Watch()
		use, other := u.cfg.Detour.Use.Watch()
		if own == link.Down && use != ForNothing {
			u.takeDetour(ctx)
			continue
		}
		select {
		case <-changed:
		case <-other:
		case <-ctx.Done():
		}
	}
	return nil
}

// takeDetour sends requests through the neighbour while the node's own line is down and the detour may be used. After that,
// requests under way on the detour may continue for detourDrain.
func (u *Upstream) takeDetour(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("way", "neighbour")
	cfg := u.cfg
	cfg.DialContext, cfg.Address, cfg.Addresses, cfg.Detour, cfg.Metrics = u.cfg.Detour.DialContext, nil, nil, nil, nil
	d, err := u.newDetour(cfg)
	if err != nil {
		logger.Error(err, "Cannot reach the servers through a neighbour")
		u.rest(ctx, detourPause)
		return
	}
	running, stop := context.WithCancel(klog.NewContext(ctx, logger))
	ended := make(chan error, 1)
	go func() { ended <- d.Run(running) }()
	done, failed := u.whileDetoured(ctx, d, ended)
	u.detour.Store(nil)
	u.setState()
	if !done {
		u.drain(ctx, d)
		stop()
		failed = <-ended
	}
	stop()
	if failed != nil {
		logger.Error(failed, "Cannot reach the servers through a neighbour")
		u.rest(ctx, detourPause)
	}
}

// newDetour makes an Upstream from cfg with the present timing, and sets it as the detour. It holds u.mu, so that a Retime at the
// same time is not lost.
func (u *Upstream) newDetour(cfg Config) (*Upstream, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	cfg.Link = u.timing
	d, err := New(cfg)
	if err == nil {
		u.detour.Store(d)
	}
	return d, err
}

// whileDetoured sets the upstream's link state again whenever the detour's link changes. It returns when the detour is no longer
// needed or allowed, or when ctx ends. If the detour's Run has returned by itself, done is true and err is Run's error.
func (u *Upstream) whileDetoured(ctx context.Context, d *Upstream, ended <-chan error) (done bool, err error) {
	for {
		own, changed := u.own.Watch()
		use, other := u.cfg.Detour.Use.Watch()
		_, moved := d.link.Watch()
		if own != link.Down || use == ForNothing {
			return false, nil
		}
		u.setState()
		select {
		case <-changed:
		case <-other:
		case <-moved:
		case err := <-ended:
			return true, err
		case <-ctx.Done():
			return false, nil
		}
	}
}

// drain gives requests on the detour the time detourDrain to end. It returns early if the node's own line goes down again.
func (u *Upstream) drain(ctx context.Context, d *Upstream) {
	if d.link.Get() != link.Up {
		return
	}
	timer := time.NewTimer(detourDrain)
	defer timer.Stop()
	for {
		own, changed := u.own.Watch()
		if own == link.Down {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (u *Upstream) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
