package cloud

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"yurtcoordinator/lab/e2e/panels"
)

// TestAgentConfig: the page's configuration of an agent can be read, and tells the nodes' hubs apart.
func TestAgentConfig(t *testing.T) {
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := agentConfig(string(page))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Jobs []struct {
			Name    string `json:"job_name"`
			Targets []struct {
				Targets []string          `json:"targets"`
				Labels  map[string]string `json:"labels"`
			} `json:"static_configs"`
		} `json:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil || len(config.Jobs) != 2 {
		t.Fatalf("%+v, %v", config, err)
	}
	for i, instance := range []string{"NODE", "POOL"} {
		if job := config.Jobs[i]; len(job.Targets) != 1 || job.Targets[0].Labels["instance"] != instance {
			t.Errorf("the job %s has %+v, want the instance %s", job.Name, job.Targets, instance)
		}
	}
	if _, err := agentConfig("# Metrics\n"); err == nil {
		t.Error("a page without one has one")
	}
}

// TestPanelsAreThere: what is said of panels is said of some that there are.
func TestPanelsAreThere(t *testing.T) {
	there := map[string]bool{}
	files, err := filepath.Glob("../../../deploy/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d, err := panels.Read(content)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range d.Queries {
			panel := strings.TrimSuffix(filepath.Base(file), ".json") + "/" + q.Panel
			there[panel], there[panel+" "+q.Ref] = true, true
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(silent)), moved) {
		if !there[name] {
			t.Errorf("no dashboard has the panel %s", name)
		}
	}
}
