package charts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard is what a test looks at of Grafana's model of one.
type dashboard struct {
	UID, Title, Description string
	SchemaVersion           int
	Templating              struct {
		List []struct {
			Name, Type string
			Query      any // a text, or an object with a text
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Datasource  *struct{ UID string }
		Targets     []struct{ RefID, Expr string }
		Options     struct {
			Legend *struct{ ShowLegend bool }
		}
	}
}

// fromLibraries are metrics of libraries that dashboards show.
var fromLibraries = []string{
	"controller_runtime_reconcile_errors_total", "process_resident_memory_bytes", "apiserver_request_total",
	"apiserver_request_duration_seconds_bucket",
}

// TestDashboards: Grafana can load each dashboard, Prometheus can read each of its queries, and each is about metrics that there
// are, with variables that the dashboard has.
func TestDashboards(t *testing.T) {
	files, err := filepath.Glob("../dashboards/*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("dashboards: %v, %v", files, err)
	}
	known := append(documented(t), fromLibraries...)
	asked := map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		want := "yurt-" + strings.TrimSuffix(filepath.Base(file), ".json")
		if d.UID != want || d.Title == "" || d.Description == "" || d.SchemaVersion == 0 {
			t.Errorf("%s: uid %q, want %q; title %q, description %q, schema %d", file, d.UID, want, d.Title, d.Description,
				d.SchemaVersion)
		}
		variables := []string{"__rate_interval"}
		for _, v := range d.Templating.List {
			variables = append(variables, v.Name)
			if v.Type != "query" {
				continue
			}
			query, _ := v.Query.(map[string]any)
			text, _ := query["query"].(string)
			of := regexp.MustCompile(`^label_values\((\w+), \w+\)$`).FindStringSubmatch(text)
			if of == nil || !slices.Contains(known, of[1]) {
				t.Errorf("%s: the variable %s is %v", file, v.Name, v.Query)
			}
		}
		ids := map[int]bool{}
		for i, p := range d.Panels {
			if ids[p.ID] || p.Title == "" {
				t.Errorf("%s: panel %d has no title, or its id twice", file, p.ID)
			}
			ids[p.ID] = true
			for _, other := range d.Panels[:i] {
				a, b := p.GridPos, other.GridPos
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H || a.X+a.W > 24 {
					t.Errorf("%s: the panels %q and %q overlap", file, p.Title, other.Title)
				}
			}
			if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource == nil || p.Datasource.UID != "${datasource}") {
				t.Errorf("%s: the panel %q asks nobody", file, p.Title)
			}
			if p.Type == "timeseries" && (p.Options.Legend == nil || !p.Options.Legend.ShowLegend) {
				t.Errorf("%s: the lines of %q have no names: Grafana shows a legend only where showLegend says so", file, p.Title)
			}
			if p.Type == "stat" && len(p.Title) > 13*p.GridPos.W/2 {
				t.Errorf("%s: Grafana cuts off the title %q, where the screen is 1400 pixels wide", file, p.Title)
			}
			for _, target := range p.Targets {
				if strings.Contains(target.Expr, "vector(") {
					t.Errorf("%s: %q shows a number also where nothing is scraped", file, p.Title)
				}
				for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
					if !slices.Contains(variables, v[1]) {
						t.Errorf("%s: %q has no variable $%s", file, p.Title, v[1])
					}
				}
				for _, name := range selected(t, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")) {
					asked[name] = true
					if !slices.Contains(known, name) && !slices.Contains(known, strings.TrimSuffix(name, "_bucket")) {
						t.Errorf("%s: %q shows %s, which no program has", file, p.Title, name)
					}
				}
			}
		}
	}
	// What the fleet is seen by is all shown somewhere.
	for _, name := range documented(t) {
		if strings.HasPrefix(name, "coordinator_controller_pool_") && !asked[name] && !slices.Contains(notShown, name) {
			t.Errorf("no dashboard shows %s", name)
		}
	}
}

// notShown are metrics of pools that tell of what happened, and not of how a pool is.
var notShown = []string{"coordinator_controller_pool_holds_begun_total", "coordinator_controller_pool_holds_ended_total"}
