package yurtlab

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/machine"
	"yurtcoordinator/lab/wire"
)

func lines(t *testing.T, text string) []string {
	t.Helper()
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range all {
		all[i] = strings.TrimRight(all[i], " ")
	}
	return all
}

func TestStatusTable(t *testing.T) {
	status := lab.Status{Nodes: []lab.NodeStatus{
		{
			Name: "p1-n1", Pool: "p1", Power: true, WAN: "none", LAN: "none", Ready: "True", WANLine: &lab.LineStatus{},
			Hub:          &lab.HubStatus{Role: "leader", Cloud: "up"},
			HeartbeatAge: 1.4, HeartbeatBy: "itself", Traffic: wire.Bytes{Up: 900, Down: 12_000_000},
			Processes: []machine.Process{
				{Name: "hub", State: machine.Running},
				{Name: "image-import", State: machine.Exited, End: "exit status 0"},
			},
		},
		{
			Name: "p1-n2", Pool: "p1", Power: true, WAN: "drop", LAN: "none", Ready: "True", Taint: "NoSchedule",
			WANLine:      &lab.LineStatus{},
			Hub:          &lab.HubStatus{Role: "follower", Cloud: "down"},
			HeartbeatAge: 61, HeartbeatBy: "p1-n1", Traffic: wire.Bytes{Up: 10_000, Down: 9_999},
			Processes: []machine.Process{
				{Name: "hub", State: machine.Paused}, {Name: "kubelet", State: machine.Exited, End: "signal: killed"},
			},
		},
		// Without power, never seen by the cloud.
		{Name: "p1-n3", Pool: "p1", WAN: "none", LAN: "oneway", HeartbeatAge: -1},
		// The kube-controller-manager has given up on it.
		{Name: "p1-n4", Pool: "p1", Power: true, WAN: "reject", LAN: "none", Ready: "Unknown", HeartbeatAge: 0},
	}}
	var out strings.Builder
	if err := statusTable(&out, status); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/status.txt")
	if err != nil {
		t.Fatal(err)
	}
	compare(t, out.String(), string(want))
}

func compare(t *testing.T, got, want string) {
	t.Helper()
	if g, w := lines(t, got), lines(t, strings.TrimPrefix(want, "\n")); strings.Join(g, "\n") != strings.Join(w, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
}

func TestTrafficTable(t *testing.T) {
	var out strings.Builder
	err := trafficTable(&out, map[string]wire.Bytes{"p1-n2": {Up: 20_000, Down: 1}, "p1-n1": {Up: 10, Down: 2}})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, out.String(), `
   NODE       UP  DOWN
  p1-n1     10 B   2 B
  p1-n2  20.0 KB   1 B
    all  20.0 KB   3 B
`)
}

func TestBytes(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 9_999: "9999 B", 10_000: "10.0 KB", 9_999_900: "9999.9 KB", 10_000_000: "10.0 MB",
		3_000_000_000: "3000.0 MB",
	} {
		if got := bytes(n); got != want {
			t.Errorf("bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

// For programs it is JSON; for people the table, whatever the value.
func TestPrintAs(t *testing.T) {
	table := func(w io.Writer) error { _, err := io.WriteString(w, "table\n"); return err }
	for output, want := range map[string]string{"": "table\n", "json": "{\n  \"up\": 1,\n  \"down\": 2\n}\n"} {
		var out strings.Builder
		if err := printAs(&out, output, wire.Bytes{Up: 1, Down: 2}, table); err != nil || out.String() != want {
			t.Errorf("-o %q: %q, %v", output, out.String(), err)
		}
	}
}

// The last line of `run -o json` is what other programs read.
func TestResultIsOneLine(t *testing.T) {
	var out strings.Builder
	if err := printJSONLine(&out, map[string]any{"error": "two\nlines", "passed": false}); err != nil {
		t.Fatal(err)
	}
	line, rest, _ := strings.Cut(out.String(), "\n")
	var back map[string]any
	if err := json.Unmarshal([]byte(line), &back); err != nil || rest != "" || back["error"] != "two\nlines" {
		t.Errorf("%q: %v", out.String(), err)
	}
}

// What is wrong on the command line is told before anything is started, in one line that names it.
func TestWrongCommandLines(t *testing.T) {
	for args, want := range map[string]string{
		"status -o yaml":                                 `--output "yaml"`,
		"link cut lan":                                   "accepts 2 arg(s)",
		"link cut vpn p1-n1":                             `unknown network "vpn": want wan or lan`,
		"link cut wan p1-n1 --mode slow":                 `--mode: unknown mode "slow": want drop, reject or oneway`,
		"link shape wan p1-n1":                           "this shape changes nothing",
		"link shape wan p1-n1 --rate 1mb":                "--rate: rate \"1mb\": want",
		"link shape wan p1-n1 --loss 2":                  `--loss: loss "2": want percent`,
		"link shape wan p1-n1 --rate 1mbit --queue lots": `--queue: size "lots": want`,
		"link shape wan p1-n1 --jitter 40ms":             "want 0 to the delay",
		"link shape wan p1-n1 --queue 256k":              "a queue needs a rate",
		"link shape vpn p1-n1 --delay 1ms":               `unknown network "vpn"`,
		"link shape wan p1-n1 --off --delay 1ms":         "[delay off]",
		"run no-such-scenario":                           `no scenario "no-such-scenario"`,
		"traffic --mark --since-mark":                    "since-mark",
		"status --name No_Such":                          `--name "No_Such": want up to 40`,
		"link heal wan p1-n1 --name ../etc":              `--name "../etc"`,
		"node kill":                                      "accepts between 1 and 2 arg(s)",
		"up --nodes many":                                `invalid argument "many" for "--nodes"`,
		"status --name not-started-by-tests":             "start it with: yurtlab up",
	} {
		cmd := New()
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("yurtlab %s: %v, want %q", args, err, want)
		}
	}
}
