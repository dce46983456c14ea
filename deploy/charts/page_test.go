package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/cloud/cloudtest"
)

// TestTheChartsPage: the values in the chart's README are values of the chart, with these defaults.
func TestTheChartsPage(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([\\w.*]+)` \\| (?:`([^`]*)`|must be set) \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 8 {
		t.Fatalf("found %d values; something is wrong with this test", len(rows))
	}
	for _, row := range rows {
		path, many := strings.CutSuffix(row[1], ".*")
		var value any = values
		for name := range strings.SplitSeq(path, ".") {
			of, _ := value.(map[string]any)
			inner, there := of[name]
			if !there {
				t.Errorf("values.yaml has no %s", row[1])
				break
			}
			value = inner
		}
		if many {
			continue
		}
		have, err := yaml.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Trim(strings.TrimSpace(string(have)), `"`); got != row[2] {
			t.Errorf("%s is %s in values.yaml, %s on the page", row[1], got, row[2])
		}
	}
}

// TestArtifactHub: what the chart tells Artifact Hub of its CRDs is so, and a real API server takes the examples.
func TestArtifactHub(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var meta struct {
		Annotations map[string]string `json:"annotations"`
	}
	if err := yaml.Unmarshal(content, &meta); err != nil {
		t.Fatal(err)
	}
	var told []struct{ Kind, Version, Name, DisplayName, Description string }
	if err := yaml.UnmarshalStrict([]byte(meta.Annotations["artifacthub.io/crds"]), &told); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, s := range verbatim(t) {
		if s.object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		spec, _ := s.object.Object["spec"].(map[string]any)
		names, _ := spec["names"].(map[string]any)
		versions, _ := spec["versions"].([]any)
		for _, v := range versions {
			if v, _ := v.(map[string]any); v["storage"] == true {
				have[fmt.Sprint(names["kind"], " ", v["name"], " ", s.object.GetName())] = true
			}
		}
	}
	for _, c := range told {
		name := c.Kind + " " + c.Version + " " + c.Name
		if !have[name] || c.DisplayName == "" || c.Description == "" {
			t.Errorf("Chart.yaml tells of %+v; the chart has %v", c, have)
		}
		delete(have, name)
	}
	if len(have) > 0 {
		t.Errorf("Chart.yaml does not tell of %v", have)
	}
	var shown []map[string]any
	err = yaml.UnmarshalStrict([]byte(meta.Annotations["artifacthub.io/crdsExamples"]), &shown)
	if err != nil || len(shown) == 0 {
		t.Fatalf("examples %v: %v", shown, err)
	}
	c := client.WithFieldValidation(cloudtest.Client(t, policed(t)), metav1.FieldValidationStrict)
	for _, object := range shown {
		doc, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		o := parse(t, string(doc))
		mustAccept(t, id(o), c.Create(t.Context(), o, client.DryRunAll))
	}
}
