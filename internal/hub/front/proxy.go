package front

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"

	"k8s.io/klog/v2"
)

// newProxy returns the streaming proxy to an upstream.
func newProxy(transport http.RoundTripper, buffers httputil.BufferPool, logger klog.Logger) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(pr *httputil.ProxyRequest) {
			// ReverseProxy drops parameters that Go cannot parse, but judging them is the API server's business.
			pr.Out.URL.RawQuery = unshown(pr.In.URL.RawQuery)
			// The hub's own server answers it when the body is first read.
			pr.Out.Header.Del("Expect")
			unharmed(pr.Out)
		},
		// No FlushInterval: ReverseProxy flushes answers without a Content-Length at once, and no stream of an API server has
		// one. For other answers, flushing would cost one more timer and flush, a fifth of the hub's time on a GET.
		BufferPool:   buffers,
		ErrorHandler: unansweredHandler(logger),
		ErrorLog:     log.New(verbose{logger}, "", 0),
	}
}

// errNodeRefused says that the cloud does not accept the node's own certificate.
var errNodeRefused = errors.New("the cloud does not accept this node's certificate, which may have expired: see yurthub check")

// nodeAccepted returns an error if the cloud answers 401 to a request with the node's certificate, so that the 401 counts as no
// answer. The client, which cannot mend the hub's certificate, thus gets no 401. kubelet takes a 401 as a sign that the server is
// healthy. If kubelet's own certificate had expired as well, kubelet would then exit again and again (pkg/kubelet/certificate,
// Kubernetes 1.36).
func nodeAccepted(response *http.Response) error {
	if response.StatusCode == http.StatusUnauthorized {
		return errNodeRefused
	}
	return nil
}

// BodyBytes is the size, in bytes, of the largest body that the hub reads whole before it sends it. Two kinds of writes may have
// larger ones: those of resources that views show (maxWrite), and those of the node's own Lease (package heartbeat, up to
// 256 KiB). Nearly all bodies that nodes and Pods write are smaller. The limits on requests in flight also bound how many bodies
// the hub holds.
const BodyBytes = 64 << 10

// smallBody reads a request's small body and puts it back. It returns nil if the body is not small, or cannot be read to its end.
func smallBody(r *http.Request) []byte {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > BodyBytes {
		return nil
	}
	whole := make([]byte, r.ContentLength)
	n, err := io.ReadFull(r.Body, whole)
	if err != nil {
		r.Body = &broken{bytes.NewReader(whole[:n]), r.Body, err}
		return nil
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(whole), r.Body}
	return whole
}

// unharmed protects a request from failures that other requests cause. All callers share a connection to an API server, which may
// close it because of another caller's token, or now and then (--goaway-chance). The hub keeps a small body in memory, so that
// the transport can send the request again. A request with a large body gets a connection of its own.
func unharmed(r *http.Request) {
	if r.Body == nil || r.ContentLength == 0 {
		return
	}
	if r.ContentLength < 0 || r.ContentLength > BodyBytes {
		r.Close = r.Header.Get("Upgrade") == "" // an upgrade travels alone anyway, and Close would replace its Connection header
		return
	}
	if whole := smallBody(r); whole != nil {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
	}
}

// broken is a body that could not be read to its end.
type broken struct {
	read *bytes.Reader
	io.Closer
	err error
}

func (b *broken) Read(p []byte) (int, error) {
	if b.read.Len() > 0 {
		return b.read.Read(p)
	}
	return 0, b.err
}

// unansweredHandler answers requests that upstream did not answer.
func unansweredHandler(logger klog.Logger) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		ctx := r.Context()
		if ctx.Err() != nil && !timedOut(ctx) {
			// Nobody waits for an answer, but returning would send an empty 200.
			panic(http.ErrAbortHandler)
		}
		read := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		status := unanswered(err, read)
		logger.V(2).Info("No answer from upstream",
			"method", r.Method, "path", r.URL.Path, "code", status.Code, "err", err)
		writeStatus(w, r, status)
	}
}

// verbose logs ReverseProxy's reports of bodies that broke off, at a low level because the client sees that as well.
type verbose struct{ log klog.Logger }

func (v verbose) Write(p []byte) (int, error) {
	v.log.V(3).Info(strings.TrimSpace(string(p)))
	return len(p), nil
}

// bufferSize is how much is read and flushed at a time: two HTTP/2 frames of the default size.
const bufferSize = 32 << 10

// buffers are reused between responses.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }
