package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/saver"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

const (
	// maxKept bounds the selections. kubelet follows each ConfigMap and Secret of its Pods by itself; 110 Pods, the most
	// that a node has by default, have some hundreds. maxGuestKept bounds those of a caller with credentials of its own.
	maxKept, maxGuestKept = 1000, 50
	// idleTime is how long a selection is followed for nobody: programs that begin anew come back within it. It stays on
	// the disk.
	idleTime = 5 * time.Minute
	// tidyEvery is how often the set looks for such ones.
	tidyEvery = 30 * time.Second
	// patience is how long a request waits for a selection that is read for the first time.
	patience = 10 * time.Second
	// selectorBytes bounds the namespace and the selectors of a selection: longer ones, which hardly anybody has, are not
	// kept, so that what nobody reads again does not fill the memory.
	selectorBytes = 2 << 10
	// historyBytes and historyEvents bound what a selection remembers for watches that resume: most are a few objects.
	historyBytes, historyEvents = 256 << 10, 1000
)

// Disk is where it is kept; store.Store is one.
type Disk interface {
	saver.Disk
	Touch(store.ID)
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
	DropBlob(key string)
	Blobs(prefix string) []string
}

// Config is what a Set needs. All fields but Client and Changed are required.
type Config struct {
	// Client is whom it is kept for: somebody with credentials of its own; empty: whoever has the node's.
	Client string
	Disk   Disk
	// Cloud is the state of the link to the cloud.
	Cloud *live.Value[link.State]
	// NewFeed makes what feeds the replica of a selection.
	NewFeed func(*replica.Replica, Selection) (Feed, error)
	// Changed is called whenever Followed, or a replica of it, is another than before. It must not block, nor use the Set.
	// Default: nobody asks.
	Changed func()
}

// Set is what is kept. Make one with New; while Run does not run, lists and watches are passed on.
type Set struct {
	cfg     Config
	answers *answers

	begun    chan struct{} // closed when Run has begun
	hasBegun func()

	mu     sync.Mutex
	life   context.Context // of Run; nil while it does not run
	owned  sync.WaitGroup
	kept   map[Selection]*kept
	failed chan error
}

// New returns a Set that keeps nothing yet but what the disk has.
func New(c Config) (*Set, error) {
	if c.Disk == nil || c.Cloud == nil || c.NewFeed == nil {
		return nil, errors.New("keep: Disk, Cloud and NewFeed are required")
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	s := &Set{
		cfg: c, answers: newAnswers(c.Disk, c.Client), begun: make(chan struct{}), kept: map[Selection]*kept{},
		failed: make(chan error, 1),
	}
	s.hasBegun = sync.OnceFunc(func() { close(s.begun) })
	return s, nil
}

// Begun is closed once Run runs.
func (s *Set) Begun() <-chan struct{} { return s.begun }

// Run keeps until ctx ends, and returns nil when nothing of it is left. A feed that fails ends it.
func (s *Set) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.life = life
	s.mu.Unlock()
	s.hasBegun()
	defer func() {
		s.mu.Lock()
		s.life = nil
		s.mu.Unlock()
		cancel()
		s.owned.Wait()
	}()
	tidy := time.NewTicker(tidyEvery)
	defer tidy.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		case <-tidy.C:
			s.tidy(time.Now())
		}
	}
}

// tidy ends what nobody has asked for lately, and tells the disk what is in use.
func (s *Set) tidy(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kept {
		switch {
		case k.ending:
		case k.users == 0 && now.Sub(k.unused) >= idleTime:
			k.ending = true
			k.end()
			s.cfg.Changed()
		default:
			s.cfg.Disk.Touch(k.selection.id(s.cfg.Client))
		}
	}
}

// Serve answers a read from what is kept, or has pass answer it. The request's context has its RequestInfo.
func (s *Set) Serve(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		http.Error(w, "no RequestInfo: a defect of yurthub", http.StatusInternalServerError)
		return
	}
	reads := r.Method == http.MethodGet
	switch {
	case !sound(r.URL) || !reads && info.Verb != "create":
		pass.ServeHTTP(w, r)
		return
	case reads && info.IsResourceRequest && (info.Verb == "list" || info.Verb == "watch"):
		s.follow(w, r, info, pass)
		return
	}
	key, err := s.answers.keyOf(r)
	if err != nil {
		pass.ServeHTTP(w, r)
		return
	}
	known := func(w http.ResponseWriter) bool {
		single := reads && info.IsResourceRequest && info.Verb == "get" && info.Subresource == ""
		return single && s.get(w, r, info) || s.answers.recall(w, key)
	}
	if s.cfg.Cloud.Get() != link.Down {
		s.answers.pass(&substitute{ResponseWriter: w, known: known, node: s.cfg.Client == ""}, r, key, pass)
	} else if !known(w) {
		pass.ServeHTTP(w, r)
	}
}

// sound reports whether an address means the same to everybody who reads it. Others are not kept: "/a/../b", "/a%2Fb" and
// "?a;b" are the cloud's to understand.
func sound(u *url.URL) bool {
	_, err := url.ParseQuery(u.RawQuery)
	return err == nil && u.RawPath == "" && path.Clean(u.Path) == u.Path
}

// follow answers a list or a watch.
func (s *Set) follow(w http.ResponseWriter, r *http.Request, info *request.RequestInfo, pass http.Handler) {
	selection, ok := selectionOf(r, info)
	if !ok {
		pass.ServeHTTP(w, r)
		return
	}
	k, err := s.use(r.Context(), selection)
	if err != nil {
		klog.FromContext(r.Context()).V(1).Info("Not keeping what a program reads", "what", selection, "err", err)
		pass.ServeHTTP(w, r)
		return
	}
	defer s.release(k)
	prospect := k.expect(r.Context(), s.cfg.Cloud, patience)
	if prospect == known && s.cfg.Cloud.Get() == link.Up &&
		(info.Verb == "list" && k.behind(r) || k.handler.TableIsPlain(r, info.Verb)) {
		// A revision of another object, or one that the hub had before it was killed: it would come with the next event. Or a
		// table that the cloud makes better.
		prospect = foreign
	}
	switch prospect {
	case foreign:
		pass.ServeHTTP(w, r)
	case unreachable:
		replica.Refuse(w, fmt.Sprintf("yurthub: %s: not known from before, and the cloud cannot be reached", selection))
	case late:
		replica.Refuse(w, fmt.Sprintf("yurthub: %s: the cloud has not told all of it yet", selection))
	default:
		k.handler.Serve(w, plain(r), replica.Request{
			Verb: info.Verb, Namespace: info.Namespace, Selected: selection.Fields != "" || selection.Labels != "",
		})
	}
}

// get answers for an object of a selection that is kept.
func (s *Set) get(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) bool {
	key := stream.Key{Namespace: info.Namespace, Name: info.Name}
	if info.APIGroup == "" && info.Resource == "namespaces" {
		key.Namespace = "" // a Namespace is in none, though its path looks like it
	}
	found := s.having(schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}, key)
	if found == nil {
		return false
	}
	defer s.release(found)
	fromMemory(w.Header())
	found.handler.Serve(w, r, replica.Request{Verb: "get", Namespace: key.Namespace, Name: key.Name})
	return true
}

// having returns what is kept of the selection that has an object, the newest of them, which stays until release; or nil.
func (s *Set) having(resource schema.GroupVersionResource, key stream.Key) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *kept
	var newest edge.Revision
	for selection, k := range s.kept {
		if selection.Resource != resource || k.ending {
			continue
		}
		if _, has := k.replica.Get(key); has && (found == nil || k.replica.Position() > newest) {
			found, newest = k, k.replica.Position()
		}
	}
	if found != nil {
		found.users++
	}
	return found
}

// use returns what is kept of a selection, which is followed from now on. It stays at least until release.
func (s *Set) use(ctx context.Context, selection Selection) (*kept, error) {
	for {
		k, ended, err := s.find(selection)
		if k != nil || err != nil {
			return k, err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// find returns what is kept of a selection, begins it, or returns what must end first.
func (s *Set) find(selection Selection) (found *kept, wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kept[selection]
	switch {
	case s.life == nil:
		return nil, nil, errors.New("it has not begun, or is ending")
	case k != nil && k.ending:
		return nil, k.ended, nil
	case k == nil && len(selection.Namespace)+len(selection.Fields)+len(selection.Labels) > selectorBytes:
		return nil, nil, fmt.Errorf("its selectors have more than %d bytes", selectorBytes)
	case k == nil && len(s.kept) >= s.most():
		return nil, nil, fmt.Errorf("%d selections are kept already", s.most())
	case k == nil:
		if k, err = s.begin(selection); err != nil {
			return nil, nil, err
		}
	}
	k.users++
	return k, nil, nil
}

func (s *Set) most() int {
	if s.cfg.Client != "" {
		return maxGuestKept
	}
	return maxKept
}

// begin starts to follow a selection. It does no I/O, for it is under the lock.
func (s *Set) begin(selection Selection) (*kept, error) {
	k := &kept{selection: selection, restored: make(chan struct{}), ended: make(chan struct{})}
	var err error
	if k.replica, err = replica.New(replica.Config{
		Resource: selection.Resource, HistoryBytes: historyBytes, HistoryEvents: historyEvents, Changed: s.cfg.Changed,
	}); err != nil {
		return nil, err
	}
	k.saver = saver.New(s.cfg.Disk, selection.id(s.cfg.Client), k.replica)
	if k.handler, err = replica.NewHandler(replica.HandlerConfig{
		Replica: k.replica, BeforeExpired: func(ctx context.Context) { _ = k.saver.Sync(ctx) },
	}); err != nil {
		return nil, err
	}
	if k.feed, err = s.cfg.NewFeed(k.replica, selection); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(s.life)
	k.end = end
	s.kept[selection] = k
	s.owned.Go(func() { s.run(life, k) })
	return k, nil
}

// run follows a selection, from where the disk stands, to its end.
func (s *Set) run(ctx context.Context, k *kept) {
	logger := klog.FromContext(ctx)
	if err := k.saver.Restore(ctx); err != nil && !errors.Is(err, store.ErrMiss) && ctx.Err() == nil {
		logger.Error(err, "Reading it from the cloud")
	}
	close(k.restored)
	logger.V(1).Info("Following for this node's programs", "what", k.selection, "revision", k.replica.Position().String())
	var saving sync.WaitGroup
	saving.Go(func() { k.saver.Run(ctx) })
	if err := k.feed.Run(ctx); err != nil && ctx.Err() == nil {
		select {
		case s.failed <- fmt.Errorf("follow %s: %w", k.selection, err):
		default:
		}
	}
	k.end()
	saving.Wait()
	k.replica.Close()
	s.mu.Lock()
	delete(s.kept, k.selection)
	s.mu.Unlock()
	close(k.ended)
}

func (s *Set) release(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.users--; k.users == 0 {
		k.unused = time.Now()
	}
}

// Status is what the set says of a selection.
type Status struct {
	// Client is as Config.Client.
	Client    string        `json:"client,omitempty"`
	Selection string        `json:"selection"`
	Source    string        `json:"source"` // cloud or none
	Revision  edge.Revision `json:"revision"`
	Objects   int           `json:"objects"`
	Bytes     int           `json:"bytes"`
	// Requests are those that read it now, watches most of them.
	Requests int `json:"requests"`
}

// Status returns the state of each selection.
func (s *Set) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Status, 0, len(s.kept))
	for selection, k := range s.kept {
		stats := k.replica.Stats()
		all = append(all, Status{
			Client: s.cfg.Client, Selection: selection.String(),
			Source: k.feed.Status().Get().Source.String(), Revision: stats.Position,
			Objects: stats.Objects, Bytes: stats.ObjectBytes, Requests: k.users,
		})
	}
	sortStatus(all)
	return all
}

func sortStatus(all []Status) {
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(strings.Compare(a.Client, b.Client), strings.Compare(a.Selection, b.Selection))
	})
}

// idle reports whether nothing is followed.
func (s *Set) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept) == 0
}
