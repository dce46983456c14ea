package balancer

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/lab/pki"
)

// running is a balancer as yurtlab runs it.
type running struct {
	url   string
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error
}

func start(t *testing.T, o Order) *running {
	t.Helper()
	in, order := io.Pipe()
	said, out := io.Pipe()
	b := &running{url: "https://" + o.Listen, in: order, out: bufio.NewReader(said), ended: make(chan error, 1)}
	go func() {
		b.ended <- Main(t.Context(), o, in, out)
		out.Close()
	}()
	if _, err := b.out.ReadByte(); err != nil {
		t.Fatal(errors.Join(err, <-b.ended))
	}
	return b
}

func (b *running) end(t *testing.T) (r Report) {
	t.Helper()
	err := b.in.Close()
	if err := errors.Join(err, json.NewDecoder(b.out).Decode(&r), <-b.ended); err != nil {
		t.Fatal(err)
	}
	return r
}

// free returns an address at which nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func authority(t *testing.T) (dir string, a *pki.Authority, server pki.Pair) {
	t.Helper()
	dir = t.TempDir()
	a, err := pki.Create(dir, "ca", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	server, err = a.Issue(pki.Request{Name: "cloud", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	return dir, a, server
}

func get(t *testing.T, client *http.Client, url string) (code int, text string) {
	t.Helper()
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestIsReadyAndRefusesTheRest(t *testing.T) {
	_, _, pair := authority(t)
	b := start(t, Order{Listen: free(t), Cert: pair.Cert, Key: pair.Key})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	for path, want := range map[string]int{"/readyz": http.StatusOK, "/api/v1/pods": http.StatusServiceUnavailable} {
		if code, _ := get(t, client, b.url+path); code != want {
			t.Errorf("%s is answered %d, want %d", path, code, want)
		}
	}
	if r := b.end(t); r != (Report{Refused: 1}) {
		t.Errorf("%+v, want one refused", r)
	}
}

// TestPassesOn: the server learns who the client is; whether the cloud is ready the balancer says, if it was told to.
func TestPassesOn(t *testing.T) {
	dir, signer, pair := authority(t)
	node, err := signer.Issue(pki.Request{
		Name: "node", CommonName: "system:node:a", Organizations: []string{"system:nodes", "others"}, Client: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %v", r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"),
			r.Header.Values("Impersonate-Group"))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{shown}}
	server.StartTLS()
	defer server.Close()
	mine, err := tls.LoadX509KeyPair(node.Cert, node.Key)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, Order{
		Listen: free(t), Cert: pair.Cert, Key: pair.Key, To: server.URL, Authority: dir + "/ca.crt", Token: "admin",
	})
	client := func(certificates ...tls.Certificate) *http.Client {
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, Certificates: certificates,
		}}}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	withKey, without := client(mine), client()
	if code, text := get(t, withKey, b.url+"/x"); code != http.StatusOK ||
		text != "/x Bearer admin system:node:a [others system:nodes]" {
		t.Errorf("with a certificate: %d, %q", code, text)
	}
	if code, text := get(t, without, b.url+"/x"); code != http.StatusOK || text != "/x   []" {
		t.Errorf("without one: %d, %q", code, text)
	}
	for _, tt := range []struct {
		line string
		want int
	}{{Unready, http.StatusInternalServerError}, {Ready, http.StatusOK}} {
		if _, err := fmt.Fprintln(b.in, tt.line); err != nil { // a pipe: it has been read
			t.Fatal(err)
		}
		for code := 0; code != tt.want; { // it obeys a moment later
			code, _ = get(t, without, b.url+"/readyz")
		}
		if code, _ := get(t, without, b.url+"/livez"); code != http.StatusOK {
			t.Errorf("%s: the rest is answered %d", tt.line, code)
		}
	}
	if r := b.end(t); r.Refused != 0 || r.Unready == 0 {
		t.Errorf("%+v", r)
	}
}

func TestOrdersAreChecked(t *testing.T) {
	_, _, pair := authority(t)
	empty := t.TempDir() + "/empty"
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Order{
		{}, {Cert: pair.Cert, Key: pair.Key, To: "https://127.0.0.1:1", Authority: empty},
		{Cert: pair.Cert, Key: pair.Key, To: "https://127.0.0.1:1", Authority: empty + "-not"},
	} {
		if _, err := newBalancer(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
