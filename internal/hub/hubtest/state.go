package hubtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

// aliveEvery is how often a stream has a line, also without news.
const aliveEvery = 10 * time.Second

// At is where State is asked.
var At = &url.URL{Scheme: "https", Host: "coordinator"} // a constant

// State returns a transport over which the client reads edge.PathState. The server tells each client about heartbeats; a
// coordinator tells only the leader. Faults see the request with the verb watch.
func (s *LeaseServer) State(client string) http.RoundTripper { return teller{s, client} }

type teller struct {
	server *LeaseServer
	client string
}

// RoundTrip implements http.RoundTripper.
func (t teller) RoundTrip(r *http.Request) (*http.Response, error) {
	s, w := t.server, &stream{server: t.server, client: t.client, wake: make(chan struct{}, 1)}
	err := s.do(r.Context(), LeaseCall{Client: t.client, Verb: "watch"}, func() error {
		var start int
		var after uint64
		_, err := fmt.Sscanf(r.URL.Query().Get(edge.QueryAfter), "%d/%d", &start, &after)
		if err == nil && start == s.starts && after >= s.oldest {
			w.heartbeats = after
		}
		s.watches[w] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	from, to := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = from.CloseWithError(context.Cause(r.Context())) })
	go w.run(r.Context(), to)
	return &http.Response{StatusCode: http.StatusOK, Body: from}, nil
}

// stream is one answer. The server's mutex guards it, but for wake.
type stream struct {
	server *LeaseServer
	client string
	wake   chan struct{}
	ended  bool
	// leases and heartbeats are the revisions up to which each was told; 0 means that all is to be told.
	leases, heartbeats uint64
}

func (w *stream) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *stream) endLocked() {
	w.ended = true
	w.signal()
}

func (w *stream) run(ctx context.Context, to *io.PipeWriter) {
	defer func() {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		delete(w.server.watches, w)
		_ = to.Close()
	}()
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	for all := true; ; {
		line, tells, ended := w.next(all)
		if ended || tells && json.NewEncoder(to).Encode(line) != nil {
			return
		}
		all = false
		select {
		case <-w.wake:
		case <-alive.C:
			all = true
		case <-ctx.Done():
			return
		}
	}
}

// next returns the next line, if there is something new or all is set.
func (w *stream) next(all bool) (line edge.State, tells, ended bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ended || s.held || s.cut[w.client] != nil {
		return line, false, w.ended
	}
	line.Instance = fmt.Sprint(s.starts)
	leases, beats := s.sinceLocked(w.leases, edge.NamespaceSystem), s.sinceLocked(w.heartbeats, corev1.NamespaceNodeLease)
	w.leases, w.heartbeats = s.revision, s.revision
	line.Heartbeats = &beats
	news := func(l edge.Leases) bool { return l.Whole || len(l.Leases) > 0 }
	if news(leases) {
		line.Leases = &leases
	}
	return line, all || news(leases) || news(beats), false
}

// sinceLocked returns the Leases of a namespace that have changed after a revision. It returns all Leases if the revision is 0,
// or if a Lease was deleted after it.
func (s *LeaseServer) sinceLocked(revision uint64, namespace string) edge.Leases {
	said := edge.Leases{Position: fmt.Sprintf("%d/%d", s.starts, s.revision), Whole: revision < max(s.oldest,
		s.deleted[namespace])}
	for _, lease := range s.inOrderLocked() {
		if lease.Namespace == namespace && (said.Whole || revisionOf(lease) > revision) {
			said.Leases = append(said.Leases, *lease.DeepCopy())
		}
	}
	return said
}
