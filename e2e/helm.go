package e2e

import (
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var helmScenarios = []Scenario{{
	Name: "helm", Lab: pool.AsInstalled(), run: helmLife,
	Doc: "Helm takes over what kubectl has applied, upgrades it with other values while the coordinator goes on, and takes it " +
		"away: what docs/install.md says is left, and nothing else",
}}

// beforeUninstall is what docs/install.md says to do while the controller runs.
var beforeUninstall = [][]string{
	{"delete", "yurtcoordinators", "--all", "--timeout=1m"},
	{"label", "nodes", "--all", edge.LabelNodePool + "-"},
	{"wait", "nodepools", "--all", "--for=jsonpath={.status.readyNodeNum}=0", "--timeout=1m"},
	{"wait", "nodepools", "--all", "--for=jsonpath={.status.unreadyNodeNum}=0", "--timeout=1m"},
	{"delete", "nodepools", "--all", "--timeout=1m"},
}

// leftByHelm is what is left after that and helm uninstall.
var leftByHelm = []string{
	"customresourcedefinitions /nodepools.apps.openyurt.io",
	"customresourcedefinitions /yurtappsets.apps.openyurt.io",
	"customresourcedefinitions /yurtcoordinators.apps.openyurt.io",
	"leases kube-system/coordinator-controller",
	"secrets kube-system/yurt-coordinator-kubelet-client",
	"services kube-system/yurt-coordinator-apiserver",
	"yurtappsets kube-system/yurt-coordinator",
}

// cleanUp is what it says for that.
var cleanUp = [][]string{
	{"delete", "crd", "yurtcoordinators.apps.openyurt.io", "yurtappsets.apps.openyurt.io", "nodepools.apps.openyurt.io",
		"--timeout=1m"},
	{"-n", "kube-system", "delete", "service/yurt-coordinator-apiserver", "secret/yurt-coordinator-kubelet-client",
		"lease/coordinator-controller", "--timeout=1m"},
}

func helmLife(t *T) {
	t.settled(30 * time.Second)
	before, pod := t.ours(true), t.coordinatorPod()
	began := time.Now()
	t.helm("upgrade", "--install", "--take-ownership", "--force-conflicts", "--wait", "--timeout=2m")
	for name, uid := range t.ours(true) {
		if was := before[name]; was != "" && was != uid {
			t.fail("Helm has made %s anew", name)
		}
	}

	t.say("upgrading with other values")
	upgrade := time.Now()
	t.helm("upgrade", "--force-conflicts", "--wait", "--timeout=2m", "--set=controller.verbosity=2")
	t.figure("helm_upgrade_s", time.Since(upgrade).Seconds())
	d, err := t.cloud.AppsV1().Deployments(edge.NamespaceSystem).Get(t.ctx, string(lab.CoordinatorController),
		metav1.GetOptions{})
	t.must(err)
	if !rolledOut(d) || !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--v=2") {
		t.fail("after the upgrade: %+v, %q", d.Status, d.Spec.Template.Spec.Containers[0].Args)
	}
	if now := t.coordinatorPod(); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.fail("the coordinator is another than before the upgrade: %s", now.Name)
	}
	t.must(t.condition("p1", "Ready", "True", ""))

	t.say("taking it away")
	t.kubectls(beforeUninstall)
	t.gone("p1", "p1")
	t.helm("uninstall", "--wait", "--timeout=2m")
	t.eventually(60*time.Second, "what is left is what the documentation says", func() error {
		return t.leftAre(leftByHelm, false) // and what goes with it
	})
	t.kubectls(cleanUp)
	t.eventually(60*time.Second, "nothing is left", func() error { return t.leftAre(nil, true) })
	for _, name := range t.nodeNames() {
		t.must(t.seen.neverNotReady(name, began))
		t.nothingOn(name)
	}
}

func (t *T) kubectls(commands [][]string) {
	for _, args := range commands {
		cmd, err := t.lab.Kubectl(t.ctx, "cloud", args)
		t.must(err)
		t.runs(cmd)
	}
}

func rolledOut(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
		d.Status.AvailableReplicas == *d.Spec.Replicas && d.Status.Replicas == *d.Spec.Replicas
}

func (t *T) helm(verb string, args ...string) {
	cmd, err := t.lab.Helm(t.ctx, verb, args...)
	t.must(err)
	t.runs(cmd)
	t.say("helm %s %s", verb, strings.Join(args, " "))
}

func (t *T) runs(cmd *exec.Cmd) {
	if out, err := cmd.CombinedOutput(); err != nil {
		t.fail("%v: %w: %s", cmd.Args, err, out)
	}
}

func (t *T) leftAre(want []string, owned bool) error {
	if left := slices.Sorted(maps.Keys(t.ours(owned))); !slices.Equal(left, want) {
		return fmt.Errorf("left are\n%s\nwant\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

var (
	// ourNames are those of everything of ours. (The lab's own begin with yurtlab.)
	ourNames = regexp.MustCompile(`yurt-|openyurt|^coordinator-controller|forwarder|sh\.helm\.release`)
	// ourManagers write what is ours under any name.
	ourManagers = regexp.MustCompile(`^(coordinator-controller|helm)$`)
	// passingKinds are told of what was, or of what Kubernetes makes of others.
	passingKinds = []string{
		"events", "pods", "nodes", "endpoints", "apiservices", "componentstatuses", "certificatesigningrequests",
	}
)

// ours are all objects of the cloud that are of the system's making, as "resource namespace/name", with their UIDs; owned,
// also those that go with others.
func (t *T) ours(owned bool) map[string]string {
	lists, err := t.cloud.Discovery().ServerPreferredResources()
	t.must(err)
	access, err := t.lab.CloudConfig()
	t.must(err)
	access.QPS, access.WarningHandler = -1, rest.NoWarnings{}
	reader, err := metadata.NewForConfig(access)
	t.must(err)
	all := map[string]string{}
	for _, group := range lists {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		t.must(err)
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(passingKinds, r.Name) {
				continue
			}
			list, err := reader.Resource(version.WithResource(r.Name)).List(t.ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) { // its CRD has gone just now
				continue
			}
			t.must(err)
			for _, o := range list.Items {
				if len(o.OwnerReferences) > 0 && !owned {
					continue
				}
				if ourNames.MatchString(o.Name) || version.Group == lab.NodePools.Group || writtenByUs(o.ManagedFields) {
					all[r.Name+" "+o.Namespace+"/"+o.Name] = string(o.UID)
				}
			}
		}
	}
	return all
}

func writtenByUs(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return ourManagers.MatchString(f.Manager) })
}

// nothingOn expects that a Node has no more of ours than what says which pool it is in, and that its hub is a plain one.
func (t *T) nothingOn(node string) {
	n, err := t.cloud.CoreV1().Nodes().Get(t.ctx, node, metav1.GetOptions{})
	t.must(err)
	for _, taint := range n.Spec.Taints {
		if ourNames.MatchString(taint.Key) {
			t.fail("%s has the taint %s", node, taint.Key)
		}
	}
	for name := range n.Annotations {
		if ourNames.MatchString(name) {
			t.fail("%s has the annotation %s", node, name)
		}
	}
	if h := t.hubs()[node]; h.Role != rolePending || h.Cloud != "up" {
		t.fail("the hub of %s says %+v", node, h)
	}
}
