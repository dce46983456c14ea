package upstream

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/link"
)

// renew renews a Lease, and returns the status of the answer.
func renew(t *testing.T, u *Upstream) int { return lease(t, u, http.MethodPut) }

func lease(t *testing.T, u *Upstream, method string) int {
	t.Helper()
	const path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
	ctx := t.Context()
	if method == "late" { // its time was over before
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, time.Now().Add(-time.Second))
		defer cancel()
		method = http.MethodPut
	}
	if method == "hangs" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		method = http.MethodPut
	}
	req, err := http.NewRequestWithContext(ctx, method, path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := u.AsNode().RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// TestSickServer: requests leave a server that reports ready and takes no Leases after the second failure, even if the second
// request only reads the Lease.
func TestSickServer(t *testing.T) {
	ca := newAuthority(t)
	sick := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				w.WriteHeader(code)
			}
		}
	}
	for _, code := range []int{http.StatusInternalServerError, http.StatusTooManyRequests} {
		t.Run(fmt.Sprint("one of two, ", code), func(t *testing.T) {
			u := start(t, ca.files(t, "system:node:n1", ca.serve(t, sick(code), nil).URL, ca.serve(t, sick(200), nil).URL))
			allUp(t, u)
			for i, want := range []int{code, code, 200, 200, 200} {
				if got := renew(t, u); got != want {
					t.Errorf("write %d: %d, want %d", i, got, want)
				}
			}
		})
	}
	for name, methods := range map[string][]string{"writes": {"PUT", "PUT"}, "reads": {"PUT", "GET"}} {
		t.Run("one of two behind a balancer, "+name, func(t *testing.T) { behindBalancer(t, ca, methods) })
	}
	t.Run("all of them", func(t *testing.T) {
		connections := map[string]bool{}
		var mu sync.Mutex
		s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut {
				mu.Lock()
				defer mu.Unlock()
				connections[r.RemoteAddr] = true
				w.WriteHeader(http.StatusInternalServerError)
			}
		}, nil)
		u := start(t, ca.files(t, "system:node:n1", s.URL))
		allUp(t, u)
		for range 20 {
			renew(t, u)
		}
		if n := len(connections); n < 3 || n > 5 {
			t.Errorf("%d connections for 20 writes", n)
		}
	})
}

// TestASickServerIsAskedAgain: who once took no Leases may take them again, also when the other then takes none.
func TestASickServerIsAskedAgain(t *testing.T) {
	ca := newAuthority(t)
	var sick [2]atomic.Bool
	server := func(i int) string {
		return ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && sick[i].Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}, nil).URL
	}
	cfg := ca.files(t, "system:node:n1", server(0), server(1))
	u := start(t, cfg)
	allUp(t, u)
	for round := range 3 {
		for i := range sick {
			sick[i].Store(true)
			if a, b := renew(t, u), renew(t, u); a != 500 || b != 500 {
				t.Errorf("round %d: server %d does not get the Lease: %d, %d", round, i, a, b)
			}
			if got := renew(t, u); got != 200 {
				t.Errorf("round %d: server %d is sick, and the other is not asked: %d", round, i, got)
			}
			sick[i].Store(false)
			for _, s := range u.servers {
				s.refused.Add(-int64(leftFor)) // it is later
			}
		}
	}
}

// TestSickServerThatSaysWhen: client-go waits as a server says (Retry-After) until the request's time is over, and then sends it
// once more. That is no answer of the server's; the hub leaves it after the second refusal all the same.
func TestSickServerThatSaysWhen(t *testing.T) {
	ca := newAuthority(t)
	behindBalancer(t, ca, []string{"PUT", "late", "PUT", "late"})
}

// TestASickServerThatHangs: one of two behind a balancer says once that it fails, and answers a check so, but does not answer
// for Leases any more. The hub leaves it after the second Lease.
func TestASickServerThatHangs(t *testing.T) {
	ca := newAuthority(t)
	connections := map[string]int{}
	var mu sync.Mutex
	cfg := ca.files(t, "system:node:n1", ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api") {
			return
		}
		mu.Lock()
		connections[r.RemoteAddr]++
		asked, first := connections[r.RemoteAddr], len(connections) == 1
		mu.Unlock()
		switch lease := strings.Contains(r.URL.Path, "/leases/"); {
		case !first:
		case lease && asked > 1:
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Second):
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, nil).URL)
	cfg.CoreRead = "/api/v1/nodes/n1"
	u := start(t, cfg)
	allUp(t, u)
	if got := renew(t, u); got != http.StatusServiceUnavailable {
		t.Fatalf("the first write: %d", got)
	}
	reaches(t, u.servers[0], link.Failing)
	if got := lease(t, u, "hangs"); got != 0 {
		t.Fatalf("the second write: %d", got)
	}
	for range 3 {
		if got := renew(t, u); got != http.StatusOK {
			t.Errorf("a later write: %d", got)
		}
	}
}

// behindBalancer has the server of the first connection take no Leases, and asks by methods, and then with writes.
func behindBalancer(t *testing.T, ca *authority, methods []string) {
	seen := map[string]int{}
	var mu sync.Mutex
	s := ca.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/leases/") {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if seen[r.RemoteAddr]++; len(seen) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, nil)
	u := start(t, ca.files(t, "system:node:n1", s.URL))
	allUp(t, u)
	var got []int
	for _, method := range append(methods, "PUT", "PUT", "PUT") {
		got = append(got, lease(t, u, method))
	}
	if len(seen) != 2 || !slices.Equal(got[len(methods):], []int{200, 200, 200}) {
		t.Errorf("over %d connections: %v", len(seen), got)
	}
}
