package forwarding

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/edge"
)

var update = flag.Bool("update", false, "rewrite the example manifest")

const example = "../../../deploy/forwarding/pool-rbac.yaml"

const exampleHead = `# What the nodes p1-n1, p1-n2 and p1-n3 of pool p1 need to forward each other's heartbeats:
# an example of what internal/cloud/forwarding makes for each pool. Its test writes this file.
#   go test ./internal/cloud/forwarding -update
`

func manifest(t *testing.T, pool edge.PoolName, nodes ...edge.NodeName) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, obj := range Objects(pool, nodes, false) {
		text, err := yaml.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes()
}

func TestExampleManifest(t *testing.T) {
	got := append([]byte(exampleHead), manifest(t, "p1", "p1-n1", "p1-n2", "p1-n3")...)
	if *update {
		if err := os.WriteFile(example, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestDeterministic(t *testing.T) {
	want := manifest(t, "p1", "a", "b", "c")
	nodes := []edge.NodeName{"c", "a", "", "b", "a"}
	if got := manifest(t, "p1", nodes...); !bytes.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if nodes[0] != "c" {
		t.Error("Objects changed its argument")
	}
}

// TestNothingForNobody: in RBAC a rule without names is a rule for every name.
func TestNothingForNobody(t *testing.T) {
	for _, nodes := range [][]edge.NodeName{nil, {}, {""}} {
		objects := Objects("p1", nodes, false)
		if len(objects) != 4 {
			t.Fatalf("%d objects; all four are needed to take back what others granted", len(objects))
		}
		for _, obj := range objects {
			switch o := obj.(type) {
			case *rbacv1.Role:
				if len(o.Rules) != 0 {
					t.Errorf("Role grants %v", o.Rules)
				}
			case *rbacv1.RoleBinding:
				if len(o.Subjects) != 0 {
					t.Errorf("RoleBinding names %v", o.Subjects)
				}
			}
		}
	}
}

// TestPoolsDoNotOverlap: the API server applies each pool's objects under their names, so none may be shared.
func TestPoolsDoNotOverlap(t *testing.T) {
	p1, p2 := Objects("p1", []edge.NodeName{"a"}, false), Objects("p2", []edge.NodeName{"b"}, false)
	for i := range p1 {
		if p1[i].GetName() == p2[i].GetName() {
			t.Errorf("%T of both pools is named %s", p1[i], p1[i].GetName())
		}
	}
}

// TestWhoMayDoWhat asks Kubernetes' own comparison of rules, where a request without a name is included only in a rule
// that is not limited to names. Each refusal is a request that somebody could try.
func TestWhoMayDoWhat(t *testing.T) {
	const coordination, kubeNodeLease = "coordination.k8s.io", "kube-node-lease"
	forwarder, other := edge.PoolName("p1").ForwardingUser(), edge.PoolName("p2").ForwardingUser()
	account, others := edge.PoolName("p1").Forwarder(), edge.PoolName("p2").Forwarder()
	objects := Objects("p1", []edge.NodeName{"p1-n1", "p1-n2"}, false)
	for _, r := range []struct {
		user, verb, group, resource, namespace, name string
		want                                         bool
	}{
		{"system:node:p1-n1", "impersonate", "", "serviceaccounts", kubeNodeLease, account, true},
		{"system:node:p1-n2", "impersonate", "", "serviceaccounts", kubeNodeLease, account, true},
		{"system:node:p2-n1", "impersonate", "", "serviceaccounts", kubeNodeLease, account, false},
		{"system:node:p1-n1", "impersonate", "", "serviceaccounts", kubeNodeLease, others, false},
		{"system:node:p1-n1", "impersonate", "", "serviceaccounts", "kube-system", account, false},
		{"system:node:p1-n1", "impersonate", "", "serviceaccounts", kubeNodeLease, "", false},
		{"system:node:p1-n1", "impersonate", "", "users", "", forwarder, false},
		{"system:node:p1-n1", "impersonate", "", "users", "", "admin", false},
		{"system:node:p1-n1", "impersonate", "", "users", "", "system:node:p1-n2", false},
		{"system:node:p1-n1", "impersonate", "", "groups", "", "system:masters", false},
		{"system:node:p1-n1", "update", coordination, "leases", kubeNodeLease, "p1-n2", false},
		{forwarder, "get", coordination, "leases", kubeNodeLease, "p1-n1", true},
		{forwarder, "update", coordination, "leases", kubeNodeLease, "p1-n2", true},
		{forwarder, "create", coordination, "leases", kubeNodeLease, "p1-n2", true}, // by PUT, which names it
		{forwarder, "create", coordination, "leases", kubeNodeLease, "", false},     // by POST, which does not
		{forwarder, "update", coordination, "leases", kubeNodeLease, "p2-n1", false},
		{forwarder, "create", coordination, "leases", kubeNodeLease, "p2-n1", false},
		{forwarder, "patch", coordination, "leases", kubeNodeLease, "p1-n1", false},
		{forwarder, "delete", coordination, "leases", kubeNodeLease, "p1-n1", false},
		{forwarder, "list", coordination, "leases", kubeNodeLease, "", false},
		{forwarder, "watch", coordination, "leases", kubeNodeLease, "", false},
		{forwarder, "update", coordination, "leases", "kube-system", "p1-n1", false},
		{forwarder, "update", coordination, "leases", kubeNodeLease, "yurt-coordinator-p1", true},
		{forwarder, "create", coordination, "leases", kubeNodeLease, "yurt-coordinator-p1", true},
		{forwarder, "update", coordination, "leases", kubeNodeLease, "yurt-coordinator-p2", false},
		{forwarder, "update", coordination, "leases", "kube-system", "yurt-coordinator-p1", false},
		{forwarder, "get", "", "secrets", kubeNodeLease, "p1-n1", false},
		{forwarder, "get", "", "nodes", "", "p1-n1", false},
		{forwarder, "impersonate", "", "serviceaccounts", kubeNodeLease, account, false},
		{other, "update", coordination, "leases", kubeNodeLease, "p1-n1", false},
	} {
		request := rbacv1.PolicyRule{
			Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{r.resource},
		}
		if r.name != "" {
			request.ResourceNames = []string{r.name}
		}
		var rules []rbacv1.PolicyRule
		binds := func(s rbacv1.Subject) bool {
			return s.Kind == "User" && s.APIGroup == rbacv1.GroupName && s.Name == r.user
		}
		for i := 0; i < len(objects); i += 2 {
			if r.namespace == objects[i].GetNamespace() &&
				slices.ContainsFunc(objects[i+1].(*rbacv1.RoleBinding).Subjects, binds) {
				rules = append(rules, objects[i].(*rbacv1.Role).Rules...)
			}
		}
		if got, _ := validation.Covers(rules, []rbacv1.PolicyRule{request}); got != r.want {
			t.Errorf("%s: %s %s %s/%s: allowed %t, want %t", r.user, r.verb, r.resource, r.namespace, r.name,
				got, r.want)
		}
	}
}
