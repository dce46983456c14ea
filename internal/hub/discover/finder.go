package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

// File is the file in Config.Dir that remembers where the coordinator is.
const File = "coordinator.json"

// forgetAfter is how long the cloud must refuse to show the ConfigMap, or list none, before the Finder gives the
// coordinator up. The right to read it ends with the coordinator, but an API server that has just started also refuses
// until it knows its roles.
const forgetAfter = 2 * time.Minute

// recheck is the longest time to the next list when a list lacks the ConfigMap but no watch said that it was deleted: a cloud
// with another or an empty etcd answers so for a while.
const recheck = 10 * time.Second

// ErrNone says that no coordinator is known.
var ErrNone = errors.New("the pool has no coordinator that this node knows of")

// Config says where to look.
type Config struct {
	Pool edge.PoolName
	// ConfigMaps are the cloud's ConfigMaps in edge.NamespaceSystem, as the node sees them.
	ConfigMaps corev1client.ConfigMapInterface
	// Dir is where File is kept. The Finder makes it, readable by nobody else.
	Dir string
	// Reachable waits until the cloud can be reached, or ctx ends. Asked without it, a cloud that is back after a long cut is
	// asked up to 30 s later, and until then a coordinator that has moved is not found.
	Reachable func(ctx context.Context) error
	// Moved is called after each change of how to reach it.
	Moved func()
}

// Finder knows where the coordinator is.
type Finder struct {
	cfg    Config
	clock  clock.PassiveClock
	unread error // why the file could not be used

	mu           sync.Mutex
	target       Target
	refusedSince time.Time // zero: the cloud's last answer was no refusal
	missingSince time.Time // zero: the cloud's last answer was not that there is none
	complaint    string    // the last one logged about the ConfigMap, so as not to repeat it
}

// New returns a Finder that knows what the file says. If the file cannot be used, Run logs why, and the Finder starts without
// it.
func New(cfg Config) *Finder {
	f := &Finder{cfg: cfg, clock: clock.RealClock{}}
	var err error
	if f.target, err = Recall(cfg.Dir, cfg.Pool); !errors.Is(err, fs.ErrNotExist) {
		f.unread = err
	}
	return f
}

// Recall returns what a Finder of this pool has kept in dir.
func Recall(dir string, pool edge.PoolName) (Target, error) {
	content, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		return Target{}, err
	}
	return recall(pool, content)
}

func (f *Finder) path() string { return filepath.Join(f.cfg.Dir, File) }

// Target returns where the coordinator is, as far as is known.
func (f *Finder) Target() Target {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.target
}

// CA returns the PEM bundle that verifies the coordinator's certificate; empty while no coordinator is known.
func (f *Finder) CA() []byte { return []byte(f.Target().CA) }

// Address returns the coordinator's IP:PORT, or ErrNone.
func (f *Finder) Address() (string, error) {
	if t := f.Target(); !t.IsZero() {
		return t.Address, nil
	}
	return "", ErrNone
}

// Run follows the ConfigMap until ctx ends.
func (f *Finder) Run(ctx context.Context) error {
	if f.unread != nil {
		klog.FromContext(ctx).Info("The hub does not know the pool's coordinator until the cloud names it", "file", f.path(),
			"why", f.unread)
	}
	for ctx.Err() == nil {
		if err := f.follow(ctx); err != nil {
			return err
		}
	}
	return nil
}

// follow lists the ConfigMap and watches it, until ctx ends, or until it is to be listed again because it was missing.
func (f *Finder) follow(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	again := make(chan struct{}, 1)
	missing := func() {
		if f.missing(ctx) {
			select {
			case again <- struct{}{}:
			default:
			}
		}
	}
	informer := cache.NewSharedIndexInformer(listed{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if err := f.cfg.Reachable(ctx); err != nil {
				return nil, err
			}
			o.FieldSelector = f.only()
			return f.cfg.ConfigMaps.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if err := f.cfg.Reachable(ctx); err != nil {
				return nil, err
			}
			o.FieldSelector = f.only()
			return f.cfg.ConfigMaps.Watch(ctx, o)
		},
	}}, &corev1.ConfigMap{}, 0, nil)
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil { // otherwise the error is only that of the end
			f.failed(ctx, err)
		}
	}); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.saw(ctx, o) },
		UpdateFunc: func(_, o any) { f.saw(ctx, o) },
		DeleteFunc: func(o any) {
			if _, seen := o.(*corev1.ConfigMap); seen {
				f.set(ctx, Target{})
			} else { // gone from a list, not seen to be deleted
				missing()
			}
		},
	}); err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) && len(informer.GetStore().ListKeys()) == 0 {
			klog.FromContext(ctx).V(1).Info("The cloud says that the pool has no coordinator")
			missing()
		}
	})
	group.Go(func() {
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
		if run.Pause(ctx, recheck/2+rand.N(recheck/2)) == nil {
			end()
		}
	})
	informer.RunWithContext(ctx)
	return nil
}

// missing takes in that the cloud's list lacks the ConfigMap. It reports whether to list again soon: what is known stays until
// lists have lacked it for forgetAfter.
func (f *Finder) missing(ctx context.Context) (again bool) {
	f.mu.Lock()
	now, known := f.clock.Now(), !f.target.IsZero()
	if f.missingSince.IsZero() {
		f.missingSince = now
	}
	again = known && now.Sub(f.missingSince) < forgetAfter
	f.mu.Unlock()
	if known && !again {
		f.set(ctx, Target{})
	}
	return again
}

// only selects the ConfigMap.
func (f *Finder) only() string {
	return fields.OneTermEqualSelector("metadata.name", f.cfg.Pool.DiscoveryConfigMap()).String()
}

// listed makes the informer list before it watches: one object is not worth a stream.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// failed takes in that the cloud did not show the ConfigMap.
func (f *Finder) failed(ctx context.Context, err error) {
	f.mu.Lock()
	now := f.clock.Now()
	f.missingSince = time.Time{}
	switch {
	case !apierrors.IsForbidden(err):
		f.refusedSince = time.Time{}
	case f.refusedSince.IsZero():
		f.refusedSince = now
	}
	forget := !f.refusedSince.IsZero() && now.Sub(f.refusedSince) >= forgetAfter
	f.mu.Unlock()
	klog.FromContext(ctx).V(2).Info("The cloud does not say where the coordinator is", "err", err)
	if forget {
		f.set(ctx, Target{})
	}
}

// saw takes in what the ConfigMap says.
func (f *Finder) saw(ctx context.Context, o any) {
	m, ok := o.(*corev1.ConfigMap)
	if !ok || m.Name != f.cfg.Pool.DiscoveryConfigMap() {
		return
	}
	t, err := Read(f.cfg.Pool, m.Data)
	complaint := ""
	if err != nil {
		complaint = err.Error()
	}
	f.mu.Lock()
	f.refusedSince, f.missingSince = time.Time{}, time.Time{}
	repeated := complaint == f.complaint
	f.complaint = complaint
	f.mu.Unlock()
	if err == nil {
		f.set(ctx, t.ownedBy(m))
	} else if !repeated {
		klog.FromContext(ctx).Error(err, "Cannot use what the cloud says of the coordinator; what was known before stays",
			"configMap", klog.KRef(m.Namespace, m.Name))
	}
}

// set makes t what is known. It writes the file first, so that whoever acts on t finds it there after a crash.
func (f *Finder) set(ctx context.Context, t Target) {
	f.mu.Lock()
	before := f.target
	if before == t {
		f.mu.Unlock()
		return
	}
	log := klog.FromContext(ctx).WithValues("file", f.path())
	if err := f.write(t); err != nil {
		log.Error(err, "Cannot remember where the coordinator is: after a restart while cut off it will not be known")
	}
	f.target = t
	f.mu.Unlock()
	if t.IsZero() {
		log.Info("The pool has no coordinator any more", "was", before.Address)
	} else if before.Address != t.Address {
		log.Info("The pool's coordinator is known", "address", t.Address, "was", before.Address)
	}
	if before.elsewhere(t) {
		f.cfg.Moved()
	}
}

func (f *Finder) write(t Target) error {
	if t.IsZero() {
		if err := os.Remove(f.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	content, err := json.Marshal(remembered{f.cfg.Pool, t})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.cfg.Dir, 0o700); err != nil {
		return err
	}
	temporary := f.path() + ".new"
	// Not synced: half a file counts as none, and the cloud says it again.
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, f.path()); err != nil {
		return fmt.Errorf("%w: %w", err, os.Remove(temporary))
	}
	return nil
}
