package shareserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/stream"
)

// Each hub keeps its own node's objects here: the Node, its Pods, what they use, its Events. They are in etcd under
// kube-apiserver's keys, as the cloud wrote them, and are read through the API.
//
//	GET  /own/v1                                   what the caller's node has here, at which revisions of the cloud
//	POST /own/v1/{group|core}/{version}/{resource} watch events: objects to have here, or no longer
//
// A hub asks for the state and pushes the difference, in one batch. After a 412 it asks again; a 412 comes after a restart of
// either side, or a lost answer. A node can push only its own objects; the claims hold the rules.
const (
	// maxPush bounds a push, in bytes: a batch, and one more object. maxEvents bounds its events.
	maxPush   = 3 << 20
	maxEvents = 512
	// sweepEvery is how often Run looks for silent nodes.
	sweepEvery = 30 * time.Second
	// refusalsPerSecond bounds the log's lines about pushes of what a node has no right to.
	refusalsPerSecond = 10
	// tellEvery is the least time between two log lines about contested Pods.
	tellEvery = 10 * time.Second
)

// NodeObjects holds what hubs push about their nodes.
type NodeObjects struct {
	*share
	instance string
	clock    ends.Clock
	kinds    map[schema.GroupVersionResource]Kind
	byName   map[string]Kind // by resource
	write    Writer
	lookUp   Reader
	log      klog.Logger
	refusals *rate.Limiter            // bounds the log's lines about what a node had no right to push
	member   func(edge.NodeName) bool // whether a node belongs to the pool; nil means that all do
	present  Presence
	flows    *flows
	changed  chan struct{} // has one element when the set of objects may have changed
	contests prometheus.Counter
	tell     rate.Sometimes // bounds the log's lines about contested Pods

	turn sync.Mutex // held while a push is applied: etcd and claims change together
	// orphans holds the objects to delete from etcd, each with the node that it came from. The mutex turn guards it.
	orphans map[stream.ID]edge.NodeName

	claims *claims // guarded by the share's mu
}

// Presence hears which Pods are here. Its methods do not block.
type Presence interface {
	// Shown says that a Pod is here, as its node says.
	Shown(edge.PodPresence)
	// Hidden says that a Pod is not here any more, or that nobody knows whose it is.
	Hidden(stream.Key)
}

// NodeObjectsConfig configures NodeObjects. All fields except Member, Present and Stalled must be set.
type NodeObjectsConfig struct {
	Log     klog.Logger // for what requests do: theirs has the errors alone
	Quota   int64       // bytes, of all nodes together
	Clock   ends.Clock
	Write   Writer
	Read    Reader
	Kinds   map[schema.GroupVersionResource]Kind // as StoredOfNodes finds them
	Member  func(edge.NodeName) bool             // whether a node belongs to the pool; nil means that all do
	Present Presence                             // hears which Pods are here; nil means that nobody does
	Stalled time.Duration                        // how long a body may bring nothing; 0 means exchange.StallTimeout
}

// NewNodeObjects returns NodeObjects to which nothing has been pushed yet.
func NewNodeObjects(c NodeObjectsConfig) *NodeObjects {
	if c.Present == nil {
		c.Present = nobody{}
	}
	o := &NodeObjects{
		log: c.Log, refusals: rate.NewLimiter(refusalsPerSecond, refusalsPerSecond), member: c.Member, present: c.Present,
		instance: rand.Text(), clock: c.Clock, kinds: c.Kinds, byName: map[string]Kind{}, write: c.Write, lookUp: c.Read,
		flows: newFlows(), tell: rate.Sometimes{Interval: tellEvery}, changed: make(chan struct{}, 1),
		orphans: map[stream.ID]edge.NodeName{}, claims: newClaims(c.Quota),
		contests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "yurt_coordinator_contests_total",
			Help: "Times that a node has said of a Pod that it has it while another node had it here.",
		}),
	}
	for _, k := range c.Kinds {
		o.byName[k.resource] = k
	}
	o.share = newShare(edge.PathOwn, o, maxPush, cmp.Or(c.Stalled, exchange.StallTimeout))
	return o
}

// nobody is a Presence that does not listen.
type nobody struct{}

func (nobody) Shown(edge.PodPresence) {}
func (nobody) Hidden(stream.Key)      {}

// Metrics returns what there is to count. The caller registers it.
func (o *NodeObjects) Metrics() []prometheus.Collector {
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
func (o *NodeObjects) Run(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			o.Sweep(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Sweep drops the objects of silent nodes, and of nodes of other pools.
func (o *NodeObjects) Sweep(ctx context.Context) {
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

// accepts returns why hubs may not push a resource of their nodes, or nil.
func (o *NodeObjects) accepts(r schema.GroupVersionResource) error {
	if _, ok := o.kinds[r]; ok {
		return nil
	}
	hint := ""
	if r.Group == "" && r.Resource == resourceSecrets {
		hint = "; the coordinator was started without --own-secrets"
	}
	return exchange.Refused(http.StatusForbidden, "%s %s is not a resource that hubs push of their nodes here%s", r.Version,
		r.GroupResource(), hint)
}

// read refuses: a node's objects are read through the API.
func (o *NodeObjects) read(http.ResponseWriter, *http.Request, schema.GroupVersionResource) error {
	return exchange.Refused(http.StatusMethodNotAllowed, "GET %s, or POST to a resource below it", edge.PathOwn)
}

func (o *NodeObjects) state(a *nodeClaims) string { return fmt.Sprintf("%s.%d", o.instance, a.version) }

// answerState answers with the objects that a node has here, or with 304 if the hub already knows them.
func (o *NodeObjects) answerState(a *exchange.Reply, r *http.Request) error {
	n, err := o.caller(r)
	if err != nil {
		return err
	}
	o.mu.Lock()
	tag := strconv.Quote(o.state(o.claims.ofNode(n, o.clock.Running())))
	all, known := edge.NodeState{}, r.Header.Get("If-None-Match") == tag
	if !known {
		all.Objects = o.claims.of(n)
	}
	o.mu.Unlock()
	a.Header().Set("ETag", tag)
	if known {
		a.WriteHeader(http.StatusNotModified)
		return nil
	}
	return a.Tell(http.StatusOK, all)
}

// nodePush is a push of a node's objects: one batch.
type nodePush struct {
	*NodeObjects
	*push
	kind    Kind
	source  string // where it was sent from
	flow    *flow
	seen    map[stream.Key]struct{}
	changes []change
}

// change is one event of a push, checked as far as possible without the claims.
type change struct {
	offer   offer
	key     []byte
	value   []byte // nil means a deletion
	pod     *edge.PodPresence
	refused error // because of its own content; nil means that the content is valid
}

// begin checks all of a push but its state, which apply does.
func (o *NodeObjects) begin(r *http.Request, is *push) (taker, error) {
	if is.history.IsFilled() {
		return nil, exchange.Refused(http.StatusBadRequest, "%s: a node's own objects are in none of a filler's",
			edge.HeaderHistory)
	}
	if is.encoding != stream.Protobuf {
		return nil, exchange.Refused(http.StatusUnsupportedMediaType, "push watch events as protobuf")
	}
	of, err := o.flows.begin(is.node)
	if err != nil {
		return nil, err
	}
	return &nodePush{
		NodeObjects: o, push: is, kind: o.kinds[is.resource], source: r.RemoteAddr, flow: of,
		seen: map[stream.Key]struct{}{},
	}, nil
}

// event implements taker.
func (p *nodePush) event(e stream.Event, t stream.Type) (last bool, err error) {
	key := e.Object.Key
	_, twice := p.seen[key]
	switch {
	case twice:
		err = exchange.Refused(http.StatusUnprocessableEntity, "%s occurs twice", key)
	case len(p.changes) == maxEvents:
		err = exchange.Refused(http.StatusRequestEntityTooLarge, "more than %d events; push fewer at a time", maxEvents)
	case e.Type != stream.Added && e.Type != stream.Modified && e.Type != stream.Deleted:
		err = exchange.Refused(http.StatusUnprocessableEntity, "a %s is not allowed in a push of objects", e.Type)
	case t.GroupVersionKind != p.kind.Kind:
		err = exchange.Refused(http.StatusUnprocessableEntity, "the events are of %s, want %s", t.GroupVersionKind, p.kind.Kind)
	case !p.kind.namespaced() && key.Namespace != "":
		err = exchange.Refused(http.StatusUnprocessableEntity, "%s has a namespace", key)
	default:
		err = CheckKey(key, p.kind.namespaced())
	}
	if err != nil {
		return false, err
	}
	p.seen[key] = struct{}{}
	c := p.kind.change(e)
	c.offer.at.History, c.offer.local = p.history, p.query.Get(edge.QueryLocal) == "true"
	p.changes = append(p.changes, c)
	return false, nil
}

// apply implements taker.
func (p *nodePush) apply(ctx context.Context, _ stream.Type) (edge.Taken, error) {
	bytes := 0
	for i := range p.changes {
		bytes += len(p.changes[i].value) + exchange.ObjectOverhead
	}
	if err := p.flow.wait(ctx, bytes); err != nil {
		return edge.Taken{}, err
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := p.onTop(); err != nil {
		return edge.Taken{}, err
	}
	taken := p.store(ctx)
	p.touched()
	p.logForbidden(taken.Refused)
	return taken, nil
}

// end implements taker.
func (p *nodePush) end() { p.flow.end() }

// onTop refuses a push by a hub that does not know the present state.
func (p *nodePush) onTop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.query.Get(edge.QueryFrom) {
	case "":
		return exchange.Refused(http.StatusPreconditionRequired, "%s is missing: send the state that GET %s names",
			edge.QueryFrom, edge.PathOwn)
	case p.state(p.claims.ofNode(p.node, p.clock.Running())):
		return nil
	default:
		return exchange.Refused(http.StatusPreconditionFailed, "the state here has changed: GET %s", edge.PathOwn)
	}
}

// logForbidden logs that a node has pushed what it has no right to; other refusals are no attack.
func (p *nodePush) logForbidden(refused []edge.RefusedObject) {
	refused = slices.DeleteFunc(slices.Clone(refused), func(each edge.RefusedObject) bool {
		return each.Code != http.StatusForbidden
	})
	if len(refused) > 0 && p.refusals.AllowN(p.clock.Running(), 1) {
		first := refused[0]
		p.log.Info("Refused objects that a node has pushed", "user", p.node.User(), "source", p.source, "objects", len(refused),
			"first", path.Join(p.path, p.resource.Resource, first.Namespace, first.Name), "reason", first.Message)
	}
}

// change returns what an event asks for.
func (k Kind) change(event stream.Event) change {
	object := event.Object
	c := change{key: k.Key(object.Key), offer: offer{
		id: stream.ID{Resource: k.resource, Key: object.Key}, at: edge.Moment{Revision: object.Revision},
		bytes: int64(len(object.Raw)) + exchange.ObjectOverhead, shared: k.shared,
		contestable: k.resource == resourcePods,
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
	c.offer.node = nodeOf(decoded)
	switch o := decoded.(type) {
	case *corev1.Pod:
		c.refused = checkPod(o)
		is := edge.PresenceOf(o)
		c.offer.uses, c.pod = usesOf(o), &is
	case *corev1.Event:
		about := aboutOf(o)
		c.offer.about = &about
	}
	return c
}

// checkPod refuses a Pod with a name or UID that Kubernetes would not give it. Each hub that is cut off hears both of all Pods.
func checkPod(pod *corev1.Pod) error {
	if problems := validation.NameIsDNSSubdomain(pod.Name, false); len(problems) > 0 {
		return exchange.Refused(http.StatusUnprocessableEntity, "%.300q is not a valid name of a Pod", pod.Name)
	}
	if !podUID.MatchString(string(pod.UID)) {
		return exchange.Refused(http.StatusUnprocessableEntity, "%.100q is not a valid UID of Pod %s/%s", pod.UID, pod.Namespace,
			pod.Name)
	}
	return nil
}

// podUID matches UIDs of Pods: those of API servers, and the hashes that kubelet gives static Pods.
var podUID = regexp.MustCompile(`^[0-9A-Za-z-]{0,64}$`)
