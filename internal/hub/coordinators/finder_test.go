package coordinators

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"yurtcoordinator/internal/edge"
)

// running runs a Finder in the bubble of a test, until it is stopped.
func running(t *testing.T, cfg FinderConfig) (f *Finder, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f = NewFinder(cfg)
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

// TestAbout checks that Events are about the YurtCoordinator that owns the ConfigMap, also after a restart, and otherwise about
// the NodePool. Another owner does not count as another address.
func TestAbout(t *testing.T) {
	ca := authority(t)
	pool := corev1.ObjectReference{APIVersion: "apps.openyurt.io/v1beta2", Kind: "NodePool", Name: "p1"}
	if got := (Fixed{Pool: "p1"}).About(); got != pool {
		t.Errorf("at a fixed address: %+v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		maps := fake.NewClientset().CoreV1().ConfigMaps(edge.NamespaceSystem)
		moved := 0
		cfg := FinderConfig{
			Pool: "p1", Dir: filepath.Join(t.TempDir(), "pki"), ConfigMaps: maps, Moved: func(edge.Slot, Target) { moved++ },
			Reachable: func(context.Context) error { return nil },
		}
		f, stop := running(t, cfg)
		if got := f.In(0).About(); got != pool {
			t.Errorf("before the cloud has named one: %+v", got)
		}
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name:            edge.PoolName("p1").DiscoveryConfigMap(),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "other", UID: "1"}},
			},
			Data: told(ca),
		}
		if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		known := Target{Place: Place{Address: "10.0.0.2:10270"}, CA: ca}
		if got := f.Target(); got != known || f.In(0).About() != pool || moved != 1 {
			t.Errorf("without an owner: %+v, %+v, moved %d times", got, f.In(0).About(), moved)
		}
		m.OwnerReferences = append(m.OwnerReferences,
			metav1.OwnerReference{APIVersion: "apps.openyurt.io/v1alpha1", Kind: "YurtCoordinator", Name: "shop", UID: "2"})
		if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := corev1.ObjectReference{APIVersion: "apps.openyurt.io/v1alpha1", Kind: "YurtCoordinator", Name: "shop", UID: "2"}
		if got := f.In(0).About(); got != want || moved != 1 {
			t.Errorf("got %+v, moved %d times", got, moved)
		}
		stop()
		if got := NewFinder(cfg).In(0).About(); got != want {
			t.Errorf("started again: %+v", got)
		}

		f, stop = running(t, cfg)
		m.Data[edge.DiscoveryServer] = "https://10.0.0.3:10270"
		if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if f.Target().Address != "10.0.0.3:10270" || f.In(0).About() != want || moved != 2 {
			t.Errorf("moved: %+v, %+v, %d times", f.Target(), f.In(0).About(), moved)
		}
		err := maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{})
		synctest.Wait()
		if err != nil || f.In(0).About() != pool || moved != 3 {
			t.Errorf("deleted: %v, %+v, moved %d times", err, f.In(0).About(), moved)
		}
		stop()
	})
}

// TestFoundInSlots: each coordinator has a place of its own, and only what changes has moved.
func TestFoundInSlots(t *testing.T) {
	ca, other := authority(t), authority(t)
	synctest.Test(t, func(t *testing.T) {
		maps := fake.NewClientset().CoreV1().ConfigMaps(edge.NamespaceSystem)
		var moved []edge.Slot
		cfg := FinderConfig{
			Pool: "p1", Dir: filepath.Join(t.TempDir(), "pki"), ConfigMaps: maps,
			Moved:     func(slot edge.Slot, is Target) { moved = append(moved, slot) },
			Reachable: func(context.Context) error { return nil },
		}
		f, stop := running(t, cfg)
		defer func() { stop() }()
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: edge.PoolName("p1").DiscoveryConfigMap()}, Data: told(ca)}
		is := func(want []edge.Slot, addresses ...string) {
			t.Helper()
			synctest.Wait()
			for slot, want := range addresses {
				found := f.In(edge.Slot(slot))
				at, err := found.Address()
				if at != want || (want == "") != errors.Is(err, ErrNone) || want != "" && found.URL() != "https://"+want {
					t.Errorf("slot %d is at %q, %v; want %q", slot, at, err, want)
				}
			}
			if !slices.Equal(moved, want) {
				t.Errorf("moved: %v, want %v", moved, want)
			}
			moved = nil
		}
		update := func() {
			t.Helper()
			if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		is([]edge.Slot{0}, "10.0.0.2:10270", "", "")
		m.Data[edge.Slot(1).ServerKey()] = "https://10.0.0.3:10270"
		update()
		is([]edge.Slot{1}, "10.0.0.2:10270", "10.0.0.3:10270", "")
		if got := f.Target().Servers(); !slices.Equal(got, []string{"https://10.0.0.2:10270", "https://10.0.0.3:10270"}) {
			t.Errorf("servers: %v", got)
		}
		m.Data[edge.DiscoveryCA] = other
		update()
		is([]edge.Slot{0, 1}, "10.0.0.2:10270", "10.0.0.3:10270", "")
		delete(m.Data, edge.DiscoveryServer)
		update()
		is([]edge.Slot{0}, "", "10.0.0.3:10270", "")
	})
}
