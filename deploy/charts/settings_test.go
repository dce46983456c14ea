package charts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	cloudcoordinator "yurtcoordinator/internal/cloud/coordinator"
)

// TestSettingsOfCoordinators: the values take what a PoolSettings takes, and coordinator-controller gets it as it is.
func TestSettingsOfCoordinators(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Properties map[string]schema `json:"properties"`
	}
	var all schema
	if err := json.Unmarshal(content, &all); err != nil {
		t.Fatal(err)
	}
	var known, fields []string
	for name := range all.Properties["coordinator"].Properties["settings"].Properties {
		known = append(known, name)
	}
	of := reflect.TypeFor[v1alpha1.CoordinatorSettings]()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	slices.Sort(known)
	slices.Sort(fields)
	if !slices.Equal(known, fields) {
		t.Errorf("values have %v, PoolSettings %v", known, fields)
	}

	var given v1alpha1.CoordinatorSettings
	for _, d := range rendered[appsv1.Deployment](t, "Deployment") {
		for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
			if text, ok := strings.CutPrefix(arg, "--coordinator-settings="); ok {
				if err := json.Unmarshal([]byte(text), &given); err != nil {
					t.Fatalf("%s: %v", text, err)
				}
			}
		}
	}
	if given.Create != v1alpha1.CreateAlways || *given.MinNodes != 2 || given.MirrorQuota.String() != "256Mi" ||
		given.Resources.Limits.Memory().String() != "1Gi" || cloudcoordinator.CheckSettings(given) != nil {
		t.Errorf("it gets %+v", given)
	}
	for values, want := range map[string]string{
		"coordinator.settings.minNodes=0":             "minimum",
		"coordinator.settings.create=Sometimes":       "one of",
		"coordinator.settings.standbys=2":             "additional",
		"coordinator.settings.replicas=4":             "maximum",
		"coordinator.settings.extraArgs={data-dir=x}": "match",
	} {
		_, err := template(t, append([]string{"--set", values}, required...)...)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), want) {
			t.Errorf("%s: %v", values, err)
		}
	}
}
