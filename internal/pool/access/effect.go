package access

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// inEffect fails until the authorizer knows each binding and its role. The authorizer learns of them through watches, a moment
// after they are written. A coordinator that calls itself ready must not refuse a node in that moment.
func (s *Setup) inEffect(ctx context.Context) error {
	for _, r := range reviews() {
		answer, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &r, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask what %v may do: %w", r.Spec.Groups, err)
		}
		if !answer.Status.Allowed {
			return fmt.Errorf("the roles of %v are not in effect yet: %s", r.Spec.Groups, answer.Status.Reason)
		}
	}
	return nil
}

// reviews asks, for each binding, about the first thing that its role allows.
func reviews() []authorizationv1.SubjectAccessReview {
	rules := map[string]rbacv1.PolicyRule{}
	for _, r := range clusterRoles(false) {
		rules[r.Name] = r.Rules[0]
	}
	for _, r := range roles() {
		rules[r.Namespace+"/"+r.Name] = r.Rules[0]
	}
	var all []authorizationv1.SubjectAccessReview
	for _, b := range clusterRoleBindings() {
		all = append(all, review(b.Subjects[0].Name, "", rules[b.RoleRef.Name]))
	}
	for _, b := range roleBindings() {
		all = append(all, review(b.Subjects[0].Name, b.Namespace, rules[b.Namespace+"/"+b.RoleRef.Name]))
	}
	return all
}

// review asks whether a group may do the first thing that a rule allows. No authorizer knows its user's name.
func review(group, namespace string, rule rbacv1.PolicyRule) authorizationv1.SubjectAccessReview {
	spec := authorizationv1.SubjectAccessReviewSpec{User: "openyurt:setup", Groups: []string{group}}
	if len(rule.NonResourceURLs) > 0 {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{
			Path: rule.NonResourceURLs[0], Verb: rule.Verbs[0],
		}
	} else {
		spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
		}
		if len(rule.ResourceNames) > 0 {
			spec.ResourceAttributes.Name = rule.ResourceNames[0]
		}
	}
	return authorizationv1.SubjectAccessReview{Spec: spec}
}
