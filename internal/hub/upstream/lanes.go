package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
)

// lane is a class of requests. The node's requests have a connection for each lane, and so have callers' requests. Thus a small
// answer does not wait behind a large one of another lane.
type lane uint8

const (
	// urgent is for small requests that are answered at once: writes (of Leases, for example), and reads of single objects.
	urgent lane = iota
	// watching is for watches that send only changes, and for the stream of a pool's state without its Pods.
	watching
	// bulk is for request bodies larger than smallBody, and for answers that may be megabytes: lists, watches that begin with the
	// whole list, discovery documents, logs, and answers from servers other than the API server.
	bulk
	laneCount
)

// String returns "urgent", "watch" or "bulk".
func (l lane) String() string { return [...]string{"urgent", "watch", "bulk"}[l] }

// smallBody is how large a request's body may be, in bytes, to be urgent: at 128 kbit/s it takes 4 s.
const smallBody = 64 << 10

// laneOf returns the lane of a request that asks for no upgrade. info is infoOf(req). When in doubt, laneOf returns bulk, where a
// request delays only other bulk requests.
func laneOf(req *http.Request, info *request.RequestInfo) lane {
	switch first, _, _ := strings.Cut(strings.Trim(info.Path, "/"), "/"); first {
	case "readyz", "livez", "healthz", "version":
		return urgent
	}
	if info.Path == edge.PathState && req.URL.Query().Get(edge.QueryPresence) != edge.NodesAndPods {
		return watching
	}
	switch {
	case info.Resource == "" || streamed(info): // discovery among them
		return bulk
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return writeLane(req, info)
	case info.Verb == "watch":
		return watchLane(req.URL.Query())
	case isSingle(info):
		return urgent
	}
	if query := req.URL.Query(); query.Get("limit") == "1" || strings.Contains(query.Get("fieldSelector"), "metadata.name=") {
		return urgent // one object, in the form of a list
	}
	return bulk
}

// writeLane returns the lane of a request that is no read.
func writeLane(req *http.Request, info *request.RequestInfo) lane {
	switch {
	case info.Resource == "leases":
		return urgent
	case info.Verb == "deletecollection":
		return bulk // its answer is a list of all that it deleted
	case req.ContentLength > smallBody:
		return bulk
	}
	return urgent
}

// watchLane returns the lane of a watch. A watch without a revision begins with the whole list.
func watchLane(query url.Values) lane {
	if initial, err := strconv.ParseBool(query.Get("sendInitialEvents")); err == nil && initial {
		return bulk
	}
	switch query.Get("resourceVersion") {
	case "", "0":
		if !strings.Contains(query.Get("fieldSelector"), "metadata.name=") {
			return bulk
		}
	}
	return watching
}

// lanes are the connections of one identity, each dialled on first use. Each lane has a transport of its own, because an HTTP/2
// transport opens a second connection only when the first one accepts no more requests.
type lanes struct {
	http2 [laneCount]*http2.Transport
	conns [laneCount]*shared // http2's connections
	// http1 is for upgrades, and for all requests if the server has no HTTP/2. Requests under way do not share its connections.
	http1 *http.Transport
}

func (s *session) newLanes(c *Credentials, asNode bool) *lanes {
	config := c.tls(s.of.name, asNode, protocolHTTP2) // one for all: the second connection resumes the first one's session
	l := &lanes{http1: s.newHTTP1(c.tls(s.of.name, asNode, protocolHTTP1), false)}
	for i := range l.http2 {
		l.http2[i] = &http2.Transport{
			DisableCompression: true, // what the caller and the server agree on passes through
			ReadIdleTimeout:    pingAfter,
			PingTimeout:        pingTimeout,
			WriteByteTimeout:   unackedTimeout,
			IdleConnTimeout:    idleTimeout,
		}
		l.conns[i] = newShared(l.http2[i], s.of.cfg.Ends.Clock, func(ctx context.Context) (net.Conn, error) {
			secured, err := s.dial(ctx, config, true, false)
			if err != nil {
				return nil, err
			}
			if secured.ConnectionState().NegotiatedProtocol != protocolHTTP2 {
				_ = secured.Close()
				return nil, &ConnectError{Server: s.of.addr, Err: errNoHTTP2}
			}
			if lane(i) == bulk {
				return secured, nil
			}
			return newSparing(secured), nil
		})
	}
	return l
}

// any returns a connection that accepts requests, of the most urgent lane that has one. Without one, its ClientConn is nil.
func (l *lanes) any() carried {
	for _, s := range l.conns {
		if c := s.any(); c.ClientConn != nil {
			return c
		}
	}
	return carried{}
}

// of returns the transport for requests of a lane.
func (l *lanes) of(s *session, which lane) http.RoundTripper {
	if s.http1Only.Load() {
		return l.http1
	}
	return l.http2[which]
}

// by makes a request over a lane. If that lane can't be dialled, a request without a body uses the urgent lane, whose
// connection may still be open. That helps, for example, while name servers return no address for the server.
func (l *lanes) by(s *session, which lane, req *http.Request) (*http.Response, error) {
	if len(req.Header["Upgrade"]) > 0 {
		return l.http1.RoundTrip(req)
	}
	response, err := l.of(s, which).RoundTrip(req)
	if errors.Is(err, errNoHTTP2) {
		s.http1Only.Store(true) // an HTTP/2 transport that gets no connection leaves the body as it is
		return l.http1.RoundTrip(req)
	}
	if which != urgent && !hasBody(req) && connectFailed(err) && s.of.state() != link.Down && req.Context().Err() == nil {
		return l.of(s, urgent).RoundTrip(req)
	}
	return response, err
}

func (l *lanes) closeIdle() {
	for _, s := range l.conns {
		s.closeIdle()
	}
	l.http1.CloseIdleConnections()
}
