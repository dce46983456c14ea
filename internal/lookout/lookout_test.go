package lookout_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/lookout"
	"yurtcoordinator/internal/lookout/lookouttest"
)

func searching(pool *lookouttest.Authority, lan *lookouttest.LAN) lookout.Search {
	client := pool.Sign("p1", "", x509.ExtKeyUsageClientAuth)
	return lookout.Search{
		ServerName: edge.PoolName("p1").CoordinatorServerName(), Roots: pool.Pool(), Dial: lan.Dial, Now: time.Now,
		Certificate: func() (*tls.Certificate, error) { return &client, nil },
	}
}

// TestACoordinatorIsKnownByItsCertificate: by the pool's authority, for the pool's name, for serving, with a generation.
func TestACoordinatorIsKnownByItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, stranger := lookouttest.NewAuthority(t), lookouttest.NewAuthority(t)
		operators := &tls.Config{
			Certificates: []tls.Certificate{pool.Sign("p1", "0.9", x509.ExtKeyUsageClientAuth)}, MinVersion: tls.VersionTLS12,
		}
		var lan lookouttest.LAN
		lan.Set(map[string]*tls.Config{
			"slot 0": pool.Coordinator("p1", "0.7"), "slot 2": pool.Coordinator("p1", "2.3"),
			"before": pool.Coordinator("p1", ""), "forged": stranger.Coordinator("p1", "0.9"),
			"other pool": pool.Coordinator("p2", "0.9"), "malformed": pool.Coordinator("p1", "9"),
			"no slot": pool.Coordinator("p1", "7.9"), "operators": operators, "hangs": nil,
		})
		found := map[string]edge.Generation{}
		searching(pool, &lan).Look(t.Context(), []string{"slot 0", "slot 2", "before", "forged", "other pool", "malformed",
			"no slot", "operators", "hangs", "nobody"}, func(at string, is edge.Generation) { found[at] = is })
		want := map[string]edge.Generation{"slot 0": {Number: 7}, "slot 2": {Slot: 2, Number: 3}, "before": {}}
		if !maps.Equal(found, want) {
			t.Errorf("found %v, want %v", found, want)
		}
	})
}

// TestAnExpiredCertificateIsNone by the searcher's own clock.
func TestAnExpiredCertificateIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := lookouttest.NewAuthority(t)
		var lan lookouttest.LAN
		lan.Set(map[string]*tls.Config{"a": pool.Coordinator("p1", "0.7")})
		search := searching(pool, &lan)
		search.Now = func() time.Time { return time.Unix(1<<34, 0) }
		search.Look(t.Context(), []string{"a"}, func(string, edge.Generation) { t.Error("found") })
	})
}

// TestWhoAnswersSlowlyCostsLittle: each has its time, few are looked at at once, and what is found is told before all are done.
func TestWhoAnswersSlowlyCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := lookouttest.NewAuthority(t)
		servers, addresses := map[string]*tls.Config{}, []string{"good"}
		for i := range 50 {
			at := fmt.Sprint("slow ", i)
			servers[at] = nil
			addresses = append(addresses, at)
		}
		servers["good"] = pool.Coordinator("p1", "0.7")
		var lan lookouttest.LAN
		lan.Set(servers)
		began, found := time.Now(), 0
		searching(pool, &lan).Look(t.Context(), addresses, func(string, edge.Generation) { found++ })
		dialed, most := lan.Dialed()
		slices.Sort(dialed)
		if took := time.Since(began); found != 1 || took > 7*lookout.Patience || most > lookout.AtOnce ||
			len(dialed) != 51 || len(slices.Compact(dialed)) != 51 {
			t.Errorf("found %d, after %v, with %d at once, %d dialed", found, took, most, len(dialed))
		}
	})
}

// TestALookEndsWithItsContext.
func TestALookEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := lookouttest.NewAuthority(t)
		var lan lookouttest.LAN
		lan.Set(map[string]*tls.Config{"a": nil, "b": nil})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began := time.Now()
		searching(pool, &lan).Look(ctx, []string{"a", "b"}, func(string, edge.Generation) { t.Error("found") })
		if took := time.Since(began); took != time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// TestWithoutACertificateOfItsOwn nothing is found where one is wanted.
func TestWithoutACertificateOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := lookouttest.NewAuthority(t)
		var lan lookouttest.LAN
		lan.Set(map[string]*tls.Config{"a": pool.Coordinator("p1", "0.7")})
		search := searching(pool, &lan)
		search.Certificate = func() (*tls.Certificate, error) { return nil, errors.New("no such file") }
		search.Look(t.Context(), []string{"a"}, func(string, edge.Generation) { t.Error("found") })
	})
}

func TestPause(t *testing.T) {
	for n, want := range map[int]time.Duration{
		0: 4 * time.Second, 40: 4 * time.Second, 100: 10 * time.Second, 1000: 100 * time.Second,
	} {
		for range 20 {
			if got := lookout.Pause(n, ends.Chance{}); got < want || got > want*3/2 {
				t.Errorf("%d addresses: %v, want %v to %v", n, got, want, want*3/2)
			}
		}
	}
}
