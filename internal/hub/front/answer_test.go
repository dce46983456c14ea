package front

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"yurtcoordinator/internal/hub/link"
)

func TestAttempt(t *testing.T) {
	for _, c := range []struct {
		status int
		none   bool // it means no answer
		can    bool // give another answer
		want   int
	}{
		{http.StatusOK, false, true, 200},
		{http.StatusNotFound, false, true, 404},
		{http.StatusBadGateway, true, true, 299},
		{http.StatusServiceUnavailable, true, false, 503},
		{http.StatusServiceUnavailable, false, true, 503},
	} {
		out := httptest.NewRecorder()
		another := func() bool {
			if !c.can {
				return false
			}
			out.Header().Set("From", "another")
			out.WriteHeader(299)
			_, _ = out.WriteString("another")
			return true
		}
		w := &attempt{ResponseWriter: out, none: func(int) bool { return c.none }, next: another}
		w.Header().Set("From", "the server")
		w.WriteHeader(c.status)
		if n, err := w.Write([]byte("the server")); n != 10 || err != nil {
			t.Errorf("%d: wrote %d, %v", c.status, n, err)
		}
		who := "the server"
		if c.want == 299 {
			who = "another"
		}
		if out.Code != c.want || out.Body.String() != who || out.Header().Get("From") != who {
			t.Errorf("%d: %d %q from %q, want %d from %s", c.status, out.Code, out.Body, out.Header().Get("From"), c.want, who)
		}
	}
}

// serving is a cloud whose API servers answer core reads, or do not.
type serving struct {
	serves bool
	asked  int
}

func (*serving) AsNode() http.RoundTripper   { return http.DefaultTransport }
func (*serving) AsCaller() http.RoundTripper { return http.DefaultTransport }

func (s *serving) Serves(context.Context) bool {
	s.asked++
	return s.serves
}

func TestNoAnswer(t *testing.T) {
	const (
		crd        = "crd.projectcalico.org"
		aggregated = "metrics.k8s.io"
	)
	for _, c := range []struct {
		status int
		group  string
		link   link.State
		serves bool
		want   bool
		asked  int
	}{
		{http.StatusOK, "", link.Up, true, false, 0},
		{http.StatusNotFound, "", link.Up, true, false, 0},
		{http.StatusUnauthorized, "", link.Up, true, false, 0},
		{http.StatusInternalServerError, "", link.Up, true, false, 0},
		{http.StatusInternalServerError, "", link.Failing, false, true, 0}, // without etcd
		{http.StatusInternalServerError, crd, link.Failing, false, true, 0},
		{http.StatusBadGateway, "", link.Up, true, true, 0},
		{http.StatusServiceUnavailable, "apps", link.Up, true, true, 0},
		{http.StatusGatewayTimeout, "", link.Up, true, true, 0},
		{http.StatusBadGateway, crd, link.Up, false, true, 1},
		{http.StatusServiceUnavailable, crd, link.Up, false, true, 1},
		{http.StatusServiceUnavailable, aggregated, link.Up, true, false, 1},
	} {
		u := &serving{serves: c.serves}
		a := &asking{f: newFront(Config{Cloud: u, CloudLink: func() link.State { return c.link }}), req: Request{Group: c.group}}
		if got := a.noAnswer(t.Context(), c.status); got != c.want || u.asked != c.asked {
			t.Errorf("%d about %q, the link is %v: no answer is %v, after %d core reads; want %v, %d", c.status, c.group, c.link,
				got, u.asked, c.want, c.asked)
		}
	}
}

// remembers knows what the cloud said last.
type remembers struct{ byName }

func (remembers) Match(*http.Request) bool { return true }

func (remembers) Answer(http.ResponseWriter, *http.Request, string) bool { return false }

func (remembers) Recall(w http.ResponseWriter, r *http.Request, _ string) bool {
	if strings.Contains(r.URL.Path, "unknown") {
		return false
	}
	body, err := io.ReadAll(r.Body)
	_, _ = io.WriteString(w, "remembered "+string(body))
	return err == nil
}

func (remembers) Remember(w http.ResponseWriter, r *http.Request, _ string, pass http.Handler) {
	pass.ServeHTTP(w, r)
}

// TestWhoIsAskedNext: if the cloud has no answer, the next answerer is the one of that moment.
func TestWhoIsAskedNext(t *testing.T) {
	var code, state atomic.Uint32
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path != "/readyz" {
			w.WriteHeader(int(code.Load()))
		}
		_, _ = io.WriteString(w, "the cloud")
	})
	standIn := &understudy{}
	address, _ := hub(t, Config{
		Cloud: u, Keeper: remembers{}, StandIn: standIn, Situation: Situation{Node: "n1", StandIn: true},
		CloudLink:       func() link.State { return link.State(state.Load()) },
		CoordinatorLink: func() link.State { return link.Up },
	})
	const secret = "/api/v1/namespaces/a/secrets/"
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
		wantCode           int
	}{
		{http.MethodGet, secret + "s", "", http.StatusServiceUnavailable, "remembered ", http.StatusOK},
		{http.MethodGet, secret + "s", "", http.StatusUnauthorized, "remembered ", http.StatusOK}, // as the node
		{http.MethodGet, secret + "s", "", http.StatusForbidden, "the cloud", http.StatusForbidden},
		{http.MethodGet, secret + "unknown", "", http.StatusServiceUnavailable, "the cloud", http.StatusServiceUnavailable},
		{http.MethodGet, "/apis/metrics.k8s.io/v1beta1/nodes/n1", "", http.StatusServiceUnavailable, "the cloud",
			http.StatusServiceUnavailable},
		{http.MethodPost, "/api/v1/namespaces/a/serviceaccounts/sa/token", "for a Pod", http.StatusBadGateway,
			"remembered for a Pod", http.StatusOK},
		{http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "may it?", http.StatusOK, "the cloud",
			http.StatusOK},
		{http.MethodPatch, "/api/v1/nodes/n1/status", "its status", http.StatusGatewayTimeout, "", http.StatusAccepted},
		{http.MethodPatch, "/api/v1/nodes/n1/status", "pass", http.StatusGatewayTimeout, "the cloud", http.StatusGatewayTimeout},
	} {
		state.Store(uint32(link.Up))
		code.Store(uint32(c.code))
		response, err := do(t, c.method, address+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != c.wantCode || string(text) != c.want {
			t.Errorf("%s %s, %d: answered %d %q, %v; want %d %q", c.method, c.path, c.code, response.StatusCode, text, err,
				c.wantCode, c.want)
		}
	}
}

// TestAFailingCloudIsAskedToAnswerSoon: an API server that has lost etcd answers when the time that the client states is over, or
// after a minute. The hub states one where somebody else has an answer.
func TestAFailingCloudIsAskedToAnswerSoon(t *testing.T) {
	var state atomic.Uint32
	var asked atomic.Value
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.RequestURI())
		if r.URL.Query().Get("timeout") != "" && link.State(state.Load()) == link.Failing {
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	})
	address, _ := hub(t, Config{
		Cloud: u, Keeper: remembers{}, StandIn: &understudy{}, Situation: Situation{Node: "n1", StandIn: true},
		CloudLink:       func() link.State { return link.State(state.Load()) },
		CoordinatorLink: func() link.State { return link.Up },
	})
	const (
		secret, token = "/api/v1/namespaces/a/secrets/s", "/api/v1/namespaces/a/serviceaccounts/sa/token"
		log           = "/api/v1/namespaces/a/pods/p/log?follow=true"
	)
	for _, c := range []struct {
		method, path string
		state        link.State
		want         string
	}{
		{http.MethodGet, secret, link.Up, secret},
		{http.MethodGet, secret, link.Failing, secret + "?timeout=5s"},
		{http.MethodGet, secret + "?timeout=1s", link.Failing, secret + "?timeout=1s"},
		{http.MethodPost, token, link.Failing, token + "?timeout=5s"},
		{http.MethodPut, secret, link.Failing, secret}, // nobody else has an answer
		{http.MethodGet, log, link.Failing, log},
	} {
		state.Store(uint32(c.state))
		response, err := do(t, c.method, address+c.path, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := asked.Load(); got != c.want {
			t.Errorf("%s %s, %v: the cloud was asked for %v, want %s", c.method, c.path, c.state, got, c.want)
		}
	}
}

// knowsCoordinators answers reviews that name one.
type knowsCoordinators struct{}

func (knowsCoordinators) Answer(w http.ResponseWriter, _ *http.Request, body []byte) bool {
	if string(body) != "a coordinator?" {
		return false
	}
	w.WriteHeader(http.StatusCreated)
	return true
}

// TestReviews checks that the hub itself always answers what coordinators may do, whatever the cloud would say and whether it can
// be reached. Reviews about other users go only to the cloud.
func TestReviews(t *testing.T) {
	var state atomic.Uint32
	var asked []string
	_, u := cloud(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked = append(asked, string(body))
	})
	standIn := &understudy{}
	address, _ := hub(t, Config{
		Cloud: u, StandIn: standIn, Situation: Situation{Node: "n1", StandIn: true}, Warrants: knowsCoordinators{},
		CloudLink:       func() link.State { return link.State(state.Load()) },
		CoordinatorLink: func() link.State { return link.Up },
	})
	const reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	for _, s := range []link.State{link.Unknown, link.Up, link.Failing, link.Down} {
		state.Store(uint32(s))
		for body, want := range map[string]int{"a coordinator?": http.StatusCreated, "ana?": http.StatusOK} {
			response, err := do(t, http.MethodPost, address+reviews, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("the cloud is %v, %q: %d, want %d", s, body, response.StatusCode, want)
			}
		}
	}
	if len(standIn.bodies) > 0 || slices.Contains(asked, "a coordinator?") || len(asked) != 4 {
		t.Errorf("the cloud was asked %q, the stand-in was given %q", asked, standIn.bodies)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+reviews, strings.NewReader("a coordinator?"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer a-token-of-its-own")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("somebody who is not kubelet gets the hub's word: %d", response.StatusCode)
	}
}

// louder shows each answer to a get in capital letters.
type louder struct{}

func (louder) Get(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func()) {
	if !strings.Contains(r.URL.Path, "/configmaps/") {
		return w, func() {}
	}
	said := &heldBack{ResponseWriter: w}
	return said, func() { _, _ = io.WriteString(w, strings.ToUpper(said.text.String())) }
}

type heldBack struct {
	http.ResponseWriter
	text strings.Builder
}

func (h *heldBack) Write(p []byte) (int, error) { return h.text.Write(p) }

// TestKubeletsGetsAreShown checks that kubelet's gets go through Shown, both the cloud's answer and a stored one. Other clients
// get the cloud's form, and replicas already apply the view.
func TestKubeletsGetsAreShown(t *testing.T) {
	var code atomic.Uint32
	_, u := cloud(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(code.Load()))
		_, _ = io.WriteString(w, "the cloud")
	})
	remembering, _ := hub(t, Config{Cloud: u, Keeper: remembers{}, Callers: asked{t}, Shown: louder{}})
	following, _ := hub(t, Config{Cloud: u, Keeper: follows{}, Callers: asked{t}, Shown: louder{}})
	const one, another = "/api/v1/namespaces/a/configmaps/x", "/api/v1/namespaces/a/secrets/x"
	for _, c := range []struct {
		at, path, token string
		code            int
		want            string
	}{
		{remembering, one, "", http.StatusOK, "THE CLOUD"},
		{remembering, one, "", http.StatusServiceUnavailable, "REMEMBERED "},
		{remembering, one, "a", http.StatusOK, "the cloud"},
		{remembering, one, "a", http.StatusServiceUnavailable, "remembered "},
		{remembering, another, "", http.StatusOK, "the cloud"},
		{following, one, "", http.StatusServiceUnavailable, "follower"},
	} {
		code.Store(uint32(c.code))
		var header []string
		if c.token != "" {
			header = []string{"Authorization", "Bearer " + c.token}
		}
		if _, body := ask(t, http.MethodGet, c.at+c.path, header...); body != c.want {
			t.Errorf("%s of %q, the cloud says %d: %q, want %q", c.path, c.token, c.code, body, c.want)
		}
	}
}

// follows is a Keeper that follows all that it is asked for.
type follows struct{ remembers }

func (follows) Answer(w http.ResponseWriter, _ *http.Request, _ string) bool {
	_, err := io.WriteString(w, "follower")
	return err == nil
}
