package hub

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/settings"
)

// keeps reports whether a hub keeps what a program reads.
func (h *Hub) keeps(agent string) bool {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
	r.Header.Set("User-Agent", agent)
	return h.serves.Keeper.Match(r)
}

// TestAPoolIsHeeded: the pool's settings reach the parts that use them, while the hub runs and after a restart. The node's own
// settings take precedence, and may change meanwhile.
func TestAPoolIsHeeded(t *testing.T) {
	dir := t.TempDir()
	node := func(more ...string) config.Config {
		var c config.Config
		fs := pflag.NewFlagSet("yurthub", pflag.ContinueOnError)
		c.AddFlags(fs)
		if err := fs.Parse(append([]string{
			"--node-name=n1", "--nodepool-name=p1", "--ca-file=ca", "--cert-file=crt", "--key-file=key",
			"--server-addr=https://10.0.0.1:6443", "--cert-dir=" + dir, "--disk-cache-path=" + filepath.Join(dir, "cache"),
		}, more...)); err != nil {
			t.Fatal(err)
		}
		c.Own = config.Given(fs)
		return c
	}
	start := func(c config.Config) *Hub {
		h, err := New(c, ends.Ends{})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := start(node())
	no := false
	said := v1alpha1.HubSettings{CacheAgents: []string{"mine"}, OwnObjects: &no, LinkProfile: v1alpha1.LinkSatellite}
	if p := h.Status().LinkProfile; p != "normal" {
		t.Errorf("with nothing said, the link is judged as %s", p)
	}
	restart, err := h.inForce.Take(said)
	if err != nil || !slices.Equal(restart, []string{"own-objects"}) {
		t.Fatalf("restart for %v, %v", restart, err)
	}
	if p := h.Status().LinkProfile; p != "satellite" {
		t.Errorf("the pool says that the link is by satellite, but the hub judges it as %s", p)
	}
	if !h.keeps("mine/v1") || h.keeps("kubelet/v1") {
		t.Error("the running hub does not keep what the pool says")
	}
	if err := h.Reconfigure(node("--link-profile=metered")); err != nil || h.Status().LinkProfile != "metered" {
		t.Errorf("the node's own profile does not beat the pool's: %v, %s", err, h.Status().LinkProfile)
	}
	if err := h.Reconfigure(node("--cache-agents=own")); err != nil || !h.keeps("own/v1") || h.keeps("mine/v1") {
		t.Errorf("the node's own does not beat the pool: %v", err)
	}
	if err := h.Reconfigure(node()); err != nil || !h.keeps("mine/v1") {
		t.Errorf("the pool does not count when the node says nothing any more: %v", err)
	}
	bad := v1alpha1.HubSettings{
		LinkProfile: v1alpha1.LinkMetered, CacheAgents: []string{"x"}, PoolScopeResources: []string{"a/v1/b", "a/v2/b"},
	}
	if _, err := h.inForce.Take(bad); err == nil || !h.keeps("mine/v1") || h.Status().LinkProfile != "satellite" {
		t.Errorf("half of what cannot be used is taken: %v", err)
	}
	if restart, err := h.inForce.Take(v1alpha1.HubSettings{}); err != nil || len(restart) > 0 || !h.keeps("kubelet/v1") ||
		h.Status().LinkProfile != "normal" {
		t.Errorf("a pool that takes back what it said: %v, %v", restart, err)
	}
	if err := h.disk.Close(); err != nil {
		t.Fatal(err)
	}

	content, err := v1alpha1.EncodeShared(said)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"pool": "p1", "generation": 7, "configuration": string(content)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, settings.File), text, 0o600); err != nil {
		t.Fatal(err)
	}
	h = start(node())
	if s := h.Status().Settings; s == nil || s.Runs != 7 || s.State != edge.SettingsTaken {
		t.Errorf("started again, it says %+v", s)
	}
	if !h.keeps("mine/v1") || h.cfg.OwnObjects {
		t.Error("started again, it does not do what the pool said")
	}
	if restart, err := h.inForce.Take(said); err != nil || len(restart) > 0 {
		t.Errorf("started again, it needs a restart for %v, %v", restart, err)
	}
	if err := h.disk.Close(); err != nil {
		t.Error(err)
	}
	h = start(node("--own-objects", "--cache-agents=own", "--remember-identities-for=1h"))
	if s := h.Status().Settings; s == nil || !slices.Equal(s.Own, []string{"cache-agents", "own-objects"}) ||
		h.cfg.RememberIdentitiesFor != time.Hour {
		t.Errorf("with settings of its own it says %+v", s)
	}
	if err := h.disk.Close(); err != nil {
		t.Error(err)
	}
}

// TestTheDisksClockIsPutAhead while the hub runs.
func TestTheDisksClockIsPutAhead(t *testing.T) {
	args := []string{
		"--node-name=n1", "--ca-file=ca", "--cert-file=crt", "--key-file=key", "--server-addr=https://10.0.0.1:6443",
		"--cert-dir=" + filepath.Join(t.TempDir(), "pki"), "--disk-cache-path=" + t.TempDir(),
	}
	h, err := New(flags(t, args...), ends.Ends{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Reconfigure(flags(t, append(args, "--disk-cache-clock-offset=720h")...)); err != nil {
		t.Fatal(err)
	}
	if ahead := time.Until(h.disk.Now()).Round(time.Hour); ahead != 720*time.Hour {
		t.Errorf("the disk's clock is %v ahead", ahead)
	}
}
