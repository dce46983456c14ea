package pool

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// The mirror is how a pool's resources come into the coordinator and how the pool's hubs read them, with the cloud's
// revisions:
//
//	GET  /mirror/v1                                   what is there, and how far each resource has come
//	GET  /mirror/v1/{group|core}/{version}/{resource} list, or watch, as an API server would serve it
//	POST /mirror/v1/{group|core}/{version}/{resource} the leader pushes a watch stream; the answer acknowledges it
//
// An acknowledged revision is in both copies: in the mirror's own, which hubs read, and, for what kube-apiserver serves,
// in etcd under kube-apiserver's keys, which everybody else reads by the API.
const (
	mirrorPath = edge.PathMirror

	// maxMirrored bounds how many resources are kept.
	maxMirrored = 32
	// maxFrame bounds one object on the wire, in bytes. The cloud's etcd takes 1.5 MiB at most.
	maxFrame = 8 << 20
	// maxPushes bounds how many bodies are read at the same time: one leader pushes, a resource at a time.
	maxPushes = 8
	// stalledPush is how long a body may bring nothing; all of it has a minute, kube-apiserver's --request-timeout.
	stalledPush = 10 * time.Second
	// mirrorWait is how long a read waits for a resource that is being filled for the first time.
	mirrorWait = time.Second
	// suspiciousRetry is when a refused snapshot is worth another try: three of them and GuardTime is passed.
	suspiciousRetry = 12 * time.Second
	// objectOverhead is what an object takes besides its bytes: keys, headers, its place in the tree.
	objectOverhead = 256
)

var apiVersion = regexp.MustCompile(`^v[1-9][0-9]{0,3}((alpha|beta)[1-9][0-9]{0,3})?$`)

// refusal is an answer that is not what was asked for.
type refusal struct {
	code       int
	message    string
	retryAfter time.Duration
	applied    *edge.Revision // where the mirror stands, of a conflict
}

func (r *refusal) Error() string { return r.message }

func refused(code int, format string, a ...any) error {
	return &refusal{code: code, message: fmt.Sprintf(format, a...)}
}

// mirror keeps the pool's resources.
type mirror struct {
	instance string
	quota    int64 // bytes, in all
	clock    clock.PassiveClock
	nodes    nodeidentifier.NodeIdentifier
	leads    func(context.Context, claim) error
	write    writer
	stalled  time.Duration
	builtIns map[schema.GroupVersionResource]builtIn
	pushes   chan struct{} // a slot for each push under way

	mu       sync.Mutex
	closed   bool
	mirrored map[schema.GroupVersionResource]*mirrored
	reading  int64 // bytes of bodies that are not in a replica yet
}

func newMirror(
	c Config, leads func(context.Context, claim) error, write writer, builtIns map[schema.GroupVersionResource]builtIn,
) *mirror {
	return &mirror{
		instance: rand.Text(),
		quota:    c.MirrorQuotaBytes,
		clock:    c.Clock,
		nodes:    nodeidentifier.NewDefaultNodeIdentifier(),
		leads:    leads,
		write:    write,
		stalled:  c.stalledPush,
		builtIns: builtIns,
		pushes:   make(chan struct{}, maxPushes),
		mirrored: map[schema.GroupVersionResource]*mirrored{},
	}
}

// Close ends all watches.
func (m *mirror) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, each := range m.mirrored {
		each.replica.Close()
	}
	return nil
}

// isMirrorWatch says whether a request is a watch of the mirror, which may last.
func isMirrorWatch(r *http.Request) bool {
	if r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, mirrorPath+"/") {
		return false
	}
	watch, err := strconv.ParseBool(r.URL.Query().Get("watch"))
	return watch && err == nil
}

// ServeHTTP implements http.Handler. Who the caller is, and whether RBAC lets it come here at all, has been decided.
func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := m.serve(w, r)
	if err == nil {
		return
	}
	var why *refusal
	if !errors.As(err, &why) {
		why = &refusal{code: http.StatusInternalServerError, message: err.Error()}
	}
	if why.code == http.StatusForbidden {
		explain(r.Context(), why)
	}
	if why.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(why.retryAfter.Seconds())))
	}
	if why.applied != nil {
		writeJSON(w, why.code, conflict{Applied: decimal(*why.applied), Message: why.message})
		return
	}
	writeJSON(w, why.code, map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": why.code, "message": why.message,
		"reason": reasonOf(why.code),
	})
}

func (m *mirror) serve(w http.ResponseWriter, r *http.Request) error {
	path := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, mirrorPath), "/")
	if path == "" {
		if r.Method != http.MethodGet {
			return refused(http.StatusMethodNotAllowed, "%s only answers GET", mirrorPath)
		}
		writeJSON(w, http.StatusOK, m.index())
		return nil
	}
	resource, err := parseResource(path)
	if err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet:
		return m.read(w, r, resource)
	case http.MethodPost:
		applied, err := m.push(w, r, resource)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, conflict{Applied: decimal(applied)})
		return nil
	default:
		return refused(http.StatusMethodNotAllowed, "the mirror answers GET and POST, not %s", r.Method)
	}
}

// parseResource reads "/{group|core}/{version}/{resource}".
func parseResource(path string) (schema.GroupVersionResource, error) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) != 3 {
		return schema.GroupVersionResource{}, refused(http.StatusNotFound,
			"want %s/{group}/{version}/{resource}, with core for the group that has no name", mirrorPath)
	}
	r := schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
	if r.Group == edge.MirrorCoreGroup {
		r.Group = ""
	} else if len(validation.IsDNS1123Subdomain(r.Group)) > 0 {
		return r, refused(http.StatusNotFound, "%.100q is not a name that a group can have", r.Group)
	}
	if !apiVersion.MatchString(r.Version) || len(validation.IsDNS1123Label(r.Resource)) > 0 {
		return r, refused(http.StatusNotFound, "%.100q is not a version and a resource of an API", parts[1]+"/"+parts[2])
	}
	return r, nil
}

// mayBeMirrored says whether a push may bring a resource: one of the few built-in ones that stand in builtIns, or any of
// a group that is not Kubernetes' own, which the coordinator does not serve. So no push can write a Secret, a role, a
// Lease, a Node or a Pod.
func (m *mirror) mayBeMirrored(r schema.GroupVersionResource) error {
	if _, ok := m.builtIns[r]; ok {
		return nil
	}
	for known := range m.builtIns {
		if known.GroupResource() == r.GroupResource() {
			return refused(http.StatusUnprocessableEntity, "%s is stored as %s here: push that version",
				r.GroupResource(), known.Version)
		}
	}
	// Kubernetes' groups have no dot (apps, batch) or end in k8s.io; a CRD's group must have a dot.
	if !strings.Contains(r.Group, ".") || r.Group == "k8s.io" || strings.HasSuffix(r.Group, ".k8s.io") {
		return refused(http.StatusForbidden, "%s is not a resource that can be pushed: of Kubernetes' own there are "+
			"endpoints, endpointslices.discovery.k8s.io and services", r.GroupResource())
	}
	return nil
}

// get returns a resource that has been pushed, or nil.
func (m *mirror) get(r schema.GroupVersionResource) *mirrored {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mirrored[r]
}

// getOrMake returns a resource to push into.
func (m *mirror) getOrMake(r schema.GroupVersionResource) (*mirrored, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, refused(http.StatusServiceUnavailable, "the coordinator is stopping")
	}
	if each, ok := m.mirrored[r]; ok {
		return each, nil
	}
	if len(m.mirrored) >= maxMirrored {
		return nil, refused(http.StatusUnprocessableEntity, "%d resources are mirrored already, the most there can be; "+
			"let the hubs share fewer", maxMirrored)
	}
	each, err := newMirrored(r, m.write, m.builtIns[r])
	if err != nil {
		return nil, err
	}
	m.mirrored[r] = each
	return each, nil
}

// take reserves bytes of the quota for a body that is being read; give returns them.
func (m *mirror) take(bytes int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.reading
	for _, each := range m.mirrored {
		stats := each.replica.Stats()
		used += int64(stats.ObjectBytes) + int64(stats.Objects)*objectOverhead + int64(stats.HistoryBytes)
	}
	if used+bytes > m.quota {
		return refused(http.StatusRequestEntityTooLarge, "the pool's resources, with what is being pushed, take more than "+
			"%d bytes; share fewer, or raise --mirror-quota-bytes of the coordinator", m.quota)
	}
	m.reading += bytes
	return nil
}

func (m *mirror) give(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reading -= bytes
}

// read serves a list or a watch.
func (m *mirror) read(w http.ResponseWriter, r *http.Request, resource schema.GroupVersionResource) error {
	each := m.get(resource)
	if each == nil {
		return &refusal{
			code: http.StatusServiceUnavailable, retryAfter: time.Second,
			message: fmt.Sprintf("%s has not been pushed here yet; read it from the cloud", resource.GroupResource()),
		}
	}
	verb := "list"
	if isMirrorWatch(r) {
		verb = "watch"
	}
	each.handler.Serve(w, r, replica.Request{Verb: verb})
	return nil
}

// push takes one stream. The body is read to its end before anything is changed: one that breaks off, stalls or turns
// out to be malformed has done nothing.
func (m *mirror) push(
	w http.ResponseWriter, r *http.Request, resource schema.GroupVersionResource,
) (applied edge.Revision, err error) {
	claim, err := m.claimOf(r)
	if err != nil {
		return 0, err
	}
	if err := m.mayBeMirrored(resource); err != nil {
		return 0, err
	}
	if err := m.leads(r.Context(), claim); err != nil {
		return 0, err
	}
	from, err := fromOf(r)
	if err != nil {
		return 0, err
	}
	encoding, err := stream.EncodingOf(r.Header.Get("Content-Type"))
	if err != nil {
		return 0, refused(http.StatusUnsupportedMediaType, "push a watch stream: %v", err)
	}
	if r.Header.Get("Content-Encoding") != "" {
		return 0, refused(http.StatusUnsupportedMediaType, "push without Content-Encoding")
	}
	select {
	case m.pushes <- struct{}{}:
		defer func() { <-m.pushes }()
	default:
		return 0, &refusal{
			code: http.StatusTooManyRequests, retryAfter: time.Second,
			message: fmt.Sprintf("%d pushes are under way; push one after the other", maxPushes),
		}
	}
	each, err := m.getOrMake(resource)
	if err != nil {
		return 0, err
	}
	// Before reading, so that nobody sends what will not be taken.
	if at := each.Position(); from != 0 && from != at {
		return 0, notThere(from, at)
	}
	p := &pushed{from: from, encoding: encoding, take: m.take}
	defer func() { m.give(p.taken) }()
	body := http.MaxBytesReader(w, r.Body, m.quota+maxFrame)
	if err := each.readPush(&deadlineReader{body, http.NewResponseController(w), m.stalled}, p); err != nil {
		return 0, err
	}
	return each.apply(r.Context(), p, m.clock.Now(), func(ctx context.Context) error {
		return m.leads(ctx, claim)
	})
}

// claim is what a pusher says of itself.
type claim struct {
	node edge.NodeName
	term int32
}

func (m *mirror) claimOf(r *http.Request) (claim, error) {
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		return claim{}, refused(http.StatusForbidden, "only a node may push")
	}
	name, isNode := m.nodes.NodeIdentity(caller)
	if !isNode || name == "" {
		return claim{}, refused(http.StatusForbidden, "only a node may push, and %q is none", caller.GetName())
	}
	term, err := strconv.ParseInt(r.URL.Query().Get("term"), 10, 32)
	if err != nil {
		return claim{}, refused(http.StatusBadRequest, "term must be the leaseTransitions of the Lease %s under which the "+
			"caller leads", edge.LeaseElection)
	}
	return claim{edge.NodeName(name), int32(term)}, nil
}

// fromOf is 0 for a full stream.
func fromOf(r *http.Request) (edge.Revision, error) {
	text := r.URL.Query().Get("from")
	if text == "" && !r.URL.Query().Has("from") {
		return 0, nil
	}
	from, err := edge.ParseRevision(text)
	if err != nil {
		return 0, refused(http.StatusBadRequest, "from: %v; leave it out to push everything", err)
	}
	return from, nil
}

func notThere(from, at edge.Revision) error {
	return &refusal{
		code: http.StatusConflict, applied: &at,
		message: fmt.Sprintf("the mirror is at revision %d, not %d: push what follows that, or everything", at, from),
	}
}

// conflict is the answer to a push: how far the mirror has come.
type conflict struct {
	Applied string `json:"applied"` // "0": nothing
	Message string `json:"message,omitempty"`
}

// index is what GET /mirror/v1 answers.
type index struct {
	// Instance is another one after each start: what was applied before is gone.
	Instance  string         `json:"instance"`
	Resources []indexedEntry `json:"resources"`
}

type indexedEntry struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
	Applied  string `json:"applied"` // "0": nothing yet
	Objects  int    `json:"objects"`
	Bytes    int    `json:"bytes"`
	Watchers int    `json:"watchers"`
}

func (m *mirror) index() index {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := index{Instance: m.instance, Resources: []indexedEntry{}}
	for r, each := range m.mirrored {
		stats := each.replica.Stats()
		found.Resources = append(found.Resources, indexedEntry{
			Group: r.Group, Version: r.Version, Resource: r.Resource, Applied: decimal(stats.Position),
			Objects: stats.Objects, Bytes: stats.ObjectBytes + stats.HistoryBytes, Watchers: stats.Watchers,
		})
	}
	slices.SortFunc(found.Resources, func(a, b indexedEntry) int {
		return strings.Compare(a.Group+"/"+a.Resource+"/"+a.Version, b.Group+"/"+b.Resource+"/"+b.Version)
	})
	return found
}

func decimal(r edge.Revision) string { return strconv.FormatUint(uint64(r), 10) }

func reasonOf(code int) string {
	return strings.ReplaceAll(http.StatusText(code), " ", "")
}

func writeJSON(w http.ResponseWriter, code int, content any) {
	text, err := json.Marshal(content)
	if err != nil { // plain structs and maps of ours
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // the caller has gone, then
}

// deadlineReader cuts a body that has stalled.
type deadlineReader struct {
	body    io.Reader
	control *http.ResponseController
	stalled time.Duration
}

func (d *deadlineReader) Read(p []byte) (int, error) {
	// Of the connection, so the real time. A connection that knows no deadline is bounded by the request's own.
	if err := d.control.SetReadDeadline(time.Now().Add(d.stalled)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := d.body.Read(p)
	if errors.Is(err, io.EOF) {
		_ = d.control.SetReadDeadline(time.Time{}) // the connection serves on; after any other error it must not wait
	}
	return n, err
}

// logPush tells of what went wrong on our side.
func logPush(ctx context.Context, r schema.GroupVersionResource, err error) {
	klog.FromContext(ctx).Error(err, "Writing pushed objects to etcd failed; the pusher will try again",
		"resource", r.GroupResource().String())
}
