package balancer

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/sim/pki"
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

func certificate(t *testing.T) pki.Pair {
	t.Helper()
	a, err := pki.Create(t.TempDir(), "ca", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := a.Issue(pki.Request{Name: "cloud", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	return server
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
	pair := certificate(t)
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

func TestOrdersAreChecked(t *testing.T) {
	if err := Main(t.Context(), Order{Listen: free(t)}, nil, io.Discard); err == nil {
		t.Error("an order without a certificate is taken")
	}
}
