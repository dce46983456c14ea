package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

const (
	hour   = time.Hour
	name   = "authority"
	life   = 90 * hour // due after 60
	settle = 6 * hour
)

// step takes the step that is due, which must be the one that is wanted.
func step(t *testing.T, a Authority, want Step, at time.Duration) Authority {
	t.Helper()
	got, why, _ := a.Plan(settle, start.Add(at))
	if got != want {
		t.Fatalf("after %v: step %q (%s), want %q", at, got, why, want)
	}
	a, err := a.Take(got, name, life, start.Add(at))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func rest(t *testing.T, a Authority, at, again time.Duration) {
	t.Helper()
	got, why, when := a.Plan(settle, start.Add(at))
	if got != StepNone || !when.Equal(start.Add(again)) {
		t.Fatalf("after %v: step %q (%s), look again at %v, want %v", at, got, why, when.Sub(start), again)
	}
}

func serving(days time.Duration) Request {
	return Request{
		CommonName: "c", DNSNames: []string{"a.svc", "b.svc"}, IPs: []string{"10.0.0.1", "fd00::1"}, Server: true, Life: days,
	}
}

func sign(t *testing.T, a Authority, r Request, at time.Duration) Pair {
	t.Helper()
	p, err := a.Sign(r, start.Add(at))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRotation goes through the life of three authorities: at no time is something signed that is not trusted by who has
// heard nothing for as long as settle.
func TestRotation(t *testing.T) {
	a := step(t, Authority{}, StepReplace, 0)
	rest(t, a, 0, 60*hour)
	first := a.Pair
	early := sign(t, a, serving(80*hour), 59*hour)
	a = step(t, a, StepAdd, 60*hour)
	if string(a.Cert) != string(first.Cert) || len(Certificates(a.Trusted)) != 2 {
		t.Error("the successor signs at once, or is not trusted")
	}
	rest(t, a, 60*hour, 66*hour)
	known := a.Trusted // by a hub that hears nothing from now on
	a = step(t, a, StepPromote, 66*hour)
	if string(a.Cert) == string(first.Cert) || !a.Next.IsZero() || len(Certificates(a.Trusted)) != 2 {
		t.Error("the successor does not sign, or the one before is not trusted any more")
	}
	late := sign(t, a, serving(20*hour), 67*hour)
	for _, p := range []Pair{early, late} {
		if why, _ := serving(0).Plan(p, known, start.Add(68*hour)); why != "" {
			t.Error(why)
		}
	}
	rest(t, a, 67*hour, 90*hour+time.Second)
	a = step(t, a, StepTrust, 90*hour+2*time.Second)
	if certs := Certificates(a.Trusted); len(certs) != 1 || string(encodeCert(certs[0].Raw)) != string(a.Cert) {
		t.Error("one that has expired is trusted")
	}
	rest(t, a, 91*hour, 120*hour) // made at 60, due after two thirds of 90
	a = step(t, a, StepAdd, 120*hour)
	rest(t, a, 120*hour, 126*hour)
}

func TestALeafExpiresWithItsAuthority(t *testing.T) {
	a := step(t, Authority{}, StepReplace, 0)
	cert, err := sign(t, a, serving(1000*hour), hour).parse()
	if err != nil || !cert.NotAfter.Equal(start.Add(life)) || !cert.NotBefore.Equal(start.Add(hour-Backdate)) {
		t.Errorf("%v to %v, %v", cert.NotBefore, cert.NotAfter, err)
	}
}

func TestAuthorityThatIsOfNoUse(t *testing.T) {
	a := step(t, Authority{}, StepReplace, 0)
	other := step(t, Authority{}, StepReplace, 0)
	leaf := sign(t, a, serving(hour), 0)
	added := step(t, a, StepAdd, 60*hour)
	for what, c := range map[string]struct {
		a    Authority
		at   time.Duration
		want Step
	}{
		"no key":                  {Authority{Pair: Pair{Cert: a.Cert}, Trusted: a.Trusted}, hour, StepReplace},
		"another's key":           {Authority{Pair: Pair{Cert: a.Cert, Key: other.Key}, Trusted: a.Trusted}, hour, StepReplace},
		"no certificate in it":    {Authority{Pair: Pair{Cert: []byte("x"), Key: a.Key}, Trusted: a.Trusted}, hour, StepReplace},
		"not an authority":        {Authority{Pair: leaf, Trusted: a.Trusted}, 0, StepReplace},
		"expired":                 {a, 91 * hour, StepReplace},
		"of the future":           {a, -hour, StepReplace},
		"expired, with successor": {added, 91 * hour, StepPromote},
		"a broken successor": {Authority{Pair: a.Pair, Next: Pair{Key: []byte("x")}, Trusted: a.Trusted},
			61 * hour, StepAdd},
		"not in the bundle":       {Authority{Pair: a.Pair}, hour, StepTrust},
		"nonsense in the bundle":  {Authority{Pair: a.Pair, Trusted: append([]byte("x\n"), a.Trusted...)}, hour, StepTrust},
		"a leaf in the bundle":    {Authority{Pair: a.Pair, Trusted: Bundle(a.Trusted, leaf.Cert)}, hour, StepTrust},
		"old, successor too late": {added, 75 * hour, StepPromote}, // halfway from 60 to 90 at the latest
	} {
		got := step(t, c.a, c.want, c.at)
		if s, why, _ := got.Plan(settle, start.Add(c.at)); s != StepNone && c.want != StepPromote {
			t.Errorf("%s: one more step: %s (%s)", what, s, why)
		}
		why, _ := serving(hour).Plan(sign(t, got, serving(hour), c.at), got.Trusted, start.Add(c.at))
		if why != "" {
			t.Errorf("%s: what it signs: %s", what, why)
		}
		if c.want == StepReplace && c.at > 0 && c.at < 90*hour && len(Certificates(got.Trusted)) != 2 {
			t.Errorf("%s: the one before is not trusted any more", what)
		}
	}
}

func TestTrustIsBounded(t *testing.T) {
	var a Authority
	for range 3 * maxTrusted {
		a.Pair = Pair{}
		a = step(t, a, StepReplace, 0)
	}
	if n := len(Certificates(a.Trusted)); n != maxTrusted {
		t.Errorf("%d are trusted", n)
	}
}

func TestSettleIsHalfwayAtTheLatest(t *testing.T) {
	a := step(t, Authority{}, StepReplace, 0)
	a = step(t, a, StepAdd, 60*hour)
	if s, _, again := a.Plan(1000*hour, start.Add(61*hour)); s != StepNone || !again.Equal(start.Add(75*hour)) {
		t.Errorf("%s, again after %v", s, again.Sub(start))
	}
}

func TestRequestPlan(t *testing.T) {
	a := step(t, Authority{}, StepReplace, 0)
	other := step(t, Authority{}, StepReplace, 0)
	good := serving(30 * hour)
	have := sign(t, a, good, 0)
	with := func(f func(*Request)) Request {
		r := good
		f(&r)
		return r
	}
	for what, c := range map[string]struct {
		r       Request
		have    Pair
		trusted []byte
		at      time.Duration
		why     string // "" keeps it
	}{
		"good":            {good, have, a.Trusted, 0, ""},
		"to the last":     {good, have, a.Trusted, 20*hour - time.Second, ""},
		"five min early":  {good, have, a.Trusted, -5 * time.Minute, ""},
		"none":            {good, Pair{}, a.Trusted, 0, "there is none"},
		"no key":          {good, Pair{Cert: have.Cert}, a.Trusted, 0, "it can't be used"},
		"another's key":   {good, Pair{Cert: have.Cert, Key: a.Key}, a.Trusted, 0, "it can't be used"},
		"two thirds":      {good, have, a.Trusted, 20 * hour, "it expires at 2026-11-22T06:00:00Z"},
		"expired":         {good, have, a.Trusted, 31 * hour, "it expires at"},
		"the future":      {good, have, a.Trusted, -hour, "it is not trusted"},
		"other authority": {good, have, other.Trusted, 0, "it is not trusted"},
		"no authority":    {good, have, nil, 0, "it is not trusted"},
		"in the bundle":   {good, have, Bundle(other.Trusted, a.Trusted), 0, ""},
		"other order":     {with(func(r *Request) { r.IPs = []string{"fd00:0::1", "10.0.0.1"} }), have, a.Trusted, 0, ""},
		"moved": {with(func(r *Request) { r.IPs = []string{"10.0.0.2", "fd00::1"} }), have, a.Trusted, 0,
			"it is for [10.0.0.1 fd00::1], not [10.0.0.2 fd00::1]"},
		"one more":   {with(func(r *Request) { r.IPs = append(r.IPs, "10.0.0.9") }), have, a.Trusted, 0, "it is for [10.0.0.1"},
		"other name": {with(func(r *Request) { r.DNSNames = []string{"b.svc"} }), have, a.Trusted, 0, "it is for [a.svc b.svc]"},
		"other user": {with(func(r *Request) { r.CommonName = "d" }), have, a.Trusted, 0, `it is for "c", not "d"`},
		"other group": {with(func(r *Request) { r.Organizations = []string{"g"} }), have, a.Trusted, 0,
			`it is for "c", not "c"`},
		"client": {with(func(r *Request) { r.Server, r.Client = false, true }), have, a.Trusted, 0, "it is not trusted"},
	} {
		why, again := c.r.Plan(c.have, c.trusted, start.Add(c.at))
		if c.why == "" && (why != "" || !again.Equal(start.Add(20*hour))) || !strings.HasPrefix(why, c.why) {
			t.Errorf("%s: %q, again after %v; want %q", what, why, again.Sub(start), c.why)
		}
	}
}

func TestASignerThatCannot(t *testing.T) {
	if _, err := (Authority{}).Sign(serving(hour), start); err == nil || !strings.Contains(err.Error(), "there is none") {
		t.Error(err)
	}
}

func TestLives(t *testing.T) {
	l := Lives{Serving: time.Minute}.Completed()
	if l.Serving != time.Minute || l.Operator != 30*day || l.Authority <= l.Serving || l.Settle != 90*day || l.Kubelet == 0 {
		t.Errorf("%+v", l)
	}
	// What is signed on the last day of an authority lives out its time, and a rotation is over by then.
	if left := l.Authority / 3; left < 365*day+l.Settle {
		t.Errorf("an authority has %v left when it is rotated", left)
	}
}

// answered is what a signer makes of a request.
func answered(t *testing.T, request []byte, change func(*x509.Certificate)) []byte {
	t.Helper()
	signer := step(t, Authority{}, StepReplace, 0)
	block := Certificates(signer.Cert)[0]
	key, err := parseKey(signer.Key)
	if err != nil {
		t.Fatal(err)
	}
	return signRequest(t, request, block, key, change)
}

func TestSigningRequest(t *testing.T) {
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := SigningRequest(key, "u")
	if err != nil {
		t.Fatal(err)
	}
	asked, err := ParseRequest(request)
	if err != nil || asked.Subject.String() != "CN=u" || len(asked.Extensions) > 0 {
		t.Errorf("%+v, %v", asked, err)
	}
	for _, refused := range [][]byte{nil, append(append([]byte{}, request...), request...)} {
		if _, err := ParseRequest(refused); err == nil || !strings.HasPrefix(err.Error(), "it is not one PEM") {
			t.Errorf("%q: %v", refused, err)
		}
	}
	if _, err := SigningRequest([]byte("x"), "u"); err == nil {
		t.Error("a request without a key")
	}
}

func TestAdopt(t *testing.T) {
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := SigningRequest(key, "u")
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	good := answered(t, request, func(*x509.Certificate) {})
	p, err := Adopt(good, key, "u", start)
	if err != nil {
		t.Fatal(err)
	}
	// The signer's backdating is not ours, and counts.
	if third := p.Part(1, 3); !third.Equal(start.Add(hour)) || !p.Part(1, 1).Equal(start.Add(7*hour)) {
		t.Errorf("a third of its life is over at %v", third)
	}
	if sum := sha256.Sum256(Certificates(good)[0].Raw); p.CredentialID() != fmt.Sprintf("X509SHA256=%x", sum) {
		t.Errorf("it is called %s", p.CredentialID())
	}
	if (Pair{}).CredentialID() != "" || !(Pair{}).Part(1, 2).IsZero() {
		t.Error("no certificate has a name and a life")
	}
	for at, want := range map[time.Duration]string{
		0: "", 7*hour - 1: "", 7 * hour: "it has ended", -3 * hour: "it is not valid",
	} {
		err := CheckClient(p, "u", start.Add(at))
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("after %v: %v", at, err)
		}
	}
	for what, bad := range map[string]struct {
		cert, key []byte
		why       string
	}{
		"other key":  {good, other, "it can't be used"},
		"nothing":    {nil, key, "it can't be used"},
		"other user": {answered(t, request, func(c *x509.Certificate) { c.Subject.CommonName = "v" }), key, "it is for"},
		"with groups": {answered(t, request, func(c *x509.Certificate) {
			c.Subject.Organization = []string{"g"}
		}), key, "it is for"},
		"a server's": {answered(t, request, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), key, "it is not for clients"},
	} {
		if _, err := Adopt(bad.cert, bad.key, "u", start); err == nil || !strings.Contains(err.Error(), bad.why) {
			t.Errorf("%s: %v, want %s", what, err, bad.why)
		}
	}
}

func TestSelfSigned(t *testing.T) {
	p, err := SelfSigned("nobody", hour, start)
	if err != nil {
		t.Fatal(err)
	}
	for at, good := range map[time.Duration]bool{0: true, hour: true, 2 * hour: false} {
		if err := p.Usable(start.Add(at)); (err == nil) != good {
			t.Errorf("after %v: %v", at, err)
		}
	}
	if why, _ := (Request{CommonName: "nobody", Client: true}).Plan(p, nil, start); why == "" {
		t.Error("somebody trusts it")
	}
}
