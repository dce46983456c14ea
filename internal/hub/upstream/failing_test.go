package upstream

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/link"
)

func TestIsCore(t *testing.T) {
	for target, want := range map[string]bool{
		"GET /api/v1/pods":                                        true,
		"GET /api/v1/pods?watch=1":                                true,
		"GET /api/v1/nodes/n1":                                    true,
		"GET /api/v1/namespaces/a":                                true,
		"GET /api/v1/namespaces/a/pods":                           true,
		"GET /api/v1/namespaces/a/pods/p":                         true,
		"GET /apis/coordination.k8s.io/v1/leases":                 true,
		"PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/n1": true,
		"POST /apis/coordination.k8s.io/v1/namespaces/a/leases":   true,
		"PUT /api/v1/nodes/n1":                                    false,
		"GET /api/v1":                                             false,
		"GET /api/v1/nodes/n1/proxy/pods":                         false,
		"GET /api/v1/namespaces/a/pods/p/log":                     false,
		"GET /api/v1/namespaces/a/services/s/proxy/":              false,
		"GET /apis/metrics.k8s.io/v1beta1/nodes":                  false,
		"GET /apis/apps/v1/deployments":                           false,
		"GET /apis/coordination.k8s.io/v1":                        false,
		"GET /apis/coordination.k8s.io/v1beta1/leasecandidates":   false,
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews": false,
		"GET /readyz": false,
		"GET /apis/coordination.k8s.io/v1/namespaces/a/leases/n1/x/y": false,
	} {
		method, path, _ := strings.Cut(target, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, "https://cloud"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := isCore(req, infoOf(req)); got != want {
			t.Errorf("%s: %v, want %v", target, got, want)
		}
	}
}

const ownLease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"

// TestFailingServer is a server whose core reads fail, which is not its probe's business.
func TestFailingServer(t *testing.T) {
	ca := newAuthority(t)
	var status atomic.Int32
	status.Store(http.StatusOK)
	watching, cut := make(chan struct{}, 1), make(chan struct{})
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			watching <- struct{}{}
			<-r.Context().Done()
			close(cut)
			return
		}
		w.WriteHeader(int(status.Load()))
	}, nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	cfg.CoreRead = ownLease
	cfg.Link.CheckInterval = 100 * time.Millisecond
	u := start(t, cfg)
	await(t, u, link.Up)
	ask := func(path string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://cloud"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := u.AsNode().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	watch, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://cloud/api/v1/pods?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := u.AsNode().RoundTrip(watch)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	<-watching

	status.Store(http.StatusServiceUnavailable)
	for range 5 {
		ask("/apis/metrics.k8s.io/v1beta1/nodes")
	}
	if state := u.Link().Get(); state != link.Up {
		t.Errorf("%v because of an aggregated API", state)
	}
	ask("/api/v1/pods")
	await(t, u, link.Failing)
	if got := ask("/api/v1/pods"); got != http.StatusServiceUnavailable {
		t.Errorf("a request to a failing server was answered %d, want the server's own answer", got)
	}
	status.Store(http.StatusOK)
	await(t, u, link.Up)
	select {
	case <-cut:
		t.Error("the watch was cut")
	default:
	}
}

// TestSickCollectionBelowAPath: failures of one collection say nothing of others, also where the API has a path of its own.
func TestSickCollectionBelowAPath(t *testing.T) {
	const below = "/k8s/clusters/c1"
	for _, path := range []string{"", below} {
		ca := newAuthority(t)
		release := make(chan struct{})
		s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch strings.TrimPrefix(r.URL.Path, below) {
			case "/readyz":
			case ownLease: // the check is still under way
				select {
				case <-release:
				case <-r.Context().Done():
				}
			default:
				w.WriteHeader(http.StatusInternalServerError)
			}
		}, nil)
		cfg := ca.files(t, "system:node:n1", s.URL+path)
		cfg.CoreRead = ownLease
		u := start(t, cfg)
		await(t, u, link.Up)
		for range 3 {
			if _, err := get(t, u.AsNode(), "/api/v1/configmaps"); err != nil {
				t.Fatal(err)
			}
		}
		if state := u.servers[0].state(); state != link.Up {
			t.Errorf("below %q: %v because of one collection", path, state)
		}
		if _, err := get(t, u.AsNode(), "/api/v1/secrets"); err != nil {
			t.Fatal(err)
		}
		if _, err := get(t, u.AsNode(), "/api/v1/pods"); err != nil {
			t.Fatal(err)
		}
		if state := u.servers[0].state(); state != link.Failing {
			t.Errorf("below %q: %v though several collections fail", path, state)
		}
		close(release)
	}
}

// TestServerWithoutStorage: an API server that has lost etcd takes connections, and answers from its watch cache. Other requests
// hang, but for clients that say how long they wait. Heartbeats' clients give up before that, and other requests about Leases,
// which hang meanwhile, do not cut the check off.
// When the time is over, the server answers 504 or breaks the request off.
func TestServerWithoutStorage(t *testing.T) {
	for _, breaksOff := range []bool{false, true} {
		t.Run(fmt.Sprint(breaksOff), func(t *testing.T) { serverWithoutStorage(t, breaksOff) })
	}
}

func serverWithoutStorage(t *testing.T, breaksOff bool) {
	ca := newAuthority(t)
	var away atomic.Bool
	var checks atomic.Int32 // whose time was over
	const checkTakes = 300 * time.Millisecond
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		within, _ := time.ParseDuration(r.URL.Query().Get("timeout"))
		switch {
		case !away.Load() || r.URL.Path == "/readyz" || r.URL.Query().Has("resourceVersion"):
		case within > 0 && within < 10*time.Second: // the time of a check
			select {
			case <-time.After(checkTakes):
			case <-r.Context().Done():
			}
			checks.Add(1)
			if breaksOff {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusGatewayTimeout)
		default:
			<-r.Context().Done()
		}
	}, nil)
	cfg := ca.files(t, "system:node:n1", s.URL)
	cfg.CoreRead = ownLease
	cfg.Link.CheckInterval = 100 * time.Millisecond
	u := start(t, cfg)
	await(t, u, link.Up)
	away.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	ask := func(within time.Duration, method, path string) {
		all.Go(func() {
			for ctx.Err() == nil {
				ctx, end := context.WithTimeout(ctx, within)
				request, err := http.NewRequestWithContext(ctx, method, "https://cloud"+path, nil)
				if err != nil {
					t.Error(err)
				}
				if response, err := u.AsNode().RoundTrip(request); err == nil {
					_ = response.Body.Close()
				}
				<-ctx.Done()
				end()
			}
		})
	}
	ask(100*time.Millisecond, http.MethodPut, ownLease)
	ask(70*time.Millisecond, http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/another")
	ask(20*time.Millisecond, http.MethodGet, "/api/v1/pods?resourceVersion=0")
	await(t, u, link.Failing)
	for range 5 {
		had := checks.Load()
		waitFor(t, func() bool { return checks.Load() > had })
		if state := u.Link().Get(); state != link.Failing {
			t.Errorf("the link is %v while the storage is away", state)
		}
	}
	away.Store(false)
	await(t, u, link.Up)
	stop()
	all.Wait()
}

// TestFailingServerIsLeft: where there is another server, requests go there.
func TestFailingServerIsLeft(t *testing.T) {
	ca := newAuthority(t)
	var failing atomic.Bool
	first := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		named("first")(w, r)
	}, nil)
	second := ca.serve(t, named("second"), nil)
	cfg := ca.files(t, "system:node:n1", first.URL, second.URL)
	cfg.CoreRead = ownLease
	cfg.Link.CheckInterval = 100 * time.Millisecond
	u := start(t, cfg)
	allUp(t, u)
	failing.Store(true)
	if _, err := get(t, u.AsNode(), "/api/v1/pods"); err != nil {
		t.Fatal(err)
	}
	reaches(t, u.servers[0], link.Failing)
	if got, err := get(t, u.AsNode(), "/api/v1/pods"); got != "second" || err != nil {
		t.Errorf("answered by %q, %v; want the one that does not fail", got, err)
	}
	if state := u.Link().Get(); state != link.Up {
		t.Errorf("%v, though one server's link is up", state)
	}
	failing.Store(false)
	reaches(t, u.servers[0], link.Up)
}
