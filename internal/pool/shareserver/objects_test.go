package shareserver

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
)

// bench is what takes nodes' objects behind HTTP, without the chain that is before it in the coordinator.
type bench struct {
	t       *testing.T
	objects *NodeObjects
	etcd    *pooltest.FakeEtcd
	clock   *clocktesting.FakeClock
	server  *httptest.Server

	mu  sync.Mutex
	log []string
}

func newBench(t *testing.T, secrets bool) *bench {
	t.Helper()
	b := &bench{t: t, etcd: &pooltest.FakeEtcd{Keys: map[string]string{}}, clock: clocktesting.NewFakeClock(epoch)}
	kinds := allKinds(secrets)
	for r, k := range kinds {
		k.Prefix = "/registry/" + k.resource + "/"
		kinds[r] = k
	}
	b.objects = NewNodeObjects(NodeObjectsConfig{
		Quota: 64 << 20, Clock: ends.Clock{OfDay: b.clock.Now, Ran: b.clock.Now}, Write: b.etcd.Write, Read: b.etcd.Read,
		Kinds: kinds, Stalled: time.Hour,
		Log: funcr.New(func(_, line string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.log = append(b.log, line)
		}, funcr.Options{}),
	})
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := &user.DefaultInfo{Name: r.Header.Get("X-User"), Groups: []string{edge.GroupNodes}}
		b.objects.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), caller)))
	}))
	b.server.Config.BaseContext = func(net.Listener) context.Context {
		return klog.NewContext(context.Background(), logr.Discard())
	}
	b.server.EnableHTTP2 = true
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	return b
}

func (b *bench) hub(n edge.NodeName) *pooltest.Hub {
	return &pooltest.Hub{T: b.t, Client: b.server.Client(), Base: b.server.URL, Node: n}
}

// inEtcd are the keys below /registry/.
func (b *bench) inEtcd(want ...string) {
	b.t.Helper()
	b.etcd.Mu.Lock()
	defer b.etcd.Mu.Unlock()
	var got []string
	for key := range b.etcd.Keys {
		got = append(got, strings.TrimPrefix(key, "/registry/"))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.t.Errorf("etcd has %v, want %v", got, want)
	}
}

// counts are series of the metrics.
func (b *bench) counts(want ...string) {
	b.t.Helper()
	var got []string
	for _, c := range b.objects.Metrics() {
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(c)
		families, err := registry.Gather()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, f := range families {
			m := f.GetMetric()[0]
			got = append(got, fmt.Sprintf("%s %g", f.GetName(), m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("the metrics say %q, want %q", got, want)
	}
}

// TestTwoNodesShareWhatTheirPodsUse is the life of some objects.
func TestTwoNodesShareWhatTheirPodsUse(t *testing.T) {
	b := newBench(t, false)
	one, two := b.hub("n1"), b.hub("n2")
	one.Has()
	two.Has()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10, "conf", "mine")),
		pooltest.Put(pooltest.PodOf(t, "n1", "a2", 11)))
	two.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "b", 12, "conf")))
	one.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 7)), pooltest.Put(pooltest.MapOf(t, "mine", 8)))
	two.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 7)))
	one.Must(pooltest.KindEvent, pooltest.Put(pooltest.EventOf(t, "n1", "a", 30)))
	one.Has("configmaps shop/conf@7", "configmaps shop/mine@8", "events shop/a.17@30", "nodes /n1@5", "pods shop/a@10",
		"pods shop/a2@11")
	two.Has("configmaps shop/conf@7", "pods shop/b@12")
	b.inEtcd("configmaps/shop/conf", "configmaps/shop/mine", "events/shop/a.17", "nodes/n1", "pods/shop/a", "pods/shop/a2",
		"pods/shop/b")

	stored := stream.Envelope(pooltest.ProtobufType(pooltest.KindPod), pooltest.PodOf(t, "n1", "a", 10, "conf", "mine").Raw)
	if b.etcd.Keys["/registry/pods/shop/a"] != string(stored) {
		t.Error("the Pod is not here as the cloud has written it")
	}

	gone := pooltest.PodOf(t, "n1", "a", 10)
	gone.Revision = 40
	one.Must(pooltest.KindPod, pooltest.Del(gone))
	one.Has("events shop/a.17@30", "nodes /n1@5", "pods shop/a2@11")
	b.inEtcd("configmaps/shop/conf", "events/shop/a.17", "nodes/n1", "pods/shop/a2", "pods/shop/b")
}

// TestTwoHistories: hubs push anew what a restored cloud has, and what comes late from before does no harm.
func TestTwoHistories(t *testing.T) {
	b := newBench(t, false)
	one, two := b.hub("n1"), b.hub("n2")
	for _, h := range []*pooltest.Hub{one, two} {
		h.Ask()
		h.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, h.Node, h.Name("stays"), 691, "conf")),
			pooltest.Put(pooltest.PodOf(t, h.Node, h.Name("lost"), 710)))
		h.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 700)))
	}
	inMap := func(revision int) {
		t.Helper()
		want := stream.Envelope(pooltest.ProtobufType(pooltest.KindMap), pooltest.MapOf(t, "conf", revision).Raw)
		if b.etcd.Keys["/registry/configmaps/shop/conf"] != string(want) {
			t.Errorf("the ConfigMap is not here as of revision %d", revision)
		}
	}
	late := *one
	one.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n1", "n1-lost", 710)))
	one.History = 1
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "n1-stays", 397, "conf")))
	one.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 300)))
	inMap(300)
	two.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 720)))
	inMap(300)
	one.Has("configmaps shop/conf@300 of history 1", "pods shop/n1-stays@397 of history 1")
	two.Has("configmaps shop/conf@720", "pods shop/n2-lost@710", "pods shop/n2-stays@691")

	late.Tag = one.Tag
	for what, e := range map[string]stream.Event{
		"put":      pooltest.Put(pooltest.PodOf(t, "n1", "n1-stays", 720)),
		"deletion": pooltest.Del(pooltest.PodOf(t, "n1", "n1-stays", 720)),
	} {
		if code := late.Push(pooltest.KindPod, e); code != http.StatusConflict {
			t.Errorf("a late %s of the history before: %d", what, code)
		}
	}
	one.Has("configmaps shop/conf@300 of history 1", "pods shop/n1-stays@397 of history 1")
	two.History = 1
	two.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 301)))
	inMap(301)
	b.inEtcd("configmaps/shop/conf", "pods/shop/n1-stays", "pods/shop/n2-lost", "pods/shop/n2-stays")
	if code, _, _ := one.Do(http.MethodPost, one.On("pods"), map[string]string{
		"Content-Type": stream.Protobuf.ContentType(true), edge.HeaderHistory: "first",
	}, nil); code != http.StatusBadRequest {
		t.Errorf("no history: %d", code)
	}
}

// TestAForeignHubChangesNothing: whatever a node says, it is of its own objects.
func TestAForeignHubChangesNothing(t *testing.T) {
	b := newBench(t, false)
	one, liar := b.hub("n1"), b.hub("n2")
	one.Ask()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10, "conf")))
	one.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 7)))
	one.Must(pooltest.KindEvent, pooltest.Put(pooltest.EventOf(t, "n1", "a", 30)))
	before := maps.Clone(b.etcd.Keys)
	liar.Ask()
	stale := *liar
	for what, c := range map[string]struct {
		kind  schema.GroupVersionKind
		event stream.Event
		code  int
	}{
		"overwrites a Node":                   {pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 50)), 403},
		"overwrites a Pod":                    {pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 50)), 403},
		"makes a Pod of nobody":               {pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "", "c", 50)), 403},
		"writes a ConfigMap":                  {pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 50)), 409},
		"writes an Event about another's Pod": {pooltest.KindEvent, pooltest.Put(pooltest.EventOf(t, "n2", "a", 50)), 409},
		"writes an Event as another":          {pooltest.KindEvent, pooltest.Put(pooltest.EventOf(t, "n1", "a", 50)), 403},
		// These do nothing, and that is no mistake: a hub says of what it does not have that it is gone.
		"deletes a Node":      {pooltest.KindNode, pooltest.Del(pooltest.NodeOf(t, "n1", 50)), 200},
		"deletes a Pod":       {pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n1", "a", 50)), 200},
		"deletes a ConfigMap": {pooltest.KindMap, pooltest.Del(pooltest.MapOf(t, "conf", 50)), 200},
	} {
		if code := liar.Push(c.kind, c.event); code != c.code {
			t.Errorf("%s: got %d, want %d", what, code, c.code)
		}
	}
	if !maps.Equal(before, b.etcd.Keys) {
		t.Error("etcd has something else than before")
	}
	one.Has("configmaps shop/conf@7", "events shop/a.17@30", "nodes /n1@5", "pods shop/a@10")
	liar.Has()
	forbidden := slices.DeleteFunc(slices.Clone(b.log), func(l string) bool {
		return !strings.Contains(l, "Refused objects") || !strings.Contains(l, `"user"="system:node:n2"`)
	})
	if all := strings.Join(forbidden, "\n"); len(forbidden) != 4 || !strings.Contains(all, "/pods/shop/a") ||
		!strings.Contains(all, `it belongs to node \"n1\"`) {
		t.Errorf("the log has %q, want the four that were forbidden", b.log)
	}
	for resource, code := range map[string]int{
		"core/v1/secrets": 403, "core/v1/services": 403, "core/v2/pods": 403, "rbac.authorization.k8s.io/v1/clusterroles": 403,
		"coordination.k8s.io/v1/leases": 403, "core/v1/pods/status": 404, "core/v1": 404,
	} {
		got, _, _ := liar.Do(http.MethodPost, edge.PathOwn+"/"+resource+"?from="+liar.Tag, nil, nil)
		if got != code {
			t.Errorf("%s: got %d, want %d", resource, got, code)
		}
	}
	if code := stale.Push(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "c",
		50))); code != http.StatusPreconditionFailed {
		t.Errorf("on top of something else: %d", code)
	}
	if code, _, _ := b.hub("").Do(http.MethodGet, edge.PathOwn, nil, nil); code != http.StatusForbidden {
		t.Errorf("nobody asks: %d", code)
	}
}

// TestAPodThatKubernetesWouldNotMake: what all hubs that are cut off hear of a Pod is short.
func TestAPodThatKubernetesWouldNotMake(t *testing.T) {
	b := newBench(t, false)
	hub := b.hub("n1")
	hub.Ask()
	pod := func(name, uid string) stream.Object {
		return pooltest.AsObject(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), ResourceVersion: "10"},
			Spec:       corev1.PodSpec{NodeName: "n1"},
		})
	}
	for what, each := range map[string]stream.Object{
		"a long UID":               pod("a", strings.Repeat("x", 65)),
		"a UID that JSON escapes":  pod("a", "<"),
		"a name that JSON escapes": pod("<", "u"),
	} {
		if code := hub.Push(pooltest.KindPod, pooltest.Put(each)); code != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d", what, code)
		}
	}
	hub.Must(pooltest.KindPod, pooltest.Put(pod("a.b-1", "0a7c3f4e-0000-4000-8000-000000000000")),
		pooltest.Put(pod("static", "5d41402abc4b2a76")))
	hub.Has("pods shop/a.b-1@10", "pods shop/static@10")
}

// TestTwoNodesClaimOnePod: it is shown as neither's, whoever came first, until only one claims it.
func TestTwoNodesClaimOnePod(t *testing.T) {
	for _, first := range []edge.NodeName{"n1", "n2"} { // n2 lies
		b := newBench(t, false)
		one, liar := b.hub("n1"), b.hub("n2")
		for _, h := range []*pooltest.Hub{one, liar} {
			h.Ask()
			h.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, h.Node, 5)))
		}
		claim := func(h *pooltest.Hub, revision int) {
			h.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, h.Node, "a", revision, "conf")))
		}
		then := one
		if first == "n1" {
			claim(one, 10)
			then = liar
		} else {
			claim(liar, 50)
		}
		b.inEtcd("nodes/n1", "nodes/n2", "pods/shop/a")
		claim(then, 60)
		b.inEtcd("nodes/n1", "nodes/n2")
		claim(one, 61) // what either says from now on changes nothing
		claim(liar, 62)
		b.inEtcd("nodes/n1", "nodes/n2")
		b.counts("yurt_coordinator_contests_total 1", "yurt_coordinator_contested_pods 1")

		// A hub that is asked for nothing does not push: the state tells that it must.
		before := one.Tag
		liar.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n2", "a", 63)))
		b.inEtcd("nodes/n1", "nodes/n2")
		one.Has("nodes /n1@5", "pods shop/a@0")
		if one.Tag == before {
			t.Error("the hub whose Pod can be shown again is not told")
		}
		claim(one, 61)
		b.inEtcd("nodes/n1", "nodes/n2", "pods/shop/a")
		b.counts("yurt_coordinator_contests_total 1", "yurt_coordinator_contested_pods 0")

		claim(liar, 70)
		b.inEtcd("nodes/n1", "nodes/n2")
		b.clock.Step(maxSilence - time.Second)
		one.Ask()
		b.clock.Step(time.Second)
		b.objects.Sweep(context.Background()) // the liar is silent
		one.Has("nodes /n1@5", "pods shop/a@0")
		claim(one, 61)
		b.inEtcd("nodes/n1", "pods/shop/a")
	}
}

// TestAContestedPodThatCanNotBeDeleted is deleted with the next push, and is no reason to refuse its owner's.
func TestAContestedPodThatCanNotBeDeleted(t *testing.T) {
	b := newBench(t, false)
	one, liar := b.hub("n1"), b.hub("n2")
	one.Ask()
	liar.Ask()
	liar.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "a", 50)))
	b.etcd.Fail = func() (failed, applied bool) { return true, false }
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10)))
	b.inEtcd("pods/shop/a")
	b.etcd.Fail = nil
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	b.inEtcd("nodes/n1")

	b.etcd.Fail = func() (failed, applied bool) { return true, false }
	liar.Ask()
	liar.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n2", "a", 63)))
	b.etcd.Fail = nil
	one.Ask()
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10)))
	b.inEtcd("nodes/n1", "pods/shop/a")
	stored := stream.Envelope(pooltest.ProtobufType(pooltest.KindPod), pooltest.PodOf(t, "n1", "a", 10).Raw)
	if b.etcd.Keys["/registry/pods/shop/a"] != string(stored) {
		t.Error("it is not n1's")
	}
}

// TestWhatIsWrittenThroughTheAPI stays whose it is: another node's kubelet may have made a Pod of the same name.
func TestWhatIsWrittenThroughTheAPI(t *testing.T) {
	b := newBench(t, false)
	write := func(o stream.Object) {
		b.etcd.Keys["/registry/pods/"+o.Key.String()] = string(stream.Envelope(pooltest.ProtobufType(pooltest.KindPod), o.Raw))
	}
	write(pooltest.PodOf(t, "n2", "static", 1))
	write(pooltest.PodOf(t, "n1", "mine", 1))
	b.etcd.Keys["/registry/configmaps/shop/conf"] = "something"
	hub := b.hub("n1")
	hub.Ask()
	if code := hub.Push(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "static", 9))); code != http.StatusConflict {
		t.Errorf("replaced another node's Pod: %d", code)
	}
	hub.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "mine", 9, "conf")))
	if code := hub.Push(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 9))); code != http.StatusConflict {
		t.Errorf("replaced what no hub has pushed: %d", code)
	}
	write(pooltest.PodOf(t, "n2", "mine", 1)) // deleted and made again, at another node
	before := b.etcd.Keys["/registry/pods/shop/mine"]
	if code := hub.Push(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "mine", 10))); code != http.StatusConflict {
		t.Errorf("replaced what has become another node's: %d", code)
	}
	hub.Push(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n1", "mine", 11)))
	if b.etcd.Keys["/registry/pods/shop/mine"] != before {
		t.Error("another node's Pod was deleted")
	}
	hub.Has()
}

// TestMalformedPushes do nothing.
func TestMalformedPushes(t *testing.T) {
	b := newBench(t, false)
	hub := b.hub("n1")
	hub.Ask()
	whole := pooltest.Frames(t, pooltest.ProtobufType(pooltest.KindPod), pooltest.Put(pooltest.PodOf(t, "n1", "a", 10)),
		pooltest.Put(pooltest.PodOf(t, "n1", "b", 11))).Bytes()
	many := []stream.Event{}
	for i := range maxEvents + 1 {
		many = append(many, pooltest.Put(pooltest.PodOf(t, "n1", fmt.Sprint("p", i), 10)))
	}
	bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 5}}
	for what, c := range map[string]struct {
		body []byte
		code int
	}{
		"cut": {whole[:len(whole)-3], 422},
		"of another kind": {pooltest.Frames(t, pooltest.ProtobufType(pooltest.KindNode), pooltest.Put(pooltest.NodeOf(t,
			"n1", 3))).Bytes(), 422},
		"twice the same": {append(slices.Clone(whole), whole...), 422},
		"no frames":      {[]byte("hello"), 413}, // four bytes that say how much comes
		"a bookmark": {pooltest.Frames(t, pooltest.ProtobufType(pooltest.KindPod), pooltest.Put(pooltest.PodOf(t,
			"n1", "a", 10)), bookmark).Bytes(), 422},
		"too many":  {pooltest.Frames(t, pooltest.ProtobufType(pooltest.KindPod), many...).Bytes(), 413},
		"too large": {append(slices.Clone(whole), make([]byte, maxPush)...), 422},
	} {
		if code, text, _ := hub.Send(pooltest.KindPod, c.body); code != c.code {
			t.Errorf("%s: got %d %s, want %d", what, code, text, c.code)
		}
	}
	if code, _, _ := hub.Do(http.MethodPost, hub.On("pods"),
		map[string]string{"Content-Type": "application/json"}, []byte("{}")); code != 415 {
		t.Errorf("JSON: %d", code)
	}
	broken := b.hub("n1")
	broken.Tag = ""
	if code, _, _ := broken.Send(pooltest.KindPod, whole); code != http.StatusPreconditionRequired {
		t.Errorf("without the state: %d", code)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.server.URL+edge.PathOwn+"/core/v1/pods",
		iotest.TimeoutReader(bytes.NewReader(whole)))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := b.server.Client().Do(r); err == nil {
		_ = response.Body.Close()
	}
	hub.Has()
	b.inEtcd()
}

// TestSilenceIsJudgedByAskingToo: a hub that has nothing to push is still there.
func TestSilenceIsJudgedByAskingToo(t *testing.T) {
	b := newBench(t, false)
	alive, dead := b.hub("n1"), b.hub("n2")
	for _, h := range []*pooltest.Hub{alive, dead} {
		h.Ask()
		h.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, h.Node, "of-"+string(h.Node), 10)))
	}
	for range 12 {
		b.clock.Step(maxSilence / 10)
		known := map[string]string{"If-None-Match": strconv.Quote(alive.Tag)}
		if code, text, tag := alive.Do(http.MethodGet, edge.PathOwn, known, nil); code !=
			http.StatusNotModified || text != "" || tag != alive.Tag {
			t.Fatalf("%d %q %s", code, text, tag)
		}
		b.objects.Sweep(klog.NewContext(t.Context(), logr.Discard()))
	}
	b.inEtcd("pods/shop/of-n1")
	alive.Has("pods shop/of-n1@10")
	if code := dead.Push(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "more",
		11))); code != http.StatusPreconditionFailed {
		t.Errorf("a hub that was away pushes on top of what it knew: %d", code)
	}
	dead.Has()
	alive.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "of-n2", 20))) // the name is free
}

// TestOwnWritesHeal pushes at random into an etcd that fails at random. The model: when it fails no more, each hub that asks
// and pushes what differs has exactly its objects here, and nothing else is.
func TestOwnWritesHeal(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		b := newBench(t, false)
		failing := true
		b.etcd.Fail = func() (failed, applied bool) { return failing && random.IntN(4) == 0, random.IntN(2) == 0 }
		revision := 100
		hubs := []*pooltest.Hub{b.hub("n1"), b.hub("n2"), b.hub("n3")}
		have := make([]map[string]stream.Object, len(hubs)) // Pods by name
		shared := map[string]stream.Object{}                // ConfigMaps of all, as the cloud has them
		for i := range hubs {
			have[i] = map[string]stream.Object{}
		}
		for step := range 120 {
			failing = step < 100
			i := random.IntN(len(hubs))
			if revision++; step >= 100 {
				i = step % len(hubs) // all are there at the end
			} else if name := fmt.Sprint("p", random.IntN(6)); random.IntN(3) == 0 {
				delete(have[i], hubs[i].Name(name))
			} else {
				use := fmt.Sprint("m", random.IntN(3))
				shared[use] = pooltest.MapOf(t, use, revision)
				have[i][hubs[i].Name(name)] = pooltest.PodOf(t, hubs[i].Node, hubs[i].Name(name), revision, use)
			}
			hubs[i].Reconcile(have[i], shared, edge.Revision(revision))
		}
		var want []string
		for i, h := range hubs {
			for name, p := range have[i] {
				var decoded corev1.Pod
				if err := decoded.Unmarshal(p.Raw); err != nil {
					t.Fatal(err)
				}
				want = append(want, "pods/shop/"+name, "configmaps/shop/"+usesOf(&decoded)[0].Name)
			}
			if got := len(h.Ask()); got < len(have[i]) {
				t.Errorf("seed %d: %s has %d objects, want %d Pods", seed, h.Node, got, len(have[i]))
			}
		}
		slices.Sort(want)
		b.inEtcd(slices.Compact(want)...)
		for name, m := range shared {
			if got, ok := b.etcd.Keys["/registry/configmaps/shop/"+name]; ok &&
				got != string(stream.Envelope(pooltest.ProtobufType(pooltest.KindMap), m.Raw)) {
				t.Errorf("seed %d: %s is not as in the cloud", seed, name)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
