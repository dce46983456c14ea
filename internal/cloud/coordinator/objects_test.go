package coordinator

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The chart names whom kubelets know, in files that say what he may do and what he may not.
func TestTheChartKnowsTheUserOfKubelets(t *testing.T) {
	const files = "../../../deploy/charts/yurt-coordinator/files"
	for name, want := range map[string]string{
		"coordinator-rbac.yaml":              "  kind: User\n  name: " + kubeletUser + "\n",
		"policies/coordinator-connects.yaml": "request.userInfo.username.startsWith('" + kubeletUser + "')",
	} {
		content, err := os.ReadFile(filepath.Join(files, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), want) {
			t.Errorf("%s does not say %q", name, want)
		}
	}
}
