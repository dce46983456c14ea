package replica

import (
	"bytes"
	"hash/crc32"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// View is what one kind of client sees of a replica. A nil View shows everything, verbatim. Safe for concurrent use.
type View interface {
	// Look returns what the view shows as things are now, and a channel that is closed when it shows something else; nil
	// means never. Watches then tell what looks another than before.
	Look() (Look, <-chan struct{})
}

// Look is what a View shows as long as nothing that it depends on changes. It is pure, comparable, and never changes: a watch
// shows the same object with the old one and with the new one to learn what it must tell.
type Look interface {
	// Show returns what the client sees of o, and whether it sees it at all. It returns o.Raw itself to show an object
	// verbatim, never changes those bytes, and leaves name, namespace, labels and resourceVersion as they are. The same o
	// gives the same bytes in each process: their digest is part of the revision that clients are told.
	Show(t stream.Type, o stream.Object) (raw []byte, visible bool)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// marked is the revision with which raw is shown in place of the object's own content.
func marked(revision edge.Revision, raw []byte) edge.Revision {
	return edge.Shown(revision, crc32.Checksum(raw, castagnoli))
}

// ShownBy returns an object as a look shows it, with a revision that says so if it is not as the cloud has it.
func ShownBy(look Look, t stream.Type, o stream.Object) (shown stream.Object, visible bool, err error) {
	raw, visible := look.Show(t, o)
	if !visible || bytes.Equal(raw, o.Raw) {
		return o, visible, nil
	}
	shown = stream.Object{Key: o.Key, Revision: marked(o.Revision, raw)}
	shown.Raw, err = withRevision(t.Encoding, raw, shown.Revision)
	return shown, true, err
}

// nameOnly is an object without content, for a client that is told that it is not there.
func nameOnly(e stream.Encoding, k stream.Key, at edge.Revision) (stream.Object, error) {
	raw, err := stream.Bare(e, metav1.ObjectMeta{Name: k.Name, Namespace: k.Namespace, ResourceVersion: at.String()})
	return stream.Object{Key: k, Revision: at, Raw: raw}, err
}

// maxListed bounds the clients that looks knows by name.
const maxListed = 256

// looks is what a Handler remembers of what its view has shown, so that it knows what a client has that goes on from a
// revision. Up to began it has seen what another process showed, which nobody knows: it must list again. Up to since it may have
// seen another look of this process, or only a part of this one: it is told everything again. What lies behind was shown with the
// current look. At began itself it may be either, so only a client (by its User-Agent) that has listed since may go on.
type looks struct {
	mu     sync.Mutex
	look   Look
	number uint64 // 0 before the first look
	began  edge.Revision
	since  edge.Revision // 0 while there has been one look only
	listed map[string]struct{}
}

// observe is told of the current look and a position of the replica that was read after it, and returns the look's number.
func (l *looks) observe(look Look, position edge.Revision) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.number == 0:
		l.look, l.number, l.began, l.listed = look, 1, position, map[string]struct{}{}
	case l.look != look:
		l.look = look
		l.number++
		l.since = max(l.since, position)
	}
	return l.number
}

// telling notes that what a look has changed is being told, to a client that knew everything up to a revision.
func (l *looks) telling(at edge.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since = max(l.since, at)
}

// shown notes that a client has been shown everything as of a revision.
func (l *looks) shown(client string, at edge.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at == l.began && l.number > 0 && len(l.listed) < maxListed {
		l.listed[client] = struct{}{}
	}
}

// seen reports what a client may have that goes on from a revision: known says that this process has shown it, sure that it
// did so with the current look.
func (l *looks) seen(client string, after edge.Revision) (known, sure bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, listed := l.listed[client]
	// Too many to remember: better one stale client than all in a loop.
	known = after > l.began || after == l.began && (listed || len(l.listed) >= maxListed)
	return known, after > l.since
}
