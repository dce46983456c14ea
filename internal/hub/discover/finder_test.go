package discover

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"yurtcoordinator/internal/edge"
)

// running runs a Finder in the bubble of a test, until it is stopped.
func running(t *testing.T, cfg Config) (f *Finder, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
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

// TestAbout: Events are about the YurtCoordinator that owns the ConfigMap, also after a restart, and else about the NodePool.
// Another owner is no other address.
func TestAbout(t *testing.T) {
	ca := authority(t)
	pool := corev1.ObjectReference{APIVersion: "apps.openyurt.io/v1beta2", Kind: "NodePool", Name: "p1"}
	if got := (Fixed{Pool: "p1"}).About(); got != pool {
		t.Errorf("at a fixed address: %+v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		maps := fake.NewClientset().CoreV1().ConfigMaps(edge.NamespaceSystem)
		moved := 0
		cfg := Config{
			Pool: "p1", Dir: filepath.Join(t.TempDir(), "pki"), ConfigMaps: maps, Moved: func() { moved++ },
			Reachable: func(context.Context) error { return nil },
		}
		f, stop := running(t, cfg)
		if got := f.About(); got != pool {
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
		if got := f.Target(); got != known || f.About() != pool || moved != 1 {
			t.Errorf("without an owner: %+v, %+v, moved %d times", got, f.About(), moved)
		}
		m.OwnerReferences = append(m.OwnerReferences,
			metav1.OwnerReference{APIVersion: "apps.openyurt.io/v1alpha1", Kind: "YurtCoordinator", Name: "shop", UID: "2"})
		if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		want := corev1.ObjectReference{APIVersion: "apps.openyurt.io/v1alpha1", Kind: "YurtCoordinator", Name: "shop", UID: "2"}
		if got := f.About(); got != want || moved != 1 {
			t.Errorf("got %+v, moved %d times", got, moved)
		}
		stop()
		if got := New(cfg).About(); got != want {
			t.Errorf("started again: %+v", got)
		}

		f, stop = running(t, cfg)
		m.Data[edge.DiscoveryServer] = "https://10.0.0.3:10270"
		if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if f.Target().Address != "10.0.0.3:10270" || f.About() != want || moved != 2 {
			t.Errorf("moved: %+v, %+v, %d times", f.Target(), f.About(), moved)
		}
		err := maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{})
		synctest.Wait()
		if err != nil || f.About() != pool || moved != 3 {
			t.Errorf("deleted: %v, %+v, moved %d times", err, f.About(), moved)
		}
		stop()
	})
}
