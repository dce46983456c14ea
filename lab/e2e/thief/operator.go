package thief

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var operatorScenarios = []kit.Scenario{{
	Name: "operator-overreach", Lab: kit.OnePool.AsInstalled(), Run: operatorOverreach,
	Doc: "An operator enters a workload and then tries every Pod that is part of its node: `exec`, `attach` and " +
		"`port-forward` refuse with a reason and a line in the audit log. A person with a certificate in her own name " +
		"enters them while it lasts, and the audit log has her name. A denied user and a denied certificate are shut out.",
}}

// workspace is the namespace of the operator's Pods.
const workspace = "shop"

// onItsNode are Pods that can act on their node, by name, and what the refusal says.
var onItsNode = map[string]string{
	"privileged": "(privileged)", "agent": "(host namespaces)", "files": "(hostPath volumes)", "helper": "(it is in kube-system)",
}

func namespaceOf(pod string) string {
	if pod == "helper" {
		return edge.NamespaceSystem
	}
	return workspace
}

func operatorOverreach(t *kit.T) {
	dir, err := os.MkdirTemp("", "")
	t.Must(err)
	defer func() { t.Must(os.RemoveAll(dir)) }()
	t.Pool.Settled(30 * time.Second)
	deployPods(t)
	enters := func(pod string, more ...string) (string, error) {
		args := []string{"exec", pod, "-n", namespaceOf(pod), "--", "echo", "inside"}
		return kubectl(t, onSite, "", slices.Concat(more, args)...)
	}
	t.Eventually(60*time.Second, "the operator enters a workload", func() error {
		out, err := enters("plain")
		if err == nil && strings.TrimSpace(out) != "inside" {
			err = errors.New("it prints something else")
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})

	attempts := 0
	for pod, why := range onItsNode {
		for _, command := range [][]string{
			{"exec", pod, "--", "id"}, {"attach", pod}, {"port-forward", "pod/" + pod, ":10261"}, // 10261: the node's hub
		} {
			out, err := kubectl(t, onSite, "", append([]string{"-n", namespaceOf(pod)}, command...)...)
			if err == nil || !strings.Contains(out, "can act on its node "+why) || !strings.Contains(out, edge.GroupDebuggers) {
				t.Fail("kubectl %v: %v; it prints, want %q:\n%s", command, err, why, out)
			}
			t.Say("refused: kubectl %s", strings.Join(command, " "))
			attempts++
		}
	}
	t.Figure("refused_attempts", float64(attempts))
	user := edge.PoolName("p1").OperatorUser()
	audited(t, user, "/pods/agent/portforward", "can act on its node (host namespaces)")

	debugs := personsOwn(t, dir)
	for pod := range onItsNode {
		if out, err := enters(pod, "--kubeconfig="+debugs); err != nil || strings.TrimSpace(out) != "inside" {
			t.Fail("a debugger enters %s: %v: %s", pod, err, out)
		}
	}
	audited(t, "ana", "/pods/privileged/exec?command=echo", "")

	t.Say("denying a person by her name, and the shared kubeconfig by its digest")
	ends := func(figure, what, kubeconfig, says string) {
		took := t.Eventually(90*time.Second, what, func() error {
			out, err := kubectl(t, onSite, "", "get", "pods", "-n", workspace, "--kubeconfig="+kubeconfig)
			if err == nil || !strings.Contains(out, says) {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		t.Figure(figure, took.Seconds())
	}
	deny := func(items ...string) {
		list := `["` + strings.Join(items, `","`) + `"]`
		if len(items) == 0 {
			list = "[]"
		}
		kubectlMust(t, "", "patch", "yurtcoordinator", "p1", "--type=merge", "-p", `{"spec":{"deniedUsers":`+list+`}}`)
	}
	shared, digest := sharedKubeconfig(t, dir)
	deny("ana")
	ends("user_denied_after_s", "the denied user ends", debugs, "certificates of this user were withdrawn")
	if out, err := enters("plain"); err != nil {
		t.Fail("another operator: %v: %s", err, out)
	}
	deny(digest)
	ends("certificate_denied_after_s", "the denied certificate ends", shared, "this certificate was withdrawn")
	if out, err := enters("privileged", "--kubeconfig="+debugs); err != nil {
		t.Fail("whoever is on the list no more: %v: %s", err, out)
	}
	deny()
	t.Eventually(90*time.Second, "the shared kubeconfig holds again", func() error {
		out, err := enters("plain")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
}

// deployPods makes a workload, and Pods that can act on their node, on a node without the coordinator.
func deployPods(t *kit.T) {
	_, err := t.Cloud.CoreV1().Namespaces().Create(t.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workspace}},
		metav1.CreateOptions{})
	t.Must(err)
	node := t.Pool.Follower()
	pods := map[string]func(*corev1.PodSpec){
		"plain":  func(*corev1.PodSpec) {},
		"helper": func(*corev1.PodSpec) {},
		"agent":  func(s *corev1.PodSpec) { s.HostNetwork = true },
		"privileged": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		},
		"files": func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/"},
			}}}
			s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/host", ReadOnly: true}}
		},
	}
	for name, change := range pods {
		t.Node(node).RunPod(name, []string{"sleep", "3600"}, func(p *corev1.Pod) {
			p.Namespace = namespaceOf(name)
			change(&p.Spec)
		})
	}
	site := t.Pool.Coordinator(lab.Operator)
	t.Eventually(90*time.Second, "all Pods run, and the coordinator shows that", func() error {
		for name := range pods {
			p, err := site.CoreV1().Pods(namespaceOf(name)).Get(t.Ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !kit.PodReady(p) {
				return fmt.Errorf("%s: %+v", name, p.Status)
			}
		}
		return nil
	})
}

// personsOwn requests a certificate as ana, with which she may enter any Pod, and returns the file of her kubeconfig.
func personsOwn(t *kit.T, dir string) string {
	kubectlMust(t, "", "create", "clusterrole", "asks-for-certificates", "--verb=create",
		"--resource=certificatesigningrequests.certificates.k8s.io")
	kubectlMust(t, "", "create", "clusterrolebinding", "asks-for-certificates",
		"--clusterrole=asks-for-certificates", "--user=ana")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.Must(err)
	const name = "ana-debugs"
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "ana", Organization: []string{edge.GroupDebuggers}}}, key)
	t.Must(err)
	asked, err := runtime.Encode(scheme.Codecs.LegacyCodec(certificatesv1.SchemeGroupVersion),
		&certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: "coordinator.openyurt.io/p1", ExpirationSeconds: ptr.To[int32](3600),
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			},
		})
	t.Must(err)
	kubectlMust(t, string(asked), "create", "--as=ana", "-f", "-")
	kubectlMust(t, "", "certificate", "approve", name)
	var signed []byte
	t.Eventually(30*time.Second, "ana's certificate is signed", func() error {
		csr, err := t.Cloud.CertificatesV1().CertificateSigningRequests().Get(t.Ctx, name, metav1.GetOptions{})
		t.Must(err)
		if signed = csr.Status.Certificate; len(signed) == 0 {
			return fmt.Errorf("%+v", csr.Status.Conditions)
		}
		return nil
	})

	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	t.Must(err)
	shared, err := t.Lab.Access(t.Ctx, 1)
	t.Must(err)
	config, err := clientcmd.Load(shared)
	t.Must(err)
	for _, user := range config.AuthInfos {
		user.ClientCertificateData, user.ClientKeyData = signed, encoded
	}
	text, err := clientcmd.Write(*config)
	t.Must(err)
	return written(t, dir, "ana.kubeconfig", text)
}

// sharedKubeconfig returns a copy of the operators' kubeconfig, and its certificate's digest.
func sharedKubeconfig(t *kit.T, dir string) (file, digest string) {
	text, err := t.Lab.Access(t.Ctx, 1)
	t.Must(err)
	config, err := clientcmd.Load(text)
	t.Must(err)
	for _, user := range config.AuthInfos {
		digest = kit.CredentialID(user.ClientCertificateData)
	}
	return written(t, dir, "leaked.kubeconfig", text), digest
}

// written writes a file that only we can read, and returns its name.
func written(t *kit.T, dir, name string, content []byte) string {
	file := filepath.Join(dir, name)
	t.Must(os.WriteFile(file, content, 0o600))
	return file
}

// audited waits for a line in the coordinator's audit log that says which user was refused at which path, and why. An empty
// reason means that the user was let in.
func audited(t *kit.T, user, path, why string) {
	t.Eventually(10*time.Second, "the audit log has "+user, func() error { return t.Pool.Audited(user, path, why) })
}
