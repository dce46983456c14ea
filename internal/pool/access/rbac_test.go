package access

import (
	"context"
	"errors"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
)

// TestFurnish: what is there stays as it is, and a failure is tried again.
func TestFurnish(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset()
	fails := true
	client.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		defer func() { fails = false }()
		return fails, nil, errors.New("not yet")
	})
	if err := Furnish(ctx, client); err != nil {
		t.Fatal(err)
	}
	for _, name := range systems {
		if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	leases := client.CoordinationV1().Leases(edge.NamespaceSystem)
	for _, name := range poolLeases {
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity != nil || lease.Spec.RenewTime != nil {
			t.Fatalf("%s: %+v, %v", name, lease, err)
		}
		lease.Spec.HolderIdentity = ptr.To("n1")
		if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Furnish(ctx, client); err != nil {
		t.Fatal(err)
	}
	lease, err := leases.Get(ctx, edge.LeaseElection, metav1.GetOptions{})
	if err != nil || valueOf(lease.Spec.HolderIdentity) != "n1" {
		t.Errorf("the leader is deposed: %+v, %v", lease, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	client.PrependReactor("create", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("never")
	})
	if err := Furnish(ended, client); !errors.Is(err, context.Canceled) {
		t.Errorf("asked to stop: %v", err)
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
