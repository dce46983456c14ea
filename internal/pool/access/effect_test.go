package access

import (
	"testing"
)

// TestEveryBindingIsAskedFor keeps inEffect from looking away from a binding that is added later.
func TestEveryBindingIsAskedFor(t *testing.T) {
	all := reviews()
	if want := len(clusterRoleBindings()) + len(roleBindings()); len(all) != want {
		t.Fatalf("%d reviews for %d bindings", len(all), want)
	}
	for _, r := range all {
		resource, path := r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes
		if (resource == nil) == (path == nil) || len(r.Spec.Groups) != 1 || r.Spec.Groups[0] == "" {
			t.Errorf("review of %v asks for neither or both: %+v", r.Spec.Groups, r.Spec)
		}
		if resource != nil && (resource.Verb == "" || resource.Resource == "") {
			t.Errorf("review of %v: %+v: its role was not found", r.Spec.Groups, resource)
		}
	}
}
