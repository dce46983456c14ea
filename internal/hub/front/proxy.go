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
			// ReverseProxy drops parameters that Go cannot parse; what is sound is for the API server to say.
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			// The hub's own server answers it, when the body is first read.
			pr.Out.Header.Del("Expect")
			unharmed(pr.Out)
		},
		// No FlushInterval: ReverseProxy flushes at once whatever has no Content-Length, which every stream of an API
		// server is. To do so for the rest too costs a timer and a flush more, a fifth of the hub's time on a GET.
		BufferPool:   buffers,
		ErrorHandler: unansweredHandler(logger),
		ErrorLog:     log.New(verbose{logger}, "", 0),
	}
}

// errNodeRefused says that the cloud does not accept the node's own certificate.
var errNodeRefused = errors.New("the cloud does not accept this node's certificate, which may have expired: see yurthub check")

// nodeAccepted takes a 401 to a request as the node for no answer. Who has sent no credentials cannot mend them; and a
// kubelet whose own certificate has expired, too, would exit again and again because of a server that is well and says 401.
// (pkg/kubelet/certificate, Kubernetes 1.36)
func nodeAccepted(response *http.Response) error {
	if response.StatusCode == http.StatusUnauthorized {
		return errNodeRefused
	}
	return nil
}

// BodyBytes bounds the bodies that are read whole before they are sent: nearly all of what nodes and Pods write. Of those
// there are as many at a time as requests in flight.
const BodyBytes = 64 << 10

// smallBody reads a request's body, if it is small, and puts it back; nil if it is not, or could not be read to its end.
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

// unharmed keeps a request from failing for what others have sent. All callers share a connection to an API server, which
// ends it when it refuses one caller's token, or now and then (--goaway-chance), and says which requests it has not looked
// at. A small body is kept in memory, so that the transport can send it again; a large one travels alone.
func unharmed(r *http.Request) {
	if r.Body == nil || r.ContentLength == 0 {
		return
	}
	if r.ContentLength < 0 || r.ContentLength > BodyBytes {
		r.Close = r.Header.Get("Upgrade") == "" // upgraded ones travel alone, and close would take the place of the upgrade
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
			// Nobody waits for an answer; to return would send an empty 200.
			panic(http.ErrAbortHandler)
		}
		read := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
		status := unanswered(err, read)
		logger.V(2).Info("No answer from upstream",
			"method", r.Method, "path", r.URL.Path, "code", status.Code, "err", err)
		writeStatus(w, r, status)
	}
}

// verbose is where ReverseProxy reports bodies that broke off: the client sees it too, so it is no news by itself.
type verbose struct{ log klog.Logger }

func (v verbose) Write(p []byte) (int, error) {
	v.log.V(3).Info(strings.TrimSpace(string(p)))
	return len(p), nil
}

// bufferSize is what is read and flushed at a time: two HTTP/2 frames of the default size.
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
