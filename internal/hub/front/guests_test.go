package front

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// byName says who answered.
type byName string

func (n byName) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, string(n))
}
func (byName) Has(r schema.GroupVersionResource) bool { return r.Resource == "endpoints" }
func (byName) Match(r *http.Request) bool             { return r.UserAgent() == "coredns" }

func (n byName) Answer(w http.ResponseWriter, _ *http.Request, client string) bool {
	_, _ = io.WriteString(w, string(n)+client)
	return true
}

func (byName) Recall(http.ResponseWriter, *http.Request, string) bool { return false }

func (n byName) Remember(w http.ResponseWriter, r *http.Request, client string, _ http.Handler) {
	n.Answer(w, r, client)
}

func (byName) Written(w http.ResponseWriter, r *http.Request, _ string, pass http.Handler) {
	pass.ServeHTTP(w, r)
}

// asked are Callers that know all tokens but "unknown", and note what they are asked.
type asked struct{ t *testing.T }

func (a asked) Admit(r *http.Request, pool bool) (client string, ok bool) {
	info, ok := request.RequestInfoFrom(r.Context())
	if ok && pool != (info.Resource == "endpoints") {
		a.t.Errorf("asked for %s, of the pool: %v", info.Resource, pool)
	}
	return " of " + Bearer(r), ok && Bearer(r) != "unknown"
}

// TestAStrangersWatchIsSoonOver: whoever was not known to be allowed comes back, and is then answered as the others are.
func TestAStrangersWatchIsSoonOver(t *testing.T) {
	_, u := cloud(t, seen)
	address, _ := hub(t, Config{Cloud: u, Replicas: byName("replica"), Keeper: byName("keeper"), Callers: asked{t}})
	bounded := fmt.Sprintf(`timeoutSeconds=%d\u0026watch=true"`, strangersWatch)
	for _, tt := range []struct{ path, token, want string }{
		{"/api/v1/endpoints?watch=true", "unknown", bounded},
		{"/api/v1/endpoints?watch=true&timeoutSeconds=400", "unknown", bounded},
		{"/api/v1/endpoints?watch=true&timeoutSeconds=5", "unknown", `watch=true\u0026timeoutSeconds=5"`},
		{"/api/v1/endpoints?watch=true&timeoutSeconds=x", "unknown", `watch=true\u0026timeoutSeconds=x"`},
		{"/api/v1/endpoints?limit=7", "unknown", `endpoints?limit=7"`},
		{"/api/v1/pods?watch=true", "unknown", `pods?watch=true"`},
		{"/api/v1/endpoints?watch=true", "abc", "replica"},
	} {
		_, got := ask(t, http.MethodGet, address+tt.path, "Authorization", "Bearer "+tt.token)
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s of %s: %s, want %s", tt.path, tt.token, got, tt.want)
		}
	}
}

func TestNobodyElseIsLentTheNodesIdentity(t *testing.T) {
	_, u := cloud(t, seen)
	own := newFront(Config{
		Cloud: u, Replicas: byName("replica"), Keeper: byName("keeper"), Callers: asked{t}, OwnLease: byName("lease"),
		Situation: Situation{Node: "n1"},
	})
	node, _ := serve(t, own)
	guests, _ := serve(t, own.Guests())
	const lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
	const asNode, asCaller, nobody = `"Certificate":["1"]`, `"Certificate":["0"]`, "show a token"
	for _, tt := range []struct {
		path                string
		header              []string
		wantNode, wantGuest string
	}{
		{"/api/v1/pods", nil, asNode, nobody},
		{"/api/v1/endpoints", nil, "replica", nobody},
		{"/api/v1/pods", []string{"User-Agent", "coredns"}, "keeper", nobody},
		{lease, nil, "lease", nobody},
		{lease, []string{"Authorization", "Bearer abc"}, asCaller, asCaller},
		{"/api/v1/pods", []string{"Authorization", "Bearer abc"}, asCaller, asCaller},
		{"/api/v1/endpoints", []string{"Authorization", "Bearer abc"},
			"replica", "replica"},
		{"/api/v1/endpoints", []string{"Authorization", "Bearer unknown"}, asCaller, asCaller},
		{"/api/v1/pods", []string{"User-Agent", "coredns", "Authorization", "Bearer abc"},
			"keeper of abc", "keeper of abc"},
		// The cloud refuses what is no token, or more than one.
		{"/api/v1/endpoints", []string{"Authorization", "Basic abc"}, asCaller, asCaller},
		{"/api/v1/endpoints", []string{"Authorization", "Bearer a", "Authorization", "Bearer b"}, asCaller, asCaller},
		{"/api/v1/endpoints", []string{"Authorization", "Bearer a", "Impersonate-User", "admin"}, asCaller, asCaller},
		{"/api/v1/endpoints", []string{"Authorization", "Bearer "}, asCaller, asCaller},
	} {
		for address, want := range map[string]string{node: tt.wantNode, guests: tt.wantGuest} {
			if _, got := ask(t, http.MethodGet, address+tt.path, tt.header...); !strings.Contains(got, want) {
				t.Errorf("%s %v: %s, want %s", tt.path, tt.header, got, want)
			}
		}
	}
	// A guest that says whose identity it wants gets nobody's.
	response, got := ask(t, http.MethodGet, guests+"/api/v1/pods", "Impersonate-User", "admin")
	var header http.Header
	if response.StatusCode == http.StatusOK && (json.Unmarshal([]byte(got), &header) != nil || header.Get("Certificate") != "0") {
		t.Errorf("%d %s", response.StatusCode, got)
	}
}

func TestGuestsLeaveRoomForTheNode(t *testing.T) {
	own := newFront(Config{Cloud: nowhere{}, MaxReadOnly: 1, Replicas: byName("replica")})
	guests := own.Guests()
	for guests.limits[others][readOnly].enter() {
	}
	code := func(f *Front, token string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/v1/endpoints", nil)
		r.Header.Set("Authorization", token)
		f.ServeHTTP(w, r)
		return w.Code
	}
	if got := code(guests, "Bearer abc"); got != http.StatusTooManyRequests {
		t.Errorf("a guest too many: %d", got)
	}
	if got := code(own, ""); got != http.StatusOK {
		t.Errorf("the node's own: %d", got)
	}
}

// gathering answers, and meanwhile looks at the metric of requests in flight.
type gathering struct {
	byName
	t    *testing.T
	from *prometheus.Registry
}

func (g gathering) ServeHTTP(http.ResponseWriter, *http.Request) {
	const want = `
		# HELP yurthub_requests_in_flight API requests in flight at all ports, by the class that has a limit.
		# TYPE yurthub_requests_in_flight gauge
		yurthub_requests_in_flight{class="heartbeat"} 0
		yurthub_requests_in_flight{class="long-running"} 0
		yurthub_requests_in_flight{class="mutating"} 0
		yurthub_requests_in_flight{class="read-only"} 1
	`
	if err := testutil.GatherAndCompare(g.from, strings.NewReader(want), "yurthub_requests_in_flight"); err != nil {
		g.t.Error(err)
	}
}

// TestRequestsInFlightAtAnyPort are counted.
func TestRequestsInFlightAtAnyPort(t *testing.T) {
	registry := prometheus.NewRegistry()
	own := newFront(Config{Cloud: nowhere{}, Metrics: registry, Replicas: gathering{t: t, from: registry}, Callers: asked{t}})
	for _, f := range []*Front{own, own.Guests()} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/endpoints", nil)
		r.Header.Set("Authorization", "Bearer abc")
		f.ServeHTTP(httptest.NewRecorder(), r)
	}
}

// One address has a fourth of the guests' places, however it spreads its requests over paths; the others go on.
func TestAGuestLeavesRoomForOthers(t *testing.T) {
	own := newFront(Config{Cloud: nowhere{}, MaxReadOnly: 100, Replicas: byName("replica")})
	guests := own.Guests()
	code := func(from string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/api/v1/endpoints", nil)
		r.RemoteAddr = from
		r.Header.Set("Authorization", "Bearer abc")
		guests.ServeHTTP(w, r)
		return w.Code
	}
	thief := portion{"10.0.0.66", readOnly}
	held := 0
	for guests.shares.enter(thief, guests.limits[others][readOnly].max) {
		held++
	}
	if held != 25 {
		t.Errorf("an address has %d of 100 places", held)
	}
	before := testutil.ToFloat64(guests.door.refusals.WithLabelValues(crowding))
	if got := code("10.0.0.66:1000"); got != http.StatusTooManyRequests {
		t.Errorf("one too many of an address: %d", got)
	}
	if got := testutil.ToFloat64(own.door.refusals.WithLabelValues(crowding)); got != before+1 {
		t.Errorf("%v refusals are counted, want %v", got, before+1)
	}
	if got := code("10.0.0.2:1000"); got == http.StatusTooManyRequests {
		t.Errorf("another address: %d", got)
	}
	for range held {
		guests.shares.leave(thief)
	}
	if got := code("10.0.0.66:1000"); got == http.StatusTooManyRequests || len(guests.shares.taken) > 0 {
		t.Errorf("when they have ended: %d, and %v is taken", got, guests.shares.taken)
	}
}

// Whom the cloud does not know is counted, and named in the log.
func TestAnUnknownGuestIsSeen(t *testing.T) {
	_, u := cloud(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	own := newFront(Config{Cloud: u, Callers: asked{t}})
	address, _ := serve(t, own.Guests())
	ask(t, http.MethodGet, address+"/api/v1/pods", "Authorization", "Bearer made-up")
	if got := testutil.ToFloat64(own.door.refusals.WithLabelValues(unknownCaller)); got != 1 {
		t.Errorf("%v refusals are counted, want 1", got)
	}
}
