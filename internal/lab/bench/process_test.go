package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestIsProgram(t *testing.T) {
	const line = "/cache/bin/yurthub\x00--node-name=p1-n3\x00--port=1\x00"
	for _, c := range []struct {
		line, program string
		args          []string
		want          bool
	}{
		{line, "yurthub", nil, true},
		{line, "yurthub", []string{"--node-name=p1-n3"}, true},
		{line, "yurthub", []string{"--node-name=p1-n3", "--port=1"}, true},
		{line, "yurthub", []string{"--node-name=p1-n"}, false},
		{line, "hub", nil, false},
		{"", "yurthub", nil, false}, // a kernel thread
	} {
		if got := isProgram(c.line, c.program, c.args); got != c.want {
			t.Errorf("%q is %s %v: %v, want %v", c.line, c.program, c.args, got, c.want)
		}
	}
}

func TestParseRollup(t *testing.T) {
	got, err := parseRollup("00400000-7ffd rollup\nRss:    26520 kB\nPss_Anon: 1 kB\nAnonymous:     6000 kB\n")
	if want := (Memory{RSS: 26520 << 10, Anonymous: 6000 << 10}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "Rss: many kB\n", "Anonymous: 1 kB\n"} {
		if m, err := parseRollup(bad); err == nil {
			t.Errorf("%q: %+v, want an error", bad, m)
		}
	}
}

func TestParsePeak(t *testing.T) {
	if got, err := parsePeak("Name:\tx\nVmHWM:\t   26520 kB\nVmRSS:\t 1 kB\n"); err != nil || got != 26520<<10 {
		t.Errorf("%d, %v; want %d", got, err, 26520<<10)
	}
	for _, bad := range []string{"", "VmHWM: many kB\n", "VmRSS: 1 kB\n"} {
		if n, err := parsePeak(bad); err == nil {
			t.Errorf("%q: %d, want an error", bad, n)
		}
	}
}

func TestParseStat(t *testing.T) {
	const stat = "12 (a ) name) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 7 0 1 1 1"
	if got, err := parseStat(stat); err != nil || got != 3*time.Second {
		t.Errorf("%v, %v; want 3s", got, err)
	}
	for _, bad := range []string{"", "12 (x) S 1 2", "12 (x) S 1 12 12 0 -1 4194560 100 0 0 0 many 50 0"} {
		if d, err := parseStat(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, d)
		}
	}
}

// TestOwnProcess reads what the kernel says of this process.
func TestOwnProcess(t *testing.T) {
	m, err := memoryOf(os.Getpid())
	if err != nil || m.Anonymous <= 0 || m.RSS < m.Anonymous {
		t.Errorf("memory %+v, %v", m, err)
	}
	if _, err := processorTime(os.Getpid()); err != nil {
		t.Error(err)
	}
	if peak, err := peakOf(os.Getpid()); err != nil || peak <= 0 {
		t.Errorf("peak %d, %v", peak, err)
	}
	pid, err := findProcess(filepath.Base(os.Args[0]), os.Args[1:]...)
	if err == nil && pid != os.Getpid() {
		t.Errorf("found %d as this process, which is %d", pid, os.Getpid())
	}
	if _, err := findProcess("no-such-program"); err == nil {
		t.Error("found a program that nobody runs")
	}
}
