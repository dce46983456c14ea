package discover

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
	clocktesting "k8s.io/utils/clock/testing"

	"yurtcoordinator/internal/edge"
)

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: edge.PoolName("p1").DiscoveryConfigMap()},
		Data:       data,
	}
}

// finder returns a Finder whose directory does not exist yet, its clock, and a function that makes a later one with the
// same Config.
func finder(t *testing.T) (f *Finder, now *clocktesting.FakePassiveClock, later func() *Finder) {
	t.Helper()
	now = clocktesting.NewFakePassiveClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	cfg := Config{Pool: "p1", Dir: filepath.Join(t.TempDir(), "pki"), Moved: func() {}}
	later = func() *Finder {
		f := New(cfg)
		f.clock = now
		return f
	}
	return later(), now, later
}

func TestRemembered(t *testing.T) {
	f, _, later := finder(t)
	if _, err := f.Address(); !errors.Is(err, ErrNone) || len(f.CA()) != 0 {
		t.Fatalf("it knows a coordinator that nobody told it of: %v", err)
	}
	ca := authority(t)
	f.saw(t.Context(), configMap(told(ca)))
	want := Target{Address: "10.0.0.2:10270", CA: ca}
	if address, err := f.Address(); address != want.Address || err != nil || string(f.CA()) != ca {
		t.Errorf("got %s, %v", address, err)
	}
	if got := later().Target(); got != want {
		t.Errorf("started again: %v, want %v", got, want)
	}
	info, err := os.Stat(f.path())
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}

	moved := told(ca)
	moved[edge.DiscoveryServer] = "https://10.0.0.3:10270"
	f.saw(t.Context(), configMap(moved))
	if got := later().Target().Address; got != "10.0.0.3:10270" {
		t.Errorf("moved: %s", got)
	}
	f.set(t.Context(), Target{})
	if got := later().Target(); !got.IsZero() {
		t.Errorf("deleted: %v", got)
	}
	if _, err := os.Stat(f.path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("deleted: the file is left: %v", err)
	}
}

// TestAbout: Events are about the YurtCoordinator that owns the ConfigMap, also after a restart, and else about the NodePool.
func TestAbout(t *testing.T) {
	f, _, later := finder(t)
	pool := corev1.ObjectReference{APIVersion: "apps.openyurt.io/v1beta2", Kind: "NodePool", Name: "p1"}
	m := configMap(told(authority(t)))
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "other", UID: "1"}}
	f.saw(t.Context(), m)
	if got := f.About(); got != pool {
		t.Errorf("without an owner: %+v", got)
	}
	m.OwnerReferences = append(m.OwnerReferences,
		metav1.OwnerReference{APIVersion: "apps.openyurt.io/v1alpha1", Kind: "YurtCoordinator", Name: "shop", UID: "2"})
	f.saw(t.Context(), m)
	want := corev1.ObjectReference{APIVersion: "apps.openyurt.io/v1alpha1", Kind: "YurtCoordinator", Name: "shop", UID: "2"}
	if got := f.About(); got != want {
		t.Errorf("got %+v", got)
	}
	if got := later().About(); got != want {
		t.Errorf("started again: %+v", got)
	}
	if got := (Fixed{Pool: "p1"}).About(); got != pool {
		t.Errorf("at a fixed address: %+v", got)
	}
}

func TestBadConfigMap(t *testing.T) {
	f, _, later := finder(t)
	ca := authority(t)
	f.saw(t.Context(), configMap(told(ca)))
	bad := told(ca)
	bad[edge.DiscoveryServerName] = "p2.yurt-coordinator-apiserver.kube-system.svc"
	bad[edge.DiscoveryServer] = "https://10.6.6.6:10270"
	for _, m := range []*corev1.ConfigMap{configMap(bad), configMap(nil)} {
		f.saw(t.Context(), m)
		if got := f.Target().Address; got != "10.0.0.2:10270" {
			t.Errorf("now it is %s", got)
		}
	}
	other := configMap(told(ca))
	other.Name += "-more"
	other.Data[edge.DiscoveryServer] = "https://10.6.6.6:10270"
	f.saw(t.Context(), other)
	if got := later().Target().Address; got != "10.0.0.2:10270" {
		t.Errorf("another ConfigMap is believed: %s", got)
	}
	if err := os.WriteFile(f.path(), []byte(`{"pool":"p1","addr`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := later().Target(); !got.IsZero() {
		t.Errorf("half a file is believed: %v", got)
	}
}

func TestRefused(t *testing.T) {
	f, now, _ := finder(t)
	known := func() bool { return !f.Target().IsZero() }
	f.saw(t.Context(), configMap(told(authority(t))))
	f.failed(t.Context(), forbidden)
	now.SetTime(now.Now().Add(forgetAfter - time.Second))
	f.failed(t.Context(), forbidden)
	if !known() {
		t.Fatal("forgotten too early: an API server that starts refuses, too")
	}
	f.failed(t.Context(), errors.New("the link is down"))
	now.SetTime(now.Now().Add(forgetAfter))
	f.failed(t.Context(), forbidden)
	if !known() {
		t.Fatal("the refusals before and after a cut are taken for one")
	}
	now.SetTime(now.Now().Add(forgetAfter))
	f.failed(t.Context(), forbidden)
	if known() {
		t.Error("still known, though the cloud has refused to show it for minutes")
	}
}

// running runs a Finder in the bubble of a test, until it is stopped.
func running(t *testing.T, cfg Config) (f *Finder, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Moved = func() {}
	if cfg.Reachable == nil {
		cfg.Reachable = func(context.Context) error { return nil }
	}
	f = New(cfg)
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	synctest.Wait()
	return f, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// is expects a Finder to know the coordinator at an address; empty: to know of none.
func is(t *testing.T, f *Finder, want string) {
	t.Helper()
	synctest.Wait()
	if got := f.Target().Address; got != want {
		t.Errorf("the coordinator is at %q, want %q", got, want)
	}
}

// What follows the ConfigMap of a cloud.
func TestRun(t *testing.T) {
	ca := authority(t)
	moved := told(ca)
	moved[edge.DiscoveryServer] = "https://10.0.0.3:10270"
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.NewClientset()
		var refuse atomic.Bool
		cloud.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuse.Load(), nil, forbidden
		})
		maps := cloud.CoreV1().ConfigMaps(edge.NamespaceSystem)
		cfg := Config{Pool: "p1", Dir: t.TempDir(), ConfigMaps: maps}
		f, stop := running(t, cfg)
		is(t, f, "")
		_, err := maps.Create(t.Context(), configMap(told(ca)), metav1.CreateOptions{})
		is(t, f, "10.0.0.2:10270")
		_, err2 := maps.Update(t.Context(), configMap(moved), metav1.UpdateOptions{})
		is(t, f, "10.0.0.3:10270")
		stop()

		refuse.Store(true)
		f, stop = running(t, cfg)
		time.Sleep(forgetAfter / 2)
		is(t, f, "10.0.0.3:10270")
		time.Sleep(forgetAfter)
		is(t, f, "")
		refuse.Store(false)
		time.Sleep(time.Minute)
		is(t, f, "10.0.0.3:10270")
		stop()

		err3 := maps.Delete(t.Context(), "yurt-coordinator-p1", metav1.DeleteOptions{})
		f, stop = running(t, cfg)
		time.Sleep(forgetAfter - recheck)
		is(t, f, "10.0.0.3:10270")
		time.Sleep(3 * recheck)
		is(t, f, "") // it was deleted while nobody looked
		stop()
		if err := errors.Join(err, err2, err3); err != nil {
			t.Error(err)
		}
	})
}

// TestACloudThatSeemsEmpty: it does not end what is known; a cloud that has deleted the ConfigMap does, at once.
func TestACloudThatSeemsEmpty(t *testing.T) {
	ca := authority(t)
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.NewClientset()
		var empty atomic.Bool
		cloud.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return empty.Load(), &corev1.ConfigMapList{}, nil
		})
		maps := cloud.CoreV1().ConfigMaps(edge.NamespaceSystem)
		if _, err := maps.Create(t.Context(), configMap(told(ca)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		cfg := Config{Pool: "p1", Dir: t.TempDir(), ConfigMaps: maps}
		f, stop := running(t, cfg)
		is(t, f, "10.0.0.2:10270")
		stop()
		empty.Store(true)
		f, stop = running(t, cfg) // a hub that starts meanwhile
		time.Sleep(forgetAfter / 2)
		is(t, f, "10.0.0.2:10270")
		empty.Store(false)
		time.Sleep(2 * forgetAfter)
		is(t, f, "10.0.0.2:10270")
		if err := maps.Delete(t.Context(), "yurt-coordinator-p1", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		is(t, f, "")
		stop()
	})
}

// TestAfterACut: a coordinator that has moved during a long cut is found as soon as the cloud can be reached.
func TestAfterACut(t *testing.T) {
	ca := authority(t)
	synctest.Test(t, func(t *testing.T) {
		cloud := fake.NewClientset()
		var asked atomic.Int32
		cloud.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked.Add(1)
			return false, nil, nil
		})
		up := make(chan struct{})
		maps := cloud.CoreV1().ConfigMaps(edge.NamespaceSystem)
		f, stop := running(t, Config{Pool: "p1", Dir: t.TempDir(), ConfigMaps: maps, Reachable: func(ctx context.Context) error {
			select {
			case <-up:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		if _, err := maps.Create(t.Context(), configMap(told(ca)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := asked.Load(); n != 0 {
			t.Errorf("the cloud was asked %d times while it could not be reached", n)
		}
		close(up)
		is(t, f, "10.0.0.2:10270")
		stop()
	})
}
