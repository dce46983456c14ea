package balancer

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"k8s.io/utils/clock"

	"yurtcoordinator/internal/lab/pki"
)

func TestIsReadyAndRefusesTheRest(t *testing.T) {
	authority, err := pki.Create(t.TempDir(), "ca", clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(pki.Request{Name: "cloud", Server: true, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	const address = "127.0.0.1:17443"
	in, order := io.Pipe()
	said, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Main(t.Context(), in, out) }()
	if err := json.NewEncoder(order).Encode(Order{Listen: address, Cert: pair.Cert, Key: pair.Key}); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(said)
	if _, err := answers.ReadByte(); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	for path, want := range map[string]int{"/readyz": http.StatusOK, "/api/v1/pods": http.StatusServiceUnavailable} {
		response, err := client.Get("https://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s is answered %d, want %d", path, response.StatusCode, want)
		}
	}
	if err := order.Close(); err != nil {
		t.Fatal(err)
	}
	var refused int
	if err := json.NewDecoder(answers).Decode(&refused); err != nil || refused != 1 {
		t.Errorf("it has refused %d, %v; want 1", refused, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
