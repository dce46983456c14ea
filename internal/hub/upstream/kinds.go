package upstream

import (
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// kind says what bytes are carried for.
type kind uint8

// Kinds of bytes. Together they are all bytes that the connections have carried:
//   - connecting has the bytes of TLS handshakes
//   - probing has the bytes of connections that are for probes only, their handshakes included, and the bytes of pings
//   - heartbeats to streams (in the order below) have the bodies of requests and answers
//   - framing has the rest, such as TLS records, HTTP/2 frames, headers, and the bodies of failed requests
//
// The hub computes framing as the rest. The alternative was to parse the frames of each connection. That would assign headers to
// their requests, but costs time for each frame of bulk data.
const (
	framing kind = iota
	probing
	connecting
	heartbeats
	watches
	lists
	reads
	writes
	streams
	kinds
)

func (k kind) String() string {
	return [kinds]string{"framing", "probe", "connect", "heartbeat", "watch", "list", "read", "write", "stream"}[k]
}

// requestInfos parses requests as API servers do. It is a constant.
var requestInfos = &request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// infoOf returns what a request asks an API server for. It ignores the RequestInfo in the request's context, because the hub also
// asks questions of its own with the context of a caller's request. A request that cannot be parsed has no resource.
func infoOf(req *http.Request) *request.RequestInfo {
	info, _ := requestInfos.NewRequestInfo(req) // the API server says what is wrong
	return info
}

// kindOf returns the kind of a request, of which info is infoOf.
func kindOf(req *http.Request, info *request.RequestInfo) kind {
	switch {
	case len(req.Header["Upgrade"]) > 0 || streamed(info):
		return streams
	case isHeartbeat(info):
		return heartbeats
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		return writes
	case info.Verb == "watch":
		return watches
	case info.Verb == "list":
		return lists
	}
	return reads
}

// isLease reports whether a request is about Leases.
func isLease(info *request.RequestInfo) bool {
	return info.APIGroup == coordinationv1.GroupName && info.Resource == "leases"
}

// isSingle reports whether a request is about one object that its path names.
func isSingle(info *request.RequestInfo) bool {
	return info.Name != "" && info.Verb != "list" && info.Verb != "watch"
}

// isHeartbeat reports whether a request is about a single Lease of a node, or a pool's report.
func isHeartbeat(info *request.RequestInfo) bool {
	return isLease(info) && info.Namespace == corev1.NamespaceNodeLease && (isSingle(info) || info.Verb == "create")
}

// streamed reports whether a request's answer may last as long as somebody reads it.
func streamed(info *request.RequestInfo) bool {
	switch info.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	}
	return info.Verb == "proxy"
}

// spent counts bytes both ways by their kind.
type spent struct {
	sent, received [kinds]atomic.Uint64

	mu sync.Mutex
	// most are the counts of framing shown last, for sent and for received bytes. The shown counts never fall.
	most [2]uint64
}

// pingSize is the size of a ping, and of its answer: an HTTP/2 frame in a TLS 1.3 record.
const pingSize = 17 + 22

// pinged counts a ping and its answer.
func (s *spent) pinged() {
	s.sent[probing].Add(pingSize)
	s.received[probing].Add(pingSize)
}

// shown returns the bytes of one direction by kind. total is what the connections have carried in that direction.
func (s *spent) shown(direction int, total *atomic.Uint64) [kinds]uint64 {
	of := [...]*[kinds]atomic.Uint64{&s.sent, &s.received}[direction]
	var all [kinds]uint64
	known := uint64(0)
	for k := range kinds {
		all[k] = of[k].Load()
		known += all[k]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Bytes of a body count as framing until the caller reads them, so the true count of framing can fall. The shown count must
	// not fall. It stands still until the true count has caught up.
	if carried := total.Load(); carried > known+s.most[direction] {
		s.most[direction] = carried - known
	}
	all[framing] = s.most[direction]
	return all
}

// carriedByKind is the metric yurthub_upstream_bytes_total.
type carriedByKind struct{ of *metrics }

// bytesTotal describes the metric.
func bytesTotal() *prometheus.Desc {
	return prometheus.NewDesc("yurthub_upstream_bytes_total",
		"What connections carried, by what for: TCP's payload, TLS included, the headers of TCP and IP not.",
		[]string{"direction", "kind"}, nil)
}

// Describe implements prometheus.Collector.
func (c *carriedByKind) Describe(to chan<- *prometheus.Desc) { to <- bytesTotal() }

// Collect implements prometheus.Collector.
func (c *carriedByKind) Collect(to chan<- prometheus.Metric) {
	desc := bytesTotal()
	for i, total := range []*atomic.Uint64{&c.of.sent, &c.of.received} {
		for k, n := range c.of.spent.shown(i, total) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), [...]string{"sent", "received"}[i],
				kind(k).String())
		}
	}
}
