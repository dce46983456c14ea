package charts

import (
	"path/filepath"
	"slices"
	"testing"

	"yurtcoordinator/internal/pages"
)

// openYurts are the kinds that a cluster with OpenYurt serves, as docs/from-openyurt.md has it.
var openYurts = []string{
	"--api-versions", "apps.openyurt.io/v1beta2/NodePool", "--api-versions", "apps.openyurt.io/v1beta1/YurtAppSet",
}

// packed is the chart that is made with the images, for their version, and mirrored is a release's where a site has copied it.
const (
	packed   = "dist/images/yurt-coordinator-*.tgz"
	mirrored = "oci://MIRROR/charts/yurt-coordinator"
)

// TestPagesInstall: the chart takes what the helm commands of our pages give it, and manifests that they apply from a file are
// examples.
func TestPagesInstall(t *testing.T) {
	shown := func(words ...string) []pages.Command {
		t.Helper()
		all, err := pages.Commands("../..", words...)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(all, func(c pages.Command) bool { return c.Page == "README.md" }) {
			t.Fatalf("the README does not show %v; something is wrong with this test", words)
		}
		return all
	}
	for _, c := range shown("helm", "install") {
		if len(c.Words) < 5 || c.Words[2] != "yurt-coordinator" || c.Words[3] != packed && c.Words[3] != mirrored {
			t.Errorf("%s:%d: %v: it installs another chart, or by another name", c.Page, c.Line, c.Words)
			continue
		}
		// What is packed has the registry that it was pushed to.
		flags := append([]string{"--set", "image.registry=registry.example/edge"}, openYurts...)
		if _, err := template(t, append(flags, c.Words[4:]...)...); err != nil {
			t.Errorf("%s:%d: %v: %v", c.Page, c.Line, c.Words, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range shown("kubectl", "apply", "-f") {
		if c.Words[3] == "-" {
			continue // what follows in the page
		}
		if !slices.Contains(files, filepath.Join("../..", c.Words[3])) {
			t.Errorf("%s:%d: %v: that is no example", c.Page, c.Line, c.Words)
		}
	}
}
