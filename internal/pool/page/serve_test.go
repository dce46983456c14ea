package page

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
)

// served is a page of these facts, and a count of how often they were gathered.
func served(t *testing.T, facts func(context.Context) Facts) *Page {
	t.Helper()
	p, err := New(Config{
		Leader: func(context.Context) (edge.NodeName, error) { return "", nil }, Heard: func() []edge.Heard { return nil },
		Shared: func() []edge.Shared { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	p.facts = facts
	return p
}

// by returns a request as a person's.
func by(name string, r *http.Request) *http.Request {
	return r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: name}))
}

func get(p *Page, method, target string, header http.Header) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, target, nil), httptest.NewRecorder()
	for k := range header {
		r.Header.Set(k, header.Get(k))
	}
	p.ServeHTTP(w, r)
	return w
}

func TestAnswers(t *testing.T) {
	p := served(t, func(context.Context) Facts { return poolOf("n1") })
	for _, c := range []struct {
		method, target string
		code           int
		kind, has      string
	}{
		{http.MethodGet, "/ui/", http.StatusOK, "text/html; charset=utf-8", "<!DOCTYPE html><html"},
		{http.MethodGet, "/ui/?page=2", http.StatusOK, "text/html; charset=utf-8", "Pool p1"},
		{http.MethodGet, "/ui/live", http.StatusOK, "text/html; charset=utf-8", `<div data-live="now">`},
		{http.MethodGet, "/ui/page.css", http.StatusOK, "text/css; charset=utf-8", "prefers-color-scheme: dark"},
		{http.MethodGet, "/ui/page.js", http.StatusOK, "text/javascript; charset=utf-8", "data-live"},
		{http.MethodGet, "/ui/icon.svg", http.StatusOK, "image/svg+xml", "<svg"},
		{http.MethodGet, "/ui", http.StatusMovedPermanently, "", ""},
		{http.MethodGet, "/ui/doc.go", http.StatusNotFound, "", ""},
		{http.MethodGet, "/ui/live/more", http.StatusNotFound, "", ""},
		{http.MethodHead, "/ui/", http.StatusMethodNotAllowed, "", ""},
		{http.MethodPost, "/ui/", http.StatusMethodNotAllowed, "", "can only be read"},
		{http.MethodDelete, "/ui/live", http.StatusMethodNotAllowed, "", ""},
	} {
		w := get(p, c.method, c.target, nil)
		if w.Code != c.code || c.kind != "" && w.Header().Get("Content-Type") != c.kind ||
			!strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%s %s: %d, %v, %.300s", c.method, c.target, w.Code, w.Header(), w.Body)
		}
		h := w.Header()
		if h.Get("Content-Security-Policy") != policy || h.Get("X-Content-Type-Options") != "nosniff" ||
			h.Get("Referrer-Policy") != "no-referrer" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s %s: it lets a browser do more than show the page: %v", c.method, c.target, h)
		}
	}
	if w := get(p, http.MethodGet, "/ui", nil); w.Header().Get("Location") != "/ui/" {
		t.Errorf("it leads to %q", w.Header().Get("Location"))
	}
	tag := get(p, http.MethodGet, "/ui/page.js", nil).Header().Get("ETag")
	if w := get(p, http.MethodGet, "/ui/page.js", http.Header{"If-None-Match": {tag}}); w.Code != http.StatusNotModified {
		t.Errorf("a file that a browser has is sent again: %d", w.Code)
	}
	if got := get(p, http.MethodGet, "/ui/", nil).Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("a browser may keep the page: %q", got)
	}
}

// No script and no style is in the page itself: its policy forbids both.
func TestThePageObeysItsPolicy(t *testing.T) {
	body := get(served(t, func(context.Context) Facts { return filled("x") }), http.MethodGet, "/ui/", nil).Body.String()
	for _, not := range []string{" style=", "<style", "javascript:", " onclick", " onload", "//"} {
		if strings.Contains(body, not) {
			t.Errorf("it has %q", not)
		}
	}
	if strings.Count(body, "<script") != 1 || !strings.Contains(body, `<script src="page.js" defer=""></script>`) {
		t.Error("it has another script than its own")
	}
}

// TestGathersSeldom: all who look share what is gathered, and what nobody looks at is dropped.
func TestGathersSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gathered, takes := 0, time.Duration(0)
		p := served(t, func(context.Context) Facts {
			time.Sleep(takes)
			gathered++
			return poolOf("n1")
		})
		look := func(want int) {
			t.Helper()
			if w := get(p, http.MethodGet, "/ui/live", nil); w.Code != http.StatusOK || gathered != want {
				t.Errorf("%d, gathered %d times, want %d", w.Code, gathered, want)
			}
		}
		time.Sleep(time.Hour)
		if gathered != 0 {
			t.Error("gathered though nobody looks")
		}
		look(1)
		look(1)
		time.Sleep(every)
		look(2)
		time.Sleep(every)
		takes = time.Second
		look(3)
		time.Sleep(every)
		look(3) // gathering took a second: the next is ten later
		time.Sleep(restFor*time.Second - every)
		var all sync.WaitGroup
		for range maxOfOne {
			all.Go(func() { get(p, http.MethodGet, "/ui/live", nil) })
		}
		all.Wait()
		look(4)
		time.Sleep(keep + time.Second)
		if p.mu.Lock(); p.site != nil {
			t.Error("kept though nobody looks")
		}
		p.mu.Unlock()
		takes = 0
		look(5)
		time.Sleep(2 * keep) // its timer ends
	})
}

// TestViewersAreBounded, and one that goes away keeps nobody waiting.
func TestViewersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := served(t, func(context.Context) Facts {
			<-release
			return poolOf("n1")
		})
		ctx, leave := context.WithCancel(t.Context())
		codes := make(chan int, maxViewers)
		for i := range maxViewers {
			go func() {
				r := by(fmt.Sprint(i/maxOfOne), httptest.NewRequest(http.MethodGet, "/ui/live", nil))
				if i > 0 {
					r = r.WithContext(ctx)
				}
				w := httptest.NewRecorder()
				p.ServeHTTP(w, r)
				codes <- w.Code
			}()
		}
		synctest.Wait()
		w := get(p, http.MethodGet, "/ui/live", nil)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("one more: %d %v", w.Code, w.Header())
		}
		leave()
		synctest.Wait()
		if n := len(codes); n < maxViewers-2 {
			t.Errorf("%d of those who went away were let go", n)
		}
		close(release)
		synctest.Wait()
		if n := len(codes); n != maxViewers {
			t.Errorf("%d answers, want %d", n, maxViewers)
		}
		time.Sleep(2 * keep)
	})
}

// unread is an answer that nobody reads until it is closed.
type unread struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (u unread) Write(b []byte) (int, error) {
	<-u.read
	return u.ResponseRecorder.Write(b)
}

// TestOneViewerKeepsNobodyOut, by as many looks as it likes whose answers it does not read.
func TestOneViewerKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := served(t, func(context.Context) Facts { return poolOf("n1") })
		ask := func(name, address string) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/ui/", nil)
			r.RemoteAddr = address
			return by(name, r)
		}
		thief := func() *http.Request { return ask("eve", "192.0.2.1:1") }
		other := func() *http.Request { return ask("alice", "192.0.2.2:1") }
		for who, h := range map[string]http.Handler{"a person": p, "an address, by a link": p.ByLink()} {
			read := make(chan struct{})
			var all sync.WaitGroup
			for range maxViewers {
				all.Go(func() { h.ServeHTTP(unread{httptest.NewRecorder(), read}, thief()) })
			}
			synctest.Wait()
			look := func(r *http.Request) int {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			if code := look(other()); code != http.StatusOK {
				t.Errorf("%s: another one: %d", who, code)
			}
			close(read)
			all.Wait()
			if code := look(thief()); code != http.StatusOK {
				t.Errorf("%s, once it has read: %d", who, code)
			}
		}
		time.Sleep(2 * keep) // the page's timer ends
	})
}

// TestByLink: who has a link sees the same page, and what the browser's warning means. However many there are, operators see it.
func TestByLink(t *testing.T) {
	p := served(t, func(context.Context) Facts { return poolOf("n1") })
	look := func(h http.Handler, path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	const warns = "printed beside the link"
	code, linked := look(p.ByLink(), "/ui/")
	if _, plain := look(p, "/ui/"); code != http.StatusOK || !strings.Contains(linked, warns) || strings.Contains(plain, warns) {
		t.Errorf("%d: who comes by a link is to hear of the warning, and nobody else:\n%s", code, linked)
	}
	if code, live := look(p.ByLink(), "/ui/live"); code != http.StatusOK || strings.Contains(live, warns) {
		t.Errorf("a part of it: %d, %s", code, live)
	}
	for i := range maxByLink {
		p.byLink.enter(fmt.Sprint(i))
	}
	if code, _ := look(p.ByLink(), "/ui/"); code != http.StatusServiceUnavailable {
		t.Errorf("one more with a link: %d", code)
	}
	if code, _ := look(p, "/ui/"); code != http.StatusOK {
		t.Errorf("an operator beside them: %d", code)
	}
}
