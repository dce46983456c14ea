package yurtcoordinator

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// modules are the directories of our Go modules: the product, the API's types and the lab (docs/adr/0080-three-modules.md).
// Besides these there are modules that have other versions on purpose: the lab's other versions of Kubernetes and its older
// kubectl.
var modules = []string{".", "apis", "lab"}

type requirement struct{ Path, Version string }

type goMod struct {
	Module  struct{ Path string }
	Go      string
	Require []struct {
		requirement
		Indirect bool
	}
	Replace []struct{ Old, New requirement }
}

func readModule(t *testing.T, dir string) goMod {
	t.Helper()
	edit := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	edit.Dir = dir
	out, err := edit.Output()
	if err != nil {
		t.Fatalf("go mod edit in %s: %v", dir, err)
	}
	var mod goMod
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	return mod
}

// TestModulesHaveOneVersionOfEach: what two of our modules require or replace has one version, and so has Go.
func TestModulesHaveOneVersionOfEach(t *testing.T) {
	type version struct{ version, dir string }
	seen := map[string]version{}
	shared := 0
	one := func(dir, what, v string) {
		first, known := seen[what]
		switch {
		case !known:
			seen[what] = version{v, dir}
		case first.version != v:
			t.Errorf("%s is %s in %s/go.mod and %s in %s/go.mod: want one version", what, first.version, first.dir, v, dir)
		default:
			shared++
		}
	}
	for _, dir := range modules {
		mod := readModule(t, dir)
		one(dir, "go", mod.Go)
		for _, r := range mod.Require {
			one(dir, r.Path, r.Version)
		}
		for _, r := range mod.Replace {
			if !strings.HasPrefix(r.Old.Path, strings.TrimSuffix(module, "/")) {
				one(dir, "the replacement of "+r.Old.Path, r.New.Path+" "+r.New.Version)
			}
		}
	}
	if shared < 100 {
		t.Errorf("the modules share %d versions; something is wrong with this test", shared)
	}
}

// TestModulesKnowNoneAbove: the API needs Kubernetes' API alone, so that anybody can import it, and the product does without
// the lab.
func TestModulesKnowNoneAbove(t *testing.T) {
	api := readModule(t, "apis")
	if len(api.Replace) > 0 {
		t.Errorf("apis/go.mod replaces %v: who imports the module would not get it", api.Replace)
	}
	may := []string{"k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/apimachinery"}
	for _, r := range api.Require {
		if !r.Indirect && !slices.Contains(may, r.Path) {
			t.Errorf("apis/go.mod requires %s: an API is its types", r.Path)
		}
	}
	for _, r := range readModule(t, ".").Require {
		if r.Path == module+"lab" {
			t.Error("the product's go.mod requires the lab")
		}
	}
}

// TestEveryModuleIsHeld: a module that is not in the list above has other versions on purpose.
func TestEveryModuleIsHeld(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), "git", "ls-files", "--", "go.mod", "*/go.mod").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for file := range strings.FieldsSeq(string(list)) {
		dir := strings.TrimSuffix(strings.TrimSuffix(file, "go.mod"), "/")
		switch {
		case slices.Contains(modules, dir) || dir == "":
			found++
		case !within(dir, "lab/kubernetes") && dir != "lab/kubectlolder":
			t.Errorf("%s: which versions does it have? Name it in modules of modules_test.go", file)
		}
	}
	if found != len(modules) {
		t.Errorf("found %d of %d modules", found, len(modules))
	}
}
