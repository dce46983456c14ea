package hub

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/store"
)

// flags parses a hub's flags, as main does.
func flags(t testing.TB, args ...string) config.Config {
	t.Helper()
	var c config.Config
	fs := pflag.NewFlagSet("yurthub", pflag.ContinueOnError)
	c.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return c
}

// stored returns a hub with a disk in a directory. Its certificate files do not exist, but only Run needs them.
func stored(t *testing.T, dir string, more ...string) (*Hub, error) {
	t.Helper()
	return New(flags(t, append([]string{
		"--node-name=n1", "--ca-file=ca", "--cert-file=crt", "--key-file=key", "--server-addr=https://10.0.0.1:6443",
		"--disk-cache-path=" + dir, "--cert-dir=" + filepath.Join(t.TempDir(), "pki"),
	}, more...)...), ends.Ends{})
}

// A hub that could not be built frees the disk's directory.
func TestTheDisksDirectoryIsFreed(t *testing.T) {
	dir := t.TempDir()
	if _, err := stored(t, dir, "--server-addr=https://a,https://a"); err == nil || errors.Is(err, store.ErrLocked) {
		t.Fatalf("a hub with a server twice: %v", err)
	}
	h, err := stored(t, dir)
	if err != nil {
		t.Fatalf("what was not built holds the directory: %v", err)
	}
	if _, err := stored(t, dir); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second hub with the same directory: %v", err)
	}
	if s := h.Status(); s.Disk == nil || len(s.Kept) != 0 {
		t.Errorf("Status() = %+v", s)
	}
	if err := h.disk.Close(); err != nil {
		t.Error(err)
	}
}

func TestWithoutADisk(t *testing.T) {
	h, err := stored(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if s := h.Status(); s.Disk != nil || s.Kept != nil {
		t.Errorf("Status() = %+v", s)
	}
	if err := h.disk.Close(); err != nil {
		t.Error(err)
	}
}

func TestTheKeeperKnowsItsAgents(t *testing.T) {
	h, err := stored(t, t.TempDir(), "--cache-agents=kubelet, my-agent")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.disk.Close(); err != nil {
			t.Error(err)
		}
	}()
	for agent, want := range map[string]bool{"kubelet/v1": true, "my-agent": true, "kube-proxy/v1": false} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.Header.Set("User-Agent", agent)
		if got := h.serves.Keeper.Match(r); got != want {
			t.Errorf("%s is kept: %v", agent, got)
		}
	}
}
