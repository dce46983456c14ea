package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

// stage is a server whose handler waits until it is released. The path is "/caller/kind".
type stage struct {
	*httptest.Server
	release chan struct{}
	limits  *Limits
	open    sync.WaitGroup
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{release: make(chan struct{})}
	s.limits = New(func(r *http.Request, _ *request.RequestInfo) bool { return strings.HasSuffix(r.URL.Path, "/lasting") },
		ends.Clock{}, klog.NewKlogr())
	inner := s.limits.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestTimeout)
			return
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		if r.URL.Query().Get("hold") != "" {
			<-s.release
		}
	}))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		who := &user.DefaultInfo{Name: parts[0]}
		if parts[0] == "self" {
			who.Groups = []string{user.SystemPrivilegedGroup}
		}
		info := &request.RequestInfo{IsResourceRequest: true, Resource: "pods"}
		if parts[1] == "leases" {
			info.APIGroup, info.Resource = "coordination.k8s.io", "leases"
		}
		ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), who)
		inner.ServeHTTP(w, r.WithContext(ctx))
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.open.Wait)
	t.Cleanup(func() { close(s.release) })
	return s
}

// ask makes a request, and returns its code and, of a refusal, the text. With hold it stays under way.
func (s *stage) ask(t *testing.T, path string, hold bool) (int, string) {
	t.Helper()
	if hold {
		path += "?hold=1"
	}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if hold && response.StatusCode == http.StatusOK {
		s.open.Go(func() {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		})
		return response.StatusCode, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After: %q", response.Header.Get("Retry-After"))
	}
	return response.StatusCode, string(text)
}

func TestPlacesBelongToCallers(t *testing.T) {
	s := newStage(t)
	for of, says := range map[kind]string{
		requests: "too many of your requests", lasting: "watches and streams", leases: "too many of your leases",
	} {
		before, err := testutil.GetCounterMetricValue(refusals.WithLabelValues(string(of)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range most[of] {
			if code, text := s.ask(t, "/n1/"+string(of), true); code != http.StatusOK {
				t.Fatalf("%d of %s: %d %s", i, of, code, text)
			}
		}
		if code, text := s.ask(t, "/n1/"+string(of), false); code != http.StatusTooManyRequests || !strings.Contains(text, says) {
			t.Errorf("one more of %s: %d %s", of, code, text)
		}
		if code, text := s.ask(t, "/n2/"+string(of), false); code != http.StatusOK {
			t.Errorf("another caller's %s: %d %s", of, code, text)
		}
		after, err := testutil.GetCounterMetricValue(refusals.WithLabelValues(string(of)))
		if err != nil || after-before != 1 {
			t.Errorf("counted %v of %s, %v", after-before, of, err)
		}
	}
	for range 2 * most[requests] {
		if code, text := s.ask(t, "/self/requests", true); code != http.StatusOK {
			t.Fatalf("the process itself: %d %s", code, text)
		}
	}
}

func TestPlacesAreGivenBack(t *testing.T) {
	s := newStage(t)
	for range 3 * most[requests] {
		if code, text := s.ask(t, "/n1/requests", false); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
	}
	s.limits.mu.Lock()
	defer s.limits.mu.Unlock()
	if len(s.limits.taken) > 0 {
		t.Errorf("after all have ended: %v", s.limits.taken)
	}
}

// TestHeartbeatsHavePlaces of their own when all others are taken, by whomever.
func TestHeartbeatsHavePlaces(t *testing.T) {
	s := newStage(t)
	for i := range mostOfAll {
		if code, text := s.ask(t, fmt.Sprintf("/x%d/requests", i/most[requests]), true); code != http.StatusOK {
			t.Fatalf("%d: %d %s", i, code, text)
		}
	}
	code, text := s.ask(t, "/n1/requests", false)
	if code != http.StatusTooManyRequests || !strings.Contains(text, "all callers") {
		t.Errorf("one more: %d %s", code, text)
	}
	if code, text := s.ask(t, "/n1/leases", false); code != http.StatusOK {
		t.Errorf("a heartbeat: %d %s", code, text)
	}
	if code, text := s.ask(t, "/n1/lasting", false); code != http.StatusOK {
		t.Errorf("a watch: %d %s", code, text)
	}
}

// TestASlowBody is cut, and its connection's next request is answered.
func TestASlowBody(t *testing.T) {
	s := newStage(t)
	slow, feed := io.Pipe()
	defer feed.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/n1/requests", slow)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // a byte now and then is no progress
		for {
			if _, err := feed.Write([]byte("x")); err != nil {
				return
			}
			select {
			case <-time.After(BodyTimeout / 10):
			case <-done:
				return
			}
		}
	}()
	start := time.Now()
	response, err := s.Client().Do(r)
	close(done)
	if err == nil {
		_ = response.Body.Close()
	}
	took, served := time.Since(start), err == nil && response.StatusCode == http.StatusOK
	if took < BodyTimeout/2 || took > 4*BodyTimeout || served {
		t.Errorf("a slow body: %v after %v, %v", response, took, err)
	}
	for range 3 {
		if code, text := s.ask(t, "/n1/requests", false); code != http.StatusOK {
			t.Errorf("the next request: %d %s", code, text)
		}
	}
}

// TestRefused: connections that are refused are counted one by one, and logged with their address so often and no oftener.
func TestRefused(t *testing.T) {
	var text strings.Builder
	var mu sync.Mutex
	told := Refused(funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		text.WriteString(line + "\n")
	}, funcr.Options{}))
	count := func(why conns.Reason) float64 {
		t.Helper()
		n, err := testutil.GetCounterMetricValue(connections.WithLabelValues(string(why)))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before, other := count(conns.NoCertificate), count(conns.Unknown)
	for range 100 {
		told(netip.MustParseAddrPort("10.0.0.9:1234"), conns.NoCertificate, errors.New("none"))
	}
	told(netip.MustParseAddrPort("10.0.0.8:1234"), conns.Unknown, errors.New(strings.Repeat("x", 9999)))
	if got := count(conns.NoCertificate) - before; got != 100 {
		t.Errorf("%v are counted, of 100", got)
	}
	if got := count(conns.Unknown) - other; got != 1 {
		t.Errorf("%v are counted, of 1", got)
	}
	if n := strings.Count(text.String(), "10.0.0.9"); n != tellBurst {
		t.Errorf("%d lines, want %d", n, tellBurst)
	}
	if !strings.Contains(text.String(), "10.0.0.8") || text.Len() > 3000 {
		t.Errorf("the log has %d bytes: %s", text.Len(), text.String())
	}
}
