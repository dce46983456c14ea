package shareserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// mirrored is one resource of the mirror: the replica that hubs read and, for a built-in resource, its copy in etcd.
type mirrored struct {
	resource schema.GroupVersionResource
	builtIn  *BuiltIn // nil means that the replica is the only copy
	write    Writer
	replica  *replica.Replica
	handler  *replica.Handler

	mu    sync.Mutex // held while a push is applied, etcd included
	guard doubt.Guard
	older doubt.Doubt // about pushes of everything that are older than the mirror, or hold an older object
	// unsure holds the keys at which etcd may differ from the replica after a failed write. The next push writes or deletes all
	// of them.
	unsure map[stream.Key]struct{}
}

// newMirrored returns what is pushed as a resource, and served as this or another.
func newMirrored(r, as schema.GroupVersionResource, write Writer, b BuiltIn) *mirrored {
	each := &mirrored{
		resource: r, write: write, unsure: map[stream.Key]struct{}{}, replica: replica.New(replica.Config{Resource: as}),
	}
	if b.New != nil {
		each.builtIn = &b
	}
	// Prompt brings the hubs each bookmark at once, because any of them may lead next. A new leader that lags by one bookmark
	// can't declare the mirror current until the cloud has brought it to the same revision, which takes up to a minute.
	each.handler = replica.NewHandler(replica.HandlerConfig{Replica: each.replica, Wait: mirrorWait, Prompt: true})
	return each
}

// Position is the revision up to which the replica is complete; 0 means that it is not.
func (m *mirrored) Position() edge.Revision { return m.replica.Position() }

// check checks a batch that is read: everything, or changes, which end with a bookmark or with the stream.
func (m *mirrored) check(p *pushed, told stream.Type) error {
	if p.from == 0 && !p.marked {
		return exchange.Refused(http.StatusUnprocessableEntity,
			"the stream has no end of initial events, so it may be incomplete; nothing was changed")
	}
	if err := m.typeOf(p, told); err != nil {
		return err
	}
	slices.SortFunc(p.snapshot, func(a, b stream.Object) int { return a.Key.Compare(b.Key) })
	for i := range p.snapshot {
		if i > 0 && p.snapshot[i].Key == p.snapshot[i-1].Key {
			return exchange.Refused(http.StatusUnprocessableEntity, "%s occurs twice", p.snapshot[i].Key)
		}
		if p.snapshot[i].Revision > p.revision {
			return exchange.Refused(http.StatusUnprocessableEntity, "%s has revision %d, after the end of the stream at %d",
				p.snapshot[i].Key, p.snapshot[i].Revision, p.revision)
		}
	}
	return nil
}

func (m *mirrored) readEvent(p *pushed, event stream.Event) error {
	o := &event.Object
	if p.marked {
		return exchange.Refused(http.StatusUnprocessableEntity, "the stream continues after the end of its initial events; push "+
			"changes with from=%d", p.revision)
	}
	change := event.Type == stream.Modified || event.Type == stream.Deleted || event.Type == stream.Added
	switch {
	case event.Type == stream.InitialEventsEnd && p.from == 0:
		p.marked, p.revision = true, o.Revision
		if o.Revision == 0 {
			return exchange.Refused(http.StatusUnprocessableEntity, "the end of the initial events has no revision")
		}
		return nil
	case event.Type == stream.Bookmark && p.from != 0:
		if o.Revision < p.revision {
			return exchange.Refused(http.StatusUnprocessableEntity, "a bookmark at revision %d follows %d", o.Revision,
				p.revision)
		}
		p.revision = o.Revision
		p.events = append(p.events, event)
		return nil
	case change && p.from != 0:
		if o.Revision <= p.revision {
			return exchange.Refused(http.StatusUnprocessableEntity, "%s %s at revision %d follows %d", event.Type,
				o.Key, o.Revision,
				p.revision)
		}
	case event.Type == stream.Added && o.Revision != 0:
	default:
		return exchange.Refused(http.StatusUnprocessableEntity, "%s %s is not allowed in this stream", event.Type, o.Key)
	}
	if err := m.checkKey(o.Key); err != nil {
		return err
	}
	if p.from == 0 {
		have, ok := m.replica.Get(o.Key)
		if ok && have.Revision == o.Revision && p.history == m.replica.History() {
			p.snapshot = append(p.snapshot, have) // frees the bytes just read
			return nil
		}
	}
	size := int64(len(o.Raw)) + exchange.ObjectOverhead
	if err := p.take(size); err != nil {
		return err
	}
	p.taken += size
	if event.Type != stream.Deleted {
		if err := m.checkObject(*o); err != nil {
			return err
		}
	}
	if p.from == 0 {
		p.snapshot = append(p.snapshot, *o)
		return nil
	}
	p.revision = o.Revision
	p.events = append(p.events, event)
	return nil
}

func (m *mirrored) checkKey(k stream.Key) error {
	return CheckKey(k, m.builtIn != nil || k.Namespace != "")
}

// checkObject refuses an object that kube-apiserver could not read, because a single one would break every list of the resource.
func (m *mirrored) checkObject(o stream.Object) error {
	if m.builtIn == nil {
		return nil
	}
	_, err := m.builtIn.Decode(o)
	return err
}

// typeOf determines the type of the objects in a push.
func (m *mirrored) typeOf(p *pushed, told stream.Type) error {
	p.typ = told
	if m.builtIn != nil {
		if p.encoding != stream.Protobuf {
			return exchange.Refused(http.StatusUnprocessableEntity, "push %s as protobuf, which is how it is stored",
				m.resource.GroupResource())
		}
		if told.Kind == "" { // the push has no object
			p.typ.GroupVersionKind = m.builtIn.Kind
		}
		if p.typ.GroupVersionKind != m.builtIn.Kind {
			return exchange.Refused(http.StatusUnprocessableEntity, "the stream holds %s; %s is stored as %s here",
				told.GroupVersionKind, m.resource.GroupResource(), m.builtIn.Kind)
		}
	}
	p.typ.Encoding = p.encoding
	if have := m.replica.Type(); p.typ.Kind == "" && have.GroupVersion() == m.resource.GroupVersion() {
		p.typ.GroupVersionKind = have.GroupVersionKind
	}
	if p.typ.Kind == "" || p.typ.GroupVersion() != m.resource.GroupVersion() {
		return exchange.Refused(http.StatusUnprocessableEntity, "the stream holds %q, not objects of %s", p.typ.GroupVersionKind,
			m.resource.GroupVersion())
	}
	return nil
}

// apply writes a push to etcd, then to the replica, and returns the new position. Before it writes, it checks again whether the
// pusher may push, because reading the body took time.
func (m *mirrored) apply(
	ctx context.Context, p *pushed, now time.Time,
) (edge.Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.Position()
	if p.from != 0 && p.from != at {
		return 0, notThere(p.from, at)
	}
	anew, err := m.begins(p, at, now)
	if err != nil {
		return 0, err
	}
	if p.from != 0 && m.replica.Type() != p.typ {
		return 0, exchange.Refused(http.StatusUnprocessableEntity, "the mirror holds %s, the stream %s: push everything",
			m.replica.Type().GroupVersionKind, p.typ.GroupVersionKind)
	}
	if err := p.holds(ctx); err != nil {
		return 0, err
	}
	var put []stream.Object
	var remove []stream.Key
	if p.from == 0 {
		put, remove, err = m.difference(ctx, p, anew)
	} else {
		put, remove = m.changes(p.events)
	}
	if err != nil {
		return 0, err
	}
	if p.from == 0 && at != 0 && (!anew || p.history.IsFilled()) {
		policy := doubt.Shown()
		if err := m.guard.Check(now, policy, doubt.Minimum, m.replica.Stats().Objects, len(remove)); err != nil {
			return 0, &exchange.Refusal{
				Code: http.StatusConflict, Applied: &at, RetryAfter: policy.Pause(), Message: err.Error(),
			}
		}
	}
	if err := m.store(ctx, p.typ, put, remove); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to write pushed objects to etcd; the pusher will retry",
			"resource", m.resource.GroupResource().String())
		return 0, &exchange.Refusal{
			Code: http.StatusServiceUnavailable, RetryAfter: time.Second,
			Message: fmt.Sprintf("writing to etcd failed, push again: %v", err),
		}
	}
	// The replica must get what etcd has, even if the caller no longer listens.
	ctx = context.WithoutCancel(ctx)
	if anew && p.history <= m.replica.History() {
		m.replica.Reset()
	}
	if p.from != 0 {
		err = m.replica.Apply(ctx, p.events)
	} else if anew || p.revision != at || len(put) > 0 || len(remove) > 0 || !m.replica.Complete().Get() {
		err = m.replica.Replace(ctx, stream.Snapshot{
			Type: p.typ, Revision: p.revision, History: p.history, Objects: p.snapshot,
		})
	}
	if err != nil {
		m.doubt(put, remove)
		return 0, fmt.Errorf("push again: %w", err)
	}
	return m.Position(), nil
}

// begins reports whether a push replaces everything that is here. An error says why the push must not be applied. A push of
// everything replaces what is here in three cases:
//   - The push's history is later than the mirror's.
//   - The histories are the same, the push or an object in it is older than the mirror's, and the leader insists. Then the
//     cloud's history has changed, and the leader has missed that.
//   - The later of the two histories is not believable, and the leader insists. Then an earlier leader has lied, or this leader
//     has seen the cloud change since such a lie.
func (m *mirrored) begins(p *pushed, at edge.Revision, now time.Time) (bool, error) {
	in := m.replica.History()
	conflict := func(retry time.Duration, format string, a ...any) (bool, error) {
		return false, &exchange.Refusal{
			Code: http.StatusConflict, Applied: &at, RetryAfter: retry, Message: fmt.Sprintf(format, a...),
		}
	}
	switch {
	case p.history.IsFilled() && !p.history.Believable():
		return false, exchange.Refused(http.StatusBadRequest, "no cloud reaches history %s", p.history)
	case p.from == 0 && !p.history.IsFilled() &&
		(p.history > in && !p.history.Believable() || p.history < in && !in.Believable()):
		if m.older.Offer(now, doubt.Shown()) {
			return true, nil
		}
		return conflict(doubt.Shown().Pause(), "the mirror is in history %s, the stream in %s, and no cloud reaches the "+
			"later one: insist", in, p.history)
	case at == 0:
		return false, nil
	case p.history < in || p.history > in && p.from != 0:
		return conflict(0, "the mirror is in history %d of the cloud, and the stream in %d: push everything of the later one",
			in, p.history)
	case p.history > in:
		return true, nil
	case p.from != 0:
		return false, nil
	case p.revision >= at && !m.goesBack(p):
		m.older.Clear()
		return false, nil
	case p.history.IsFilled():
		return conflict(0, "another node has filled the mirror up to revision %d, newer than the stream up to %d or than an "+
			"object in it", at, p.revision)
	case m.older.Offer(now, doubt.Shown()):
		return true, nil
	default:
		return conflict(doubt.Shown().Pause(), "the mirror is at revision %d, newer than the stream up to %d or "+
			"than an object in it: push what follows, or insist", at, p.revision)
	}
}

// goesBack reports whether a push of everything has an older state of an object than the mirror. Within one history of the cloud
// that never happens.
func (m *mirrored) goesBack(p *pushed) bool {
	return slices.ContainsFunc(p.snapshot, func(o stream.Object) bool {
		have, _ := m.replica.Get(o.Key)
		return have.Revision > o.Revision
	})
}

// difference returns what must be written and removed so that the mirror equals a full stream. It leaves out objects that the
// replica has at the same revision, unless anew is true or the type of the objects has changed. It removes objects that the
// stream lacks.
func (m *mirrored) difference(
	ctx context.Context, p *pushed, anew bool,
) (put []stream.Object, remove []stream.Key, err error) {
	for _, o := range p.snapshot {
		have, ok := m.replica.Get(o.Key)
		if !ok || have.Revision != o.Revision || m.replica.Type() != p.typ || anew {
			put = append(put, o)
		}
	}
	have, err := m.replica.Snapshot(ctx)
	if errors.Is(err, stream.ErrNotReady) {
		return put, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, o := range have.Objects {
		if _, found := slices.BinarySearchFunc(p.snapshot, o.Key, byKey); !found {
			remove = append(remove, o.Key)
		}
	}
	return put, remove, nil
}

func byKey(o stream.Object, k stream.Key) int { return o.Key.Compare(k) }

// changes returns the last change of each object; earlier ones need not be written.
func (m *mirrored) changes(events []stream.Event) (put []stream.Object, remove []stream.Key) {
	last := map[stream.Key]int{}
	for i, event := range events {
		if event.Type != stream.Bookmark {
			last[event.Object.Key] = i
		}
	}
	for i, event := range events {
		if n, ok := last[event.Object.Key]; !ok || n != i || event.Type == stream.Bookmark {
			continue
		}
		if event.Type == stream.Deleted {
			remove = append(remove, event.Object.Key)
		} else {
			put = append(put, event.Object)
		}
	}
	return put, remove
}

// doubt notes keys at which etcd may differ from the replica.
func (m *mirrored) doubt(put []stream.Object, remove []stream.Key) {
	if m.builtIn == nil {
		return
	}
	for _, o := range put {
		m.unsure[o.Key] = struct{}{}
	}
	for _, k := range remove {
		m.unsure[k] = struct{}{}
	}
}

// store writes to etcd in transactions: first put, then remove. It also corrects what an earlier failure left behind.
func (m *mirrored) store(ctx context.Context, t stream.Type, put []stream.Object, remove []stream.Key) error {
	if m.builtIn == nil {
		return nil
	}
	m.doubt(put, remove)
	changed := map[stream.Key]struct{}{}
	batch := Transaction{Write: m.write}
	for _, o := range put {
		changed[o.Key] = struct{}{}
		if err := batch.Put(ctx, m.builtIn.Key(o.Key), stream.Envelope(t, o.Raw)); err != nil {
			return err
		}
	}
	for _, k := range remove {
		changed[k] = struct{}{}
	}
	for k := range m.unsure {
		if _, ok := changed[k]; ok {
			continue
		}
		if have, ok := m.replica.Get(k); !ok {
			remove = append(remove, k)
		} else if err := batch.Put(ctx, m.builtIn.Key(k), stream.Envelope(t, have.Raw)); err != nil {
			return err
		}
	}
	for _, k := range remove {
		if err := batch.Remove(ctx, m.builtIn.Key(k)); err != nil {
			return err
		}
	}
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	m.unsure = map[stream.Key]struct{}{} // not clear, which keeps the space of the largest push
	return nil
}
