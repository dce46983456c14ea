// Package model is a model of Kubernetes' API servers and their storage, in memory, for the simulation of a pool.
//
// A Store is what etcd is to a cluster: it keeps objects and their history, and has one counter of revisions for all objects.
// Several Servers can use one Store. Each Server has a watch cache, which may lag behind the Store. A Gray stands in front of a
// Server and makes some requests fail. transcript_test.go compares the model with a real kube-apiserver and etcd.
//
// A Server is an http.Handler. The request's context says who the caller is (request.WithUser), as behind Kubernetes' own
// authentication. Authorization and admission are Kubernetes' interfaces. No goroutine outlives a request.
//
// A Server takes the time of day and random numbers from its Config, and its timers are Go's. So it runs in a bubble of
// testing/synctest. A Wire connects a client to a Server without a network.
//
// The model leaves out managed fields, server-side apply, tables, deletion of collections, eviction and binding. It neither sets
// nor checks most fields, and it does not delete the objects of a deleted namespace.
package model

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Store keeps objects and their history. Its objects are shared with all who read them, so nobody may change one.
type Store struct {
	mu sync.Mutex // also guards the Servers' part of the state
	content
	servers []*Server
	seen    func(Change)
}

// Change is one change of the storage. Nobody may change its Object. For a deletion, Object is the last state.
type Change struct {
	Revision int64
	Resource schema.GroupResource
	Path     string // "namespace/name", or "name"
	Object   runtime.Object
	Deleted  bool
}

// Follow calls the function seen with each change from now on, in order. seen must not use the Store.
func (s *Store) Follow(seen func(Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = seen
}

// content is what a backup has.
type content struct {
	revision  int64 // of the newest change
	compacted int64 // the oldest revision that can be read
	log       []*change
	latest    map[schema.GroupResource]map[string]*change // by path
}

// change is one revision of one object.
type change struct {
	revision int64
	resource schema.GroupResource
	path     string // "namespace/name", or "name"
	object   runtime.Object
	deleted  bool // object is the last state, with the revision of the deletion
	previous *change
}

// NewStore returns an empty store. Its revision is 1, as in an empty etcd.
func NewStore() *Store {
	return &Store{content: content{revision: 1, compacted: 1, latest: map[schema.GroupResource]map[string]*change{}}}
}

// Revision returns the revision of the newest change.
func (s *Store) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Objects returns the present objects of a resource, sorted by namespace and name. The caller must not change them.
func (s *Store) Objects(resource schema.GroupResource) (all []runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.listLocked(resource, "", "", s.revision) {
		all = append(all, c.object)
	}
	return all
}

// live returns the newest change of an object; nil means that there is no such object.
func (s *Store) live(resource schema.GroupResource, path string) *change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest[resource][path].at(s.revision)
}

// commit stores next, the new state of an object, in place of the state that the method live returned (was). It sets the
// revision, and the Store owns next.object from then on. If another write came first, commit changes nothing and returns nil.
func (s *Store) commit(was *change, next change) *change {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.latest[next.resource][next.path]
	if newest.at(s.revision) != was {
		return nil
	}
	s.revision++
	next.revision, next.previous = s.revision, newest
	setRevision(next.object, s.revision)
	if s.latest[next.resource] == nil {
		s.latest[next.resource] = map[string]*change{}
	}
	s.latest[next.resource][next.path] = &next
	s.log = append(s.log, &next)
	if s.seen != nil {
		s.seen(Change{next.revision, next.resource, next.path, next.object, next.deleted})
	}
	for _, server := range s.servers {
		server.followLocked()
	}
	return &next
}

// at returns the object's state at a revision; nil means that it did not exist.
func (c *change) at(revision int64) *change {
	for c != nil && c.revision > revision {
		c = c.previous
	}
	if c == nil || c.deleted {
		return nil
	}
	return c
}

// listLocked returns the objects of a resource as they were at a revision, sorted by path. Their paths begin with prefix, and do
// not sort before the parameter from.
func (s *Store) listLocked(resource schema.GroupResource, prefix, from string, revision int64) []*change {
	var found []*change
	for path, newest := range s.latest[resource] {
		if c := newest.at(revision); c != nil && strings.HasPrefix(path, prefix) && path >= from {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b *change) int { return strings.Compare(a.path, b.path) })
	return found
}

// sinceLocked returns the changes after the first revision, up to and including the second. The slice belongs to the Store.
func (s *Store) sinceLocked(after, upTo int64) []*change {
	position := func(revision int64) int {
		i, _ := slices.BinarySearchFunc(s.log, revision+1, func(c *change, r int64) int { return int(c.revision - r) })
		return i
	}
	return s.log[position(after):max(position(after), position(upTo))]
}

// Compact drops the history before a revision: nobody can list at an older revision, or watch from one. Unlike in etcd, the watch
// caches drop that history, too. Compact keeps what a watch cache that lags has not shown yet.
func (s *Store) Compact(revision int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision = min(revision, s.revision)
	for _, server := range s.servers {
		revision = min(revision, server.visible)
	}
	if revision <= s.compacted {
		return
	}
	s.compacted = revision
	s.log = slices.Clone(s.sinceLocked(revision, s.revision))
	for _, objects := range s.latest {
		for path, c := range objects {
			for c != nil && c.revision > revision {
				c = c.previous
			}
			if c == nil {
				continue
			}
			c.previous = nil
			if c.deleted && objects[path] == c {
				delete(objects, path)
			}
		}
	}
}

// Backup is a Store's state at one revision.
type Backup struct{ content }

// Backup returns the present state of the Store, without its history.
func (s *Store) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := content{revision: s.revision, compacted: s.revision, latest: map[schema.GroupResource]map[string]*change{}}
	for resource, objects := range s.latest {
		b.latest[resource] = map[string]*change{}
		for path, newest := range objects {
			if c := newest.at(s.revision); c != nil {
				kept := *c
				kept.previous = nil
				b.latest[resource][path] = &kept
			}
		}
	}
	return Backup{b}
}

// Restore replaces the present state by a backup. The counter of revisions goes back, too. Restore restarts all Servers, as a
// person who restores etcd must do.
func (s *Store) Restore(b Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content = b.content
	s.latest = map[schema.GroupResource]map[string]*change{}
	for resource, objects := range b.latest {
		s.latest[resource] = maps.Clone(objects)
	}
	for _, server := range s.servers {
		server.restartLocked()
	}
}

func setRevision(o runtime.Object, revision int64) {
	accessor(o).SetResourceVersion(strconv.FormatInt(revision, 10))
}

// accessor returns the metadata of an object or a list item. All served kinds have metadata.
func accessor(o runtime.Object) metaObject {
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	return m
}
