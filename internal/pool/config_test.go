package pool

import (
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/logs"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/version"
)

// goodConfig is one that a coordinator starts with.
func goodConfig(t testing.TB, ca *pooltest.Authority) Config {
	t.Helper()
	dir := t.TempDir()
	serving := ca.Issue(t, pooltest.Operator(), pooltest.Tomorrow())
	return Config{
		BindAddress:       "127.0.0.1",
		DataDir:           dir + "/data",
		TLSCertFile:       pooltest.WriteFile(t, dir, "serving.crt", serving.Cert),
		TLSPrivateKeyFile: pooltest.WriteFile(t, dir, "serving.key", serving.Key),
		ClientCAFile:      pooltest.WriteFile(t, dir, "ca.crt", ca.Pem),
	}
}

func TestConfigErrorsNameTheFlag(t *testing.T) {
	ca := pooltest.NewAuthority(t, "ca")
	dir := t.TempDir()
	other := ca.Issue(t, pooltest.Operator(), pooltest.Tomorrow())
	old := ca.Issue(t, pooltest.Operator(), time.Now().Add(-time.Hour))
	unreadable := "/proc/self/mem" // can be opened and not read, by root too

	for _, c := range []struct {
		name string
		set  func(*Config)
		want []string
	}{
		{"node name", func(c *Config) { c.NodeName = "no/node" }, []string{"--node-name"}},
		{"bind address", func(c *Config) { c.BindAddress = "localhost" }, []string{"--bind-address", "IP address"}},
		{"foreign address", func(c *Config) { c.BindAddress = "192.0.2.1" },
			[]string{"--bind-address 192.0.2.1", "this machine"}},
		{"port", func(c *Config) { c.SecurePort = 70000 }, []string{"--secure-port 70000"}},
		{"probes' port", func(c *Config) { c.ProbePort = -1 }, []string{"--probe-port -1"}},
		{"one port for both", func(c *Config) { c.SecurePort, c.ProbePort = 7, 7 }, []string{"--probe-port 7", "of its own"}},
		{"quota", func(c *Config) { c.QuotaBytes = 1 }, []string{"--etcd-quota-bytes", "16777216"}},
		{"CIDR", func(c *Config) { c.ServiceClusterIPRange = "10.0.0.0" },
			[]string{"--service-cluster-ip-range", "CIDR"}},
		{"tiny CIDR", func(c *Config) { c.ServiceClusterIPRange = "10.0.0.0/30" },
			[]string{"--service-cluster-ip-range", "8"}},
		{"no data directory", func(c *Config) { c.DataDir = "" }, []string{"--data-dir is required"}},
		{"no certificate", func(c *Config) { c.TLSCertFile = "" }, []string{"--tls-cert-file is required"}},
		{"addresses without an authority", func(c *Config) { c.PoolAddressesFile = "a" }, []string{"--pool-ca-file", "together"}},
		{"no key", func(c *Config) { c.TLSPrivateKeyFile = "" }, []string{"--tls-private-key-file is required"}},
		{"no CA", func(c *Config) { c.ClientCAFile = "" }, []string{"--client-ca-file is required"}},
		{"missing file", func(c *Config) { c.TLSCertFile = dir + "/none" },
			[]string{"--tls-cert-file", "no such file"}},
		{"unreadable key", func(c *Config) { c.TLSPrivateKeyFile = unreadable }, []string{"--tls-private-key-file"}},
		{"a directory", func(c *Config) { c.ClientCAFile = dir }, []string{"--client-ca-file", "is a directory"}},
		{"empty file", func(c *Config) { c.ClientCAFile = pooltest.WriteFile(t, dir, "empty", nil) },
			[]string{"--client-ca-file", "does not contain any"}},
		{"no PEM", func(c *Config) { c.ClientCAFile = pooltest.WriteFile(t, dir, "text", []byte("hello")) },
			[]string{"--client-ca-file", "does not contain any"}},
		{"key in place of the certificate", func(c *Config) { c.TLSCertFile = c.TLSPrivateKeyFile },
			[]string{"--tls-cert-file", "did find a private key"}},
		{"certificate in place of the key", func(c *Config) { c.TLSPrivateKeyFile = c.TLSCertFile },
			[]string{"--tls-private-key-file", "a certificate rather than a key"}},
		{"another's key", func(c *Config) { c.TLSPrivateKeyFile = pooltest.WriteFile(t, dir, "other.key", other.Key) },
			[]string{"--tls-private-key-file", "private key does not match"}},
		{"expired", func(c *Config) {
			c.TLSCertFile = pooltest.WriteFile(t, dir, "old.crt", old.Cert)
			c.TLSPrivateKeyFile = pooltest.WriteFile(t, dir, "old.key", old.Key)
		}, []string{"--tls-cert-file", "expired at"}},
		{"half a kubelet client", func(c *Config) { c.KubeletClientKey = c.TLSPrivateKeyFile },
			[]string{"--kubelet-client-certificate and --kubelet-client-key"}},
		{"kubelet CA", func(c *Config) { c.KubeletCertificateAuthority = dir + "/none" },
			[]string{"--kubelet-certificate-authority"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := goodConfig(t, ca)
			c.set(&config)
			coordinator, err := New(config)
			if err == nil {
				err = coordinator.Run(t.Context())
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q has no %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

func TestExpiryDoesNotMindAFutureCertificateOrAnOldCAInABundle(t *testing.T) {
	ca := pooltest.NewAuthority(t, "ca")
	config := goodConfig(t, ca)
	slow := time.Now().Add(-25 * time.Hour) // by a slow clock the certificate is not valid yet
	if err := config.checkFiles(slow); err != nil {
		t.Errorf("a certificate of the future: %v", err)
	}
	if err := config.checkFiles(time.Now().Add(72 * time.Hour)); err == nil {
		t.Error("expired, and no error")
	}
	old := ca.Issue(t, pooltest.Operator(), time.Now().Add(-time.Hour))
	bundle := append(append([]byte{}, old.Cert...), ca.Pem...)
	config.ClientCAFile = pooltest.WriteFile(t, t.TempDir(), "bundle", bundle)
	if err := config.checkFiles(time.Now()); err != nil {
		t.Errorf("a bundle with an expired CA in it: %v", err)
	}
}

func TestFlagsAndTheirFile(t *testing.T) {
	var config Config
	fs := pflag.NewFlagSet("yurt-coordinator", pflag.ContinueOnError)
	config.AddFlags(fs)
	file := pooltest.WriteFile(t, t.TempDir(), "config.yaml", []byte("secure-port: 12345\nown-secrets: true\n"))
	args := []string{"--config", file, "--node-name=n1", "--tls-cert-file=x"}
	if err := flagfile.Parse(fs, args, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	if config.NodeName != "n1" || config.SecurePort != 12345 || config.ProbePort != 10271 ||
		!config.OwnSecrets ||
		config.QuotaBytes != DefaultQuotaBytes || config.BindAddress != "0.0.0.0" {
		t.Errorf("got %+v", config)
	}
}

func TestPortInUse(t *testing.T) {
	listener, err := listen(t.Context(), "", loopback, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := portOf(t, listener.Addr().String())
	for flag, set := range map[string]func(*Config){
		"--secure-port": func(c *Config) { c.SecurePort = taken }, "--probe-port": func(c *Config) { c.ProbePort = taken },
	} {
		config := goodConfig(t, pooltest.NewAuthority(t, "ca"))
		set(&config)
		coordinator, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		err = coordinator.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "another program") {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

// TestFlagsAreThoseThatTheCloudKnows: coordinator-controller gives each release's coordinators only flags that they have, by a
// list that must be this program's own.
func TestFlagsAreThoseThatTheCloudKnows(t *testing.T) {
	var config Config
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(fs)
	new(logs.Settings).AddFlags(fs)
	names := []string{"config", "version"} // of main
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	parts := strings.Split(version.Next, ".")
	file := "../cloud/coordinator/testdata/flags-" + parts[0] + "." + parts[1]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if known := strings.Fields(string(text)); !slices.Equal(known, names) {
		t.Errorf("%s has %v, the program %v", file, known, names)
	}
}
