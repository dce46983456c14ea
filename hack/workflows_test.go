package hack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWorkflows: what a hosted CI runs are the commands that people run.
func TestWorkflows(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"ci.yaml": ".ci/run", "release.yaml": "make release"} {
		content, err := os.ReadFile(filepath.Join("../.github/workflows", name))
		if err != nil {
			t.Fatal(err)
		}
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Steps []struct{ Run, Uses string }
			}
		}
		if err := yaml.Unmarshal(content, &workflow); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(workflow.Permissions) == 0 {
			t.Errorf("%s has all permissions", name)
		}
		found := false
		for _, job := range workflow.Jobs {
			for _, step := range job.Steps {
				found = found || strings.Contains(step.Run, want)
				if target, ok := strings.CutPrefix(step.Run, "make "); ok {
					target, _, _ = strings.Cut(target, " ")
					if !strings.Contains(string(makefile), "\n"+target+":") {
						t.Errorf("%s makes %s, which there is not", name, target)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s does not run %s", name, want)
		}
	}
	if info, err := os.Stat("../.ci/run"); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf(".ci/run: %v, %v", info, err)
	}
}

// TestReleasesAreMadeWithOneGo: the workflow makes releases with the Go that the page names.
func TestReleasesAreMadeWithOneGo(t *testing.T) {
	workflow, err := os.ReadFile("../.github/workflows/release.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	_, version, found := strings.Cut(string(workflow), `go-version: "`)
	version, _, _ = strings.Cut(version, `"`)
	if !found || !strings.Contains(string(page), "`GOTOOLCHAIN=go"+version+" make release") {
		t.Errorf("the workflow makes releases with Go %q, and the page with another", version)
	}
}
