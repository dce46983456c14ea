package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/auth/nodeidentifier"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/node"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/pool/pooltest"
)

var update = flag.Bool("update", false, "write the matrix of docs/threat-model.md anew")

const (
	matrixPage  = "../../../docs/threat-model.md"
	matrixBegin = "<!-- Generated: go test ./internal/pool/access -run TestTheMatrix -update -->\n\n"
	matrixEnd   = "\n<!-- End of what is generated. -->"
)

// rights is a coordinator's own chain of deciders: Kubernetes' Node authorizer, and RBAC, behind ours.
func rights(t *testing.T, denied *Denied, members *Members) authorizer.Authorizer {
	t.Helper()
	pods := func(_ context.Context, namespace, name string) (*corev1.Pod, error) {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{}, HostNetwork: name == "of-its-node"}}, nil
	}
	all, err := NewAuthorizer(denied, members, pods,
		node.NewAuthorizer(node.NewGraph(), nodeidentifier.NewDefaultNodeIdentifier(), bootstrappolicy.NodeRules()),
		NewRights(false))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// subject is what a row of the matrix is about.
type subject struct {
	label, group, resource, namespace, name string
	verbs                                   []string
}

func subjects() (all []subject) {
	reads := []string{"get", "list", "watch"}
	every := append(slices.Clone(reads), "create", "update", "patch", "delete", "deletecollection")
	add := func(group, namespace, name string, verbs []string, resources ...string) {
		for _, r := range resources {
			all = append(all, subject{"`" + r + "`", group, r, namespace, name, verbs})
		}
	}
	special := func(label, group, resource, namespace, name string, verbs []string) {
		all = append(all, subject{label, group, resource, namespace, name, verbs})
	}
	add("", "", "x", every, "nodes", "namespaces")
	add("", "shop", "x", every, "events", "pods")
	add(edge.NodePools.Group, "", "x", every, edge.NodePools.Resource)
	leases := coordinationv1.GroupName
	special("`leases`: other", leases, "leases", "shop", "x", every)
	special("`leases` in `kube-node-lease`: its own", leases, "leases", corev1.NamespaceNodeLease, "n1", every)
	special("`leases` in `kube-node-lease`: another node's", leases, "leases", corev1.NamespaceNodeLease, "n2",
		slices.DeleteFunc(slices.Clone(every), func(v string) bool { return v == "create" }))
	special("`leases` in `kube-system`: the pool's own", leases, "leases", edge.NamespaceSystem, edge.LeaseElection, every)
	add("", "shop", "x", every, "endpoints")
	add(discoveryv1.GroupName, "shop", "x", every, "endpointslices")
	add("", "shop", "x", every, "services", "services/status", "configmaps", "serviceaccounts", "pods/status")
	add("", "", "x", every, "nodes/status")
	add("", "shop", "x", reads, "pods/log")
	for _, sub := range streamTo {
		special("`pods/"+sub+"`: an ordinary Pod", "", "pods/"+sub, "shop", "x", []string{"get", "create"})
		special("`pods/"+sub+"`: a Pod that can act on its node", "", "pods/"+sub, "shop", "of-its-node",
			[]string{"get", "create"})
	}
	add("metrics.k8s.io", "", "x", every, "nodes.metrics.k8s.io")
	add("metrics.k8s.io", "shop", "x", every, "pods.metrics.k8s.io")
	add("", "shop", "x", every, "secrets", "pods/ephemeralcontainers", "pods/resize", "pods/eviction", "pods/binding",
		"serviceaccounts/token", "pods/proxy", "services/proxy")
	add("", "", "x", every, "nodes/proxy", "namespaces/status", "namespaces/finalize")
	for _, r := range []string{"roles", "rolebindings"} {
		add(rbacv1.GroupName, "shop", "x", every, r)
	}
	for _, r := range []string{"clusterroles", "clusterrolebindings"} {
		add(rbacv1.GroupName, "", "x", every, r)
	}
	add("authorization.k8s.io", "", "", []string{"create"}, "selfsubjectaccessreviews", "selfsubjectrulesreviews",
		"subjectaccessreviews")
	add("authorization.k8s.io", "shop", "", []string{"create"}, "localsubjectaccessreviews")
	add("authentication.k8s.io", "", "", []string{"create"}, "selfsubjectreviews", "tokenreviews")
	for _, path := range []string{
		"/version", "/api", "/apis", "/healthz", edge.PathPage, edge.PathLinks, edge.PathMirror, edge.PathOwn, edge.PathState,
		"/metrics", "/metrics/slis", "/debug/pprof/heap", "/logs",
	} {
		all = append(all, subject{label: "`" + path + "`", name: path, verbs: []string{"get", "post", "put", "delete"}})
	}
	return all
}

// attributes are those of a request, as kube-apiserver makes them.
func (s subject) attributes(who user.Info, verb string) authorizer.Attributes {
	if s.resource == "" {
		return authorizer.AttributesRecord{User: who, Verb: verb, Path: s.name}
	}
	resource, _ := strings.CutSuffix(s.resource, "."+s.group)
	resource, sub, _ := strings.Cut(resource, "/")
	a := authorizer.AttributesRecord{
		User: who, Verb: verb, Namespace: s.namespace, Name: s.name, APIGroup: s.group, APIVersion: "v1", Resource: resource,
		Subresource: sub, ResourceRequest: true,
	}
	// A list has a name if it selects by one, as hubs' of the pool's own Leases.
	if listed := verb == "list" || verb == "watch" || verb == "deletecollection"; sub == "" &&
		(verb == "create" || listed && s.name != edge.LeaseElection) {
		a.Name = ""
	}
	return a
}

// callers are who asks, by what the door makes of their certificates; nil means that they do not come through.
func callers(t *testing.T) (names []string, who []user.Info) {
	t.Helper()
	cluster, pools := pooltest.NewAuthority(t, "cluster"), pooltest.NewAuthority(t, "pool")
	var trusted cas
	trusted.trust(cluster, pools)
	door := AtTheDoor(trusted.verify, pooltest.WriteFile(t, t.TempDir(), "pool-ca.crt", pools.Pem), ends.Clock{})
	add := func(what string, a *pooltest.Authority, subject pkix.Name) {
		pair := a.Issue(t, subject, time.Now().Add(time.Hour))
		response, ok, err := door.AuthenticateRequest(from(&tls.ConnectionState{
			PeerCertificates: []*x509.Certificate{pair.TLS(t).Leaf},
		}))
		names = append(names, what)
		if err != nil || !ok {
			who = append(who, nil)
			return
		}
		who = append(who, response.User)
	}
	add("node, hub", cluster, pooltest.Node("n1"))
	add("operator", pools, pooltest.Operator())
	add("debugger", pools, pooltest.Debugger())
	add("viewer", pools, pooltest.Viewer())
	add("metrics", pools, pooltest.Scraper())
	add("cluster's, with `openyurt:coordinators*`", cluster, pkix.Name{CommonName: "eve", Organization: []string{
		edge.GroupOperators, edge.GroupDebuggers, edge.GroupViewers, edge.GroupMetrics, user.SystemPrivilegedGroup,
	}})
	add("node of another pool", cluster, pooltest.Node("n9"))
	denied := pooltest.Debugger()
	denied.CommonName = "mallory"
	add("denied", pools, denied)
	add("pool's, with `system:nodes`", pools, pooltest.Node("n1"))
	add("stranger", pooltest.NewAuthority(t, "stranger"), pooltest.Debugger())
	return names, who
}

// cell is what a caller may do with a subject.
func cell(t *testing.T, by authorizer.Authorizer, who user.Info, s subject) string {
	t.Helper()
	var may []string
	for _, verb := range s.verbs {
		if who == nil {
			continue
		}
		decision, _, err := by.Authorize(t.Context(), s.attributes(who, verb))
		if err != nil {
			t.Errorf("%s %s: %v", verb, s.label, err)
		}
		if decision == authorizer.DecisionAllow {
			may = append(may, verb)
		}
	}
	switch {
	case len(may) == 0:
		return "–"
	case len(may) >= 3 && slices.Equal(may[:3], []string{"get", "list", "watch"}):
		may = append([]string{"read"}, may[3:]...)
	}
	return strings.Join(may, ", ")
}

// TestTheMatrix holds the threat model's table of who may do what here to the deciders themselves. Rows with equal cells are one.
func TestTheMatrix(t *testing.T) {
	denied, members := NewDenied(pooltest.WriteFile(t, t.TempDir(), "denied", []byte("mallory\n"))), NewMembers(
		pooltest.WriteFile(t, t.TempDir(), "nodes", []byte("n1\nn2\n")), func() Word { return Word{} })
	if _, err := denied.Read(); err != nil {
		t.Fatal(err)
	}
	if _, err := members.Read(); err != nil {
		t.Fatal(err)
	}
	by := rights(t, denied, members)
	names, who := callers(t)
	var order []string
	labels := map[string][]string{}
	for _, s := range subjects() {
		cells := make([]string, len(who))
		for i := range who {
			cells[i] = cell(t, by, who[i], s)
		}
		row := strings.Join(cells, " | ")
		if len(labels[row]) == 0 {
			order = append(order, row)
		}
		labels[row] = append(labels[row], s.label)
	}
	var want strings.Builder
	want.WriteString("| | " + strings.Join(names, " | ") + " |\n|" + strings.Repeat(" --- |", len(names)+1) + "\n")
	for _, row := range order {
		want.WriteString("| " + strings.Join(labels[row], ", ") + " | " + row + " |\n")
	}

	content, err := os.ReadFile(matrixPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(content), matrixBegin)
	got, after, ends := strings.Cut(rest, matrixEnd)
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no matrix", matrixPage)
	case got == want.String():
	case *update:
		page := before + matrixBegin + want.String() + matrixEnd + after
		if err := os.WriteFile(matrixPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the matrix in %s is not what the coordinator decides, see -update. It decides:\n%s", matrixPage, &want)
	}
}
