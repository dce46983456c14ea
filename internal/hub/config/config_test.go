package config

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/edge"
)

// flags parses a hub's flags, as main does.
func flags(t testing.TB, args ...string) Config {
	t.Helper()
	var c Config
	fs := pflag.NewFlagSet("yurthub", pflag.ContinueOnError)
	c.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestValidate(t *testing.T) {
	plain := []string{
		"--node-name=n1", "--ca-file=ca", "--cert-file=crt", "--key-file=key",
		"--server-addr=https://10.0.0.1:6443,https://10.0.0.2:6443",
	}
	pooled := append([]string{
		"--enable-coordinator", "--nodepool-name=p1", "--coordinator-server-addr=https://10.1.0.1:10270",
	}, plain...)
	joining := []string{"--node-name=n1", "--bootstrap-file=token", "--server-addr=https://10.0.0.1:6443"}
	for _, tt := range []struct {
		name string
		args []string
		want string // what the error starts with; empty: there is none
	}{
		{"a plain proxy", plain, ""},
		{"with a coordinator", pooled, ""},
		{"IPv6", append(plain, "--health-bind-address=::"), ""},
		{"nothing", nil,
			"--node-name is required; one of --bootstrap-file, --kubelet-kubeconfig, or --cert-file with --key-file is required"},
		{"a certificate of its own", joining, ""},
		{"a kubelet's certificate", []string{"--node-name=n1", "--kubelet-kubeconfig=pem", "--server-addr=https://10.0.0.1:6443"},
			""},
		{"nowhere to keep it", []string{"--node-name=n1", "--bootstrap-file=token", "--cert-dir="}, "--cert-dir is required"},
		{"Pods served", append(joining, "--secure-bind-address=10.0.0.7"), ""},
		{"Pods served where the node is", append(joining, "--secure-bind-address=node", "--masterservice"), ""},
		{"Pods sent to the hub", append(joining, "--secure-bind-address=10.0.0.7", "--masterservice"), ""},
		{"Pods sent nowhere", append(joining, "--masterservice"), "--masterservice needs --secure-bind-address"},
		{"Pods served to everybody", append(joining, "--secure-bind-address=0.0.0.0"), `--secure-bind-address "0.0.0.0": want`},
		{"Pods served to nobody", append(joining, "--secure-bind-address=127.0.0.1"), `--secure-bind-address "127.0.0.1": want`},
		{"Pods served without a certificate", append(plain, "--secure-bind-address=10.0.0.7"),
			"--secure-bind-address needs a cert"},
		{"Pods served from nothing", append(joining, "--secure-bind-address=10.0.0.7", "--disk-cache-path="),
			"--secure-bind-address needs --disk-cache-path"},
		{"a certificate, no authority", append(plain, "--ca-file="), "--ca-file is required"},
		{"no node", append(plain, "--node-name="), "--node-name is required"},
		{"no key", append(plain, "--key-file="), "--key-file is required"},
		{"no server", plain[:4], "--server-addr is required"},
		{"a coordinator in some pool", append(plain, "--enable-coordinator"), "--nodepool-name is required"},
		{"a coordinator that the cloud knows", append(plain, "--enable-coordinator", "--nodepool-name=p1"), ""},
		{"a coordinator that cannot be remembered", append(plain, "--enable-coordinator", "--nodepool-name=p1", "--cert-dir="),
			"--cert-dir is required"},
		{"a coordinator, no pool", append(pooled, "--nodepool-name="), "--nodepool-name is required"},
		{"coordinators in slots", append(pooled, "--coordinator-server-addr=https://c:1,https://d:1,https://e:1"), ""},
		{"more than a pool has", append(pooled, "--coordinator-server-addr=https://c:1,https://d:1,https://e:1,https://f:1"),
			"--coordinator-server-addr: 4 addresses are given, and a pool has at most 3"},
		{"one in two slots", append(pooled, "--coordinator-server-addr=https://c:1,https://c:1"),
			"--coordinator-server-addr: c:1 is given twice"},
		{"a slot without an address", append(pooled, "--coordinator-server-addr=https://c:1,"),
			`--coordinator-server-addr "": want`},
		{"a node name that can be none", append(plain, "--node-name=N_1"), `--node-name "N_1": `},
		{"a node name of two lines", append(plain, "--node-name=n1\nn2"), `--node-name "n1\nn2": `},
		{"health nowhere", append(plain, "--health-bind-address="), `--health-bind-address "": want an IP address`},
		{"resources of the core group and others",
			append(plain, "--pool-scope-resources=v1/services,apps.openyurt.io/v1beta2/nodepools"), ""},
		{"no resources", append(plain, "--pool-scope-resources="), ""},
		{"a resource without a version", append(plain, "--pool-scope-resources=services"),
			`--pool-scope-resources "services": want GROUP/VERSION/RESOURCE`},
		{"a kind", append(plain, "--pool-scope-resources=v1/Service"), `--pool-scope-resources "v1/Service": want`},
		{"a resource twice", append(plain, "--pool-scope-resources=g/v1/things,g/v2/things"),
			"--pool-scope-resources: things.g is given twice"},
		{"a proxy", append(plain, "--proxy-file=/etc/yurthub/proxy", "--no-proxy=10.0.0.0/8,.local", "--tls-server-name=k"), ""},
		{"exceptions without a proxy", append(plain, "--no-proxy=.local"), "--no-proxy does nothing without --proxy-file"},
		{"no port", append(plain, "--port=0"), "--port 0: want 1 to 65535"},
		{"no such port", append(plain, "--port=65536"), "--port 65536: want 1 to 65535"},
		{"no health port", append(plain, "--health-port=-1"), "--health-port -1: want 1 to 65535"},
		{"less than nothing", append(plain, "--remember-identities-for=-1s"), "--remember-identities-for -1s: want 0 or more"},
		{"no reading", append(plain, "--max-requests-inflight=0"), "--max-requests-inflight 0: want at least 1"},
		{"no writing", append(plain, "--max-mutating-requests-inflight=0"), "--max-mutating-requests-inflight 0: want"},
		{"no watches", append(plain, "--max-long-running-requests=-1"), "--max-long-running-requests -1: want"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := flags(t, tt.args...)
			err := c.Validate()
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want) ||
				strings.Contains(err.Error(), "\n")):
				t.Errorf("%v, want one line that starts with %q", err, tt.want)
			}
		})
	}
}

// The ports are a contract: kubelets and manifests name them.
func TestDefaults(t *testing.T) {
	c := flags(t)
	if c.Port != edge.PortHub || c.HealthPort != edge.PortHubHealth ||
		c.HealthBindAddress != "127.0.0.1" || c.EnableCoordinator {
		t.Errorf("%+v", c)
	}
}

func TestAddresses(t *testing.T) {
	urls, err := addresses("server-addr", "https://10.0.0.1:6443", "https://cloud.example")
	if err != nil || len(urls) != 2 || urls[0].Host != "10.0.0.1:6443" || urls[1].Host != "cloud.example" {
		t.Errorf("%v, %v", urls, err)
	}
	for _, text := range []string{"", "10.0.0.1:6443", "http://10.0.0.1:6443", "https://", "https://[::1", "/x"} {
		if _, err := addresses("server-addr", "https://10.0.0.1:6443", text); err == nil ||
			!strings.HasPrefix(err.Error(), "--server-addr ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line that names the flag", text, err)
		}
	}
}

// TestWhereTheCoordinatorsAre: where the flag says, or where the cloud does.
func TestWhereTheCoordinatorsAre(t *testing.T) {
	c := flags(t)
	if at, err := c.Coordinators(); len(at) != 0 || err != nil {
		t.Errorf("%v, %v", at, err)
	}
	c = flags(t, "--coordinator-server-addr=https://10.1.0.1:10270,https://10.1.0.2:10270")
	if at, err := c.Coordinators(); err != nil || len(at) != 2 || at[0].Host != "10.1.0.1:10270" ||
		at[1].Host != "10.1.0.2:10270" {
		t.Errorf("%v, %v", at, err)
	}
	c = flags(t, "--coordinator-server-addr=10.1.0.1")
	if _, err := c.Coordinators(); err == nil || !strings.HasPrefix(err.Error(), "--coordinator-server-addr ") {
		t.Errorf("%v", err)
	}
}
