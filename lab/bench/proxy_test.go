package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yurtcoordinator/internal/sim/pki"
)

// TestProxyConfig holds what makes the proxy comparable to a hub.
func TestProxyConfig(t *testing.T) {
	config, err := proxyConfig("127.0.0.1:4711", "192.0.2.1:6443", proxyFiles{
		Serving: pki.Pair{Cert: "/p/proxy.crt", Key: "/p/proxy.key"}, NodeCert: "/p/node.crt", NodeKey: "/p/node.key",
		CloudCA: "/p/cloud.crt",
	})
	if err != nil {
		t.Fatal(err)
	}
	var root any
	if err := json.Unmarshal(config, &root); err != nil {
		t.Fatal(err)
	}
	const server = "apps.http.servers.proxy."
	const transport = server + "routes.0.handle.0.transport."
	for path, want := range map[string]string{
		"admin.disabled":                          `true`,
		server + "listen":                         `["127.0.0.1:4711"]`,
		server + "protocols":                      `["h1"]`,
		server + "automatic_https.disable":        `true`,
		server + "routes.0.handle.0.handler":      `"reverse_proxy"`,
		server + "routes.0.handle.0.upstreams":    `[{"dial":"192.0.2.1:6443"}]`,
		transport + "versions":                    `["2"]`,
		transport + "compression":                 `false`,
		transport + "tls.ca.pem_files":            `["/p/cloud.crt"]`,
		transport + "tls.client_certificate_file": `"/p/node.crt"`,
		"apps.tls.certificates.load_files":        `[{"certificate":"/p/proxy.crt","key":"/p/proxy.key"}]`,
	} {
		at := root
		for name := range strings.SplitSeq(path, ".") {
			switch inner := at.(type) {
			case map[string]any:
				at = inner[name]
			case []any:
				at = inner[0]
			}
		}
		got, err := json.Marshal(at)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

// TestProxyThatEnds: a proxy that cannot start says why at once, and leaves nothing behind.
func TestProxyThatEnds(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	program := filepath.Join(t.TempDir(), "caddy")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho loading\necho no such module\nexit 7\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := startProxy(t.Context(), program, Access{Server: "https://192.0.2.1:6443"})
	if err == nil || !strings.Contains(err.Error(), "exit status 7") || !strings.Contains(err.Error(), "no such module") {
		t.Errorf("%v, want how and why it ended", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
