package hack

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestResultsAreDated: each run of docs/data has its date and commit, and the page shows each picture.
func TestResultsAreDated(t *testing.T) {
	files, err := filepath.Glob("../docs/data/*.csv")
	if err != nil || len(files) != 3 {
		t.Fatalf("results: %v, %v", files, err)
	}
	for _, file := range files {
		rows, err := csv.NewReader(strings.NewReader(readFile(t, file))).ReadAll()
		if err != nil || len(rows) < 3 {
			t.Errorf("%s: %d rows, %v", file, len(rows), err)
			continue
		}
		for i, row := range rows[1:] {
			if date, commit := row[len(row)-2], row[len(row)-1]; date == "" || commit == "" {
				t.Errorf("%s: run %d: want date and commit", file, i+1)
			}
		}
	}
	for _, name := range plots(t) {
		wellFormed(t, name, readFile(t, "../docs/img/"+name))
		if !strings.Contains(readFile(t, "../docs/benchmarks.md"), "](img/"+name+")") {
			t.Errorf("docs/benchmarks.md does not show %s", name)
		}
	}
}

// plots are the pictures that gnuplot draws.
func plots(t *testing.T) (names []string) {
	t.Helper()
	drawn := regexp.MustCompile(`set output "docs/img/(.+)"`)
	for _, m := range drawn.FindAllStringSubmatch(readFile(t, "../docs/data/plots.gp"), -1) {
		names = append(names, m[1])
	}
	if len(names) != 3 {
		t.Fatalf("plots.gp draws %v", names)
	}
	return names
}

// TestThePicturesAreOfTheData holds the pictures to the results that they are drawn of, where the gnuplot is that has drawn them.
func TestThePicturesAreOfTheData(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "gnuplot", "--version").Output()
	if err != nil {
		t.Skip("there is no gnuplot; `make plots` uses it")
	}
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "docs", "img"), 0o755),
		os.CopyFS(filepath.Join(dir, "docs", "data"), os.DirFS("../docs/data"))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "gnuplot", "docs/data/plots.gp")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range plots(t) {
		want, got := readFile(t, filepath.Join(dir, "docs", "img", name)), readFile(t, "../docs/img/"+name)
		if !strings.Contains(strings.ToLower(got), strings.TrimSpace(string(version))) {
			t.Skipf("%s is of another gnuplot than %s", name, version)
		}
		if got != want {
			t.Errorf("docs/img/%s is not what docs/data makes: make plots", name)
		}
	}
}

// wellFormed expects XML, with no number that is none.
func wellFormed(t *testing.T, name, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"NaN", "Inf"} {
		if strings.Contains(svg, bad) {
			t.Errorf("%s has %s", name, bad)
		}
	}
}

// TestTheRecordingIsOfTheScript: the README's recording has the script's notes and commands, in their order.
func TestTheRecordingIsOfTheScript(t *testing.T) {
	shown := recorded(t)
	steps := regexp.MustCompile(`(?m)^(note|run) "(.+)"$`).FindAllStringSubmatch(readFile(t, "../docs/img/cut.sh"), -1)
	if len(steps) < 10 {
		t.Fatalf("the script has %d steps; something is wrong with this test", len(steps))
	}
	for _, s := range steps {
		line := map[string]string{"note": "# ", "run": "$ "}[s[1]] + s[2] + "\x1b[0m"
		_, after, found := strings.Cut(shown, line)
		if !found {
			t.Fatalf("docs/img/cut.cast has no %q where the script has it: make recording", line)
		}
		shown = after
	}
}

// recorded is what the recording's terminal has shown.
func recorded(t *testing.T) string {
	t.Helper()
	var shown bytes.Buffer
	_, events, _ := strings.Cut(readFile(t, "../docs/img/cut.cast"), "\n") // after the header
	for line := range strings.Lines(events) {
		var event [3]any
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		if event[1] == "o" {
			shown.WriteString(event[2].(string))
		}
	}
	return shown.String()
}

// TestThePictureIsOfTheRecording: the README's picture has each line that the recording has.
func TestThePictureIsOfTheRecording(t *testing.T) {
	picture := readFile(t, "../docs/img/cut.svg")
	wellFormed(t, "cut.svg", picture)
	text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(picture, ""))
	text = strings.ReplaceAll(text, "\u00a0", " ")
	for line := range strings.Lines(recorded(t)) {
		line = strings.TrimSpace(regexp.MustCompile("\x1b\\[[0-9;]*[A-Za-z]").ReplaceAllString(line, ""))
		if len(line) > 100 { // it goes on in the next line of the screen
			line = line[:100]
		}
		if !strings.Contains(text, line) {
			t.Errorf("docs/img/cut.svg has no %q: make recording", line)
		}
	}
}
