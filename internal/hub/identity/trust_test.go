package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// trustWorld has authorities by one letter each.
type trustWorld struct {
	t     *testing.T
	certs map[rune]*x509.Certificate
	keys  map[rune]*ecdsa.PrivateKey
}

func newWorld(t *testing.T, letters string) *trustWorld {
	t.Helper()
	w := &trustWorld{t, map[rune]*x509.Certificate{}, map[rune]*ecdsa.PrivateKey{}}
	for _, l := range letters {
		end := noon.Add(10 * year)
		if l == 'x' { // ends soon
			end = noon.Add(time.Hour)
		}
		w.keys[l] = w.key()
		w.certs[l] = w.sign(l, &x509.Certificate{
			Subject: pkix.Name{CommonName: string(l)}, IsCA: l != '-', BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign, NotBefore: noon.Add(-year), NotAfter: end,
		}, w.keys[l])
	}
	return w
}

func (w *trustWorld) key() *ecdsa.PrivateKey {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

func (w *trustWorld) sign(by rune, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	w.t.Helper()
	template.SerialNumber = big.NewInt(1)
	parent := w.certs[by]
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), w.keys[by])
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *trustWorld) list(letters string) (all []*x509.Certificate) {
	for _, l := range letters {
		all = append(all, w.certs[l])
	}
	return all
}

func (w *trustWorld) bundle(letters string) []byte {
	var s TrustSet
	for _, c := range w.list(letters) {
		s.Authorities = append(s.Authorities, Authority{Cert: c})
	}
	return s.PEM()
}

// set returns a Set of which the first letters were there from the beginning.
func (w *trustWorld) set(letters string) TrustSet {
	s, _, err := ReadNotes(w.bundle(letters), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func letters(s TrustSet) string {
	var b strings.Builder
	for _, a := range s.Authorities {
		b.WriteString(a.Cert.Subject.CommonName)
	}
	return b.String()
}

// TestAnswers: each step is an answer of the cloud, after a while. Then these are trusted.
func TestAnswers(t *testing.T) {
	w := newWorld(t, "abcx-")
	type answer struct {
		after time.Duration
		named string // "" is an empty answer
		by    string
		want  string
	}
	const hour = time.Hour
	daily := func(n int, a answer) (all []answer) { // an answer each hour
		for range n {
			all = append(all, a)
		}
		return all
	}
	for _, c := range []struct {
		name    string
		first   string
		answers []answer
	}{
		{"nothing changes", "a", []answer{{hour, "a", "a", "a"}}},
		{"a new one is added beside the old", "a", []answer{{hour, "ab", "a", "ab"}}},
		{"one added by an answer without the one that verified it", "a", []answer{{hour, "b", "a", "ab"}}},
		{"nothing is said", "ab", []answer{{hour, "", "a", "ab"}}},
		{"one that is no authority", "a", []answer{{hour, "-", "a", "a"}, {hour, "a-", "a", "a"}}},
		{"the old one stays for a week", "a", append([]answer{{hour, "ab", "a", "ab"}},
			daily(7*24-1, answer{hour, "b", "b", "ab"})...)},
		{"and goes then", "a", append([]answer{{hour, "ab", "a", "ab"}}, append(
			daily(7*24-1, answer{hour, "b", "b", "ab"}), answer{hour, "b", "b", "b"})...)},
		{"the old one still verifies the server", "a", append([]answer{{hour, "ab", "a", "ab"}},
			daily(8*24, answer{hour, "b", "a", "ab"})...)},
		{"a cloud that takes it back", "a", append(append([]answer{{hour, "ab", "a", "ab"}},
			daily(7*24-1, answer{hour, "b", "b", "ab"})...),
			append([]answer{{hour, "ab", "a", "ab"}}, daily(7*24-1, answer{hour, "b", "b", "ab"})...)...)},
		{"a year of silence is a step", "ab", []answer{{hour, "b", "b", "ab"}, {year, "b", "b", "ab"}, {year, "b", "b", "ab"}}},
		{"a clock that goes back", "ab", []answer{{year, "b", "b", "ab"}, {-year, "b", "b", "ab"}, {hour, "b", "b", "ab"}}},
		{"an expired one goes", "xa", []answer{{2 * hour, "a", "a", "a"}}},
		{"also if it is named", "xa", []answer{{2 * hour, "xa", "a", "a"}}},
		{"but not the only one that verifies", "xa", []answer{{2 * hour, "ax", "x", "xa"}}},
		{"an expired one is not added", "a", []answer{{2 * hour, "xa", "a", "a"}}},
		{"by two ways, of which one is new", "ab", append(daily(7*24, answer{hour, "b", "ab", "ab"}),
			answer{hour, "b", "ab", "b"})},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, now := w.set(c.first), noon
			for i, a := range c.answers {
				now = now.Add(a.after)
				next, changes, err := s.Heard(w.bundle(a.named), w.list(a.by), now)
				if (err != nil) != (a.named == "" || a.named == "-") {
					t.Fatalf("answer %d: %v", i, err)
				}
				if got := letters(next); got != a.want {
					t.Fatalf("answer %d: %s are trusted, want %s", i, got, a.want)
				}
				if (letters(s) == letters(next)) != (len(changes) == 0) {
					t.Errorf("answer %d: %s became %s, and the changes are %v", i, letters(s), letters(next), changes)
				}
				// What is kept is what is known.
				notes, err := Notes{Pins: "p"}.Encode(next)
				if err != nil {
					t.Fatal(err)
				}
				if s, _, err = ReadNotes(next.PEM(), notes); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestBounds: however much is said, the Set does not grow, and loses nothing.
func TestBounds(t *testing.T) {
	w := newWorld(t, "abcdefghijklmnopqrs")
	s := w.set("a")
	for _, named := range []string{"abcdefghijklmnopq", "abcdefghijklmnopqrs" + "abcdefghijklmnopqrs"} {
		next, changes, err := s.Heard(w.bundle(named), w.list("a"), noon)
		if !errors.Is(err, ErrTooMany) || letters(next) != "a" || len(changes) > 0 {
			t.Errorf("%d named: %s, %v, %v", len(named), letters(next), changes, err)
		}
	}
	full, _, err := s.Heard(w.bundle("abcdefghijklmnop"), w.list("a"), noon)
	if err != nil || len(full.Authorities) != MaxAuthorities {
		t.Fatalf("%d, %v", len(full.Authorities), err)
	}
	if next, _, err := full.Given(w.bundle("q"), noon); !errors.Is(err, ErrTooMany) || letters(next) != letters(full) {
		t.Errorf("a file adds one too many: %v", err)
	}
}

// TestFile: a file adds, and neither removes nor counts.
func TestFile(t *testing.T) {
	w := newWorld(t, "ab")
	s := w.set("a")
	s.Asked = noon
	next, changes, err := s.Given(w.bundle("b"), noon.Add(year/12))
	if err != nil || letters(next) != "ab" || len(changes) != 1 || !next.Asked.Equal(noon) {
		t.Errorf("%s, %v, %v, asked %v", letters(next), changes, err, next.Asked)
	}
	if _, _, err := s.Given([]byte("rubbish"), noon); !errors.Is(err, ErrNothing) {
		t.Errorf("rubbish: %v", err)
	}
}

// TestRead: what the certificates' file does not have is not trusted, whatever notes say.
func TestRead(t *testing.T) {
	w := newWorld(t, "ab")
	notes, err := Notes{}.Encode(w.set("ab"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range [][]byte{notes, nil, []byte("{"), []byte(`{"version":2}`)} {
		if s, _, err := ReadNotes(w.bundle("a"), n); err != nil || letters(s) != "a" {
			t.Errorf("notes %.20s: %s, %v", n, letters(s), err)
		}
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")})
	for _, content := range [][]byte{nil, []byte("rubbish"), block} {
		if _, _, err := ReadNotes(content, notes); err == nil {
			t.Errorf("%.20q was read", content)
		}
	}
}

// TestEarly: when a certificate is renewed because its signer has a successor.
func TestEarly(t *testing.T) {
	w := newWorld(t, "abz")
	day := 24 * time.Hour
	leaf := func(by rune, made time.Time, life time.Duration) *x509.Certificate {
		from := made.Add(-5 * time.Minute)
		return w.sign(by, &x509.Certificate{
			Subject: pkix.Name{CommonName: "leaf"}, NotBefore: from, NotAfter: from.Add(life), BasicConstraintsValid: true,
		}, w.key())
	}
	both := TrustSet{Authorities: []Authority{{Cert: w.certs['a']}, {Cert: w.certs['b'], Since: noon}}}
	gone := TrustSet{Authorities: []Authority{{Cert: w.certs['a'], Missing: time.Hour}, {Cert: w.certs['b'], Since: noon}}}
	for _, c := range []struct {
		name     string
		set      TrustSet
		leaf     *x509.Certificate
		from, to time.Time // zero means never
	}{
		{"no change", w.set("ab"), leaf('a', noon.Add(-day), year), time.Time{}, time.Time{}},
		{"made before the change", both, leaf('a', noon.Add(-day), year), noon, noon.Add(time.Hour)},
		{"of a short life", both, leaf('a', noon.Add(-time.Hour), 10*time.Hour), noon, noon.Add(36 * time.Second)},
		{"by the successor", both, leaf('b', noon.Add(day), year), time.Time{}, time.Time{}},
		{"by somebody else", both, leaf('z', noon.Add(-day), year), time.Time{}, time.Time{}},
		{"the former signs still", both, leaf('a', noon.Add(day), year),
			noon.Add(day + 12*time.Hour), noon.Add(day + 12*time.Hour)},
		{"and is named no more", gone, leaf('a', noon.Add(day), year), noon.Add(day + time.Hour), noon.Add(day + time.Hour)},
		{"after two weeks", both, leaf('a', noon.Add(15*day), year), time.Time{}, time.Time{}},
	} {
		if got := c.set.Early(c.leaf); got.Before(c.from) || got.After(c.to) {
			t.Errorf("%s: at %v, want %v to %v", c.name, got, c.from, c.to)
		}
	}
}
