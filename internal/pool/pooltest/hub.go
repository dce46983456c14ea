package pooltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// Hub is a node's hub that only asks and pushes.
type Hub struct {
	T      testing.TB
	Client *http.Client
	Base   string
	Node   edge.NodeName
	Tag    string
	Local  bool // pushed objects are the node's own word
	// History is the history of what is pushed. It leaves 0 out.
	History edge.History
}

// Do makes a request, and returns the code, the body and the state that its answer names.
func (c *Hub) Do(method, path string, header map[string]string, body []byte) (int, string, string) {
	c.T.Helper()
	r, err := http.NewRequestWithContext(c.T.Context(), method, c.Base+path, bytes.NewReader(body))
	if err != nil {
		c.T.Fatal(err)
	}
	r.Header.Set("X-User", c.Node.User())
	for k, v := range header {
		r.Header.Set(k, v)
	}
	response, err := c.Client.Do(r)
	if err != nil {
		c.T.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		c.T.Fatal(err)
	}
	var taken edge.Taken
	if tag := response.Header.Get("ETag"); tag != "" {
		taken.Applied = strings.Trim(tag, `"`)
	} else if response.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text.Bytes(), &taken); err != nil {
			c.T.Fatalf("%s: %v", text.String(), err)
		}
	}
	return response.StatusCode, text.String(), taken.Applied
}

// Ask returns what the node has here, as "resource namespace/name@revision". A + follows if the object holds changes by the node
// that have not reached the cloud. If the revision is of a later history than the cloud's first, " of history N" follows.
func (c *Hub) Ask() []string {
	c.T.Helper()
	code, text, tag := c.Do(http.MethodGet, edge.PathOwn, nil, nil)
	var state struct {
		Objects []struct {
			Resource, Namespace, Name, Revision string
			History                             string
			Local                               bool
		}
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil || code != http.StatusOK || tag == "" {
		c.T.Fatalf("%d %s %q: %v", code, text, tag, err)
	}
	c.Tag = tag
	all := []string{}
	for _, o := range state.Objects {
		text := fmt.Sprintf("%s %s/%s@%s", o.Resource, o.Namespace, o.Name, o.Revision)
		if o.Local {
			text += "+"
		}
		if o.History != "" {
			text += " of history " + o.History
		}
		all = append(all, text)
	}
	return all
}

// Has checks what the node has here, in the form that Ask returns.
func (c *Hub) Has(want ...string) {
	c.T.Helper()
	if got := c.Ask(); !slices.Equal(got, want) {
		c.T.Errorf("%s has %v, want %v", c.Node, got, want)
	}
}

// Push pushes on top of the known state, and returns the code of the answer, or of the only refusal in it.
func (c *Hub) Push(kind schema.GroupVersionKind, events ...stream.Event) int {
	c.T.Helper()
	code, text, tag := c.Send(kind, Frames(c.T, ProtobufType(kind), events...).Bytes())
	var reply struct{ Refused []struct{ Code int } }
	if code != http.StatusOK {
		return code
	}
	if err := json.Unmarshal([]byte(text), &reply); err != nil {
		c.T.Fatalf("%s: %v", text, err)
	}
	if c.Tag = tag; tag == "" {
		c.Ask()
	}
	if len(reply.Refused) > 0 {
		return reply.Refused[0].Code
	}
	return code
}

// On returns where to push a resource on top of the known state.
func (c *Hub) On(resource string) string {
	return edge.PathOwn + "/core/v1/" + resource + "?" + edge.QueryFrom + "=" + c.Tag
}

// Send pushes body on top of the known state, and returns the code, the body and the state after that.
func (c *Hub) Send(kind schema.GroupVersionKind, body []byte) (int, string, string) {
	c.T.Helper()
	path := c.On(strings.ToLower(kind.Kind) + "s")
	if c.Local {
		path += "&" + edge.QueryLocal + "=true"
	}
	header := map[string]string{"Content-Type": stream.Protobuf.ContentType(true)}
	if c.History != 0 {
		header[edge.HeaderHistory] = c.History.String()
	}
	return c.Do(http.MethodPost, path, header, body)
}

// Must pushes, and fails the test if anything is refused.
func (c *Hub) Must(kind schema.GroupVersionKind, events ...stream.Event) {
	c.T.Helper()
	if code := c.Push(kind, events...); code != http.StatusOK {
		c.T.Fatalf("%s pushes %s: %d", c.Node, kind.Kind, code)
	}
}

// Name returns a name that no other node's Pods have.
func (c *Hub) Name(n string) string { return string(c.Node) + "-" + n }

// Reconcile asks and pushes the difference, once.
func (c *Hub) Reconcile(pods, shared map[string]stream.Object, now edge.Revision) {
	c.T.Helper()
	var old []stream.Event
	for _, each := range c.Ask() {
		name, isPod := strings.CutPrefix(each, "pods shop/")
		name, _, _ = strings.Cut(name, "@")
		if isPod && pods[name].Raw == nil {
			old = append(old, Del(gone(c.T, name, now)))
		}
	}
	var news, used []stream.Event
	for _, p := range pods {
		news = append(news, Put(p))
	}
	for _, m := range shared {
		used = append(used, Put(m))
	}
	c.Push(KindPod, append(news, old...)...)
	c.Push(KindMap, used...)
}

// gone returns as much of a Pod as its deletion needs.
func gone(t testing.TB, name string, revision edge.Revision) stream.Object {
	t.Helper()
	return AsObject(t, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, ResourceVersion: revision.String(),
	}})
}
