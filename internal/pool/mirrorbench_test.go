package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// fakeEtcd is a map that fails when it is told to.
type fakeEtcd struct {
	mu     sync.Mutex
	keys   map[string]string
	at     map[string]int64 // the write that each key is of
	writes int
	// fail says whether a transaction fails, and whether it is applied all the same.
	fail func() (failed, applied bool)
}

var errEtcd = errors.New("etcd is out of order")

func (e *fakeEtcd) write(_ context.Context, txn *etcdserverpb.TxnRequest) (done bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	failed, applied := false, true
	for _, c := range txn.Compare {
		if e.at[string(c.Key)] != c.GetModRevision() {
			return false, nil
		}
	}
	if e.fail != nil {
		failed, applied = e.fail()
	}
	if applied || !failed {
		seen := map[string]bool{}
		for _, op := range txn.Success {
			put, remove := op.GetRequestPut(), op.GetRequestDeleteRange()
			key := string(put.GetKey()) + string(remove.GetKey())
			if seen[key] || len(txn.Success) > 128 {
				return false, fmt.Errorf("etcd refuses a transaction of %d operations, %s among them twice", len(txn.Success), key)
			}
			seen[key] = true
			if put != nil {
				e.keys[key] = string(put.Value)
			} else {
				delete(e.keys, key)
			}
			e.writes++
			if e.at == nil {
				e.at = map[string]int64{}
			}
			if e.at[key] = int64(e.writes); put == nil {
				delete(e.at, key)
			}
		}
	}
	if failed {
		return false, errEtcd
	}
	return true, nil
}

func (e *fakeEtcd) read(_ context.Context, key []byte) (value []byte, written int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	text, ok := e.keys[string(key)]
	if !ok {
		return nil, 0, nil
	}
	return []byte(text), e.at[string(key)], nil
}

// mirrorBench is a mirror behind HTTP, without the chain that is before it in the coordinator.
type mirrorBench struct {
	mirror *mirror
	etcd   *fakeEtcd
	clock  *clocktesting.FakeClock
	server *httptest.Server
	leader claim
}

var sliceResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}

func newMirrorBench(t testing.TB, quota int64) *mirrorBench {
	t.Helper()
	b := &mirrorBench{
		etcd:   &fakeEtcd{keys: map[string]string{}},
		clock:  clocktesting.NewFakeClock(time.Unix(1000, 0)),
		leader: claim{"n1", 7},
	}
	builtIns := pushable()
	for r, each := range builtIns {
		each.prefix = "/registry/" + r.Resource + "/"
		builtIns[r] = each
	}
	b.mirror = newMirror(mirrorConfig{
		quota: quota, clock: b.clock, write: b.etcd.write, builtIns: builtIns, stalled: time.Hour,
		leads: func(_ context.Context, n edge.NodeName, term int32) error { return b.leader.refuse(n, term) },
	})
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := &user.DefaultInfo{Name: r.Header.Get("X-User"), Groups: []string{edge.GroupNodes}}
		b.mirror.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), caller)))
	}))
	b.server.Config.BaseContext = func(net.Listener) context.Context {
		return klog.NewContext(context.Background(), logr.Discard())
	}
	b.server.EnableHTTP2 = true
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	t.Cleanup(func() { _ = b.mirror.Close() })
	return b
}

// refuse refuses a push by who is not c.
func (c claim) refuse(n edge.NodeName, term int32) error {
	if (claim{n, term}) != c {
		return refused(http.StatusForbidden, "node %q leads under term %d", c.node, c.term)
	}
	return nil
}

// answer is what a push was told.
type answer struct {
	code    int
	body    string
	applied edge.Revision // -1 would be none; 0 is "0" or none
	header  http.Header
}

// target is the query of a push.
func target(r schema.GroupVersionResource, from edge.Revision, term int32) string {
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

func do(t testing.TB, client *http.Client, method, url, contentType string, body io.Reader, user string) answer {
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
	a := answer{code: response.StatusCode, body: string(text), header: response.Header}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	var told line
	if json.Unmarshal(lines[len(lines)-1], &told) == nil {
		a.applied, _ = edge.ParseRevision(told.Applied) // "0" and nothing are 0
	}
	return a
}

func (b *mirrorBench) push(
	t testing.TB, r schema.GroupVersionResource, from edge.Revision, e stream.Encoding, body io.Reader,
) answer {
	t.Helper()
	return do(t, b.server.Client(), http.MethodPost, b.server.URL+target(r, from, b.leader.term), e.ContentType(true), body,
		b.leader.node.User())
}

func frames(t testing.TB, typ stream.Type, events ...stream.Event) *bytes.Buffer {
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

// wholeStream is a stream of everything.
func wholeStream(revision edge.Revision, objects ...stream.Object) []stream.Event {
	var events []stream.Event
	for _, o := range objects {
		events = append(events, stream.Event{Type: stream.Added, Object: o})
	}
	return append(events, stream.Event{Type: stream.InitialEventsEnd, Object: stream.Object{Revision: revision}})
}

func slice(name string, revision edge.Revision) stream.Object {
	return streamtest.Object(streamtest.EndpointSlices, "default", name, revision, "content")
}

// pushSlices pushes EndpointSlices.
func (b *mirrorBench) pushSlices(t testing.TB, from edge.Revision, events ...stream.Event) answer {
	t.Helper()
	return b.push(t, sliceResource, from, stream.Protobuf, frames(t, streamtest.EndpointSlices, events...))
}

// content is what the mirror holds; for a built-in resource it checks that etcd holds the same.
func (b *mirrorBench) content(t testing.TB, r schema.GroupVersionResource) []stream.Object {
	t.Helper()
	each := b.mirror.get(r)
	if each == nil || each.Position() == 0 {
		return nil
	}
	s, err := each.replica.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if each.builtIn == nil {
		return s.Objects
	}
	b.etcd.mu.Lock()
	defer b.etcd.mu.Unlock()
	found := 0
	for key := range b.etcd.keys {
		if strings.HasPrefix(key, each.builtIn.prefix) {
			found++
		}
	}
	if found != len(s.Objects) {
		t.Fatalf("etcd has %d keys, the replica %d objects", found, len(s.Objects))
	}
	for _, o := range s.Objects {
		if b.etcd.keys[string(each.builtIn.key(o.Key))] != string(stream.Envelope(s.Type, o.Raw)) {
			t.Fatalf("etcd has other bytes at %s than the replica", o.Key)
		}
	}
	return s.Objects
}
