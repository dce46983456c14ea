package apis

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestSchemeKnowsEveryKind(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for version, kinds := range map[string][]string{
		"v1alpha1": {"PoolSettings", "YurtCoordinator"}, "v1beta1": {"NodePool", "YurtAppSet"}, "v1beta2": {"NodePool"},
	} {
		for _, kind := range kinds {
			for _, name := range []string{kind, kind + "List"} {
				of := schema.GroupVersionKind{Group: "apps.openyurt.io", Version: version, Kind: name}
				if !scheme.Recognizes(of) {
					t.Errorf("the scheme lacks %s", of)
				}
			}
		}
	}
}

// TestAnotherModuleCompiles builds and runs testdata/consumer in a module that requires this one and nothing else.
func TestAnotherModuleCompiles(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/consumer")); err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	mod := fmt.Sprintf("module example.org/consumer\n\ngo 1.26.4\n\nrequire yurtcoordinator/apis v0.0.0\n\n"+
		"replace yurtcoordinator/apis => %s\n", here)
	for name, content := range map[string][]byte{"go.mod": []byte(mod), "go.sum": sums} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "-mod=mod", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	const want = "shop-7: till-1, till-2\n"
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}
