package pooltest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Slowly is a body that stalls after its first bytes.
type Slowly struct {
	First []byte
	Until <-chan struct{}
}

func (s *Slowly) Read(p []byte) (int, error) {
	if len(s.First) > 0 {
		n := copy(p, s.First)
		s.First = s.First[n:]
		return n, nil
	}
	<-s.Until
	return 0, io.ErrUnexpectedEOF
}

// SliceResource is the resource that most tests push.
var SliceResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}

// Answer is what a push was told.
type Answer struct {
	Code    int
	Body    string
	Applied edge.Revision // -1 would be none; 0 is "0" or none
	Header  http.Header
}

// Target is the query of a push.
func Target(r schema.GroupVersionResource, from edge.Revision, term int32) string {
	group := r.Group
	if group == "" {
		group = "core"
	}
	text := fmt.Sprintf("%s/%s/%s/%s?term=%d", edge.PathMirror, group, r.Version, r.Resource, term)
	if from != 0 {
		text += "&from=" + from.String()
	}
	return text
}

// Do makes a request, with user in the header X-User, which the servers of tests believe, and returns the answer.
func Do(t testing.TB, client *http.Client, method, url, contentType string, body io.Reader, user string) Answer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if user != "" {
		r.Header.Set("X-User", user)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	defer cancel() // before Close, which would wait for the body
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := Answer{Code: response.StatusCode, Body: string(text), Header: response.Header}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var told Line
	if json.Unmarshal(lines[len(lines)-1], &told) == nil {
		a.Applied, _ = edge.ParseRevision(told.Applied) // "0" and nothing are 0
	}
	return a
}

// Frames returns events as a watch stream.
func Frames(t testing.TB, typ stream.Type, events ...stream.Event) *bytes.Buffer {
	t.Helper()
	var buffer bytes.Buffer
	w := stream.NewFrameWriter(&buffer, typ)
	for _, event := range events {
		if err := w.Write(event); err != nil {
			t.Fatal(err)
		}
	}
	return &buffer
}

// WholeStream is a stream of everything.
func WholeStream(revision edge.Revision, objects ...stream.Object) []stream.Event {
	var events []stream.Event
	for _, o := range objects {
		events = append(events, stream.Event{Type: stream.Added, Object: o})
	}
	return append(events, stream.Event{Type: stream.InitialEventsEnd, Object: stream.Object{Revision: revision}})
}

// Line is one of an answer.
type Line struct {
	Applied string
	Code    int
	Message string
	Details struct{ RetryAfterSeconds int }
}

// Following is a push of changes under way.
type Following struct {
	t    testing.TB
	Body *io.PipeWriter
	told chan Line // closed at the end of the answer
	Code chan int  // that of the answer, once it has begun
}

// Follow begins a push of changes. It ends with the test.
func Follow(t testing.TB, client *http.Client, url, user string, e stream.Encoding) *Following {
	t.Helper()
	content, body := io.Pipe()
	f := &Following{t: t, Body: body, told: make(chan Line, 100), Code: make(chan int, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, content)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", e.ContentType(true))
	r.Header.Set("X-User", user)
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		_ = body.CloseWithError(context.Canceled) // a client that waits for its body does not see its context end
		<-done
	})
	go func() {
		defer close(done)
		defer close(f.told)
		defer content.Close() //nolint:errcheck // never fails
		response, err := client.Do(r)
		if err != nil {
			f.Code <- 0
			return
		}
		defer response.Body.Close()
		defer cancel() // before Close, which would wait for the body
		f.Code <- response.StatusCode
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			var l Line
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Errorf("%s: %v", lines.Bytes(), err)
			}
			f.told <- l
		}
	}()
	return f
}

// Send sends a part of the body.
func (f *Following) Send(content []byte) {
	f.t.Helper()
	if _, err := f.Body.Write(content); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		f.t.Error(err)
	}
}

// Next is the next line; nil at the end.
func (f *Following) Next() *Line {
	f.t.Helper()
	select {
	case l, open := <-f.told:
		if open {
			return &l
		}
	case <-time.After(20 * time.Second):
		f.t.Error("nothing is told")
	}
	return nil
}

// Acknowledged waits for the next line, which must acknowledge a revision.
func (f *Following) Acknowledged(want edge.Revision) {
	f.t.Helper()
	if got := f.Next(); got == nil || *got != (Line{Applied: want.String()}) {
		f.t.Fatalf("told %+v, want that %d is applied", got, want)
	}
}

// Ended waits for the last line, which has a code, or for an end without one.
func (f *Following) Ended(code int) Line {
	f.t.Helper()
	got := f.Next()
	if got == nil {
		got = &Line{}
	}
	if got.Code != code {
		f.t.Errorf("told %+v, want %d", got, code)
	}
	if code != 0 && got.Message == "" {
		f.t.Errorf("%d says nothing", code)
	}
	if after := f.Next(); after != nil {
		f.t.Errorf("it goes on: %+v", after)
	}
	return *got
}
