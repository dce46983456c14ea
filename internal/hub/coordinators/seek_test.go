package coordinators

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/lookout"
	"yurtcoordinator/internal/lookout/lookouttest"
)

const knownAt = "10.0.0.2:10270"

// site is a node that is told by the cloud where its coordinator is, and a LAN.
type site struct {
	t                  *testing.T
	pool, stranger     *lookouttest.Authority
	lan                lookouttest.LAN
	maps               corev1client.ConfigMapInterface
	cfg                FinderConfig
	finder             *Finder
	cloud, coordinator *live.Value[link.State]
	moved              int
}

// newSite returns one whose coordinator is of generation 0.5, and has its Finder and its Seeker run until the test ends.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{
		t: t, pool: lookouttest.NewAuthority(t), stranger: lookouttest.NewAuthority(t),
		maps:  fake.NewClientset().CoreV1().ConfigMaps(edge.NamespaceSystem),
		cloud: live.NewValue(link.Up), coordinator: live.NewValue(link.Up),
	}
	s.cfg = FinderConfig{
		Pool: "p1", Dir: filepath.Join(t.TempDir(), "pki"), ConfigMaps: s.maps, Moved: func(edge.Slot, Target) { s.moved++ },
		Reachable: func(context.Context) error { return nil },
	}
	var stop func()
	s.finder, stop = running(t, s.cfg)
	s.say("0.5", s.pool)
	client := s.pool.Sign("p1", "", x509.ExtKeyUsageClientAuth)
	seeker := NewSeeker(SeekerConfig{
		Finder: s.finder, Slot: 0, Cloud: s.cloud, Coordinator: s.coordinator, Dial: s.lan.Dial, Now: time.Now,
		Certificate: func() (*tls.Certificate, error) { return &client, nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- seeker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		stop()
	})
	s.at(knownAt, "0.5", 1)
	return s
}

// say has the cloud say that the coordinator is at knownAt, of a generation, and by whose authority.
func (s *site) say(generation string, by *lookouttest.Authority) {
	s.t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: edge.PoolName("p1").DiscoveryConfigMap()}, Data: told(by.PEM())}
	m.Data[edge.DiscoveryGeneration] = generation
	m.Data[edge.DiscoveryNodes] = "10.0.0.2\n10.0.0.3\n10.0.0.4\n10.0.0.5\nfd00::6\n"
	_, err := s.maps.Update(s.t.Context(), m, metav1.UpdateOptions{})
	if err != nil {
		_, err = s.maps.Create(s.t.Context(), m, metav1.CreateOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	synctest.Wait()
}

// at fails unless, some looks later, the coordinator is known to be somewhere, and has moved so often.
func (s *site) at(want, generation string, moved int) {
	s.t.Helper()
	time.Sleep(3 * lookout.Pause(5, ends.Chance{})) // of the bubble's clock
	synctest.Wait()
	if got := s.finder.Target(); got.Address != want || got.Generation.String() != generation || s.moved != moved {
		s.t.Errorf("it is at %s, of generation %s, and moved %d times; want %s, %s, %d", got.Address, got.Generation, s.moved,
			want, generation, moved)
	}
}

func (s *site) dialed() int {
	addresses, _ := s.lan.Dialed()
	return len(addresses)
}

// TestTheCoordinatorIsFoundOnTheLAN, remembered, and the cloud's word counts again when it comes.
func TestTheCoordinatorIsFoundOnTheLAN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.lan.Set(map[string]*tls.Config{"10.0.0.3:10270": s.pool.Coordinator("p1", "0.6"), "10.0.0.4:10270": nil})
		s.cloud.Set(link.Down)
		s.coordinator.Set(link.Down)
		s.at("10.0.0.3:10270", "0.6", 2)

		s.coordinator.Set(link.Up) // and down again: it has moved once more
		s.coordinator.Set(link.Down)
		s.lan.Set(map[string]*tls.Config{
			"10.0.0.3:10270": s.pool.Coordinator("p1", "0.6"), knownAt: s.pool.Coordinator("p1", "0.7"),
			"10.0.0.5:10270": s.pool.Coordinator("p1", "0.5"),
		})
		s.at(knownAt, "0.7", 3)

		again := NewFinder(FinderConfig{Pool: "p1", Dir: s.cfg.Dir, ConfigMaps: s.maps}) // after a restart
		if got := again.Target(); got != s.finder.Target() || got.Generation != (edge.Generation{Number: 7}) {
			t.Errorf("after a restart: %+v", got)
		}
		s.cloud.Set(link.Up)
		s.say("0.6", s.pool)
		s.at(knownAt, "0.6", 3)
	})
}

// TestWhileSomebodyCanBeAsked nobody looks.
func TestWhileSomebodyCanBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.lan.Set(map[string]*tls.Config{"10.0.0.3:10270": s.pool.Coordinator("p1", "0.6")})
		for _, tt := range []struct{ cloud, coordinator link.State }{
			{link.Down, link.Up}, {link.Failing, link.Up}, {link.Up, link.Down}, {link.Relayed, link.Down},
			{link.Unknown, link.Down}, {link.Down, link.Unknown},
		} {
			s.cloud.Set(tt.cloud)
			s.coordinator.Set(tt.coordinator)
			s.at(knownAt, "0.5", 1)
			if n := s.dialed(); n != 0 {
				t.Fatalf("%v, %v: it looked at %d addresses", tt.cloud, tt.coordinator, n)
			}
			s.coordinator.Set(link.Up)
		}
		s.cloud.Set(link.Failing) // it answers, but does not say where
		s.coordinator.Set(link.Down)
		s.at("10.0.0.3:10270", "0.6", 2)
	})
}

// TestAThiefOnTheLAN: who has no certificate by the pool's authority of a younger coordinator is passed over.
func TestAThiefOnTheLAN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		s.cloud.Set(link.Down)
		s.coordinator.Set(link.Down)
		for name, server := range map[string]*tls.Config{
			"another pool's": s.pool.Coordinator("p2", "0.9"), "forged": s.stranger.Coordinator("p1", "0.9"),
			"stolen long ago": s.pool.Coordinator("p1", "0.4"), "stolen from the known one": s.pool.Coordinator("p1", "0.5"),
			"of another slot": s.pool.Coordinator("p1", "1.9"), "of before": s.pool.Coordinator("p1", ""),
			"malformed": s.pool.Coordinator("p1", "9"), "silent": nil,
		} {
			s.lan.Set(map[string]*tls.Config{
				"10.0.0.3:10270": server, "10.0.0.9:10270": s.pool.Coordinator("p1", "0.9"), // and where no node of the pool is
			})
			s.at(knownAt, "0.5", 1)
			if s.dialed() == 0 {
				t.Errorf("%s: nobody looked", name)
			}
		}
	})
}

// TestFoundTooLate: what was found under what the cloud said before counts no longer.
func TestFoundTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		at := Place{"10.0.0.3:10270", edge.Generation{Number: 6}}
		if s.say("0.7", s.pool); s.finder.found(t.Context(), s.pool.PEM(), at) {
			t.Error("an older one than the cloud has named")
		}
		if s.say("0.5", s.stranger); s.finder.found(t.Context(), s.pool.PEM(), at) {
			t.Error("one of an authority that is no longer trusted")
		}
		err := s.maps.Delete(t.Context(), edge.PoolName("p1").DiscoveryConfigMap(), metav1.DeleteOptions{})
		if synctest.Wait(); err != nil || s.finder.found(t.Context(), s.stranger.PEM(), at) {
			t.Error("though the pool has none any more", err)
		}
		if _, err := s.finder.In(0).Address(); !errors.Is(err, ErrNone) {
			t.Error(err)
		}
	})
}
