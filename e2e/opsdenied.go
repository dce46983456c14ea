package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

// What a refusal says must be done instead.
const (
	inTheCloud   = "change it in the cloud"
	otherAccess  = "each pool's operators have a kubeconfig for its coordinator"
	tillManifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"c"}]}}`
)

// denied are what an operator tries with kubectl, and what it prints.
var denied = []struct{ args, stdin, want string }{
	{"create namespace new", "", inTheCloud},
	{"create -n shop --validate=false -f -", tillManifest, inTheCloud},
	{"create -n shop --validate=false -f -", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"new"}}`, inTheCloud},
	{"create -n shop -f -", tillManifest, inTheCloud},
	{"apply -n shop -f -", tillManifest, inTheCloud},
	{"apply -n shop --server-side --validate=false -f -", tillManifest, inTheCloud},
	{"apply -n shop --validate=false -f -", tillManifest, inTheCloud},
	{"replace -n shop --validate=false -f -", strings.ReplaceAll(tillManifest, `"new"`, `"till"`), inTheCloud},
	{"run new -n shop --image=c", "", inTheCloud},
	{"delete pod till -n shop --wait=false", "", inTheCloud},
	{"delete pods --all -n shop --wait=false", "", inTheCloud},
	{"delete node p1-n2 --wait=false", "", inTheCloud},
	{"delete namespace shop --wait=false", "", inTheCloud},
	{"label pod till -n shop a=b", "", inTheCloud},
	{"annotate node p1-n2 a=b", "", inTheCloud},
	{"patch pod till -n shop -p {\"metadata\":{\"labels\":{\"a\":\"b\"}}}", "", inTheCloud},
	{"set image pod/till till=c -n shop", "", inTheCloud},
	{"cordon p1-n2", "", inTheCloud},
	{"drain p1-n2 --force --ignore-daemonsets --delete-emptydir-data", "", inTheCloud},
	{"taint node p1-n2 a=b:NoSchedule", "", inTheCloud},
	{"debug till -n shop --image=c", "", inTheCloud},
	{"create token default -n shop", "", inTheCloud},
	{"create rolebinding me --clusterrole=openyurt:operator --user=me", "", inTheCloud},
	{"scale deployment web --replicas=1 -n shop", "", `doesn't have a resource type "deployment"`},
	{"rollout restart deployment/web -n shop", "", `doesn't have a resource type "deployment"`},
	{"explain pod --output=plaintext-openapiv2", "", "serves OpenAPI v3 only"},
	{"get secrets -A", "", "Secrets are read in the cloud"},
	{"get secret new -n shop", "", "Secrets are read in the cloud"},
	{"get pods -A --as=admin", "", "nobody acts as somebody else here"},
	{"get pods -A --as=admin --as-group=system:masters", "", "nobody acts as somebody else here"},
	{"get pods -A --as=system:serviceaccount:shop:default", "", "nobody acts as somebody else here"},
	{"get --raw /api/v1/nodes/p1-n2/proxy/pods", "", "use kubectl logs"},
	{"get --raw /api/v1/nodes/p1-n2/proxy/run/shop/till/till?cmd=ls", "", "use kubectl logs"},
	{"get --raw /api/v1/namespaces/shop/pods/till/proxy/", "", "use kubectl port-forward"},
	{"create --raw /api/v1/namespaces/shop/pods -f -", tillManifest, inTheCloud},
	{"delete --raw /api/v1/namespaces/shop/pods/till", "", inTheCloud},
	{"create --raw /own/v1/core/v1/pods -f -", tillManifest, "forbidden"},
	{"get --raw /debug/pprof/heap", "", "forbidden"},
	{"get componentstatuses", "", "it is not shown here"},
}

func opsDenied(t *T) {
	t.deployTill()
	site := t.coordinator(lab.Operator)
	var before *corev1.Pod
	t.eventually(30*time.Second, "the coordinator shows the Pod as it is", func() (err error) {
		before, err = site.CoreV1().Pods(shop).Get(t.ctx, till, metav1.GetOptions{})
		if err == nil && restartsOf(before) != tillRestarts {
			err = fmt.Errorf("its status: %+v", before.Status)
		}
		return err
	})
	marker, streams := len(t.refusals()), len(t.audited())

	for _, d := range denied {
		out, err := t.kubectlSays(kubectlRun{place: place{via: atSite}, args: strings.Fields(d.args), stdin: d.stdin})
		// Of a Node that can't be cordoned kubectl says so, and ends with success.
		if err == nil && !strings.HasPrefix(d.args, "cordon ") || !strings.Contains(out, d.want) {
			t.fail("kubectl %s: %v; it prints, want %q:\n%s", d.args, err, d.want, out)
		}
		t.say("refused: kubectl %s: %s", d.args, strings.TrimSpace(firstOf(out)))
	}
	t.figure("refused_by_kubectl", float64(len(denied)))
	t.othersDenied(before)
	t.foreignObjects(site)

	node, err := site.CoreV1().Nodes().Get(t.ctx, tillNode, metav1.GetOptions{})
	t.must(err)
	if node.Spec.Unschedulable || len(node.Spec.Taints) > 0 || node.Annotations["a"] != "" {
		t.fail("the Node has changed: %+v", node)
	}
	after, err := site.CoreV1().Pods(shop).Get(t.ctx, till, metav1.GetOptions{})
	t.must(err)
	if after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
		t.fail("the Pod has changed: %+v", after.ObjectMeta)
	}
	t.eventually(10*time.Second, "refusals are in the audit log", func() error {
		lines := t.refusals()[marker:]
		for _, want := range []string{
			`"code":403,"user":"openyurt:operator:p1","verb":"delete","path":"/api/v1/namespaces/shop/pods/till"`,
			`"code":401,"claimedSubject":"CN=openyurt:operator:p2`,
			`"code":403,"user":"system:node:p2-n1"`,
		} {
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
				return fmt.Errorf("none of %d lines has %s", len(lines), want)
			}
		}
		return nil
	})
	if lines := t.audited()[streams:]; len(lines) != 0 {
		t.fail("streams were opened: %v", lines)
	}
}

func firstOf(out string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return line
}

// othersDenied tries what certificates of others must not do.
func (t *T) othersDenied(pod *corev1.Pod) {
	other, err := t.lab.CoordinatorConfig(2, lab.Operator)
	t.must(err)
	access, err := t.lab.CoordinatorConfig(1, lab.Operator)
	t.must(err)
	ours := rest.CopyConfig(access)
	ours.CertData, ours.KeyData = other.CertData, other.KeyData
	foreign, err := kubernetes.NewForConfig(ours)
	t.must(err)
	for _, c := range []struct {
		who    string
		client kubernetes.Interface
		is     func(error) bool
		says   string
	}{
		{"the operator of p2", foreign, apierrors.IsUnauthorized, otherAccess},
		{"a stranger", t.coordinator(unknownCertificate), apierrors.IsUnauthorized, otherAccess},
		{"an expired certificate", t.coordinator(expiredCertificate), apierrors.IsUnauthorized, "expired"},
		{"an administrator of the cloud", t.coordinator("admin"), apierrors.IsForbidden, otherAccess},
		{"another node of the pool", t.coordinator("p1-n1"), apierrors.IsForbidden, ""},
		{"a node of p2", t.coordinator("p2-n1"), apierrors.IsForbidden, ""},
	} {
		core := c.client.CoreV1()
		_, list := core.Pods("").List(t.ctx, metav1.ListOptions{})
		_, secrets := core.Secrets("").List(t.ctx, metav1.ListOptions{})
		_, patched := core.Pods(shop).Patch(t.ctx, till, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{})
		_, log := core.Pods(shop).GetLogs(till, &corev1.PodLogOptions{Container: till}).DoRaw(t.ctx)
		stream := func(name string) error {
			return core.RESTClient().Post().Namespace(shop).Resource("pods").Name(till).SubResource(name).
				Param("container", till).Param("command", "ls").Do(t.ctx).Error()
		}
		for what, err := range map[string]error{
			"lists Pods": list, "lists Secrets": secrets, "patches a Pod": patched, "reads a log": log,
			"execs": stream("exec"), "attaches": stream("attach"), "forwards a port": stream("portforward"),
			"deletes a Pod": core.Pods(shop).Delete(t.ctx, till, metav1.DeleteOptions{
				Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			}),
		} {
			if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.says) && what != "reads a log" {
				t.fail("%s %s: %v; want %q", c.who, what, err, c.says)
			}
		}
		t.say("refused: %s", c.who)
	}
	t.strangerDenied("p2-n1")
}

// strangerDenied tries what a node may do at its own pool's coordinator, as one of another.
func (t *T) strangerDenied(node string) {
	client := t.coordinator(node)
	leases := client.CoordinationV1()
	beats, system := leases.Leases(corev1.NamespaceNodeLease), leases.Leases(edge.NamespaceSystem)
	_, created := beats.Create(t.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &node},
	}, metav1.CreateOptions{})
	_, stands := system.Patch(t.ctx, edge.LeaseElection, types.MergePatchType,
		[]byte(`{"spec":{"holderIdentity":"`+node+`"}}`), metav1.PatchOptions{})
	_, shared := client.DiscoveryV1().EndpointSlices("").List(t.ctx, metav1.ListOptions{})
	core := client.CoreV1().RESTClient()
	for what, err := range map[string]error{
		"makes a Lease of its own": created, "stands for election": stands, "reads EndpointSlices": shared,
		"asks for its own objects": core.Get().AbsPath(edge.PathOwn).Do(t.ctx).Error(),
		"pushes its own Node":      core.Post().AbsPath(edge.PathOwn, edge.MirrorCoreGroup, "v1", "nodes").Do(t.ctx).Error(),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "not of this pool") {
			t.fail("%s, of another pool, %s: %v", node, what, err)
		}
	}
	t.say("refused: %s whatever it does as a node", node)
}

// foreignObjects expects that nothing of another pool is shown.
func (t *T) foreignObjects(site kubernetes.Interface) {
	nodes, err := site.CoreV1().Nodes().List(t.ctx, metav1.ListOptions{})
	t.must(err)
	pods, err := site.CoreV1().Pods("").List(t.ctx, metav1.ListOptions{})
	t.must(err)
	var names []string
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	for i := range pods.Items {
		names = append(names, pods.Items[i].Spec.NodeName)
	}
	if i := slices.IndexFunc(names, func(n string) bool { return !strings.HasPrefix(n, "p1-") }); i >= 0 || len(names) == 0 {
		t.fail("shown are %v, want those of p1 alone", names)
	}
}
