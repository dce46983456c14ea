package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// Texts of a refusal that say what to do instead.
const (
	inTheCloud   = "change them in the cloud"
	otherAccess  = "each pool's operators have a kubeconfig for its coordinator"
	tillManifest = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new"},"spec":{"containers":[{"name":"c","image":"c"}]}}`
)

// denied are what an operator tries with kubectl, and what kubectl prints.
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
	{"explain pod", "", "ask there for kubectl explain"},
	{"explain pod --output=plaintext-openapiv2", "", "ask there for kubectl explain"},
	{"get secrets -A", "", "Secrets are read in the cloud"},
	{"get secret new -n shop", "", "Secrets are read in the cloud"},
	{"get pods -A --as=admin", "", "impersonation does not work here"},
	{"get pods -A --as=admin --as-group=system:masters", "", "impersonation does not work here"},
	{"get pods -A --as=system:serviceaccount:shop:default", "", "impersonation does not work here"},
	{"get --raw /api/v1/nodes/p1-n2/proxy/pods", "", "use kubectl logs"},
	{"get --raw /api/v1/nodes/p1-n2/proxy/run/shop/till/till?cmd=ls", "", "use kubectl logs"},
	{"get --raw /api/v1/namespaces/shop/pods/till/proxy/", "", "use kubectl port-forward"},
	{"create --raw /api/v1/namespaces/shop/pods -f -", tillManifest, inTheCloud},
	{"delete --raw /api/v1/namespaces/shop/pods/till", "", inTheCloud},
	{"create --raw /own/v1/core/v1/pods -f -", tillManifest, "forbidden"},
	{"get --raw /debug/pprof/heap", "", "forbidden"},
	{"get componentstatuses", "", "doesn't have a resource type"},
}

func opsDenied(t *kit.T) {
	deployTill(t)
	site := t.Pool.Coordinator(lab.Operator)
	var before *corev1.Pod
	t.Eventually(30*time.Second, "the coordinator shows the Pod as it is", func() (err error) {
		before, err = site.CoreV1().Pods(shop).Get(t.Ctx, till, metav1.GetOptions{})
		if err == nil && restartsOf(before) != tillRestarts {
			err = fmt.Errorf("its status: %+v", before.Status)
		}
		return err
	})
	streams := len(streamsOpened(t))

	for _, d := range denied {
		out, err := kubectlSays(t, kubectlRun{place: place{via: atSite}, args: strings.Fields(d.args), stdin: d.stdin})
		// For a Node that can't be cordoned kubectl says so, and ends with success.
		if err == nil && !strings.HasPrefix(d.args, "cordon ") || !strings.Contains(out, d.want) {
			t.Fail("kubectl %s: %v; it prints, want %q:\n%s", d.args, err, d.want, out)
		}
		t.Say("refused: kubectl %s: %s", d.args, strings.TrimSpace(firstOf(out)))
	}
	t.Figure("refused_by_kubectl", float64(len(denied)))
	othersDenied(t, before)
	foreignObjects(t, site)

	node, err := site.CoreV1().Nodes().Get(t.Ctx, tillNode, metav1.GetOptions{})
	t.Must(err)
	if node.Spec.Unschedulable || len(node.Spec.Taints) > 0 || node.Annotations["a"] != "" {
		t.Fail("the Node has changed: %+v", node)
	}
	after, err := site.CoreV1().Pods(shop).Get(t.Ctx, till, metav1.GetOptions{})
	t.Must(err)
	if !equality.Semantic.DeepEqual(withoutReports(after), withoutReports(before)) {
		t.Fail("the Pod has changed: it was %+v, and is %+v", before, after)
	}
	stranger := t.Pool.Coordinator("p2-n1")
	t.Eventually(10*time.Second, "refusals are in the audit log", func() error {
		// Of very many in a second only some have lines, so these two are tried once more.
		gone := site.CoreV1().Pods(shop).Delete(t.Ctx, till, metav1.DeleteOptions{})
		_, listed := stranger.CoreV1().Pods("").List(t.Ctx, metav1.ListOptions{})
		if !apierrors.IsForbidden(gone) || !apierrors.IsForbidden(listed) {
			t.Fail("refused before, and now: %v, %v", gone, listed)
		}
		if _, others := t.Pool.CoordinatorSays(); !slices.ContainsFunc(others, func(l string) bool {
			return strings.Contains(l, "Refused a connection")
		}) {
			return errors.New("the log has no connection that was refused")
		}
		return errors.Join(
			t.Pool.Audited(edge.PoolName("p1").OperatorUser(), "/api/v1/namespaces/shop/pods/till", inTheCloud),
			t.Pool.Audited(edge.NodeName("p2-n1").User(), "/api/v1/pods", "does not belong to this pool"))
	})
	if lines := streamsOpened(t)[streams:]; len(lines) != 0 {
		t.Fail("streams were opened: %v", lines)
	}
}

// withoutReports returns a Pod without its status and all else that a report of kubelet changes, because kubelet may report at
// any time. Another writer of the status can still be seen among the managed fields.
func withoutReports(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Status, p.ResourceVersion = corev1.PodStatus{}, ""
	p.ManagedFields = slices.DeleteFunc(p.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "kubelet" && f.Subresource == "status"
	})
	return p
}

func firstOf(out string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
	return line
}

// othersDenied tries what others' certificates must not do.
func othersDenied(t *kit.T, pod *corev1.Pod) {
	other, err := t.Lab.CoordinatorConfig(2, lab.Operator)
	t.Must(err)
	access, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	ours := rest.CopyConfig(access)
	ours.CertData, ours.KeyData = other.CertData, other.KeyData
	foreign := t.Client(ours)
	for _, c := range []struct {
		who    string
		client kubernetes.Interface
		is     func(error) bool
		says   string
	}{
		{"the operator of p2", foreign, shutOut, ""},
		{"a stranger", t.Pool.Coordinator(unknownCertificate), shutOut, ""},
		{"an expired certificate", t.Pool.Coordinator(expiredCertificate), apierrors.IsUnauthorized, "expired"},
		{"an administrator of the cloud", t.Pool.Coordinator("admin"), apierrors.IsForbidden, otherAccess},
		{"another node of the pool", t.Pool.Coordinator("p1-n1"), apierrors.IsForbidden, ""},
		{"a node of p2", t.Pool.Coordinator("p2-n1"), apierrors.IsForbidden, ""},
	} {
		core := c.client.CoreV1()
		_, list := core.Pods("").List(t.Ctx, metav1.ListOptions{})
		_, secrets := core.Secrets("").List(t.Ctx, metav1.ListOptions{})
		_, patched := core.Pods(shop).Patch(t.Ctx, till, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
			metav1.PatchOptions{})
		_, log := core.Pods(shop).GetLogs(till, &corev1.PodLogOptions{Container: till}).DoRaw(t.Ctx)
		stream := func(name string) error {
			return core.RESTClient().Post().Namespace(shop).Resource("pods").Name(till).SubResource(name).
				Param("container", till).Param("command", "ls").Do(t.Ctx).Error()
		}
		for what, err := range map[string]error{
			"lists Pods": list, "lists Secrets": secrets, "patches a Pod": patched, "reads a log": log,
			"execs": stream("exec"), "attaches": stream("attach"), "forwards a port": stream("portforward"),
			"deletes a Pod": core.Pods(shop).Delete(t.Ctx, till, metav1.DeleteOptions{
				Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
			}),
		} {
			if err == nil || !c.is(err) || !strings.Contains(err.Error(), c.says) && what != "reads a log" {
				t.Fail("%s %s: %v; want %q", c.who, what, err, c.says)
			}
		}
		t.Say("refused: %s", c.who)
	}
	nobody := rest.AnonymousClientConfig(access)
	nobody.BearerToken = "guessed"
	client := t.Client(nobody)
	if _, err = client.CoreV1().Pods("").List(t.Ctx, metav1.ListOptions{}); err == nil || !shutOut(err) {
		t.Fail("a token without a certificate: %v", err)
	}
	strangerDenied(t, "p2-n1")
}

// shutOut reports whether the handshake was refused.
func shutOut(err error) bool { return kit.ShutOut(err.Error()) }

// strangerDenied tries what a node may do at its own pool's coordinator, as a node of another pool.
func strangerDenied(t *kit.T, node string) {
	client := t.Pool.Coordinator(node)
	leases := client.CoordinationV1()
	beats, system := leases.Leases(corev1.NamespaceNodeLease), leases.Leases(edge.NamespaceSystem)
	_, created := beats.Create(t.Ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &node},
	}, metav1.CreateOptions{})
	_, stands := system.Patch(t.Ctx, edge.LeaseElection, types.MergePatchType,
		[]byte(`{"spec":{"holderIdentity":"`+node+`"}}`), metav1.PatchOptions{})
	_, shared := client.DiscoveryV1().EndpointSlices("").List(t.Ctx, metav1.ListOptions{})
	core := client.CoreV1().RESTClient()
	for what, err := range map[string]error{
		"makes a Lease of its own": created, "stands for election": stands, "reads EndpointSlices": shared,
		"asks for its own objects": core.Get().AbsPath(edge.PathOwn).Do(t.Ctx).Error(),
		"pushes its own Node":      core.Post().AbsPath(edge.PathOwn, edge.CoreGroup, "v1", "nodes").Do(t.Ctx).Error(),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "does not belong to this pool") {
			t.Fail("%s, of another pool, %s: %v", node, what, err)
		}
	}
	t.Say("refused: %s whatever it does as a node", node)
}

// foreignObjects expects that nothing of another pool is shown.
func foreignObjects(t *kit.T, site kubernetes.Interface) {
	nodes, err := site.CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	pods, err := site.CoreV1().Pods("").List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	var names []string
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	for i := range pods.Items {
		names = append(names, pods.Items[i].Spec.NodeName)
	}
	if i := slices.IndexFunc(names, func(n string) bool { return !strings.HasPrefix(n, "p1-") }); i >= 0 || len(names) == 0 {
		t.Fail("shown are %v, want those of p1 alone", names)
	}
}
