package etcd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// etcd keeps overwritten values until it is told to forget them (compaction). It keeps the freed pages until it is told to copy
// the rest (defragmentation), and its log until its own timer fires. In the cloud these are minutes apart and on a disk. Here all
// of it is memory, and a node that writes 8 MB a second would fill gigabytes before the first of the three. So Housekeep does all
// three by use, not by time.

const (
	// windowRevisions (unless Config says otherwise), windowBytes and windowAge bound a window of etcd's history. A window ends
	// at the first bound that it reaches. etcd keeps one to two windows, so that a broken watch can resume. 1000 nodes'
	// heartbeats make 2500 revisions in 25 s.
	windowRevisions = 2500
	windowBytes     = 8 << 20
	windowAge       = 5 * time.Minute

	// housekeepingInterval bounds how far a window can exceed windowBytes: by what is written in that time.
	housekeepingInterval = 250 * time.Millisecond

	// defragSlack is how far the free pages may exceed the pages in use, in bytes, before a defragmentation: two windows of
	// history, and as much again for the next writes.
	defragSlack = 4 * windowBytes
	// defragPause is the least time between two defragmentations. Each one blocks all reads and writes while it copies the pages
	// in use: 0.1 s for 16 MB, 0.5 s for 128 MB, measured on 2 busy cores.
	defragPause = 10 * time.Second

	// purgeInterval is how often unneeded log segments are deleted; etcd's own interval is 30 s.
	purgeInterval = time.Second
	// keptFiles is how many log segments and snapshots stay: those that etcd uses.
	keptFiles = 1
)

// window is the latest stretch of etcd's history, with all that decides when it ends.
type window struct {
	begun int64 // revision
	at    time.Time
	low   int64 // the least use during it, in bytes: the effect of the last compaction shows late
}

// bounds of a window.
type bounds struct {
	revisions, bytes int64
}

// advance takes the present state and the bounds of a window, and returns the revision to compact at; 0 means none. When a window
// ends, advance returns the revision at which that window began. All earlier history goes.
func (w *window) advance(now time.Time, revision, inUse int64, most bounds) (compact int64) {
	if w.at.IsZero() {
		*w = window{revision, now, inUse}
		return 0
	}
	w.low = min(w.low, inUse)
	revisions := revision - w.begun
	old := now.Sub(w.at) >= windowAge && revisions > 0
	if revisions < most.revisions && inUse-w.low < most.bytes && !old {
		return 0
	}
	compact = w.begun
	*w = window{revision, now, inUse}
	return compact
}

// fragmented reports whether the file has so many free pages that copying the rest is worth the pause.
func fragmented(size, inUse, quota int64) bool {
	free := size - inUse
	return free > inUse+min(defragSlack, quota/2) || size > quota/4*3 && free > quota/8
}

// Housekeep bounds etcd's memory until ctx ends.
func (m *Member) Housekeep(ctx context.Context) error {
	select {
	case <-m.ready:
	case <-ctx.Done():
		return nil
	}
	// etcd's own purge is off (MaxSnapFiles and MaxWalFiles are 0), because its interval is fixed. It would also log at each run
	// that files in use are in use.
	purging, quiet := make(chan struct{}), zap.NewNop()
	member := filepath.Join(m.dir, "etcd", "member")
	snapsDone, snapsFailed := fileutil.PurgeFileWithoutFlock(quiet, filepath.Join(member, "snap"), "snap", keptFiles,
		purgeInterval, purging)
	logsDone, logsFailed := fileutil.PurgeFileWithDoneNotify(quiet, filepath.Join(member, "wal"), "wal", keptFiles,
		purgeInterval, purging)
	defer func() {
		close(purging)
		<-snapsDone
		<-logsDone
	}()

	ticker := time.NewTicker(housekeepingInterval)
	defer ticker.Stop()
	full := bounds{m.history, min(windowBytes, m.quota/8)}
	var latest window
	var defragged time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-snapsFailed:
			return fmt.Errorf("delete old snapshots: %w", err)
		case err := <-logsFailed:
			return fmt.Errorf("delete old log segments: %w", err)
		case <-ticker.C:
		}
		now := time.Now()
		backend := m.server.Backend()
		if at := latest.advance(now, m.server.KV().Rev(), backend.SizeInUse(), full); at > 0 {
			if err := m.compact(ctx, at); err != nil {
				klog.FromContext(ctx).Error(err, "Failed to compact etcd; its history grows until the next try")
			}
		}
		size, inUse := backend.Size(), backend.SizeInUse()
		if !fragmented(size, inUse, m.quota) || now.Sub(defragged) < defragPause {
			continue
		}
		defragged = now
		if err := m.server.Defragment(); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to defragment etcd; its file stays as large as it is")
			continue
		}
		klog.FromContext(ctx).V(2).Info("Defragmented etcd", "before", size, "inUse", inUse,
			"after", m.server.Backend().Size(), "took", time.Since(now))
	}
}

// compact compacts etcd's history up to a revision, and returns when the bytes are free.
func (m *Member) compact(ctx context.Context, revision int64) error {
	_, err := m.server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: revision, Physical: true})
	if err == nil || ctx.Err() != nil || errors.Is(err, mvcc.ErrCompacted) {
		return nil //nolint:nilerr // stopped, or already done
	}
	return err
}
