package store

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"yurtcoordinator/internal/store/pages"
	"yurtcoordinator/internal/stream"
)

// job is what one flush does with one collection.
type job struct {
	id    Collection
	batch *batch // nil: only the header is written, for read
	disk  *stored
	read  time.Duration

	next *stored // as it is on disk afterwards; nil: gone
	puts []put   // of a full batch, what differs, in order
	anew bool    // into a bucket of its own, which takes the old one's place
}

// put is an object's value; nil: it is removed.
type put struct{ key, value []byte }

// work is what one flush writes.
type work struct {
	jobs    []*job
	blobs   map[string][]byte // nil: removed
	garbage []uint64
	asked   time.Duration // what the clock shows
}

func (w work) empty() bool { return len(w.jobs) == 0 && len(w.blobs) == 0 && len(w.garbage) == 0 }

// wantsClock says whether the clock is written: with something else when it lags by an hour, else by the most that it may.
func (f *file) wantsClock(w work) bool {
	lag := w.asked - f.asked
	return lag >= clockLag || !w.empty() && lag >= touchEvery
}

// write writes everything in one transaction; of large collections, what no reader sees, in several before.
func (f *file) write(w work, point faults) error {
	for _, j := range w.jobs {
		if err := f.prepare(j, point); err != nil {
			return fmt.Errorf("write %s: %w", j.id, err)
		}
	}
	blobs, clock := f.blobs, f.wantsClock(w)
	err := f.update(point, func(tx *bbolt.Tx) error {
		for _, number := range w.garbage {
			if err := remove(tx, number); err != nil {
				return err
			}
		}
		for _, j := range w.jobs {
			if err := j.write(tx, &f.coder); err != nil {
				return fmt.Errorf("write %s: %w", j.id, err)
			}
		}
		if clock {
			if err := putAsked(tx, w.asked); err != nil {
				return err
			}
		}
		return writeBlobs(tx, f.coder.vault, w.blobs, &blobs)
	})
	if err != nil {
		return err
	}
	f.blobs = blobs
	if clock {
		f.asked = w.asked
	}
	return nil
}

// prepare finds out what a full batch changes, reading beside bbolt, and writes what is too much for one transaction.
func (f *file) prepare(j *job, point faults) error {
	if j.batch == nil || !j.batch.full {
		return nil
	}
	differ, err := f.differences(j)
	size := 0
	for _, c := range differ {
		size += len(c.object.Raw)
	}
	j.anew = err != nil || j.disk == nil || size >= chunkBytes // what is there may be corrupt: do not build on it
	next := stored{number: rand.Uint64(), header: header{
		id: j.id, typ: j.batch.typ, at: j.batch.to, before: j.batch.before, read: j.read, complete: true,
	}}
	j.next = &next
	if !j.anew {
		next.number, next.objects = j.disk.number, j.disk.objects
		j.puts, err = f.coder.puts(next, differ)
		return err
	}
	if j.batch.bytes < chunkBytes {
		j.puts, err = f.coder.puts(next, j.batch.changes)
		return err
	}
	return f.writeAhead(&next, j.batch.changes, point)
}

// puts makes values of changes, in the order of their keys.
func (c *coder) puts(to stored, changes map[stream.Key]change) ([]put, error) {
	all := make([]put, 0, len(changes))
	for k, change := range changes {
		key, err := objectKey(k)
		if err != nil {
			return nil, err
		}
		p := put{key: key}
		if !change.deleted {
			p.value = c.encode(to.number, key, change.object, c.vault.hides(to.id))
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b put) int { return bytes.Compare(a.key, b.key) })
	return all, nil
}

// writeAhead writes a new bucket, which is nobody's until its header says that it is complete.
func (f *file) writeAhead(next *stored, changes map[stream.Key]change, point faults) error {
	err := f.update(point, func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket(objectsOf(next.number)); err != nil {
			return err
		}
		return tx.Bucket([]byte(bucketCollections)).Put(numberKey(next.number), header{id: next.id}.encode(next.number))
	})
	if err != nil {
		return err
	}
	c := chunks{
		bucket: objectsOf(next.number),
		update: func(change func(*bbolt.Tx) error) error { return f.update(point, change) },
	}
	for _, k := range slices.SortedFunc(maps.Keys(changes), stream.Key.Compare) {
		key, err := objectKey(k)
		if err != nil {
			return err
		}
		value := f.coder.encode(next.number, key, changes[k].object, f.coder.vault.hides(next.id))
		next.objects.put(value, valueHead)
		if err := c.put(key, value); err != nil {
			return err
		}
	}
	return c.end(nil)
}

// differences compares a full batch with the disk.
func (f *file) differences(j *job) (map[stream.Key]change, error) {
	if j.disk == nil {
		return nil, nil
	}
	t, err := f.tree()
	if err != nil {
		return nil, err
	}
	b, err := t.Bucket(objectsOf(j.disk.number))
	if err != nil {
		return nil, err
	}
	differ := maps.Clone(j.batch.changes)
	reader := coder{vault: f.coder.vault} // the writer's is in use
	found, err := reader.scan(t, j.disk.number, b, func(_, _ []byte, o stream.Object) error {
		if c, ok := differ[o.Key]; !ok {
			differ[o.Key] = change{deleted: true}
		} else if o.Revision == c.object.Revision && bytes.Equal(o.Raw, c.object.Raw) {
			delete(differ, o.Key)
		}
		return nil
	})
	if err == nil && found != j.disk.objects {
		err = pages.Corrupt("it has changed")
	}
	return differ, err
}

// write does the job's part of a transaction.
func (j *job) write(tx *bbolt.Tx, c *coder) error {
	switch {
	case j.batch == nil:
		next := *j.disk
		next.read = j.read
		j.next = &next
	case j.batch.drop:
		if j.disk == nil {
			return nil
		}
		return remove(tx, j.disk.number)
	case j.batch.full:
		if err := j.replace(tx); err != nil {
			return err
		}
	default:
		if err := j.apply(tx, c); err != nil {
			return err
		}
	}
	return tx.Bucket([]byte(bucketCollections)).Put(numberKey(j.next.number), j.next.encode(j.next.number))
}

func (j *job) replace(tx *bbolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists(objectsOf(j.next.number))
	if err != nil {
		return err
	}
	if err := j.next.objects.write(b, j.puts, valueHead); err != nil {
		return err
	}
	if j.anew && j.disk != nil {
		return remove(tx, j.disk.number)
	}
	return nil
}

func (j *job) apply(tx *bbolt.Tx, c *coder) error {
	if j.disk == nil {
		return pages.Corrupt("there is nothing to apply changes to")
	}
	next := *j.disk
	next.at, next.read = j.batch.to, j.read
	j.next = &next
	b := tx.Bucket(objectsOf(next.number))
	if b == nil {
		return pages.Corrupt("its objects are missing")
	}
	changes, err := c.puts(next, j.batch.changes)
	if err != nil {
		return err
	}
	return next.objects.write(b, changes, valueHead)
}

// write changes values, and their tally with them.
func (t *tally) write(b *bbolt.Bucket, changes []put, head int) error {
	for _, p := range changes {
		if old := b.Get(p.key); old != nil {
			if err := t.take(p.key, old, head); err != nil {
				return err
			}
		}
		if p.value == nil {
			if err := b.Delete(p.key); err != nil {
				return err
			}
			continue
		}
		t.put(p.value, head)
		if err := b.Put(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a collection; it need not be there.
func remove(tx *bbolt.Tx, number uint64) error {
	if err := tx.Bucket([]byte(bucketCollections)).Delete(numberKey(number)); err != nil {
		return err
	}
	if tx.Bucket(objectsOf(number)) == nil {
		return nil
	}
	return tx.DeleteBucket(objectsOf(number))
}

// writeBlobs writes and removes blobs.
func writeBlobs(tx *bbolt.Tx, v *vault, blobs map[string][]byte, all *tally) error {
	if len(blobs) == 0 {
		return nil
	}
	var changes []put
	for _, key := range slices.Sorted(maps.Keys(blobs)) {
		p := put{key: []byte(key)}
		if value := blobs[key]; value != nil {
			p.value = v.sealBlob(p.key, value)
		}
		changes = append(changes, p)
	}
	if err := all.write(tx.Bucket([]byte(bucketBlobs)), changes, sealHead); err != nil {
		return err
	}
	return putTally(tx, *all)
}
