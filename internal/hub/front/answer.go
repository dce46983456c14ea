package front

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/hub/upstream"
)

// requestOf returns the Request for Decide. The parameter own says that the request is not kubelet's.
func (f *Front) requestOf(r *http.Request, info *request.RequestInfo, own bool) Request {
	local := answerable(r)
	return Request{
		Verb: info.Verb, Group: info.APIGroup, Resource: info.Resource, Subresource: info.Subresource,
		Version: info.APIVersion, Namespace: info.Namespace, Name: info.Name, Path: info.Path,
		DryRun:  strings.Contains(r.URL.RawQuery, "dryRun"),
		Waiting: f.cfg.Situation.StandIn && !own && f.cfg.StandIn.Waits(info),
		Replicated: local && info.IsResourceRequest && f.cfg.Replicas.Has(schema.GroupVersionResource{
			Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		}),
		Table:          edge.AsksForTable(r),
		Cached:         local && f.cfg.Keeper.Match(r),
		OwnCredentials: own, Known: own && Bearer(r) != "", AssumesIdentity: assumedIdentity(r.Header),
	}
}

// situation returns the present Situation for Decide.
func (f *Front) situation() Situation {
	s := f.cfg.Situation
	s.CloudLink, s.CoordinatorLink = f.cfg.CloudLink(), f.cfg.CoordinatorLink()
	s.HeartbeatsRelayed = s.CloudLink == link.Down && f.cfg.HeartbeatLink != nil && f.cfg.HeartbeatLink() == link.Relayed
	return s
}

// answer serves a request from the answerers that Decide names.
func (f *Front) answer(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, req Request, k Kind) {
	a := &asking{f: f, req: req}
	if k == Passed {
		a.cloud(Destination{}).ServeHTTP(w, r)
		return
	}
	r = r.WithContext(request.WithRequestInfo(r.Context(), info))
	if req.OwnCredentials {
		a.client, a.req.Known = f.cfg.Callers.Admit(r, k.OfPool())
		if k.OfPool() && !a.req.Known && info.Verb == "watch" {
			soonOver(r)
		}
	}
	if k != OwnLease && r.Method != http.MethodGet {
		a.body = smallBody(r)
	}
	a.next(w, r)
}

// strangersWatch bounds, in seconds, a watch of a pool resource by a caller that the hub does not know to be allowed. The cloud
// answers that watch, without this node's view. So the caller should soon ask the hub again, and may be allowed by then. For
// example, kube-proxy may start before it gets its rights.
const strangersWatch = 30

// soonOver bounds a watch by strangersWatch. It leaves queries that it can't parse to the API server.
func soonOver(r *http.Request) {
	const option = "timeoutSeconds"
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return
	}
	if query.Has(option) {
		if asked, err := strconv.Atoi(query.Get(option)); err != nil || asked > 0 && asked <= strangersWatch {
			return
		}
	}
	query.Set(option, strconv.Itoa(strangersWatch))
	u := *r.URL
	u.RawQuery, r.URL = query.Encode(), &u
}

// asking asks the answerers of one request in Decide's order, each once.
type asking struct {
	f      *Front
	req    Request
	client string // whose request it is; empty: kubelet's
	body   []byte // nil: the request has no body, or one that can be read only once, because it is large or of unknown length
	asked  []Answerer
}

// next asks one answerer after another, until one has an answer. If none has, it returns false and has written nothing. It
// computes the order again for each answerer, because the cloud's link may have gone down meanwhile.
func (a *asking) next(w http.ResponseWriter, r *http.Request) bool {
	for {
		to := Decide(a.req, a.f.situation())
		i := slices.IndexFunc(to.Answerers, func(each Answerer) bool { return !slices.Contains(a.asked, each) })
		if i < 0 {
			return false
		}
		a.asked = append(a.asked, to.Answerers[i])
		if a.body != nil {
			r.Body = io.NopCloser(bytes.NewReader(a.body))
		}
		if a.tryAnswerer(to.Answerers[i], w, r, to) {
			return true
		}
	}
}

// tryAnswerer asks one answerer. If that one has no answer, it returns false and has written nothing.
func (a *asking) tryAnswerer(whom Answerer, w http.ResponseWriter, r *http.Request, to Destination) bool {
	switch {
	case whom == Lease:
		a.f.cfg.OwnLease.ServeHTTP(w, r)
	case whom == Follow && to.Kind.OfPool():
		a.f.cfg.Replicas.ServeHTTP(w, r)
	case whom == Follow:
		return a.f.cfg.Keeper.Answer(w, r, a.client)
	case whom == Recall:
		shown, end := a.shown(w, r)
		answered := a.f.cfg.Keeper.Recall(shown, r, a.client)
		end()
		return answered
	case whom == StandIn:
		return a.f.cfg.StandIn.Answer(w, r, a.body)
	case whom == Warrant:
		return a.f.cfg.Warrants != nil && a.f.cfg.Warrants.Answer(w, r, a.body)
	default:
		a.askCloud(w, r, to)
	}
	return true
}

// askCloud asks the cloud and, if it has no answer, the next answerers.
func (a *asking) askCloud(w http.ResponseWriter, r *http.Request, to Destination) {
	next := func() bool { return a.next(w, r) }
	none := func(status int) bool { return a.noAnswer(r.Context(), status) }
	out, end := a.shown(&attempt{ResponseWriter: w, none: none, next: next}, r)
	switch keeper := a.f.cfg.Keeper; {
	case to.Hears == StandIn:
		if answer, ok := recall.Overhear(out, r, a.cloud(to)); ok {
			a.f.cfg.StandIn.Heard(answer)
		}
	case to.Hears != Recall:
		a.cloud(to).ServeHTTP(out, r)
	case to.Kind == NodeStatus:
		keeper.Written(out, r.WithContext(upstream.Anyway(r.Context())), a.client, a.cloud(to))
	case to.Kind == Write || to.Kind == Status:
		keeper.Written(out, r, a.client, a.cloud(to))
	default:
		keeper.Remember(out, r, a.client, a.cloud(to))
	}
	end() // an answer that broke off has panicked
}

// shown returns a writer that shows an answer of the cloud or of Recall as Config.Shown says, or w itself if that does not apply.
// The function end ends the answer.
func (a *asking) shown(w http.ResponseWriter, r *http.Request) (shown http.ResponseWriter, end func()) {
	if a.f.cfg.Shown == nil || a.req.OwnCredentials || r.Method != http.MethodGet {
		return w, func() {}
	}
	return a.f.cfg.Shown.Get(w, r)
}

// cloud returns the handler that passes the request to the cloud, with the right credentials.
func (a *asking) cloud(to Destination) http.Handler {
	cloud := a.f.node
	if a.req.OwnCredentials {
		cloud = a.f.caller
	}
	another := slices.ContainsFunc(to.Answerers, func(each Answerer) bool { return !slices.Contains(a.asked, each) })
	if another && a.f.cfg.CloudLink() == link.Failing {
		return soon(cloud)
	}
	return cloud
}

// failingWait is how long a failing API server may take for an answer if the hub can still ask another answerer. Without etcd, an
// API server would take a minute, which is longer than kubelet waits.
const failingWait = "5s"

// soon has the API server answer within failingWait, unless the client wants that within another time.
func soon(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const option = "timeout"
		if query, err := url.ParseQuery(r.URL.RawQuery); err == nil && !query.Has(option) {
			query.Set(option, failingWait)
			u := *r.URL
			u.RawQuery = query.Encode()
			r = r.WithContext(r.Context())
			r.URL = &u
		}
		h.ServeHTTP(w, r)
	})
}

// noAnswer reports whether the cloud's status means that the cloud has no answer, as from a balancer without servers or an API
// server without etcd. A group that is not built in may be an aggregated API, whose own server may be down while the cloud
// answers. So for a group that is not built in, noAnswer makes a core read. If the cloud answers that, the status counts as the
// answer, because the API's earlier answers no longer hold.
func (a *asking) noAnswer(ctx context.Context, status int) bool {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return scheme.Scheme.IsGroupRegistered(a.req.Group) || !a.f.cfg.Cloud.Serves(ctx)
	case http.StatusInternalServerError:
		return a.f.cfg.CloudLink() == link.Failing
	default:
		return false
	}
}

// attempt writes the cloud's answer to the client, unless the cloud's status means no answer and another answerer has one.
type attempt struct {
	http.ResponseWriter
	// none reports whether a status means no answer.
	none func(status int) bool
	// next asks the other answerers, or returns false and has written nothing.
	next func() bool

	// answered: the cloud's answer has begun; replaced: another answer went out instead.
	answered, replaced bool
}

// WriteHeader implements http.ResponseWriter.
func (a *attempt) WriteHeader(status int) {
	if a.answered {
		return
	}
	if status < http.StatusOK {
		a.ResponseWriter.WriteHeader(status)
		return
	}
	a.answered = true
	if a.none(status) {
		h := a.Header()
		theirs := maps.Clone(h)
		clear(h)
		if a.replaced = a.next(); a.replaced {
			return
		}
		clear(h)
		maps.Copy(h, theirs)
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *attempt) Write(p []byte) (int, error) {
	if !a.answered {
		a.WriteHeader(http.StatusOK)
	}
	if a.replaced {
		return len(p), nil
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach Flush and the deadlines.
func (a *attempt) Unwrap() http.ResponseWriter { return a.ResponseWriter }
