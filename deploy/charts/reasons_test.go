package charts

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// rendered are the objects of a kind, as a type of Kubernetes, that the chart has with all that it can have.
func rendered[T any](t *testing.T, kind string) (all []T) {
	t.Helper()
	out, err := template(t, append([]string{"--values", "testdata/all.values.yaml"}, required...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range documents(t, out) {
		if o := parse(t, doc); o.GetKind() == kind {
			all = append(all, as[T](t, o))
		}
	}
	if len(all) == 0 {
		t.Fatalf("no %s", kind)
	}
	return all
}

func as[T any](t *testing.T, o *unstructured.Unstructured) (typed T) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed); err != nil {
		t.Fatalf("%s: %v", id(o), err)
	}
	return typed
}

// sources are the lines of each of the chart's files of a pattern.
func sources(t *testing.T, pattern string) map[string][]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(chart, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v, %v", pattern, names, err)
	}
	all := map[string][]string{}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = strings.Split(string(content), "\n")
	}
	return all
}

// reason is a line with a sentence, or the end of one.
var reason = regexp.MustCompile(`^\s*# .*[.:,;]`)

// TestEveryRuleHasItsReason: above each rule of each Role stands why it is needed, and none is written in another way than those
// that are looked at here.
func TestEveryRuleHasItsReason(t *testing.T) {
	rule, found := regexp.MustCompile(`^\s*- (apiGroups|nonResourceURLs):`), 0
	files := sources(t, "templates/*.yaml")
	for name, lines := range sources(t, "files/rbac/*.yaml") {
		files[name] = lines
	}
	for name, lines := range files {
		if slices.Contains(lines, "kind: ValidatingAdmissionPolicy") {
			continue // whose rules say what it applies to
		}
		for i, line := range lines {
			if !rule.MatchString(line) {
				continue
			}
			if found++; !reason.MatchString(lines[i-1]) {
				t.Errorf("%s:%d: no reason above the rule: %s", name, i+1, line)
			}
		}
	}
	rules := 1 // that of `helm test`, which `helm template` leaves out
	for _, r := range rendered[rbacv1.Role](t, "Role") {
		rules += len(r.Rules)
	}
	for _, r := range rendered[rbacv1.ClusterRole](t, "ClusterRole") {
		rules += len(r.Rules)
	}
	if found != rules {
		t.Errorf("%d rules are in the chart's files, %d in what it renders", found, rules)
	}
}

// TestEveryPolicyHasItsReason: each policy begins with what it is for, says why it fails as it does, and what it says to whoever
// is refused.
func TestEveryPolicyHasItsReason(t *testing.T) {
	out, err := template(t, append([]string{"--values", "testdata/all.values.yaml"}, required...)...)
	if err != nil {
		t.Fatal(err)
	}
	policies := 0
	for _, doc := range documents(t, out) {
		o := parse(t, doc)
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		policies++
		p, lines := as[admissionregistrationv1.ValidatingAdmissionPolicy](t, o), strings.Split(doc, "\n")
		why := "# " + string(*p.Spec.FailurePolicy) + ": "
		first := slices.IndexFunc(lines, func(l string) bool { return l != "" && !strings.HasPrefix(l, "# Source: ") })
		if l := lines[first]; !strings.HasPrefix(l, "# ") || strings.HasPrefix(l, why) {
			t.Errorf("%s does not begin with what it is for: %q", p.Name, l)
		}
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, why) }) {
			t.Errorf("%s: nothing after %q says why", p.Name, why)
		}
		for _, v := range p.Spec.Validations {
			if v.Message+v.MessageExpression == "" || v.Reason == nil {
				t.Errorf("%s: whoever is refused by %q is not told why", p.Name, v.Expression)
			}
		}
	}
	if policies == 0 {
		t.Error("no policies")
	}
}

// TestNoRightsOfOthers: what is bound is the chart's own, never a role of Kubernetes' whose rules are not to be read here, and
// grow with its version (system:node-proxier would show each node all others).
func TestNoRightsOfOthers(t *testing.T) {
	var ours []rbacv1.RoleRef
	rules := map[string][]rbacv1.PolicyRule{}
	add := func(kind, name string, more []rbacv1.PolicyRule) {
		ours = append(ours, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name})
		rules[name] = append(rules[name], more...)
	}
	for _, r := range rendered[rbacv1.Role](t, "Role") {
		add("Role", r.Name, r.Rules)
	}
	for _, r := range rendered[rbacv1.ClusterRole](t, "ClusterRole") {
		add("ClusterRole", r.Name, r.Rules)
	}
	var ofNodes []rbacv1.PolicyRule
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if !slices.Contains(ours, ref) {
			t.Errorf("%s binds %s %s, which is not the chart's", name, ref.Kind, ref.Name)
		}
		for _, s := range subjects {
			switch {
			case s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "kube-system":
			case s.Kind == rbacv1.GroupKind && s.Name == "system:nodes":
				ofNodes = append(ofNodes, rules[ref.Name]...)
			default:
				t.Errorf("%s is for %v", name, s)
			}
		}
	}
	for _, b := range rendered[rbacv1.RoleBinding](t, "RoleBinding") {
		check(b.Name, b.RoleRef, b.Subjects)
	}
	for _, b := range rendered[rbacv1.ClusterRoleBinding](t, "ClusterRoleBinding") {
		check(b.Name, b.RoleRef, b.Subjects)
	}
	read := []string{"get", "list", "watch"}
	if want := []rbacv1.PolicyRule{
		{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"kube-root-ca.crt"},
			Verbs: read[:1],
		},
		{APIGroups: []string{"apps.openyurt.io"}, Resources: []string{"nodepools"}, Verbs: read},
		{APIGroups: []string{""}, Resources: []string{"endpoints", "services"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		{
			APIGroups: []string{"apps.openyurt.io"}, Resources: []string{"nodepools"}, ResourceNames: []string{"p1", "shop.two"},
			Verbs: []string{"join"},
		},
	}; !reflect.DeepEqual(ofNodes, want) {
		t.Errorf("all nodes have %+v, want %+v", ofNodes, want)
	}
}
