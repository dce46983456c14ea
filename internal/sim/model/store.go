// Package model is a model of Kubernetes' API servers and their storage, in memory, for the simulation of a pool.
//
// A Store is what etcd is to a cluster: objects, one counter of revisions for all of them, and their history. Several
// Servers read and write one Store; each has a watch cache that may lag behind it. A Gray stands before a Server and
// half fails. transcript_test.go holds all of it to a real kube-apiserver and etcd.
//
// A Server is an http.Handler. Who calls is the user of the request's context, as behind Kubernetes' own authentication
// (request.WithUser). Authorization and admission are Kubernetes' interfaces. No goroutine outlives a request, and nothing
// reads a clock or takes a random number that it was not given; timers are Go's. It runs in a bubble of testing/synctest,
// where clients reach it by a Wire.
//
// What it leaves out: managed fields and server-side apply, tables, deletion of collections, eviction and binding, defaults
// and validation of most fields, and the end of a namespace's deletion.
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

// Store keeps objects and their history. Objects in it are shared: nobody changes one.
type Store struct {
	mu sync.Mutex // guards what Servers know of the Store, too
	content
	servers []*Server
	seen    func(Change)
}

// Change is one change of the storage. Nobody may change its Object, which of a deletion is the last state.
type Change struct {
	Revision int64
	Resource schema.GroupResource
	Path     string // "namespace/name", or "name"
	Object   runtime.Object
	Deleted  bool
}

// Follow has each change from now on told to seen, in order. seen must not use the Store.
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

// NewStore returns an empty store, at the revision at which an empty etcd is.
func NewStore() *Store {
	return &Store{content: content{revision: 1, compacted: 1, latest: map[schema.GroupResource]map[string]*change{}}}
}

// Revision returns the revision of the newest change.
func (s *Store) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// Objects returns what there is of a resource, by namespace and name, as of the newest change. Nobody may change them.
func (s *Store) Objects(resource schema.GroupResource) (all []runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.listLocked(resource, "", "", s.revision) {
		all = append(all, c.object)
	}
	return all
}

// live returns the newest change of an object, nil if there is no such object.
func (s *Store) live(resource schema.GroupResource, path string) *change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest[resource][path].at(s.revision)
}

// commit stores an object, which from then on belongs to the Store, and sets its revision. was is what live has
// returned: if it is no longer true, commit changes nothing and returns nil.
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

// at returns the object's state at a revision, nil if it did not exist.
func (c *change) at(revision int64) *change {
	for c != nil && c.revision > revision {
		c = c.previous
	}
	if c == nil || c.deleted {
		return nil
	}
	return c
}

// listLocked returns the objects at a revision, by path from a path on that all must begin with prefix.
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

// sinceLocked returns the changes after one revision, up to another. They belong to the Store.
func (s *Store) sinceLocked(after, upTo int64) []*change {
	position := func(revision int64) int {
		i, _ := slices.BinarySearchFunc(s.log, revision+1, func(c *change, r int64) int { return int(c.revision - r) })
		return i
	}
	return s.log[position(after):max(position(after), position(upTo))]
}

// Compact forgets what was before a revision: it can't be listed or watched from any more. Unlike in etcd, watch caches
// forget it, too; a cache that lags keeps what it has not shown.
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

// Backup returns the present state, without its history.
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

// Restore puts a backup in the present state's place, and restarts all Servers, as a person who does this must. The
// counter of revisions goes back with it.
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

// accessor returns the metadata of an object or a list item of the served kinds, which all have it.
func accessor(o runtime.Object) metaObject {
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	return m
}
