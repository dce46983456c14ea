package coordinator

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

const (
	ringUser = "openyurt:yurt-coordinator:p1"
	hour     = time.Hour
)

// pairMade is a certificate that began at this time and lives for 30 h: hours stand for days.
func pairMade(t *testing.T, user string, at time.Duration) certs.Pair {
	t.Helper()
	p, err := certs.SelfSigned(user, 30*time.Hour, start.Add(at))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTurn is the life of keys, in hours since the first one was made. Certificates are backdated by minutes, so what is due
// at 10 has happened by then.
func TestTurn(t *testing.T) {
	a, b, c := pairMade(t, ringUser, 0), pairMade(t, ringUser, 10*time.Hour), pairMade(t, ringUser, 20*time.Hour)
	foreign := pairMade(t, "openyurt:yurt-coordinator:p2", 0)
	formerly := func(p certs.Pair) []former { return []former{{p.CredentialID(), p.Part(1, 1)}} }
	for name, tc := range map[string]struct {
		have  keyring
		rekey string
		at    time.Duration
		want  keyring
		why   string
		again time.Duration // zero: not looked at
	}{
		"none": {
			keyring{}, "", 0,
			keyring{}, "there is none", 0,
		},
		"the first": {
			keyring{Shown: a}, "", 1 * hour,
			keyring{Shown: a}, "", 10 * hour,
		},
		"its successor": {
			keyring{Shown: a}, "", 10 * hour,
			keyring{Shown: a}, "its successor is due", 0,
		},
		"told, not shown": {
			keyring{Shown: a, Next: b}, "", 11 * hour,
			keyring{Shown: a, Next: b}, "", 15 * hour,
		},
		"shown": {
			keyring{Shown: a, Next: b}, "", 15 * hour,
			keyring{Shown: b, Former: formerly(a)}, "", 20 * hour,
		},
		"the next": {
			keyring{Shown: b, Former: formerly(a)}, "", 20 * hour,
			keyring{Shown: b, Former: formerly(a)}, "its successor is due", 0,
		},
		"the first one ends": {
			keyring{Shown: b, Next: c, Former: formerly(a)}, "", 24 * hour,
			keyring{Shown: b, Next: c, Former: formerly(a)}, "", 25 * hour,
		},
		"and has ended": {
			keyring{Shown: c, Former: formerly(a)}, "", 30 * hour,
			keyring{Shown: c}, "its successor is due", 0,
		},
		"no signer": {
			keyring{Shown: a}, "", 31 * hour,
			keyring{}, "it has ended", 0,
		},
		"late": {
			keyring{Shown: a, Next: b}, "", 31 * hour,
			keyring{Shown: b}, "its successor is due", 0,
		},
		"both ended": {
			keyring{Shown: a, Next: b}, "", 50 * hour,
			keyring{}, "it has ended", 0,
		},
		"another pool's": {
			keyring{Shown: foreign}, "", 1 * hour,
			keyring{}, "it is for", 0,
		},
		"another pool's next": {
			keyring{Shown: a, Next: foreign}, "", 1 * hour,
			keyring{Shown: a}, "", 10 * hour,
		},
		"half a key": {
			keyring{Shown: certs.Pair{Cert: a.Cert}}, "", 1 * hour,
			keyring{}, "it can't be used", 0,
		},
		"rekeyed": {
			keyring{Shown: b, Next: c, Former: formerly(a)}, "stolen", 16 * hour,
			keyring{Rekey: "stolen"}, "the key is to be", 0,
		},
		"asked for": {
			keyring{Request: []byte("k")}, "", 0,
			keyring{Request: []byte("k")}, "there is none", 0,
		},
		"asked for, rekeyed": {
			keyring{Request: []byte("k")}, "stolen", 0,
			keyring{Rekey: "stolen"}, "the key is to be", 0,
		},
		"rekeyed before": {
			keyring{Shown: a, Rekey: "stolen"}, "stolen", 1 * hour,
			keyring{Shown: a, Rekey: "stolen"}, "", 10 * hour,
		},
	} {
		got, why, again := tc.have.turn(ringUser, tc.rekey, start.Add(tc.at))
		if !sameKeys(got, tc.want) || (why == "") != (tc.why == "") || !strings.HasPrefix(why, tc.why) {
			t.Errorf("%s: %q, shown %v, next %v, former %v", name, why, which(got.Shown, a, b, c), which(got.Next, a, b, c),
				got.Former)
		}
		if off := again.Sub(start.Add(tc.again)); tc.again != 0 && (off > 0 || off < -15*time.Minute) {
			t.Errorf("%s: looked at again at %v", name, again.Sub(start))
		}
		if more, _, _ := got.turn(ringUser, tc.rekey, start.Add(tc.at)); toJSON(more) != toJSON(got) {
			t.Errorf("%s: it turns on", name)
		}
		if read := keyringIn(got.secret("p1", owner{})); !slices.Equal(read.ids(), got.ids()) || read.Rekey != got.Rekey {
			t.Errorf("%s: written and read it is %q, want %q", name, read.ids(), got.ids())
		}
	}
}

func sameKeys(a, b keyring) bool {
	return bytes.Equal(a.Shown.Cert, b.Shown.Cert) && bytes.Equal(a.Next.Cert, b.Next.Cert) && a.Rekey == b.Rekey &&
		bytes.Equal(a.Request, b.Request) && slices.Equal(a.Former, b.Former)
}

func which(p certs.Pair, all ...certs.Pair) int {
	return slices.IndexFunc(all, func(q certs.Pair) bool { return bytes.Equal(p.Cert, q.Cert) }) + 1
}

// TestKeysOverMonths: what a coordinator shows is always known to a hub that has heard from the cloud within the last five days,
// and ends 15 days from then at the earliest.
func TestKeysOverMonths(t *testing.T) {
	day := 24 * time.Hour
	var k keyring
	told := make(map[string]time.Time) // since when hubs know it
	shown := make(map[string]bool)
	for now := start; now.Before(start.Add(200 * day)); now = now.Add(time.Hour) {
		var why string
		if k, why, _ = k.turn(ringUser, "", now); why != "" {
			p, err := certs.SelfSigned(ringUser, 30*day, now)
			if err != nil {
				t.Fatal(err)
			}
			k = k.with(p)
		}
		for _, id := range k.ids() {
			if told[id].IsZero() {
				told[id] = now
			}
		}
		id := k.Shown.CredentialID()
		if !shown[id] && len(shown) > 0 && now.Sub(told[id]) < 5*day-time.Hour {
			t.Errorf("shown %v after hubs were told", now.Sub(told[id]))
		}
		shown[id] = true
		if left := k.Shown.Part(1, 1).Sub(now); left < 15*day-time.Hour {
			t.Fatalf("what is shown ends in %v", left)
		}
		if n := len(k.ids()); n > 4 {
			t.Fatalf("%d hold", n)
		}
	}
	if len(shown) != 20 {
		t.Errorf("%d were shown in 200 days", len(shown))
	}
}

// TestRekey: whoever has a coordinator's key loses it with one change of the spec.
func TestRekey(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 3)
	w.pool("p2", 3)
	w.coordinator("c1", "p1")
	w.coordinator("c2", "p2")
	w.turns(9)
	of := func(pool edge.PoolName) (id, told string) {
		var mounted corev1.Secret
		var hint corev1.ConfigMap
		w.get(edge.NamespaceSystem, pool.CoordinatorSecret(), &mounted)
		w.get(edge.NamespaceSystem, pool.DiscoveryConfigMap(), &hint)
		return pairIn(&mounted, keyKubeletCert, keyKubeletKey).CredentialID(), hint.Data[edge.DiscoveryClients]
	}
	stolen, told := of("p1")
	others, _ := of("p2")
	if !strings.Contains(told, stolen) || stolen == others || strings.Contains(told, others) {
		t.Fatalf("p1's hubs are told %q", told)
	}
	var c v1alpha1.YurtCoordinator
	w.get("", "c1", &c)
	c.Spec.Rekey = "stolen on a Tuesday"
	w.signs = false
	w.update(&c)
	w.turns(1)
	if shown, told := of("p1"); shown == stolen || strings.Contains(told, stolen) {
		t.Errorf("%q is shown, and hubs are told %q", shown, told)
	}
	w.signs = true
	w.turns(5)
	if shown, told := of("p1"); shown == stolen || !strings.Contains(told, shown) {
		t.Errorf("%q is shown, and hubs are told %q", shown, told)
	}
	if still, _ := of("p2"); still != others {
		t.Error("the other pool's coordinator has another key")
	}
}
