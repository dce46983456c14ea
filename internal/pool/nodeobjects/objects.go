package nodeobjects

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/pool/verbatim"
	"yurtcoordinator/internal/stream"
)

// Each hub keeps its own node's objects here: the Node, its Pods, what they use, its Events. They are in etcd under
// kube-apiserver's keys, as the cloud wrote them, and are read through the API.
//
//	GET  /own/v1                                   what the caller's node has here, at which revisions of the cloud
//	POST /own/v1/{group|core}/{version}/{resource} watch events: objects to have here, or no longer; with ?local=true these
//	                                               are not the cloud's, but what the node says on top of that; their revisions
//	                                               count in the history that the header Openyurt-History names
//
// Both answer with the ETag of the node's state, and a push is accepted only if its If-Match names the present state. So a hub
// asks for the state and pushes the difference. After a 412 it asks again; a 412 comes after a restart of either side, or a lost
// answer. A node can push only its own objects; the claims hold the rules.
const (
	ownPath = edge.PathOwn

	// maxPush bounds a push, in bytes: a batch, and one more object. maxEvents bounds its events.
	maxPush   = 3 << 20
	maxEvents = 512
	// maxPushes are read at a time. Others wait for pushWait.
	maxPushes = 8
	pushWait  = 10 * time.Second
	// sweepEvery is how often Run looks for silent nodes.
	sweepEvery = 30 * time.Second
	// refusalsPerSecond bounds the log's lines about pushes of what a node has no right to.
	refusalsPerSecond = 10
	// tellEvery is the least time between two log lines about contested Pods.
	tellEvery = 10 * time.Second
)

// Objects holds what hubs push about their nodes.
type Objects struct {
	instance string
	clock    ends.Clock
	nodes    nodeidentifier.NodeIdentifier
	kinds    map[schema.GroupVersionResource]Kind
	byName   map[string]Kind // by resource
	write    verbatim.Writer
	read     verbatim.Reader
	log      klog.Logger
	refusals *rate.Limiter            // bounds the log's lines about what a node had no right to push
	member   func(edge.NodeName) bool // whether a node belongs to the pool; nil means that all do
	present  Presence
	stalled  time.Duration
	flows    *flows
	pushes   chan struct{} // has a slot for each push that is being read
	changed  chan struct{} // has one element when the set of objects may have changed
	contests prometheus.Counter

	turn sync.Mutex // held while a push is applied: etcd and claims change together
	// orphans must still be deleted from etcd; each has the node that it came from. told is when the log last mentioned a
	// contested Pod. Only the holder of turn uses orphans and told.
	orphans map[stream.ID]edge.NodeName
	told    time.Time

	mu     sync.Mutex
	claims *claims
}

// Presence hears which Pods are here. Its methods do not block.
type Presence interface {
	// Shown says that a Pod is here, as its node says.
	Shown(edge.PodPresence)
	// Hidden says that a Pod is not here any more, or that nobody knows whose it is.
	Hidden(stream.Key)
}

// Config configures Objects. All fields except Member, Present and Stalled must be set.
type Config struct {
	Log     klog.Logger // for what requests do: theirs has the errors alone
	Quota   int64       // bytes, of all nodes together
	Clock   ends.Clock
	Write   verbatim.Writer
	Read    verbatim.Reader
	Kinds   map[schema.GroupVersionResource]Kind // as Stored finds them
	Member  func(edge.NodeName) bool             // whether a node belongs to the pool; nil means that all do
	Present Presence                             // hears which Pods are here; nil means that nobody does
	Stalled time.Duration                        // how long a body may bring nothing; 0 means exchange.StallTimeout
}

// New returns Objects to which nothing has been pushed yet.
func New(c Config) *Objects {
	if c.Present == nil {
		c.Present = nobody{}
	}
	o := &Objects{
		log: c.Log, refusals: rate.NewLimiter(refusalsPerSecond, refusalsPerSecond), member: c.Member, present: c.Present,
		instance: rand.Text(), clock: c.Clock, nodes: nodeidentifier.NewDefaultNodeIdentifier(), kinds: c.Kinds,
		byName: map[string]Kind{}, write: c.Write, read: c.Read, stalled: cmp.Or(c.Stalled, exchange.StallTimeout),
		flows: newFlows(c.Clock), pushes: make(chan struct{}, maxPushes), changed: make(chan struct{}, 1),
		orphans: map[stream.ID]edge.NodeName{}, claims: newClaims(c.Quota),
		contests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "yurt_coordinator_contests_total",
			Help: "Times that a node has said of a Pod that it has it while another node had it here.",
		}),
	}
	for _, k := range c.Kinds {
		o.byName[k.resource] = k
	}
	return o
}

// nobody is a Presence that does not listen.
type nobody struct{}

func (nobody) Shown(edge.PodPresence) {}
func (nobody) Hidden(stream.Key)      {}

// Metrics returns what there is to count. The caller registers it.
func (o *Objects) Metrics() []prometheus.Collector {
	return []prometheus.Collector{o.contests, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "yurt_coordinator_contested_pods",
		Help: "Pods that several nodes say they have; each is shown as nobody's.",
	}, func() float64 {
		o.mu.Lock()
		defer o.mu.Unlock()
		return float64(o.claims.contestedObjects())
	})}
}

// Run drops the objects of silent nodes, and of nodes of other pools, until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			o.Sweep(ctx)
			o.flows.forget()
		case <-ctx.Done():
			return nil
		}
	}
}

// Sweep drops the objects of silent nodes, and of nodes of other pools.
func (o *Objects) Sweep(ctx context.Context) {
	o.turn.Lock()
	defer o.turn.Unlock()
	o.mu.Lock()
	now := o.clock.Running()
	gone := o.claims.expel(func(n edge.NodeName, heard time.Time) bool {
		return now.Sub(heard) >= maxSilence || o.member != nil && !o.member(n)
	})
	o.mu.Unlock()
	for n, objects := range gone {
		klog.FromContext(ctx).Info("Dropped a node's objects: its hub has been silent for too long, or it has left the pool",
			"from", n, "silence", maxSilence, "objects", len(objects))
		o.remove(ctx, n, objects)
	}
	o.remove(ctx, "", nil)
	o.touched()
}

// MayLast reports whether a request is a push of a node's objects, which has its own limits.
func MayLast(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, ownPath+"/") && r.Method == http.MethodPost
}

// ServeHTTP implements http.Handler. kube-apiserver has already authenticated the caller and asked RBAC.
func (o *Objects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := &exchange.Reply{ResponseWriter: w}
	if err := o.serve(a, r); err != nil {
		a.Refuse(r.Context(), err)
	}
}

func (o *Objects) serve(a *exchange.Reply, r *http.Request) error {
	n, err := o.caller(r)
	if err != nil {
		return err
	}
	below := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, ownPath), "/")
	switch {
	case below == "" && r.Method == http.MethodGet:
		return o.answerState(a, r, n)
	case below != "" && r.Method == http.MethodPost:
	default:
		return exchange.Refused(http.StatusMethodNotAllowed, "GET %s, or POST to a resource below it", ownPath)
	}
	resource, err := exchange.ParseResource(below)
	if err != nil {
		return err
	}
	kind, ok := o.kinds[resource]
	if !ok {
		return exchange.Refused(http.StatusForbidden, "%s %s is not a resource that hubs push of their nodes here%s",
			resource.Version,
			resource.GroupResource(), orIfAllowed(resource))
	}
	return o.push(a, r, n, kind)
}

func orIfAllowed(r schema.GroupVersionResource) string {
	if r.Group == "" && r.Resource == resourceSecrets {
		return "; the coordinator was started without --own-secrets"
	}
	return ""
}

func (o *Objects) caller(r *http.Request) (edge.NodeName, error) {
	caller, ok := request.UserFrom(r.Context())
	if !ok {
		return "", exchange.Refused(http.StatusForbidden, "only a node has its own objects")
	}
	name, isNode := o.nodes.NodeIdentity(caller)
	if !isNode || name == "" {
		return "", exchange.Refused(http.StatusForbidden, "only a node has its own objects, and %q is not one", caller.GetName())
	}
	return edge.NodeName(name), nil
}

// heldState is the answer to GET.
type heldState struct {
	Objects []heldObject `json:"objects"`
}

// pushReply answers a push. Without an ETag beside it, the hub must ask for the state.
type pushReply struct {
	Refused []refusedObject `json:"refused,omitempty"`
}

// refusedObject is a refused object of a push; the others were taken.
type refusedObject struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Code      int    `json:"code"`
	Message   string `json:"message"`
}

func (o *Objects) tag(a *nodeClaims) string {
	return fmt.Sprintf("%q", fmt.Sprintf("%s.%d", o.instance, a.version))
}

// answerState answers with the objects that a node has here, or with 304 if the hub already knows them.
func (o *Objects) answerState(a *exchange.Reply, r *http.Request, n edge.NodeName) error {
	o.mu.Lock()
	has := o.claims.ofNode(n, o.clock.Running())
	tag := o.tag(has)
	known := r.Header.Get("If-None-Match") == tag
	state := heldState{}
	if !known {
		state.Objects = o.claims.of(n)
	}
	o.mu.Unlock()
	a.Header().Set("ETag", tag)
	if known {
		a.WriteHeader(http.StatusNotModified)
		return nil
	}
	return a.Tell(http.StatusOK, state)
}

// change is one event of a push, checked as far as possible without the claims.
type change struct {
	offer   offer
	key     []byte
	value   []byte // nil means a deletion
	pod     *edge.PodPresence
	refused error // because of its own content; nil means that the content is valid
}

func (o *Objects) push(a *exchange.Reply, r *http.Request, n edge.NodeName, kind Kind) error {
	in, err := edge.ParseHistory(r.Header.Get(edge.HeaderHistory))
	if err == nil && in.IsFilled() {
		err = errors.New("a node's own objects are in none of a filler's")
	}
	if err != nil {
		return exchange.Refused(http.StatusBadRequest, "%s: %v", edge.HeaderHistory, err)
	}
	of, end, err := o.flows.begin(n)
	if err != nil {
		return err
	}
	defer end()
	changes, err := o.receive(a.ResponseWriter, r, kind)
	if err != nil {
		return err
	}
	bytes := 0
	for i := range changes {
		bytes += len(changes[i].value) + exchange.ObjectOverhead
	}
	if err := o.flows.wait(r.Context(), of, bytes); err != nil {
		return err
	}
	for i := range changes {
		offer := &changes[i].offer
		offer.at.History, offer.local = in, r.URL.Query().Get(edge.QueryLocal) == "true"
	}
	o.turn.Lock()
	defer o.turn.Unlock()
	if err := o.onTop(n, r.Header.Get("If-Match")); err != nil {
		return err
	}
	answer, tag := o.apply(r.Context(), n, kind, changes)
	o.touched()
	if tag != "" {
		a.Header().Set("ETag", tag)
	}
	o.logForbidden(r, n, answer.Refused)
	return a.Tell(http.StatusOK, answer)
}

// logForbidden logs that a node has pushed what it has no right to; other refusals are no attack.
func (o *Objects) logForbidden(r *http.Request, n edge.NodeName, refused []refusedObject) {
	refused = slices.DeleteFunc(slices.Clone(refused), func(each refusedObject) bool { return each.Code != http.StatusForbidden })
	if len(refused) > 0 && o.refusals.AllowN(o.clock.Running(), 1) {
		first := refused[0]
		o.log.Info("Refused objects that a node has pushed", "user", n.User(), "source", r.RemoteAddr, "objects", len(refused),
			"first", path.Join(r.URL.Path, first.Namespace, first.Name), "reason", first.Message)
	}
}

// onTop refuses a push by a hub that does not know the present state.
func (o *Objects) onTop(n edge.NodeName, tag string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if tag == "" {
		return exchange.Refused(http.StatusPreconditionRequired, "If-Match is missing: send the ETag of GET %s", ownPath)
	}
	if tag != o.tag(o.claims.ofNode(n, o.clock.Running())) {
		return exchange.Refused(http.StatusPreconditionFailed, "the state here has changed: GET %s", ownPath)
	}
	return nil
}

// receive reads a push to its end and checks each of its objects alone.
func (o *Objects) receive(w http.ResponseWriter, r *http.Request, kind Kind) ([]change, error) {
	encoding, err := stream.EncodingOf(r.Header.Get("Content-Type"))
	if err != nil || encoding != stream.Protobuf {
		return nil, exchange.Refused(http.StatusUnsupportedMediaType, "push watch events as protobuf")
	}
	if r.Header.Get("Content-Encoding") != "" {
		return nil, exchange.Refused(http.StatusUnsupportedMediaType, "push without Content-Encoding")
	}
	wait := time.NewTimer(pushWait)
	defer wait.Stop()
	select {
	case o.pushes <- struct{}{}:
		defer func() { <-o.pushes }()
	case <-wait.C:
		return nil, &exchange.Refusal{
			Code: http.StatusTooManyRequests, RetryAfter: time.Second,
			Message: fmt.Sprintf("%d pushes are being read; push again", maxPushes),
		}
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	ctx, end := context.WithTimeoutCause(r.Context(), exchange.PushTimeout, exchange.ErrTooLong)
	defer end()
	body := exchange.NewBody(ctx, w, http.MaxBytesReader(w, r.Body, maxPush), o.stalled)
	defer body.Leave()
	defer context.AfterFunc(ctx, body.Cut)()
	return o.readAll(stream.NewFrameReader(body, encoding, exchange.MaxFrame), kind)
}

func (o *Objects) readAll(frames *stream.FrameReader, kind Kind) ([]change, error) {
	var changes []change
	seen := map[stream.Key]struct{}{}
	for {
		event, err := frames.Read()
		if errors.Is(err, io.EOF) {
			return changes, nil
		}
		if err != nil {
			return nil, exchange.Unreadable(err)
		}
		key := event.Object.Key
		_, twice := seen[key]
		switch {
		case twice:
			return nil, exchange.Refused(http.StatusUnprocessableEntity, "%s occurs twice", key)
		case len(changes) == maxEvents:
			return nil, exchange.Refused(http.StatusRequestEntityTooLarge, "more than %d events; push fewer at a time", maxEvents)
		case event.Type != stream.Added && event.Type != stream.Modified && event.Type != stream.Deleted:
			return nil, exchange.Refused(http.StatusUnprocessableEntity, "a %s is not allowed in a push of objects", event.Type)
		case frames.Type().GroupVersionKind != kind.Kind:
			return nil, exchange.Refused(http.StatusUnprocessableEntity, "the events are of %s, want %s",
				frames.Type().GroupVersionKind,
				kind.Kind)
		case !kind.namespaced && key.Namespace != "":
			return nil, exchange.Refused(http.StatusUnprocessableEntity, "%s has a namespace", key)
		}
		if err := verbatim.CheckKey(key, kind.namespaced); err != nil {
			return nil, err
		}
		seen[key] = struct{}{}
		changes = append(changes, kind.change(event))
	}
}

// change returns what an event asks for.
func (k Kind) change(event stream.Event) change {
	object := event.Object
	c := change{key: k.Key(object.Key), offer: offer{
		id: stream.ID{Resource: k.resource, Key: object.Key}, at: edge.Moment{Revision: object.Revision},
		bytes: int64(len(object.Raw)) + exchange.ObjectOverhead, shared: k.node == nil,
		contestable: k.contestable,
	}}
	if event.Type == stream.Deleted {
		return c
	}
	c.value = stream.Envelope(stream.Type{GroupVersionKind: k.Kind, Encoding: stream.Protobuf}, object.Raw)
	decoded, err := k.Decode(object)
	if err != nil {
		c.refused = err
		return c
	}
	if k.node != nil {
		c.offer.node = k.node(decoded)
	}
	if k.uses != nil {
		c.offer.uses = k.uses(decoded)
	}
	if k.about != nil {
		about := k.about(decoded)
		c.offer.about = &about
	}
	if k.presence != nil {
		c.pod = k.presence(decoded)
	}
	return c
}
