package share

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// fakeReplica has what a test says.
type fakeReplica struct {
	stream.Source // nobody watches it
	of            *nodeWorld

	mu       sync.Mutex
	position edge.Revision
	in       edge.History
	objects  []stream.Object
}

func (r *fakeReplica) History() edge.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.in
}

func (r *fakeReplica) Position() edge.Revision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.position
}

func (r *fakeReplica) Type() stream.Type { return stream.Type{Encoding: stream.Protobuf} }

func (r *fakeReplica) Snapshot(context.Context) (stream.Snapshot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.position == 0 {
		return stream.Snapshot{}, stream.ErrNotReady
	}
	return stream.Snapshot{
		Type: stream.Type{Encoding: stream.Protobuf}, Revision: r.position, History: r.in, Objects: r.objects,
	}, nil
}

func (r *fakeReplica) set(position edge.Revision, objects ...stream.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.position, r.objects = position, objects
	r.of.changed()
}

// restore has it be in the second history.
func (r *fakeReplica) restore(position edge.Revision, objects ...stream.Object) {
	r.mu.Lock()
	r.in = 1
	r.mu.Unlock()
	r.set(position, objects...)
}

// fakeCoordinator takes pushes as a coordinator does, without its rules.
type fakeCoordinator struct {
	mu       sync.Mutex
	instance int
	version  int
	has      map[string]string // by "resource namespace/name": revision, with "+" if as the node says, and "h" and a history
	contents map[string][]byte
	log      []string
	refuses  map[string]string // by the same: why
	surprise bool              // the next push has effects that the hub does not know of
	former   bool              // it knows of no histories
	fails    error
	code     int // if not 0, all is answered with it
	refused  int // so often
}

func (c *fakeCoordinator) state() string { return fmt.Sprintf("%d.%d", c.instance, c.version) }

// restart has it lose everything.
func (c *fakeCoordinator) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instance++
	c.version, c.has = 0, map[string]string{}
}

func (c *fakeCoordinator) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *fakeCoordinator) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		return nil, c.fails
	}
	w := httptest.NewRecorder()
	switch {
	case c.code != 0:
		c.refused++
		w.WriteHeader(c.code)
	case r.Method == http.MethodGet:
		c.tell(w, r)
	default:
		c.push(w, r)
	}
	return w.Result(), nil
}

func (c *fakeCoordinator) tell(w http.ResponseWriter, r *http.Request) {
	tag := strconv.Quote(c.state())
	w.Header().Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		c.log = append(c.log, "same?")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	c.log = append(c.log, "ask")
	type entry struct {
		Resource, Namespace, Name, Revision string
		History                             string `json:",omitempty"`
		Local                               bool
	}
	var all []entry
	for k, revision := range c.has {
		resource, rest, _ := strings.Cut(k, " ")
		namespace, name, _ := strings.Cut(rest, "/")
		revision, in, _ := strings.Cut(revision, "h")
		revision, local := strings.CutSuffix(revision, "+")
		all = append(all, entry{resource, namespace, name, revision, in, local})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"objects": all})
}

func (c *fakeCoordinator) push(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get(edge.QueryFrom) != c.state() {
		c.log = append(c.log, "else")
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	text := "push " + resource
	frames := stream.NewFrameReader(r.Body, stream.Protobuf, 1<<20)
	refused := []map[string]string{}
	for {
		e, err := frames.Read()
		if err != nil {
			break
		}
		o := e.Object
		k := resource + " " + o.Key.Namespace + "/" + o.Key.Name
		text += " " + e.Type.String()[:3] + " " + o.Key.Name
		if why := c.refuses[k]; why != "" {
			refused = append(refused, map[string]string{"namespace": o.Key.Namespace, "name": o.Key.Name, "message": why})
			continue
		}
		if c.has[k] = o.Revision.String(); r.URL.Query().Get(edge.QueryLocal) == "true" {
			c.has[k] += "+"
		}
		if in := r.Header.Get(edge.HeaderHistory); in != "0" && !c.former {
			c.has[k] += "h" + in
		}
		if c.contents[k] = bytes.Clone(o.Raw); e.Type == stream.Deleted {
			delete(c.has, k)
		}
	}
	c.log = append(c.log, text)
	c.version++
	taken := map[string]any{"refused": refused}
	if !c.surprise {
		taken["applied"] = c.state()
	}
	c.surprise = false
	_ = json.NewEncoder(w).Encode(taken)
}

// nodeWorld is a Node with what is around it, in a bubble of its own time.
type nodeWorld struct {
	t           *testing.T
	coordinator *fakeCoordinator
	link        *live.Value[link.State]
	cloud       *accountCloud
	cloudLink   *live.Value[link.State]
	overlay     *fakeOverlay
	node, pods  *fakeReplica
	pusher      *Node

	mu       sync.Mutex
	history  edge.History
	followed []Selection
	looks    int // at followed
}

// inNodeWorld runs a Node of n1 in p1 for a test.
func inNodeWorld(t *testing.T, test func(*nodeWorld)) {
	t.Helper()
	inNodeWorldWith(t, func(*nodeWorld) {}, test)
}

// inNodeWorldWith is inNodeWorld with begin, which sets up what the Node finds when it starts.
func inNodeWorldWith(t *testing.T, begin, test func(*nodeWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &nodeWorld{
			t: t, coordinator: &fakeCoordinator{has: map[string]string{}, contents: map[string][]byte{}},
			link: live.NewValue(link.Up), cloudLink: live.NewValue(link.Up), overlay: newFakeOverlay(),
			cloud: &accountCloud{accounts: map[string]*corev1.ServiceAccount{}},
		}
		w.node, w.pods = &fakeReplica{of: w}, &fakeReplica{of: w}
		w.follow(Selection{node1, w.node}, Selection{stream.ID{Resource: pods}, w.pods})
		accounts := NewAccounts(AccountsConfig{
			Cloud: w.cloud, CloudLink: w.cloudLink, History: func() edge.History {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.history
			},
		})
		w.pusher = NewNode(NodeConfig{
			Config: Config{
				Node: "n1", Transport: w.coordinator, Base: &url.URL{Scheme: "https", Host: "coordinator"},
				Later: func(in edge.History) bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.history = max(w.history, in)
					return true
				},
			},
			Pool: "p1", Link: w.link,
			Secrets: true, CloudLink: w.cloudLink, Accounts: accounts, Overlay: w.overlay,
			Followed: func() []Selection {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.looks++
				return slices.Clone(w.followed)
			},
		})
		begin(w)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- accounts.Run(ctx) }()
		go func() { done <- w.pusher.Run(ctx) }()
		synctest.Wait() // otherwise a test that belongs into begin would pass on an idle machine and fail on a busy one
		test(w)
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
}

// changed tells the Node, if there is one yet.
func (w *nodeWorld) changed() {
	if w.pusher != nil {
		w.pusher.Changed()
	}
}

func (w *nodeWorld) follow(all ...Selection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followed = all
	w.changed()
}

// alsoFollow follows one ConfigMap or Secret.
func (w *nodeWorld) alsoFollow(resource, name string) *fakeReplica {
	r := &fakeReplica{of: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.changed()
	i := stream.ID{Resource: resource, Key: stream.Key{Namespace: "shop", Name: name}}
	w.followed = append(slices.Clone(w.followed), Selection{i, r})
	return r
}

// has expects what the coordinator has.
func (w *nodeWorld) has(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.coordinator.mu.Lock()
	defer w.coordinator.mu.Unlock()
	got := []string{}
	for k, revision := range w.coordinator.has {
		got = append(got, k+"@"+revision)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.t.Errorf("the coordinator has %q, want %q; it was asked %q", got, want, w.coordinator.log)
	}
}

// asked expects what the coordinator was asked since the last time.
func (w *nodeWorld) asked(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.coordinator.mu.Lock()
	defer w.coordinator.mu.Unlock()
	if !slices.Equal(w.coordinator.log, want) {
		w.t.Errorf("the coordinator was asked %q, want %q", w.coordinator.log, want)
	}
	w.coordinator.log = nil
}

func object(t testing.TB, o interface {
	metav1.Object
	Marshal() ([]byte, error)
}, namespace, name string, revision edge.Revision) stream.Object {
	t.Helper()
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetResourceVersion(revision.String())
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return stream.Object{Key: stream.Key{Namespace: namespace, Name: name}, Revision: revision, Raw: raw}
}

func (w *nodeWorld) aNode(pool string, revision edge.Revision) stream.Object {
	n := &corev1.Node{}
	if pool != "" {
		n.Labels = map[string]string{edge.LabelNodePool: pool}
	}
	return object(w.t, n, "", "n1", revision)
}

func (w *nodeWorld) aPod(name string, revision edge.Revision) stream.Object {
	return object(w.t, &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}, "shop", name, revision)
}

func (w *nodeWorld) aMap(name string, revision edge.Revision) stream.Object {
	return object(w.t, &corev1.ConfigMap{}, "shop", name, revision)
}
