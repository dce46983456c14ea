package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"yurtcoordinator/internal/stream"
)

// Names within the directory.
const (
	fileName = "store.log"
	newName  = "store.log.new"
)

const (
	compactBytes = 4 << 20   // the least garbage that is worth a compaction
	pieceBytes   = 256 << 10 // what is written to the file at a time
)

// log is the store's file, open. One goroutine at a time appends; all may read.
type log struct {
	file  *os.File
	vault *vault
	end   int64  // behind the last batch that counts
	batch uint64 // of which this is the number
	clock time.Duration

	out  []byte // of the batch that is being written, what is not in the file yet
	from int64  // where that will be
	pack []byte // for frame
	body []byte // for sequence
	err  error
}

// faults, in tests, fail at points that a disk may fail at: nil never does.
type faults func(point string) error

func (f faults) at(point string) error {
	if f == nil {
		return nil
	}
	return f(point)
}

// openLog opens and verifies the file, and makes it if it does not exist. If the file can only be read, openLog returns the log
// and the reason why. If the file can't even be read, the log is nil. found is never nil. synced is how many bytes of the file
// this process has synced.
func openLog(dir string, v *vault, synced int64, point faults) (*log, *found, error) {
	path := filepath.Join(dir, fileName)
	_ = os.Remove(filepath.Join(dir, newName)) // what a crash has left; if it stays, making it anew fails and says so
	file, failure := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if failure != nil {
		file, _ = os.Open(path) // nil if that fails, too
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file; remove it", path)
	}
	if err == nil {
		err = point.at("open")
	}
	if err != nil {
		_ = file.Close()
		return nil, &found{}, fmt.Errorf("open the store: %w", cmp.Or(failure, err))
	}
	_ = file.Chmod(0o600) // it fails on a read-only disk, where nothing can be done about it
	found := scan(file, info.Size(), synced, v)
	if failure == nil && found.corrupt == nil { // else all that is intact is to be written anew
		failure = file.Truncate(found.end)
	}
	if failure == nil {
		failure = syncDir(dir)
	}
	if failure != nil {
		failure = fmt.Errorf("open the store to write: %w", failure)
	}
	return &log{file: file, vault: v, end: found.end, batch: found.batch, clock: found.clock}, found, failure
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

func (l *log) close() {
	if l != nil {
		_ = l.file.Close() // what matters has been synced
	}
}

func (l *log) reader() *reader { return &reader{file: l.file, size: math.MaxInt64, vault: l.vault} }

// load reads a state.
func (l *log) load(s *state) (stream.Snapshot, error) {
	all := stream.Snapshot{
		Type: s.last.typ, Revision: s.last.moment.Revision, History: s.last.moment.History, Before: s.last.before,
	}
	err := l.reader().objects(s, func(o stream.Object) {
		o.Raw = slices.Clip(bytes.Clone(o.Raw))
		all.Objects = append(all.Objects, o)
	})
	slices.SortFunc(all.Objects, func(a, b stream.Object) int { return a.Key.Compare(b.Key) })
	return all, err
}

// differences returns the changes that make the state s into the state to.
func (l *log) differences(s *state, to map[stream.Key]change) (map[stream.Key]change, error) {
	differ := maps.Clone(to)
	err := l.reader().objects(s, func(o stream.Object) {
		if c, ok := to[o.Key]; !ok {
			o.Raw = nil
			differ[o.Key] = change{object: o, deleted: true}
		} else if o.Revision == c.object.Revision && bytes.Equal(o.Raw, c.object.Raw) {
			delete(differ, o.Key)
		}
	})
	return differ, err
}

// job is what one batch does with one key.
type job struct {
	key   key
	entry *entry
	next  *batch // nil: the state is as before, but for read
	old   *state
	read  time.Duration
	from  *log // not nil: the old state is copied from there

	state *state // afterwards; nil: none
}

// append writes one batch and syncs it: after a crash all of it counts, or nothing.
func (l *log) append(jobs []*job, clock time.Duration, point faults) error {
	if err := point.at("begin"); err != nil {
		return err
	}
	l.from, l.out, l.err = l.end, l.out[:0], nil
	err := l.write(jobs, clock)
	l.out, l.pack, l.body = resting(l.out), resting(l.pack), resting(l.body)
	if err == nil {
		err = point.at("commit")
	}
	if err == nil {
		err = l.file.Sync()
	}
	if err == nil {
		err = point.at("committed")
	}
	if err != nil {
		_ = l.file.Truncate(l.end) // if it fails, opening does it
		l.batch--
		return err
	}
	l.end, l.clock = l.from, clock
	return nil
}

// resting returns a buffer to keep until it is used again; nil if it is too large to keep.
func resting(b []byte) []byte {
	const most = 64 << 10
	if cap(b) > most {
		return nil
	}
	return b[:0]
}

// write writes one batch.
func (l *log) write(jobs []*job, clock time.Duration) error {
	l.batch++
	for _, j := range jobs {
		if err := l.do(j); err != nil {
			return fmt.Errorf("write %s: %w", j.key, err)
		}
	}
	l.frame(frame{kind: commits, seconds: uint64(clock / time.Second)}, nil)
	l.flush()
	return l.err
}

// do writes what a job does.
func (l *log) do(j *job) error {
	q, b := sequence{log: l, head: frame{key: j.key}, state: j.old}, j.next
	l.body = l.body[:0]
	if j.old != nil {
		q.head = j.old.last
	}
	q.head.seconds = uint64(j.read / time.Second)
	switch {
	case j.from != nil:
		q.state = nil
		err := j.from.reader().objects(j.old, func(o stream.Object) { q.put(change{object: o}) })
		if err != nil && q.state == nil && len(l.body) == 0 {
			return nil // it has gone bad, so that it has no state
		} else if err != nil {
			return err
		}
	case b == nil:
	case b.drop:
		l.frame(frame{key: j.key, kind: removes}, nil)
		return l.err
	default:
		changes := b.changes
		if q.head.moment = b.to; b.full {
			q.head.typ, q.head.before = b.typ, b.before
			changes, q.state = l.fewest(j)
		}
		for _, k := range slices.SortedFunc(maps.Keys(changes), stream.Key.Compare) {
			q.put(changes[k])
		}
	}
	if len(l.body) > 0 || q.state == j.old || q.state == nil { // if nothing changes, a frame says what its head does
		q.write()
	}
	j.state = q.state
	return l.err
}

// fewest returns changes that bring a key to the job's new state, and the state to which they must be added. If more than half of
// the new state differs, or the old state can't be used, fewest returns all objects of the new state and a nil state.
func (l *log) fewest(j *job) (map[stream.Key]change, *state) {
	if j.old != nil && j.old.last.typ == j.next.typ {
		if differ, err := l.differences(j.old, j.next.changes); err == nil && 2*len(differ) <= len(j.next.changes) {
			return differ, j.old
		}
	}
	return j.next.changes, nil
}

// sequence is the frames of one key in one batch.
type sequence struct {
	log   *log
	head  frame
	state *state // with the frames that are written; nil: none
}

func (q *sequence) put(c change) {
	if q.log.body = appendChange(q.log.body, c); len(q.log.body) >= frameBytes {
		q.write()
	}
}

func (q *sequence) write() {
	q.head.kind, q.head.prev = begins, 0
	s := state{born: q.log.batch}
	if q.state != nil {
		s = *q.state // what is appended to its frames is behind those that its readers know
		q.head.kind, q.head.prev = goesOn, uint64(s.frames[len(s.frames)-1].at)
	}
	s.add(q.log.frame(q.head, q.log.body))
	q.state, q.log.body = &s, q.log.body[:0]
}

// frame writes a frame, packed and encrypted if that is due.
func (l *log) frame(f frame, body []byte) frame {
	f.at, f.batch, f.form, f.size = l.from+int64(len(l.out)), l.batch, 0, uint64(len(body))
	if len(body) >= packFrom {
		l.pack = slices.Grow(l.pack[:0], s2.MaxEncodedLen(len(body)))
		if b := s2.Encode(l.pack[:cap(l.pack)], body); len(b) <= len(body)*3/4 {
			f.form, body = packed, b
		}
	}
	if l.vault.hides(f.key) {
		f.form |= encrypted
		body = l.vault.close(body, f.place())
	}
	f.body, f.sum = uint64(len(body)), xxhash.Sum64(body)
	head := f.encode()
	f.bytes = fixedBytes + len(head) + len(body)
	l.out = append(l.out, magic...)
	l.out = binary.BigEndian.AppendUint16(l.out, uint16(len(head)))
	l.out = binary.BigEndian.AppendUint64(l.out, headSum(f.at, head))
	l.out = append(append(l.out, head...), body...)
	if len(l.out) >= pieceBytes {
		l.flush()
	}
	return f
}

func (l *log) flush() {
	n := 0
	if l.err == nil {
		n, l.err = l.file.WriteAt(l.out, l.from)
	}
	l.from, l.out = l.from+int64(n), l.out[:0]
}

// copied writes the old states of jobs into a new file, each as small as possible, and lets that file replace this one. It leaves
// out a state that has gone bad. Once the new file is in place, copied returns it, even with an error, and nothing may be written
// to the former file any more.
func (l *log) copied(dir string, jobs []*job) (*log, error) {
	path := filepath.Join(dir, newName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	next := &log{file: file, vault: l.vault}
	for i := 0; i < len(jobs) && err == nil; i++ {
		err = next.write(jobs[i:i+1], l.clock) // a batch of its own, which is lost alone if it goes bad
	}
	if err == nil {
		next.end = next.from
		err = next.append(nil, l.clock, nil) // the last batch, which a damaged end of the file would cost
	}
	if err == nil {
		err = os.Rename(path, filepath.Join(dir, fileName))
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(path)
		return nil, err
	}
	return next, syncDir(dir)
}
