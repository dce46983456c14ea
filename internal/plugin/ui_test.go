package plugin

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// asked is what a coordinator was asked.
type asked struct {
	mu  sync.Mutex
	all []*http.Request
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.all = append(a.all, r)
	a.mu.Unlock()
	if r.URL.Path == "/ui/refused" {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'")
	_, _ = io.WriteString(w, "page at "+r.URL.RequestURI())
}

func (a *asked) paths() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []string
	for _, r := range a.all {
		all = append(all, r.Method+" "+r.URL.RequestURI())
	}
	return strings.Join(all, "\n")
}

// coordinatorOf returns how to reach a server.
func coordinatorOf(t *testing.T, h http.Handler) *rest.Config {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

func TestOnlyThePageIsPassedOn(t *testing.T) {
	told := &asked{}
	p, err := newPageProxy(coordinatorOf(t, told))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(p)
	defer server.Close()
	p.host = strings.TrimPrefix(server.URL, "http://")
	ask := func(method, url string, header map[string]string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range header {
			r.Header.Set(k, v)
		}
		r.Host = header["Host"]
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	link := p.link()
	for _, c := range []struct {
		name, method, url string
		header            map[string]string
		want              int
	}{
		{"the page", http.MethodGet, link, nil, http.StatusOK},
		{"a part of it", http.MethodGet, link + "live?node=n1&page=2", nil, http.StatusOK},
		{"what it refuses", http.MethodGet, link + "refused", nil, http.StatusForbidden},
		{"without the token", http.MethodGet, server.URL + "/ui/", nil, http.StatusNotFound},
		{"with a guessed one", http.MethodGet, server.URL + "/guess/ui/", nil, http.StatusNotFound},
		{"with a part of it", http.MethodGet, server.URL + "/" + p.token[:5] + "/ui/", nil, http.StatusNotFound},
		{"something else with it", http.MethodGet, server.URL + "/" + p.token + "/api/v1/pods", nil, http.StatusNotFound},
		{"a way out of it", http.MethodGet, link + "..%2fapi/v1/pods", nil, http.StatusNotFound},
		{"another way out", http.MethodGet, link + "%2e%2e/api/v1/pods", nil, http.StatusNotFound},
		{"a change", http.MethodPost, link, nil, http.StatusMethodNotAllowed},
		{"by another name", http.MethodGet, link, map[string]string{"Host": "evil.example"}, http.StatusMisdirectedRequest},
		{"by localhost", http.MethodGet, link, map[string]string{"Host": "localhost"}, http.StatusMisdirectedRequest},
	} {
		if code, body := ask(c.method, c.url, c.header); code != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, code, body, c.want)
		}
	}
	if got, want := told.paths(), "GET /ui/\nGET /ui/live?node=n1&page=2\nGET /ui/refused"; got != want {
		t.Errorf("the coordinator was asked\n%s\nwant\n%s", got, want)
	}
	ask(http.MethodGet, link, map[string]string{
		"Cookie": "other=1", "Authorization": "Bearer mine", "Origin": "https://evil.example", "Impersonate-User": "admin",
		"Accept": "text/html", "Upgrade": "websocket", "Connection": "Upgrade",
	})
	last := told.all[len(told.all)-1].Header
	if last.Get("Authorization") != "Bearer secret" || last.Get("Accept") != "text/html" {
		t.Errorf("the coordinator got %v, want the kubeconfig's own right", last)
	}
	for _, not := range []string{"Cookie", "Origin", "Impersonate-User", "Upgrade", "Referer", "X-Forwarded-For"} {
		if last.Get(not) != "" {
			t.Errorf("the coordinator got the browser's %s: %q", not, last.Get(not))
		}
	}
}

// lines is an output that others read while it is written.
type linesOut struct {
	mu   sync.Mutex
	text bytes.Buffer
	has  chan struct{} // closed when something is written
	once sync.Once
}

func (l *linesOut) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.once.Do(func() { close(l.has) })
	return l.text.Write(b)
}

func (l *linesOut) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestShowPage(t *testing.T) {
	told := &asked{}
	ctx, cancel := context.WithCancel(t.Context())
	out, done := &linesOut{has: make(chan struct{})}, make(chan error, 1)
	go func() { done <- showPage(ctx, out, coordinatorOf(t, told), "p1", 0) }()
	select {
	case <-out.has:
	case err := <-done:
		t.Fatal(err)
	}
	var link string
	for _, word := range strings.Fields(out.String()) {
		if strings.HasPrefix(word, "http://127.0.0.1:") {
			link = word
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatalf("%q: %v", out.String(), err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || string(body) != "page at /ui/" || response.Header.Get("Content-Security-Policy") == "" {
		t.Errorf("%q, %v, %v", body, response.Header, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What is wrong is told on the terminal, not in the browser.
func TestShowPageSaysWhatIsWrong(t *testing.T) {
	refuses := coordinatorOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `User "x" cannot get path "/ui/"`, http.StatusForbidden)
	}))
	stranger := coordinatorOf(t, &asked{})
	stranger.CAData = nil
	gone := coordinatorOf(t, &asked{})
	gone.Host = "https://127.0.0.1:1"
	for name, c := range map[string]struct {
		access *rest.Config
		want   string
	}{
		"who may not": {refuses, `cannot get path "/ui/"`}, "another server": {stranger, "certificate"}, "nobody": {gone, "LAN"},
	} {
		var out bytes.Buffer
		if err := showPage(t.Context(), &out, c.access, "p1", 0); err == nil || !strings.Contains(err.Error(), c.want) ||
			out.Len() > 0 {
			t.Errorf("%s: %v, %q; want %q", name, err, out.String(), c.want)
		}
	}
}
