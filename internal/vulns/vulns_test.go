package vulns

import (
	"reflect"
	"strings"
	"testing"
)

// TestComplete: what we have judged holds only while no program contains the code, and every statement says what OpenVEX wants.
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		name, status, contains    string
		want, justification, acts string
	}{
		{"GO-2099-0001", Affected, "", Affected, "", "Use a release"},
		{"GO-2099-0001", NotAffected, "", NotAffected, "", ""},
		{"GO-2025-3547", Affected, "k8s.io/kubernetes/pkg/controller/endpoint", NotAffected, "vulnerable_code_not_present", ""},
		{"GO-2025-3547", Affected, "k8s.io/kubernetes/pkg/controller/namespace", Affected, "", "Use a release"},
		{"GO-2025-3547", Affected, "k8s.io/kubernetes/pkg/controller/namespace/deletion", Affected, "", "Use a release"},
		{"GO-2025-3521", Affected, "k8s.io/kubernetes/pkg/volume/git_repo", Affected, "", "Use a release"},
	} {
		s := Statement{Vulnerability: Vulnerability{Name: tt.name}, Status: tt.status}
		complete(&s, func(pkg string) bool { return pkg == tt.contains || strings.HasPrefix(tt.contains, pkg+"/") })
		if s.Status != tt.want || s.Justification != tt.justification || !strings.HasPrefix(s.ActionStatement, tt.acts) ||
			(tt.acts == "") != (s.ActionStatement == "") || (tt.justification == "") != (s.ImpactStatement == "") {
			t.Errorf("%s, %s, with %q: %+v", tt.name, tt.status, tt.contains, s)
		}
	}
}

// TestContains: of a program's packages, one counts or what is below it, and no namesake.
func TestContains(t *testing.T) {
	contains, err := Scan{Root: "../..", Packages: []string{"./internal/vulns"}, Tags: "grpcnotrace"}.packages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for pkg, want := range map[string]bool{"net/http": true, "encoding": true, "net/htt": false, "k8s.io/kubernetes": false} {
		if contains(pkg) != want {
			t.Errorf("it contains %s: want %t", pkg, want)
		}
	}
}

func TestSummary(t *testing.T) {
	all := []Statement{
		{
			Vulnerability: Vulnerability{Name: "GO-2099-0001", Description: "what can happen"}, Status: Affected,
			Products: []Product{
				{Subcomponents: []Component{{"pkg:golang/b@v1"}, {"pkg:golang/a@v1"}}},
				{Subcomponents: []Component{{"pkg:golang/a@v1"}}},
			},
		},
		{Vulnerability: Vulnerability{Name: "GO-2099-0002"}, Status: NotAffected},
	}
	const want = "known vulnerabilities: 2 in modules of our programs, 1 of them can be reached\n" +
		"  GO-2099-0001 pkg:golang/a@v1, pkg:golang/b@v1: what can happen\n"
	if got := Summary(all); got != want || !reflect.DeepEqual(Reached(all), all[:1]) {
		t.Errorf("it says\n%s, want\n%s", got, want)
	}
}
