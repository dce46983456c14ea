package machinery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// at is an Env whose server is a handler.
func at(t *testing.T, handler http.HandlerFunc, header http.Header) *Env {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	// Without a Dial of its own, client-go takes the default transport, which asks for gzip by itself.
	access, err := NewAccess(&rest.Config{Host: server.URL, Dial: (&net.Dialer{}).DialContext}, header)
	if err != nil {
		t.Fatal(err)
	}
	return &Env{
		ctx: t.Context(), Reader: access, Writer: access, Namespace: "ns", Group: "g.example",
		transcript: Transcript{Aliases: map[string]string{}},
	}
}

// ended runs f and returns what ended it.
func ended(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case stopped:
			err = v.error
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

func TestRequests(t *testing.T) {
	e := at(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Warning", "299 - \"old\"")
		w.Header().Set("Date", "nobody's business")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, `{"seen":%q}`,
			fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Accept"), " ", r.Header.Get("Content-Type"),
				" ", r.Header.Get("Accept-Encoding"), " ", r.Header.Get("Edge-Cache"), " ", string(body)))
	}, http.Header{"Edge-Cache": {"true"}})
	e.GetAs("a read", "/a", "x=1&y=%2F", "text/plain")
	e.Try("a write", Request{Method: http.MethodPut, Path: "/b", Body: Object{"k": "v"},
		Header: http.Header{"Edge-Cache": {"no"}}})
	e.Try("quiet", Request{Path: "/c", Plain: true})
	want := []string{
		"GET /a?x=1&y=%2F text/plain   true ", `PUT /b  application/json  no {"k":"v"}`,
	}
	if len(e.transcript.Steps) != len(want) {
		t.Fatalf("%v", e.transcript.Steps)
	}
	for i, s := range e.transcript.Steps {
		seen, _ := s.Seen.(map[string]any)
		body, _ := seen["body"].(map[string]any)
		header, _ := seen["header"].(map[string]any)
		if body["seen"] != want[i] || seen["status"] != 418.0 || header["Warning"] == nil || header["Date"] != nil {
			t.Errorf("step %d: %s", i, short(s))
		}
	}
	if err := ended(func() { e.Write("a write that must succeed", Request{Method: http.MethodPost, Path: "/d"}) }); err == nil {
		t.Error("418 is a success")
	}
}

func TestExpect(t *testing.T) {
	e := at(t, nil, nil)
	e.Expect("it holds", true)
	e.Expect("it does not", false, "since", 1)
	if len(e.wrong) != 1 || !strings.Contains(e.wrong[0].Error(), `["since",1]`) {
		t.Errorf("%v", e.wrong)
	}
	if got := fmt.Sprint(e.transcript.Steps); got != "[{assert: it holds true} {assert: it does not false}]" {
		t.Error(got)
	}
}

func TestWatchReads(t *testing.T) {
	const stream = `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}
{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5"}}}
{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"7"}}}
{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"6"}}}
`
	e := at(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "true" {
			http.Error(w, `{"message":"no"}`, http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, stream)
	}, nil)
	w := e.Watch("whole", "/x", "a=b")
	events := w.Take(never)
	w.Close()
	if got := summary(events); !slices.Equal(got, []string{"ADDED a", "MODIFIED a", "DELETED a"}) {
		t.Errorf("%v", got)
	}
	w = e.Watch("to a bookmark", "/x", "")
	if got := summary(w.Take(first("BOOKMARK"))); !slices.Equal(got, []string{"ADDED a", "BOOKMARK "}) {
		t.Errorf("%v", got)
	}
	w.Close()
	w = e.WatchAs("refused", Request{Path: "/x"})
	w.Take(never)
	w.Close()
	for i, want := range []string{
		`"end":"the watch has ended"`, `"in order":true`, `"refusal":{"message":"no"}`,
	} {
		if got := short(e.transcript.Steps[i].Seen); !strings.Contains(got, want) {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	if got := short(e.transcript.Steps[0].Seen); !strings.Contains(got, `"in order":false`) {
		t.Errorf("versions that go back: %s", got)
	}
}

func TestExactly(t *testing.T) {
	one := object(t, `{"metadata":{"name":"one","resourceVersion":"4"}}`)
	for body, want := range map[string]bool{
		`{"items":[{"metadata":{"name":"one","resourceVersion":"4"}}]}`: true,
		`{"items":[{"metadata":{"name":"one","resourceVersion":"3"}}]}`: false,
		`{"items":[]}`: false,
	} {
		if err := exactly(&Answer{Status: http.StatusOK, JSON: object(t, body)}, []Object{one}); (err == nil) != want {
			t.Errorf("%s: %v", body, err)
		}
	}
	if exactly(&Answer{Status: http.StatusGone, JSON: Object{}}, nil) == nil {
		t.Error("a refusal is a list")
	}
}

func TestUntilEnds(t *testing.T) {
	e := at(t, nil, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	e.ctx = ctx
	reason := errors.New("the lab has ended")
	tries := 0
	err := ended(func() {
		e.Until("it comes", func() error {
			tries++
			cancel(reason)
			return errors.New("not there")
		})
	})
	if !errors.Is(err, reason) || tries == 0 {
		t.Errorf("%v after %d tries", err, tries)
	}
	if err := ended(func() { e.Until("it is there", func() error { return nil }) }); err != nil {
		t.Error(err)
	}
}

func TestHandlerPassesOn(t *testing.T) {
	e := at(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL, " ", r.Header.Get("Authorization"))
	}, http.Header{"Authorization": {"Bearer x"}})
	handler, err := e.Reader.Handler()
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://proxy/a/b?c=d", nil))
	if got := w.Body.String(); got != "/a/b?c=d Bearer x" {
		t.Error(got)
	}
}

func TestDiscoveryOfOthersIsLeftOut(t *testing.T) {
	e := &Env{Group: "node.machinery.example"}
	d := object(t, `{"groups":[{"name":"apps"},{"name":"node.machinery.example"},{"name":"hub.machinery.example"}],
		"items":[{"metadata":{"name":"more.hub.machinery.example"}},{"metadata":{"name":"batch"}}]}`)
	withoutForeign(e, d)
	if got := short(d); got != `{"groups":[{"name":"apps"}],"items":[{"metadata":{"name":"batch"}}]}` {
		t.Error(got)
	}
}
