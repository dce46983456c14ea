package model

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// WithUrgency returns a context for requests that must be answered or refused at once, without waiting for any time to pass.
func WithUrgency(ctx context.Context) context.Context { return context.WithValue(ctx, urgency{}, true) }

// IsUrgent reports whether a request's context comes from WithUrgency.
func IsUrgent(ctx context.Context) bool { return ctx.Value(urgency{}) != nil }

type urgency struct{}

// Gray makes a Server fail for some requests. It is an http.Handler in front of the Server, and harms the requests that match one
// of its Faults. If a Fault would delay an urgent request (see WithUrgency), Gray refuses the request.
type Gray struct {
	Handler http.Handler

	mu     sync.Mutex
	faults []Fault
	moved  chan struct{} // closed when the faults change; nil until a request waits for that
}

// Fault says which requests are harmed, and how. The zero value harms nothing, but matches all requests.
type Fault struct {
	// User is the caller whose requests are harmed; "" means everybody.
	User string
	// Path is a prefix of the URL's path, such as "/api/v1/nodes/n1"; "" means every path.
	Path string
	// Writes means that only requests that write are harmed.
	Writes bool

	// Hang means that the request waits until the fault is over. An answer that has begun waits, too.
	Hang bool
	// Mute means that the request is carried out, but its answer, or the rest of it, waits until the fault is over.
	Mute bool
	// Storage means that the server's storage does not answer. A request that needs the storage is answered with 504 after its
	// timeout. The watch cache still answers all other requests.
	Storage bool
	// Delay is the time before the request is carried out.
	Delay time.Duration
	// Refuse is the error with which requests are answered; nil means none. A watch that has begun goes on.
	Refuse error
}

// Set replaces the faults of the server. The new faults also apply to requests that are under way.
func (g *Gray) Set(faults ...Fault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = faults
	if g.moved != nil {
		close(g.moved)
		g.moved = nil
	}
}

func (f *Fault) harms(r *http.Request) bool {
	caller, ok := request.UserFrom(r.Context())
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	return (f.User == "" || ok && f.User == caller.GetName()) && strings.HasPrefix(r.URL.Path, f.Path) && (!f.Writes || !read)
}

// fault returns the first fault that harms the request and for which the given function returns true; nil means none. The channel
// is closed when the faults change.
func (g *Gray) fault(r *http.Request, of func(*Fault) bool) (*Fault, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.moved == nil {
		g.moved = make(chan struct{})
	}
	for i := range g.faults {
		if f := g.faults[i]; of(&f) && f.harms(r) {
			return &f, g.moved
		}
	}
	return nil, g.moved
}

// wait waits while a fault that the function accepts harms the request. It returns an error if the request ends first.
func (g *Gray) wait(r *http.Request, of func(*Fault) bool) error {
	for {
		f, moved := g.fault(r, of)
		if f == nil {
			return r.Context().Err()
		}
		select {
		case <-moved:
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
	}
}

// ServeHTTP implements http.Handler.
func (g *Gray) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if IsUrgent(r.Context()) {
		delays := func(f *Fault) bool { return f.Hang || f.Mute || f.Delay > 0 || f.Storage && stored(r) }
		if f, _ := g.fault(r, delays); f != nil {
			refuse(w, r, apierrors.NewTimeoutError("the server does not answer", 0))
			return
		}
	}
	until := time.Now().Add(timeoutOf(r))
	if g.wait(r, func(f *Fault) bool { return f.Hang }) != nil {
		return
	}
	if read := r.Method == http.MethodGet; !read && time.Now().After(until) {
		refuse(w, r, apierrors.NewTimeoutError("the request did not complete within its time", 0))
		return
	}
	if !g.reaches(w, r) {
		return
	}
	if f, _ := g.fault(r, func(f *Fault) bool { return f.Delay > 0 }); f != nil {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		}
	}
	if f, _ := g.fault(r, func(f *Fault) bool { return f.Refuse != nil }); f != nil {
		refuse(w, r, f.Refuse)
		return
	}
	g.Handler.ServeHTTP(&grayWriter{w, g, r}, r)
}

// reaches waits while a fault keeps the request from the storage. If the request's time is over first, the request is answered
// with an error. The result is false if the request has ended.
func (g *Gray) reaches(w http.ResponseWriter, r *http.Request) bool {
	away := func(f *Fault) bool { return f.Storage && stored(r) }
	if f, _ := g.fault(r, away); f == nil {
		return true
	}
	within, cancel := context.WithTimeout(r.Context(), timeoutOf(r))
	defer cancel()
	if g.wait(r.WithContext(within), away) == nil {
		return true
	}
	if r.Context().Err() == nil {
		refuse(w, r, apierrors.NewTimeoutError("the request did not complete within its time", 0))
	}
	return false
}

// stored reports whether an API server asks its storage for this request. The storage is needed for writes, for checks of the
// server's health, and for reads that must be current. The watch cache answers all other reads and watches.
func stored(r *http.Request) bool {
	parts, q := strings.Split(strings.Trim(r.URL.Path, "/"), "/"), r.URL.Query()
	resource := parts[0] == "api" && len(parts) > 2 || parts[0] == "apis" && len(parts) > 3
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return true
	case !resource:
		return slices.Contains([]string{"readyz", "livez", "healthz"}, parts[0])
	case q.Has("watch") && q.Get("watch") != "false" && q.Get("sendInitialEvents") != "true":
		return false
	}
	return q.Get("resourceVersion") == ""
}

// timeoutOf returns the time after which an API server gives up a request. A client can set it, up to one minute. The default is
// also one minute (kube-apiserver's --request-timeout).
func timeoutOf(r *http.Request) time.Duration {
	if d, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && d > 0 {
		return min(d, time.Minute)
	}
	return time.Minute
}

// grayWriter holds back the answer to a harmed request.
type grayWriter struct {
	http.ResponseWriter
	gray *Gray
	r    *http.Request
}

func (w *grayWriter) wait() error {
	return w.gray.wait(w.r, func(f *Fault) bool { return f.Hang || f.Mute })
}

// WriteHeader implements http.ResponseWriter.
func (w *grayWriter) WriteHeader(code int) {
	if w.wait() == nil {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Write implements http.ResponseWriter.
func (w *grayWriter) Write(p []byte) (int, error) {
	if err := w.wait(); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *grayWriter) FlushError() error {
	if err := w.wait(); err != nil {
		return err
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *grayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
