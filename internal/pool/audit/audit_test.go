package audit

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/pool/pooltest"
)

func resolver() request.RequestInfoResolver {
	return &request.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
}

// kept is a Keeper that remembers all.
type kept struct {
	opened, refused []edge.Attempt
	ended           int
}

func (k *kept) Opened(a edge.Attempt) func() {
	k.opened = append(k.opened, a)
	return func() { k.ended++ }
}

func (k *kept) Refused(a edge.Attempt) { k.refused = append(k.refused, a) }

func closed(t *testing.T, audit *Log) {
	t.Helper()
	if err := audit.Close(); err != nil {
		t.Error(err)
	}
}

func TestRefusalsAreWrittenAndBounded(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	file := filepath.Join(t.TempDir(), "audit")
	keeper := &kept{}
	audit := New(file, clock, keeper)
	defer closed(t, audit)
	code := http.StatusOK
	handler := audit.LogRefusals(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			exchange.NoteUser(r.Context(), "eve")
		}
		exchange.Explain(r.Context(), errors.New("because"))
		w.WriteHeader(code)
	}), resolver(), "hint")
	ask := func() {
		r := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/n/pods/p/exec?command=secret", nil)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}

	ask()
	if lines := pooltest.JSONLines[Line](t, file); len(lines) != 0 {
		t.Errorf("an answer of 200 was written down: %+v", lines)
	}
	code = http.StatusForbidden
	for range refusalBurst + 100 {
		ask()
	}
	lines := pooltest.JSONLines[Line](t, file)
	if len(lines) != refusalBurst {
		t.Fatalf("%d lines, want the burst of %d", len(lines), refusalBurst)
	}
	first := lines[0]
	if first.Event != "refused" || first.Code != 403 || first.Verb != "create" || first.Reason != "because" ||
		first.Path != "/api/v1/namespaces/n/pods/p/exec" || first.Source == "" || !first.Time.Equal(clock.Now()) {
		t.Errorf("got %+v", first)
	}
	want := edge.Attempt{
		User: "eve", Source: "192.0.2.1", Stream: "exec", Namespace: "n", Pod: "p", Program: "secret", Reason: "because",
	}
	if len(keeper.refused) != refusalBurst+100 || keeper.refused[0] != want {
		t.Errorf("%d were kept, want all: %+v", len(keeper.refused), keeper.refused[0])
	}
	clock.SetTime(clock.Now().Add(time.Second))
	code = http.StatusUnauthorized
	ask()
	lines = pooltest.JSONLines[Line](t, file)
	if last := lines[len(lines)-1]; last.Suppressed != 100 || last.Code != 401 {
		t.Errorf("got %+v, want 100 suppressed ones counted", last)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	content, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(content), "secret") {
		t.Errorf("the query is in the log, or %v", err)
	}
}

func TestAHostileCallerWritesNoLongLineAndNoLineOfItsOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	keeper := &kept{}
	audit := New(file, clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), keeper)
	defer closed(t, audit)
	handler := audit.LogRefusals(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}), resolver(), "hint")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.URL.Path = "/x\n{\"event\":\"forged\"}" + strings.Repeat("ü", 10_000)
	handler.ServeHTTP(httptest.NewRecorder(), r)
	lines := pooltest.JSONLines[Line](t, file)
	if len(lines) != 1 || lines[0].Event != "refused" || len(lines[0].Path) > maxAuditField+4 {
		t.Errorf("got %d lines, %+v", len(lines), lines)
	}
	if len(keeper.refused) != 0 {
		t.Errorf("a refusal of something else than a stream was kept: %+v", keeper.refused)
	}
}

// TestALineOfAStream has who, when, which Pod and what command, and is bounded.
func TestALineOfAStream(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	file := filepath.Join(t.TempDir(), "audit")
	keeper := &kept{}
	audit := New(file, clock, keeper)
	defer closed(t, audit)
	served := 0
	handler := audit.LogStreams(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served++
		if under := len(keeper.opened) - keeper.ended; under > 1 {
			t.Errorf("%d are under way", under)
		}
	}), resolver())
	ask := func(method, path string) {
		r := httptest.NewRequest(method, path, strings.NewReader("hidden-input"))
		info, err := resolver().NewRequestInfo(r)
		if err != nil {
			t.Fatal(err)
		}
		ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: "alice"})
		r.Header.Set("Authorization", "hidden-header")
		handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	}
	const pod = "/api/v1/namespaces/shop/pods/till"
	ask(http.MethodGet, pod+"/exec?container=till&command=sh&command=-c&command=echo+%0A{}&stdin=true")
	ask(http.MethodPost, pod+"/attach?container=side&command=hidden")
	ask(http.MethodGet, pod+"/portforward")
	ask(http.MethodGet, pod+"/log?container=till")
	ask(http.MethodGet, pod)
	ask(http.MethodPost, pod+"/exec?command="+strings.Repeat("a", 10_000)+strings.Repeat("&command=b", 1000))
	lines := pooltest.JSONLines[Line](t, file)
	if len(lines) != 4 || served != 6 {
		t.Fatalf("%d lines of %d requests: %+v", len(lines), served, lines)
	}
	for i, want := range []Line{
		{Path: pod + "/exec", Verb: "get", Container: "till", Command: []string{"sh", "-c", "echo \n{}"}},
		{Path: pod + "/attach", Verb: "create", Container: "side"},
		{Path: pod + "/portforward", Verb: "get"},
	} {
		want.Event, want.User, want.Time, want.Source = "opened", "alice", clock.Now().UTC(), lines[i].Source
		if !reflect.DeepEqual(lines[i], want) || want.Source == "" {
			t.Errorf("got %+v, want %+v", lines[i], want)
		}
	}
	c := lines[3].Command
	if len(c) != maxAuditCommand+1 || len(c[0]) > maxAuditField+4 || c[maxAuditCommand] != "… and 981 more" {
		t.Errorf("a long command: %d words, %q", len(c), c[len(c)-1])
	}
	if content, err := os.ReadFile(file); err != nil || strings.Contains(string(content), "hidden") {
		t.Errorf("what must not be in the log is, or %v", err)
	}
	of := edge.Attempt{User: "alice", Source: "192.0.2.1", Namespace: "shop", Pod: "till"}
	exec, attach, forward := of, of, of
	exec.Stream, exec.Container, exec.Program = "exec", "till", "sh"
	attach.Stream, attach.Container = "attach", "side"
	forward.Stream = "portforward"
	if want := []edge.Attempt{exec, attach, forward}; !slices.Equal(keeper.opened[:3], want) || keeper.ended != 4 {
		t.Errorf("kept %+v, %d ended; want %+v", keeper.opened, keeper.ended, want)
	}
	if long := keeper.opened[3].Program; len(long) != maxKept+len("…") {
		t.Errorf("a long program: %q", long)
	}
}
