package install

import (
	"fmt"
	"maps"
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

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var helmScenarios = []kit.Scenario{{
	Name: "helm", Lab: kit.OnePool.AsInstalled(), Run: helmLife,
	Doc: "Helm takes over what kubectl has applied, upgrades it while the coordinator runs on, and uninstalls it. What is " +
		"left is what `docs/install.md` says, and nothing else.",
}}

// beforeUninstall is what docs/install.md says to do while the controller runs.
var beforeUninstall = [][]string{
	{"delete", "yurtcoordinators", "--all", "--timeout=1m"},
	{"label", "nodes", "--all", edge.LabelNodePool + "-"},
	{"wait", "nodepools", "--all", "--for=jsonpath={.status.readyNodeNum}=0", "--timeout=1m"},
	{"wait", "nodepools", "--all", "--for=jsonpath={.status.unreadyNodeNum}=0", "--timeout=1m"},
	{"delete", "nodepools", "--all", "--timeout=1m"},
}

// leftByHelm is what remains after that and helm uninstall.
var leftByHelm = []string{
	"customresourcedefinitions /nodepools.apps.openyurt.io",
	"customresourcedefinitions /poolsettings.apps.openyurt.io",
	"customresourcedefinitions /yurtappsets.apps.openyurt.io",
	"customresourcedefinitions /yurtcoordinators.apps.openyurt.io",
	"leases kube-system/coordinator-controller",
	"namespaces /yurt-coordinator-system",
	"services kube-system/yurt-coordinator-apiserver",
	"yurtappsets kube-system/yurt-coordinator",
}

// cleanUp is what docs/install.md says to do about it.
var cleanUp = [][]string{
	{"delete", "crd", "poolsettings.apps.openyurt.io", "yurtcoordinators.apps.openyurt.io", "yurtappsets.apps.openyurt.io",
		"nodepools.apps.openyurt.io", "--timeout=1m"},
	{"-n", "kube-system", "delete", "service/yurt-coordinator-apiserver", "lease/coordinator-controller", "--timeout=1m"},
	{"delete", "namespace", "yurt-coordinator-system", "--timeout=1m"},
}

func helmLife(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	before, pod := ours(t, true), t.Pool.CoordinatorPod()
	began := time.Now()
	helm(t, "upgrade", "--install", "--take-ownership", "--force-conflicts", "--wait", "--timeout=2m")
	for name, uid := range ours(t, true) {
		if was := before[name]; was != "" && was != uid {
			t.Fail("Helm has made %s anew", name)
		}
	}

	helm(t, "test", "--timeout=2m")

	t.Say("upgrading with other values")
	upgrade := time.Now()
	helm(t, "upgrade", "--force-conflicts", "--wait", "--timeout=2m", "--set=controller.verbosity=2")
	t.Figure("helm_upgrade_s", time.Since(upgrade).Seconds())
	d, err := t.Cloud.AppsV1().Deployments(edge.NamespaceSystem).Get(t.Ctx, string(lab.CoordinatorController),
		metav1.GetOptions{})
	t.Must(err)
	if !rolledOut(d) || !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--v=2") {
		t.Fail("after the upgrade: %+v, %q", d.Status, d.Spec.Template.Spec.Containers[0].Args)
	}
	if now := t.Pool.CoordinatorPod(); now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Fail("the coordinator is another than before the upgrade: %s", now.Name)
	}
	t.Must(t.Cloud.Condition("p1", "Ready", "True", ""))

	t.Say("taking it away")
	t.Kubectls(beforeUninstall)
	t.Cloud.Gone("p1", "p1")
	helm(t, "uninstall", "--wait", "--timeout=2m")
	t.Eventually(60*time.Second, "what is left is what the documentation says", func() error {
		return leftAre(t, leftByHelm, false) // and what goes with it
	})
	t.Kubectls(cleanUp)
	t.Eventually(60*time.Second, "nothing is left", func() error { return leftAre(t, nil, true) })
	for _, name := range t.Pool.Nodes() {
		t.Must(t.Seen.NeverNotReady(name, began))
		nothingOn(t, name)
	}
}

func rolledOut(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
		d.Status.AvailableReplicas == *d.Spec.Replicas && d.Status.Replicas == *d.Spec.Replicas
}

func helm(t *kit.T, verb string, args ...string) {
	cmd, err := t.Lab.Helm(t.Ctx, verb, args...)
	t.Must(err)
	t.Runs(cmd)
	t.Say("helm %s %s", verb, strings.Join(args, " "))
}

func leftAre(t *kit.T, want []string, owned bool) error {
	if left := slices.Sorted(maps.Keys(ours(t, owned))); !slices.Equal(left, want) {
		return fmt.Errorf("left are\n%s\nwant\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

var (
	// ourNames match the names of all our objects. (The lab's own begin with yurtlab.)
	ourNames = regexp.MustCompile(`yurt-|openyurt|^coordinator-controller|forwarder|sh\.helm\.release`)
	// ourManagers write our objects under any name.
	ourManagers = regexp.MustCompile(`^(coordinator-controller|helm)$`)
	// passingKinds only report the past, or are what Kubernetes makes of other objects.
	passingKinds = []string{
		"events", "pods", "nodes", "endpoints", "apiservices", "componentstatuses", "certificatesigningrequests",
	}
)

// ours returns all objects of the cloud that the system made, as "resource namespace/name", with their UIDs; with owned
// also those that go with others.
func ours(t *kit.T, owned bool) map[string]string {
	lists, err := t.Cloud.Discovery().ServerPreferredResources()
	t.Must(err)
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	access.QPS, access.WarningHandler = -1, rest.NoWarnings{}
	reader, err := metadata.NewForConfig(access)
	t.Must(err)
	all := map[string]string{}
	for _, group := range lists {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		t.Must(err)
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") || slices.Contains(passingKinds, r.Name) {
				continue
			}
			list, err := reader.Resource(version.WithResource(r.Name)).List(t.Ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) { // its CRD has gone just now
				continue
			}
			t.Must(err)
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

// nothingOn expects that a Node has nothing of ours, and that its hub is a plain one.
func nothingOn(t *kit.T, name string) {
	if left := traces(node(t, name)); len(left) > 0 {
		t.Fail("on %s there is left %v", name, left)
	}
	if h := t.Pool.Hubs()[name]; h.Role != kit.RolePending || h.Cloud != "up" {
		t.Fail("the hub of %s says %+v", name, h)
	}
}
