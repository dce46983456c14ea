package hack

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"
)

type workflow struct {
	Permissions map[string]string
	Env         map[string]string
	Jobs        map[string]job
}

type job struct {
	Permissions map[string]string
	Environment string
	Env         map[string]string
	Needs       []string
	Steps       []step
}

type step struct {
	Run, Uses string
	With      map[string]any
	Env       map[string]string
}

// actions are those that a workflow uses, without their digests.
func (j job) actions() (names []string) {
	for _, s := range j.Steps {
		if name, _, _ := strings.Cut(s.Uses, "@"); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func readWorkflow(t *testing.T, name string) (w workflow, text string) {
	t.Helper()
	text = read(t, filepath.Join("../.github/workflows", name))
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(w.Jobs) == 0 {
		t.Fatalf("%s has no jobs", name)
	}
	return w, text
}

var workflows = []string{"ci.yaml", "release.yaml"}

// TestWorkflows: what a hosted CI runs are the commands that people run.
func TestWorkflows(t *testing.T) {
	makefile := read(t, "../Makefile")
	for name, want := range map[string][]string{
		"ci.yaml": {".ci/run"}, "release.yaml": {"make unsigned", "make signer", "make crane", "make pushed"},
	} {
		w, text := readWorkflow(t, name)
		for _, command := range want {
			if !strings.Contains(text, command) {
				t.Errorf("%s does not run %s", name, command)
			}
		}
		for _, j := range w.Jobs {
			for _, s := range j.Steps {
				for _, m := range regexp.MustCompile(`\bmake (?:--silent )?([a-z-]+)`).FindAllStringSubmatch(s.Run, -1) {
					if !strings.Contains(makefile, "\n"+m[1]+":") {
						t.Errorf("%s makes %s, which there is not", name, m[1])
					}
				}
			}
		}
	}
	if info, err := os.Stat("../.ci/run"); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf(".ci/run: %v, %v", info, err)
	}
}

// byDigest is an action that nobody can replace under its name, with its version for people.
var byDigest = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// TestActionsAreFixed: each is named by its commit, and none leaves the token behind for the programs that follow it.
func TestActionsAreFixed(t *testing.T) {
	for _, name := range workflows {
		w, text := readWorkflow(t, name)
		uses := 0
		for line := range strings.Lines(text) {
			if _, action, found := strings.Cut(line, "uses: "); found {
				uses++
				if !byDigest.MatchString(strings.TrimSpace(action)) {
					t.Errorf("%s: %s is not named by its digest and version", name, strings.TrimSpace(action))
				}
			}
		}
		for of, j := range w.Jobs {
			uses -= len(j.actions())
			for _, s := range j.Steps {
				if strings.HasPrefix(s.Uses, "actions/checkout@") && s.With["persist-credentials"] != false {
					t.Errorf("%s: %s leaves the token in .git/config", name, of)
				}
			}
		}
		if uses != 0 {
			t.Errorf("%s: %d actions are outside of steps; something is wrong with this test", name, uses)
		}
	}
}

// secret finds what gives a step a secret, or the workflow's own token.
var secret = regexp.MustCompile(`secrets\.\w+|github\.token|\bsecrets\b`)

func secretsIn(t *testing.T, of any) []string {
	t.Helper()
	text, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return secret.FindAllString(string(text), -1)
}

// TestWhoHasWhat: each job has the permissions and secrets that it needs, and no other.
func TestWhoHasWhat(t *testing.T) {
	w, text := readWorkflow(t, "ci.yaml")
	if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) || len(secretsIn(t, text)) > 0 {
		t.Errorf("ci.yaml may %v, and has %q", w.Permissions, secretsIn(t, text))
	}
	for of, j := range w.Jobs {
		if j.Permissions != nil {
			t.Errorf("ci.yaml: %s may %v", of, j.Permissions)
		}
	}

	w, text = readWorkflow(t, "release.yaml")
	if w.Permissions == nil || len(w.Permissions) > 0 || len(w.Env) > 0 {
		t.Errorf("release.yaml gives each job %v and %v", w.Permissions, w.Env)
	}
	const key, token = "secrets.RELEASE_KEY", "secrets.GITHUB_TOKEN"
	all := 0
	for of, want := range map[string]struct {
		permissions map[string]string
		secrets     []string
		environment string
	}{
		"build":   {map[string]string{"contents": "read"}, nil, ""},
		"signer":  {map[string]string{"contents": "read"}, nil, ""},
		"sign":    {map[string]string{}, []string{key}, "release"},
		"publish": {map[string]string{"contents": "write", "packages": "write"}, []string{token, token}, ""},
	} {
		j := w.Jobs[of]
		delete(w.Jobs, of)
		has := secretsIn(t, j)
		all += len(has)
		if j.Permissions == nil || !maps.Equal(j.Permissions, want.permissions) || j.Environment != want.environment {
			t.Errorf("%s may %v in %q, want %v in %q", of, j.Permissions, j.Environment, want.permissions, want.environment)
		}
		if !slices.Equal(has, want.secrets) || len(j.Env) > 0 {
			t.Errorf("%s has %q, and %v for all of its steps; want %q", of, has, j.Env, want.secrets)
		}
	}
	if len(w.Jobs) > 0 || all != len(secretsIn(t, text)) {
		t.Errorf("besides there are %v; the workflow has %q", w.Jobs, secretsIn(t, text))
	}
}

// TestWhatSignsCompilesNothing: the job with the key has no source and no compiler. It compares what the other jobs have made,
// and the step with the key runs the program that signs, alone.
func TestWhatSignsCompilesNothing(t *testing.T) {
	w, _ := readWorkflow(t, "release.yaml")
	j := w.Jobs["sign"]
	if want := []string{"actions/download-artifact", "actions/upload-artifact"}; !slices.Equal(j.actions(), want) {
		t.Errorf("it uses %q, want %q", j.actions(), want)
	}
	if want := []string{"build", "signer"}; !slices.Equal(j.Needs, want) {
		t.Errorf("it needs %q, want %q", j.Needs, want)
	}
	command := regexp.MustCompile(`(?m)(?:^|&& |\||;|\()\s*([\w./-]+)`)
	var said string
	for _, s := range j.Steps {
		with := s.Env["RELEASE_KEY"] != ""
		for _, m := range command.FindAllStringSubmatch(s.Run, -1) {
			may := []string{"cd", "sha256sum", "tar", "test", "find", "chmod", "echo"}
			if with {
				may = []string{"../signer/release"}
			}
			if !slices.Contains(may, m[1]) {
				t.Errorf("it runs %q, where it may run %q", m[1], may)
			}
		}
		if with && strings.ContainsAny(s.Run, "`(|;&<>") {
			t.Errorf("the step with the key does more than sign: %s", s.Run)
		}
		said += s.Run
	}
	unpacks, compares := strings.Index(said, "tar --extract"), strings.Index(said, `<<< "$SIGNER"`)
	signs := strings.Index(said, "../signer/release")
	checks := strings.Index(said, `sha256sum --check --strict <<< "$UNSIGNED" && tar`)
	if checks < 0 || unpacks < checks || compares < unpacks || signs < compares {
		t.Errorf("what is unpacked is compared at %d, unpacked at %d, what signs compared at %d and run at %d",
			checks, unpacks, compares, signs)
	}
}

// TestNothingButFilesIsSigned: the step that unpacks what was built ends the job if that has anything but directories and files.
// A link to /proc would give away the key of the next step.
func TestNothingButFilesIsSigned(t *testing.T) {
	w, _ := readWorkflow(t, "release.yaml")
	unpack := w.Jobs["sign"].Steps[1].Run
	if !strings.Contains(unpack, "tar --extract") {
		t.Fatalf("its second step is %s", unpack)
	}
	const file = "dist/page/notes.txt"
	for what, add := range map[string]func(dir string) error{
		"": func(string) error { return nil },
		"a link": func(dir string) error {
			return os.Symlink("/proc/self/environ", filepath.Join(dir, "dist/page/other.txt"))
		},
		"a link to a directory": func(dir string) error {
			return os.Symlink("/proc/self", filepath.Join(dir, "dist/programs"))
		},
		"a pipe": func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "dist/page/other.txt"), 0o600) },
	} {
		build, job := t.TempDir(), t.TempDir()
		sums := map[string]string{}
		archive := filepath.Join(job, "unsigned", "unsigned.tar")
		pack := exec.CommandContext(t.Context(), "tar", "--create", "--file", archive, "dist")
		pack.Dir = build
		err := errors.Join(os.MkdirAll(filepath.Join(build, "dist/page"), 0o700), os.Mkdir(filepath.Join(job, "unsigned"), 0o700),
			os.Mkdir(filepath.Join(job, "signer"), 0o700), os.WriteFile(filepath.Join(build, file), nil, 0o600),
			os.WriteFile(filepath.Join(job, "signer/release"), nil, 0o600), add(build), pack.Run())
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"unsigned/unsigned.tar", "signer/release"} {
			sums[path] = fmt.Sprintf("%x  %s", sha256.Sum256([]byte(read(t, filepath.Join(job, path)))), filepath.Base(path))
		}
		step := exec.CommandContext(t.Context(), "bash", "-e", "-c", unpack)
		step.Dir = job
		step.Env = append(os.Environ(), "UNSIGNED="+sums["unsigned/unsigned.tar"], "SIGNER="+sums["signer/release"])
		out, err := step.CombinedOutput()
		if good := what == ""; good != (err == nil) {
			t.Errorf("with %q in what was built, the step ends with %v: %s", what, err, out)
		}
	}
}

// variable is one of a shell's, but what the CI sets in each step.
var variable = regexp.MustCompile(`\$\{?([A-Z_]+)`)

// TestStepsAreGivenWhatTheyUse: each variable in a command is set, and no text of the CI's becomes a part of a command.
func TestStepsAreGivenWhatTheyUse(t *testing.T) {
	for _, name := range workflows {
		w, _ := readWorkflow(t, name)
		for of, j := range w.Jobs {
			for _, s := range j.Steps {
				if strings.Contains(s.Run, "${{") {
					t.Errorf("%s: %s: an expression is a part of the command %s", name, of, s.Run)
				}
				used := map[string]bool{}
				for _, m := range variable.FindAllStringSubmatch(s.Run, -1) {
					used[m[1]] = true
					if _, set := s.Env[m[1]]; !set && !strings.HasPrefix(m[1], "GITHUB_") {
						t.Errorf("%s: %s uses %s, which nothing sets", name, of, m[1])
					}
				}
				for v := range s.Env {
					if !used[v] && v != "RELEASE_KEY" && v != "GH_TOKEN" {
						t.Errorf("%s: %s does not use %s", name, of, v)
					}
				}
			}
		}
	}
}

// TestOneLineOfTheMakefileSigns: by hand, too, what builds and what pushes does not get the key.
func TestOneLineOfTheMakefileSigns(t *testing.T) {
	_, recipe, found := strings.Cut(read(t, "../Makefile"), "\nrelease: ##")
	if !found {
		t.Fatal("the Makefile makes no release, or makes something first")
	}
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	signs := 0
	for i, line := range strings.Split(recipe, "\n") {
		switch line = strings.TrimSpace(line); {
		case i == 0: // what `make help` says
		case strings.HasPrefix(line, "bin/release ") && strings.Contains(line, " --sign "):
			signs++
		case strings.Contains(line, "env -u RELEASE_KEY $(MAKE)"):
		default:
			t.Errorf("with the key in its environment, make runs %s", line)
		}
	}
	if signs != 1 {
		t.Errorf("%d lines sign", signs)
	}
}

// TestReleasesAreMadeWithOneGo: the workflow makes releases with the Go that the page names.
func TestReleasesAreMadeWithOneGo(t *testing.T) {
	_, text := readWorkflow(t, "release.yaml")
	found := regexp.MustCompile(`go-version: "([^"]*)", cache: false`).FindAllStringSubmatch(text, -1)
	if len(found) != strings.Count(text, "actions/setup-go@") {
		t.Errorf("%d of the workflow's Gos are named, and take nothing from a cache", len(found))
	}
	for _, m := range found {
		if !strings.Contains(read(t, "../docs/releases.md"), "`GOTOOLCHAIN=go"+m[1]+" make release") {
			t.Errorf("the workflow makes releases with Go %q, and the page with another", m[1])
		}
	}
}
