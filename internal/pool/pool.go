package pool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/resident"
	"yurtcoordinator/internal/run"
)

const (
	// StopTimeout bounds how long Run takes to return after its context ends: the drain, etcd's end, and the removal of
	// the data. What has not stopped by then is left to the end of the process.
	StopTimeout = 5 * time.Second

	// gcPercent lets the heap grow by half, not to double, between collections: memory is what a node is short of. Half
	// of it again (25) was measured to save 1 MB idle.
	gcPercent = 50
	// memoryLimit, in bytes, has the collector work harder beyond it: 3000 Pods that all change at once (status-storm) make
	// garbage faster than that. It counts what Go has, without the program itself and etcd's file, which are mapped: in
	// status-storm about 120 MB (RSS less anonymous). It is no bound: what is in use stays.
	memoryLimit = 112 << 20

	// readyInterval is how often readiness is asked for while starting.
	readyInterval = 10 * time.Millisecond
)

// ErrStopTimeout is returned by Run when not everything had stopped within StopTimeout.
var ErrStopTimeout = errors.New("not everything stopped in time; the rest ends with the process")

var errNotSetUp = errors.New("the pool's roles and Leases are not in place yet")

// Pool is one coordinator. Make it with New, and Run it once.
type Pool struct {
	config  Config
	ready   chan struct{} // closed when etcd, the API and the pool's own roles and Leases are all in place
	address string        // set before ready is closed
}

// New returns a Pool that serves as config says. The error is one line and names the flag that is wrong.
func New(config Config) (*Pool, error) {
	config = config.completed()
	if err := config.validate(); err != nil {
		return nil, err
	}
	return &Pool{config: config, ready: make(chan struct{})}, nil
}

// WaitReady blocks until the pool has become ready, and returns its address, host:port, or the context's cause.
func (p *Pool) WaitReady(ctx context.Context) (address string, err error) {
	select {
	case <-p.ready:
		return p.address, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Run serves until ctx ends. It returns nil after an orderly stop, and an error that says what to do if it could not
// start or could not go on: ErrNoSpace when the pool's objects outgrew the quota. It leaves no file behind.
//
// While it runs it sets the process's garbage collection target and memory limit, unless the environment has a GOGC, a
// GOMEMLIMIT, and lets go of pages of the program that its start alone needed.
func (p *Pool) Run(ctx context.Context) (err error) {
	logger := klog.FromContext(ctx).WithName("pool")
	ctx = klog.NewContext(ctx, logger)
	started := p.config.Clock.Now()

	if err := p.config.checkFiles(started); err != nil {
		return err
	}
	listener, err := listen(ctx, p.config.BindAddress, p.config.SecurePort)
	if err != nil {
		return err
	}
	dir, err := openDataDir(p.config.DataDir)
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer func() { err = errors.Join(err, dir.remove()) }()
	if !dir.memory {
		logger.Info("The data directory is not on a memory file system: each heartbeat of the pool will be written to "+
			"a disk. Give --data-dir on a tmpfs", "dataDir", dir.path)
	}
	if p.config.KubeletCertificateAuthority == "" {
		logger.Info("Kubelets' serving certificates will not be verified; give --kubelet-certificate-authority")
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit))
	}
	audit := newAuditLog(p.config.AuditLogPath, p.config.Clock)
	defer func() {
		if closing := audit.Close(); closing != nil && !errors.Is(closing, fs.ErrClosed) {
			err = errors.Join(err, closing)
		}
	}()
	p.address = listener.Addr().String()

	etcd := newEtcdMember(dir.path, p.config)
	var installed atomic.Bool
	server := &apiServer{
		config:   p.config,
		etcd:     etcd,
		listener: listener,
		audit:    audit,
		serving:  make(chan struct{}),
		ready: healthz.NamedCheck("pool-setup", func(*http.Request) error {
			if !installed.Load() {
				return errNotSetUp
			}
			return nil
		}),
	}
	// What a member returns first is noted here, so that the wait for the others is bounded from then on.
	ending, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group run.Group
	add := func(name string, member func(context.Context) error) {
		group.Add(name, func(ctx context.Context) error {
			err := member(ctx)
			end(fmt.Errorf("%s: %w", name, err))
			return err
		})
	}
	add("pages", resident.Trim)
	add("etcd", etcd.Run)
	add("quota", etcd.WatchQuota)
	add("housekeeping", etcd.Housekeep)
	add("kube-apiserver", server.Run)
	served := func(member func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-server.serving:
				return member(ctx)
			case <-ctx.Done():
				return nil
			}
		}
	}
	add("own objects", served(func(ctx context.Context) error { return server.own.Run(ctx) }))
	add("pool's nodes", served(func(ctx context.Context) error {
		return server.members.Run(ctx, server.own.sweep)
	}))
	add("namespaces", served(func(ctx context.Context) error { return server.keepNamespaces(ctx) }))
	add("usage", served(func(ctx context.Context) error { return server.meter.Run(ctx) }))
	add("setup", served(func(ctx context.Context) error { return p.keep(ctx, server, &installed, started) }))
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ending.Done():
	}
	timeout := p.config.Clock.NewTimer(StopTimeout)
	defer timeout.Stop()
	select {
	case err := <-done:
		return err
	case <-timeout.C():
		return fmt.Errorf("%w (stopping because of: %w)", ErrStopTimeout, context.Cause(ending))
	}
}

// keep brings about the pool's own objects, says when all is ready, and keeps the objects as they should be.
func (p *Pool) keep(
	ctx context.Context, server *apiServer, installed *atomic.Bool, started time.Time,
) error {
	logger := klog.FromContext(ctx)
	client, err := kubernetes.NewForConfig(server.loopback)
	if err != nil {
		return err
	}
	s := &setup{client: client, secrets: p.config.OwnSecrets}
	pause := setupRetry
	for {
		next := around(setupResync)
		if err := s.pass(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // asked to stop
			}
			if pause >= time.Second { // the first few find a server that is only just starting
				logger.Error(err, "Installing the pool's roles and Leases failed; trying again", "in", pause)
			}
			next, pause = around(pause), min(2*pause, setupResync)
		} else {
			pause = setupRetry
			if !installed.Swap(true) {
				if err := p.awaitReady(ctx, client); err != nil {
					return nil //nolint:nilerr // only the context ends it
				}
				close(p.ready)
				logger.Info("Ready", "address", p.address, "node", p.config.NodeName,
					"after", p.config.Clock.Since(started).Round(time.Millisecond))
			}
		}
		timer := p.config.Clock.NewTimer(next)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// awaitReady asks the server itself until it says ready. Its error is the context's.
func (p *Pool) awaitReady(ctx context.Context, client kubernetes.Interface) error {
	ticker := p.config.Clock.NewTicker(readyInterval)
	defer ticker.Stop()
	for {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(setupTimeout).DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", context.Cause(ctx))
		}
	}
}
