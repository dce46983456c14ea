package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// valid are the least flags that a hollow kubelet starts with.
func valid() []string {
	return []string{"--kubeconfig=/n1.conf", "--node-name=n1", "--root-dir=/var/lib/n1"}
}

func parse(t *testing.T, args ...string) Settings {
	t.Helper()
	var s Settings
	fs := pflag.NewFlagSet("hollow", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	s.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string // what the error says; empty: none
	}{
		{"defaults", nil, ""},
		{"no kubeconfig", []string{"--kubeconfig="}, "--kubeconfig"},
		{"no name", []string{"--node-name="}, "--node-name"},
		{"capital in the name", []string{"--node-name=N1"}, "--node-name"},
		{"relative root", []string{"--root-dir=n1"}, "--root-dir"},
		{"node IP", []string{"--node-ip=10.0.0"}, "--node-ip"},
		{"address", []string{"--address=localhost"}, "--address"},
		{"lease of no time", []string{"--lease-duration=0"}, "--lease-duration"},
		{"lease of a fraction", []string{"--lease-duration=1500ms"}, "--lease-duration"},
		{"status", []string{"--status-frequency=-1s"}, "--status-frequency"},
		{"port", []string{"--port=70000"}, "--port"},
		{"no server", []string{"--port=0"}, ""},
		{"Pod CIDR", []string{"--pod-cidr=10.244"}, "--pod-cidr"},
		{"Pod CIDR of IPv6", []string{"--pod-cidr=fd00::/64"}, ""},
		{"both families", []string{"--pod-cidr=10.244.1.0/24,fd00::/64", "--node-ip=10.0.0.1,fd00::1"}, ""},
		{"half a family", []string{"--pod-cidr=10.244.1.0/24,fd00::"}, "--pod-cidr"},
		{"half an address", []string{"--node-ip=10.0.0.1,"}, "--node-ip"},
		{"small Pod CIDR", []string{"--pod-cidr=10.244.1.0/28"}, "not enough addresses"},
		{"small Pod CIDR, few Pods", []string{"--pod-cidr=10.244.1.0/28", "--max-pods=14"}, ""},
		{"no Pods", []string{"--max-pods=0"}, "--max-pods"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := parse(t, append(valid(), test.args...)...)
			err := s.Check()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("Check() = %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("Check() = %v, want an error that says %q", err, test.want)
			}
		})
	}
}

func TestCheckNamesEverythingWrong(t *testing.T) {
	s := parse(t)
	err := s.Check()
	if err == nil {
		t.Fatal("no flags at all were accepted")
	}
	for _, flag := range []string{"--kubeconfig", "--node-name", "--root-dir"} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("the error does not name %s: %v", flag, err)
		}
	}
}

func TestKubeletOptions(t *testing.T) {
	s := parse(t, append(valid(), "--lease-duration=8s", "--status-frequency=3s",
		"--node-labels=apps.openyurt.io/nodepool=shanghai,a=b", "--port=0")...)
	f, c, err := kubeletOptions(s)
	if err != nil {
		t.Fatal(err)
	}
	if c.NodeLeaseDurationSeconds != 8 || c.NodeStatusUpdateFrequency.Duration != 3*time.Second {
		t.Errorf("lease %d s, status every %s; want 8 and 3s", c.NodeLeaseDurationSeconds,
			c.NodeStatusUpdateFrequency.Duration)
	}
	if got := f.NodeLabels["apps.openyurt.io/nodepool"]; got != "shanghai" || len(f.NodeLabels) != 2 {
		t.Errorf("labels %v", f.NodeLabels)
	}
	if c.EnableServer || c.ReadOnlyPort != 0 {
		t.Error("port 0 does not turn the server off")
	}
	if c.ProviderID != "hollow://n1" {
		t.Errorf("provider ID %q", c.ProviderID)
	}
	for what, path := range map[string]string{
		"manifests": c.StaticPodPath, "logs": c.PodLogsDir, "pki": f.CertDirectory,
		"volume plugins": c.VolumePluginDir, "root": f.RootDirectory} {
		if path != s.RootDir && !strings.HasPrefix(path, s.RootDir+"/") {
			t.Errorf("%s in %s, outside --root-dir", what, path)
		}
	}
	if got := s.heartbeatTimeout(); got != 2*time.Second {
		t.Errorf("a heartbeat may take %s, want a quarter of the lease", got)
	}
}
