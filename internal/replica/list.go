package replica

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// list answers with all objects that match, or a page of them.
func (h *Handler) list(w *deadlined, r *http.Request, o *options) error {
	if err := h.ready(r.Context()); err != nil {
		return err
	}
	_, before, _ := h.look()
	content, from, err := h.content(r, o, before)
	if err != nil {
		return err
	}
	// Read after the content, so that the look's number covers everything that is shown up to the content's revision.
	look, number, _ := h.look()
	if number != before && o.Continue != "" {
		return tooOld("what this node shows has changed while the list was being continued; list again")
	}
	f, err := negotiate(r, "list", content.typ)
	if err != nil {
		return err
	}
	e := &eye{options: o, look: look, typ: content.typ}
	objects, meta, err := h.page(content, e, from, number)
	if err != nil {
		return err
	}
	if meta.Continue == "" {
		h.looks.shown(r.UserAgent(), content.revision)
	}
	z := newCompressor(w, r, http.StatusOK, f.to.Encoding)
	err = stream.WriteList(z, f.to, meta, items(f, objects))
	switch {
	case err == nil:
		_ = z.Close() // the client has gone; there is nobody to tell
	case w.failed != nil:
		return nil //nolint:nilerr // as above
	case z.sent:
		h.statusOf(err)             // which reports it
		panic(http.ErrAbortHandler) // a client must not take half of a list for all of it
	}
	return err
}

// items yields objects in a form, one after the other, so that a converted list is never in memory as a whole.
func items(f *form, objects []stream.Object) iter.Seq2[stream.Object, error] {
	return func(yield func(stream.Object, error) bool) {
		for _, o := range objects {
			if !yield(f.object(o, false)) {
				return
			}
		}
	}
}

// token is where a list goes on.
type token struct {
	// Revision is the list's. 0 means any content, which a client may choose when the list's own is gone.
	Revision edge.Revision `json:"rv"`
	// Namespace and Name are the key of the last object sent.
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"n"`
	// Look is the number of the view's Look: one list must not mix two.
	Look uint64 `json:"e,omitempty"`
	// History is the one that Revision counts in.
	History edge.History `json:"h,omitempty"`
}

func (t token) String() string {
	data, err := json.Marshal(t)
	if err != nil {
		return "" // strings and numbers can always be written
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func parseToken(s string) (token, error) {
	var t token
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err == nil && t.Name == "" {
		err = errors.New("it names no object")
	}
	switch {
	case err == nil:
		return t, nil
	case ofAPIServer(data):
		// The cloud gave this token: the pages of one list may have been answered by two servers. A 410 makes the client list
		// again.
		return t, tooOld("continue is a token of the cloud's; list again")
	default:
		return t, apierrors.NewBadRequest("continue is not a token of this server: " + err.Error())
	}
}

// ofAPIServer reports whether a token is one that an API server would take.
func ofAPIServer(data []byte) bool {
	var t struct {
		Version  string `json:"v"`
		Revision int64  `json:"rv"`
		Start    string `json:"start"`
	}
	if json.Unmarshal(data, &t) != nil || t.Version != "meta.k8s.io/v1" || t.Revision == 0 || t.Start == "" {
		return false
	}
	key := "/" + strings.TrimPrefix(t.Start, "/")
	return path.Clean(key) == strings.TrimSuffix(key, "/")
}

// content returns the content for a list, and the key after which the page begins.
func (h *Handler) content(r *http.Request, o *options, look uint64) (*frozen, stream.Key, error) {
	var from stream.Key
	if o.Continue == "" {
		c, err := h.fresh(r, o)
		return c, from, err
	}
	if o.revision != 0 {
		return nil, from, apierrors.NewBadRequest("resourceVersion must not be given together with continue, which implies it")
	}
	t, err := parseToken(o.Continue)
	if err != nil {
		return nil, from, err
	}
	from = stream.Key{Namespace: t.Namespace, Name: t.Name}
	if t.Revision == 0 || t.Look == look && t.History == h.replica.History() {
		if c, err := h.exactly(t.Revision); err != nil || c != nil {
			return c, from, err
		}
	}
	expired := tooOld("the list at revision %d that is being continued is no longer kept; list again, or go on in what there "+
		"is now with the token of this answer", t.Revision)
	t.Revision = 0
	expired.ErrStatus.Continue = t.String()
	return nil, from, expired
}

// fresh returns the content for a new list.
func (h *Handler) fresh(r *http.Request, o *options) (*frozen, error) {
	if err := h.reach(r.Context(), o.revision); err != nil {
		return nil, err
	}
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		(o.ResourceVersionMatch == "" && o.Limit > 0) // a client that pages means the revision that it names
	if o.revision == 0 || !exact {
		return h.replica.freeze()
	}
	c, err := h.exactly(o.revision)
	if err == nil && c == nil {
		err = tooOld("what there was at revision %d is no longer kept; ask for resourceVersionMatch=NotOlderThan", o.revision)
	}
	return c, err
}

// exactly returns the content at a revision (0: the latest), or nil if it is gone.
func (h *Handler) exactly(revision edge.Revision) (*frozen, error) {
	if c := h.pages.get(revision, h.replica.leads); c != nil {
		return c, nil
	}
	return h.replica.asOf(revision)
}

// page collects the objects that a list answers with.
func (h *Handler) page(c *frozen, e *eye, from stream.Key, look uint64) ([]stream.Object, metav1.ListMeta, error) {
	limit := int(min(e.Limit, 1<<31))
	if e.ResourceVersion == "0" {
		limit = 0 // as an API server's watch cache does: such a list is cheap
	}
	var objects []stream.Object
	more := int64(0)
	meta := metav1.ListMeta{ResourceVersion: c.revision.String()}
	for o := range c.after(from, e.namespace, e.name) {
		full := limit > 0 && len(objects) == limit
		if full && e.counts() && e.look == nil {
			more++ // without a look
			continue
		}
		seen, ok, err := e.sees(o)
		if err != nil {
			return nil, meta, err
		}
		if !ok {
			continue
		}
		if full {
			if more++; e.counts() {
				continue
			}
			break
		}
		objects = append(objects, seen)
	}
	if more == 0 {
		return objects, meta, nil
	}
	last := objects[len(objects)-1].Key
	meta.Continue = token{c.revision, last.Namespace, last.Name, look, c.counted}.String()
	if e.counts() {
		meta.RemainingItemCount = &more
	}
	h.pages.keep(c)
	return objects, meta, nil
}

// after iterates over the objects after a key: of a namespace, if it is not empty, and of a name.
func (f *frozen) after(from stream.Key, namespace, name string) iter.Seq[stream.Object] {
	return func(yield func(stream.Object) bool) {
		start := stream.Key{Namespace: namespace}
		if namespace != "" && name != "" {
			start.Name = name
		}
		if start.Compare(from) < 0 {
			start = from
		}
		f.objects.AscendGreaterOrEqual(stream.Object{Key: start}, func(o stream.Object) bool {
			if namespace != "" && o.Key.Namespace != namespace {
				return false
			}
			if o.Key == from {
				return true
			}
			if namespace != "" && name != "" && o.Key.Name != name {
				return false
			}
			return yield(o)
		})
	}
}

// Bounds of the contents that are kept for paged lists. Their cost is the memory of objects that have changed since.
const (
	maxPages = 8
	pageLife = time.Minute
)

// pages keeps contents for lists whose next pages may be requested.
type pages struct {
	mu   sync.Mutex
	kept []*frozen // oldest first
}

// keep remembers a content for a minute, counted from when it was first kept.
func (p *pages) keep(c *frozen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	alike := func(k *frozen) bool { return k.revision == c.revision && k.generation == c.generation }
	if slices.ContainsFunc(p.kept, alike) {
		return
	}
	if len(p.kept) == maxPages {
		p.kept = slices.Delete(p.kept, 0, 1)
	}
	p.kept = append(p.kept, c)
	time.AfterFunc(pageLife, func() { // so that the memory goes even if nobody lists again
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kept = slices.DeleteFunc(p.kept, func(k *frozen) bool { return k == c })
	})
}

// get returns the content at a revision, if valid accepts it.
func (p *pages) get(revision edge.Revision, valid func(*frozen) bool) *frozen {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range p.kept {
		if k.revision == revision && valid(k) {
			return k
		}
	}
	return nil
}
