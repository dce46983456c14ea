package limits

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
)

// nobody is a pool that expects no callers.
func nobody(user.Info) bool { return false }

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
	s.limits = New(func(r *http.Request, _ *request.RequestInfo) int {
		switch {
		case strings.HasSuffix(r.URL.Path, "/lasting"):
			return 1
		case strings.HasSuffix(r.URL.Path, "/heavy"):
			return mostLasting / 4
		}
		return 0
	}, func(user.Info) bool { return true }, ends.Clock{}, klog.NewKlogr())
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
		switch {
		case parts[0] == "self":
			who.Groups = []string{user.SystemPrivilegedGroup}
		case strings.HasPrefix(parts[0], "n"):
			who.Groups = []string{user.NodesGroup}
		case r.URL.Query().Has("member"):
			who.Groups = []string{"members"}
		}
		info := &request.RequestInfo{IsResourceRequest: true, Resource: "pods"}
		switch parts[1] {
		case "leases":
			info.APIGroup, info.Resource = "coordination.k8s.io", "leases"
		case "lists":
			info.Verb = "list"
		case "leases-list":
			info.APIGroup, info.Resource, info.Verb = "coordination.k8s.io", "leases", "list"
		case "usage":
			info.APIGroup, info.Verb = "metrics.k8s.io", "list"
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
		path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "hold=1"
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

// TestAnothersNameTakesNoPlaces: who has a member's name, but is not one, takes no places of that member.
func TestAnothersNameTakesNoPlaces(t *testing.T) {
	s := newStage(t)
	s.limits.knows = func(who user.Info) bool { return slices.Contains(who.GetGroups(), "members") }
	for range mostRequests {
		if code, text := s.ask(t, "/ana/requests", true); code != http.StatusOK {
			t.Fatalf("%d %s", code, text)
		}
	}
	if code, _ := s.ask(t, "/ana/requests", false); code != http.StatusTooManyRequests {
		t.Errorf("one more: %d", code)
	}
	if code, text := s.ask(t, "/ana/requests?member=1", false); code != http.StatusOK {
		t.Errorf("the member: %d %s", code, text)
	}
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
	for i := range 5 {
		code, text := s.ask(t, "/n3/heavy", true)
		if want := map[bool]int{true: http.StatusOK, false: http.StatusTooManyRequests}[i < 4]; code != want {
			t.Errorf("the %d-th that takes a quarter of the places: %d %s", i, code, text)
		}
	}
	for range 2 * most[requests] {
		if code, text := s.ask(t, "/self/requests", true); code != http.StatusOK {
			t.Fatalf("the process itself: %d %s", code, text)
		}
	}
}

// TestListsTakePlacesByTheirPages: a caller has one list without a limit at a time, or pages of it. All have two.
func TestListsTakePlacesByTheirPages(t *testing.T) {
	refused := func(what, says string, code int, text string) {
		t.Helper()
		if code != http.StatusTooManyRequests || !strings.Contains(text, says) {
			t.Errorf("%s: %d %s", what, code, text)
		}
	}
	for _, whole := range []string{
		"", "?limit=501", "?limit=0", "?limit=-1", "?limit=x", "?limit=501&limit=1", "?limit=1&labelSelector=a",
		"?limit=1&fieldSelector=a",
	} {
		s := newStage(t)
		if code, text := s.ask(t, "/n1/lists"+whole, true); code != http.StatusOK {
			t.Fatalf("%q: %d %s", whole, code, text)
		}
		code, text := s.ask(t, "/n1/lists?limit=1", false)
		refused(whole+", and a page", "limit=500", code, text)
		if code, text := s.ask(t, "/n1/requests", false); code != http.StatusOK {
			t.Errorf("%q, and a request: %d %s", whole, code, text)
		}
	}
	s := newStage(t)
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if code, text := s.ask(t, "/p1/usage", true); code != want {
			t.Errorf("what Pods use, the %d-th: %d %s", i, code, text)
		}
	}
	s = newStage(t)
	for i := range mostListsOfAll {
		if code, text := s.ask(t, fmt.Sprintf("/p%d/lists?limit=500", i/mostLists), true); code != http.StatusOK {
			t.Fatalf("page %d: %d %s", i, code, text)
		}
	}
	code, text := s.ask(t, "/p1/lists?limit=500", false)
	refused("one page more", "you read", code, text)
	code, text = s.ask(t, "/p9/leases-list?limit=500", false)
	refused("one page more of all", "all callers", code, text)
	if code, text := s.ask(t, "/n1/lists", true); code != http.StatusOK {
		t.Fatalf("a node's: %d %s", code, text)
	}
	code, text = s.ask(t, "/n2/lists?limit=1", false)
	refused("another node's", "all callers", code, text)
}

// TestListsThatWaitTakePlaces: a list that waits takes a place of requests until it is served, refused or given up.
func TestListsThatWaitTakePlaces(t *testing.T) {
	s := newStage(t)
	s.limits.patience = time.Hour
	if code, text := s.ask(t, "/n1/lists", true); code != http.StatusOK {
		t.Fatal(code, text)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	for range mostRequests {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/n1/lists", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.open.Go(func() {
			if response, err := s.Client().Do(r); err == nil {
				t.Errorf("a list that should wait: %s", response.Status)
				_ = response.Body.Close()
			}
		})
	}
	taken := func(want int) {
		t.Helper()
		began := time.Now()
		for has := -1; has != want; time.Sleep(time.Millisecond) {
			s.limits.mu.Lock()
			has = s.limits.taken[place{"n1", requests}]
			s.limits.mu.Unlock()
			if time.Since(began) > time.Minute {
				t.Fatalf("%d places of requests, want %d", has, want)
			}
		}
	}
	taken(mostRequests)
	if code, text := s.ask(t, "/n1/lists?limit=1", false); code != http.StatusTooManyRequests {
		t.Error("one list more:", code, text)
	}
	giveUp()
	taken(0)
}

// TestAnAnswerThatNobodyReads ends, and gives its places back.
func TestAnAnswerThatNobodyReads(t *testing.T) {
	l := New(func(*http.Request, *request.RequestInfo) int { return 0 }, nobody, ends.Clock{}, klog.NewKlogr())
	l.answered = time.Second
	ended := make(chan error, 1)
	inner := l.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		ended <- err
	}))
	for _, two := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			info := &request.RequestInfo{IsResourceRequest: true, Resource: "pods", Verb: "list"}
			ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: "p1"})
			inner.ServeHTTP(w, r.WithContext(ctx))
		}))
		server.EnableHTTP2 = two
		server.StartTLS()
		t.Cleanup(server.Close)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := server.Client().Do(r)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("HTTP/2 %t: %v, %v", two, answer, err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		select {
		case err := <-ended:
			t.Logf("HTTP/2 %t: %v", two, err)
		case <-time.After(time.Minute):
			t.Fatalf("HTTP/2 %t: it is not ended", two)
		}
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		left := len(l.taken)
		l.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("its places are not given back")
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

// TestALeaseIsSmallAndSeldom: a node that writes its Lease too large or too often is told what to do, and nobody else waits.
func TestALeaseIsSmallAndSeldom(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { return now }
	l := New(func(*http.Request, *request.RequestInfo) int { return 0 }, nobody, ends.Clock{OfDay: clock, Ran: clock},
		klog.NewKlogr())
	h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	write := func(what, node, namespace string, bytes int64, code int, says string) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", strings.NewReader("x"))
		r.ContentLength = bytes
		info := &request.RequestInfo{
			IsResourceRequest: true, APIGroup: "coordination.k8s.io", Resource: "leases", Namespace: namespace, Verb: "update",
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: node})))
		if text := w.Body.String(); w.Code != code || !strings.Contains(text, says) {
			t.Errorf("%s: %d %q, want %d", what, w.Code, text, code)
		}
		if again := w.Header().Get("Retry-After"); (again == "1") != (code == http.StatusTooManyRequests) {
			t.Errorf("%s: Retry-After %q", what, again)
		}
	}
	const nodes, early = "kube-node-lease", "more often than once in 1s, or"
	for range 2 * renewalBurst {
		write("a large one", "n1", nodes, exchange.MaxLease+1, http.StatusRequestEntityTooLarge, "at most 16384 bytes")
		write("one of any length", "n1", nodes, -1, http.StatusRequestEntityTooLarge, "Content-Length")
		write("a large one of the pool", "n1", "kube-system", 1<<20, http.StatusRequestEntityTooLarge, "write fewer annotations")
	}
	for i := range renewalBurst {
		write(fmt.Sprint(i), "n1", nodes, exchange.MaxLease, http.StatusOK, "")
	}
	write("one more", "n1", nodes, 1, http.StatusTooManyRequests, early)
	write("another node's", "n2", nodes, 1, http.StatusOK, "")
	for range othersBurst {
		write("the pool's", "n1", "kube-system", 1, http.StatusOK, "")
	}
	write("one more of the pool's", "n1", "kube-system", 1, http.StatusTooManyRequests, "once in 200ms; wait")
	now = now.Add(renewalEvery)
	write("a second later", "n1", nodes, 1, http.StatusOK, "")
	write("at once again", "n1", nodes, 1, http.StatusTooManyRequests, early)
	for of, want := range map[kind]float64{renewals: 3, large: 6 * renewalBurst} {
		if n, err := testutil.GetCounterMetricValue(refusals.WithLabelValues(string(of))); err != nil || n != want {
			t.Errorf("%v are counted as %s, %v", n, of, err)
		}
	}
}

// TestTurnAway: after a 401 or 403 the connection of a client ends that has proved nothing. That of a member stays.
func TestTurnAway(t *testing.T) {
	for _, two := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP2 %t", two), func(t *testing.T) {
			l := New(func(*http.Request, *request.RequestInfo) int { return 0 },
				func(who user.Info) bool { return who.GetName() == "member" }, ends.Clock{}, klog.NewKlogr())
			allowed := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			var ended atomic.Int64
			s := httptest.NewUnstartedServer(TurnAway(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if code, err := strconv.Atoi(strings.Trim(r.URL.Path, "/")); err == nil {
					w.WriteHeader(code)
					return
				}
				ctx := request.WithRequestInfo(r.Context(), &request.RequestInfo{})
				who := &user.DefaultInfo{Name: r.Header.Get("X-Name")}
				allowed.ServeHTTP(w, r.WithContext(request.WithUser(ctx, who)))
			})))
			s.Listener = conns.NewNewcomers(s.Listener, 100, nil)
			s.EnableHTTP2, s.Config.ConnContext = two, conns.WithNewcomer
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateClosed {
					ended.Add(1)
				}
			}
			s.StartTLS()
			defer s.Close()
			asks := func(who string, paths ...string) (reused bool) {
				t.Helper()
				client := s.Client().Transport.(*http.Transport).Clone()
				defer client.CloseIdleConnections()
				for _, path := range paths {
					ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
						GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused },
					})
					r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("X-Name", who)
					before := ended.Load()
					answer, err := client.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					_ = answer.Body.Close()
					refused := answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden
					if who == "member" || !refused {
						continue
					}
					for deadline := time.Now().Add(30 * time.Second); ended.Load() == before; time.Sleep(time.Millisecond) {
						if time.Now().After(deadline) {
							t.Fatalf("%s: the connection is still open after %s", who, path)
						}
					}
				}
				return reused
			}
			for _, code := range []string{"/401", "/403"} {
				if asks("stranger", code, "/allowed") {
					t.Errorf("a stranger asks again over the connection of a %s", code)
				}
				if asks("stranger", "/allowed", code, "/allowed") {
					t.Errorf("a stranger who may ask something goes on after a %s", code)
				}
				if !asks("member", "/allowed", code, "/allowed") {
					t.Errorf("a member's connection ends with a %s", code)
				}
			}
			if !asks("stranger", "/404", "/404") {
				t.Error("a stranger's connection ends with a 404")
			}
		})
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
