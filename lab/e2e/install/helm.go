package install

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var helmScenarios = []kit.Scenario{{
	Name: "helm", Tier: kit.Field, Lab: kit.OnePool.AsInstalled(), Run: helmLife,
	Pages: append([]kit.Reading{beforeUninstall, uninstall, cleanUp}, installAnew...),
	Doc: "Helm takes over what kubectl has applied, upgrades it while the coordinator runs on, and uninstalls it, by the " +
		"commands of `docs/install.md`. What is left is what that page says, and nothing else. Then it is installed anew.",
}}

// The commands of docs/install.md that take everything away: those while the controller still runs, then helm uninstall, and
// then those about what is left.
var (
	beforeUninstall = kit.Reading{
		Page: "docs/install.md",
		Only: []string{
			"kubectl delete yurtcoordinators --all", "kubectl label nodes --all", "kubectl wait nodepools",
			"kubectl delete nodepools --all",
		},
		Notes: []kit.Note{{Begins: "kubectl delete nodepools --all", After: func(r *kit.Reader) { r.Cloud.Gone("p1", "p1") }}},
	}
	uninstall = kit.Reading{
		Page: "docs/install.md", Only: []string{"helm uninstall"}, Notes: []kit.Note{{Within: 3 * time.Minute}},
	}
	cleanUp = kit.Reading{
		Page: "docs/install.md",
		Only: []string{"kubectl delete crd", "kubectl -n kube-system delete service", "kubectl delete namespace"},
	}
	// installAnew are the commands of pages that install what has been taken away before.
	installAnew = []kit.Reading{
		{
			Page: "docs/install.md", Only: []string{"helm install"},
			Notes: []kit.Note{{Within: 3 * time.Minute, After: takenAway}},
		},
		{
			Page: "deploy/charts/yurt-coordinator/README.md", Only: []string{"helm install"},
			Notes: []kit.Note{{Within: 3 * time.Minute, After: takenAway}},
		},
	}
)

// takenAway waits until the controller runs, and uninstalls the chart.
func takenAway(r *kit.Reader) {
	r.Run("kubectl --namespace kube-system rollout status deployment coordinator-controller --timeout=50s")
	r.Run("helm uninstall yurt-coordinator --namespace kube-system")
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
	t.Eventually(20*time.Second, "the YurtCoordinator is Ready", func() error {
		return t.Cloud.Condition("p1", "Ready", "True", "")
	})

	t.Say("taking it away")
	r := t.NewReader()
	r.Read(beforeUninstall)
	r.Read(uninstall)
	t.Eventually(60*time.Second, "what is left is what the documentation says", func() error {
		return leftAre(t, leftByHelm, false) // and what goes with it
	})
	r.Read(cleanUp)
	t.Eventually(60*time.Second, "nothing is left", func() error { return leftAre(t, nil, true) })
	for _, name := range t.Pool.Nodes() {
		t.NeverNotReady(began, name)
		t.Eventually(30*time.Second, "nothing is left on "+name, func() error { return nothingOn(t, name) })
	}

	t.Say("installing anew, as pages say")
	for _, x := range installAnew {
		r.Read(x)
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

// ours returns the UIDs of all objects in the cloud that the system made, by "resource namespace/name". Objects that have an
// owner, and are deleted with it, are left out unless owned is true.
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

// nothingOn fails unless a Node has nothing of ours, and its hub is a plain one.
func nothingOn(t *kit.T, name string) error {
	if left := traces(node(t, name)); len(left) > 0 {
		return fmt.Errorf("there is left %v", left)
	}
	if h := t.Pool.Hubs()[name]; h.Role != kit.RolePending || h.Cloud != "up" {
		return fmt.Errorf("its hub says %+v", h)
	}
	return nil
}

// cloudNode returns the cloud's own node, which is in no pool.
func cloudNode(t *kit.T) string {
	all, err := t.Cloud.CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{LabelSelector: "!" + edge.LabelNodePool})
	t.Must(err)
	if len(all.Items) != 1 {
		t.Fail("%d nodes are in no pool", len(all.Items))
	}
	return all.Items[0].Name
}

func node(t *kit.T, name string) *corev1.Node {
	n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, name, metav1.GetOptions{})
	t.Must(err)
	return n
}

// traces are the marks of ours that a Node has. They leave out the annotation that others have given it.
func traces(n *corev1.Node) []string {
	var found []string
	for _, taint := range n.Spec.Taints {
		if ourNames.MatchString(taint.Key) {
			found = append(found, "taint "+taint.Key)
		}
	}
	for kind, attributes := range map[string]map[string]string{"label": n.Labels, "annotation": n.Annotations} {
		for key := range attributes {
			if key == edge.LabelExcludeDisruption || key == "site" ||
				ourNames.MatchString(key) && key != edge.AnnotationAutonomyDuration {
				found = append(found, kind+" "+key)
			}
		}
	}
	ours := []corev1.NodeConditionType{edge.ConditionCloudLinkDown, edge.ConditionEvictionsHeld, edge.ConditionPodsKept}
	for _, c := range n.Status.Conditions {
		if slices.Contains(ours, c.Type) || c.Reason == edge.ReasonCloudLinkDown {
			found = append(found, fmt.Sprintf("condition %s=%s", c.Type, c.Status))
		}
	}
	slices.Sort(found)
	return found
}
