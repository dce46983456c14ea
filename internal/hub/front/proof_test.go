package front

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/hub/identity"
)

var loopback = net.IPv4(127, 0, 0, 1)

func keep(t testing.TB, dir string, address net.IP) *Proof {
	t.Helper()
	p, err := KeepProof(ProofConfig{Dir: dir, Node: "n1", Address: address, Port: 10261})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func content(t testing.TB, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestKeep: what is kept is the same after a restart, and only what is missing or useless is made again.
func TestKeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	all := func() [3]string {
		return [3]string{content(t, dir, FilePair), content(t, dir, FileCertificate), content(t, dir, FileToken)}
	}
	keep(t, dir, loopback)
	first := all()
	for _, name := range []string{FilePair, FileCertificate, FileToken} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if !strings.HasPrefix(first[0], first[1]) {
		t.Error("local.crt is not the certificate of local.pem")
	}
	for _, tt := range []struct {
		what, file, becomes string
		address             net.IP
		pair, token         bool // whether it is another afterwards
	}{
		{"nothing", "", "", loopback, false, false},
		{"no certificate", FileCertificate, "", loopback, false, false},
		{"another's certificate", FileCertificate, "x", loopback, false, false},
		{"no pair", FilePair, "", loopback, true, false},
		{"half a pair", FilePair, first[0][:len(first[0])/2], loopback, true, false},
		{"another address", "", "", net.IPv4(127, 0, 0, 2), true, false},
		{"no token", FileToken, "", loopback, false, true},
		{"half a token", FileToken, first[2][:20], loopback, false, true},
		{"a token of somebody's own", FileToken, "password", loopback, false, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			keep(t, dir, loopback)
			before := all()
			if path := filepath.Join(dir, tt.file); tt.file != "" {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if tt.becomes != "" {
					if err := os.WriteFile(path, []byte(tt.becomes), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			p := keep(t, dir, tt.address)
			after := all()
			if (after[0] != before[0]) != tt.pair || (after[1] != before[1]) != tt.pair || (after[2] != before[2]) != tt.token {
				t.Errorf("pair another: %t, certificate another: %t, token another: %t",
					after[0] != before[0], after[1] != before[1], after[2] != before[2])
			}
			shown := requestFrom("127.0.0.1:10261", "Authorization", "Bearer "+after[2])
			if p.Judge(shown) != Kubelet && tt.address.Equal(loopback) {
				t.Error("the token in the file is not kubelet's")
			}
		})
	}
}

// TestKeepAlone: while another process makes the files, nothing is made.
func TestKeepAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	unlock, err := (&identity.KeyDir{Path: dir}).Lock(fileLock)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := KeepProof(ProofConfig{Dir: dir, Address: loopback}); !errors.Is(err, identity.ErrLocked) {
		t.Errorf("beside another process: %v", err)
	}
}

func TestKeepRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := KeepProof(ProofConfig{Dir: dir, Address: loopback})
	if err == nil || !strings.Contains(err.Error(), "0700") {
		t.Errorf("in a directory that others may write to: %v", err)
	}
}

// TestCertificate: a client that knows local.crt alone accepts it by any clock, and for no other host.
func TestCertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	p := keep(t, dir, loopback)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(content(t, dir, FileCertificate))) {
		t.Fatal("local.crt is no certificate")
	}
	verify := func(name string, at time.Time) error {
		_, err := p.pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: at})
		return err
	}
	for _, year := range []int{1970, 2026, 2199, 9999} {
		for _, name := range []string{"127.0.0.1", "localhost"} {
			if err := verify(name, time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)); err != nil {
				t.Errorf("%s in %d: %v", name, year, err)
			}
		}
	}
	for _, name := range []string{"127.0.0.2", "kubernetes", "::1"} {
		if verify(name, time.Now()) == nil {
			t.Errorf("it is good for %s", name)
		}
	}
	if p.pair.Leaf.IsCA {
		t.Error("it can sign others")
	}
	// With the real handshake, too.
	near, far := net.Pipe()
	server := tls.Server(near, p.TLS())
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	client := tls.Client(far, &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13})
	if err := client.Handshake(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func requestFrom(host string, header ...string) *http.Request {
	r := &http.Request{Host: host, Header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestJudge(t *testing.T) {
	p := keep(t, filepath.Join(t.TempDir(), "pki"), loopback)
	token := string(p.token)
	socket := func(text string) string { return bearerProtocol + base64.RawURLEncoding.EncodeToString([]byte(text)) }
	const authorization, protocol, here = "Authorization", "Sec-Websocket-Protocol", "127.0.0.1:10261"
	for name, tt := range map[string]struct {
		r    *http.Request
		want Verdict
	}{
		"kubelet":                    {requestFrom(here, authorization, "Bearer "+token), Kubelet},
		"kubelet by name":            {requestFrom("localhost:10261", authorization, "bearer   "+token+" "), Kubelet},
		"nothing":                    {requestFrom(here), Stranger},
		"a blank":                    {requestFrom(here, authorization, " "), Stranger},
		"another token":              {requestFrom(here, authorization, "Bearer x"), Caller},
		"an empty token":             {requestFrom(here, authorization, "Bearer "), Caller},
		"the beginning of the token": {requestFrom(here, authorization, "Bearer "+token[:42]), Caller},
		"the token and more":         {requestFrom(here, authorization, "Bearer "+token+"x"), Caller},
		"a password":                 {requestFrom(here, authorization, "Basic eDp5"), Caller},
		"a browser's token":          {requestFrom(here, protocol, "v4.channel.k8s.io, "+socket("x")), Caller},
		"a browser's rubbish":        {requestFrom(here, protocol, bearerProtocol+"%"), Caller},
		"only a protocol":            {requestFrom(here, protocol, "v4.channel.k8s.io"), Stranger},
		"the token in a protocol":    {requestFrom(here, protocol, "v4.channel.k8s.io, "+socket(token)), Misplaced},
		"the token after another": {
			requestFrom(here, authorization, "Bearer x", authorization, "Bearer "+token), Misplaced,
		},
		"the token in one with another": {requestFrom(here, authorization, "Bearer x, Bearer "+token), Misplaced},
		"twice": {
			requestFrom(here, authorization, "Bearer "+token, authorization, "Bearer "+token), Misplaced,
		},
		"the token without Bearer":        {requestFrom(here, authorization, token), Misplaced},
		"the token of another scheme":     {requestFrom(here, authorization, "Token "+token), Misplaced},
		"the token and a browser's":       {requestFrom(here, authorization, "Bearer "+token, protocol, socket("x")), Misplaced},
		"another host":                    {requestFrom("10.77.0.1:10261", authorization, "Bearer "+token), Misdirected},
		"a page's host":                   {requestFrom("kiosk.example.com:10261"), Misdirected},
		"another port":                    {requestFrom("127.0.0.1:80", authorization, "Bearer "+token), Misdirected},
		"no port":                         {requestFrom("127.0.0.1", authorization, "Bearer "+token), Misdirected},
		"no host":                         {requestFrom("", authorization, "Bearer "+token), Misdirected},
		"another address of the loopback": {requestFrom("127.0.0.2:10261", authorization, "Bearer "+token), Misdirected},
	} {
		if got := p.Judge(tt.r); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
	if got := p.Credentials(requestFrom("n1.lan:10268", authorization, "Bearer "+token)); got != Kubelet {
		t.Errorf("the token at another port is %v", got)
	}
	for _, header := range []string{"Bearer ", "Bearer x", ""} {
		if got := (&Proof{}).Credentials(requestFrom("", authorization, header)); got != Caller && header != "" {
			t.Errorf("%q is %v to an empty Proof", header, got)
		}
	}
	if six := keep(t, filepath.Join(t.TempDir(), "pki"), net.IPv6loopback); six.Judge(requestFrom("[::1]:10261")) != Stranger {
		t.Error("::1 is not meant by its address")
	}
}

func TestBearerOfProof(t *testing.T) {
	for _, tt := range []struct {
		values []string
		want   string
	}{
		{nil, ""}, {[]string{"Bearer abc"}, "abc"}, {[]string{"bearer  abc "}, "abc"}, {[]string{"Basic abc"}, ""},
		{[]string{"Bearer"}, ""}, {[]string{""}, ""}, {[]string{"Bearer a", "Bearer a"}, ""},
	} {
		r := &http.Request{Header: http.Header{"Authorization": tt.values}}
		if got := Bearer(r); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.values, got, tt.want)
		}
	}
}
