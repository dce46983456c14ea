package coordinator

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"yurtcoordinator/internal/cloud/certs"
	"yurtcoordinator/internal/edge"
)

// The chart names the users whom kubelets know, and the requests for their certificates, in policies.
func TestTheChartKnowsTheUsersOfKubelets(t *testing.T) {
	policy := func(name string) string {
		content, err := os.ReadFile(filepath.Join("../../../deploy/charts/yurt-coordinator/files/policies", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	const connects = "request.userInfo.username.startsWith('" + edge.CoordinatorUsers + "')"
	if !strings.Contains(policy("coordinator-connects.yaml"), connects) {
		t.Errorf("coordinator-connects does not say %q", connects)
	}
	key, err := certs.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	name, err := requestName("hang.zhou", key)
	if err != nil {
		t.Fatal(err)
	}
	requests := regexp.MustCompile(`matches\('(\^yurt-coordinator-[^']+-kubelet-client-\[[^']+)'\)`)
	found := requests.FindStringSubmatch(policy("controller-rights.yaml"))
	if found == nil || !regexp.MustCompile(found[1]).MatchString(name) {
		t.Errorf("controller-rights has %q, which is not about %s", found, name)
	}
}
