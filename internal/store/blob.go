package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"yurtcoordinator/internal/store/pages"
)

// blobs is what is known of all blobs. Guarded by Store.mu.
type blobs struct {
	disk    map[string]int    // key → bytes
	waiting map[string][]byte // to be written; nil: to be removed
	flying  map[string][]byte // being written
	shares  map[string]int    // kind → bytes that are its own
	bytes   map[string]int    // kind → of all that will be on disk
	pace    pace
}

func newBlobs(shares map[string]int) blobs {
	return blobs{disk: map[string]int{}, waiting: map[string][]byte{}, shares: shares, bytes: map[string]int{}}
}

// kindOf is what a key begins with, up to and with the first slash; empty if it has none.
func kindOf(key string) string { return key[:strings.IndexByte(key, '/')+1] }

// fits says whether a key can get a value that counts for cost: its kind stays within its share, or all that goes beyond
// the shares is within what they leave. So a kind with many cannot take the place of another's few.
func (b *blobs) fits(key string, cost int) bool {
	kind := kindOf(key)
	now := b.bytes[kind] - b.cost(key) + cost
	if now <= b.shares[kind] {
		return true
	}
	common, beyond := maxBlobs, now-b.shares[kind]
	for _, share := range b.shares {
		common -= share
	}
	for other, bytes := range b.bytes {
		if other != kind {
			beyond += max(0, bytes-b.shares[other])
		}
	}
	return beyond <= common
}

// adopt takes over what is on disk, without those that are encrypted with another key, which are removed. What waits goes on
// waiting: a blob is whole by itself.
func (b *blobs) adopt(disk map[string]int, foreign []string) {
	for _, key := range foreign {
		if _, ok := b.waiting[key]; !ok {
			b.waiting[key] = nil
		}
	}
	b.disk, b.bytes = map[string]int{}, map[string]int{}
	maps.Copy(b.disk, disk)
	for key := range b.disk {
		b.bytes[kindOf(key)] += b.cost(key)
	}
	for key := range b.waiting {
		if _, ok := b.disk[key]; !ok {
			b.bytes[kindOf(key)] += b.cost(key)
		}
	}
}

// latest is what a key's value will be, as far as it is not on disk yet.
func (b *blobs) latest(key string) (value []byte, ok bool) {
	if value, ok = b.waiting[key]; !ok {
		value, ok = b.flying[key]
	}
	return value, ok
}

// cost is what a key and its value count for, 0 if there is none.
func (b *blobs) cost(key string) int {
	if value, ok := b.latest(key); ok {
		if value == nil {
			return 0
		}
		return len(key) + len(value)
	}
	if n, ok := b.disk[key]; ok {
		return len(key) + n
	}
	return 0
}

// set makes a value, or nil, wait.
func (b *blobs) set(key string, value []byte) {
	b.bytes[kindOf(key)] -= b.cost(key)
	_, onDisk := b.disk[key]
	_, flying := b.flying[key]
	if value == nil && !onDisk && !flying {
		delete(b.waiting, key)
		return
	}
	b.waiting[key] = value
	b.bytes[kindOf(key)] += b.cost(key)
}

// put makes a value wait, if it fits. If it does not, the key has none: an old value would be a wrong one.
func (b *blobs) put(key string, value []byte) error {
	if key == "" || len(key) > maxBlobKey || len(value) > maxBlob {
		return fmt.Errorf("%w: blob %.40q of %d bytes: want a key of 1 to %d, and a value of at most %d",
			ErrFull, key, len(value), maxBlobKey, maxBlob)
	}
	if now, ok := b.latest(key); ok && now != nil && bytes.Equal(now, value) {
		return nil
	}
	if !b.fits(key, len(key)+len(value)) {
		b.set(key, nil)
		return fmt.Errorf("%w: blob %.40q: there are %d bytes of its kind", ErrFull, key, b.bytes[kindOf(key)])
	}
	b.set(key, append([]byte{}, value...))
	return nil
}

// keys are those that begin with prefix, sorted.
func (b *blobs) keys(prefix string) []string {
	keys := map[string]bool{}
	for _, some := range []map[string][]byte{b.flying, b.waiting} {
		for key := range some {
			keys[key] = true
		}
	}
	for key := range b.disk {
		keys[key] = true
	}
	maps.DeleteFunc(keys, func(key string, _ bool) bool {
		value, ok := b.latest(key)
		return !strings.HasPrefix(key, prefix) || ok && value == nil
	})
	return slices.Sorted(maps.Keys(keys))
}

// done says how writing went.
func (b *blobs) done(written bool) {
	for key, value := range b.flying {
		_, newer := b.waiting[key]
		switch {
		case !written && !newer:
			b.waiting[key] = value
		case !written:
		case value == nil:
			delete(b.disk, key)
		default:
			b.disk[key] = len(value)
		}
	}
	b.flying = nil
}

// PutBlob keeps a small value under a key, of at most 1 KiB and 1 MiB. It is written with the next flush, and survives
// that the disk cannot be written for a while. It fails with ErrFull beyond 16 MiB of all blobs, as Config.BlobShares divides
// them; the key has no value then.
func (s *Store) PutBlob(key string, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	err := s.blobs.put(key, value)
	if len(s.blobs.waiting) > 0 {
		_, there := s.blobs.disk[key]
		h := patient // an older value is of use after a crash, none is not
		if err == nil && !there {
			h = atOnce
		}
		s.wakeLocked(&s.blobs.pace, h)
	}
	return err
}

// DropBlob removes a value, if there is one.
func (s *Store) DropBlob(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.blobs.set(key, nil)
	h := patient
	if _, waits := s.blobs.waiting[key]; waits && s.config.Prompt.ofBlob(key) {
		h = prompt
	}
	s.wakeLocked(&s.blobs.pace, h)
}

// Blob returns the value of a key, written or not; ErrMiss if there is none.
func (s *Store) Blob(key string) (value []byte, err error) {
	err = s.read(
		func() (file *file, err error) {
			value, file, err = s.findBlob(key)
			return file, err
		},
		func(t *pages.Tree) error {
			b, err := t.Bucket([]byte(bucketBlobs))
			if err == nil {
				value, err = t.Get(b, []byte(key))
			}
			if err == nil {
				value, err = s.vault.unsealBlob([]byte(key), value)
			}
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("blob %.40q: %w: %w", key, ErrMiss, err)
	}
	return value, nil
}

// findBlob returns a value that waits, or the file that has it.
func (s *Store) findBlob(key string) ([]byte, *file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.blobs.latest(key)
	switch {
	case ok && value == nil:
		return nil, nil, errors.New("dropped")
	case ok:
		return bytes.Clone(value), nil, nil
	case s.closed:
		return nil, nil, ErrClosed
	case s.file == nil:
		return nil, nil, s.failure
	}
	if _, ok := s.blobs.disk[key]; !ok {
		return nil, nil, errors.New("never stored")
	}
	return nil, s.file, nil
}

// BlobSize is how many bytes a key and its value have; 0 if it has none.
func (s *Store) BlobSize(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blobs.cost(key)
}

// Blobs returns the keys that begin with prefix, sorted.
func (s *Store) Blobs(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blobs.keys(prefix)
}
