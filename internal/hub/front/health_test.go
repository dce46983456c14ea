package front

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/identity"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

func askHealth(t *testing.T, c HealthConfig, path string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	HealthHandler(c).ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return rec.Code, rec.Body.String()
}

func config() HealthConfig {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector())
	return HealthConfig{
		Cloud: live.NewValue(link.Unknown), Metrics: metrics,
		Status: func() HubStatus {
			return HubStatus{Version: "v0.2.0", Node: "n1", Role: "pending", Cloud: "up", Coordinator: "none"}
		},
		Root: func(*http.Request) bool { return true },
	}
}

// A hub is ready when it knows whether it reaches the cloud: up is not asked for, since it serves without as well.
func TestReadyOnceTheCloudWasTried(t *testing.T) {
	c := config()
	if code, body := askHealth(t, c, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "tried") {
		t.Errorf("before: %d %s", code, body)
	}
	if code, _ := askHealth(t, c, "/healthz"); code != http.StatusOK {
		t.Errorf("alive before: %d", code)
	}
	for _, state := range []link.State{link.Up, link.Down, link.Failing} {
		c.Cloud.Set(state)
		if code, body := askHealth(t, c, "/readyz"); code != http.StatusOK || body != "ok\n" {
			t.Errorf("with the link %v: %d %s", state, code, body)
		}
	}
}

func TestStatus(t *testing.T) {
	c := config()
	code, body := askHealth(t, c, "/status")
	var got HubStatus
	if err := json.Unmarshal([]byte(body), &got); err != nil || code != http.StatusOK || !reflect.DeepEqual(got, c.Status()) {
		t.Errorf("%d %s: %v", code, body, err)
	}
	want := `{"version":"v0.2.0","node":"n1","role":"pending","cloud":"up","coordinator":"none"}`
	if strings.TrimSpace(body) != want {
		t.Errorf("%s, want %s", body, want)
	}
}

func TestProfilesAndMetrics(t *testing.T) {
	for _, path := range []string{"/debug/pprof/goroutine?debug=1", "/metrics"} {
		if code, body := askHealth(t, config(), path); code != http.StatusOK || !strings.Contains(body, "goroutine") {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// TestOpen: whoever may ask anything is told whether the hub is alive, and the figures if somebody wants that.
func TestOpen(t *testing.T) {
	for open, want := range map[bool]int{false: http.StatusForbidden, true: http.StatusOK} {
		c := config()
		c.OpenMetrics = open
		c.Root = func(*http.Request) bool { return false }
		for path, want := range map[string]int{
			"/healthz": 200, "/readyz": 503, "/metrics": want, "/status": 403, "/debug/pprof/goroutine": 403,
			"/debug/pprof/profile": 403, "/debug/pprof/trace": 403, "/": 404,
		} {
			if code, _ := askHealth(t, c, path); code != want {
				t.Errorf("with open metrics %v, %s: %d, want %d", open, path, code, want)
			}
		}
	}
}

// TestStatusAsText: other programs read these words.
func TestStatusAsText(t *testing.T) {
	for want, status := range map[string]any{
		`{"way":"pinned","sha256":"d","file":"f","problem":"p"}`: identity.KubeletFound{
			KubeletServing: edge.KubeletServing{Way: edge.KubeletPinned, Digest: "d"}, File: "f", Problem: "p",
			NotAfter: time.Unix(1, 0),
		},
		`{"generation":2,"running":1,"state":"restart","why":"port","own":["v"]}`: SettingsOf(
			edge.SettingsReport{Told: 2, Runs: 1, State: edge.SettingsNeedRestart, Why: "port"}, []string{"v"}),
		`{"generation":2,"running":2}`: SettingsOf(edge.SettingsReport{Told: 2, Runs: 2}, nil),
		`{"slot":1,"address":"a","link":"up","home":true,"leader":"n1"}`: edge.CoordinatorStatus{
			Slot: 1, Address: "a", Link: "up", Home: true, Leader: "n1",
		},
	} {
		if got, err := json.Marshal(status); string(got) != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if said := SettingsOf(edge.SettingsReport{}, nil); said != nil {
		t.Errorf("%+v of no settings", said)
	}
}

func TestFollowedOf(t *testing.T) {
	services := cache.Whole(schema.GroupVersionResource{Version: "v1", Resource: "services"})
	pool := cache.Whole(schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta2", Resource: "nodepools"})
	pool.Fields = "metadata.name=p1"
	pods := cache.Whole(schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	pods.Fields = "spec.nodeName=n1"
	got := FollowedOf([]cache.Status{
		{Client: "", Selection: pods, Source: "cloud", Revision: 3, Objects: 1, Bytes: 2, Requests: 1},
		{Client: cache.Hub, Selection: pool, Source: "cloud"},
		{
			Client: cache.Hub, Selection: services, Shared: true, Source: "none", Revision: 4,
			Objects: 5, Bytes: 6, HistoryBytes: 7, Watches: 8,
		},
		{Client: "sa 1", Selection: services, Source: "none"},
	})
	want := Followed{
		Replicas: []ReplicaStatus{{"services", true, "none", 4, 5, 6, 7, 8}},
		Kept: []KeptStatus{
			{"", "pods fields=spec.nodeName=n1", "cloud", 3, 1, 2, 1}, {"sa 1", "services", "none", 0, 0, 0, 0},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
