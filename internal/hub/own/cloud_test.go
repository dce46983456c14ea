package own

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clientrest "k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/stream"
)

// fakeCloud is a cloud that has ServiceAccounts.
type fakeCloud struct {
	mu       sync.Mutex
	accounts map[string]*corev1.ServiceAccount
	reads    []string // of ServiceAccounts
	log      []string
	fails    error
	code     int // if not 0, all is answered with it
}

func newFakeCloud() *fakeCloud { return &fakeCloud{accounts: map[string]*corev1.ServiceAccount{}} }

func (c *fakeCloud) client(t *testing.T) corev1client.ServiceAccountsGetter {
	t.Helper()
	client, err := corev1client.NewForConfig(&clientrest.Config{Host: "https://cloud", Transport: c, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (c *fakeCloud) RoundTrip(r *http.Request) (*http.Response, error) {
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
	c.account(w, r)
	return w.Result(), nil
}

func (c *fakeCloud) refuse(w http.ResponseWriter, code int) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reasons[code],
	})
}

var reasons = map[int]metav1.StatusReason{
	http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden,
}

func (c *fakeCloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// cut cuts the cloud off, heal brings it back.
func (w *world) cut() {
	w.cloud.set(func() { w.cloud.fails = errors.New("no route") })
	w.cloudLink.Set(link.Down)
	w.overlay.set(func() { w.overlay.cut = true })
}

func (w *world) heal() {
	w.cloud.set(func() { w.cloud.fails = nil })
	w.cloudLink.Set(link.Up)
	w.overlay.set(func() { w.overlay.cut = false })
}

// fakeOverlay is what a test has the node say itself.
type fakeOverlay struct {
	mu      sync.Mutex
	cut     bool
	objects map[stream.ID]stream.Object
	said    map[stream.ID]uint64
	in      edge.History // of the objects
	adopted map[stream.Key]edge.Revision
	dropped []stream.Key
}

func newFakeOverlay() *fakeOverlay {
	return &fakeOverlay{
		objects: map[stream.ID]stream.Object{}, said: map[stream.ID]uint64{}, adopted: map[stream.Key]edge.Revision{},
	}
}

func (o *fakeOverlay) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func (o *fakeOverlay) Cut(time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cut
}

func (o *fakeOverlay) AddTo(
	objects map[stream.ID]stream.Object, in map[stream.ID]edge.History, said map[stream.ID]uint64, _ bool,
) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, each := range o.objects {
		if objects[i] = each; i.Resource == events {
			in[i] = o.in
		}
		if o.said[i] != 0 {
			said[i] = o.said[i]
		}
	}
}

func (o *fakeOverlay) HasEvent(k stream.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, there := o.objects[stream.ID{Resource: events, Key: k}]
	return there || o.adopted[k] != 0
}

func (o *fakeOverlay) DropEvent(k stream.Key) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dropped = append(o.dropped, k)
	delete(o.objects, stream.ID{Resource: events, Key: k})
}

func (o *fakeOverlay) AdoptEvent(k stream.Key, as edge.Moment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.adopted[k] = as.Revision
}

// says has the node say something of an object, with a digest; 0: the cloud has heard it. An object without Raw is said no more.
func (w *world) says(resource string, o stream.Object, digest uint64) {
	w.overlay.set(func() {
		i := stream.ID{Resource: resource, Key: o.Key}
		w.overlay.objects[i], w.overlay.said[i] = o, digest
		if o.Raw == nil {
			delete(w.overlay.objects, i)
		}
	})
	w.changed()
}
