package replica

import (
	"bytes"
	"hash/crc32"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// View is how one kind of client sees a replica. A nil View shows everything, verbatim. Safe for concurrent use.
//
// A view is asked only about objects in Protobuf, in which API servers send all built-in kinds. If a replica's objects are in
// JSON, clients get them as the cloud has them, and may write them back.
type View interface {
	// Look returns the view's present Look, and a channel that is closed when the Look changes. A nil channel means that it never
	// changes. At a change, watches tell their clients which objects look different.
	Look() (Look, <-chan struct{})
}

// Look is what a View shows while its inputs stay the same. It is pure, comparable, and never changes. A watch compares what the
// old Look and the new one show, to find what it must tell its client.
type Look interface {
	// Show returns the form in which the client sees o, and whether the client sees o at all. To show o verbatim, it returns
	// o.Raw itself. It never changes the bytes of o.Raw, and leaves name, namespace, labels and resourceVersion as they are. The
	// same o gives the same bytes in each process, because their digest is part of the revision that clients get.
	Show(t stream.Type, o stream.Object) (raw []byte, visible bool)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// marked is the revision with which raw is shown in place of the object's own content.
func marked(revision edge.Revision, raw []byte) edge.Revision {
	return edge.Shown(revision, crc32.Checksum(raw, castagnoli))
}

// show asks a look about an object in protobuf, and shows all others as they are.
func show(look Look, t stream.Type, o stream.Object) (raw []byte, visible bool) {
	if t.Encoding != stream.Protobuf {
		return o.Raw, true
	}
	return look.Show(t, o)
}

// ShownBy returns an object as a look shows it, with a revision that says so if it is not as the cloud has it.
func ShownBy(look Look, t stream.Type, o stream.Object) (shown stream.Object, visible bool, err error) {
	raw, visible := show(look, t, o)
	if !visible || bytes.Equal(raw, o.Raw) {
		return o, visible, nil
	}
	shown = stream.Object{Key: o.Key, Revision: marked(o.Revision, raw)}
	shown.Raw, err = withRevision(t.Encoding, raw, shown.Revision)
	return shown, true, err
}

// nameOnly is an object without content, for a client that is told that it is not there.
func nameOnly(k stream.Key, at edge.Revision) (stream.Object, error) {
	meta := metav1.ObjectMeta{Name: k.Name, Namespace: k.Namespace, ResourceVersion: at.String()}
	raw, err := stream.Bare(stream.Protobuf, meta)
	return stream.Object{Key: k, Revision: at, Raw: raw}, err
}

// maxListed bounds the clients that looks knows by name.
const maxListed = 256

// looks is a Handler's memory of its view's Looks. When a client resumes from a revision, looks tells what the client may have
// seen. The client's revision is compared with two others, began and turned:
//   - Before began: another process has shown it, nobody knows how. The client must list again.
//   - At began: another process or this one has shown it. A client (by its User-Agent) may resume if it has listed in this
//     process, or if maxListed clients have.
//   - After began, up to turned: the client has seen a former look, the current one, or a part of each. It is told everything
//     again.
//   - After turned: the client has seen the current look.
type looks struct {
	mu     sync.Mutex
	look   Look
	number uint64 // 0 before the first look
	began  edge.Revision
	turned edge.Revision // 0 while there has been one look only
	listed map[string]struct{}
}

// observe takes in the current look and a position of the replica that was read after it, and returns the look's number.
func (l *looks) observe(look Look, position edge.Revision) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.number == 0:
		l.look, l.number, l.began, l.listed = look, 1, position, map[string]struct{}{}
	case l.look != look:
		l.look = look
		l.number++
		l.turned = max(l.turned, position)
	}
	return l.number
}

// telling records that a client is now being sent the objects that look different, as of a revision. A client that resumes from
// that revision may have got only a part of them.
func (l *looks) telling(at edge.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turned = max(l.turned, at)
}

// shown notes that a client has been shown everything as of a revision.
func (l *looks) shown(client string, at edge.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at == l.began && l.number > 0 && len(l.listed) < maxListed {
		l.listed[client] = struct{}{}
	}
}

// seen reports what a client that resumes from the revision after may have seen. If known is true, this process has shown that
// revision. If sure is true, this process has shown it with the present look (now).
func (l *looks) seen(client string, after edge.Revision, now Look) (known, sure bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, listed := l.listed[client]
	// Too many to remember: better one stale client than all in a loop.
	known = after > l.began || after == l.began && (listed || len(l.listed) >= maxListed)
	return known, after > l.turned && l.look == now // another watch may have turned since
}
