package thief

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/prowl"
)

var kubeletScenarios = []kit.Scenario{{
	Name: "forged-kubelet", Lab: kit.OnePool.AsInstalled(), Run: forgedKubelet,
	Doc: "A kubelet that signed its own certificate is recognised by it, even by a coordinator that restarts while cut " +
		"off. Another node that reports a different certificate for it, or names its address and its certificate as its own, " +
		"and a local user who takes its port while it is down, are refused.",
}}

// kubeletsPort is where a kubelet serves.
const kubeletsPort = 10250

func forgedKubelet(t *kit.T) {
	t.Pool.Settled(60 * time.Second)
	node := t.Pool.Follower()
	other := t.Pool.Follower(node)
	deployPlain(t, node, other)
	worksOnSite(t, "signed by the cluster's authority")
	knownBy(t, "True Kubelets: 0 verified by the certificate that the node's hub reports")

	t.Say("kubelet signs its own certificate, as kubeadm's do")
	settings := filepath.Join(filepath.Dir(t.Node(node).HubKeys()), "kubelet.yaml")
	onNode(t, node, `sed -i '/^tls\(Cert\|PrivateKey\)File:/d' `+settings)
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.KubeletC))
	worksOnSite(t, "pinned")
	knownBy(t, "True Kubelets: 1 verified by the certificate that the node's hub reports")

	t.Say("another node tells of another certificate for it")
	lie := edge.KubeletServing{Way: edge.KubeletPinned, Digest: strings.Repeat("0", 64)}.String()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, edge.AnnotationKubelet, lie)
	for _, who := range []string{other, lab.Operator} {
		leases := t.Pool.Coordinator(who).CoordinationV1().Leases(corev1.NamespaceNodeLease)
		_, err := leases.Patch(t.Ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) {
			t.Fail("%s tells of %s's kubelet: %v", who, node, err)
		}
		t.Say("refused: %s: %.160s", who, err)
	}
	worksOnSite(t, "after others have tried")
	lendsItsName(t, other, node)

	t.Say("the pool is cut off, and its coordinator starts anew")
	t.Cut("pool/p1")
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, t.Pool.CoordinatorNode(), lab.Coordinator))
	t.Figure("pinned_again_s", worksOnSite(t, "cut off, at a coordinator that knew nothing"))

	t.Say("a local user holds its port while it is down")
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.KubeletC))
	end := prowls(t, node, prowl.Order{Squat: fmt.Sprintf("%s:%d", t.Node(node).Address(), kubeletsPort)})
	for _, args := range [][]string{
		{"logs", "-n", workspace, "plain-1"}, {"logs", "-n", workspace, "plain-1", "--insecure-skip-tls-verify-backend"},
		{"exec", "-n", workspace, "plain-1", "--", "echo", "secret words"},
	} {
		out, err := kubectl(t, onSite, "", args...)
		if err == nil || !strings.Contains(out, "not the one that the node's hub has reported") {
			t.Fail("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
		t.Say("refused: kubectl %s: %.300s", strings.Join(args, " "), strings.TrimSpace(out))
	}
	report := end()
	if report.Connections < 3 || report.Trusted != 0 || len(report.Said) > 0 {
		t.Fail("%d connections came to it, %d trusted it, and said %q", report.Connections, report.Trusted, report.Said)
	}
	t.Say("%d connections came to it; none trusted it, and nothing was said", report.Connections)
	t.Eventually(20*time.Second, "the coordinator's log tells", func() error {
		out, err := kubectl(t, onSite, "", "logs", "-n", edge.NamespaceSystem, "-l",
			"app.kubernetes.io/name=yurt-coordinator", "--tail=-1")
		if err != nil || !strings.Contains(out, "Refused a kubelet") {
			return errors.Join(err, errors.New(out))
		}
		return nil
	})
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.KubeletC))
	t.Heal("pool/p1")
	worksOnSite(t, "with kubelet back")
}

// lendsItsName has a node name a neighbour's address and its kubelet's certificate as its own. Nobody gets to the neighbour's
// kubelet by the node's name.
func lendsItsName(t *kit.T, liar, victim string) {
	t.Say("%s names the address and the certificate of %s", liar, victim)
	at, leases := t.Node(victim).Address(), t.Pool.Coordinator(liar).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	kubectlMust(t, "", "annotate", "node", liar, edge.AnnotationLANAddress+"="+at)
	t.Eventually(60*time.Second, "the coordinator knows that address", func() error {
		out, err := kubectl(t, onSite, "", "get", "node", liar, "-o", "jsonpath={.metadata.annotations}")
		if err == nil && !strings.Contains(out, `"`+at+`"`) {
			err = errors.New(out)
		}
		return err
	})
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, liar, lab.Hub)) // it would tell the truth
	seen, err := t.Pool.Coordinator(lab.Operator).CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, victim,
		metav1.GetOptions{})
	t.Must(err)
	t.Must(change(t, leases, liar, func(l *coordinationv1.Lease) {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationKubelet, seen.Annotations[edge.AnnotationKubelet])
	}))
	for _, args := range [][]string{{"logs", "-n", workspace, "plain-2"}, {"exec", "-n", workspace, "plain-2", "--", "id"}} {
		out, err := kubectl(t, onSite, "", args...)
		if err == nil || !strings.Contains(out, "the kubelet of node "+liar+" is not called") {
			t.Fail("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
		t.Say("refused: kubectl %s: %.300s", strings.Join(args, " "), strings.TrimSpace(out))
	}
	worksOnSite(t, "while another names its address and its certificate")
	kubectlMust(t, "", "annotate", "node", liar, edge.AnnotationLANAddress+"-")
	t.Must(t.Lab.Node(t.Ctx, lab.Start, liar, lab.Hub))
	t.Pool.Settled(60 * time.Second)
}

// onNode runs a shell command on a node.
func onNode(t *kit.T, node, command string) {
	if out, err := t.Lab.Output(t.Ctx, node, "sh", "-euc", command); err != nil {
		t.Fail("%s on %s: %w: %s", command, node, err, out)
	}
}

// worksOnSite waits until the coordinator gets into the Pod, and returns how many seconds that took.
func worksOnSite(t *kit.T, how string) float64 {
	start := time.Now()
	t.Eventually(90*time.Second, how+": logs and exec work at the coordinator", func() error {
		if out, err := kubectl(t, onSite, "", "logs", "-n", workspace, "plain-1"); err != nil {
			return errors.Join(err, errors.New(out))
		}
		out, err := kubectl(t, onSite, "", "exec", "-n", workspace, "plain-1", "--", "echo", "on", "site")
		if err != nil {
			return fmt.Errorf("exec: %w, it prints %s", err, out)
		}
		if !strings.Contains(out, "on site") {
			return fmt.Errorf("exec prints %s", out)
		}
		return nil
	})
	return time.Since(start).Seconds()
}

// knownBy waits until the YurtCoordinator says how kubelets are known.
func knownBy(t *kit.T, want string) {
	t.Eventually(60*time.Second, "the YurtCoordinator says how kubelets are known", func() error {
		said := kubectlMust(t, "", "get", "yurtcoordinators", "-o",
			`jsonpath={range .items[*].status.conditions[?(@.type=="KubeletsVerifiable")]}{.status} {.message}{end}`)
		if !strings.HasPrefix(said, want) {
			return fmt.Errorf("it says %q, want %q", said, want)
		}
		return nil
	})
}
