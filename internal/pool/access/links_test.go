package access

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

func nobodyDenied(user.Info) bool { return false }

func issuer(name string) user.Info { return &user.DefaultInfo{Name: name} }

// makes makes a link, and fails if it can't.
func makes(t *testing.T, l *Links, name string, life time.Duration) string {
	t.Helper()
	secret, made, err := l.Make(issuer(name), life)
	if err != nil || made.Issuer != name || !made.Until.Equal(time.Now().Add(life)) {
		t.Fatalf("%+v, %v", made, err)
	}
	return secret
}

func TestALinkLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLinks(ends.Clock{}, nobodyDenied)
		first := makes(t, l, "ana", time.Hour)
		second := makes(t, l, "ben", 2*time.Hour)
		if len(first) != 43 || first == second {
			t.Errorf("%q and %q are not 32 random bytes each", first, second)
		}
		lives := func(what, secret, of string) {
			t.Helper()
			found, err := l.Find(secret)
			if of == "" && !errors.Is(err, ErrLinkEnded) || of != "" && (err != nil || found.Issuer != of) {
				t.Errorf("%s: %+v, %v; want %q", what, found, err, of)
			}
		}
		lives("a link", first, "ana")
		lives("another", second, "ben")
		for _, guess := range []string{"", "x", first[:42], first + "A", strings.ToLower(first), strings.Repeat("A", 43)} {
			lives("a guess", guess, "")
		}
		time.Sleep(time.Hour - time.Nanosecond)
		lives("just before its end", first, "ana")
		time.Sleep(time.Nanosecond)
		lives("at its end", first, "")
		lives("the other, which lasts longer", second, "ben")
		if live := l.Live(); len(live) != 1 || live[0].Issuer != "ben" || !live[0].Until.Equal(time.Now().Add(time.Hour)) {
			t.Errorf("%+v live", live)
		}
		if was := l.Withdraw(); len(was) != 1 || was[0].Issuer != "ben" {
			t.Errorf("%+v were withdrawn", was)
		}
		lives("a withdrawn one", second, "")
		third := makes(t, l, "ana", time.Minute)
		l.Forget(third)
		lives("a forgotten one", third, "")
		restarted := NewLinks(ends.Clock{}, nobodyDenied)
		fourth := makes(t, l, "ana", time.Minute)
		if _, err := restarted.Find(fourth); !errors.Is(err, ErrLinkEnded) {
			t.Errorf("another coordinator, or the same after a restart, knows a link: %v", err)
		}
	})
}

func TestLinksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLinks(ends.Clock{}, nobodyDenied)
		for life, want := range map[time.Duration]error{
			0: ErrLinkLife, -time.Hour: ErrLinkLife, time.Second - 1: ErrLinkLife, time.Second: nil, 24 * time.Hour: nil,
			24*time.Hour + 1: ErrLinkLife,
		} {
			if _, _, err := l.Make(issuer("ana"), life); !errors.Is(err, want) {
				t.Errorf("for %s: %v, want %v", life, err, want)
			}
		}
		l.Withdraw()
		for i := range edge.MaxLinks {
			makes(t, l, "ana", time.Duration(i+1)*time.Minute)
		}
		if _, _, err := l.Make(issuer("ben"), time.Hour); !errors.Is(err, ErrManyLinks) {
			t.Errorf("a link beyond the bound: %v", err)
		}
		time.Sleep(time.Minute) // the first ends
		makes(t, l, "ben", time.Hour)
		if got := len(l.Live()); got != edge.MaxLinks {
			t.Errorf("%d live", got)
		}
	})
}

// TestADeniedIssuersLinksEnd, by his name or by his certificate, and for good.
func TestADeniedIssuersLinksEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "denied")
	denied := NewDenied(file)
	tell := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := denied.Read(); err != nil {
			t.Fatal(err)
		}
	}
	tell("")
	l := NewLinks(ends.Clock{}, denied.Withdrawn)
	digest := fingerprintPrefix + strings.Repeat("0a", 32)
	makers := map[string]user.Info{
		"ana": issuer("ana"),
		"ben": &user.DefaultInfo{Name: "ben", Extra: map[string][]string{user.CredentialIDKey: {digest}}},
		"cem": issuer("cem"),
	}
	secrets := map[string]string{}
	for name, who := range makers {
		var err error
		if secrets[name], _, err = l.Make(who, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	live := func(want ...string) {
		t.Helper()
		var have []string
		for name, secret := range secrets {
			if _, err := l.Find(secret); err == nil {
				have = append(have, name)
			}
		}
		if slices.Sort(have); !slices.Equal(have, want) {
			t.Errorf("the links of %q live, want %q", have, want)
		}
	}
	live("ana", "ben", "cem")
	tell("ana\n")
	live("ben", "cem")
	tell(digest + "\n")
	live("cem")
	tell("")
	live("cem")
}

// TestALinkEndsByEitherClock: a machine that slept, or whose clock was set, does not lengthen a life.
func TestALinkEndsByEitherClock(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, passed := range map[string]struct{ wall, running time.Duration }{
		"both": {time.Hour, time.Hour}, "the machine slept": {time.Hour, time.Minute},
		"the clock was set back": {-time.Hour, time.Hour},
	} {
		wall, running := began, began
		l := NewLinks(ends.Clock{OfDay: func() time.Time { return wall }, Ran: func() time.Time { return running }}, nobodyDenied)
		secret, _, err := l.Make(issuer("ana"), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		wall, running = began.Add(passed.wall), began.Add(passed.running)
		if _, err := l.Find(secret); !errors.Is(err, ErrLinkEnded) {
			t.Errorf("%s: it lives on: %v", name, err)
		}
	}
}
