package settings

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

// ForgetAfter is for how long the cloud must refuse to show the ConfigMap, or not list it, before a Notice forgets its content. A
// node loses the right to read the ConfigMap when that is deleted. But an API server that has just started also refuses, until it
// has loaded its roles.
const ForgetAfter = 2 * time.Minute

// Recheck is the longest pause before the next list, if a list lacks a ConfigMap that was known and no watch has reported its
// deletion. A cloud with another etcd, or with an empty one, gives such a list for a while.
const Recheck = 10 * time.Second

// NoticeConfig says what to follow. T is the parsed content of the ConfigMap; its zero value means that nothing is known. All
// fields but Patience and Unusable are required.
type NoticeConfig[T comparable] struct {
	// About says in logs what the ConfigMap is about, as in "the cloud does not say: where the coordinator is".
	About string
	// Name is the ConfigMap's.
	Name string
	// ConfigMaps are the cloud's ConfigMaps in its namespace, as the node sees them.
	ConfigMaps corev1client.ConfigMapInterface
	// Path is the file that keeps the content. Its directory is created, readable by nobody else.
	Path string
	// Read parses a ConfigMap, or returns an error if it cannot be used. Recall and Encode do so for the file.
	Read   func(m *corev1.ConfigMap) (T, error)
	Recall func(content []byte) (T, error)
	Encode func(T) ([]byte, error)
	// Reachable waits until the cloud can be reached, or ctx ends. Without this wait, a hub would notice up to 30 s late that
	// the cloud is back after a long cut.
	Reachable func(ctx context.Context) error
	// Patience is the longest pause before a cloud is asked again that has refused for ForgetAfter; 0 means as after any error.
	Patience time.Duration
	// Heard is called after each usable answer of the cloud, and after each Change, with the content before it.
	Heard func(ctx context.Context, was, is T)
	// Unusable is called with the reason when a ConfigMap cannot be used. nil means that nothing is called.
	Unusable func(why error)
	// Ends are this machine's clocks and random numbers.
	Ends ends.Ends
}

// Notice knows what the ConfigMap says.
type Notice[T comparable] struct {
	cfg NoticeConfig[T]

	unread error // why the file could not be used

	setting sync.Mutex // held while known and its file change; taken before mu

	mu           sync.Mutex
	known        T
	refusedSince time.Time // zero: the cloud's last answer was no refusal
	missingSince time.Time // zero: the cloud's last answer was not that there is none
	complaint    string    // the last one logged about the ConfigMap, so as not to repeat it
}

// NewNotice returns a Notice that starts with the content of the file. If the file can't be used, the Notice starts empty, and
// Run logs why.
func NewNotice[T comparable](cfg NoticeConfig[T]) *Notice[T] {
	n := &Notice[T]{cfg: cfg}
	content, err := os.ReadFile(cfg.Path)
	if err == nil {
		n.known, err = cfg.Recall(content)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		n.unread = err
	}
	return n
}

// Get returns what is known.
func (n *Notice[T]) Get() T {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known
}

// Run follows the ConfigMap until ctx ends.
func (n *Notice[T]) Run(ctx context.Context) error {
	if n.unread != nil {
		klog.FromContext(ctx).Info("What the cloud said is not known until it says it again", "about", n.cfg.About,
			"file", n.cfg.Path, "why", n.unread)
	}
	for ctx.Err() == nil {
		if err := n.follow(ctx); err != nil {
			return err
		}
	}
	return nil
}

// follow lists the ConfigMap and watches it, until ctx ends, or until it is to be listed again because it was missing.
func (n *Notice[T]) follow(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	again := make(chan struct{}, 1)
	missing := func() {
		if n.missing(ctx) {
			select {
			case again <- struct{}{}:
			default:
			}
		}
	}
	informer := cache.NewSharedIndexInformer(listed{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			if err := n.bePatient(ctx); err != nil {
				return nil, err
			}
			if err := n.cfg.Reachable(ctx); err != nil {
				return nil, err
			}
			o.FieldSelector = n.only()
			all, err := n.cfg.ConfigMaps.List(ctx, o)
			if err == nil && len(all.Items) == 0 {
				klog.FromContext(ctx).V(1).Info("The cloud has no such ConfigMap", "about", n.cfg.About)
				missing()
			}
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if err := n.cfg.Reachable(ctx); err != nil {
				return nil, err
			}
			o.FieldSelector = n.only()
			return n.cfg.ConfigMaps.Watch(ctx, o)
		},
	}}, &corev1.ConfigMap{}, 0, nil)
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil { // otherwise the error is only that of the end
			n.failed(ctx, err)
		}
	}); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { n.saw(ctx, o) },
		UpdateFunc: func(_, o any) { n.saw(ctx, o) },
		DeleteFunc: func(o any) {
			if _, seen := o.(*corev1.ConfigMap); seen { // otherwise it was gone from a list
				n.forget(ctx)
			}
		},
	}); err != nil {
		return err
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
		if run.Pause(ctx, Recheck/2+n.cfg.Ends.Below(Recheck/2)) == nil {
			end()
		}
	})
	informer.RunWithContext(ctx)
	return nil
}

// bePatient pauses before it asks a cloud that has refused for ForgetAfter.
func (n *Notice[T]) bePatient(ctx context.Context) error {
	n.mu.Lock()
	refused := !n.refusedSince.IsZero() && n.cfg.Ends.Since(n.refusedSince) >= ForgetAfter
	n.mu.Unlock()
	if !refused || n.cfg.Patience == 0 {
		return nil
	}
	return run.Pause(ctx, n.cfg.Patience/2+n.cfg.Ends.Below(n.cfg.Patience/2))
}

// missing records that the cloud's list lacks the ConfigMap. It forgets the content if lists have lacked the ConfigMap for
// ForgetAfter. Otherwise it reports whether to list again soon.
func (n *Notice[T]) missing(ctx context.Context) (again bool) {
	var nothing T
	n.mu.Lock()
	now, known := n.cfg.Ends.Running(), n.known != nothing
	n.refusedSince = time.Time{}
	if n.missingSince.IsZero() {
		n.missingSince = now
	}
	again = known && now.Sub(n.missingSince) < ForgetAfter
	n.mu.Unlock()
	if known && !again {
		n.forget(ctx)
	}
	return again
}

// only selects the ConfigMap.
func (n *Notice[T]) only() string {
	return fields.OneTermEqualSelector("metadata.name", n.cfg.Name).String()
}

// listed makes the informer list before it watches: one object is not worth a stream.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is what client-go asks.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }

// failed records that the cloud did not show the ConfigMap.
func (n *Notice[T]) failed(ctx context.Context, err error) {
	n.mu.Lock()
	now := n.cfg.Ends.Running()
	n.missingSince = time.Time{}
	switch {
	case !apierrors.IsForbidden(err):
		n.refusedSince = time.Time{}
	case n.refusedSince.IsZero():
		n.refusedSince = now
	}
	forget := !n.refusedSince.IsZero() && now.Sub(n.refusedSince) >= ForgetAfter
	n.mu.Unlock()
	klog.FromContext(ctx).V(2).Info("The cloud does not show a ConfigMap", "about", n.cfg.About, "err", err)
	if forget {
		n.forget(ctx)
	}
}

// saw takes in what the ConfigMap says.
func (n *Notice[T]) saw(ctx context.Context, o any) {
	m, ok := o.(*corev1.ConfigMap)
	if !ok || m.Name != n.cfg.Name {
		return
	}
	said, err := n.cfg.Read(m)
	complaint := ""
	if err != nil {
		complaint = err.Error()
	}
	n.mu.Lock()
	n.refusedSince, n.missingSince = time.Time{}, time.Time{}
	repeated := complaint == n.complaint
	n.complaint = complaint
	n.mu.Unlock()
	if err == nil {
		n.set(ctx, said)
		return
	}
	if !repeated {
		klog.FromContext(ctx).Error(err, "Cannot use what the cloud says; what was known before stays", "about", n.cfg.About,
			"configMap", klog.KRef(m.Namespace, m.Name))
	}
	if n.cfg.Unusable != nil {
		n.cfg.Unusable(err)
	}
}

// forget makes nothing known.
func (n *Notice[T]) forget(ctx context.Context) {
	var nothing T
	n.set(ctx, nothing)
}

// set makes is what is known.
func (n *Notice[T]) set(ctx context.Context, is T) {
	was, is := n.replace(ctx, func(T) T { return is })
	n.cfg.Heard(ctx, was, is)
}

// Change replaces the content by the result of the function change, until the cloud answers again. It reports whether the content
// has changed.
func (n *Notice[T]) Change(ctx context.Context, change func(known T) T) bool {
	was, is := n.replace(ctx, change)
	if was == is {
		return false
	}
	n.cfg.Heard(ctx, was, is)
	return true
}

// replace writes the file first, so that the content is on disk before anything acts on it. It returns the content before and
// after the change. Get does not wait for the disk.
func (n *Notice[T]) replace(ctx context.Context, change func(known T) T) (was, is T) {
	n.setting.Lock()
	defer n.setting.Unlock()
	was = n.Get()
	if is = change(was); was == is {
		return was, is
	}
	if err := n.write(is); err != nil {
		klog.FromContext(ctx).Error(err,
			"Cannot remember what the cloud says: after a restart while cut off it will not be known",
			"about", n.cfg.About, "file", n.cfg.Path)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = is
	return was, is
}

func (n *Notice[T]) write(is T) error {
	var nothing T
	if is == nothing {
		if err := os.Remove(n.cfg.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	content, err := n.cfg.Encode(is)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(n.cfg.Path), 0o700); err != nil {
		return err
	}
	temporary := n.cfg.Path + ".new"
	// The write is not synced: half a file counts as none, and the cloud repeats the content.
	if err := os.WriteFile(temporary, content, 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, n.cfg.Path); err != nil {
		return fmt.Errorf("%w: %w", err, os.Remove(temporary))
	}
	return nil
}
