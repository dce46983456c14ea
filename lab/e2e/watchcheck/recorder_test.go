package watchcheck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// answer is one step of a server's script: what it does with one request.
type answer func(w http.ResponseWriter, r *http.Request)

// script serves each request by the next answer; further ones wait until their client goes. It returns the URL and the
// requests that came.
func script(t *testing.T, answers ...answer) (*httptest.Server, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n := len(asked)
		asked = append(asked, r.URL.RawQuery)
		mu.Unlock()
		if n < len(answers) {
			answers[n](w, r)
			return
		}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(asked)
	}
}

func object1(name string, revision int, value string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"ns","name":%q,"resourceVersion":"%d",`+
		`"labels":{"app":%q}},"data":{"v":%q}}`, name, revision, value, value)
}

func listing(revision int, items ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, revision,
			strings.Join(items, ","))
	}
}

func told(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

func mark1(revision int, annotation string) string {
	return told("BOOKMARK", fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s}}`,
		revision, annotation))
}

func watching(frames ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range frames {
			fmt.Fprint(w, f)
			w.(http.Flusher).Flush()
		}
	}
}

// holding tells frames and then nothing more.
func holding(frames ...string) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		watching(frames...)(w, r)
		<-r.Context().Done()
	}
}

// cutting tells frames and then breaks the connection.
func cutting(frames ...string) answer {
	return func(w http.ResponseWriter, r *http.Request) {
		watching(frames...)(w, r)
		panic(http.ErrAbortHandler)
	}
}

func refusing(code int, body string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

const gone = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}`

// run records until the recorder stands at a revision, and returns what it observed, without times.
func run(t *testing.T, c Config, until uint64) []Observation {
	t.Helper()
	c.Client, c.Pause = http.DefaultClient, time.Millisecond
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stopping, stop := context.WithCancelCause(ctx)
	done := errors.New("done")
	var owner sync.WaitGroup
	owner.Go(func() {
		if err := r.Run(stopping); !errors.Is(err, done) {
			t.Errorf("Run returned %v", err)
		}
	})
	if err := r.Wait(ctx, until); err != nil {
		t.Errorf("%v; observed: %v", err, r.History())
	}
	stop(done)
	owner.Wait()
	return r.History()
}

func brief(all []Observation) string {
	lines := make([]string, 0, len(all))
	for _, o := range all {
		line := fmt.Sprintf("%s %d", o.Kind, o.Revision)
		if o.Kind == Event {
			line = fmt.Sprintf("%s %s %d", o.Type, o.Key, o.Revision)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

func TestRecorderUnderFaults(t *testing.T) {
	a, b := object1("a", 5, "1"), object1("b", 12, "2")
	event := told("ADDED", b)
	for _, c := range []struct {
		name    string
		config  Config
		answers []answer
		until   uint64
		want    string   // what is observed, up to the end of the last watch
		asked   []string // a part of each request
	}{
		{
			name:    "list and watch",
			answers: []answer{listing(10, a), holding(event, mark1(20, ""))}, until: 20,
			want: "list 10, watch 10, ADDED ns/b 12, bookmark 20", asked: []string{"", "resourceVersion=10"},
		}, {
			name:    "an orderly end is resumed at the last revision",
			answers: []answer{listing(10, a), watching(event), holding(mark1(20, ""))}, until: 20,
			want:  "list 10, watch 10, ADDED ns/b 12, end of watch 0, watch 12, bookmark 20",
			asked: []string{"", "resourceVersion=10", "resourceVersion=12"},
		}, {
			name:    "a cut within a frame",
			answers: []answer{listing(10, a), cutting(event, event[:20]), holding(mark1(20, ""))}, until: 20,
			want:  "list 10, watch 10, ADDED ns/b 12, end of watch 0, watch 12, bookmark 20",
			asked: []string{"", "resourceVersion=10", "resourceVersion=12"},
		}, {
			name:    "a silent stall",
			config:  Config{Silence: 50 * time.Millisecond},
			answers: []answer{listing(10, a), holding(event), holding(mark1(20, ""))}, until: 20,
			want:  "list 10, watch 10, ADDED ns/b 12, end of watch 0, watch 12, bookmark 20",
			asked: []string{"", "resourceVersion=10", "resourceVersion=12"},
		}, {
			name: "refusals of list and watch",
			answers: []answer{
				refusing(500, "no"), listing(10, a), refusing(503, `{"kind":"Status","code":503,"reason":"ServiceUnavailable"}`),
				holding(mark1(20, "")),
			}, until: 20,
			want:  "failure 0, list 10, failure 0, watch 10, bookmark 20",
			asked: []string{"", "", "resourceVersion=10", "resourceVersion=10"},
		}, {
			name:    "a watch refused with 410",
			answers: []answer{listing(10, a), refusing(410, gone), listing(15, a, b), holding(mark1(20, ""))}, until: 20,
			want:  "list 10, 410 0, list 15, watch 15, bookmark 20",
			asked: []string{"", "resourceVersion=10", "", "resourceVersion=15"},
		}, {
			name: "410 within a watch",
			answers: []answer{
				listing(10, a), watching(event, told("ERROR", gone)), listing(15, a, b), holding(mark1(20, "")),
			}, until: 20,
			want:  "list 10, watch 10, ADDED ns/b 12, 410 0, list 15, watch 15, bookmark 20",
			asked: []string{"", "resourceVersion=10", "", "resourceVersion=15"},
		}, {
			name:   "all objects first, after a try that was cut",
			config: Config{WatchList: true},
			answers: []answer{
				cutting(told("ADDED", a)),
				holding(told("ADDED", a), mark1(15, `,"annotations":{"k8s.io/initial-events-end":"true"}`), mark1(20, "")),
			}, until: 20,
			want: "watch 0, ADDED ns/a 5, end of watch 0, watch 0, ADDED ns/a 5, initial events end 15, bookmark 20",
			asked: []string{
				"allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true",
				"sendInitialEvents=true",
			},
		}, {
			name:    "garbage",
			answers: []answer{listing(10, a), watching("<html>"), watching(told("NEWS", a)), holding(mark1(20, ""))}, until: 20,
			want: "list 10, watch 10, end of watch 0, watch 10, end of watch 0, watch 10, bookmark 20", asked: []string{""},
		}, {
			name: "a list in pages and one without a revision",
			answers: []answer{
				watching(`{"metadata":{"resourceVersion":"1","continue":"x"}}`), watching(`{"items":[]}`), listing(20),
			}, until: 20,
			want: "failure 0, failure 0, list 20", asked: []string{""},
		}, {
			name:    "more than fits",
			config:  Config{Limit: 3},
			answers: []answer{listing(10, a), holding(event, mark1(20, ""))}, until: 20,
			want: "list 10, watch 10, overflow 0", asked: []string{""},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, asked := script(t, c.answers...)
			c.config.URL = s.URL + "/api/v1/configmaps"
			got := run(t, c.config, c.until)
			if s := brief(got); !strings.HasPrefix(s+",", c.want+",") {
				t.Errorf("observed:\n%s\nwant:\n%s", s, c.want)
			}
			for i, part := range c.asked {
				if all := asked(); i >= len(all) || !strings.Contains(all[i], part) {
					t.Errorf("request %d should contain %q: %q", i, part, all)
				}
			}
		})
	}
}

// TestEncodingsAgree: one object has one hash, however it is written and wherever it is found.
func TestEncodingsAgree(t *testing.T) {
	config := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", ResourceVersion: "5", Labels: map[string]string{"app": "1"}},
		Data:       map[string]string{"z": "1", "a": "2"},
	}
	encode := func(o runtime.Object) []byte {
		var b strings.Builder
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, &b); err != nil {
			t.Fatal(err)
		}
		return []byte(b.String())
	}
	list := encode(&corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "10"},
		Items: []corev1.ConfigMap{*config},
	})
	later := config.DeepCopy()
	later.ResourceVersion = "12"
	event := metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: encode(later)}}
	frame, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	refusal := metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Raw: encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Code: 410, Reason: metav1.StatusReasonExpired,
	})}}
	last, err := refusal.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	last = append(binary.BigEndian.AppendUint32(nil, uint32(len(last))), last...)

	s, _ := script(t, watching(string(list)), watching(string(frame), string(last)), watching(string(list)),
		cutting(string(frame), string(frame[:30])), holding(string(frame)))
	got := run(t, Config{URL: s.URL, Protobuf: true}, 12)
	if want := "list 10, watch 10, MODIFIED ns/a 12"; !strings.HasPrefix(brief(got), want) {
		t.Fatalf("observed %s, want %s", brief(got), want)
	}

	j, err := readObject([]byte(`{"data":{"a":"2","z":"1"},"metadata":{"name":"a","labels":{"app":"1"},"namespace":"ns",` +
		`"resourceVersion":"7"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if item := got[0].Items["ns/a"]; item.Hash != j.item.Hash || item.Hash != got[2].Item.Hash {
		t.Errorf("hashes differ: in a list %x, in an event %x, as JSON %x", item.Hash, got[2].Item.Hash, j.item.Hash)
	}
}

func TestProtobufFramesEnd(t *testing.T) {
	for _, c := range []struct {
		body string
		want error
	}{
		{"", io.EOF},
		{"\x00\x00", io.ErrUnexpectedEOF},
		{"\x00\x00\x00\x05", io.ErrUnexpectedEOF},
		{"\x00\x00\x00\x05ab", io.ErrUnexpectedEOF},
	} {
		if _, err := newFrames(strings.NewReader(c.body), true)(); !errors.Is(err, c.want) {
			t.Errorf("%q: got %v, want %v", c.body, err, c.want)
		}
	}
	if _, err := newFrames(strings.NewReader("\xff\xff\xff\xff"), true)(); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame of 4 GiB: got %v", err)
	}
}

// TestTruth: a recording of a faultless server makes facts that a recording of the same server passes.
func TestTruth(t *testing.T) {
	a, b := object1("a", 5, "1"), object1("b", 12, "2")
	s, _ := script(t, listing(10, a), holding(told("ADDED", b)), listing(13, a, b))
	truth, err := NewTruth(Config{Client: http.DefaultClient, URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	truth.settle = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	var owner sync.WaitGroup
	owner.Go(func() { _ = truth.Run(ctx) })
	if err := truth.Wait(ctx, 12); err != nil {
		t.Fatal(err)
	}
	facts, err := truth.Facts(ctx)
	stop()
	owner.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if facts.Start != 10 || facts.End != 13 || len(facts.Changes) != 1 {
		t.Errorf("got %+v", facts)
	}
	if err := Check(facts, truth.History(), Bounds{}).Err(); err != nil {
		t.Errorf("the truth's own recording: %v", err)
	}
}
