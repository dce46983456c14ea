package lab

import (
	"os"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/lab/build"
)

// aCommit names a commit, as Config.Former does.
const aCommit = "0123456789abcdef0123456789abcdef01234567"

// TestFormerHub: a hub of another commit gets the flags of ours, on the same disk.
func TestFormerHub(t *testing.T) {
	cfg := Config{Pools: 1, Nodes: 3, Kubelet: Real, Former: aCommit}.AsInstalled()
	n := node{place: place{1, 1}, cfg: cfg, disk: t.TempDir()}
	n.bins.YurtHub, n.bins.Former.YurtHub = "/bin/present", "/bin/former"
	present := n.hub()
	if err := os.WriteFile(n.file(hubFormer), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	former := n.hub()
	if present[0] != "/bin/present" || former[0] != "/bin/former" || !slices.Equal(present[1:], former[1:]) {
		t.Errorf("the present hub is started by %v, the other by %v", present, former)
	}
}

// TestFormerNeedsItsLab: no other lab has hubs of another commit.
func TestFormerNeedsItsLab(t *testing.T) {
	bare := Config{Name: "x", Pools: 1, Nodes: 3}.AsBare()
	bare.Former = aCommit
	if err := bare.Validate(); err == nil || !strings.Contains(err.Error(), "of another commit") {
		t.Errorf("a bare lab with former hubs: %v", err)
	}
	l := newLab(Config{Name: "x", Pools: 1, Nodes: 1}, t.TempDir(), build.Binaries{}, Images{})
	l.hosts["p1-n1"] = &host{}
	if err := l.runHub(t.Context(), "p1-n1", true); err == nil || !strings.Contains(err.Error(), "Config.Former") {
		t.Errorf("a former hub in another lab: %v", err)
	}
}
