package cloud

import (
	"os"
	"path/filepath"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Our kinds are asked for by the plurals that their CRDs have: a guessed one is refused, in an installation alone.
func TestTheMapperKnowsOurKinds(t *testing.T) {
	files, err := filepath.Glob("../../deploy/charts/yurt-coordinator/files/crds/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			t.Fatal(err)
		}
		var versions []string
		for _, v := range crd.Spec.Versions {
			versions = append(versions, v.Name)
		}
		kind := schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}
		found, err := mapper().RESTMapping(kind, versions...)
		if err != nil || found.Resource.Resource != crd.Spec.Names.Plural {
			t.Errorf("%s is asked for by %+v, %v; want %s", kind, found, err, crd.Spec.Names.Plural)
		}
	}
}
