package cloudscale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

const (
	// phaseTimeout bounds each phase except the steady one. The slowest, the first fill of 1000 pools, takes a minute
	// or two.
	phaseTimeout = 15 * time.Minute
	// quiet is how long the controller must send no request before its work counts as done.
	quiet = 3 * time.Second
	// healthEvery is how often to check that all programs run.
	healthEvery = 500 * time.Millisecond
	// warming is how long the steady state's rate is held before the measurement.
	warming = 15 * time.Second
)

// bed holds everything of a run.
type bed struct {
	cfg        Config
	cluster    *cluster
	controller *controller
	admin      client.WithWatch
	members    []*member
	load       *load
	tracker    *tracker
	stage      *stage
	working    sync.WaitGroup // everything that goes on besides the phases
}

// Run measures. Everything that it starts ends with it. If a program ends early, Run ends.
func Run(ctx context.Context, cfg Config) (_ Report, err error) {
	if err := cfg.Validate(); err != nil {
		return Report{}, err
	}
	dir, err := os.MkdirTemp("", "cloud-scale-")
	if err != nil {
		return Report{}, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe logs are kept in %s", err, dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	b := &bed{cfg: cfg}
	defer b.working.Wait()
	defer cancel(nil)
	cfg.Progress("starting etcd and kube-apiserver")
	if b.cluster, err = startCluster(ctx, cfg, dir); err != nil {
		return Report{}, err
	}
	defer b.stop()
	b.working.Go(func() { b.guard(ctx, cancel) })
	r, err := b.run(ctx)
	if err != nil {
		return Report{}, errors.Join(err, context.Cause(ctx))
	}
	cancel(nil) // before the programs stop
	b.working.Wait()
	return r, nil
}

// stop ends the programs. The controller goes first, because it needs the others.
func (b *bed) stop() {
	if b.controller != nil && b.controller.process != nil {
		b.controller.stop()
	}
	b.cluster.stop()
}

// guard ends ctx when a needed program has ended, or when the played part can't go on.
func (b *bed) guard(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		if run.Pause(ctx, healthEvery) != nil {
			return
		}
		if err := b.cluster.died(); err != nil {
			cancel(err)
			return
		}
	}
}

func (b *bed) run(ctx context.Context) (Report, error) {
	r := Report{Config: b.cfg}
	if err := b.prepare(ctx); err != nil {
		return r, err
	}
	b.working.Go(func() { b.tracker.run(ctx, b.admin, b.cfg.Nodes) })
	b.working.Go(func() { b.stage.run(ctx, b.admin) })
	b.load.rate.Store(int64(b.cfg.Rate))
	b.working.Go(func() { b.load.run(ctx) })
	for _, phase := range []struct {
		name string
		do   func(context.Context, *Report) error
	}{
		{"the controller starts and judges all nodes", b.arrive},
		{"YurtCoordinators are made", b.fill},
		{"steady state", b.steady},
		{"links are cut and healed", b.cut},
	} {
		b.cfg.Progress(phase.name)
		bounded, cancel := context.WithTimeoutCause(ctx, phaseTimeout, fmt.Errorf("not within %v", phaseTimeout))
		err := errors.Join(phase.do(bounded, &r), b.stage.failed())
		cancel()
		if err != nil {
			return r, errors.Join(fmt.Errorf("%s: %w", phase.name, err), b.load.trouble())
		}
	}
	var err error
	r.Failed = b.load.failed.Load()
	if r.Etcd, err = b.cluster.etcd.usage(); err != nil {
		return r, err
	}
	r.API, err = b.cluster.api.usage()
	return r, err
}

// prepare makes the cluster as it is before the controller starts.
func (b *bed) prepare(ctx context.Context) error {
	cfg, err := b.cluster.as("admin", "admin", "system:masters")
	if err != nil {
		return err
	}
	if b.admin, err = newClient(cfg); err != nil {
		return err
	}
	if err := install(ctx, b.admin, b.cfg); err != nil {
		return err
	}
	if err := errors.Join(b.cluster.startManager(), b.cluster.startApprover()); err != nil {
		return err
	}
	b.cfg.Progress(fmt.Sprintf("making %d Nodes and Leases, and %d NodePools", b.cfg.Pools*b.cfg.Nodes, b.cfg.Pools))
	if b.members, err = makeNodes(ctx, b.admin, 1, b.cfg.Pools, b.cfg.Nodes); err != nil {
		return err
	}
	if err := create(ctx, b.admin, 1, b.cfg.Pools, makePool); err != nil {
		return err
	}
	if b.load, err = newLoad(cfg, b.members); err != nil {
		return err
	}
	core, err := coreclient.NewForConfig(binary(cfg))
	if err != nil {
		return err
	}
	b.tracker, b.stage = newTracker(), &stage{pods: core.Pods(edge.NamespaceSystem)}
	b.controller, err = newController(b.cluster, cfg)
	return err
}

// await waits for a count of what the controller has made.
func (b *bed) await(ctx context.Context, done func(tally) bool) error {
	return eventually(ctx, "", phaseTimeout, func(context.Context) error {
		n, err := b.tracker.tally()
		if err := errors.Join(err, b.controller.died()); err != nil {
			return err
		}
		if done(n) {
			return nil
		}
		return fmt.Errorf("%w: %d nodes judged, %d pools counted, %d coordinators ready", errNotYet, n.judged, n.counted, n.ready)
	})
}

// settle returns when the controller has been quiet for a while. Its checks every ten minutes don't count: with a thousand
// pools some pool is always due. settle returns all requests since its last call.
func (b *bed) settle(ctx context.Context) (requests, error) {
	all, last := make(requests), time.Now()
	for {
		more, err := b.cluster.audit.take()
		if err := errors.Join(err, b.controller.died()); err != nil {
			return nil, err
		}
		if len(more) > 0 {
			all.add(more)
		}
		if more.acute() > 0 {
			last = time.Now()
		}
		if time.Since(last) > quiet {
			return all, nil
		}
		if err := run.Pause(ctx, 200*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the controller never came to rest: %w; its last requests: %v", err, more)
		}
	}
}
