package model

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	restwatch "k8s.io/client-go/rest/watch"
)

const (
	// bookmarkEvery is how often a quiet watch gets a bookmark. bookmarkBefore is how long before its end it gets the last one.
	bookmarkEvery, bookmarkBefore = time.Minute, 2 * time.Second
	// shortestWatch is the shortest time that a watch lasts if its client sets no timeout. The longest time is twice that.
	shortestWatch = 30 * time.Minute

	// keys is what a key of etcd begins with: a continue token is about what follows.
	keys = "/"

	tooOld         = "The resourceVersion for the provided list is too old."
	continueTooOld = "The provided continue parameter is too old to display a consistent list result. You can start a new list " +
		"without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. " +
		"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted " +
		"between the time the first chunk was returned and now may show up in the list."
)

func revisionOf(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, apierrors.NewBadRequest("Invalid value: " + strconv.Quote(text) + ": " + err.Error())
	}
	return int64(n), nil
}

// get reads one object: from the storage, or from the watch cache if the client gives a resourceVersion.
func (s *Server) get(c *call) error {
	asked := c.URL.Query().Get("resourceVersion")
	revision, err := revisionOf(asked)
	if err != nil {
		return err
	}
	found := s.store.live(c.resource.GroupResource(), c.path)
	if asked != "" {
		visible, err := s.fresh(c.Context(), revision)
		if err != nil {
			return err
		}
		s.store.mu.Lock()
		found = s.store.latest[c.resource.GroupResource()][c.path].at(visible)
		s.store.mu.Unlock()
	}
	if found == nil {
		return apierrors.NewNotFound(c.resource.GroupResource(), c.info.Name)
	}
	return c.answer(http.StatusOK, found.object)
}

// selection is what a list or a watch asks for.
type selection struct {
	internalversion.ListOptions
	revision int64
	prefix   string
}

func (c *call) selection() (*selection, error) {
	o := &selection{}
	err := internalscheme.ParameterCodec.DecodeParameters(c.URL.Query(), metav1.SchemeGroupVersion, &o.ListOptions)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(&o.ListOptions, true)
	if errs := validation.ValidateListOptions(&o.ListOptions, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if o.revision, err = revisionOf(o.ResourceVersion); err != nil {
		return nil, err
	}
	if o.LabelSelector == nil {
		o.LabelSelector = labels.Everything()
	}
	if o.FieldSelector == nil {
		o.FieldSelector = fields.Everything()
	}
	known := c.fieldsOf(c.new(""))
	for _, r := range o.FieldSelector.Requirements() {
		if _, ok := known[r.Field]; !ok {
			return nil, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	if c.info.Namespace != "" && !c.clusterScoped {
		o.prefix = c.info.Namespace + "/"
	}
	return o, nil
}

func (o *selection) has(k *kind, c *change) bool {
	return c != nil && strings.HasPrefix(c.path, o.prefix) &&
		o.LabelSelector.Matches(labels.Set(accessor(c.object).GetLabels())) &&
		(o.FieldSelector.Empty() || o.FieldSelector.Matches(k.fieldsOf(c.object)))
}

func (o *selection) everything() bool { return o.LabelSelector.Empty() && o.FieldSelector.Empty() }

// list reads objects as they are now, as they were at a revision, or as the watch cache has them.
func (s *Server) list(c *call) error {
	o, err := c.selection()
	if err != nil {
		return err
	}
	from := ""
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		o.ResourceVersionMatch == "" && o.Limit > 0 && o.revision > 0
	if o.Continue != "" {
		if from, o.revision, err = storage.DecodeContinue(o.Continue, keys+o.prefix); err != nil {
			return apierrors.NewBadRequest("invalid continue token: " + err.Error())
		}
		from = strings.TrimPrefix(from, keys)
		exact = o.revision > 0
		if !exact {
			o.ResourceVersion = "" // it goes on, with what is there now
		}
	}
	now := s.store.Revision()
	var at int64
	switch {
	case exact:
		if _, err := s.fresh(c.Context(), o.revision); err != nil {
			return err
		}
		at = o.revision
	case o.ResourceVersion == "":
		if at, err = s.fresh(c.Context(), now); err != nil {
			if !storage.IsTooLargeResourceVersion(err) {
				return err
			}
			at = now // kube-apiserver asks its storage, then
		}
	default:
		if at, err = s.fresh(c.Context(), o.revision); err != nil {
			return err
		}
		if o.revision == 0 {
			o.Limit = 0 // the cache answers at once and with everything
		}
	}
	s.store.mu.Lock()
	compacted := s.store.compacted
	found := s.store.listLocked(c.resource.GroupResource(), o.prefix, from, at)
	s.store.mu.Unlock()
	if at < compacted {
		return expired(o, from)
	}
	return c.answerList(o, at, found)
}

// expired returns the error for a list whose revision is too old. If the client asked for a later part of a list, the error
// contains a token with which the client can continue.
func expired(o *selection, from string) error {
	if o.Continue == "" {
		return apierrors.NewResourceExpired(tooOld)
	}
	token, err := storage.EncodeContinue(keys+o.prefix+strings.TrimPrefix(from, o.prefix), keys+o.prefix, -1)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	e := apierrors.NewResourceExpired(continueTooOld)
	e.ErrStatus.Continue = token
	return e
}

func (c *call) answerList(o *selection, at int64, found []*change) error {
	list := c.new("List")
	l, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	l.SetResourceVersion(strconv.FormatInt(at, 10))
	l.SetContinue("") // lists of custom resources say so
	objects := []runtime.Object{}
	for i, one := range found {
		if !o.has(c.kind, one) {
			continue
		}
		objects = append(objects, one.object)
		if rest := int64(len(found) - i - 1); o.Limit > 0 && int64(len(objects)) == o.Limit && o.hasAny(c.kind, found[i+1:]) {
			token, err := storage.EncodeContinue(keys+one.path+"\x00", keys+o.prefix, at)
			if err != nil {
				return apierrors.NewInternalError(err)
			}
			l.SetContinue(token)
			if o.everything() {
				l.SetRemainingItemCount(&rest)
			}
			break
		}
	}
	if err := meta.SetList(list, objects); err != nil {
		return err
	}
	if c.custom {
		return c.answer(http.StatusOK, list)
	}
	if err := meta.EachListItem(list, func(item runtime.Object) error { // items are copies, and don't say their type
		item.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return nil
	}); err != nil {
		return err
	}
	return c.answer(http.StatusOK, list)
}

func (o *selection) hasAny(k *kind, found []*change) bool {
	for _, one := range found {
		if o.has(k, one) {
			return true
		}
	}
	return false
}

// watch streams the changes that the watch cache sees. It ends when the request ends, its time is over, or the server restarts.
func (s *Server) watch(c *call) error {
	o, err := c.selection()
	if err != nil {
		return err
	}
	timeout, err := s.lastsFor(o)
	if err != nil {
		return err
	}
	info, onlyMetadata, err := c.wants(false)
	if err != nil {
		return err
	}
	flusher := http.NewResponseController(c.w)
	mediaType := info.MediaType
	if mediaType != runtime.ContentTypeJSON {
		mediaType += ";stream=watch"
	}
	c.w.Header().Set("Content-Type", mediaType)
	c.w.Header().Set("Cache-Control", "no-cache, private")
	w := &watcher{call: c, selection: o, onlyMetadata: onlyMetadata, to: restwatch.NewEncoder(
		streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(c.w), info.StreamSerializer.Serializer),
		info.Serializer)}
	c.w.WriteHeader(http.StatusOK)
	if err := flusher.Flush(); err != nil {
		return err
	}

	end := time.NewTimer(timeout)
	defer end.Stop()
	bookmark, last := time.NewTicker(bookmarkEvery), time.NewTimer(timeout-bookmarkBefore)
	defer bookmark.Stop()
	defer last.Stop()
	life, err := s.beginWatch(w)
	if err != nil {
		return w.send(apiwatch.Error, statusOf(err))
	}
	for {
		if err := flusher.Flush(); err != nil {
			return err
		}
		s.store.mu.Lock()
		changes, visible, moved := s.store.sinceLocked(w.at, s.visible), s.visible, s.moved
		ended, late := life != s.life, w.at < s.store.compacted
		s.store.mu.Unlock()
		if ended || late { // kube-apiserver ends a watch that does not keep up
			return nil
		}
		if len(changes) > 0 {
			if err := w.changes(changes); err != nil {
				return err
			}
			w.at = max(w.at, visible)
			continue
		}
		w.at = max(w.at, visible)
		select {
		case <-moved:
			continue
		case <-end.C:
			return nil
		case <-c.Context().Done():
			return nil
		case <-bookmark.C:
		case <-last.C:
		}
		if err := w.bookmark(false); err != nil {
			return err
		}
	}
}

// lastsFor returns how long a watch lasts.
func (s *Server) lastsFor(o *selection) (time.Duration, error) {
	if o.TimeoutSeconds != nil && *o.TimeoutSeconds > 0 {
		return time.Duration(*o.TimeoutSeconds) * time.Second, nil
	}
	var b [1]byte
	_, err := s.cfg.Random.Read(b[:])
	return shortestWatch + shortestWatch*time.Duration(b[0])/256, err
}

// watcher is a watch under way.
type watcher struct {
	*call
	*selection
	to *restwatch.Encoder
	// onlyMetadata means that only the metadata of objects is sent.
	onlyMetadata bool
	at           int64 // all changes up to this revision have been sent
}

// beginWatch decides at which revision the watch begins, and sends the objects of that revision if the client wants them. The
// result is Server.life at that moment, by which the watch notices a restart.
func (s *Server) beginWatch(w *watcher) (life int, err error) {
	initial := w.revision == 0
	if w.SendInitialEvents != nil {
		initial = *w.SendInitialEvents
		need := w.revision
		if w.ResourceVersion == "" && initial {
			need = s.store.Revision()
		}
		if initial {
			if _, err := s.fresh(w.Context(), need); err != nil {
				return 0, err
			}
		}
	}
	s.store.mu.Lock()
	life, w.at = s.life, s.visible
	oldest := max(s.floor, s.store.compacted)
	var objects []*change
	if initial {
		objects = s.store.listLocked(w.resource.GroupResource(), w.prefix, "", w.at)
	} else if w.revision > 0 {
		w.at = w.revision
	}
	s.store.mu.Unlock()
	if w.at < oldest {
		return 0, apierrors.NewResourceExpired("too old resource version: " + strconv.FormatInt(w.at, 10) +
			" (" + strconv.FormatInt(oldest, 10) + ")")
	}
	for _, c := range objects {
		if w.has(w.kind, c) {
			if err := w.send(apiwatch.Added, c.object); err != nil {
				return 0, err
			}
		}
	}
	if initial && w.SendInitialEvents != nil {
		return life, w.bookmark(true)
	}
	return life, nil
}

// changes sends those changes that concern the watch's selection. An object that begins to match the selection is sent as added,
// and one that stops matching it as deleted.
func (w *watcher) changes(changes []*change) error {
	for _, c := range changes {
		if c.resource != w.resource.GroupResource() {
			continue
		}
		had := c.previous != nil && !c.previous.deleted && w.has(w.kind, c.previous)
		has := !c.deleted && w.has(w.kind, c)
		var err error
		switch {
		case has && had:
			err = w.send(apiwatch.Modified, c.object)
		case has:
			err = w.send(apiwatch.Added, c.object)
		case had && c.deleted:
			err = w.send(apiwatch.Deleted, c.object)
		case had:
			left := c.previous.object.DeepCopyObject()
			setRevision(left, c.revision)
			err = w.send(apiwatch.Deleted, left)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bookmark sends the revision that the watch has reached, if the client wants bookmarks.
func (w *watcher) bookmark(initialEventsEnd bool) error {
	if !w.AllowWatchBookmarks {
		return nil
	}
	o := w.new("")
	setRevision(o, w.at)
	if initialEventsEnd {
		accessor(o).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return w.send(apiwatch.Bookmark, o)
}

func (w *watcher) send(t apiwatch.EventType, o runtime.Object) error {
	if w.onlyMetadata {
		o = metadataOf(o)
	}
	return w.to.Encode(&apiwatch.Event{Type: t, Object: o})
}
