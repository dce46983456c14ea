package buildinfo

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"yurtcoordinator/internal/version"
)

func TestNew(t *testing.T) {
	of := version.Info{Version: "v0.2.0", Commit: "abc", GoVersion: "go1.26.4", Kubernetes: "v1.36.3", Platform: "linux/amd64"}
	const want = `# HELP yurthub_build_info Always 1. The labels say of which release the program is, and what it is made from.
# TYPE yurthub_build_info gauge
yurthub_build_info{git_commit="abc",go_version="go1.26.4",kubernetes_version="v1.36.3",version="v0.2.0"} 1
`
	if err := testutil.CollectAndCompare(New("yurthub", of), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
