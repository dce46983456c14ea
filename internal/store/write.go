package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"yurtcoordinator/internal/stream"
)

// job is what one flush does with one collection.
type job struct {
	id    ID
	batch *batch // nil: only the header is written, for read
	disk  *stored
	read  time.Time

	next    *stored // as it is on disk afterwards; nil: gone
	puts    []put   // of a full batch, what differs, in order
	removes [][]byte
	anew    bool // into a bucket of its own, which takes the old one's place
}

type put struct {
	key     []byte
	object  stream.Object
	deleted bool
}

// work is what one flush writes.
type work struct {
	jobs    []*job
	blobs   map[string][]byte // nil: removed
	garbage []uint64
}

func (w work) empty() bool { return len(w.jobs) == 0 && len(w.blobs) == 0 && len(w.garbage) == 0 }

// write writes everything in one transaction; of large collections, what no reader sees, in several before.
func (f *file) write(w work, point faults) error {
	for _, j := range w.jobs {
		if err := f.prepare(j, point); err != nil {
			return fmt.Errorf("write %s: %w", j.id, err)
		}
	}
	blobs := f.blobs
	err := f.update(point, func(tx *bbolt.Tx) error {
		for _, number := range w.garbage {
			if err := remove(tx, number); err != nil {
				return err
			}
		}
		for _, j := range w.jobs {
			if err := j.write(tx); err != nil {
				return fmt.Errorf("write %s: %w", j.id, err)
			}
		}
		return writeBlobs(tx, w.blobs, &blobs)
	})
	if err != nil {
		return err
	}
	f.blobs = blobs
	return nil
}

// prepare finds out what a full batch changes, reading beside bbolt, and writes what is too much for one transaction.
func (f *file) prepare(j *job, point faults) error {
	if j.batch == nil || !j.batch.full {
		return nil
	}
	var content tally
	differ, err := f.differences(j)
	if err != nil || j.disk == nil || differ >= chunkBytes {
		j.anew, j.puts, j.removes = true, nil, nil // what is there may be corrupt: do not build on it
	}
	number := rand.Uint64()
	if !j.anew {
		number = j.disk.number
	}
	all := make([]put, 0, len(j.batch.changes))
	for k, c := range j.batch.changes {
		key, err := objectKey(k)
		if err != nil {
			return err
		}
		all = append(all, put{key, c.object, c.deleted})
	}
	slices.SortFunc(all, func(a, b put) int { return bytes.Compare(a.key, b.key) })
	var size int64
	for _, p := range all {
		size += int64(len(p.object.Raw))
		content.add(sumObject(number, p.key, p.object), len(p.object.Raw))
	}
	j.next = &stored{number: number, header: header{
		id: j.id, typ: j.batch.typ, revision: j.batch.revision, objects: content, read: j.read, complete: true,
	}}
	if !j.anew {
		return nil
	}
	if size < chunkBytes {
		j.puts = all
		return nil
	}
	return f.writeAhead(number, j.id, all, point)
}

// writeAhead writes a new bucket, which is nobody's until its header says that it is complete.
func (f *file) writeAhead(number uint64, id ID, all []put, point faults) error {
	err := f.update(point, func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket(objectsOf(number)); err != nil {
			return err
		}
		return tx.Bucket([]byte(bucketCollections)).Put(numberKey(number), header{id: id}.encode(number))
	})
	if err != nil {
		return err
	}
	c := chunks{bucket: objectsOf(number), update: func(change func(*bbolt.Tx) error) error { return f.update(point, change) }}
	for _, p := range all {
		value, _ := encodeObject(number, p.key, p.object)
		if err := c.put(p.key, value); err != nil {
			return err
		}
	}
	return c.end(nil)
}

// differences compares a full batch with the disk, notes what to put and to remove, and returns the bytes of the former.
func (f *file) differences(j *job) (int64, error) {
	if j.disk == nil {
		return 0, nil
	}
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	t, err := readTree(f.f, info.Size())
	if err != nil {
		return 0, err
	}
	b, ok, err := t.bucket(objectsOf(j.disk.number))
	if err != nil || !ok {
		return 0, errors.Join(err, corrupt("its objects are missing"))
	}
	same := map[stream.Key]bool{}
	found, err := t.scan(j.disk.number, b, func(o stream.Object, s uint64) error {
		key, err := objectKey(o.Key)
		if err != nil {
			return err
		}
		c, ok := j.batch.changes[o.Key]
		if !ok {
			j.removes = append(j.removes, key)
		} else if s == sumObject(j.disk.number, key, c.object) {
			same[o.Key] = true
		}
		return nil
	})
	if err == nil && found != j.disk.objects {
		err = corrupt("it has changed")
	}
	var size int64
	for k, c := range j.batch.changes {
		if same[k] {
			continue
		}
		key, err := objectKey(k)
		if err != nil {
			return 0, err
		}
		j.puts = append(j.puts, put{key, c.object, c.deleted})
		size += int64(len(c.object.Raw))
	}
	slices.SortFunc(j.puts, func(a, b put) int { return bytes.Compare(a.key, b.key) })
	return size, err
}

// write does the job's part of a transaction.
func (j *job) write(tx *bbolt.Tx) error {
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
		if err := j.apply(tx); err != nil {
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
	for _, key := range j.removes {
		if err := b.Delete(key); err != nil {
			return err
		}
	}
	for _, p := range j.puts {
		value, _ := encodeObject(j.next.number, p.key, p.object)
		if err := b.Put(p.key, value); err != nil {
			return err
		}
	}
	if j.anew && j.disk != nil {
		return remove(tx, j.disk.number)
	}
	return nil
}

func (j *job) apply(tx *bbolt.Tx) error {
	if j.disk == nil {
		return corrupt("there is nothing to apply changes to")
	}
	next := *j.disk
	next.revision, next.read = j.batch.revision, j.read
	j.next = &next
	b := tx.Bucket(objectsOf(next.number))
	if b == nil {
		return corrupt("its objects are missing")
	}
	changes := make([]put, 0, len(j.batch.changes))
	for k, c := range j.batch.changes {
		key, err := objectKey(k)
		if err != nil {
			return err
		}
		changes = append(changes, put{key, c.object, c.deleted})
	}
	slices.SortFunc(changes, func(a, b put) int { return bytes.Compare(a.key, b.key) })
	for _, p := range changes {
		if old := b.Get(p.key); old != nil {
			if len(old) < 16 {
				return corrupt("%q has no checksum", p.key)
			}
			next.objects.remove(binary.BigEndian.Uint64(old), len(old)-16)
		}
		if p.deleted {
			if err := b.Delete(p.key); err != nil {
				return err
			}
			continue
		}
		value, s := encodeObject(next.number, p.key, p.object)
		next.objects.add(s, len(p.object.Raw))
		if err := b.Put(p.key, value); err != nil {
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
func writeBlobs(tx *bbolt.Tx, blobs map[string][]byte, all *tally) error {
	if len(blobs) == 0 {
		return nil
	}
	b := tx.Bucket([]byte(bucketBlobs))
	keys := make([]string, 0, len(blobs))
	for key := range blobs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, cmp.Compare[string])
	for _, key := range keys {
		k, value := []byte(key), blobs[key]
		if old := b.Get(k); old != nil {
			if len(old) < 8 {
				return corrupt("the blob %q has no checksum", key)
			}
			all.remove(binary.BigEndian.Uint64(old), len(old)-8)
		}
		if value == nil {
			if err := b.Delete(k); err != nil {
				return err
			}
			continue
		}
		sealed := seal(ofBlob, 0, k, value)
		all.add(binary.BigEndian.Uint64(sealed), len(value))
		if err := b.Put(k, sealed); err != nil {
			return err
		}
	}
	return putTally(tx, *all)
}
