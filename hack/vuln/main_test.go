package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The database of the test has one vulnerability: strings.ToUpper, of all versions of Go before 1.99.
var reports = map[string]string{
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
	db := t.TempDir()
	write(t, db, reports)
	flat := t.TempDir() // as the module has them
	write(t, flat, map[string]string{"GO-2099-0001.json": reports["ID/GO-2099-0001.json"]})
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	const reaches, reachesNot = "ToUpper", "ToLower"
	for _, tt := range []struct {
		name, calls, db string
		skip, fails     bool
		says            string
	}{
		{"what can be reached", reaches, "file://" + db, false, true, "  GO-2099-0001 pkg:golang/std"},
		{"… is not skipped", reaches, "file://" + db, true, true, "1 known vulnerabilities can be reached"},
		{"… without an index", reaches, "file://" + flat, false, true, "  GO-2099-0001 pkg:golang/std"},
		{"what cannot be reached", reachesNot, "file://" + db, false, false, "our programs, 0 of them can be reached"},
		{"no server", reaches, "http://127.0.0.1:1", false, true, "not run: "},
		{"a server without one", reaches, server.URL, false, true, "not run: "},
		{"no directory", reaches, "file:///nowhere", false, true, "not run: "},
		{"no database", reaches, "file://" + t.TempDir(), false, true, "not run: "},
		{"no database, skipped", reaches, "http://127.0.0.1:1", true, false, "vuln: not run: "},
		{"no name of a database", reaches, "nowhere", true, true, "want file://DIR"},
		{"what does not compile", "(", "file://" + db, true, true, "main.go:5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{
				"go.mod":  "module example.org/small\n\ngo 1.26\n",
				"main.go": "package main\n\nimport \"strings\"\n\nfunc main() { println(strings." + tt.calls + `("x")) }` + "\n",
			})
			var out bytes.Buffer
			err := start(t.Context(), &out, []string{
				"-govulncheck", tool, "-root", dir, "-db", tt.db, fmt.Sprintf("-skip=%t", tt.skip), "./...",
			})
			if said := fmt.Sprintf("%s%v", &out, err); (err != nil) != tt.fails || !strings.Contains(said, tt.says) {
				t.Errorf("want failed: %t, and %q in\n%s", tt.fails, tt.says, said)
			}
		})
	}
}
