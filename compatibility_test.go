package yurtcoordinator

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

const compatibilityPage = "docs/compatibility.md"

// TestVersionsSayTheSame holds the page to what decides: which versions there are to be tried (the modules of the lab, and our
// own go.mod), and which the chart takes.
func TestVersionsSayTheSame(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := func(pattern, text, what string) string {
		t.Helper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("found no %s", what)
		}
		return found[1]
	}
	const kubernetes = `(?m)^(?:require |\t)k8s\.io/kubernetes (v\S+)(?: // indirect)?$`
	bound := first(`(?m)^kubeVersion: ">=(\S+)"$`, read("deploy/charts/yurt-coordinator/Chart.yaml"), "kubeVersion of the chart")
	oldest := version.MustParseGeneric(bound)
	page := read(compatibilityPage)
	for file, want := range map[string]string{
		compatibilityPage: "`>=" + bound + "`",
		"docs/install.md": "Kubernetes " + minor(oldest) + " or later",
	} {
		if !strings.Contains(read(file), want) {
			t.Errorf("%s does not say %q, as the chart does", file, want)
		}
	}

	ours := version.MustParseGeneric(first(kubernetes, read("go.mod"), "Kubernetes in go.mod"))
	can := map[string]*version.Version{minor(ours): ours}
	mods, err := filepath.Glob("lab/kubernetes/*/go.mod")
	if err != nil || len(mods) == 0 {
		t.Fatalf("found no modules of other versions: %v", err)
	}
	for _, mod := range mods {
		v := version.MustParseGeneric(first(kubernetes, read(mod), "Kubernetes in "+mod))
		can[minor(v)] = v
	}
	rows := versionRows(t, page)
	for name, v := range can {
		row, there := rows[name]
		switch {
		case !there:
			t.Errorf("the page has no row for %s, which the lab can have", name)
		case v.LessThan(oldest):
			t.Errorf("the lab can have %s, which the chart refuses", name)
		case row.patch != v.String():
			t.Errorf("the page says %s of %s, the module %s", row.patch, name, v)
		case row.state == "tried" && row.ran == "":
			t.Errorf("the page says that %s is tried, and not by what", name)
		}
	}
	for name, row := range rows {
		refused := version.MustParseGeneric(name).LessThan(oldest)
		if _, there := can[name]; refused != (row.state == "can't") || !refused && !there {
			t.Errorf("the page says %q of %s: the chart takes %s and later, and the lab can have it: %v", row.state, name, bound,
				there)
		}
	}
	if rows[minor(oldest.SubtractMinor(1))].state != "can't" {
		t.Errorf("the page does not say what is with %s and older", minor(oldest.SubtractMinor(1)))
	}
}

// minor is a version without its patch.
func minor(v *version.Version) string { return version.MajorMinor(v.Major(), v.Minor()).String() }

type versionRow struct{ patch, state, ran string }

// versionRows returns the page's table of versions by minor version.
func versionRows(t *testing.T, page string) map[string]versionRow {
	t.Helper()
	line := regexp.MustCompile(
		`(?m)^\| (1\.\d+)(?: \((\S+)\)| and older) \| (tried|tried in part|should work|can't) \|[^|]*\| ?(.*?) ?\|$`)
	rows := map[string]versionRow{}
	for _, m := range line.FindAllStringSubmatch(page, -1) {
		rows[m[1]] = versionRow{m[2], m[3], m[4]}
	}
	if len(rows) < 2 {
		t.Fatalf("found %d versions on the page", len(rows))
	}
	return rows
}
