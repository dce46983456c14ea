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

// TestFinder: the Finder follows the ConfigMap, and knows after a restart what it knew before.
func TestFinder(t *testing.T) {
	ca := authority(t)
	synctest.Test(t, func(t *testing.T) {
		maps := fake.NewClientset().CoreV1().ConfigMaps(edge.NamespaceSystem)
		moved := 0
		cfg := FinderConfig{
			Pool: "p1", Dir: filepath.Join(t.TempDir(), "pki"), ConfigMaps: maps, Moved: func(edge.Slot, Target) { moved++ },
			Reachable: func(context.Context) error { return nil },
		}
		f, stop := running(t, cfg)
		is := func(what string, want Target, moves int) {
			t.Helper()
			synctest.Wait()
			_, known := f.Clients()
			if got := f.Target(); got != want || known == want.IsZero() || moved != moves {
				t.Errorf("%s: %+v, known: %t, moved %d times; want %+v, moved %d times", what, got, known, moved, want, moves)
			}
		}
		is("before the cloud has named one", Target{}, 0)
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
		known := Target{Place: Place{Address: "10.0.0.2:10270"}, CA: ca}
		is("named", known, 1)
		m.OwnerReferences[0].Name = "another"
		if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		is("of another owner", known, 1)
		stop()
		if got := NewFinder(cfg).Target(); got != known {
			t.Errorf("started again: %+v", got)
		}

		f, stop = running(t, cfg)
		m.Data[edge.DiscoveryServer] = "https://10.0.0.3:10270"
		if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		known.Address = "10.0.0.3:10270"
		is("moved", known, 2)
		if err := maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		is("deleted", Target{}, 3)
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
