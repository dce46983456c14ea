package bench

import (
	"os"
	"path/filepath"
	"testing"
)

func TestIsProgram(t *testing.T) {
	line := []string{"/cache/bin/yurthub", "--node-name=p1-n3", "--port=1"}
	for _, c := range []struct {
		argv    []string
		program string
		args    []string
		want    bool
	}{
		{line, "yurthub", nil, true},
		{line, "yurthub", []string{"--node-name=p1-n3"}, true},
		{line, "yurthub", []string{"--node-name=p1-n3", "--port=1"}, true},
		{line, "yurthub", []string{"--node-name=p1-n"}, false},
		{line, "hub", nil, false},
		{nil, "yurthub", nil, false}, // a kernel thread
	} {
		if got := isProgram(c.argv, c.program, c.args); got != c.want {
			t.Errorf("%q is %s %v: %v, want %v", c.argv, c.program, c.args, got, c.want)
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
