package recall

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

// digest is the digest of an answer on the disk. The value unread stands for an answer whose content has not been compared with
// anything.
type digest = [sha256.Size]byte

var unread digest

// entryBytes is how many bytes an answer counts for besides its key and value, because of memory and the disk's pages.
const entryBytes = 1 << 10

// order knows which answers are on the disk, and which were used last.
type order struct {
	most int // bytes

	mu    sync.Mutex
	bytes int
	list  *list.List // of *entry, the most recently used first
	known map[string]*list.Element
}

type entry struct {
	key    string
	bytes  int
	digest digest
}

func newOrder(most int) *order {
	return &order{most: most, list: list.New(), known: map[string]*list.Element{}}
}

// use marks an answer as used now. It returns the answer's digest, and whether the order has it.
func (o *order) use(key string) (digest, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found, ok := o.known[key]
	if !ok {
		return unread, false
	}
	o.list.MoveToFront(found)
	return of(found).digest, true
}

// add adds an answer, used now.
func (o *order) add(key string, bytes int, d digest) {
	o.drop(key)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known[key] = o.list.PushFront(&entry{key, bytes + entryBytes, d})
	o.bytes += bytes + entryBytes
}

// lost records that the disk lacks an answer that the order has, so that the next write of the answer asks the disk.
func (o *order) lost(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if found, ok := o.known[key]; ok {
		of(found).digest = unread
	}
}

func (o *order) drop(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if found, ok := o.known[key]; ok {
		delete(o.known, key)
		o.bytes -= of(found).bytes
		o.list.Remove(found)
	}
}

// full reports whether the answers exceed the bound.
func (o *order) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes > o.most
}

// oldest returns the least recently used answer, if there is any.
func (o *order) oldest() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last := o.list.Back(); last != nil {
		return []string{of(last).key}
	}
	return nil
}

// matching returns the answers whose key is wanted.
func (o *order) matching(want func(key string) bool) (keys []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.known {
		if want(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func of(e *list.Element) *entry { return e.Value.(*entry) } //nolint:forcetypeassert // nothing else is put there
