package thief

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var viewerScenarios = []kit.Scenario{{
	Name: "viewer", Lab: kit.OnePool.AsInstalled(), Run: viewer,
	Doc: "A person with the chart's role `openyurt:pool-viewer` uses `kubectl yurt` in the cloud, gets no operators' " +
		"kubeconfig, and asks for a certificate that only looks. With it she sees the page, Nodes, Events and Pods on site, " +
		"but no Pod's password; whatever else she tries is refused, and the audit log has her name. Once she is denied she " +
		"sees nothing.",
}}

// password stands in a Pod's environment, arguments and probe.
const password = "hunter2"

func viewer(t *kit.T) {
	dir, err := os.MkdirTemp("", "")
	t.Must(err)
	defer func() { t.Must(os.RemoveAll(dir)) }()
	t.Pool.Settled(30 * time.Second)
	deployTill(t)

	for _, role := range []string{"openyurt:pool-viewer", "openyurt:certificate-requester"} {
		kubectlMust(t, "", "create", "clusterrolebinding", "ana-"+strings.TrimPrefix(role, "openyurt:"), "--clusterrole="+role,
			"--user=ana")
	}
	t.Eventually(30*time.Second, "ana sees the pools", func() error {
		out, err := kubectl(t, inCloud, "", "yurt", "status", "--as=ana")
		if err == nil && !strings.Contains(out, "p1") {
			err = errors.New("it shows no pool")
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	out, err := kubectl(t, inCloud, "", "yurt", "kubeconfig", "p1", "--as=ana")
	if err == nil || !strings.Contains(out, "--view") {
		t.Fail("the operators' kubeconfig, for a viewer: %v: %s", err, out)
	}
	own := "--kubeconfig=" + viewersOwn(t, dir)

	looks(t, own)
	refusals(t, own)
	audited(t, "ana", "/pods/till/exec", "a viewer's certificate only looks")

	kubectlMust(t, "", "patch", "yurtcoordinator", "p1", "--type=merge", "-p", `{"spec":{"deniedUsers":["ana"]}}`)
	took := t.Eventually(90*time.Second, "the denied viewer sees nothing", func() error {
		for _, what := range [][]string{{"get", "pods", "-A"}, {"get", "--raw", "/ui/"}} {
			out, err := kubectl(t, onSite, "", append(what, own)...)
			if err == nil || !strings.Contains(out, "certificates of this user were withdrawn") {
				return fmt.Errorf("%v: %w: %s", what, err, out)
			}
		}
		return nil
	})
	t.Figure("viewer_denied_after_s", took.Seconds())
}

// deployTill makes a Pod with a password wherever it may stand, and waits until the coordinator shows that it runs.
func deployTill(t *kit.T) {
	_, err := t.Cloud.CoreV1().Namespaces().Create(t.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workspace}},
		metav1.CreateOptions{})
	t.Must(err)
	t.Node(t.Pool.Follower()).RunPod("till", []string{"sh", "-c", "sleep 3600"}, func(p *corev1.Pod) {
		p.Namespace = workspace
		p.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"env":"` + password + `"}`}
		p.Spec.Containers[0].Args = []string{password}
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: password}}
	})
	site := t.Pool.Coordinator(lab.Operator)
	t.Eventually(90*time.Second, "the Pod runs, and the coordinator shows that", func() error {
		p, err := site.CoreV1().Pods(workspace).Get(t.Ctx, "till", metav1.GetOptions{})
		if err == nil && (!kit.PodReady(p) || p.Spec.Containers[0].Env[0].Value != password) {
			err = fmt.Errorf("%+v", p)
		}
		return err
	})
}

// viewersOwn has ana ask for a certificate that only looks, approves it, and returns the file of her kubeconfig.
func viewersOwn(t *kit.T, dir string) string {
	file := filepath.Join(dir, "viewer.kubeconfig")
	asked := make(chan error, 1)
	go func() {
		asked <- t.Protect(func(t *kit.T) {
			if out, err := kubectl(t, inCloud, "", "yurt", "kubeconfig", "p1", "--view", "--as=ana", "-f", file); err != nil {
				t.Fail("ask for a certificate that only looks: %w: %s", err, out)
			}
		})
	}()
	t.Eventually(20*time.Second, "the request is there, and approved", func() error {
		all, err := t.Cloud.CertificatesV1().CertificateSigningRequests().List(t.Ctx, metav1.ListOptions{
			FieldSelector: "spec.signerName=" + edge.SignerPeople + "p1",
		})
		t.Must(err)
		for i := range all.Items {
			if r := &all.Items[i]; r.Spec.Username == "ana" {
				kubectlMust(t, "", "certificate", "approve", r.Name)
				return nil
			}
		}
		return errors.New("there is no request of ana's")
	})
	t.Must(<-asked)
	return file
}

// looks is what a viewer sees: none of it has a password.
func looks(t *kit.T, own string) {
	for what, has := range map[string]string{
		"get pods -A": "till", "get pods -A -o yaml": "till", "get pod till -n " + workspace + " -o json": kit.WebImage,
		"get pods -A -o wide --field-selector=status.phase=Running": "till", "describe pod till -n " + workspace: "till",
		"get nodes": t.Pool.Follower(), "get namespaces": workspace, "get events -A": "", "get leases -n kube-node-lease": "p1",
		"get --raw /ui/": "till", "yurt status": "p1",
	} {
		out, err := kubectl(t, onSite, "", append(strings.Fields(what), own)...)
		switch {
		case err != nil || !strings.Contains(out, has):
			t.Fail("a viewer runs kubectl %s: %w, want %q:\n%s", what, err, has, out)
		case strings.Contains(out, password):
			t.Fail("a viewer sees a password by kubectl %s:\n%s", what, out)
		}
	}
}

// refusals is what a viewer may not.
func refusals(t *kit.T, own string) {
	in := " -n " + workspace
	attempts := []string{
		"exec till" + in + " -- id", "attach till" + in, "port-forward pod/till :10261" + in, "logs till" + in,
		"get configmaps -A", "get serviceaccounts -A", "get secrets -A", "get services -A", "get endpointslices -A",
		"get clusterroles", "top pods -A", "delete pod till" + in, "label pod till a=b" + in, "create namespace x",
		"annotate node " + t.Pool.Follower() + " a=b",
		"patch lease " + edge.LeaseElection + " -n kube-system --type=merge -p {}",
		"get --raw /metrics", "get --raw /mirror/v1", "get --raw /own/v1", "get --raw /state/v1",
		"get --raw /api/v1/nodes/" + t.Pool.Follower() + "/proxy/pods",
		"get --raw /api/v1/namespaces/" + workspace + "/pods/till/proxy/",
		"get pods -A --as=openyurt:operator:p1",
	}
	for _, what := range attempts {
		before, after, command := strings.Cut(what, " -- ")
		args := append(strings.Fields(before), own)
		if command {
			args = append(args, "--", after)
		}
		out, err := kubectl(t, onSite, "", args...)
		if err == nil || !strings.Contains(strings.ToLower(out), "forbidden") || strings.Contains(out, password) {
			t.Fail("a viewer runs kubectl %s: %v, want it refused:\n%s", what, err, out)
		}
	}
	t.Figure("refused_attempts", float64(len(attempts)))
}
