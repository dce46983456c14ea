package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

const (
	// every is the least time between two gatherings, however many people look. The pause after a gathering is also at least
	// restFor times as long as the gathering. So a large pool costs a tenth of a core at most.
	every, restFor = 2 * time.Second, 10
	// keep is how long what was gathered is kept when nobody asks any more.
	keep = 30 * time.Second
	// gatherTime bounds one gathering.
	gatherTime = 20 * time.Second
	// maxViewers bounds the requests under way, each of which has a page in memory. The requests of viewers with a link are
	// counted apart and bounded by maxByLink, so that they keep no operator out. Of these maxOfOne are one caller's: a person's,
	// or one address's if they come by a link.
	maxViewers, maxByLink, maxOfOne = 16, 8, 4
)

// Config says what a page is made from. All fields but Host and Version must be set.
type Config struct {
	// Client reads from the coordinator itself, and may read everything.
	Client kubernetes.Interface
	// Leader returns the node whose hub leads the pool; empty means that none does.
	Leader func(context.Context) (edge.NodeName, error)
	// Heard returns how each node is heard of. Shared returns how far each resource is that the pool shares.
	Heard  func() []edge.Heard
	Shared func() []edge.Shared
	// Host is the node that the coordinator runs on; empty means unknown.
	Host edge.NodeName
	// Version is the release that the coordinator is of.
	Version string
	Clock   ends.Clock
}

// Page serves the page. Its methods may be called concurrently.
type Page struct {
	config Config
	began  time.Time
	assets map[string]asset
	// operators and byLink count the requests under way.
	operators, byLink places
	turn              chan struct{} // has one slot: for who gathers
	facts             func(context.Context) Facts

	mu    sync.Mutex
	site  *Site     // nil: nothing is kept
	fresh time.Time // until when site is shown as it is
	drop  *time.Timer
}

//go:embed page.css page.js icon.svg
var files embed.FS

// asset is a file that the page consists of.
type asset struct {
	content   []byte
	kind, tag string
}

// New returns the page of a coordinator that begins.
func New(c Config) (*Page, error) {
	p := &Page{
		config: c, began: c.Clock.Wall(), assets: map[string]asset{}, turn: make(chan struct{}, 1),
		operators: places{most: maxViewers, taken: map[string]int{}}, byLink: places{most: maxByLink, taken: map[string]int{}},
	}
	p.facts = p.gather
	for name, kind := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		content, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		p.assets[name] = asset{content, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return p, nil
}

// policy lets the page have what it brings itself, and nothing else: no script in it, no other site's file, no frame around it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements http.Handler. kube-apiserver has already authenticated the caller and asked RBAC.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller := ""
	if person, known := request.UserFrom(r.Context()); known {
		caller = person.GetName()
	}
	p.serve(w, r, viewer{caller, &p.operators}, false)
}

// ByLink returns the page for those whose link was looked at already. It tells them what to think of their browser's warning.
func (p *Page) ByLink() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.serve(w, r, viewer{conns.SourceOf(r).String(), &p.byLink}, true)
	})
}

// places are those of requests under way.
type places struct {
	most int

	mu    sync.Mutex
	taken map[string]int // by caller; without zeros
	all   int
}

// enter takes a place of a caller, unless there is none, or the caller has its share.
func (p *places) enter(caller string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= p.most || p.taken[caller] >= maxOfOne {
		return false
	}
	p.all++
	p.taken[caller]++
	return true
}

func (p *places) leave(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.taken[caller]--; p.taken[caller] == 0 {
		delete(p.taken, caller)
	}
}

// viewer is a caller, with the places that it shares with others.
type viewer struct {
	caller string
	places *places
}

func (p *Page) serve(w http.ResponseWriter, r *http.Request, by viewer, warned bool) {
	for key, value := range map[string]string{
		"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
		"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin",
		"Cache-Control":              "no-store",
	} {
		w.Header().Set(key, value)
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(path.Clean(r.URL.Path), edge.PathPage)
	asked := askedBy(r.URL.Query())
	asked.Warned = warned
	switch a, isAsset := p.assets[strings.TrimPrefix(name, "/")]; {
	case isAsset:
		w.Header().Set("Cache-Control", "no-cache") // kept, and asked about
		w.Header().Set("Content-Type", a.kind)
		w.Header().Set("ETag", a.tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.content))
	case name == "" && !strings.HasSuffix(r.URL.Path, "/"):
		http.Redirect(w, r, path.Base(edge.PathPage)+"/", http.StatusMovedPermanently)
	case name == "":
		p.show(w, r, by, func(s *Site) ([]byte, error) { return document(s, asked) })
	case name == "/live":
		p.show(w, r, by, func(s *Site) ([]byte, error) { return fragment(s, asked) })
	default:
		http.NotFound(w, r)
	}
}

func (p *Page) show(w http.ResponseWriter, r *http.Request, by viewer, as func(*Site) ([]byte, error)) {
	if !by.places.enter(by.caller) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many look at this page at this moment", http.StatusServiceUnavailable)
		return
	}
	defer by.places.leave(by.caller)
	s, err := p.current(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	content, err := as(s)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(content) // else the caller is gone
}

// current returns the site as it is now, or was a moment ago. It fails only with the context's error.
func (p *Page) current(ctx context.Context) (*Site, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s := p.kept(); s != nil {
		return s, nil
	}
	began := p.config.Clock.Running()
	// Others wait for it, too: it goes on when this caller goes away.
	gathering, cancel := context.WithTimeout(context.WithoutCancel(ctx), gatherTime)
	defer cancel()
	s := See(p.facts(gathering))
	p.keepUntil(s, p.config.Clock.Running().Add(max(every, restFor*p.config.Clock.Since(began))))
	return s, nil
}

// kept returns what is still fresh; nil means nothing.
func (p *Page) kept() *Site {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.site == nil || p.config.Clock.Until(p.fresh) <= 0 {
		return nil
	}
	p.drop.Reset(keep)
	return p.site
}

func (p *Page) keepUntil(s *Site, fresh time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.site, p.fresh = s, fresh
	if p.drop != nil {
		p.drop.Reset(keep)
		return
	}
	p.drop = time.AfterFunc(keep, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.site = nil
	})
}
