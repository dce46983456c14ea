package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

// These constants bound how long a heartbeat may take. kubelet waits for the time in the query (timeout=), which is the smaller
// of its status interval and the lease duration. Its next heartbeat is due after a quarter of the lease duration. Even if both
// servers hang, kubelet gets its answer within answerShare of the shorter of these two times. The cloud gets cloudShare of that,
// but at most cloudLongest. The coordinator gets the rest. With Kubernetes' defaults, 10 s for both times, the answer takes at
// most 9 s, 3.5 s of them for the cloud. With a lease duration of 8 s it takes at most 1.8 s, 1 s of them for the cloud.
const (
	answerShare  = 0.9
	cloudShare   = 0.55
	cloudLongest = 3500 * time.Millisecond

	// budgetDefault is for a request that names no timeout, with a Lease that names no duration.
	budgetDefault = 10 * time.Second

	// copyLongest bounds a copy that nobody waits for.
	copyLongest = 5 * time.Second

	// conflictsMost is how often a heartbeat is sent again after a conflict. A leader that has forwarded a heartbeat causes one
	// conflict. A forwarded write that is under way meanwhile may cause another.
	conflictsMost = 2
)

// errLinkLeft is the cause when an attempt at the cloud ends because the link is no longer up.
var errLinkLeft = errors.New("the cloud link is no longer up")

// ProxyConfig is what a Proxy needs. All fields are required unless it says otherwise.
type ProxyConfig struct {
	// Node is the hub's own node, whose Lease this is.
	Node edge.NodeName
	// Cloud is a client of the cloud with the node's identity. The Proxy limits each request by its context, so the client must
	// not retry for long by itself.
	Cloud coordinationv1client.LeasesGetter
	// CloudLink is the state of the link that Cloud uses. While the link is relayed, the function Relayed returns by whom, and
	// for which requests. A nil Relayed means that the link is never relayed.
	CloudLink *live.Value[link.State]
	Relayed   func() edge.Relayed
	// RelaysAt returns the address at which this node's hub relays for others; empty means none. A nil RelaysAt means that this
	// hub never relays.
	RelaysAt func() string
	// Coordinators are the pool's coordinators; each reachable one gets a copy. If there are none, the cloud gets all the time
	// for the answer (answerShare). The Proxy then does not use Report, Traffic, Kubelet, Version and Metered.
	Coordinators []Coordinator
	// Report returns what the hub says of itself, for the pool to see. A nil Report means that it says nothing.
	Report func() edge.HubReport
	// Traffic returns what the node's link to the cloud has carried, for the pool to see.
	Traffic func() edge.Traffic
	// Kubelet returns what the hub knows of kubelet's serving certificate, by which the coordinator verifies kubelet. The Proxy
	// does not report a zero value.
	Kubelet func() edge.KubeletServing
	// Version is the hub's own version, for the pool to see; empty is not reported.
	Version string
	// History is told of the Lease's revisions in the cloud.
	History History
	// Metered reports whether the node's link to the cloud is paid for by the byte. A nil Metered means that it is not.
	Metered func() bool
	// Metrics takes the metrics of heartbeats. nil means that they are not exported.
	Metrics prometheus.Registerer
	// Clock is this machine's.
	Clock ends.Clock
}

// History follows the cloud's history; cache.HistoryKeeper is one.
type History interface {
	// Number is the history that the cloud is in, as far as is known.
	Number() edge.History
	// Went records that the cloud showed an object at one moment (from), and at another moment (to) when it was asked later. The
	// history of each moment is the result of Number from before that question.
	Went(ctx context.Context, from, to edge.Moment)
}

// Coordinator is one of the pool's coordinators. All fields but Served are required.
type Coordinator struct {
	// Leases is a client of the coordinator with the node's identity. Link is the state of the link that this client uses.
	Leases coordinationv1client.LeasesGetter
	Link   *live.Value[link.State]
	// Served is called after each write of a copy, and gets whether the coordinator took the copy. It is not called for a write
	// that a newer copy has cancelled. A nil Served means no calls.
	Served func(bool)
}

// Proxy answers GET, POST and PUT of its own node's Lease. It acts with the node's identity, whoever asks, so route only
// kubelet's requests to it. Make one with NewProxy. Run must run while the Proxy serves.
type Proxy struct {
	config  ProxyConfig
	copiers []*copier // one for each coordinator
	beats   *prometheus.CounterVec
	line    gauge

	mu    sync.Mutex
	known *coordinationv1.Lease // the cloud's Lease as last given, with kubelet's last spec; nil if none was
	there time.Time             // the renewTime of the cloud's Lease as known; zero if not known
	stamp time.Time             // kubelet's stamp of the last heartbeat that was taken
	moved bool                  // a leader may have written to the cloud's Lease since
	shown edge.Moment           // when the cloud's Lease was last changed, as the cloud has shown it; zero if it has not
	gone  bool                  // the cloud has said that there is no Lease, and nobody has made one since
}

// NewProxy returns a Proxy. It registers its metrics.
func NewProxy(c ProxyConfig) *Proxy {
	p := &Proxy{
		config: c,
		beats: promauto.With(c.Metrics).NewCounterVec(prometheus.CounterOpts{
			Name: "yurthub_heartbeats_total",
			Help: "Heartbeats of this node's kubelet: taken by the cloud (direct, or relayed over a neighbour's line), by the " +
				"coordinator only (delegated), refused by the cloud, or taken by nobody (lost).",
		}, []string{"result"}),
	}
	for _, result := range []string{"direct", "relayed", "delegated", "refused", "lost"} {
		p.beats.WithLabelValues(result) // so that the first one shows as an increase
	}
	for _, each := range c.Coordinators {
		p.copiers = append(p.copiers, newCopier(each))
	}
	return p
}

// Run writes the coordinators' copies until ctx ends; it returns nil.
func (p *Proxy) Run(ctx context.Context) error {
	var owned sync.WaitGroup
	for _, c := range p.copiers {
		owned.Go(func() { c.run(ctx) })
	}
	<-ctx.Done()
	owned.Wait()
	return nil
}

// coordinator returns Up if the link to any of the pool's coordinators is up, otherwise the state of the link to the first.
func (p *Proxy) coordinator() link.State {
	best := link.Down
	for i, each := range p.config.Coordinators {
		switch state := each.Link.Get(); {
		case state == link.Up:
			return state
		case i == 0:
			best = state
		}
	}
	return best
}

// ServeHTTP answers GET and PUT of the Lease, and POST to the Leases of its namespace. The router has checked the path before.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var lease *coordinationv1.Lease
	var err error
	code := http.StatusOK
	switch r.Method {
	case http.MethodGet:
		lease, err = p.get(r)
	case http.MethodPut:
		lease, err = p.put(w, r)
	case http.MethodPost:
		lease, err = p.post(w, r)
		code = http.StatusCreated
	default:
		err = apierrors.NewMethodNotSupported(coordinationv1.Resource("leases"), strings.ToLower(r.Method))
	}
	if err != nil {
		err = replyError(w, r, err)
	} else {
		err = reply(w, r, code, coordinationv1.SchemeGroupVersion, lease)
	}
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("kubelet did not get the answer to its heartbeat", "err", err)
	}
}

func (p *Proxy) get(r *http.Request) (*coordinationv1.Lease, error) {
	if known, _ := p.recall(); known != nil && r.URL.Query().Get("resourceVersion") == "0" {
		return unmarked(known), nil // any will do
	}
	limits := p.budgetOf(r, nil)
	state := p.config.CloudLink.Get()
	var failure error
	if state != link.Down {
		ctx, cancel := context.WithTimeout(r.Context(), limits.cloud)
		defer cancel()
		ctx, stop := p.config.CloudLink.While(ctx, notDown, errLinkLeft)
		defer stop()
		var lease *coordinationv1.Lease
		if lease, failure = p.read(ctx); result(failure) != failed {
			return lease, failure
		}
	}
	known, gone := p.recall()
	if known != nil {
		return unmarked(known), nil
	}
	absent := apierrors.NewNotFound(coordinationv1.Resource("leases"), string(p.config.Node))
	if gone && p.coordinator() == link.Up {
		return nil, absent // a coordinator may still have a copy of the Lease that is gone
	}
	// The hub started while cut off. If kubelet did as well, it sends no heartbeat before it has seen its Lease.
	missing := false
	ctx, cancel := context.WithTimeout(r.Context(), limits.answer-limits.cloud)
	defer cancel()
	for _, each := range p.config.Coordinators {
		if each.Link.Get() != link.Up {
			continue
		}
		copied, err := each.Leases.Leases(corev1.NamespaceNodeLease).Get(ctx, string(p.config.Node), metav1.GetOptions{})
		switch {
		case err == nil:
			lease := fromCopy(copied)
			p.remember(lease, time.Time{})
			return lease, nil
		case apierrors.IsNotFound(err):
			missing = true // another one may have been there for longer
		default:
			failure = errors.Join(failure, err)
		}
	}
	if missing {
		// No coordinator that answered has the Lease. On a 404 kubelet creates one, which is then delegated. If the cloud has one
		// after all, the leader continues with that.
		return nil, absent
	}
	message := fmt.Sprintf("the cloud cannot be reached (link %s), and this node's Lease is not known from before",
		state)
	if failure != nil {
		message += ": " + failure.Error()
	}
	return nil, apierrors.NewServiceUnavailable(message)
}

// observed asks the cloud by calling the function do. It tells the History at which revision the cloud shows the Lease now, and
// at which the cloud showed it before.
func (p *Proxy) observed(ctx context.Context, do func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	now := edge.Moment{History: p.config.History.Number()} // before the question
	p.mu.Lock()
	before := p.shown
	p.mu.Unlock()
	lease, err := do()
	if err != nil {
		return nil, err
	}
	if now.Revision, err = edge.ParseRevision(lease.ResourceVersion); err != nil {
		return lease, nil //nolint:nilerr // it says nothing about the history
	}
	p.mu.Lock()
	p.shown = now
	p.mu.Unlock()
	p.config.History.Went(ctx, before, now)
	return lease, nil
}

// read asks the cloud for the Lease, and remembers it.
func (p *Proxy) read(ctx context.Context) (*coordinationv1.Lease, error) {
	lease, err := p.observed(ctx, func() (*coordinationv1.Lease, error) {
		return p.leases().Get(ctx, string(p.config.Node), metav1.GetOptions{})
	})
	if err != nil {
		if apierrors.IsNotFound(err) {
			p.forget()
		}
		return nil, err
	}
	p.remember(lease, renewTime(lease))
	return unmarked(lease), nil
}

func (p *Proxy) put(w http.ResponseWriter, r *http.Request) (*coordinationv1.Lease, error) {
	sent, err := decode(w, r)
	if err != nil {
		return nil, err
	}
	if sent.Name == "" {
		sent.Name = string(p.config.Node)
	}
	if sent.Name != string(p.config.Node) || sent.Namespace != "" && sent.Namespace != corev1.NamespaceNodeLease {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is the Lease %s/%s, the request is for %s/%s",
			sent.Namespace, sent.Name, corev1.NamespaceNodeLease, p.config.Node))
	}
	sent.Namespace = corev1.NamespaceNodeLease
	options := optionsOf(r)
	limits := p.budgetOf(r, sent)
	ctx, cancel := context.WithTimeout(r.Context(), limits.answer)
	defer cancel()
	if len(options.DryRun) > 0 {
		known, _ := p.recall()
		return p.leases().Update(ctx, forCloud(sent, known), options)
	}
	return p.beat(ctx, sent, limits, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return p.update(ctx, sent, options)
	})
}

// post makes the Lease, which is a node's first heartbeat. Leases of other names are the cloud's to refuse.
func (p *Proxy) post(w http.ResponseWriter, r *http.Request) (*coordinationv1.Lease, error) {
	sent, err := decode(w, r)
	if err != nil {
		return nil, err
	}
	if sent.Namespace != "" && sent.Namespace != corev1.NamespaceNodeLease {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is in namespace %s, the request is for %s",
			sent.Namespace, corev1.NamespaceNodeLease))
	}
	sent.Namespace = corev1.NamespaceNodeLease
	options := metav1.CreateOptions(optionsOf(r))
	limits := p.budgetOf(r, sent)
	ctx, cancel := context.WithTimeout(r.Context(), limits.answer)
	defer cancel()
	if len(options.DryRun) > 0 || sent.Name != string(p.config.Node) {
		return p.leases().Create(ctx, sent, options)
	}
	if known, _ := p.recall(); p.config.CloudLink.Get() == link.Down && !provisional(known) {
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), sent.Name)
	}
	return p.beat(ctx, sent, limits, func(ctx context.Context) (*coordinationv1.Lease, error) {
		written, err := p.observed(ctx, func() (*coordinationv1.Lease, error) {
			return p.leases().Create(ctx, p.signed(unmarked(sent)), options)
		})
		if err != nil {
			return nil, err
		}
		p.settle(written, sent)
		return forKubelet(written, sent), nil
	})
}

func optionsOf(r *http.Request) metav1.UpdateOptions {
	query := r.URL.Query()
	options := metav1.UpdateOptions{
		DryRun: query["dryRun"], FieldManager: query.Get("fieldManager"), FieldValidation: query.Get("fieldValidation"),
	}
	if options.FieldManager == "" {
		// As the API server would do: kubelet's fields stay kubelet's, although the hub writes them.
		options.FieldManager, _, _ = strings.Cut(r.UserAgent(), "/")
	}
	return options
}

// beat handles one heartbeat; the function write sends it to the cloud. start, afterCloud and afterCopy decide what happens.
func (p *Proxy) beat(
	ctx context.Context, sent *coordinationv1.Lease, limits budget,
	write func(context.Context) (*coordinationv1.Lease, error),
) (*coordinationv1.Lease, error) {
	cloud, coordinator := p.config.CloudLink.Get(), p.coordinator()
	direct, send, now := start(cloud, coordinator)
	copied := p.send(send, sent, limits)
	var lease *coordinationv1.Lease
	var failure error
	if direct {
		lease, failure = p.direct(ctx, limits.cloud, write)
		if result(failure) == failed && ctx.Err() != nil {
			// kubelet is gone, and the attempt ended with it: that says nothing about the link.
			p.beats.WithLabelValues("lost").Inc()
			return nil, failure
		}
		// The state is read again, because the cloud may have taken long to fail: can a coordinator still take a marked copy?
		coordinator = p.coordinator()
		var next sending
		if next, now = afterCloud(result(failure), coordinator, send); next != nothing {
			send, copied = next, p.send(next, sent, limits)
		}
	}
	if now == later {
		err := copied.wait(ctx)
		if now = afterCopy(result(err)); now == accepted {
			lease = p.delegated(sent)
		} else {
			failure = errors.Join(failure, err)
		}
	}
	switch now {
	case accepted:
		switch {
		case send == marked:
			p.beats.WithLabelValues("delegated").Inc()
		case cloud == link.Relayed:
			p.beats.WithLabelValues("relayed").Inc()
		default:
			p.beats.WithLabelValues("direct").Inc()
		}
		return lease, nil
	case refused:
		p.beats.WithLabelValues("refused").Inc()
		return nil, failure
	}
	p.beats.WithLabelValues("lost").Inc()
	message := fmt.Sprintf("neither the cloud (link %s) nor a coordinator of the pool (link %s) has this heartbeat",
		p.config.CloudLink.Get(), coordinator)
	if failure != nil {
		message += ": " + failure.Error()
	}
	return nil, apierrors.NewServiceUnavailable(message)
}

// send submits the copy to each reachable coordinator. It returns nil if there is nothing to send.
func (p *Proxy) send(what sending, sent *coordinationv1.Lease, limits budget) (copies drafts) {
	if what == nothing {
		return nil
	}
	p.mu.Lock()
	known := p.known
	// After a marked copy, a leader may write to the cloud's Lease, even if the copy's acknowledgement was lost.
	p.moved = p.moved || what == marked
	p.mu.Unlock()
	for i, each := range p.config.Coordinators {
		if each.Link.Get() == link.Up {
			lease := p.copyFor(what, sent, known)
			copies = append(copies, p.copiers[i].submit(lease, min(limits.answer, copyLongest)))
		}
	}
	return copies
}

// copyFor returns a coordinator's copy, with everything that the node reports to the pool.
func (p *Proxy) copyFor(what sending, sent, known *coordinationv1.Lease) *coordinationv1.Lease {
	lease := copyOf(sent, known, what == marked)
	switch {
	case what == relayed:
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationRelayedBy, p.relayed().String())
	case what == clean && p.config.RelaysAt != nil:
		if at := p.config.RelaysAt(); at != "" {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationRelaysAt, at)
		}
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationTraffic, p.config.Traffic().String())
	if p.config.Version != "" {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationHubVersion, p.config.Version)
	}
	if p.config.Report != nil {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationHub, p.config.Report().String())
	}
	if serving := p.config.Kubelet(); serving != (edge.KubeletServing{}) {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationKubelet, serving.String())
	}
	// A relayed node reports no line, so that it is not chosen to lead because of a line that is cut.
	if line, known := p.line.says(p.config.Clock.Running()); known && what != relayed {
		line.Metered = p.config.Metered != nil && p.config.Metered()
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationLine, line.String())
	}
	return lease
}

// result classifies how an attempt ended. An API status counts as an answer, except 5xx and 429, because these are about the
// server and not about the heartbeat.
func result(err error) outcome {
	if err == nil {
		return took
	}
	api := apierrors.APIStatus(nil)
	if !errors.As(err, &api) {
		return failed
	}
	if code := api.Status().Code; code >= http.StatusInternalServerError || code == http.StatusTooManyRequests {
		return failed
	}
	return denied
}

// direct sends the heartbeat to the cloud while its link may be up. It returns the cloud's answers unchanged.
func (p *Proxy) direct(
	ctx context.Context, limit time.Duration, write func(context.Context) (*coordinationv1.Lease, error),
) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ctx, stop := p.config.CloudLink.While(ctx, notDown, errLinkLeft)
	defer stop()
	return write(ctx)
}

// update renews the cloud's Lease. If a leader has changed the Lease by forwarding, update reads it and tries again.
func (p *Proxy) update(
	ctx context.Context, sent *coordinationv1.Lease, options metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	if p.mustLook(sent) {
		if _, err := p.read(ctx); result(err) == failed {
			return nil, err
		}
	}
	for conflicts := 0; ; conflicts++ {
		began, own := p.config.Clock.Running(), p.relayed().By == ""
		written, err := p.observed(ctx, func() (*coordinationv1.Lease, error) {
			return p.leases().Update(ctx, p.signed(p.next(sent)), options)
		})
		if own && result(err) == failed {
			p.line.missed(p.config.Clock.Running())
		}
		if err == nil {
			if own { // else it is a neighbour's line
				p.line.answered(p.config.Clock.Since(began))
			}
			p.settle(written, sent)
			return forKubelet(written, sent), nil
		}
		if !apierrors.IsConflict(err) || conflicts == conflictsMost {
			return nil, err
		}
		// If the Lease is gone, the PUT conflicts because of its uid. The conflict is then the answer: kubelet reads the Lease,
		// and creates it.
		if _, gone := p.read(ctx); gone != nil {
			if result(gone) == failed {
				return nil, gone
			}
			return nil, err
		}
	}
}

// mustLook reports whether to read the cloud's Lease before a PUT. There are three reasons. A leader may have written the Lease:
// without the read, the PUT would almost certainly conflict. The cloud's renewTime is unknown: the PUT must not have an earlier
// one. Or kubelet made the Lease while cut off: a leader may have created the Lease in the cloud since.
func (p *Proxy) mustLook(sent *coordinationv1.Lease) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moved || p.there.IsZero() || forCloud(sent, p.known).ResourceVersion == ""
}

// next returns kubelet's Lease in the form for the cloud. If kubelet's stamp is earlier than the cloud's, next replaces it: by
// the cloud's plus 1 µs, or by the cloud's own if the cloud has taken this heartbeat before.
func (p *Proxy) next(sent *coordinationv1.Lease) *coordinationv1.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	lease := forCloud(sent, p.known)
	stamp := renewTime(sent)
	switch {
	case stamp.IsZero() || !stamp.Before(p.there):
	case stamp.Equal(p.stamp):
		lease.Spec.RenewTime = &metav1.MicroTime{Time: p.there}
	default:
		lease.Spec.RenewTime = &metav1.MicroTime{Time: advance(stamp, p.there)}
	}
	return lease
}

// relayed returns whose line heartbeats take; the zero Relayed means that it is this node's own.
func (p *Proxy) relayed() edge.Relayed {
	if p.config.Relayed == nil || p.config.CloudLink.Get() != link.Relayed {
		return edge.Relayed{}
	}
	return p.config.Relayed()
}

// signed marks a Lease that this hub writes over a neighbour's line, so that the cloud knows that the node's own line is down.
func (p *Proxy) signed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	if by := p.relayed(); by.By != "" {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, edge.AnnotationRelayedBy, by.String())
	}
	return lease
}

// delegated returns the answer to a heartbeat that only the coordinator has: the cloud's Lease with kubelet's spec. While the hub
// does not know the cloud's Lease, it uses kubelet's. Either kubelet had that from the cloud, or kubelet has just made it.
func (p *Proxy) delegated(sent *coordinationv1.Lease) *coordinationv1.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known, p.gone = unmarked(sent), false
	}
	p.known, p.stamp = forKubelet(p.known, sent), renewTime(sent)
	return p.known.DeepCopy()
}

func (p *Proxy) leases() coordinationv1client.LeaseInterface {
	return p.config.Cloud.Leases(corev1.NamespaceNodeLease)
}

func notDown(s link.State) bool { return s != link.Down }

// recall returns what is known of the cloud's Lease.
func (p *Proxy) recall() (known *coordinationv1.Lease, gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known, p.gone
}

func (p *Proxy) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.there, p.gone = nil, time.Time{}, true
}

// remember stores the cloud's Lease and its renewTime (the parameter named there; zero means unknown). The last answer counts,
// even if its revision is lower, because revisions are lower after the cloud was restored from a backup. If an older answer
// arrives last, that costs one conflict.
func (p *Proxy) remember(lease *coordinationv1.Lease, there time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known, p.there, p.gone = lease, there, false
}

// settle remembers the Lease with which the cloud answered the heartbeat that kubelet sent.
func (p *Proxy) settle(lease, sent *coordinationv1.Lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stamp = renewTime(sent)
	p.known, p.there, p.moved, p.gone = lease, renewTime(lease), false, false
}

// budget is the time that a request has.
type budget struct {
	answer time.Duration // until kubelet must have its answer
	cloud  time.Duration // of that, for the cloud
}

func (p *Proxy) budgetOf(r *http.Request, lease *coordinationv1.Lease) budget {
	whole := budgetDefault
	if lease != nil && duration(lease) > 0 {
		whole = min(whole, duration(lease)/ageShare)
	}
	if asked, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && asked > 0 {
		whole = min(whole, asked)
	}
	if deadline, ok := r.Context().Deadline(); ok {
		whole = min(whole, time.Until(deadline)) //nolint:forbidigo // contexts end by package time
	}
	answer := time.Duration(float64(whole) * answerShare)
	if len(p.config.Coordinators) == 0 {
		return budget{answer: answer, cloud: answer}
	}
	return budget{answer: answer, cloud: min(time.Duration(float64(answer)*cloudShare), cloudLongest)}
}
