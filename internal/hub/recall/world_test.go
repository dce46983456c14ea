package recall

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/store"
)

// faulty is a disk that can be broken.
type faulty struct {
	*store.Store
	mu    sync.Mutex
	fails error
}

func (f *faulty) PutBlob(key string, value []byte) error {
	f.mu.Lock()
	err := f.fails
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Store.PutBlob(key, value)
}

// world is what is remembered for the node's programs, the disk, and the cloud.
type world struct {
	*Answers
	t     *testing.T
	dir   string
	bound map[string]int // of the disk's blobs
	disk  *faulty
	link  *live.Value[link.State]
	mu    sync.Mutex
	said  []string // what the cloud was asked by passing on
	cloud http.HandlerFunc
	// tenure goes by a clock that tests set, and by these Pods: namespace/name → UID.
	tenure *Tenure
	passes time.Duration
	pods   map[string]string
	given  []string // tokens
}

func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), link: live.NewValue(link.Up), pods: map[string]string{}}
	w.open()
	test(t, w)
	w.close()
}

func (w *world) open() {
	w.t.Helper()
	disk, err := store.Open(store.Config{Dir: w.dir, BlobBytes: w.bound})
	if err != nil {
		w.t.Fatal(err)
	}
	w.disk = &faulty{Store: disk}
	w.tenure = NewTenure(TenureConfig{
		Node: "n1", Limit: 24 * time.Hour, Disk: w.disk,
		Wall:   func() time.Time { return time.Unix(1e9, 0).Add(w.passes) },
		PodUID: func(namespace, name string) (string, bool) { return w.pods[namespace+"/"+name], true },
		Boot:   func() (string, time.Duration) { return "boot", w.passes },
	})
	ended, end := context.WithCancel(w.t.Context())
	end()
	if err := w.tenure.Run(ended); err != nil {
		w.t.Fatal(err)
	}
	w.Answers = w.of("", w.disk)
}

func (w *world) close() {
	w.t.Helper()
	if err := w.disk.Flush(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	if err := w.disk.Close(); err != nil {
		w.t.Error(err)
	}
}

// of returns the answers of a client.
func (w *world) of(client string, disk Disk) *Answers {
	w.t.Helper()
	return New(Config{
		Client: client, Disk: disk, Node: "n1", Tenure: w.tenure, Given: func(token string) { w.given = append(w.given, token) },
	})
}

// restart is a restart of the hub.
func (w *world) restart() {
	w.t.Helper()
	w.close()
	w.open()
}

var infos = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// asked is a request as the front hands it on.
func asked(t *testing.T, method, target string, content io.Reader, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(method, target, content).WithContext(t.Context())
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	info, err := infos.NewRequestInfo(r)
	if err != nil {
		t.Fatal(err)
	}
	return r.WithContext(request.WithRequestInfo(r.Context(), info))
}

// ask has a request answered, as the front does.
func (w *world) ask(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	request := func() *http.Request {
		var content io.Reader
		if body != "" {
			content = strings.NewReader(body)
		}
		return asked(w.t, method, target, content, header...)
	}
	known := func(out *httptest.ResponseRecorder) bool {
		ok := w.Recall(out, request())
		if !ok && len(out.Header()) > 0 {
			w.t.Errorf("it is not known, and %v is written", out.Header())
		}
		return ok
	}
	out, down := httptest.NewRecorder(), w.link.Get() == link.Down
	if down && known(out) {
		return out
	}
	said := httptest.NewRecorder()
	w.Remember(said, request(), http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.said = append(w.said, r.Method+" "+r.URL.RequestURI())
		w.mu.Unlock()
		w.cloud(out, r)
	}))
	if !down && w.noAnswer(said.Code, request()) && known(out) {
		return out
	}
	return said
}

// noAnswer reports whether the front takes a status for none. 401 to the node it does.
func (w *world) noAnswer(code int, r *http.Request) bool {
	info, _ := request.RequestInfoFrom(r.Context())
	switch code {
	case http.StatusUnauthorized:
		return w.cfg.Client == ""
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return scheme.Scheme.IsGroupRegistered(info.APIGroup)
	default:
		return false
	}
}

func (w *world) get(target string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	return w.ask(http.MethodGet, target, "", header...)
}

// passed returns what was passed on since it was last asked.
func (w *world) passed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// passedOn checks that one request, and no other, was passed on.
func (w *world) passedOn() {
	w.t.Helper()
	if said := w.passed(); len(said) != 1 {
		w.t.Errorf("passed on: %v, want one request", said)
	}
}

// want checks an answer.
func want(t *testing.T, out *httptest.ResponseRecorder, code int, parts ...string) {
	t.Helper()
	if out.Code != code {
		t.Errorf("%d, want %d: %s", out.Code, code, out.Body)
	}
	for _, part := range parts {
		if !strings.Contains(out.Body.String(), part) {
			t.Errorf("the answer has no %s: %s", part, out.Body)
		}
	}
}
