package settings

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const name, namespace = "posted", "kube-system"

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))

func says(word string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"word": word},
	}
}

// config is about words, of which "bad" cannot be used. Its directory does not exist yet.
func config(t *testing.T) NoticeConfig[string] {
	t.Helper()
	usable := func(word string) (string, error) {
		if word == "" || word == "bad" {
			return "", errors.New("a bad word")
		}
		return word, nil
	}
	return NoticeConfig[string]{
		About: "words", Name: name, Path: filepath.Join(t.TempDir(), "pki", "word"),
		Read:   func(m *corev1.ConfigMap) (string, error) { return usable(m.Data["word"]) },
		Recall: func(content []byte) (string, error) { return usable(string(content)) },
		Encode: func(word string) ([]byte, error) { return []byte(word), nil },
		Heard:  func(context.Context, string, string) {},
	}
}

// posted returns a Notice, its clock, and a function that makes a later one with the same Config.
func posted(
	t *testing.T, cfg NoticeConfig[string],
) (n *Notice[string], now *time.Time, later func() *Notice[string]) {
	t.Helper()
	now = new(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	cfg.Ends.Ran = func() time.Time { return *now }
	later = func() *Notice[string] { return NewNotice(cfg) }
	return later(), now, later
}

func TestRemembered(t *testing.T) {
	n, _, later := posted(t, config(t))
	if n.Get() != "" {
		t.Fatalf("it knows a word that nobody told it: %s", n.Get())
	}
	n.saw(t.Context(), says("one"))
	if n.Get() != "one" || later().Get() != "one" {
		t.Errorf("got %q, and after a restart %q", n.Get(), later().Get())
	}
	info, err := os.Stat(n.cfg.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	n.saw(t.Context(), says("two"))
	if got := later().Get(); got != "two" {
		t.Errorf("changed: %s", got)
	}
	n.forget(t.Context())
	if got := later().Get(); got != "" {
		t.Errorf("deleted: %v", got)
	}
	if _, err := os.Stat(n.cfg.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("deleted: the file is left: %v", err)
	}
}

// TestADiskThatHangs: what was known before can be had while the file is written.
func TestADiskThatHangs(t *testing.T) {
	cfg := config(t)
	var n *Notice[string]
	cfg.Encode = func(word string) ([]byte, error) {
		if !n.mu.TryLock() {
			t.Errorf("nobody can ask while %q is written", word)
			return []byte(word), nil
		}
		n.mu.Unlock()
		if known := n.Get(); known == word {
			t.Errorf("%q is known before it is written", word)
		}
		return []byte(word), nil
	}
	n, _, later := posted(t, cfg)
	n.saw(t.Context(), says("one"))
	if !n.Change(t.Context(), func(known string) string { return known + " more" }) || n.Get() != "one more" {
		t.Errorf("got %q", n.Get())
	}
	if got := later().Get(); got != "one more" {
		t.Errorf("after a restart %q", got)
	}
}

func TestBadConfigMap(t *testing.T) {
	cfg := config(t)
	heard, unusable := 0, 0
	cfg.Heard = func(context.Context, string, string) { heard++ }
	cfg.Unusable = func(error) { unusable++ }
	n, _, later := posted(t, cfg)
	n.saw(t.Context(), says("one"))
	n.saw(t.Context(), says("bad"))
	other := says("other")
	other.Name += "-more"
	n.saw(t.Context(), other)
	if n.Get() != "one" || later().Get() != "one" || heard != 1 || unusable != 1 {
		t.Errorf("known is %q, after a restart %q; heard %d, unusable %d", n.Get(), later().Get(), heard, unusable)
	}
	n.saw(t.Context(), says("one")) // who was told that it is unusable hears that it no longer is
	if heard != 2 {
		t.Errorf("heard %d", heard)
	}
	if err := os.WriteFile(n.cfg.Path, []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := later().Get(); got != "" {
		t.Errorf("a bad file is believed: %v", got)
	}
}

func TestRefused(t *testing.T) {
	n, now, _ := posted(t, config(t))
	known := func() bool { return n.Get() != "" }
	n.saw(t.Context(), says("one"))
	n.failed(t.Context(), forbidden)
	*now = now.Add(ForgetAfter - time.Second)
	n.failed(t.Context(), forbidden)
	if !known() {
		t.Fatal("forgotten too early: an API server that starts refuses, too")
	}
	n.failed(t.Context(), errors.New("the link is down"))
	*now = now.Add(ForgetAfter)
	n.failed(t.Context(), forbidden)
	if !known() {
		t.Fatal("the refusals before and after a cut are taken for one")
	}
	*now = now.Add(ForgetAfter)
	n.failed(t.Context(), forbidden)
	if known() {
		t.Error("still known, though the cloud has refused to show it for minutes")
	}
}

// running runs a Notice in the bubble of a test, until it is stopped.
func running(t *testing.T, cfg NoticeConfig[string]) (n *Notice[string], stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	if cfg.Reachable == nil {
		cfg.Reachable = func(context.Context) error { return nil }
	}
	n = NewNotice(cfg)
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	synctest.Wait()
	return n, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// is expects a Notice to know a word; empty: none.
func is(t *testing.T, n *Notice[string], want string) {
	t.Helper()
	synctest.Wait()
	if got := n.Get(); got != want {
		t.Errorf("known is %q, want %q", got, want)
	}
}

// What follows the ConfigMap of a cloud.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.NewClientset()
		var refuse atomic.Bool
		cloud.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuse.Load(), nil, forbidden
		})
		maps := cloud.CoreV1().ConfigMaps(namespace)
		cfg := config(t)
		cfg.ConfigMaps = maps
		n, stop := running(t, cfg)
		is(t, n, "")
		_, err := maps.Create(t.Context(), says("one"), metav1.CreateOptions{})
		is(t, n, "one")
		_, err2 := maps.Update(t.Context(), says("two"), metav1.UpdateOptions{})
		is(t, n, "two")
		stop()

		refuse.Store(true)
		n, stop = running(t, cfg)
		time.Sleep(ForgetAfter / 2)
		is(t, n, "two")
		time.Sleep(ForgetAfter)
		is(t, n, "")
		refuse.Store(false)
		time.Sleep(time.Minute)
		is(t, n, "two")
		stop()

		err3 := maps.Delete(t.Context(), name, metav1.DeleteOptions{})
		n, stop = running(t, cfg)
		time.Sleep(ForgetAfter - Recheck)
		is(t, n, "two")
		time.Sleep(3 * Recheck)
		is(t, n, "") // it was deleted while nobody looked
		stop()
		if err := errors.Join(err, err2, err3); err != nil {
			t.Error(err)
		}
	})
}

// TestACloudThatSeemsEmpty: it does not end what is known; a cloud that has deleted the ConfigMap does, at once.
func TestACloudThatSeemsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.NewClientset()
		var empty atomic.Bool
		cloud.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return empty.Load(), &corev1.ConfigMapList{}, nil
		})
		maps := cloud.CoreV1().ConfigMaps(namespace)
		if _, err := maps.Create(t.Context(), says("one"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		cfg := config(t)
		cfg.ConfigMaps = maps
		n, stop := running(t, cfg)
		is(t, n, "one")
		stop()
		empty.Store(true)
		n, stop = running(t, cfg) // a hub that starts meanwhile
		time.Sleep(ForgetAfter / 2)
		is(t, n, "one")
		empty.Store(false)
		time.Sleep(2 * ForgetAfter)
		is(t, n, "one")
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		is(t, n, "")
		stop()
	})
}

// TestAfterACut: a coordinator that has moved during a long cut is found as soon as the cloud can be reached.
func TestAfterACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.NewClientset()
		var asked atomic.Int32
		cloud.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked.Add(1)
			return false, nil, nil
		})
		up := make(chan struct{})
		maps := cloud.CoreV1().ConfigMaps(namespace)
		cfg := config(t)
		cfg.ConfigMaps, cfg.Reachable = maps, func(ctx context.Context) error {
			select {
			case <-up:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		n, stop := running(t, cfg)
		if _, err := maps.Create(t.Context(), says("one"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := asked.Load(); n != 0 {
			t.Errorf("the cloud was asked %d times while it could not be reached", n)
		}
		close(up)
		is(t, n, "one")
		stop()
	})
}

// TestPatience: a cloud that has refused for minutes, since it has no such ConfigMaps, is asked seldom.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.NewClientset()
		var asked atomic.Int32
		cloud.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked.Add(1)
			return true, nil, forbidden
		})
		cfg := config(t)
		cfg.ConfigMaps, cfg.Patience = cloud.CoreV1().ConfigMaps(namespace), 10*time.Minute
		_, stop := running(t, cfg)
		time.Sleep(2 * ForgetAfter)
		before := asked.Load()
		time.Sleep(time.Hour)
		if n := asked.Load() - before; n < 4 || n > 13 {
			t.Errorf("asked %d times in an hour", n)
		}
		stop()
	})
}
