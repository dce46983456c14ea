// Package viewtest is the conformance suite of replica.View. It checks that the state of watching clients always equals what a
// list shows.
package viewtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/stream"
)

// Subject is a view under test.
type Subject struct {
	// Resource and Type are what it is a view of.
	Resource schema.GroupVersionResource
	Type     stream.Type
	// Make returns a new object of a key and a revision, of those that the view concerns and of others, by the dice.
	Make func(random *rand.Rand, k stream.Key, revision edge.Revision) stream.Object
	// Keys are those that objects have.
	Keys []stream.Key
	// View returns the view. The suite calls View again when it restarts the hub; what Turn has changed before must then still
	// apply. Turn changes at random what the view shows. A nil Turn means that the view always shows the same.
	View func() replica.View
	Turn func(random *rand.Rand)
}

// Run tests a view by the suite. Each test calls subject to make its own Subject.
func Run(t *testing.T, subject func(t *testing.T) Subject) {
	t.Run("Show is pure", func(t *testing.T) { subject(t).pure(t) })
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("clients have what a list shows, seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { subject(t).agree(t, rand.New(rand.NewPCG(seed, 9))) })
		})
	}
}

// pure tests that a look keeps showing the same, changes no bytes of its input, and agrees with a second look, made at the same
// time.
func (s Subject) pure(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 200 {
		o := s.Make(random, s.Keys[i%len(s.Keys)], edge.Revision(i+1))
		before := bytes.Clone(o.Raw)
		look, _ := s.View().Look()
		other, _ := s.View().Look()
		raw, visible := look.Show(s.Type, o)
		if s.Turn != nil {
			s.Turn(random)
		}
		again, still := look.Show(s.Type, o)
		if visible != still || !bytes.Equal(raw, again) {
			t.Fatal("the same object is shown in two ways")
		}
		if anew, _ := other.Show(s.Type, o); !bytes.Equal(anew, raw) {
			t.Fatal("another view, made alike, shows it in another way")
		}
		if !bytes.Equal(o.Raw, before) {
			t.Fatal("the object itself was changed")
		}
		rubbish := []byte("\x0a\xff")
		shown, visible := look.Show(s.Type, stream.Object{Key: o.Key, Revision: 1, Raw: rubbish})
		if visible && !bytes.Equal(shown, rubbish) {
			t.Fatal("what it can't read it must show as it came, or not at all")
		}
	}
}

// agree runs changes of objects, changes of the view, disconnects and restarts at random, and compares the clients' state with a
// list. The history is complete, so a client with bookmarks may get a 410 only after a restart or an answer that was cut.
func (s Subject) agree(t *testing.T, random *rand.Rand) {
	r := replica.New(replica.Config{Resource: s.Resource})
	defer r.Close()
	g := &game{Subject: s, t: t, replica: r, revision: 10, there: map[stream.Key]stream.Object{}}
	if err := r.Replace(t.Context(), stream.Snapshot{Type: s.Type, Revision: 10}); err != nil {
		t.Fatal(err)
	}
	g.restart()
	clients := []*client{
		{game: g, name: "a", bookmarks: true}, {game: g, name: "b", bookmarks: true}, {game: g, name: "c"},
	}
	defer func() {
		for _, c := range clients {
			c.stop()
		}
	}()
	for step := range 150 {
		switch c := clients[random.IntN(len(clients))]; random.IntN(12) {
		case 0, 1:
			if s.Turn != nil {
				s.Turn(random)
			}
		case 2:
			c.stop()
		case 3:
			c.tear(random)
		case 4:
			if random.IntN(4) == 0 {
				g.restart()
				for _, c := range clients {
					c.stop()
					c.mayExpire = true
				}
			}
		case 5:
			time.Sleep(time.Duration(random.IntN(400)) * time.Second)
		default:
			g.change(random)
		}
		if random.IntN(3) == 0 {
			synctest.Wait()
		}
		if step%10 != 9 {
			continue
		}
		for _, c := range clients {
			c.start()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		want, _ := g.list("nobody")
		for i, c := range clients {
			for c.has == nil || c.answer == nil || c.pending() {
				c.start()
				synctest.Wait()
				c.read()
			}
			if err := differ(c.has, want); err != nil {
				t.Fatalf("step %d, client %d, at %d: %v", step, i, c.at, err)
			}
		}
	}
}

// game is the world that clients look at.
type game struct {
	Subject
	t        *testing.T
	replica  *replica.Replica
	handler  *replica.Handler
	revision edge.Revision
	there    map[stream.Key]stream.Object
}

func (g *game) restart() {
	h := replica.NewHandler(replica.HandlerConfig{Replica: g.replica, View: g.View()})
	g.handler = h
}

func (g *game) change(random *rand.Rand) {
	g.revision += edge.Revision(1 + random.IntN(3))
	k := g.Keys[random.IntN(len(g.Keys))]
	e := stream.Event{Type: stream.Added, Object: g.Make(random, k, g.revision)}
	old, there := g.there[k]
	switch {
	case random.IntN(6) == 0:
		e = stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: g.revision}}
	case there && random.IntN(3) == 0:
		e.Type = stream.Deleted
		e.Object.Raw = old.Raw
		delete(g.there, k)
	case there:
		e.Type = stream.Modified
		g.there[k] = e.Object
	default:
		g.there[k] = e.Object
	}
	if err := g.replica.Apply(g.t.Context(), []stream.Event{e}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *game) ask(ctx context.Context, query string, e stream.Encoding) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/x"+query, nil)
	r.Header.Set("Accept", e.ContentType(false))
	return r
}

// list returns the objects of a list request, and the list's revision. The objects have no content, because an object's revision
// stands for it.
func (g *game) list(client string) (map[stream.Key]stream.Object, edge.Revision) {
	w := httptest.NewRecorder()
	r := g.ask(g.t.Context(), "", stream.JSON)
	r.Header.Set("User-Agent", client)
	g.handler.Serve(w, r, replica.Request{Verb: "list"})
	var l struct {
		metav1.ListMeta `json:"metadata"`
		Items           []struct {
			metav1.ObjectMeta `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &l); err != nil {
		g.t.Fatalf("a list: %v: %s", err, w.Body)
	}
	all := map[stream.Key]stream.Object{}
	for _, m := range l.Items {
		k := stream.Key{Namespace: m.Namespace, Name: m.Name}
		all[k] = stream.Object{Key: k, Revision: g.revisionOf(m.ResourceVersion)}
	}
	at := g.revisionOf(l.ResourceVersion)
	if _, marked := at.Own(); marked {
		g.t.Fatalf("a list is of revision %d", at)
	}
	return all, at
}

func (g *game) revisionOf(s string) edge.Revision {
	r, err := edge.ParseRevision(s)
	if err != nil {
		g.t.Fatal(err)
	}
	return r
}

// client keeps what it is told, as an informer does. It ignores an event of a revision that it has, and resumes from the last
// revision that it got.
type client struct {
	*game
	name      string
	bookmarks bool
	has       map[stream.Key]stream.Object
	at        edge.Revision
	mayExpire bool // what the process before has shown is not known

	answer *answer
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (c *client) start() {
	if c.answer != nil {
		return
	}
	if c.has == nil {
		c.has, c.at = c.list(c.name)
	}
	query := fmt.Sprintf("?watch=1&timeoutSeconds=100000&allowWatchBookmarks=%t&resourceVersion=%d", c.bookmarks, c.at)
	ctx, cancel := context.WithCancel(c.t.Context())
	a, h := &answer{header: http.Header{}}, c.handler
	c.answer, c.cancel = a, cancel
	r := c.ask(ctx, query, c.Type.Encoding)
	r.Header.Set("User-Agent", c.name)
	c.done.Go(func() { h.Serve(a, r, replica.Request{Verb: "watch"}) })
}

// stop reads what was told and goes away.
func (c *client) stop() {
	if c.answer == nil {
		return
	}
	synctest.Wait()
	c.read()
	c.leave()
}

// tear goes away when only a part has arrived.
func (c *client) tear(random *rand.Rand) {
	if c.answer == nil {
		return
	}
	synctest.Wait()
	c.answer.mu.Lock()
	if n := c.answer.told.Len(); n > 0 {
		c.answer.told.Truncate(random.IntN(n))
	}
	c.answer.mu.Unlock()
	c.read()
	c.leave()
	c.mayExpire = true // between an object and the bookmark after it
}

func (c *client) leave() {
	if c.answer != nil {
		c.cancel()
		c.done.Wait()
		c.answer = nil
	}
}

// pending reports whether there is something to read.
func (c *client) pending() bool {
	c.answer.mu.Lock()
	defer c.answer.mu.Unlock()
	return c.answer.told.Len() > 0
}

// read takes in what was told.
func (c *client) read() {
	if c.answer == nil {
		return
	}
	c.answer.mu.Lock()
	told := slices.Clone(c.answer.told.Bytes())
	c.answer.told.Reset()
	c.answer.mu.Unlock()
	f := stream.NewFrameReader(bytes.NewReader(told), c.Type.Encoding, 1<<20)
	for {
		e, err := f.Read()
		if err != nil {
			if errors.Is(err, stream.ErrExpired) {
				if !c.mayExpire && c.bookmarks {
					c.t.Fatalf("told 410 with all of the history there, and no restart: %v", err)
				}
				c.mayExpire = false
				c.leave()
				c.has = nil
			}
			return
		}
		c.take(e)
	}
}

func (c *client) take(e stream.Event) {
	c.at = e.Object.Revision
	switch e.Type {
	case stream.Added, stream.Modified:
		if old, ok := c.has[e.Object.Key]; ok && old.Revision == e.Object.Revision {
			if old.Raw != nil && !bytes.Equal(old.Raw, e.Object.Raw) {
				c.t.Fatalf("%v is told at %d again, as another", e.Object.Key, old.Revision)
			}
			return
		}
		c.has[e.Object.Key] = e.Object
	case stream.Deleted:
		delete(c.has, e.Object.Key)
	case stream.Bookmark, stream.InitialEventsEnd:
		if _, marked := c.at.Own(); marked {
			c.t.Fatalf("a bookmark at %d", c.at)
		}
	}
}

func differ(has, want map[stream.Key]stream.Object) error {
	for k, o := range want {
		if h, ok := has[k]; !ok || h.Revision != o.Revision {
			return fmt.Errorf("%v: has revision %d (%t), a list shows %d", k, h.Revision, ok, o.Revision)
		}
	}
	if len(has) != len(want) {
		return fmt.Errorf("it has %d objects, a list shows %d", len(has), len(want))
	}
	return nil
}

// answer collects what is written.
type answer struct {
	header http.Header
	mu     sync.Mutex
	told   bytes.Buffer
}

func (a *answer) Header() http.Header              { return a.header }
func (a *answer) WriteHeader(int)                  {}
func (a *answer) Flush()                           {}
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told.Write(p)
}
