package yurtcoordinator

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// withdrawn are names of what ADR 67 took down: flags, fields, metrics, Events' reasons, annotations, paths, scenarios, packages.
var withdrawn = []string{
	"--compare-every", "--coordinator-ca-file", "--discovery-token-unsafe-skip-ca-verification",
	"--kubelet-certificate-as-is", "--service-topology", "--static-pod", "--vmodule",
	"--kubelet-uses", "kubeletCertificateAsIs", "discoveryTokenUnsafeSkipCAVerification", "coordinatorCAFile", "serviceTopology",
	"earlierLeaders",
	"yurthub_connections_past_hub",
	"yurthub_leader_checks_total", "yurthub_openings_told_total", "yurthub_pool_comparison_bytes_total",
	"yurthub_pool_comparisons_total", "yurthub_pool_lies_total", "yurt_coordinator_openings_total",
	"yurt_coordinator_openings_untold",
	"CoordinatorBegan", "PodOpened", "PodOpeningEnded", "PodOpeningRefused", "PoolResourceLie",
	"openyurt.io/accused", "report.openyurt.io/by", "told-openings", "/openings/v1",
	"yurthub proof", "yurthub settings", "idle-leader", "static-pod-hub", "v0.1.0-beside",
	"internal/hub/compare", "internal/hub/oversee", "internal/hub/openings", "internal/pool/audit", "internal/pool/openapi",
	"internal/pool/openings", "internal/replica/table", "internal/resident",
}

// TestWithdrawnNamesAreGone: no file but decisions, data, the changelog, the roadmap and the log of benchmarks has such a name.
func TestWithdrawnNamesAreGone(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), "git", "ls-files").Output()
	if err != nil {
		t.Fatal(err)
	}
	quoted := make([]string, len(withdrawn))
	for i, name := range withdrawn {
		quoted[i] = regexp.QuoteMeta(name)
	}
	names := regexp.MustCompile(`(^|[^\w.-])(` + strings.Join(quoted, "|") + `)($|[^\w-])`)
	if !names.MatchString("run `idle-leader`") || !names.MatchString("\"internal/resident\"") ||
		names.MatchString("an idle-leader-like thing") {
		t.Fatal("whole identifiers are not found, or parts of others are")
	}
	files := strings.Fields(string(list))
	if len(files) < 500 {
		t.Fatalf("found %d files; something is wrong with this test", len(files))
	}
	for _, file := range files {
		if mayName(file) {
			continue
		}
		text, err := os.ReadFile(filepath.FromSlash(file))
		if os.IsNotExist(err) { // removed, and not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(text), "\n") {
			if m := names.FindStringSubmatch(line); m != nil {
				t.Errorf("%s:%d: %s is withdrawn (docs/adr/0067-taken-down.md)", file, n+1, m[2])
			}
		}
	}
}

// mayName reports whether a file may have names of what is gone: it tells of the past, or is this list.
func mayName(file string) bool {
	for _, prefix := range []string{
		"docs/adr/", "docs/data/", "CHANGELOG.md", "ROADMAP.md", "docs/benchmarks-log.md", "withdrawn_test.go",
	} {
		if strings.HasPrefix(file, prefix) {
			return true
		}
	}
	return false
}
