package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func excepted(t *testing.T) (all []exception) {
	t.Helper()
	if err := yaml.UnmarshalStrict(exceptions, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestComplete: an exception holds only while no program contains the code, and every statement says what OpenVEX wants.
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		name, status, contains    string
		want, justification, acts string
	}{
		{"GO-2099-0001", affected, "", affected, "", "Use a release"},
		{"GO-2099-0001", notAffected, "", notAffected, "", ""},
		{"GO-2025-3547", affected, "k8s.io/kubernetes/pkg/controller/endpoint", notAffected, "vulnerable_code_not_present", ""},
		{"GO-2025-3547", affected, "k8s.io/kubernetes/pkg/controller/namespaces", notAffected, "vulnerable_code_not_present", ""},
		{"GO-2025-3547", affected, "k8s.io/kubernetes/pkg/controller/namespace", affected, "", "Use a release"},
		{"GO-2025-3547", affected, "k8s.io/kubernetes/pkg/controller/namespace/deletion", affected, "", "Use a release"},
		{"GO-2025-3521", affected, "k8s.io/kubernetes/pkg/volume/git_repo", affected, "", "Use a release"},
	} {
		s := statement{Status: tt.status}
		s.Vulnerability.Name = tt.name
		s.complete(excepted(t), []string{"net/http", tt.contains})
		if s.Status != tt.want || s.Justification != tt.justification || !strings.HasPrefix(s.ActionStatement, tt.acts) ||
			(tt.acts == "") != (s.ActionStatement == "") || (tt.justification == "") != (s.ImpactStatement == "") {
			t.Errorf("%s, %s, with %q: %+v", tt.name, tt.status, tt.contains, s)
		}
	}
}

// TestExceptions: each says of which code it is, and why.
func TestExceptions(t *testing.T) {
	for _, e := range excepted(t) {
		if !strings.HasPrefix(e.Vulnerability, "GO-") || len(e.Packages) == 0 || e.Reason == "" {
			t.Errorf("%+v", e)
		}
	}
}

func TestSummary(t *testing.T) {
	var d document
	err := json.Unmarshal([]byte(`{"statements": [
{"vulnerability": {"name": "GO-2099-0001", "description": "what can happen"}, "status": "affected", "products": [
  {"subcomponents": [{"@id": "pkg:golang/b@v1"}, {"@id": "pkg:golang/a@v1"}]}, {"subcomponents": [{"@id": "pkg:golang/a@v1"}]}]},
{"vulnerability": {"name": "GO-2099-0002"}, "status": "not_affected"}]}`), &d)
	if err != nil {
		t.Fatal(err)
	}
	const want = "known vulnerabilities: 2 in modules of our programs, 1 of them can be reached\n" +
		"  GO-2099-0001 pkg:golang/a@v1, pkg:golang/b@v1: what can happen\n"
	if got := d.summary(); got != want {
		t.Errorf("it says\n%s, want\n%s", got, want)
	}
	if reached := d.reached(); len(reached) != 1 || reached[0].Vulnerability.Name != "GO-2099-0001" {
		t.Errorf("reached are %+v", reached)
	}
}

// scanner is a govulncheck that has found something, and says so with another time each time; in another order if that is wanted.
// With it comes its database.
func scanner(t *testing.T, reversed bool) (tool, db string) {
	t.Helper()
	found := []string{
		`{"vulnerability": {"@id": "https://pkg.go.dev/vuln/GO-2099-0001", "name": "GO-2099-0001"}, "status": "affected",
"products": [{"@id": "Unknown Product", "subcomponents": [{"@id": "pkg:golang/x@v1"}, {"@id": "pkg:golang/stdlib@v1.26.0"}]}]}`,
		`{"vulnerability": {"@id": "https://pkg.go.dev/vuln/GO-2099-0002", "name": "GO-2099-0002"}, "status": "not_affected",
"products": [{"@id": "Unknown Product", "subcomponents": [{"@id": "pkg:golang/x@v1"}]}]}`,
	}
	if reversed {
		slices.Reverse(found)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\n" + `want="-db=file://` + dir + ` -tags grpcnotrace -format openvex ./cmd/hello"
[ "$*" = "$want" ] || { echo "$*" >&2; exit 1; }
date +'{"@context": "https://openvex.dev/ns/v0.2.0", "timestamp": "%s.%N", "statements": [` + strings.Join(found, ", ") + "]}'\n"
	tool = filepath.Join(dir, "govulncheck")
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"GO-2099-0001.json": ""})
	return tool, "file://" + dir
}

// TestVEX: a release's document is the same whenever it is made, and names programs and modules as SBOMs do.
func TestVEX(t *testing.T) {
	made := func(reversed bool) []byte {
		t.Helper()
		tool, db := scanner(t, reversed)
		dir := t.TempDir()
		write(t, dir, map[string]string{
			"go.mod": "module example.org/small\n\ngo 1.26\n", "cmd/hello/main.go": "package main\n\nfunc main() {}\n",
		})
		file := filepath.Join(dir, "vex.json")
		err := start(t.Context(), io.Discard, []string{
			"-govulncheck", tool, "-root", dir, "-db", db, "-vex", file, "-version", "v0.2.0", "-created", "2026-11-26T03:00:00Z",
			"./cmd/hello",
		})
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	content := made(false)
	if again := made(true); !bytes.Equal(again, content) {
		t.Errorf("made again it differs:\n%s\n%s", content, again)
	}
	var said document
	if err := json.Unmarshal(content, &said); err != nil {
		t.Fatal(err)
	}
	if said.ID != "urn:yurtcoordinator:vex:v0.2.0" || said.Timestamp != "2026-11-26T03:00:00Z" || len(said.Statements) != 2 {
		t.Errorf("it says %+v", said)
	}
	if bytes.Contains(content, []byte("stdlib")) || !bytes.Contains(content, []byte(`"pkg:golang/std@1.26.0"`)) {
		t.Errorf("Go's library is not called as in the SBOM: %s", content)
	}
	for _, s := range said.Statements {
		if len(s.Products) != 1 || s.Products[0].ID != "pkg:golang/yurtcoordinator@v0.2.0#cmd/hello" {
			t.Errorf("the program is called %+v", s.Products)
		}
	}
}
