// Package hack has the scripts of this repository; only they are tested here.
package hack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The database of the test has one vulnerability: strings.ToUpper, of all versions of Go before 1.99.
var database = map[string]string{
	"index/db.json": `{"modified":"2026-01-01T00:00:00Z"}`,
	"index/modules.json": `[{"path":"stdlib","vulns":[{"id":"GO-2099-0001","modified":"2026-01-01T00:00:00Z",` +
		`"fixed":"1.99.0"}]}]`,
	"index/vulns.json": `[{"id":"GO-2099-0001","modified":"2026-01-01T00:00:00Z"}]`,
	"ID/GO-2099-0001.json": `{"schema_version":"1.3.1","id":"GO-2099-0001","modified":"2026-01-01T00:00:00Z",` +
		`"published":"2026-01-01T00:00:00Z","summary":"made for a test","details":"made for a test","affected":[{` +
		`"package":{"name":"stdlib","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},` +
		`{"fixed":"1.99.0"}]}],"ecosystem_specific":{"imports":[{"path":"strings","symbols":["ToUpper"]}]}}],` +
		`"database_specific":{"url":"https://pkg.go.dev/vuln/GO-2099-0001"}}`,
}

// govulncheck returns the program that `make vuln` runs.
func govulncheck(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(cache, "yurtlab", "tools", "govulncheck-*", "govulncheck"))
	if err != nil || len(found) == 0 {
		t.Skip("there is no govulncheck; make vuln builds it, and make unit does before the tests")
	}
	return found[len(found)-1]
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestVuln(t *testing.T) {
	tool := govulncheck(t)
	script, err := filepath.Abs("vuln")
	if err != nil {
		t.Fatal(err)
	}
	db := t.TempDir()
	write(t, db, database)
	const reaches, reachesNot = "ToUpper", "ToLower"
	for _, tt := range []struct {
		name, calls, db, skip string
		fails                 bool
		says                  string
	}{
		{"what can be reached", reaches, "file://" + db, "", true, "Vulnerability #1: GO-2099-0001"},
		{"… is not skipped", reaches, "file://" + db, "skip", true, "Vulnerability #1: GO-2099-0001"},
		{"what cannot be reached", reachesNot, "file://" + db, "", false, "Your code is affected by 0 vulnerabilities"},
		{"no server", reaches, "http://127.0.0.1:1", "", true, "vuln: not run: "},
		{"no directory", reaches, "file:///nowhere", "", true, "vuln: not run: "},
		{"no database", reaches, "file://" + t.TempDir(), "", true, "vuln: not run: "},
		{"no database, skipped", reaches, "http://127.0.0.1:1", "skip", false, "vuln: not run: "},
		{"what does not compile", "(", "file://" + db, "skip", true, "main.go:5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{
				"go.mod":  "module example.org/small\n\ngo 1.26\n",
				"main.go": "package main\n\nimport \"strings\"\n\nfunc main() { println(strings." + tt.calls + `("x")) }` + "\n",
			})
			cmd := exec.CommandContext(t.Context(), script, tool, "./...")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "VULN_DB="+tt.db, "VULN="+tt.skip)
			out, err := cmd.CombinedOutput()
			if exited := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exited) {
				t.Fatal(err)
			}
			if (err != nil) != tt.fails || !strings.Contains(string(out), tt.says) {
				t.Errorf("%v, want failed: %t, and %q in\n%s", err, tt.fails, tt.says, out)
			}
		})
	}
}
