package cloudscale

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestCreateAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.yaml")
	content := "# nothing but words\n---\n"
	for _, name := range []string{"a", "b", "c"} {
		content += "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n---\n"
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().Build()
	if err := createAll(t.Context(), c, path); err != nil {
		t.Fatal(err)
	}
	all := &corev1.NamespaceList{}
	err := c.List(t.Context(), all)
	if err != nil || len(all.Items) != 3 || all.Items[0].Name != "a" || all.Items[2].Name != "c" {
		t.Errorf("%v, %v", all.Items, err)
	}
	if err := createAll(t.Context(), c, path); err == nil {
		t.Error("what is there already is made again")
	}
	for _, pattern := range []string{"crds/*.yaml", "rbac/*.yaml", "policies/*.yaml"} {
		if _, err := (Config{Chart: "../../../deploy/charts/yurt-coordinator"}).files(pattern); err != nil {
			t.Error(err)
		}
	}
	if _, err := (Config{Chart: t.TempDir()}).files("crds/*.yaml"); err == nil {
		t.Error("a chart that is none has files")
	}
}
