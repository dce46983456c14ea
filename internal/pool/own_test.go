package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// ownBench is what takes nodes' objects behind HTTP, without the chain that is before it in the coordinator.
type ownBench struct {
	t      *testing.T
	own    *own
	etcd   *fakeEtcd
	clock  *clocktesting.FakeClock
	server *httptest.Server

	mu    sync.Mutex
	audit []auditLine
}

func newOwnBench(t *testing.T, secrets bool) *ownBench {
	t.Helper()
	b := &ownBench{t: t, etcd: &fakeEtcd{keys: map[string]string{}}, clock: clocktesting.NewFakeClock(epoch)}
	kinds := ownKinds(secrets)
	for r, k := range kinds {
		k.prefix = "/registry/" + k.resource + "/"
		kinds[r] = k
	}
	b.own = newOwn(ownConfig{
		quota: 64 << 20, clock: b.clock, write: b.etcd.write, read: b.etcd.read, kinds: kinds, stalled: time.Hour,
		refused: func(_ context.Context, line auditLine) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.audit = append(b.audit, line)
		},
	})
	b.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := &user.DefaultInfo{Name: r.Header.Get("X-User"), Groups: []string{edge.GroupNodes}}
		b.own.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), caller)))
	}))
	b.server.Config.BaseContext = func(net.Listener) context.Context {
		return klog.NewContext(context.Background(), logr.Discard())
	}
	b.server.EnableHTTP2 = true
	b.server.StartTLS()
	t.Cleanup(b.server.Close)
	return b
}

// ownClient is a node's hub, as far as asking and pushing go.
type ownClient struct {
	t      testing.TB
	client *http.Client
	base   string
	node   edge.NodeName
	tag    string
	local  bool // what is pushed is as the node says
}

func (b *ownBench) hub(n edge.NodeName) *ownClient {
	return &ownClient{t: b.t, client: b.server.Client(), base: b.server.URL, node: n}
}

func (c *ownClient) do(method, path string, header map[string]string, body []byte) (int, string, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.base+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("X-User", c.node.User())
	for k, v := range header {
		r.Header.Set(k, v)
	}
	response, err := c.client.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, text.String(), response.Header.Get("ETag")
}

// ask returns what the node has here, as "resource namespace/name@revision", with a + if it is as the node says.
func (c *ownClient) ask() []string {
	c.t.Helper()
	code, text, tag := c.do(http.MethodGet, edge.PathOwn, nil, nil)
	var state struct {
		Objects []struct {
			Resource, Namespace, Name, Revision string
			Local                               bool
		}
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil || code != http.StatusOK || tag == "" {
		c.t.Fatalf("%d %s %q: %v", code, text, tag, err)
	}
	c.tag = tag
	all := []string{}
	for _, o := range state.Objects {
		text := fmt.Sprintf("%s %s/%s@%s", o.Resource, o.Namespace, o.Name, o.Revision)
		if o.Local {
			text += "+"
		}
		all = append(all, text)
	}
	return all
}

func (c *ownClient) has(want ...string) {
	c.t.Helper()
	if got := c.ask(); !slices.Equal(got, want) {
		c.t.Errorf("%s has %v, want %v", c.node, got, want)
	}
}

var (
	kindNode  = corev1.SchemeGroupVersion.WithKind("Node")
	kindPod   = corev1.SchemeGroupVersion.WithKind("Pod")
	kindMap   = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	kindEvent = corev1.SchemeGroupVersion.WithKind("Event")
)

func put(o stream.Object) stream.Event { return stream.Event{Type: stream.Modified, Object: o} }

func del(o stream.Object) stream.Event { return stream.Event{Type: stream.Deleted, Object: o} }

// push pushes on top of what is known, and returns the code of the answer, or of the only refusal in it.
func (c *ownClient) push(kind schema.GroupVersionKind, events ...stream.Event) int {
	c.t.Helper()
	code, text, tag := c.send(kind, frames(c.t, protobufType(kind), events...).Bytes())
	var reply struct{ Refused []struct{ Code int } }
	if code != http.StatusOK {
		return code
	}
	if err := json.Unmarshal([]byte(text), &reply); err != nil {
		c.t.Fatalf("%s: %v", text, err)
	}
	if c.tag = tag; tag == "" {
		c.ask()
	}
	if len(reply.Refused) > 0 {
		return reply.Refused[0].Code
	}
	return code
}

func (c *ownClient) send(kind schema.GroupVersionKind, body []byte) (int, string, string) {
	c.t.Helper()
	path := edge.PathOwn + "/core/v1/" + strings.ToLower(kind.Kind) + "s"
	if c.local {
		path += "?" + edge.QueryLocal + "=true"
	}
	return c.do(http.MethodPost, path,
		map[string]string{"If-Match": c.tag, "Content-Type": stream.Protobuf.ContentType(true)}, body)
}

func (c *ownClient) must(kind schema.GroupVersionKind, events ...stream.Event) {
	c.t.Helper()
	if code := c.push(kind, events...); code != http.StatusOK {
		c.t.Fatalf("%s pushes %s: %d", c.node, kind.Kind, code)
	}
}

// podOf is a Pod as the cloud has it, which uses these ConfigMaps.
func podOf(t testing.TB, n edge.NodeName, name string, revision int, uses ...string) stream.Object {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: cloudMeta(name, revision)}
	p.Spec.NodeName = string(n)
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "image"}}
	for _, each := range uses {
		p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: each}},
		})
	}
	p.Status.Phase = corev1.PodRunning
	return asObject(t, p)
}

func mapOf(t testing.TB, name string, revision int) stream.Object {
	t.Helper()
	return asObject(t, &corev1.ConfigMap{
		ObjectMeta: cloudMeta(name, revision), Data: map[string]string{"at": fmt.Sprint(revision)},
	})
}

func nodeOf(t testing.TB, n edge.NodeName, revision int) stream.Object {
	t.Helper()
	meta := cloudMeta(string(n), revision)
	meta.Namespace = ""
	return asObject(t, &corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{Phase: corev1.NodeRunning}})
}

func eventOf(t testing.TB, n edge.NodeName, about string, revision int) stream.Object {
	t.Helper()
	return asObject(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: about + ".17", UID: types.UID(about), ResourceVersion: fmt.Sprint(revision),
		},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: about},
		Source:         corev1.EventSource{Component: "kubelet", Host: string(n)},
	})
}

// inEtcd are the keys below /registry/.
func (b *ownBench) inEtcd(want ...string) {
	b.t.Helper()
	b.etcd.mu.Lock()
	defer b.etcd.mu.Unlock()
	var got []string
	for key := range b.etcd.keys {
		got = append(got, strings.TrimPrefix(key, "/registry/"))
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.t.Errorf("etcd has %v, want %v", got, want)
	}
}

// TestTwoNodesShareWhatTheirPodsUse is the life of some objects.
func TestTwoNodesShareWhatTheirPodsUse(t *testing.T) {
	b := newOwnBench(t, false)
	one, two := b.hub("n1"), b.hub("n2")
	one.has()
	two.has()
	one.must(kindNode, put(nodeOf(t, "n1", 5)))
	one.must(kindPod, put(podOf(t, "n1", "a", 10, "conf", "mine")), put(podOf(t, "n1", "a2", 11)))
	two.must(kindPod, put(podOf(t, "n2", "b", 12, "conf")))
	one.must(kindMap, put(mapOf(t, "conf", 7)), put(mapOf(t, "mine", 8)))
	two.must(kindMap, put(mapOf(t, "conf", 7)))
	one.must(kindEvent, put(eventOf(t, "n1", "a", 30)))
	one.has("configmaps shop/conf@7", "configmaps shop/mine@8", "events shop/a.17@30", "nodes /n1@5", "pods shop/a@10",
		"pods shop/a2@11")
	two.has("configmaps shop/conf@7", "pods shop/b@12")
	b.inEtcd("configmaps/shop/conf", "configmaps/shop/mine", "events/shop/a.17", "nodes/n1", "pods/shop/a", "pods/shop/a2",
		"pods/shop/b")

	stored := stream.Envelope(protobufType(kindPod), podOf(t, "n1", "a", 10, "conf", "mine").Raw)
	if b.etcd.keys["/registry/pods/shop/a"] != string(stored) {
		t.Error("the Pod is not here as the cloud has written it")
	}

	gone := podOf(t, "n1", "a", 10)
	gone.Revision = 40
	one.must(kindPod, del(gone))
	one.has("events shop/a.17@30", "nodes /n1@5", "pods shop/a2@11")
	b.inEtcd("configmaps/shop/conf", "events/shop/a.17", "nodes/n1", "pods/shop/a2", "pods/shop/b")
}

// TestAForeignHubChangesNothing: whatever a node says, it is of its own objects.
func TestAForeignHubChangesNothing(t *testing.T) {
	b := newOwnBench(t, false)
	one, liar := b.hub("n1"), b.hub("n2")
	one.ask()
	one.must(kindNode, put(nodeOf(t, "n1", 5)))
	one.must(kindPod, put(podOf(t, "n1", "a", 10, "conf")))
	one.must(kindMap, put(mapOf(t, "conf", 7)))
	one.must(kindEvent, put(eventOf(t, "n1", "a", 30)))
	before := maps.Clone(b.etcd.keys)
	liar.ask()
	stale := *liar
	for what, c := range map[string]struct {
		kind  schema.GroupVersionKind
		event stream.Event
		code  int
	}{
		"overwrites a Node":                   {kindNode, put(nodeOf(t, "n1", 50)), 403},
		"overwrites a Pod":                    {kindPod, put(podOf(t, "n1", "a", 50)), 403},
		"adopts a Pod":                        {kindPod, put(podOf(t, "n2", "a", 50)), 409},
		"makes a Pod of nobody":               {kindPod, put(podOf(t, "", "c", 50)), 403},
		"writes a ConfigMap":                  {kindMap, put(mapOf(t, "conf", 50)), 409},
		"writes an Event about another's Pod": {kindEvent, put(eventOf(t, "n2", "a", 50)), 409},
		"writes an Event as another":          {kindEvent, put(eventOf(t, "n1", "a", 50)), 403},
		// These do nothing, and that is no mistake: a hub says of what it does not have that it is gone.
		"deletes a Node":      {kindNode, del(nodeOf(t, "n1", 50)), 200},
		"deletes a Pod":       {kindPod, del(podOf(t, "n1", "a", 50)), 200},
		"deletes a ConfigMap": {kindMap, del(mapOf(t, "conf", 50)), 200},
	} {
		if code := liar.push(c.kind, c.event); code != c.code {
			t.Errorf("%s: got %d, want %d", what, code, c.code)
		}
	}
	if !maps.Equal(before, b.etcd.keys) {
		t.Error("etcd has something else than before")
	}
	one.has("configmaps shop/conf@7", "events shop/a.17@30", "nodes /n1@5", "pods shop/a@10")
	liar.has()
	if len(b.audit) != 4 || b.audit[0].User != "system:node:n2" || b.audit[0].Reason == "" {
		t.Errorf("the audit log has %+v, want the four that were forbidden", b.audit)
	}
	for resource, code := range map[string]int{
		"core/v1/secrets": 403, "core/v1/services": 403, "core/v2/pods": 403, "rbac.authorization.k8s.io/v1/clusterroles": 403,
		"coordination.k8s.io/v1/leases": 403, "core/v1/pods/status": 404, "core/v1": 404,
	} {
		got, _, _ := liar.do(http.MethodPost, edge.PathOwn+"/"+resource, map[string]string{"If-Match": liar.tag}, nil)
		if got != code {
			t.Errorf("%s: got %d, want %d", resource, got, code)
		}
	}
	if code := stale.push(kindPod, put(podOf(t, "n2", "c", 50))); code != http.StatusPreconditionFailed {
		t.Errorf("on top of something else: %d", code)
	}
	if code, _, _ := b.hub("").do(http.MethodGet, edge.PathOwn, nil, nil); code != http.StatusForbidden {
		t.Errorf("nobody asks: %d", code)
	}
}

// TestWhatIsWrittenThroughTheAPI stays whose it is: another node's kubelet may have made a Pod of the same name.
func TestWhatIsWrittenThroughTheAPI(t *testing.T) {
	b := newOwnBench(t, false)
	write := func(o stream.Object) {
		b.etcd.keys["/registry/pods/"+o.Key.String()] = string(stream.Envelope(protobufType(kindPod), o.Raw))
	}
	write(podOf(t, "n2", "static", 1))
	write(podOf(t, "n1", "mine", 1))
	b.etcd.keys["/registry/configmaps/shop/conf"] = "something"
	hub := b.hub("n1")
	hub.ask()
	if code := hub.push(kindPod, put(podOf(t, "n1", "static", 9))); code != http.StatusConflict {
		t.Errorf("replaced another node's Pod: %d", code)
	}
	hub.must(kindPod, put(podOf(t, "n1", "mine", 9, "conf")))
	if code := hub.push(kindMap, put(mapOf(t, "conf", 9))); code != http.StatusConflict {
		t.Errorf("replaced what no hub has pushed: %d", code)
	}
	write(podOf(t, "n2", "mine", 1)) // deleted and made again, at another node
	before := b.etcd.keys["/registry/pods/shop/mine"]
	if code := hub.push(kindPod, put(podOf(t, "n1", "mine", 10))); code != http.StatusConflict {
		t.Errorf("replaced what has become another node's: %d", code)
	}
	hub.push(kindPod, del(podOf(t, "n1", "mine", 11)))
	if b.etcd.keys["/registry/pods/shop/mine"] != before {
		t.Error("another node's Pod was deleted")
	}
	hub.has()
}

// TestMalformedPushes do nothing.
func TestMalformedPushes(t *testing.T) {
	b := newOwnBench(t, false)
	hub := b.hub("n1")
	hub.ask()
	whole := frames(t, protobufType(kindPod), put(podOf(t, "n1", "a", 10)), put(podOf(t, "n1", "b", 11))).Bytes()
	many := []stream.Event{}
	for i := range maxOwnEvents + 1 {
		many = append(many, put(podOf(t, "n1", fmt.Sprint("p", i), 10)))
	}
	bookmark := stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 5}}
	for what, c := range map[string]struct {
		body []byte
		code int
	}{
		"cut":             {whole[:len(whole)-3], 422},
		"of another kind": {frames(t, protobufType(kindNode), put(nodeOf(t, "n1", 3))).Bytes(), 422},
		"twice the same":  {append(slices.Clone(whole), whole...), 422},
		"no frames":       {[]byte("hello"), 422},
		"a bookmark":      {frames(t, protobufType(kindPod), put(podOf(t, "n1", "a", 10)), bookmark).Bytes(), 422},
		"too many":        {frames(t, protobufType(kindPod), many...).Bytes(), 413},
		"too large":       {append(slices.Clone(whole), make([]byte, maxOwnPush)...), 422},
	} {
		if code, text, _ := hub.send(kindPod, c.body); code != c.code {
			t.Errorf("%s: got %d %s, want %d", what, code, text, c.code)
		}
	}
	if code, _, _ := hub.do(http.MethodPost, edge.PathOwn+"/core/v1/pods",
		map[string]string{"If-Match": hub.tag, "Content-Type": "application/json"}, []byte("{}")); code != 415 {
		t.Errorf("JSON: %d", code)
	}
	broken := b.hub("n1")
	broken.tag = ""
	if code, _, _ := broken.send(kindPod, whole); code != http.StatusPreconditionRequired {
		t.Errorf("without If-Match: %d", code)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.server.URL+edge.PathOwn+"/core/v1/pods",
		iotest.TimeoutReader(bytes.NewReader(whole)))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := b.server.Client().Do(r); err == nil {
		_ = response.Body.Close()
	}
	hub.has()
	b.inEtcd()
}

// TestSilenceIsJudgedByAskingToo: a hub that has nothing to push is still there.
func TestSilenceIsJudgedByAskingToo(t *testing.T) {
	b := newOwnBench(t, false)
	alive, dead := b.hub("n1"), b.hub("n2")
	for _, h := range []*ownClient{alive, dead} {
		h.ask()
		h.must(kindPod, put(podOf(t, h.node, "of-"+string(h.node), 10)))
	}
	for range 12 {
		b.clock.Step(ownSilence / 10)
		if code, text, tag := alive.do(http.MethodGet, edge.PathOwn, map[string]string{"If-None-Match": alive.tag}, nil); code !=
			http.StatusNotModified || text != "" || tag != alive.tag {
			t.Fatalf("%d %q %s", code, text, tag)
		}
		b.own.sweep(klog.NewContext(t.Context(), logr.Discard()))
	}
	b.inEtcd("pods/shop/of-n1")
	alive.has("pods shop/of-n1@10")
	if code := dead.push(kindPod, put(podOf(t, "n2", "more", 11))); code != http.StatusPreconditionFailed {
		t.Errorf("a hub that was away pushes on top of what it knew: %d", code)
	}
	dead.has()
	alive.must(kindPod, put(podOf(t, "n1", "of-n2", 20))) // the name is free
}

// TestOwnWritesHeal pushes at random into an etcd that fails at random. The model: when it fails no more, each hub that asks
// and pushes what differs has exactly its objects here, and nothing else is.
func TestOwnWritesHeal(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		b := newOwnBench(t, false)
		failing := true
		b.etcd.fail = func() (failed, applied bool) { return failing && random.IntN(4) == 0, random.IntN(2) == 0 }
		revision := 100
		hubs := []*ownClient{b.hub("n1"), b.hub("n2"), b.hub("n3")}
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
				delete(have[i], hubs[i].name(name))
			} else {
				use := fmt.Sprint("m", random.IntN(3))
				shared[use] = mapOf(t, use, revision)
				have[i][hubs[i].name(name)] = podOf(t, hubs[i].node, hubs[i].name(name), revision, use)
			}
			hubs[i].reconcile(have[i], shared, edge.Revision(revision))
		}
		var want []string
		for i, h := range hubs {
			for name, p := range have[i] {
				var decoded corev1.Pod
				if err := decoded.Unmarshal(p.Raw); err != nil {
					t.Fatal(err)
				}
				want = append(want, "pods/shop/"+name, "configmaps/shop/"+usesOfPod(&decoded)[0].Name)
			}
			if got := len(h.ask()); got < len(have[i]) {
				t.Errorf("seed %d: %s has %d objects, want %d Pods", seed, h.node, got, len(have[i]))
			}
		}
		slices.Sort(want)
		b.inEtcd(slices.Compact(want)...)
		for name, m := range shared {
			if got, ok := b.etcd.keys["/registry/configmaps/shop/"+name]; ok &&
				got != string(stream.Envelope(protobufType(kindMap), m.Raw)) {
				t.Errorf("seed %d: %s is not as in the cloud", seed, name)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func (c *ownClient) name(n string) string { return string(c.node) + "-" + n }

// reconcile asks and pushes the difference, once.
func (c *ownClient) reconcile(pods, shared map[string]stream.Object, now edge.Revision) {
	c.t.Helper()
	var old []stream.Event
	for _, each := range c.ask() {
		name, isPod := strings.CutPrefix(each, "pods shop/")
		name, _, _ = strings.Cut(name, "@")
		if isPod && pods[name].Raw == nil {
			old = append(old, del(gone(c.t, name, now)))
		}
	}
	var news, used []stream.Event
	for _, p := range pods {
		news = append(news, put(p))
	}
	for _, m := range shared {
		used = append(used, put(m))
	}
	c.push(kindPod, append(news, old...)...)
	c.push(kindMap, used...)
}

// gone is as much of a Pod as its deletion needs.
func gone(t testing.TB, name string, revision edge.Revision) stream.Object {
	t.Helper()
	return asObject(t, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, ResourceVersion: revision.String(),
	}})
}
