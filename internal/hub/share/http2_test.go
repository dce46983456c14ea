package share

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// overHTTP2 is a mirror that answers each batch as it comes, by a real server: decide says with which code.
func overHTTP2(tb testing.TB, decide func(end edge.Revision) (code int)) *following {
	tb.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		frames := stream.NewFrameReader(r.Body, stream.JSON, 8<<20)
		for {
			event, err := frames.Read()
			if err != nil {
				return
			}
			if event.Type != stream.Bookmark && event.Type != stream.InitialEventsEnd {
				continue
			}
			line := map[string]any{"applied": event.Object.Revision.String()}
			code := decide(event.Object.Revision)
			if code != http.StatusOK {
				line = map[string]any{"code": code, "message": "no more"}
			}
			text, err := json.Marshal(line)
			if err != nil {
				tb.Error(err)
			}
			_, _ = w.Write(append(text, '\n'))
			if code != http.StatusOK {
				return
			}
			if http.NewResponseController(w).Flush() != nil {
				return
			}
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	tb.Cleanup(server.Close)
	base, err := url.Parse(server.URL)
	if err != nil {
		tb.Fatal(err)
	}
	f := client{server.Client().Transport, base}.follow(tb.Context(), push{
		resource: things, from: "100", term: edge.Term{Transitions: 7, Valid: func() bool { return true }},
		of: stream.Type{GroupVersionKind: things.GroupVersion().WithKind("Thing"), Encoding: stream.JSON},
	})
	tb.Cleanup(f.end)
	return f
}

// TestARefusalIsHeardAtOnce: an HTTP/2 client waits for the body that it sends, which has nothing more to say.
func TestARefusalIsHeardAtOnce(t *testing.T) {
	f := overHTTP2(t, func(end edge.Revision) int {
		if end == 102 {
			return http.StatusForbidden
		}
		return http.StatusOK
	})
	bookmark := func(at edge.Revision) []stream.Event {
		return []stream.Event{{Type: stream.Bookmark, Object: stream.Object{Revision: at}}}
	}
	if taken, err := f.send(bookmark(101)); err != nil || taken.Applied != "101" {
		t.Errorf("acknowledged %q, %v", taken.Applied, err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := f.send(bookmark(102))
		ended <- err
	}()
	select {
	case err := <-ended:
		var why *refusal
		if !errors.As(err, &why) || why.code != http.StatusForbidden || why.message != "no more" {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(batchTimeout):
		t.Fatal("it still waits")
	}
}

// BenchmarkChange sends one change of 6 KB after another, each acknowledged before the next, to a mirror over TLS and HTTP/2. The
// mirror's cost is in this process, too.
func BenchmarkChange(b *testing.B) {
	f := overHTTP2(b, func(edge.Revision) int { return http.StatusOK })
	object := stream.Object{Key: stream.Key{Namespace: "ns", Name: "a"}, Revision: 1, Raw: fmt.Appendf(nil,
		`{"metadata":{"namespace":"ns","name":"a","resourceVersion":"1"},"data":%q}`, strings.Repeat("x", 6<<10))}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.send([]stream.Event{
			{Type: stream.Modified, Object: object}, {Type: stream.Bookmark, Object: stream.Object{Revision: 101}},
		}); err != nil {
			b.Fatal(err)
		}
	}
}
