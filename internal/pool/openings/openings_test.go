package openings

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/exchange"
)

// leads says that n1 leads under term 3.
func leads(_ context.Context, n edge.NodeName, term int32) error {
	if n == "n1" && term == 3 {
		return nil
	}
	return exchange.Refused(http.StatusForbidden, "node n1 leads")
}

func asks(t *testing.T, o *Openings, who user.Info, method, body string) (int, edge.OpeningsAnswer) {
	t.Helper()
	r := httptest.NewRequest(method, edge.PathOpenings, strings.NewReader(body))
	if who != nil {
		r = r.WithContext(request.WithUser(r.Context(), who))
	}
	w := httptest.NewRecorder()
	o.Handler(leads).ServeHTTP(w, r)
	var answer edge.OpeningsAnswer
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
	} else if strings.Contains(w.Body.String(), "till") {
		t.Errorf("a refusal tells of openings: %s", w.Body)
	}
	return w.Code, answer
}

func node(name string) user.Info {
	return &user.DefaultInfo{Name: "system:node:" + name, Groups: []string{"system:nodes"}}
}

func TestOnlyTheLeaderHears(t *testing.T) {
	o := New(clocktesting.NewFakePassiveClock(start))
	o.Opened(edge.Attempt{User: "ana", Pod: "till"})()
	const good = `{"term":3}`
	for _, tc := range []struct {
		name         string
		who          user.Info
		method, body string
		want         int
	}{
		{"the leader", node("n1"), http.MethodPost, good, http.StatusOK},
		{"the leader of another term", node("n1"), http.MethodPost, `{"term":2}`, http.StatusForbidden},
		{"a follower", node("n2"), http.MethodPost, good, http.StatusForbidden},
		{
			"an operator", &user.DefaultInfo{Name: "ana", Groups: []string{edge.GroupDebuggers}},
			http.MethodPost, good, http.StatusForbidden,
		},
		{"nobody", nil, http.MethodPost, good, http.StatusForbidden},
		{"a read", node("n1"), http.MethodGet, "", http.StatusMethodNotAllowed},
		{"no JSON", node("n1"), http.MethodPost, "x", http.StatusBadRequest},
		{
			"too much", node("n1"), http.MethodPost, `{"instance":"` + strings.Repeat("x", maxRequest) + `"}`,
			http.StatusBadRequest,
		},
	} {
		if code, _ := asks(t, o, tc.who, tc.method, tc.body); code != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, code, tc.want)
		}
	}
}

// TestUntilItIsTold: an answer has the same until a leader says that the cloud has it, of this coordinator.
func TestUntilItIsTold(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	o := New(clock)
	ended := o.Opened(edge.Attempt{User: "ana", Pod: "till"})
	o.Refused(edge.Attempt{User: "eve", Pod: "till"})
	clock.SetTime(start.Add(settle))
	hears := func(body string, want ...edge.Act) edge.OpeningsAnswer {
		t.Helper()
		code, answer := asks(t, o, node("n1"), http.MethodPost, body)
		var acts []edge.Act
		for _, each := range answer.Openings {
			acts = append(acts, each.Act)
		}
		if code != http.StatusOK || len(acts) != len(want) {
			t.Fatalf("%d: %v, want %v", code, acts, want)
		}
		for i := range want {
			if acts[i] != want[i] {
				t.Errorf("%v, want %v", acts, want)
			}
		}
		return answer
	}
	first := hears(`{"term":3}`, edge.ActBegan, edge.ActOpened, edge.ActRefused)
	told := func(instance string, numbers ...uint64) string {
		text, err := json.Marshal(edge.OpeningsRequest{Term: 3, Instance: instance, Told: numbers})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	hears(told("another", 1, 2, 3), edge.ActBegan, edge.ActOpened, edge.ActRefused)
	hears(told(first.Instance, 1, 3), edge.ActOpened)
	ended()
	hears(told(first.Instance, 2), edge.ActEnded)
	hears(told(first.Instance, 4))
	if other := New(clock); other.instance == o.instance || strings.ToLower(o.instance) != o.instance {
		t.Errorf("instances %q and %q", o.instance, other.instance)
	}
	if clock.Since(start) != 10*time.Second {
		t.Error("settle is not what docs say")
	}
}
