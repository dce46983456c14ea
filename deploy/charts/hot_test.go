package charts

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"

	"yurtcoordinator/internal/edge"
)

// A heartbeat is looked at by as few policies as can be: each costs kube-apiserver the conversion of both objects for CEL, before
// its first condition, whatever that says. Whoever adds one here pays for it with every node's Lease (BenchmarkLeaseUpdate).
func TestFewPoliciesLookAtAHeartbeat(t *testing.T) {
	want := []string{"delegate-annotation.openyurt.io", "forwarder-writes.openyurt.io"}
	who := &user.DefaultInfo{Name: edge.NodeName("n1").User(), Groups: []string{edge.GroupNodes}}
	l := heartbeatOf("n1", false)
	attributes := admission.NewAttributesRecord(l, l, coordinationv1.SchemeGroupVersion.WithKind("Lease"), l.Namespace, l.Name,
		coordinationv1.SchemeGroupVersion.WithResource("leases"), "", admission.Update, nil, false, who)
	var looking []string
	policies := 0
	for _, s := range verbatim(t) {
		if s.object.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		policies++
		p := &admissionv1.ValidatingAdmissionPolicy{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.object.Object, p); err != nil {
			t.Fatal(err)
		}
		if looksAt(t, p.Spec.MatchConstraints, attributes) {
			looking = append(looking, p.Name)
		}
	}
	slices.Sort(looking)
	if !slices.Equal(looking, want) || policies < 10 {
		t.Errorf("of %d policies these look at a node's own heartbeat: %v, want %v", policies, looking, want)
	}
}

// looksAt reports whether a policy that is about these is evaluated for a request in a namespace that has no labels but its name.
func looksAt(t *testing.T, about *admissionv1.MatchResources, a admission.Attributes) bool {
	t.Helper()
	if len(about.ExcludeResourceRules) > 0 || about.ObjectSelector != nil {
		t.Fatal("this test does not know exclusions and selectors of objects")
	}
	if about.NamespaceSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(about.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		if !selector.Matches(labels.Set{corev1.LabelMetadataName: a.GetNamespace()}) {
			return false
		}
	}
	return slices.ContainsFunc(about.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		matcher := rules.Matcher{Rule: r.RuleWithOperations, Attr: a}
		return matcher.Matches() && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName()))
	})
}
