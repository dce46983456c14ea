package hub

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
)

// TestTheCloudThroughAProxy: requests to the cloud use the proxy, and requests to the coordinator do not, whatever the
// environment says.
func TestTheCloudThroughAProxy(t *testing.T) {
	proxy := hubtest.StartProxy(t)
	t.Setenv("HTTPS_PROXY", "http://nowhere.invalid:1")
	answer := func(name string) *httptest.Server {
		s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_,
				_ = io.WriteString(w, name)
		}))
		t.Cleanup(s.Close)
		return s
	}
	cloud, coordinator := answer("cloud"), answer("coordinator")
	dir := t.TempDir()
	pair := filepath.Join(dir, "pair.pem")
	if err := os.WriteFile(pair, certificate(t, time.Now().Add(time.Hour)), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cloud.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	h, err := New(flags(t, "--node-name=n1", "--nodepool-name=p1", "--server-addr="+cloud.URL, "--ca-file="+ca,
		"--cert-file="+pair,
		"--key-file="+pair, "--cert-dir="+filepath.Join(dir, "pki"), "--disk-cache-path=", "--proxy-file="+proxy.File(),
		"--enable-coordinator", "--coordinator-server-addr="+coordinator.URL), ends.Ends{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, run := range []func(context.Context) error{h.cloud.Run, h.member.Reach} {
		go func() { ended <- run(ctx) }()
	}
	defer func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	waiting, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	for _, l := range []interface {
		Wait(context.Context, func(link.State) bool) (link.State, error)
	}{h.cloud.Link(), h.member.Link()} {
		if _, err := l.Wait(waiting, func(s link.State) bool { return s == link.Up }); err != nil {
			t.Fatal(err)
		}
	}
	asked := proxy.Asked()
	for _, server := range asked {
		if server != strings.TrimPrefix(cloud.URL, "https://") {
			t.Errorf("the proxy was asked for %s", server)
		}
	}
	if len(asked) == 0 {
		t.Error("nobody has asked the proxy")
	}
	proxy.Kill()
	if _, err := h.cloud.Link().Wait(waiting, func(s link.State) bool { return s == link.Down }); err != nil {
		t.Fatal(err)
	}
	_, err = h.cloud.AsNode().RoundTrip(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if err == nil || !strings.Contains(err.Error(), "proxy "+proxy.URL+": it cannot be reached") ||
		strings.Contains(err.Error(), hubtest.ProxyPassword) {
		t.Errorf("%v; want to hear that the proxy is dead, and not its password", err)
	}
	if h.member.Link().Get() != link.Up {
		t.Error("the coordinator is gone with the proxy")
	}
}
