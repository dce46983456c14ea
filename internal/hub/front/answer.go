package front

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"yurtcoordinator/internal/hub/route"
)

// requestOf is what route needs to know of a request.
func (f *Front) requestOf(r *http.Request, info *request.RequestInfo) route.Request {
	own := f.guests || ownCredentials(r)
	local := answerable(r)
	return route.Request{
		Verb: info.Verb, Group: info.APIGroup, Resource: info.Resource, Subresource: info.Subresource,
		Version: info.APIVersion, Namespace: info.Namespace, Name: info.Name, Path: info.Path,
		DryRun:  strings.Contains(r.URL.RawQuery, "dryRun"),
		Waiting: f.cfg.Situation.StandIn && !own && f.cfg.StandIn.Waits(info),
		Replicated: local && info.IsResourceRequest && f.cfg.Replicas.Has(schema.GroupVersionResource{
			Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		}),
		Cached:         local && f.cfg.Keeper.Match(r),
		OwnCredentials: own, Known: own && Bearer(r) != "", AssumesIdentity: assumedIdentity(r.Header),
	}
}

// situation is what routing depends on, at the moment.
func (f *Front) situation() route.Situation {
	s := f.cfg.Situation
	s.CloudLink, s.CoordinatorLink = f.cfg.CloudLink(), f.cfg.CoordinatorLink()
	return s
}

// answer has a request answered by whoever is to answer it.
func (f *Front) answer(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, req route.Request, k route.Kind) {
	a := &asking{f: f, req: req}
	if !req.OwnCredentials {
		r.Header.Del("Authorization") // blank, or these would be own credentials
	}
	if k == route.Passed {
		a.cloud().ServeHTTP(w, r)
		return
	}
	r = r.WithContext(request.WithRequestInfo(r.Context(), info))
	if req.OwnCredentials {
		a.client, a.req.Known = f.cfg.Callers.Admit(r, k == route.PoolRead)
	}
	if k != route.OwnLease && r.Method != http.MethodGet {
		a.body = smallBody(r)
	}
	a.next(w, r)
}

// asking asks those who may have an answer to a request, in route's order, each once.
type asking struct {
	f      *Front
	req    route.Request
	client string // whose request it is; empty: a program's of the node
	body   []byte // nil: it has none, or a large one, and can be read once
	asked  []route.Answerer
}

// next asks the next one, until one has an answer. It returns false, and has written nothing, if none has. The order is that of
// the moment: while the cloud was asked, its link may have been found to be down.
func (a *asking) next(w http.ResponseWriter, r *http.Request) bool {
	for {
		to := route.Decide(a.req, a.f.situation())
		i := slices.IndexFunc(to.Answerers, func(each route.Answerer) bool { return !slices.Contains(a.asked, each) })
		if i < 0 {
			return false
		}
		a.asked = append(a.asked, to.Answerers[i])
		if a.body != nil {
			r.Body = io.NopCloser(bytes.NewReader(a.body))
		}
		if a.ask(to.Answerers[i], w, r, to) {
			return true
		}
	}
}

// ask asks one of them. It returns false, and has written nothing, if that one has no answer.
func (a *asking) ask(whom route.Answerer, w http.ResponseWriter, r *http.Request, to route.Destination) bool {
	switch {
	case whom == route.Lease:
		a.f.cfg.OwnLease.ServeHTTP(w, r)
	case whom == route.Follow && to.Kind == route.PoolRead:
		a.f.cfg.Replicas.ServeHTTP(w, r)
	case whom == route.Follow:
		return a.f.cfg.Keeper.Answer(w, r, a.client)
	case whom == route.Recall:
		return a.f.cfg.Keeper.Recall(w, r, a.client)
	case whom == route.StandIn:
		return a.f.cfg.StandIn.Answer(w, r, a.body)
	default:
		a.askCloud(w, r, to)
	}
	return true
}

// askCloud has the cloud answer, or those behind it where it has no answer.
func (a *asking) askCloud(w http.ResponseWriter, r *http.Request, to route.Destination) {
	out := &attempt{ResponseWriter: w, group: a.req.Group, next: func() bool { return a.next(w, r) }}
	switch keeper := a.f.cfg.Keeper; {
	case to.Hears == route.StandIn:
		a.f.cfg.StandIn.Hear(out, r, a.cloud())
	case to.Hears != route.Recall:
		a.cloud().ServeHTTP(out, r)
	case to.Kind == route.Write || to.Kind == route.Status:
		keeper.Written(out, r, a.client, a.cloud())
	default:
		keeper.Remember(out, r, a.client, a.cloud())
	}
}

// cloud passes a request to the cloud.
func (a *asking) cloud() http.Handler {
	if a.req.OwnCredentials {
		return a.f.caller
	}
	return a.f.node
}

// noAnswer reports whether a status to a request for a group's resource says that there is no answer: the hub could not reach a
// server, or one has itself no server behind it, as a balancer, or no etcd. An API server has the answers of an aggregated API
// from another server. If that is down they are answers, and what it said last is not so any more.
func noAnswer(status int, group string) bool {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return scheme.Scheme.IsGroupRegistered(group)
	default:
		return false
	}
}

// attempt is where the cloud's answer goes, unless it is none and somebody else has one.
type attempt struct {
	http.ResponseWriter
	group string
	// next has somebody else answer, or returns false and has written nothing.
	next func() bool

	// answered: the cloud's answer has begun; replaced: it is not wanted.
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
	if noAnswer(status, a.group) {
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
