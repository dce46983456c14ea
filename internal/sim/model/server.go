package model

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// freshWithin is how long a request waits for the watch cache to reach the revision that it needs, as in kube-apiserver.
const freshWithin = 3 * time.Second

// Config is what a Server needs.
type Config struct {
	Store *Store
	// Clock is the clock of the server's machine. The times in objects come from it.
	Clock clock.PassiveClock
	// Random makes UIDs and generated names.
	Random *Random
	// Authorizer decides who may do what; nil means that everybody may do everything.
	Authorizer authorizer.Authorizer
	// Admission can change or refuse each write; nil means that all are allowed. It gets objects of the served versions. Internal
	// adapts plugins that need internal types.
	Admission admission.Interface
	// Custom are the kinds that are served besides Kubernetes' own.
	Custom []Custom
}

// Server is one API server. NewServer makes it.
type Server struct {
	cfg   Config
	store *Store
	kinds map[schema.GroupVersionResource]*kind

	// The rest is guarded by the Store's lock.

	lag     time.Duration
	visible int64 // the revision that the watch cache has reached
	floor   int64 // the revision with which the cache began; it knows no older changes
	// life is the number of the server's restarts. Each of them ends all watches.
	life  int
	moved chan struct{} // closed when visible or life changes
}

// NewServer starts an API server. Its watch cache begins with the present state of the storage.
func NewServer(cfg Config) *Server {
	s := &Server{cfg: cfg, store: cfg.Store, kinds: maps.Clone(kinds), moved: make(chan struct{})}
	for _, c := range cfg.Custom {
		k := c.kind()
		s.kinds[k.resource] = k
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.visible, s.floor = s.store.revision, s.store.revision
	s.store.servers = append(s.store.servers, s)
	return s
}

// Restart ends all watches, and begins the watch cache anew. A client that resumes a watch from an older revision gets 410.
func (s *Server) Restart() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.restartLocked()
}

func (s *Server) restartLocked() {
	s.life++
	s.visible, s.floor = s.store.revision, s.store.revision
	s.wakeLocked()
}

// Lag sets how far the watch cache is behind the storage. Changes that the cache has not shown yet appear after the new lag, or
// after the former one if that ends earlier.
func (s *Server) Lag(by time.Duration) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.lag = by
	s.followLocked()
}

// followLocked makes the storage's present state visible in the watch cache, after the lag.
func (s *Server) followLocked() {
	revision, life := s.store.revision, s.life
	if s.lag == 0 {
		s.seeLocked(revision)
		return
	}
	time.AfterFunc(s.lag, func() {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		if life == s.life {
			s.seeLocked(revision)
		}
	})
}

func (s *Server) seeLocked(revision int64) {
	if revision > s.visible {
		s.visible = revision
		s.wakeLocked()
	}
}

func (s *Server) wakeLocked() {
	close(s.moved)
	s.moved = make(chan struct{})
}

// fresh waits until the watch cache has reached a revision, and returns the revision at which the cache is then.
func (s *Server) fresh(ctx context.Context, revision int64) (int64, error) {
	timeout := time.NewTimer(freshWithin)
	defer timeout.Stop()
	for {
		s.store.mu.Lock()
		visible, moved := s.visible, s.moved
		s.store.mu.Unlock()
		if visible >= revision {
			return visible, nil
		}
		select {
		case <-moved:
		case <-timeout.C:
			return 0, storage.NewTooLargeResourceVersionError(uint64(revision), uint64(visible), 1)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// call is one request, with what the server needs to answer it.
type call struct {
	*kind
	w http.ResponseWriter
	*http.Request
	info *request.RequestInfo
	user user.Info
	path string // of the object, in the Store
}

var requestInfos = &request.RequestInfoFactory{ // a constant
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// ServeHTTP implements http.Handler. For a watch, an http.ResponseController must be able to flush the ResponseWriter.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := s.serve(w, r); err != nil && r.Context().Err() == nil {
		refuse(w, r, err)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		return apierrors.NewUnauthorized("Unauthorized")
	}
	if caller, err = s.impersonate(r, caller); err != nil {
		return err
	}
	c := &call{w: w, Request: r, info: info, user: caller}
	if err := s.authorize(r.Context(), authorizer.AttributesRecord{
		User: caller, Verb: info.Verb, Namespace: info.Namespace, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
		ResourceRequest: info.IsResourceRequest, Path: info.Path,
	}); err != nil {
		return err
	}
	if !info.IsResourceRequest {
		return s.about(c)
	}
	c.kind = s.kinds[schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}]
	if c.kind == nil || info.Subresource != "" && (info.Subresource != "status" || !c.hasStatus) {
		http.NotFound(w, r)
		return nil
	}
	c.path = c.kind.path(info.Namespace, info.Name)
	switch info.Verb {
	case "get":
		return s.get(c)
	case "list":
		return s.list(c)
	case "watch":
		return s.watch(c)
	case "create":
		return s.create(c)
	case "update":
		return s.update(c)
	case "patch":
		return s.patch(c)
	case "delete":
		return s.delete(c)
	}
	return apierrors.NewMethodNotSupported(c.resource.GroupResource(), info.Verb)
}

// impersonate returns the user whom the request's headers name, or the caller if they name none. It fails if the caller may not
// act as that user.
func (s *Server) impersonate(r *http.Request, caller user.Info) (user.Info, error) {
	name := r.Header.Get("Impersonate-User")
	if name == "" {
		return caller, nil
	}
	as := &user.DefaultInfo{Name: name, Groups: r.Header.Values("Impersonate-Group")}
	may := func(resource, name string) error {
		return s.authorize(r.Context(), authorizer.AttributesRecord{
			User: caller, Verb: "impersonate", APIVersion: "v1", Resource: resource, Name: name, ResourceRequest: true,
		})
	}
	if err := may("users", name); err != nil {
		return nil, err
	}
	for _, group := range as.Groups {
		if err := may("groups", group); err != nil {
			return nil, err
		}
	}
	as.Groups = append(as.Groups, user.AllAuthenticated)
	return as, nil
}

func (s *Server) authorize(ctx context.Context, a authorizer.AttributesRecord) error {
	if s.cfg.Authorizer == nil {
		return nil
	}
	decision, reason, err := s.cfg.Authorizer.Authorize(ctx, a)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return responsewriters.ForbiddenStatusError(a, reason)
}

// about answers requests that are not for resources: those for health, and those with which clients discover the kinds.
func (s *Server) about(c *call) error {
	switch c.info.Path {
	case "/healthz", "/livez", "/readyz":
		_, err := io.WriteString(c.w, "ok")
		return err
	case "/api":
		return c.answer(http.StatusOK, &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
		})
	case "/apis":
		return c.answer(http.StatusOK, s.groups())
	}
	if list := s.resources(c.info.Path); list != nil {
		return c.answer(http.StatusOK, list)
	}
	http.NotFound(c.w, c.Request)
	return nil
}

// uid returns a new UID.
func (s *Server) uid() (types.UID, error) {
	var b [16]byte
	if _, err := io.ReadFull(s.cfg.Random, b[:]); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	x := hex.EncodeToString(b[:])
	return types.UID(x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]), nil
}

// generated returns a name that begins with the generateName that a client has given.
func (s *Server) generated(base string) (string, error) {
	b := make([]byte, 5)
	if _, err := io.ReadFull(s.cfg.Random, b); err != nil {
		return "", err
	}
	return base + utilrand.SafeEncodeString(string(b)), nil
}

// now returns the present time in the form that objects have.
func (s *Server) now() metav1.Time { return metav1.NewTime(s.cfg.Clock.Now()).Rfc3339Copy() }

// body decodes the request's body into an object of the kind.
func (c *call) body() (runtime.Object, error) {
	info, err := negotiation.NegotiateInputSerializer(c.Request, false, c.codecs())
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(c.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return c.decode(info.Serializer, data)
}

func (c *call) decode(d runtime.Decoder, data []byte) (runtime.Object, error) {
	if c.custom {
		d = unstructured.UnstructuredJSONScheme
	}
	o, gvk, err := d.Decode(data, &c.GroupVersionKind, c.new(""))
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
			c.Kind, c.Version, c.Kind, err))
	}
	if *gvk != c.GroupVersionKind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s",
			gvk.Kind, gvk.Version, c.Kind))
	}
	o.GetObjectKind().SetGroupVersionKind(c.GroupVersionKind)
	return o, nil
}

// codecs returns the formats in which objects of the kind can be sent and received. Without a kind, it returns all formats.
func (c *call) codecs() runtime.NegotiatedSerializer {
	if c.kind != nil && c.custom {
		return inJSON{scheme.Codecs}
	}
	return scheme.Codecs
}

// inJSON supports JSON only.
type inJSON struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (n inJSON) SupportedMediaTypes() []runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(n.NegotiatedSerializer.SupportedMediaTypes(), runtime.ContentTypeJSON)
	return []runtime.SerializerInfo{info}
}

// partly allows clients to ask for the metadata of objects only, in JSON.
type partly struct {
	negotiation.EndpointRestrictions
}

// AllowsMediaTypeTransform implements negotiation.EndpointRestrictions.
func (partly) AllowsMediaTypeTransform(_, format string, as *schema.GroupVersionKind) bool {
	return as == nil || format == "json" && (*as == metadataOnly || *as == metadataOfAll)
}

// The kinds that clients ask for if they want only the metadata of an object, or of the objects of a list. They are constants.
var (
	metadataOnly  = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	metadataOfAll = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
)

// wants returns the format in which the client wants an object, and whether it wants only the metadata.
func (c *call) wants(isList bool) (info runtime.SerializerInfo, onlyMetadata bool, err error) {
	o, info, err := negotiation.NegotiateOutputMediaType(c.Request, c.codecs(), partly{negotiation.DefaultEndpointRestrictions})
	if err == nil && o.Convert != nil && (*o.Convert == metadataOfAll) != isList {
		err = negotiation.NewNotAcceptableError([]string{runtime.ContentTypeJSON})
	}
	return info, err == nil && o.Convert != nil, err
}

// answer writes an object in the format that the client wants. The object must have its type set. It is not changed.
func (c *call) answer(code int, o runtime.Object) error {
	info, onlyMetadata, err := c.wants(meta.IsListType(o))
	if err != nil {
		return err
	}
	if onlyMetadata {
		o = metadataOf(o)
	}
	return write(c.w, info, code, o)
}

// metadataOf returns the metadata of an object or of a list. A Status is returned unchanged.
func metadataOf(o runtime.Object) runtime.Object {
	if _, ok := o.(*metav1.Status); ok {
		return o
	}
	if l, err := meta.ListAccessor(o); meta.IsListType(o) && err == nil {
		list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{
			ResourceVersion: l.GetResourceVersion(), Continue: l.GetContinue(), RemainingItemCount: l.GetRemainingItemCount(),
		}}
		list.SetGroupVersionKind(metadataOfAll)
		_ = meta.EachListItem(o, func(item runtime.Object) error { // it returns no error
			list.Items = append(list.Items, *partial(item))
			return nil
		})
		return list
	}
	return partial(o)
}

func partial(o runtime.Object) *metav1.PartialObjectMetadata {
	p := meta.AsPartialObjectMetadata(accessor(o))
	p.SetGroupVersionKind(metadataOnly)
	return p
}

func write(w http.ResponseWriter, info runtime.SerializerInfo, code int, o runtime.Object) error {
	w.Header().Set("Content-Type", info.MediaType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	return info.Serializer.Encode(o, w)
}

// refuse answers with an error. It uses JSON if the server does not know the format that the client wants.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	_, info, err := negotiation.NegotiateOutputMediaType(r, scheme.Codecs, negotiation.DefaultEndpointRestrictions)
	if err != nil {
		info, _ = runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	}
	_ = write(w, info, int(status.Code), status) // the client is gone, which its context tells the others
}

func statusOf(err error) *metav1.Status {
	status := responsewriters.ErrorToAPIStatus(err)
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return status
}
