package upstream

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/hub/link"
)

// asker makes requests to an Upstream, with or without the node's certificate. While the link is relayed, it uses the detour,
// whose bytes are in no metric.
type asker struct {
	upstream *Upstream
	asNode   bool
}

// RoundTrip sends req to a server and returns its answer. The package comment says which requests are repeated, and where.
func (id *asker) RoundTrip(req *http.Request) (*http.Response, error) {
	u := id.upstream.way(req.Context())
	if err := u.running(req.Context()); err != nil {
		closeBody(req)
		return nil, err
	}
	u.metrics.inFlight.Inc()
	info := infoOf(req)
	var tried uint32
	var failure error
	for {
		s, index := u.pick(tried)
		if s == nil {
			break
		}
		a, err := newAttempt(req, s, tried != 0)
		if err != nil {
			break // the failure of the attempt before says more
		}
		response, err := id.send(s, a.request, info)
		if err == nil {
			u.settle(index, tried)
			of := kindOf(req, info)
			if req.ContentLength > 0 { // only now is it known to have been sent; one of unknown length counts as framing
				u.metrics.spent.sent[of].Add(uint64(req.ContentLength))
			}
			response.Body = s.deliver(req, of, response, u.metrics.inFlight.Dec)
			return response, nil
		}
		failure = s.failed(req, a, err)
		if !mayTryAgain(req, err, failure) {
			break
		}
		tried |= 1 << index
	}
	closeBody(req)
	u.metrics.inFlight.Dec()
	if failure == nil {
		failure = u.down()
	}
	return nil, failure
}

// send makes one attempt at one server. info is infoOf of the caller's request: req has the path of the server in front.
func (id *asker) send(s *server, req *http.Request, info *request.RequestInfo) (*http.Response, error) {
	by := Caller
	if id.asNode {
		by = Node
	}
	sentAt, late := s.cfg.Ends.Running(), req.Context().Err() != nil
	response, err := s.session.RoundTrip(by, laneOf(req, info), req)
	core := isCore(req, info)
	lease := core && isLease(info) && isSingle(info)
	switch {
	case err == nil:
		s.monitor.TrafficOK() // whatever it says
		if core && (response.StatusCode >= http.StatusInternalServerError || !mayBeCached(req)) {
			s.monitor.CoreAnswered(collectionOf(info), response.StatusCode, sentAt)
		}
		if lease {
			s.leaseAnswered(response.StatusCode, req.Method != http.MethodGet)
		}
	case lease && !late && errors.Is(req.Context().Err(), context.DeadlineExceeded):
		s.leaseHung(sentAt)
	}
	return response, err
}

// isCore reports whether a request reads objects of the core group, or is about Leases. An API server answers these requests
// itself, and a node depends on them. Other requests may fail because of an aggregated API, a kubelet or a Service.
func isCore(req *http.Request, info *request.RequestInfo) bool {
	if info.Subresource != "" || info.Verb == "proxy" { // often a kubelet's, or a Service's
		return false
	}
	read := info.APIPrefix == "api" && info.Resource != "" && req.Method == http.MethodGet
	return read || isLease(info)
}

// mayBeCached reports whether an API server may answer a request from its watch cache, as it also does without etcd.
func mayBeCached(req *http.Request) bool {
	query := req.URL.Query()
	return req.Method == http.MethodGet && (query.Has("watch") || query.Has("resourceVersion"))
}

// collectionOf returns the resource of a core request. It is empty for Leases, whose failures count like those of the hub's own
// check.
func collectionOf(info *request.RequestInfo) string {
	if isLease(info) {
		return ""
	}
	return info.Resource
}

// failed tells the monitor about a failure that the link may have caused, and returns the error for the caller.
func (s *server) failed(req *http.Request, a *attempt, err error) error {
	if errors.Is(err, ErrDown) || errors.Is(err, ErrNotRunning) {
		return err
	}
	sent := !connectFailed(err)
	err = s.cfg.explain(err)
	switch ctxErr := req.Context().Err(); {
	case errors.Is(ctxErr, context.Canceled):
		return err // the caller's own doing
	case a.body != nil && a.body.failed.Load():
		return err // the caller's body ended early
	case s.state() == link.Down, errors.Is(err, errReset):
		return s.down(sent, err)
	case sent:
		s.suspect(err) // the session reports failures to connect itself
	}
	return err
}

// mayTryAgain reports whether another server may get a request. It may if nothing was sent and the body can be read again, or if
// the request is a read and the link has gone down.
func mayTryAgain(req *http.Request, err, failure error) bool {
	if req.Context().Err() != nil || errors.Is(err, ErrNotRunning) {
		return false
	}
	if NotSent(failure) || connectFailed(err) {
		return !hasBody(req) || req.GetBody != nil
	}
	read := req.Method == http.MethodGet || req.Method == http.MethodHead
	return read && !hasBody(req) && errors.Is(failure, ErrDown)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // RoundTripper's duty; its error concerns nobody
	}
}
