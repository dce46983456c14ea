package cloud

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/auth/rbac/validation"

	"yurtcoordinator/internal/cloud/operators"
	"yurtcoordinator/internal/edge"
)

// granted is what a manifest grants to a ServiceAccount: rules by namespace, "" for all of the cluster.
type granted map[string][]rbacv1.PolicyRule

const approver = "coordinator-approver"

// manifests returns the files of the chart that grant rights, without those that go with a switch that is off.
func manifests(t *testing.T, off ...string) []byte {
	t.Helper()
	files, err := filepath.Glob("../../deploy/charts/yurt-coordinator/files/rbac/*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatal(files, err)
	}
	var all [][]byte
	for _, file := range files {
		if slices.Contains(off, strings.TrimSuffix(filepath.Base(file), ".yaml")) {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, content)
	}
	return bytes.Join(all, []byte("\n---\n"))
}

// load returns what each ServiceAccount is granted.
func load(t *testing.T, off ...string) map[string]granted {
	t.Helper()
	content := manifests(t, off...)
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	rules := make(map[string][]rbacv1.PolicyRule) // by namespace/name
	var bindings []rbacv1.RoleBinding
	accounts := 0
	for docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		obj, _, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		switch o := obj.(type) {
		case *corev1.ServiceAccount:
			accounts++
		case *corev1.Namespace:
			if o.Name != edge.NamespaceKeys || o.Annotations["helm.sh/resource-policy"] != "keep" {
				t.Errorf("the Namespace %s does not belong into this file, or does not stay", o.Name)
			}
		case *rbacv1.ClusterRole:
			rules["/"+o.Name] = o.Rules
		case *rbacv1.Role:
			rules[o.Namespace+"/"+o.Name] = o.Rules
		case *rbacv1.ClusterRoleBinding:
			bindings = append(bindings, rbacv1.RoleBinding{
				ObjectMeta: o.ObjectMeta, RoleRef: o.RoleRef, Subjects: o.Subjects,
			})
		case *rbacv1.RoleBinding:
			bindings = append(bindings, *o)
		default:
			t.Errorf("a %T does not belong into this file", obj)
		}
	}
	grants := map[string]granted{Name: {}, approver: {}}
	bound := make(map[string]bool)
	for _, b := range bindings {
		account, _, _ := strings.Cut(strings.TrimPrefix(b.RoleRef.Name, "openyurt:"), ":")
		want := rbacv1.Subject{Kind: "ServiceAccount", Name: account, Namespace: "kube-system"}
		if len(b.Subjects) != 1 || b.Subjects[0] != want || grants[account] == nil {
			t.Fatalf("binding %s/%s is for %v, want only %v", b.Namespace, b.Name, b.Subjects, want)
		}
		key := b.Namespace + "/" + b.RoleRef.Name
		if b.RoleRef.Kind == "ClusterRole" {
			key = "/" + b.RoleRef.Name
		}
		if _, ok := rules[key]; !ok || bound[key] {
			t.Errorf("binding %s/%s refers to a role that is not in the file, or bound already", b.Namespace, b.Name)
		}
		grants[account][b.Namespace] = append(grants[account][b.Namespace], rules[key]...)
		bound[key] = true
	}
	if len(off) == 0 && accounts != len(grants) || len(rules) != len(bound) {
		t.Errorf("%d ServiceAccounts, want %d; %d roles, bound are %d", accounts, len(grants), len(rules), len(bound))
	}
	return grants
}

// allows asks Kubernetes' own comparison of rules, whether what is granted includes this one request. A request without
// a name is included only in a rule that is not limited to names.
func (g granted) allows(verb, group, resource, namespace, name string) bool {
	request := rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}}
	if name != "" {
		request.ResourceNames = []string{name}
	}
	rules := slices.Clone(g[""])
	if namespace != "" {
		rules = append(rules, g[namespace]...)
	}
	allowed, _ := validation.Covers(rules, []rbacv1.PolicyRule{request})
	return allowed
}

type right struct {
	verb, group, resource, namespace, name string
	want                                   bool
}

func (g granted) expect(t *testing.T, who string, rights []right) {
	t.Helper()
	for _, r := range rights {
		if got := g.allows(r.verb, r.group, r.resource, r.namespace, r.name); got != r.want {
			t.Errorf("%s: %s %s %s/%s: allowed %t, want %t", who, r.verb, r.resource, r.namespace, r.name, got, r.want)
		}
	}
	for namespace, rules := range g {
		for _, rule := range rules {
			for _, word := range slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames) {
				// Each pool has a signer, and RBAC has this form for all of a domain.
				ours := word == operators.SignerPrefix+"*" && slices.Equal(rule.Resources, []string{"signers"})
				elsewhere := namespace != "kube-system" && namespace != edge.NamespaceKeys
				if strings.Contains(word, "*") && !ours || word == "secrets" && elsewhere {
					t.Errorf("%s: %q in namespace %q: %+v", who, word, namespace, rule)
				}
			}
			if len(rule.NonResourceURLs) != 0 {
				t.Errorf("%s is granted URLs: %v", who, rule.NonResourceURLs)
			}
		}
	}
}

// TestWhoApprovesDoesNotAsk, nor the other way round: so neither alone can have a certificate of its own choice.
func TestWhoApprovesDoesNotAsk(t *testing.T) {
	const certificates = "certificates.k8s.io"
	load(t)[approver].expect(t, approver, []right{
		{"list", certificates, "certificatesigningrequests", "", "", true},
		{"watch", certificates, "certificatesigningrequests", "", "", true},
		{"update", certificates, "certificatesigningrequests/approval", "", "c", true},
		{"approve", certificates, "signers", "", "kubernetes.io/kubelet-serving", true},
		{"approve", certificates, "signers", "", "kubernetes.io/kube-apiserver-client", true},
		{"approve", certificates, "signers", "", "hub.openyurt.io/serving", true},
		{"sign", certificates, "signers", "", "hub.openyurt.io/serving", false},
		{"list", "", "nodes", "", "", true},
		{"watch", "", "nodes", "", "", true},
		{"list", "", "services", "", "", true},
		{"list", "discovery.k8s.io", "endpointslices", "default", "", true},
		{"get", "", "configmaps", "kube-public", "cluster-info", true},
		{"create", "events.k8s.io", "events", "default", "", true},
		{"create", "authentication.k8s.io", "tokenreviews", "", "", true},
		{"create", "authorization.k8s.io", "subjectaccessreviews", "", "", true},

		{"create", certificates, "certificatesigningrequests", "", "", false},
		{"patch", certificates, "certificatesigningrequests", "", "c", false},
		{"update", certificates, "certificatesigningrequests/status", "", "c", false},
		{"approve", certificates, "signers", "", "kubernetes.io/kube-apiserver-client-kubelet", false},
		{"approve", certificates, "signers", "", "coordinator.openyurt.io/*", false},
		{"sign", certificates, "signers", "", "kubernetes.io/kube-apiserver-client", false},
		{"patch", "", "nodes", "", "n1", false},
		{"watch", "", "services", "", "", false},
		{"list", "discovery.k8s.io", "endpointslices", "", "", false},
		{"get", "", "configmaps", "kube-public", "any", false},
		{"get", "", "secrets", "kube-system", "s", false},
		{"list", "", "pods", "", "", false},
		{"create", "", "serviceaccounts/token", "kube-system", Name, false},
		{"get", "coordination.k8s.io", "leases", "kube-system", Name, false},
	})
}

// TestRightsFollowTheSwitches: a controller that is off leaves only what it takes to clean up after it.
func TestRightsFollowTheSwitches(t *testing.T) {
	const certificates, rbac, apps = "certificates.k8s.io", "rbac.authorization.k8s.io", "apps.openyurt.io"
	load(t, "poolsettings", "appsets")[Name].expect(t, "with coordinators alone", []right{
		{"create", "", "pods", "kube-system", "", false},
	})
	load(t, "coordinators", "signer", "keys", "poolsettings")[Name].expect(t, "without coordinators", []right{
		{"create", "", "secrets", "kube-system", "", false},
		{"update", "", "secrets", "kube-system", "yurt-coordinator-p1-certs", false},
		{"get", "", "secrets", edge.NamespaceKeys, "yurt-coordinator-p1-ca", false},
		{"list", certificates, "certificatesigningrequests", "", "", false},
		{"create", certificates, "certificatesigningrequests", "", "", false},
		{"update", certificates, "certificatesigningrequests/status", "", "c", false},
		{"sign", certificates, "signers", "", "hub.openyurt.io/serving", false},
		{"create", rbac, "roles", "kube-node-lease", "", false},
		{"escalate", rbac, "roles", "kube-node-lease", "heartbeat-forwarder-p1", false},
		{"create", rbac, "rolebindings", "kube-system", "", false},
		{"create", "", "services", "kube-system", "", false},
		{"patch", apps, "yurtappsets", "kube-system", "yurt-coordinator", false},
		{"create", apps, "yurtcoordinators", "", "", false},
		{"delete", apps, "yurtcoordinators", "", "p1", false},
		{"delete", "coordination.k8s.io", "leases", "kube-node-lease", "yurt-coordinator-p1", false},

		{"patch", apps, "yurtcoordinators", "", "p1", true}, // its finalizer
		{"delete", "", "configmaps", "kube-system", edge.ConfigMapCoordinatedPools, true},
		{"create", "apps", "deployments", "kube-system", "", true},
		{"create", "", "pods", "kube-system", "", true}, // those that pull an image of a YurtAppSet
		{"patch", "", "nodes", "", "n1", true},
	})
	load(t, "appsets")[Name].expect(t, "without YurtAppSets", []right{
		{"create", "apps", "deployments", "kube-system", "", false},
		{"patch", "apps", "deployments", "kube-system", "yurt-coordinator-p1", false},
		{"list", "apps", "statefulsets", "", "", false},
		{"update", apps, "yurtappsets/status", "", "s", false},

		{"patch", "apps", "deployments", "kube-system", Name, true}, // which is stopped
		{"patch", apps, "yurtappsets", "kube-system", "yurt-coordinator", true},
		{"create", "", "secrets", "kube-system", "", true},
	})
	load(t, "coordinators")[Name].expect(t, "with the signer alone", []right{
		{"create", "", "secrets", "kube-system", "", false},
		{"create", certificates, "certificatesigningrequests", "", "", false},
		{"update", certificates, "certificatesigningrequests/status", "", "c", true},
		{"get", "", "secrets", edge.NamespaceKeys, "yurt-coordinator-p1-hubs", true},
	})
	load(t, "poolsettings")[Name].expect(t, "without pool settings", []right{
		{"create", "", "pods", "kube-system", "", true}, // those that pull an image of a YurtAppSet

		{"list", apps, "poolsettings", "", "", false},
		{"patch", apps, "poolsettings/status", "", "p1", false},

		{"delete", "", "configmaps", "kube-system", "yurthub-settings-p1", true}, // what it has left
		{"delete", rbac, "roles", "kube-system", "yurthub-settings-p1", true},
		{"delete", rbac, "rolebindings", "kube-system", "yurthub-settings-p1", true},
		{"delete", "", "pods", "kube-system", "yurthub-upgrade-n1", true},
	})
	load(t, "coordinators")[Name].expect(t, "with pool settings alone", []right{
		{"create", rbac, "roles", "kube-system", "", true},
		{"patch", rbac, "rolebindings", "kube-system", "yurthub-settings-p1", true},
		{"create", rbac, "roles", "kube-node-lease", "", false},
	})
	if grants := load(t, "approver")[approver]; len(grants) != 0 {
		t.Errorf("an approver that is off is granted %v", grants)
	}
}

func TestManifestGrantsWhatIsNeeded(t *testing.T) {
	const coordination, events, certificates = "coordination.k8s.io", "events.k8s.io", "certificates.k8s.io"
	const rbac, apps = "rbac.authorization.k8s.io", "apps.openyurt.io"
	load(t)[Name].expect(t, Name, []right{
		{"list", "", "nodes", "", "", true},
		{"watch", "", "nodes", "", "", true},
		{"patch", "", "nodes", "", "n1", true},
		{"patch", "", "nodes/status", "", "n1", true},
		{"list", "", "pods", "", "", true},
		{"watch", "", "pods", "", "", true},
		{"get", "", "pods", "default", "p", true},
		{"create", "", "pods", "kube-system", "", true}, // of its names, as a policy says
		{"delete", "", "pods", "kube-system", "yurthub-upgrade-n1", true},
		{"delete", "", "pods", "default", "p", false},
		{"patch", "", "pods", "default", "p", true},
		{"get", certificates, "certificatesigningrequests", "", "c", true},
		{"list", certificates, "certificatesigningrequests", "", "", true},
		{"watch", certificates, "certificatesigningrequests", "", "", true},
		{"create", certificates, "certificatesigningrequests", "", "", true},
		{"update", certificates, "certificatesigningrequests/status", "", "c", true},
		{"sign", certificates, "signers", "", "coordinator.openyurt.io/*", true},
		{"sign", certificates, "signers", "", "hub.openyurt.io/serving", true},
		{"approve", certificates, "signers", "", "hub.openyurt.io/serving", false},
		{"delete", certificates, "certificatesigningrequests", "", "yurt-coordinator-p1-kubelet-client-0", false},
		{"get", "", "secrets", edge.NamespaceKeys, "yurt-coordinator-p1-ca", true},
		{"patch", "", "secrets", edge.NamespaceKeys, "yurt-coordinator-p1-ca", true},
		{"list", "", "secrets", edge.NamespaceKeys, "", false},
		{"create", "", "secrets", "kube-system", "", true},
		{"update", "", "secrets", "kube-system", "yurt-coordinator-p1-certs", true}, // of its names, as a policy says
		{"patch", "", "secrets", "kube-system", "yurt-coordinator-p1-certs", false}, // it could read any of them so
		{"get", "", "secrets", "kube-system", "yurt-coordinator-p1-certs", false},
		{"get", "", "secrets", "kube-system", "bootstrap-token-abcdef", false},
		{"list", "", "configmaps", "kube-system", "", true},
		{"create", rbac, "roles", "kube-node-lease", "", true},
		{"escalate", rbac, "roles", "kube-node-lease", "heartbeat-forwarder-p1", true},
		{"create", rbac, "rolebindings", "kube-system", "", true},
		{"patch", apps, "yurtcoordinators/status", "", "p1", true},
		{"update", apps, "nodepools/status", "", "p1", true},
		{"list", apps, "poolsettings", "", "", true},
		{"watch", apps, "poolsettings", "", "", true},
		{"patch", apps, "poolsettings/status", "", "p1", true},
		{"patch", apps, "poolsettings", "", "p1", false},
		{"patch", apps, "yurtappsets", "kube-system", "yurt-coordinator", true},
		{"patch", apps, "yurtappsets", "kube-system", "yurt-coordinator--2", true},
		{"patch", apps, "yurtappsets", "kube-system", "yurt-coordinator--3", false},
		{"list", "apps", "deployments", "", "", true},
		{"create", "apps", "deployments", "kube-system", "", true},
		{"patch", "apps", "deployments", "kube-system", "d", true}, // of its names, as a policy says
		{"create", "apps", "controllerrevisions", "kube-system", "", true},
		{"list", "apps", "replicasets", "kube-system", "", false},
		{"delete", coordination, "leases", "kube-node-lease", "yurt-coordinator-p1", true},
		{"list", coordination, "leases", "kube-node-lease", "", true},
		{"watch", coordination, "leases", "kube-node-lease", "", true},
		{"patch", coordination, "leases", "kube-node-lease", "n1", true}, // of it a policy allows one thing only
		{"create", events, "events", "default", "", true},
		{"patch", events, "events", "default", "n1.1", true},
		{"create", coordination, "leases", "kube-system", "", true},
		{"get", coordination, "leases", "kube-system", Name, true},
		{"update", coordination, "leases", "kube-system", Name, true},
		{"create", "", "events", "kube-system", "", true}, // of the leader election
		{"create", "authentication.k8s.io", "tokenreviews", "", "", true},
		{"create", "authorization.k8s.io", "subjectaccessreviews", "", "", true},

		{"update", certificates, "certificatesigningrequests/approval", "", "c", false},
		{"approve", certificates, "signers", "", "kubernetes.io/kubelet-serving", false},
		{"approve", certificates, "signers", "", "kubernetes.io/kube-apiserver-client", false},
		{"create", "apps", "deployments", "default", "", false},
		{"patch", "apps", "deployments", "default", "d", false},
		{"delete", "apps", "statefulsets", "default", "s", false},
		{"update", "apps", "deployments/scale", "kube-system", "d", false},
		{"list", "", "services", "", "", false},
		{"list", "discovery.k8s.io", "endpointslices", "default", "", false},
		{"get", "", "configmaps", "kube-public", "cluster-info", false},
		{"update", "", "nodes", "", "n1", false},
		{"delete", "", "nodes", "", "n1", false},
		{"create", "", "nodes", "", "", false},
		{"patch", "", "nodes/proxy", "", "n1", false},
		{"get", "", "nodes/proxy", "", "n1", false},
		{"update", coordination, "leases", "kube-node-lease", "n1", false},
		{"create", coordination, "leases", "kube-node-lease", "n1", false},
		{"update", coordination, "leases", "kube-system", "kube-scheduler", false},
		{"list", coordination, "leases", "kube-system", "", false},
		{"list", "", "secrets", "", "", false},
		{"get", "", "services", "default", "web", false},
		{"watch", "", "services", "", "", false},
		{"get", "", "services", "default", "kubernetes", false},
		{"list", "discovery.k8s.io", "endpointslices", "", "", false},
		{"get", "", "configmaps", "kube-public", "any", false},
		{"list", "", "configmaps", "kube-public", "", false},
		{"approve", certificates, "signers", "", "kubernetes.io/kube-apiserver-client-kubelet", false},
		{"sign", certificates, "signers", "", "kubernetes.io/kubelet-serving", false},
		{"sign", certificates, "signers", "", "kubernetes.io/kube-apiserver-client", false},
		{"approve", certificates, "signers", "", "coordinator.openyurt.io/*", false},
		{"delete", certificates, "certificatesigningrequests", "", "c", false},
		{"list", "", "secrets", "kube-system", "", false},
		{"watch", "", "secrets", "kube-system", "", false},
		{"get", "", "secrets", "default", "s", false},
		{"create", rbac, "clusterroles", "", "", false},
		{"create", rbac, "clusterrolebindings", "", "", false},
		{"escalate", rbac, "roles", "kube-system", "any", false},
		{"bind", rbac, "roles", "kube-system", "any", false},
		{"create", rbac, "roles", "default", "", false},
		{"impersonate", "", "serviceaccounts", "kube-node-lease", "heartbeat-forwarder-p1", false},
		{"patch", apps, "yurtappsets", "default", "any", false},
		{"patch", apps, "yurtappsets", "kube-system", "any", false},
		{"delete", apps, "nodepools", "", "p1", false},
		{"create", apps, "yurtcoordinators", "", "", true}, // create: Always
		{"delete", apps, "yurtcoordinators", "", "p1", true},
		{"update", apps, "yurtcoordinators", "", "p1", false},
		{"create", "apps", "daemonsets", "default", "", false},
		{"update", "", "pods", "default", "p", false},
		{"create", "", "pods", "default", "", false},
		{"patch", "", "pods/status", "default", "p", false},
		{"patch", "", "pods/ephemeralcontainers", "default", "p", false},
		{"create", "", "pods/exec", "default", "p", false},
		{"get", "", "pods/log", "default", "p", false},
		{"create", "", "pods/binding", "default", "p", false},
		{"delete", "", "pods", "default", "p", false},
		{"create", "", "pods/eviction", "default", "p", false},
		{"impersonate", "", "users", "", "admin", false},
		{"create", "", "serviceaccounts/token", "kube-system", Name, false},
	})
}
