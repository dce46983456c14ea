package charts

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1beta2"
)

// formerChart is the last commit before coordinators' Pods and Secrets were held to what they are for.
const formerChart = "721ffbeed7779cf00d0ada1a34eb9547695c58d1"

// TestUpgradeOfTheChart: a release of an earlier chart becomes one of this chart. What both have stays the same objects, what
// only the earlier one has is gone, and what is uninstalled then leaves no more than docs/install.md says.
func TestUpgradeOfTheChart(t *testing.T) {
	former := filepath.Join(t.TempDir(), "former.tgz")
	archive := exec.CommandContext(t.Context(), "git", "-C", "../..", "archive", "--format=tar.gz", "--prefix="+chart+"/",
		"--output="+former, formerChart+":deploy/charts/"+chart)
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("the chart of commit %s is in this repository's history (a shallow clone: git fetch --unshallow): %v: %s",
			formerChart, err, out)
	}
	c := newCluster(t)
	c.settled()
	before := c.objects()
	const registry = "image.registry=registry.example.org/edge"
	c.helm("install", chart, former, "--set", registry)
	create(t, c.client, &v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "hangzhou"}})
	was := c.objects()

	c.helm("upgrade", chart, chart, "--set", registry)
	upgraded := c.objects()
	names := c.release(before)
	same := 0
	for _, name := range names {
		if uid, had := was[name]; had {
			if same++; uid != upgraded[name] {
				t.Errorf("upgraded, %s is another one", name)
			}
		}
	}
	if same < 40 {
		t.Errorf("%d objects are as before", same)
	}
	for _, added := range []string{"node-status", "controller-images"} {
		if name := "validatingadmissionpolicies " + added + ".openyurt.io"; was[name] != "" || upgraded[name] == "" {
			t.Errorf("%s is not new", name)
		}
	}

	c.helm("uninstall", chart, "--no-hooks") // nobody runs Jobs here
	c.left("upgraded and uninstalled", before, was)
	c.helm("install", chart, chart, "--set", registry)
	if fresh := c.release(before); !slices.Equal(names, fresh) {
		t.Errorf("an upgrade leaves %q, an installation makes %q", names, fresh)
	}
}

// release are the names of the objects that are new, but for Helm's own records.
func (c *cluster) release(before map[string]string) []string {
	c.Helper()
	return slices.DeleteFunc(c.new(before), func(name string) bool { return strings.Contains(name, "/sh.helm.release.") })
}
