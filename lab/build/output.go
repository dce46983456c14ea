package build

import (
	"regexp"
	"strings"
)

// tally counts the packages that `go build -v` reports.
type tally struct {
	pending map[string]bool // packages that still have to be compiled
	total   int
}

func newTally(stale []string) *tally {
	t := &tally{pending: map[string]bool{}}
	for _, p := range stale {
		t.pending[p] = true
	}
	t.total = len(t.pending)
	return t
}

func (t *tally) done() int { return t.total - len(t.pending) }

// line takes one line of the tool's output. It returns the line's message for a person, or false if it has none.
func (t *tally) line(line string) (text string, ok bool) {
	line = strings.TrimSpace(line)
	if what, found := strings.CutPrefix(line, "go: downloading "); found {
		return "downloading " + what, true
	}
	if !t.pending[line] {
		return "", false
	}
	delete(t.pending, line)
	return line, true
}

// tail keeps the last lines of an output for the error message.
type tail struct {
	lines []string
	max   int
}

func (t *tail) add(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	if len(t.lines) == t.max {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
}

func (t *tail) String() string { return strings.Join(t.lines, "\n") }

// advice returns what to do about a tool's failure, judged by its output.
func advice(output string) string {
	for _, a := range advices {
		if a.pattern.MatchString(output) {
			return a.text
		}
	}
	return ""
}

var advices = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`no space left on device`),
		"free some disk space: the Go build cache takes up to 10 GB (`go clean -cache` empties it), " +
			"each set of binaries 0.5 GB"},
	{regexp.MustCompile(`signal: killed|cannot allocate memory`),
		"the machine ran out of memory: close something, or build fewer packages at once: GOFLAGS=-p=1"},
	{regexp.MustCompile(`missing go\.sum entry|updates to go\.(mod|sum) needed`),
		"go.mod and go.sum do not match: run `go mod tidy`"},
	{regexp.MustCompile(`checksum mismatch|SECURITY ERROR`),
		"a downloaded module differs from the pinned one: empty the module cache (`go clean -modcache`), " +
			"and stop if it happens again"},
	{regexp.MustCompile(`requires go >= `),
		"install the newer Go that it asks for, or let Go fetch it: GOTOOLCHAIN=auto"},
	{regexp.MustCompile(`dial tcp|proxyconnect|no such host|i/o timeout|TLS handshake|connection (refused|reset)|` +
		`Service Unavailable`),
		"the first build downloads Go modules: connect to the network, " +
			"or set GOPROXY to a module proxy that can be reached"},
	{regexp.MustCompile(`Package libseccomp was not found|seccomp\.h|"pkg-config": executable file not found|` +
		`C compiler "[^"]*" not found|stdlib\.h: No such file`),
		"runc needs a C compiler and libseccomp: apt-get install gcc libc6-dev pkg-config libseccomp-dev"},
}
