package cloudscale

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab/bench"
)

// arrive starts the controller in a cluster that already exists.
func (b *bed) arrive(ctx context.Context, r *Report) error {
	began := time.Now()
	if err := b.controller.begin(); err != nil {
		return err
	}
	if err := b.controller.awaitReady(ctx); err != nil {
		return err
	}
	r.Arrival.Ready = time.Since(began)
	if err := b.await(ctx, func(n tally) bool {
		return n.judged >= len(b.members) && n.counted >= b.cfg.Pools
	}); err != nil {
		return err
	}
	r.Arrival.Took = time.Since(began)
	b.load.rate.Store(int64(b.cfg.slowest())) // leaves the rest to the controller until the steady state
	return b.work(ctx, &r.Arrival)
}

// work records what it took until the controller came to rest.
func (b *bed) work(ctx context.Context, w *Work) (err error) {
	if w.Requests, err = b.settle(ctx); err != nil {
		return err
	}
	after, err := b.controller.read(ctx)
	w.Usage, w.Errors = after.usage, after.errors
	return err
}

// fill creates all YurtCoordinators.
func (b *bed) fill(ctx context.Context, r *Report) error {
	before, err := b.controller.read(ctx)
	if err != nil {
		return err
	}
	api, err := b.cluster.api.usage()
	if err != nil {
		return err
	}
	b.profile(ctx, "fill.pprof", "profile?seconds=20")
	began := time.Now()
	if err := create(ctx, b.admin, 1, b.cfg.Pools, makeCoordinator); err != nil {
		return err
	}
	r.Made = time.Since(began)
	if err := b.await(ctx, func(n tally) bool { return n.ready >= b.cfg.Pools }); err != nil {
		return err
	}
	r.Fill.Took = time.Since(began)
	if err := b.work(ctx, &r.Fill); err != nil {
		return err
	}
	r.Fill.Usage.CPU -= before.usage.CPU
	r.Fill.Errors -= before.errors
	apiAfter, err := b.cluster.api.usage()
	r.FillAPI = apiAfter.CPU - api.CPU
	return err
}

// profile takes a profile if profiles are wanted.
func (b *bed) profile(ctx context.Context, name, what string) {
	b.working.Go(func() {
		if err := b.controller.profile(ctx, name, what); err != nil {
			b.cfg.Progress(fmt.Sprintf("no profile %s: %v", name, err))
		}
	})
}

// steady measures the highest rate of heartbeats, up to the wanted one, that the API server can take.
func (b *bed) steady(ctx context.Context, r *Report) error {
	if err := b.load.connectLeaders(b.cluster, b.cfg.Pools); err != nil {
		return err
	}
	cut := pick(b.members, b.cfg.Pools, b.cfg.Nodes-b.cfg.Cut+1, b.cfg.Nodes, len(b.members))
	if _, err := b.link(ctx, cut, true); err != nil {
		return err
	}
	b.load.rate.Store(int64(b.cfg.Rate))
	if err := run.Pause(ctx, warming); err != nil {
		return err
	}
	if _, err := b.settle(ctx); err != nil {
		return err
	}
	b.profile(ctx, "steady.pprof", fmt.Sprintf("profile?seconds=%d", int(b.cfg.Steady.Seconds())))
	s := &r.Steady
	beats, delegated, reported := b.load.beats(), b.load.sentDelegated.Load(), b.load.reported.Load()
	before, err := b.readAll(ctx)
	if err != nil {
		return err
	}
	b.load.clock(true)
	if err := run.Pause(ctx, b.cfg.Steady); err != nil {
		return err
	}
	took := b.load.clock(false)
	after, err := b.readAll(ctx)
	if err != nil {
		return err
	}
	s.Elapsed = after.controller.at.Sub(before.controller.at)
	s.Beats, s.Delegated = b.load.beats()-beats, b.load.sentDelegated.Load()-delegated
	s.Reported = b.load.reported.Load() - reported
	s.PUT = spreadOf(took)
	s.Controller = after.controller.usage
	s.CPU = after.controller.usage.CPU - before.controller.usage.CPU
	s.API, s.Etcd = after.api.CPU-before.api.CPU, after.etcd.CPU-before.etcd.CPU
	s.Allocated = int64(after.controller.allocated - before.controller.allocated)
	s.Collections = int(after.controller.collections - before.controller.collections)
	s.Heap = int64(after.controller.heap)
	if s.Requests, err = b.cluster.audit.take(); err != nil {
		return err
	}
	b.profile(ctx, "steady.heap.pprof", "heap")
	// The next phases measure lag: the API server must have no backlog of events.
	b.load.rate.Store(max(int64(b.cfg.slowest()), min(int64(b.cfg.Rate), int64(s.perSecond()*6/10))))
	return run.Pause(ctx, warming/3)
}

// readings are readings of all programs.
type readings struct {
	controller reading
	api, etcd  bench.Usage
}

func (b *bed) readAll(ctx context.Context) (r readings, err error) {
	if r.controller, err = b.controller.read(ctx); err != nil {
		return r, err
	}
	if r.api, err = b.cluster.api.usage(); err != nil {
		return r, err
	}
	r.etcd, err = b.cluster.etcd.usage()
	return r, err
}

// link cuts or heals the links of nodes as fast as the API server allows, and returns when each heartbeat was answered.
func (b *bed) link(ctx context.Context, members []*member, cut bool) (map[edge.NodeName]time.Time, error) {
	var mu sync.Mutex
	at := make(map[edge.NodeName]time.Time, len(members))
	err := each(len(members), func(i int) error {
		answered, err := b.load.link(ctx, members[i], cut)
		mu.Lock()
		defer mu.Unlock()
		at[members[i].name] = answered
		return err
	})
	return at, err
}

// cut measures how soon the controller reports cut and healed links: of one node, of a site's nodes and of a region's.
func (b *bed) cut(ctx context.Context, r *Report) error {
	last := b.cfg.Nodes - b.cfg.Cut
	if _, err := b.settle(ctx); err != nil {
		return err
	}
	for _, s := range []struct{ nodes, rounds int }{{1, 20}, {100, 5}, {1000, 2}} {
		all := pick(b.members, b.cfg.Pools, 2, last, len(b.members))
		if s.nodes > len(all) {
			continue
		}
		lag := Lag{Nodes: s.nodes, Rounds: s.rounds}
		b.profile(ctx, fmt.Sprintf("cut-%d.pprof", s.nodes), "profile?seconds=15")
		var cut, healed lags
		for round := range s.rounds {
			from := round * s.nodes % (len(all) - s.nodes + 1)
			some := all[from : from+s.nodes]
			for _, step := range []struct {
				cut  bool
				into *lags
			}{{true, &cut}, {false, &healed}} {
				at, err := b.link(ctx, some, step.cut)
				if err != nil {
					return err
				}
				if err := b.said(ctx, at, step.cut, step.into); err != nil {
					return fmt.Errorf("%d nodes: %w", s.nodes, err)
				}
			}
		}
		lag.Taint, lag.Condition, lag.Listed = spreadOf(cut.taint), spreadOf(cut.condition), spreadOf(cut.listed)
		lag.Untaint, lag.Restored, lag.Unlisted = spreadOf(healed.taint), spreadOf(healed.condition), spreadOf(healed.listed)
		var err error
		if lag.Requests, err = b.settle(ctx); err != nil {
			return err
		}
		r.Lags = append(r.Lags, lag)
	}
	return nil
}

// saidTimeout is far longer than the report should take.
const saidTimeout = 5 * time.Minute

// said waits until the controller has reported all of it, and records how long that took.
func (b *bed) said(ctx context.Context, at map[edge.NodeName]time.Time, cut bool, into *lags) error {
	err := eventually(ctx, "the controller reports it", saidTimeout, func(context.Context) error {
		l, ok := b.tracker.since(at, cut)
		if !ok {
			return errNotYet
		}
		into.taint = slices.Concat(into.taint, l.taint)
		into.condition = slices.Concat(into.condition, l.condition)
		into.listed = slices.Concat(into.listed, l.listed)
		return nil
	})
	if err != nil {
		return err
	}
	return run.Pause(ctx, time.Second)
}
