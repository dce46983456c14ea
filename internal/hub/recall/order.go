package recall

import (
	"container/list"
	"crypto/sha256"
	"sync"
)

// digest is that of an answer on the disk; unread stands for that of one with which nothing has been compared.
type digest = [sha256.Size]byte

var unread digest

// entryBytes is what an answer counts for besides its key and value: what it takes in memory, and of the disk's pages.
const entryBytes = 1 << 10

// order is which answers are on the disk, and which of them was of use last.
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

// use returns the digest of an answer that is of use now, and whether the order has it.
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

// add takes in an answer that is of use now.
func (o *order) add(key string, bytes int, d digest) {
	o.drop(key)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known[key] = o.list.PushFront(&entry{key, bytes + entryBytes, d})
	o.bytes += bytes + entryBytes
}

// lost notes that the disk has not had an answer: it is asked before it is said to have it.
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

// full reports whether there is more than there may be.
func (o *order) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes > o.most
}

// oldest returns the least recently used one, if there is any.
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
