package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/cloudtest"
)

const examples = "../../examples"

// TestExamples: a real API server with our policies takes all examples, each field of them, and the chart takes the values.
func TestExamples(t *testing.T) {
	c := client.WithFieldValidation(cloudtest.Client(t, policed(t)), metav1.FieldValidationStrict)
	page, err := os.ReadFile(filepath.Join(examples, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if !strings.Contains(string(page), "["+name+"]("+name+")") {
			t.Errorf("examples/README.md does not name %s", name)
		}
		if name == "values.yaml" {
			if _, err := template(t, "--namespace", "kube-system", "--values", file); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range documents(t, string(content)) {
			o := parse(t, doc)
			mustAccept(t, name+": "+id(o), c.Create(t.Context(), o, client.DryRunAll))
		}
	}
}
