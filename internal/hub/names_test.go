package hub

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/sim/pki"
)

// TestMetricsAreDocumented: docs/metrics.md lists exactly the metrics that a hub in a pool registers. Another test checks
// dashboards against that page.
func TestMetricsAreDocumented(t *testing.T) {
	nowhere := func(*pki.Authority) string { return "https://127.0.0.1:1" }
	h := newHub(t, nowhere, "--nodepool-name=p1", "--enable-coordinator=true")
	descs := make(chan *prometheus.Desc)
	go func() {
		h.metrics.Describe(descs)
		close(descs)
	}()
	ours := regexp.MustCompile(`fqName: "(yurthub_[a-z0-9_]+)"`)
	var registered []string
	for d := range descs {
		if m := ours.FindStringSubmatch(d.String()); m != nil {
			registered = append(registered, m[1])
		}
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("`(yurthub_[a-z0-9_]+[a-z0-9])[`{]").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	for _, name := range registered {
		if !slices.Contains(documented, name) {
			t.Errorf("docs/metrics.md lacks %s", name)
		}
	}
	code := source(t)
	for _, name := range documented { // what belongs to a coordinator is registered when one is found
		if !slices.Contains(registered, name) && !strings.Contains(code, strconv.Quote(name)) {
			t.Errorf("docs/metrics.md has %s, which nobody registers", name)
		}
	}
}

// source returns the hub's code.
func source(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}
