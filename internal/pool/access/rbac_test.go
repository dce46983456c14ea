package access

import (
	"errors"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/internal/edge"
)

func TestSetupIsLevelBased(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset()
	lagging := 1 // the authorizer has not heard of the roles yet
	client.PrependReactor("create", "subjectaccessreviews",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			review := &authorizationv1.SubjectAccessReview{}
			review.Status.Allowed = lagging == 0
			lagging = 0
			return true, review, nil
		})
	s := &Setup{client: client}
	if err := s.pass(ctx); err == nil {
		t.Fatal("done before the roles were in effect")
	}
	if err := s.pass(ctx); err != nil {
		t.Fatal(err)
	}
	lease, err := client.CoordinationV1().Leases(edge.NamespaceSystem).Get(ctx, edge.LeaseElection, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity != nil || lease.Spec.RenewTime != nil {
		t.Fatalf("election Lease %+v, %v", lease, err)
	}

	client.ClearActions()
	if err := s.pass(ctx); err != nil {
		t.Fatal(err)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() == "update" || action.GetVerb() == "delete" {
			t.Errorf("the second pass wrote: %v", action)
		}
	}

	widened, err := client.RbacV1().ClusterRoles().Get(ctx, rolePrefix+"operator", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	widened.Rules = append(widened.Rules, rule([]string{"*"}, "", "secrets"))
	if _, err := client.RbacV1().ClusterRoles().Update(ctx, widened, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.RbacV1().RoleBindings(edge.NamespaceSystem).Delete(ctx, rolePrefix+"campaign",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	holder := "n1"
	lease.Spec.HolderIdentity = &holder
	leases := client.CoordinationV1().Leases(edge.NamespaceSystem)
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.pass(ctx); err != nil {
		t.Fatal(err)
	}
	righted, err := client.RbacV1().ClusterRoles().Get(ctx, rolePrefix+"operator", metav1.GetOptions{})
	if err != nil || len(righted.Rules) != len(widened.Rules)-1 {
		t.Errorf("the widened role was not righted: %v", err)
	}
	if _, err := client.RbacV1().RoleBindings(edge.NamespaceSystem).Get(ctx, rolePrefix+"campaign",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	lease, err = client.CoordinationV1().Leases(edge.NamespaceSystem).Get(ctx, edge.LeaseElection, metav1.GetOptions{})
	if err != nil || valueOf(lease.Spec.HolderIdentity) != "n1" {
		t.Errorf("a pass deposed the leader: %+v, %v", lease, err)
	}
}

func TestSetupFailsWhole(t *testing.T) {
	client := fake.NewClientset()
	boom := errors.New("boom")
	client.PrependReactor("create", "rolebindings", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, boom
	})
	if err := (&Setup{client: client}).pass(t.Context()); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
}

func TestRolesGrantNoMoreThanReading(t *testing.T) {
	var rules []rbacv1.PolicyRule
	for _, r := range clusterRoles(false) {
		rules = append(rules, r.Rules...)
	}
	for _, r := range roles() {
		rules = append(rules, r.Rules...)
	}
	streams := []string{"pods/exec", "pods/attach", "pods/portforward"}
	reviews := []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
	for _, r := range rules {
		for _, group := range r.APIGroups {
			if group == "*" {
				t.Errorf("every group: %v", r)
			}
		}
		for _, resource := range r.Resources {
			if resource == "*" || resource == "secrets" || resource == "nodes/proxy" || resource == "services/proxy" {
				t.Errorf("%q is granted: %v", resource, r)
			}
			for _, verb := range r.Verbs {
				named := len(r.ResourceNames) > 0 && resource == "leases" && (verb == "update" || verb == "patch")
				stored := verb != "create" || !slices.Contains(append(streams, reviews...), resource)
				if !slices.Contains(readVerbs, verb) && stored && !named {
					t.Errorf("%s %s is granted: %v", verb, resource, r)
				}
			}
		}
	}
}

// TestSecretsAreReadByOperatorsAlone, and only where that is asked for.
func TestSecretsAreReadByOperatorsAlone(t *testing.T) {
	without, with := clusterRoles(false), clusterRoles(true)
	for i, r := range with {
		more := r.Rules[len(without[i].Rules):]
		if r.Name != rolePrefix+"operator" {
			if len(more) > 0 {
				t.Errorf("%s has also %v", r.Name, more)
			}
			continue
		}
		if len(more) != 1 || !slices.Equal(more[0].Resources, []string{"secrets"}) || !slices.Equal(more[0].Verbs, readVerbs) {
			t.Errorf("operators may also %v", more)
		}
	}
}
