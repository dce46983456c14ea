package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yurtcoordinator/internal/pages"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/e2e/thief"
)

var (
	which   = flag.String("scenarios", "", "which scenarios to run: core, promise, field, all, or names, separated by commas")
	kubelet = flag.String("kubelet", "", "real or hollow; default: real where containers can run")
	raced   = flag.Bool("raced", false, "build our own programs with the race detector: kube-apiserver is in one of them")
	update  = flag.Bool("update", false, "write the page of the scenarios anew")
)

// failures are the ends of failed scenarios, to be repeated at the very end: of a long log often only that is kept.
var failures []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, f := range failures {
		fmt.Println(f)
	}
	os.Exit(code)
}

// TestScenarios runs end-to-end scenarios with the yurtlab that `make setup` has built, as a user would. Without
// -scenarios there is nothing to run: they take minutes, and `go test ./...` is for unit tests.
func TestScenarios(t *testing.T) {
	for _, s := range selected(t) {
		t.Run(s.Name, func(t *testing.T) {
			transcript, err := runScenario(t.Context(), s)
			t.Logf("transcript:\n%s", transcript)
			if err != nil {
				t.Error(err)
				failures = append(failures, fmt.Sprintf("%s failed: %v; the end of its transcript:\n%s", s.Name, err,
					lastLines(transcript, 25)))
			}
		})
	}
}

// TestTheCoreIsSmall: every change waits for it.
func TestTheCoreIsSmall(t *testing.T) {
	const most = 14
	tiers := map[kit.Tier]int{}
	for _, s := range All() {
		tiers[s.Tier]++
	}
	if tiers[kit.Core] == 0 || tiers[kit.Core] > most || len(tiers) != 3 {
		t.Errorf("scenarios in tiers: %v, want three, and at most %d in the core", tiers, most)
	}
}

// lastLines are the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func selected(t *testing.T) []kit.Scenario {
	t.Helper()
	var out []kit.Scenario
	switch *which {
	case "":
	case "core", "promise", "field", "all":
		for _, s := range All() {
			if s.Tier.String() == *which || *which == "all" {
				out = append(out, s)
			}
		}
	default:
		for name := range strings.SplitSeq(*which, ",") {
			s, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, s)
		}
	}
	return out
}

func runScenario(ctx context.Context, s kit.Scenario) (transcript string, err error) {
	yurtlab, err := filepath.Abs("../../bin/yurtlab")
	if err != nil {
		return "", err
	}
	name := s.LabName("test")
	args := []string{"run", s.Name, "-o", "json", "--name", name}
	if *raced {
		args = append(args, "--race")
	}
	if *kubelet != "" {
		args = append(args, "--kubelet", *kubelet)
	}
	cmd := exec.CommandContext(ctx, yurtlab, args...)
	cmd.Dir = "../.."
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its lab then
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("yurtlab run %s: %w", s.Name, err)
	}
	return string(out), errors.Join(checkResult(string(out)), checkNothingLeft(name))
}

// checkNothingLeft holds the machine against the promise that a lab leaves nothing behind.
func checkNothingLeft(name string) error {
	dir, err := lab.Dir(name)
	if err != nil {
		return err
	}
	var all []error
	if _, err := os.Stat(dir); err == nil {
		all = append(all, fmt.Errorf("files are left in %s", dir))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	if bytes.Contains(mounts, []byte(dir)) {
		all = append(all, fmt.Errorf("mounts are left below %s", dir))
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return err
	}
	for _, p := range processes {
		if line, err := os.ReadFile(p); err == nil && bytes.Contains(line, []byte(dir)) { // one that just ended is fine
			all = append(all, fmt.Errorf("a process is left: %s", bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/yurtlab-" + name, "/sys/fs/cgroup/*/yurtlab-" + name} {
		left, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			all = append(all, fmt.Errorf("cgroups are left: %v", left))
		}
	}
	for path, existed := range hostPaths {
		if _, err := os.Stat(path); err == nil && !existed {
			all = append(all, fmt.Errorf("%s was made on the host", path))
		}
	}
	return errors.Join(all...)
}

// hostPaths are what programs of a lab would make on the host if their machines let them, and whether the host had them
// before.
var hostPaths = func() map[string]bool {
	existed := map[string]bool{}
	for _, path := range []string{"/opt/containerd", "/var/lib/kubelet", "/run/containerd", "/usr/libexec/kubernetes"} {
		_, err := os.Stat(path)
		existed[path] = err == nil
	}
	return existed
}()

// checkResult holds the last line against the interface that other programs use.
func checkResult(transcript string) error {
	var r kit.Result
	if err := json.Unmarshal([]byte(lastLines(transcript, 1)), &r); err != nil {
		return fmt.Errorf("the last line is not the result: %w", err)
	}
	if !r.Passed || len(r.Figures) == 0 {
		return fmt.Errorf("result %+v: want passed, with figures", r)
	}
	return nil
}

// TestScenariosAreDescribed holds the list against the rules for it.
func TestScenariosAreDescribed(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if s.Name == "" || s.Doc == "" || s.Run == nil || seen[s.Name] {
			t.Errorf("scenario %q: needs a name of its own, a description and a script", s.Name)
		}
		seen[s.Name] = true
		s.Lab.Name, s.Lab.Kubelet = s.LabName("test"), lab.Hollow
		if s.Lab.Installed {
			s.Lab.Kubelet = lab.Real
		}
		if err := s.Lab.Validate(); err != nil {
			t.Errorf("scenario %s: %v", s.Name, err)
		}
	}
	if _, err := Find("no-such-scenario"); err == nil || !strings.Contains(err.Error(), All()[0].Name) {
		t.Errorf("Find of an unknown scenario: %v, want an error that lists the known ones", err)
	}
}

// TestThePageIsOfTheScenarios holds docs/scenarios.md to the scenarios' own descriptions.
func TestThePageIsOfTheScenarios(t *testing.T) {
	const path = "../../docs/scenarios.md"
	commands, err := pages.Steps("../..")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, []byte(Page(commands)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != Page(commands) {
		t.Errorf("%s is not what the scenarios say of themselves: go -C lab generate ./e2e", path)
	}
}

// TestScenariosSayWhatIsSeen holds descriptions to the form that the page and `yurtlab run --help` need: sentences, on one line.
func TestScenariosSayWhatIsSeen(t *testing.T) {
	for _, s := range All() {
		if strings.ContainsAny(s.Doc, "\n\t") || !strings.HasSuffix(s.Doc, ".") {
			t.Errorf("%s: %q: want sentences, on one line", s.Name, s.Doc)
		}
	}
}

// TestFiguresNameWhatMeasuresThem: each figure says which scenario or command it comes from.
func TestFiguresNameWhatMeasuresThem(t *testing.T) {
	text, err := os.ReadFile("../../docs/figures.md")
	if err != nil {
		t.Fatal(err)
	}
	measured := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| figure") || strings.HasPrefix(line, "| ---") {
			continue
		}
		measured++
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		by := strings.Trim(cells[len(cells)-1], "` ")
		command := strings.HasPrefix(by, "yurtlab bench") || strings.HasPrefix(by, "go test ")
		if _, err := Find(by); err != nil && !command {
			t.Errorf("%s: %q is no scenario and no benchmark", strings.TrimSpace(line), by)
		}
	}
	if measured < 20 {
		t.Errorf("found %d figures; something is wrong with this test", measured)
	}
}

// TestTheTourNamesEveryScenario holds the tour's table to the scenarios: each stands beside what it shows.
func TestTheTourNamesEveryScenario(t *testing.T) {
	text, err := os.ReadFile("../../docs/TOUR.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "## Where do I change")
	if !found {
		t.Fatal("the tour has no table of what is changed where")
	}
	for _, s := range All() {
		if !strings.Contains(table, "`"+s.Name+"`") {
			t.Errorf("the tour's table does not say where what %s shows is decided", s.Name)
		}
	}
}

// TestThreatModelNamesTheThieves: each scenario of the theme thief is on the page that says what thieves may gain.
func TestThreatModelNamesTheThieves(t *testing.T) {
	text, err := os.ReadFile("../../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range thief.Scenarios() {
		if !bytes.Contains(text, []byte("`"+s.Name+"`")) {
			t.Errorf("docs/threat-model.md does not name %s: who tries what, and what does he get?", s.Name)
		}
	}
}
