package shareserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// mirrorBench is a mirror behind HTTP, without the chain that is before it in the coordinator.
type mirrorBench struct {
	mirror *Mirror
	etcd   *pooltest.FakeEtcd
	clock  *clocktesting.FakeClock
	server *httptest.Server
	leader pusher
	filler *pusher // nil means that nobody may fill
}

func newMirrorBench(t testing.TB, quota int64) *mirrorBench {
	t.Helper()
	b := &mirrorBench{
		etcd:   &pooltest.FakeEtcd{Keys: map[string]string{}},
		clock:  clocktesting.NewFakeClock(time.Unix(1000, 0)),
		leader: pusher{"n1", 7},
	}
	builtIns := pushable()
	for r, each := range builtIns {
		each.Prefix = "/registry/" + r.Resource + "/"
		builtIns[r] = each
	}
	b.mirror = NewMirror(MirrorConfig{
		Quota: quota, Clock: ends.Clock{OfDay: b.clock.Now, Ran: b.clock.Now}, Write: b.etcd.Write, BuiltIns: builtIns,
		Stalled: time.Hour,
		Leads:   func(_ context.Context, n edge.NodeName, term int32) error { return b.leader.refuse(n, term) },
		Fills: func(_ context.Context, n edge.NodeName, turn int32) error {
			if b.filler == nil {
				return exchange.Refused(http.StatusForbidden, "somebody leads")
			}
			return b.filler.refuse(n, turn)
		},
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

// pusher is a node, and the term under which it leads, or the turn under which it fills.
type pusher struct {
	node edge.NodeName
	term int32
}

// refuse refuses a push by who is not c.
func (c pusher) refuse(n edge.NodeName, term int32) error {
	if (pusher{n, term}) != c {
		return exchange.Refused(http.StatusForbidden, "node %q leads under term %d", c.node, c.term)
	}
	return nil
}

func (b *mirrorBench) push(
	t testing.TB, r schema.GroupVersionResource, from edge.Revision, e stream.Encoding, body io.Reader,
) pooltest.Answer {
	t.Helper()
	return pooltest.Do(t, b.server.Client(), http.MethodPost, b.server.URL+pooltest.Target(r, from, b.leader.term),
		e.ContentType(true), body,
		b.leader.node.User())
}

func slice(name string, revision edge.Revision) stream.Object {
	return streamtest.Object(streamtest.EndpointSlices, "default", name, revision, "content")
}

// pushSlices pushes EndpointSlices.
func (b *mirrorBench) pushSlices(t testing.TB, from edge.Revision, events ...stream.Event) pooltest.Answer {
	t.Helper()
	return b.push(t, pooltest.SliceResource, from, stream.Protobuf, pooltest.Frames(t, streamtest.EndpointSlices, events...))
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
	b.etcd.Mu.Lock()
	defer b.etcd.Mu.Unlock()
	found := 0
	for key := range b.etcd.Keys {
		if strings.HasPrefix(key, each.builtIn.Prefix) {
			found++
		}
	}
	if found != len(s.Objects) {
		t.Fatalf("etcd has %d keys, the replica %d objects", found, len(s.Objects))
	}
	for _, o := range s.Objects {
		if b.etcd.Keys[string(each.builtIn.Key(o.Key))] != string(stream.Envelope(s.Type, o.Raw)) {
			t.Fatalf("etcd has other bytes at %s than the replica", o.Key)
		}
	}
	return s.Objects
}
