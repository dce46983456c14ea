package pool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/pool/etcd"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/version"
)

const (
	// StopTimeout bounds how long Run waits for its parts to stop, after its context or one of the parts has ended. Whatever has
	// not stopped by then ends with the process.
	StopTimeout = 5 * time.Second

	// gcPercent lets the heap grow by half between collections instead of doubling, because nodes are short of memory. At 25, an
	// idle coordinator saved only 1 MB more, as measured.
	gcPercent = 50
	// memoryLimit, in bytes, is where Go's garbage collector begins to work harder. 3000 Pods that all change at once (the
	// scenario status-storm) make garbage faster than gcPercent collects it. The limit is soft. It leaves out the mapped program
	// and etcd's mapped file, about 110 MB in status-storm. A lower limit costs more of the coordinator's processor time. In
	// status-storm the collector took two fifths of that time with a limit of 112 MiB, and a quarter with one of 160 MiB.
	memoryLimit = 136 << 20

	// readyInterval is how often the start asks for readiness.
	readyInterval = 10 * time.Millisecond
	// readyTimeout bounds one such request, to this process itself.
	readyTimeout = 10 * time.Second
)

// ErrStopTimeout says that not everything had stopped within StopTimeout.
var ErrStopTimeout = errors.New("not everything stopped in time; the rest ends with the process")

// Pool is one coordinator. Make it with New, and Run it once.
type Pool struct {
	config  Config
	ready   chan struct{} // closed when etcd, the API and the pool's own Leases all work
	address string        // set before ready is closed, as probes
	probes  string        // the address of kubelet's probes
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

// Run serves until ctx ends, and returns nil after an orderly stop. If it could not start or continue, its error says what to do.
// The error is etcd.ErrNoSpace if the pool's objects exceeded the quota, and succession.ErrSucceeded if a younger coordinator
// takes this one's place. Run leaves no file behind, unless it gives up waiting (ErrStopTimeout). In that case the next start
// removes the data, as after a kill.
//
// Until Run returns, the process's garbage collection target is gcPercent, unless the environment has a GOGC. Its memory limit is
// memoryLimit, unless the environment has a GOMEMLIMIT.
func (p *Pool) Run(ctx context.Context) (err error) {
	logger := klog.FromContext(ctx).WithName("pool")
	ctx = klog.NewContext(ctx, logger)
	started := p.config.Ends.Running()

	if err := p.config.checkFiles(p.config.Ends.Wall()); err != nil {
		return err
	}
	listener, err := listen(ctx, "bind-address", p.config.BindAddress, "secure-port", p.config.SecurePort)
	if err != nil {
		return err
	}
	spread := newSpread(listener)
	local, err := listen(ctx, "probe-port", loopback, "probe-port", p.config.ProbePort)
	if err != nil {
		_ = spread.Close()
		return err
	}
	dir, err := etcd.OpenDataDir(p.config.DataDir)
	if err != nil {
		_, _ = spread.Close(), local.Close()
		return err
	}
	defer func() {
		if errors.Is(err, ErrStopTimeout) {
			return // etcd may still write there, and it ends the process if it can't
		}
		err = errors.Join(err, dir.Remove())
	}()
	p.warn(logger, dir)
	defer boundMemory()()
	p.address, p.probes = listener.Addr().String(), local.Addr().String()

	return p.serve(ctx, &wiring{
		config: p.config, listener: spread, local: local,
		ready: func(ctx context.Context, client kubernetes.Interface) error {
			return p.becomeReady(ctx, client, started)
		},
		etcd: etcd.New(etcd.Config{
			Dir: dir.Path, Quota: p.config.QuotaBytes, History: p.config.historyRevisions,
		}),
	})
}

// warn logs what works, but not as well as it could.
func (p *Pool) warn(logger klog.Logger, dir *etcd.DataDir) {
	if !dir.Memory {
		logger.Info("The data directory is not on a memory file system: each heartbeat of the pool is written to "+
			"a disk. Give --data-dir on a tmpfs", "dataDir", dir.Path)
	}
	if p.config.KubeletCertificateAuthority == "" {
		logger.Info("Kubelets are known only by the certificates that their nodes' hubs tell of; " +
			"--kubelet-certificate-authority names who signs others")
	}
}

// boundMemory sets the process's garbage collection target unless GOGC does, and its memory limit unless GOMEMLIMIT does. The
// function restore undoes both.
func boundMemory() (restore func()) {
	percent, limit := -2, int64(-1)
	if os.Getenv("GOGC") == "" {
		percent = debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		limit = debug.SetMemoryLimit(memoryLimit)
	}
	return func() {
		if percent != -2 {
			debug.SetGCPercent(percent)
		}
		if limit >= 0 {
			debug.SetMemoryLimit(limit)
		}
	}
}

// serve runs the members of the wiring. Each outlives those that come after it.
func (p *Pool) serve(ctx context.Context, c *wiring) error {
	// The first return of a member is recorded here. From then on the wait for the others is bounded.
	ending, end := context.WithCancelCause(ctx)
	defer end(nil)
	adding := func(group *run.Group) func(string, func(context.Context) error) {
		return func(name string, member func(context.Context) error) {
			group.Add(name, func(ctx context.Context) error {
				err := member(ctx)
				end(fmt.Errorf("%s: %w", name, err))
				return err
			})
		}
	}
	var group run.Group
	add := adding(&group)
	add("etcd", c.etcd.Run)
	add("quota", c.etcd.WatchQuota)
	add("housekeeping", c.etcd.Housekeep)
	add("server", func(ctx context.Context) error { return c.Run(ctx, adding) })
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ending.Done():
	}
	timeout := time.NewTimer(p.config.stopTimeout)
	defer timeout.Stop()
	select {
	case err := <-done:
		return err
	case <-timeout.C:
		return fmt.Errorf("%w (stopping because of: %w)", ErrStopTimeout, context.Cause(ending))
	}
}

// becomeReady waits until the server is ready, and then lets WaitReady return. Its only error is the context's.
func (p *Pool) becomeReady(ctx context.Context, client kubernetes.Interface, started time.Time) error {
	if err := p.awaitReady(ctx, client); err != nil {
		return err
	}
	close(p.ready)
	klog.FromContext(ctx).Info("Ready", "version", version.Get().Version, "address", p.address, "node", p.config.NodeName,
		"after", p.config.Ends.Since(started).Round(time.Millisecond))
	return nil
}

// awaitReady asks the server itself until it says ready. It fails only with the context's error.
func (p *Pool) awaitReady(ctx context.Context, client kubernetes.Interface) error {
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(readyTimeout).DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", context.Cause(ctx))
		}
	}
}
