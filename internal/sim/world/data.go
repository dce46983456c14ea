package world

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/sim/model"
)

// truth is what the cloud's storage has had, change by change. The oracle judges by it what a program reads through its hub.
// Everything read must be what the cloud had at some revision, and each change must reach the program once and in order.
type truth struct {
	mu      sync.Mutex
	changes map[schema.GroupResource][]dated
	// shown is, for each hub and resource, the newest revision that the hub has shown to any program.
	shown map[string]int64
	// wrong has what was not so, with the node concerned.
	wrong []falsehood
}

// dated is a change, and when the cloud made it.
type dated struct {
	model.Change
	at time.Time
}

type falsehood struct{ node, what string }

func newTruth() *truth {
	return &truth{changes: map[schema.GroupResource][]dated{}, shown: map[string]int64{}}
}

// add notes a change of the storage.
func (t *truth) add(c model.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changes[c.Resource] = append(t.changes[c.Resource], dated{c, time.Now()})
}

// between returns the changes of a resource after one revision, up to another.
func (t *truth) between(resource schema.GroupResource, after, upTo int64) []dated {
	all := t.changes[resource]
	position := func(revision int64) int {
		i, _ := slices.BinarySearchFunc(all, revision+1, func(c dated, r int64) int { return int(c.Revision - r) })
		return i
	}
	return all[position(after):max(position(after), position(upTo))]
}

// at returns what there was of a resource at a revision, by path.
func (t *truth) at(resource schema.GroupResource, revision int64) map[string]runtime.Object {
	was := map[string]runtime.Object{}
	for _, c := range t.between(resource, 0, revision) {
		if c.Deleted {
			delete(was, c.Path)
		} else {
			was[c.Path] = c.Object
		}
	}
	return was
}

// take returns the falsehoods since the last call.
func (t *truth) take() []falsehood {
	t.mu.Lock()
	defer t.mu.Unlock()
	wrong := t.wrong
	t.wrong = nil
	return wrong
}

// forget takes in that a hub has lost its disk: it may show again what is older.
func (t *truth) forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, resource := range read {
		delete(t.shown, node+" "+resource.String())
	}
}

// reading is what one program has read of one resource through the hub of its node. It implements cache.ReflectorStore.
type reading struct {
	truth    *truth
	node     string
	resource schema.GroupResource
	// at is up to which revision the program has read. 0 means that it has no list yet.
	at int64
	// current is since when a single object must be as new as the question, because the node's line has been whole for long
	// enough. Zero means that this is not so now.
	current time.Time
}

func (r *reading) key() string { return r.node + " " + r.resource.String() }

// false notes that something was not so. The caller holds the truth's lock.
func (r *reading) false(format string, args ...any) {
	r.truth.wrong = append(r.truth.wrong, falsehood{r.node, r.resource.String() + ": " + fmt.Sprintf(format, args...)})
}

func (r *reading) moved(revision int64) {
	r.at = revision
	r.truth.shown[r.key()] = max(r.truth.shown[r.key()], revision)
}

// Replace judges a list: it is what the cloud had at the list's revision, which is no older than what the hub has shown before.
func (r *reading) Replace(list []any, version string) error {
	r.truth.mu.Lock()
	defer r.truth.mu.Unlock()
	revision := revisionIn(version)
	if before := r.truth.shown[r.key()]; revision < before {
		r.false("a list of revision %d, after the hub has shown %d", revision, before)
	}
	want := r.truth.at(r.resource, revision)
	for _, o := range list {
		got := accessor(o)
		path := got.GetNamespace() + "/" + got.GetName()
		switch of := want[path]; {
		case of == nil:
			r.false("a list of revision %d has %s, which was not there", revision, path)
		case !same(of, o):
			r.false("a list of revision %d has %s as of %s, which was as of %s there", revision, path, got.GetResourceVersion(),
				accessor(of).GetResourceVersion())
		}
		delete(want, path)
	}
	for path := range want {
		r.false("a list of revision %d lacks %s", revision, path)
	}
	r.moved(revision)
	return nil
}

// Add judges an event, as Update and Delete do.
func (r *reading) Add(o any) error { return r.event(o, false) }

// Update judges an event.
func (r *reading) Update(o any) error { return r.event(o, false) }

// Delete judges an event.
func (r *reading) Delete(o any) error { return r.event(o, true) }

// event judges a change: it is the cloud's next one of this resource.
func (r *reading) event(o any, deleted bool) error {
	r.truth.mu.Lock()
	defer r.truth.mu.Unlock()
	got := accessor(o)
	path, revision := got.GetNamespace()+"/"+got.GetName(), revisionIn(got.GetResourceVersion())
	if revision <= r.at {
		r.false("an event of revision %d, after %d", revision, r.at)
		return nil
	}
	missed := r.truth.between(r.resource, r.at, revision)
	if n := len(missed); n == 0 || missed[n-1].Revision != revision {
		r.false("an event of revision %d, at which the cloud changed nothing", revision)
		missed = append(missed, dated{})
	} else if is := missed[n-1]; is.Path != path || is.Deleted != deleted || !same(is.Object, o) {
		r.false("an event of revision %d says of %s (deleted: %t) what the cloud did not", revision, path, deleted)
	}
	for _, c := range missed[:len(missed)-1] {
		r.false("the change of %s at revision %d was missed, between %d and %d", c.Path, c.Revision, r.at, revision)
	}
	r.moved(revision)
	return nil
}

// Bookmark judges a bookmark: nothing below it is missing.
func (r *reading) Bookmark(version string) error {
	r.truth.mu.Lock()
	defer r.truth.mu.Unlock()
	revision := revisionIn(version)
	for _, c := range r.truth.between(r.resource, r.at, revision) {
		r.false("the change of %s at revision %d was missed, before a bookmark at %d", c.Path, c.Revision, revision)
	}
	if revision < r.at {
		r.false("a bookmark at %d, after %d", revision, r.at)
		return nil
	}
	r.moved(revision)
	return nil
}

// question is when a single object was asked for, and up to which revision the hub had shown its resource by then.
type question struct {
	asked time.Time
	shown int64
}

// asks returns a question of now.
func (r *reading) asks() question {
	r.truth.mu.Lock()
	defer r.truth.mu.Unlock()
	return question{time.Now(), r.truth.shown[r.key()]}
}

// got judges the answer to a question for a single object, asked without a revision; nil means that the hub found none. The
// answer must be what the cloud had at some moment. That moment is no earlier than the newest revision that the hub had shown
// before the question. If the hub could ask the cloud, the moment is also no earlier than the question.
func (r *reading) got(path string, o metav1.Object, q question) {
	r.truth.mu.Lock()
	defer r.truth.mu.Unlock()
	var last, next *dated // the change that made what was got, and the one that ended it
	for i, c := range r.truth.changes[r.resource] {
		switch {
		case c.Path != path:
		case o == nil && c.Deleted, o != nil && !c.Deleted && c.Revision == revisionIn(o.GetResourceVersion()):
			last, next = &r.truth.changes[r.resource][i], nil
		case last != nil && next == nil:
			next = &r.truth.changes[r.resource][i]
		case o == nil && last == nil && next == nil:
			next = &r.truth.changes[r.resource][i] // before it there was none
		}
	}
	switch {
	case o != nil && (last == nil || !same(last.Object, o)):
		r.false("%s as of %s was never so", path, o.GetResourceVersion())
	case next == nil:
	case next.Revision <= q.shown:
		r.false("%s is answered as before revision %d, after the hub has shown %d", path, next.Revision, q.shown)
	case !r.current.IsZero() && r.current.Before(q.asked) && next.at.Before(q.asked):
		r.false("%s is answered as before revision %d, which was made %v before the question", path, next.Revision,
			q.asked.Sub(next.at))
	}
}

// isCurrent takes in whether a single object must be as new as the question now.
func (n *node) isCurrent(is bool, now time.Time) {
	n.world.truth.mu.Lock()
	defer n.world.truth.mu.Unlock()
	for _, r := range n.reads {
		if !is {
			r.current = time.Time{}
		} else if r.current.IsZero() {
			r.current = now
		}
	}
}

// Resync implements cache.ReflectorStore.
func (r *reading) Resync() error { return nil }

// late returns the oldest change that the program has not read, if the cloud made it before a moment.
func (r *reading) late(before time.Time) *dated {
	r.truth.mu.Lock()
	defer r.truth.mu.Unlock()
	all := r.truth.changes[r.resource]
	if len(all) == 0 {
		return nil
	}
	unread := r.truth.between(r.resource, r.at, all[len(all)-1].Revision)
	if len(unread) == 0 || !unread[0].at.Before(before) {
		return nil
	}
	return &unread[0]
}

// same reports whether two objects have the same content. Lists leave an object's type out.
func same(a runtime.Object, b any) bool {
	other, ok := b.(runtime.Object)
	if !ok {
		return false
	}
	a, other = a.DeepCopyObject(), other.DeepCopyObject()
	a.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	other.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return equality.Semantic.DeepEqual(a, other)
}
