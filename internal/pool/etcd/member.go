package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// ErrNoSpace ends a coordinator whose objects exceed its quota. etcd then refuses every write for good, so the only way out is a
// new process, which starts empty.
var ErrNoSpace = errors.New("etcd: the pool's objects have reached the quota; the coordinator restarts empty. " +
	"If it happens again, raise --etcd-quota-bytes or push fewer resources")

const (
	clientSocket = "etcd.sock"
	peerSocket   = "etcd-peer.sock"

	// etcdStartTimeout is far above the 0.1 s that one member needs in memory.
	etcdStartTimeout = 15 * time.Second
	// alarmInterval is how long a full etcd may go unnoticed.
	alarmInterval = time.Second
	// slowRequest is a duration that etcd, in memory, needs only when the machine has no CPU to spare.
	slowRequest = time.Second
	// bookmarkInterval is how often a watch without changes gets a bookmark, so that its revision stays within the kept history.
	bookmarkInterval = 5 * time.Second
)

// sizeEtcd sets sizes that etcd has in package variables. By default a write-ahead log segment has 64 MB, and two are allocated
// ahead: 122 MB of memory for an empty database. Here a segment has 1 MB, which is less than the log between two snapshots.
var sizeEtcd = sync.OnceFunc(func() {
	wal.SegmentSizeBytes = 1 << 20
	backend.InitialMmapSize = 64 << 20 // address space; grows on demand
})

// Member is an etcd of one member. It listens on unix sockets only.
type Member struct {
	dir   string // private to this process
	quota int64  // bytes
	// history is how many revisions a window of history has; see history.go.
	history int64
	ready   chan struct{} // closed when etcd answers

	server *etcdserver.EtcdServer // set before ready is closed

	// level is etcd's log level. It lets warnings pass only while etcd runs. While etcd starts and ends, it warns about what is
	// intended here, such as no disk, no TLS, no schema yet, closed sockets. If the start fails, Run returns the error. If the
	// program's own log level is verbose or higher, all warnings are logged.
	level zap.AtomicLevel
}

// Config says where a Member keeps its data and how much. All fields but History must be set.
type Config struct {
	Dir   string // private to this process, on a memory file system
	Quota int64  // bytes
	// History is how many revisions a window of history has; 0 means windowRevisions.
	History int64
}

// New returns a Member. It does nothing until Run.
func New(c Config) *Member {
	return &Member{
		dir:     c.Dir,
		quota:   c.Quota,
		history: cmp.Or(c.History, windowRevisions),
		ready:   make(chan struct{}),
		level:   zap.NewAtomicLevelAt(zapcore.FatalLevel),
	}
}

// Ready returns a channel that closes when etcd answers.
func (m *Member) Ready() <-chan struct{} { return m.ready }

// Endpoint returns the address that kube-apiserver dials.
func (m *Member) Endpoint() string { return "unix://" + filepath.Join(m.dir, clientSocket) }

// Run starts etcd and blocks until ctx ends or etcd fails.
func (m *Member) Run(ctx context.Context) error {
	sizeEtcd()
	logGRPC()
	member, err := embed.StartEtcd(m.config(klog.LoggerWithName(klog.FromContext(ctx), "etcd")))
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() {
		m.level.SetLevel(zapcore.FatalLevel)
		member.Close()
	}()

	timeout := time.NewTimer(etcdStartTimeout)
	defer timeout.Stop()
	select {
	case <-member.Server.ReadyNotify():
	case err := <-member.Err():
		return fmt.Errorf("start: %w", err)
	case <-timeout.C:
		return fmt.Errorf("not ready after %s; is the machine out of memory or CPU?", etcdStartTimeout)
	case <-ctx.Done():
		return nil
	}
	// The directory is private anyway.
	for _, socket := range []string{clientSocket, peerSocket} {
		if err := os.Chmod(filepath.Join(m.dir, socket), 0o600); err != nil {
			return err
		}
	}
	m.server = member.Server
	close(m.ready)

	select {
	case <-ctx.Done():
		return nil
	case err := <-member.Err():
		return err
	case <-member.Server.StopNotify():
		return errors.New("stopped by itself; its own log says why")
	}
}

// Write commits a transaction, and reports whether its conditions held. If they did not, nothing has changed. Do not call Write
// before Ready's channel is closed.
func (m *Member) Write(ctx context.Context, txn *etcdserverpb.TxnRequest) (done bool, err error) {
	answer, err := m.server.Txn(ctx, txn)
	if err != nil {
		return false, err
	}
	return answer.Succeeded, nil
}

// Read returns a key's value and the revision of its last write. A nil value means that there is no such key. Do not call Read
// before Ready's channel is closed.
func (m *Member) Read(ctx context.Context, key []byte) (value []byte, written int64, err error) {
	answer, err := m.server.Range(ctx, &etcdserverpb.RangeRequest{Key: key, Serializable: true})
	if err != nil || len(answer.Kvs) == 0 {
		return nil, 0, err
	}
	return answer.Kvs[0].Value, answer.Kvs[0].ModRevision, nil
}

// WatchQuota blocks until ctx ends, or returns ErrNoSpace when the quota is used up. It is separate from Run because etcd must go
// on to answer reads until its users have stopped.
func (m *Member) WatchQuota(ctx context.Context) error {
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil
	}
	ticker := time.NewTicker(alarmInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			m.level.SetLevel(zapcore.WarnLevel)
			if full(m.server.Alarms()) {
				return ErrNoSpace
			}
		}
	}
}

func full(alarms []*etcdserverpb.AlarmMember) bool {
	for _, alarm := range alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

func (m *Member) config(log klog.Logger) *embed.Config {
	c := embed.NewConfig()
	c.Name = "pool"
	c.Dir = filepath.Join(m.dir, "etcd")
	c.ListenClientUrls = []url.URL{{Scheme: "unix", Path: filepath.Join(m.dir, clientSocket)}}
	// The socket is in Host, not in Path, because etcd reads only the host of a peer's URL. An empty host would make it an
	// abstract socket. That has no file and so no permissions, and would take raft messages from any process of the machine.
	c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: filepath.Join(m.dir, peerSocket)}}
	// Advertised addresses must be host:port, but in a cluster of one nobody dials them.
	c.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:2"}}
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	c.InitialCluster = c.InitialClusterFromName(c.Name)

	c.UnsafeNoFsync = true // nothing here must survive the process
	c.EnableGRPCGateway = false
	c.StrictReconfigCheck = false
	c.PreVote = false
	c.TickMs, c.ElectionMs = 20, 100 // it elects itself: most of etcd's start is the first election timeout

	c.QuotaBackendBytes = m.quota
	// After so many entries the log is truncated; etcd keeps at least 100 in memory. No other member needs them.
	c.SnapshotCount = 100
	c.SnapshotCatchUpEntries = 10
	c.MaxSnapFiles, c.MaxWalFiles = 0, 0 // Housekeep deletes them, sooner
	c.BackendBatchInterval = 100 * time.Millisecond
	c.BackendFreelistType = "map"
	c.MaxConcurrentStreams = 256
	c.AutoCompactionRetention = "0" // Housekeep compacts
	c.CompactHashCheckTime = time.Hour
	c.WatchProgressNotifyInterval = bookmarkInterval

	c.WarningUnaryRequestDuration = slowRequest // at zero it warns about every request
	c.WarningApplyDuration = slowRequest

	c.LogLevel = "warn"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapCore{log: log, level: m.level}))
	return c
}
