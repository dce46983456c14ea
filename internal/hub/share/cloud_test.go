package share

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clientrest "k8s.io/client-go/rest"

	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/hub/link"
)

// fakeCloud is a cloud that has Events; of reviews and statuses it only notes that it was asked.
type fakeCloud struct {
	mu       sync.Mutex
	revision int
	events   map[string]*corev1.Event // by name
	log      []string
	fails    error
	code     int    // if not 0, all is answered with it
	before   func() // runs before each answer, once
}

func newFakeCloud() *fakeCloud {
	return &fakeCloud{revision: 100, events: map[string]*corev1.Event{}}
}

func (c *fakeCloud) client(t *testing.T) corev1client.EventsGetter {
	t.Helper()
	client, err := corev1client.NewForConfig(&clientrest.Config{Host: "https://cloud", Transport: c, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (c *fakeCloud) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	before := c.before
	c.before = nil
	c.mu.Unlock()
	if before != nil {
		before()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		return nil, c.fails
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if c.code != 0 {
		c.log = append(c.log, fmt.Sprint(c.code))
		c.refuse(w, c.code)
		return w.Result(), nil
	}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(r.URL.Path, "/events") {
		c.log = append(c.log, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusOK)
		return w.Result(), nil
	}
	c.event(w, r, body)
	return w.Result(), nil
}

func (c *fakeCloud) refuse(w http.ResponseWriter, code int) {
	reason := metav1.StatusReason(strings.ReplaceAll(http.StatusText(code), " ", ""))
	if code == http.StatusConflict {
		reason = metav1.StatusReasonAlreadyExists
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: http.StatusText(code),
	})
}

func (c *fakeCloud) event(w http.ResponseWriter, r *http.Request, body []byte) {
	event := &corev1.Event{}
	code := http.StatusCreated
	if r.Method == http.MethodPost {
		var err error
		if event, err = readEvent(body); err != nil {
			panic(err)
		}
		if event.ResourceVersion != "" || event.UID != "" {
			panic("a new Event has a resourceVersion or a uid: " + string(body))
		}
		c.log = append(c.log, "create "+event.Name)
		if c.events[event.Name] != nil {
			c.refuse(w, http.StatusConflict)
			return
		}
		event.UID = "from-the-cloud"
	} else {
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		c.log = append(c.log, "patch "+name)
		if c.events[name] == nil {
			c.refuse(w, http.StatusNotFound)
			return
		}
		old, _ := json.Marshal(c.events[name])
		text, err := strategicpatch.StrategicMergePatch(old, body, event)
		if err == nil {
			err = json.Unmarshal(text, event)
		}
		if err != nil {
			panic(err)
		}
		code = http.StatusOK
	}
	c.revision++
	event.Kind, event.APIVersion, event.ResourceVersion = "Event", "v1", fmt.Sprint(c.revision)
	c.events[event.Name] = event
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(event)
}

func (c *fakeCloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// cut cuts the cloud off, heal brings it back.
func (w *takerWorld) cut() {
	w.cloud.set(func() { w.cloud.fails = errors.New("no route") })
	w.cloudLink.Set(link.Down)
}

func (w *takerWorld) heal() {
	w.cloud.set(func() { w.cloud.fails = nil })
	w.cloudLink.Set(link.Up)
}

// cloudAsked expects what the cloud was asked since the last time, and cloudHas the Events that it has, with their counts.
func (w *takerWorld) cloudAsked(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.cloud.set(func() {
		if !slices.Equal(w.cloud.log, want) {
			w.t.Errorf("the cloud was asked %q, want %q", w.cloud.log, want)
		}
		w.cloud.log = nil
	})
}

func (w *takerWorld) cloudHas(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.cloud.set(func() {
		got := []string{}
		for name, e := range w.cloud.events {
			got = append(got, fmt.Sprintf("%s×%d", name, e.Count))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			w.t.Errorf("the cloud has Events %q, want %q", got, want)
		}
	})
}

// sends makes a request as a program of the node, and returns the answer; nil means none.
func (w *takerWorld) sends(method, path, contentType string, body []byte, accept string) *http.Response {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", accept)
	return w.serves(w.cloud, r)
}

// asNode reaches a cloud with the node's identity alone.
type asNode struct{ http.RoundTripper }

func (a asNode) AsNode() http.RoundTripper   { return a }
func (a asNode) AsCaller() http.RoundTripper { return nil }
func (asNode) Serves(context.Context) bool   { return false }

// noReplicas and noKeeper have nothing.
type (
	noReplicas struct{ http.Handler }
	noKeeper   struct{ front.Keeper }
)

func (noReplicas) Has(schema.GroupVersionResource) bool { return false }
func (noKeeper) Match(*http.Request) bool               { return false }
func (noKeeper) Written(w http.ResponseWriter, r *http.Request, _ string, pass http.Handler) {
	pass.ServeHTTP(w, r)
}

// serves answers a request by a front, with a cloud behind it and the Taker as its stand-in; nil means no answer.
func (w *takerWorld) serves(cloud http.RoundTripper, r *http.Request) *http.Response {
	w.t.Helper()
	f := front.New(front.Config{
		Proof: kubelets{},
		Cloud: asNode{cloud}, StandIn: w.taker, Situation: front.Situation{Node: "n1", StandIn: true},
		CloudLink: w.cloudLink.Get, CoordinatorLink: w.link.Get,
		Replicas: noReplicas{}, Keeper: noKeeper{}, MaxReadOnly: 1, MaxMutating: 1, MaxLongRunning: 1,
	})
	out := httptest.NewRecorder()
	f.ServeHTTP(out, r)
	if strings.Contains(out.Body.String(), "yurthub: ") { // the front says that there is no answer
		return nil
	}
	return out.Result()
}

// answers expects a request to be answered with a code (0: not at all), and reads the object.
func (w *takerWorld) answers(response *http.Response, code int, into any) {
	w.t.Helper()
	if response == nil {
		if code != 0 {
			w.t.Errorf("no answer, want %d", code)
		}
		return
	}
	text, err := io.ReadAll(response.Body)
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil || response.StatusCode != code {
		w.t.Errorf("%d %s, %v, want %d", response.StatusCode, text, err, code)
	}
}

// fakeDisk is a disk.
type fakeDisk struct {
	mu      sync.Mutex
	blobs   map[string][]byte
	flushed int
}

func newFakeDisk() *fakeDisk { return &fakeDisk{blobs: map[string][]byte{}} }

func (d *fakeDisk) PutBlob(key string, value []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blobs[key] = value
	return nil
}

func (d *fakeDisk) Blob(key string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if value, ok := d.blobs[key]; ok {
		return value, nil
	}
	return nil, errors.New("none")
}

func (d *fakeDisk) DropBlob(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.blobs, key)
}

func (d *fakeDisk) Flush(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flushed++
	return nil
}

func (d *fakeDisk) Blobs(prefix string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []string
	for key := range d.blobs {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// kubelets takes every request for kubelet's.
type kubelets struct{}

func (kubelets) Judge(*http.Request) front.Verdict       { return front.Kubelet }
func (kubelets) Credentials(*http.Request) front.Verdict { return front.Kubelet }
