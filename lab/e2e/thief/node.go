package thief

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// serverTries is how long the scenario waits for a wrong approval by the controller, which judges a request again after 2, 4
// and 8 s.
const serverTries = 12 * time.Second

var nodeScenarios = []kit.Scenario{{
	Name: "stolen-node", Lab: kit.Joining(lab.Config{Pools: 2, Nodes: 3, Timing: lab.Quick}.AsInstalled(), 0), Run: stolenNode,
	Doc: "Somebody has a node's certificate and key elsewhere and goes for other nodes' and other pools' objects with " +
		"kubectl: in the cloud, at both coordinators and at kubelets. He is refused. Once the node is denied and its Node " +
		"deleted, the certificate opens nothing at the coordinator, and only a Node without a pool in the cloud; with its " +
		"hub's key no neighbour lends its line.",
}}

func stolenNode(t *kit.T) {
	dir, err := os.MkdirTemp("", "")
	t.Must(err)
	defer func() { t.Must(os.RemoveAll(dir)) }()
	t.Pool.Settled(30 * time.Second)
	stolen := t.Pool.Follower()
	victim := t.Pool.Follower(stolen)
	const theirs = "p2-n1"
	deployPlain(t, victim, stolen, theirs)
	pod, err := t.Cloud.CoreV1().Pods(workspace).Get(t.Ctx, "plain-1", metav1.GetOptions{})
	t.Must(err)
	coordinators := map[edge.PoolName]string{"p1": coordinatorOf(t, "p1"), "p2": coordinatorOf(t, "p2")}
	access, err := t.Lab.CloudConfigFrom(stolen)
	t.Must(err)
	t.Must(rest.LoadTLSFiles(access))
	pair, err := tls.X509KeyPair(access.CertData, access.KeyData)
	t.Must(err)
	inCloudAs := kubeconfigOf(t, dir, access, access.Host, false)

	as := func(kubeconfig string, args ...string) (string, error) {
		return kubectl(t, inCloud, "", append([]string{"--kubeconfig=" + kubeconfig}, args...)...)
	}
	attempts := 0
	refusedBy := func(kubeconfig string, commands ...[]string) {
		for _, args := range commands {
			out, err := as(kubeconfig, args...)
			if err == nil || !strings.Contains(strings.ToLower(out), "forbidden") {
				t.Fail("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
			}
			attempts++
			t.Say("refused: kubectl %s: %.160s", strings.Join(args, " "), strings.TrimSpace(out))
		}
	}

	t.Say("in the cloud")
	lease := []string{"get", "lease", "-n", corev1.NamespaceNodeLease}
	if out, err := as(inCloudAs, append(lease, stolen)...); err != nil {
		t.Fail("its own Lease, which it may read: %v: %s", err, out)
	}
	const status = `{"status":{"phase":"Failed"}}`
	held := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True"}]}}`, edge.ConditionEvictionsHeld)
	inShop := func(args ...string) []string { return append([]string{"-n", workspace}, args...) }
	refusedBy(inCloudAs,
		append(lease, victim), append(lease, theirs), append(lease, edge.PoolName("p1").ReportLease(0)),
		[]string{"get", "secrets", "-A"},
		[]string{"get", "secret", "-n", edge.NamespaceSystem, edge.PoolName("p1").CoordinatorSecret()},
		[]string{"get", "secret", "-n", edge.NamespaceSystem, edge.PoolName("p1").KubeconfigSecret()},
		[]string{"get", "secret", "-n", edge.NamespaceKeys, edge.PoolName("p2").AuthoritySecret()},
		inShop("patch", "pod", "plain-1", "--subresource=status", "-p", status),
		inShop("patch", "pod", "plain-3", "--subresource=status", "-p", status),
		inShop("delete", "pod", "plain-1"), inShop("exec", "plain-1", "--", "id"), inShop("exec", "plain-3", "--", "id"),
		inShop("create", "token", "default"),
		inShop("create", "token", "default", "--bound-object-kind=Pod", "--bound-object-name=plain-1",
			"--bound-object-uid="+string(pod.UID)),
		[]string{"label", "node", victim, "x=y"}, []string{"label", "node", theirs, "x=y"},
		[]string{"label", "--overwrite", "node", stolen, edge.LabelNodePool + "=p2"},
		[]string{"label", "node", stolen, "node-restriction.kubernetes.io/x=y"},
		[]string{"label", "node", stolen, "node-role.kubernetes.io/control-plane="},
		[]string{"annotate", "node", stolen, edge.AnnotationAutonomy + "=" + edge.AutonomyOn},
		[]string{"patch", "node", stolen, "--subresource=status", "-p", held},
		[]string{"taint", "node", victim, "x=y:NoExecute"}, []string{"delete", "node", victim},
		[]string{"get", "nodes", "--as=" + edge.NodeName(victim).User()},
		[]string{"get", "pods", "--as=system:serviceaccount:" + edge.NamespaceSystem + ":coordinator-controller"},
		append(lease, theirs, "--as="+edge.PoolName("p2").ForwardingUser()),
		[]string{"get", "yurtcoordinators"},
	)
	attempts += forgedRequests(t, stolen, victim)

	t.Say("at the pool's own coordinator, and at the other")
	on := map[edge.PoolName]string{}
	for pool, server := range coordinators {
		on[pool] = kubeconfigOf(t, dir, access, server, true)
	}
	if out, err := as(on["p1"], append(lease, stolen)...); err != nil {
		t.Fail("its own Lease at its coordinator: %v: %s", err, out)
	}
	refusedBy(on["p1"],
		[]string{"get", "secrets", "-A"}, []string{"get", "pods", "-A"}, []string{"get", "nodes"},
		append(lease[:0:0], "patch", "lease", "-n", corev1.NamespaceNodeLease, victim, "--type=merge", "-p",
			`{"spec":{"holderIdentity":"`+stolen+`"}}`),
		[]string{"get", "endpointslices", "-A", "--as=" + edge.NodeName(victim).User()},
	)
	refusedBy(on["p2"],
		append(lease, stolen), append(lease, theirs), []string{"get", "endpointslices", "-A"}, []string{"get", "pods", "-A"},
	)
	audited(t, edge.NodeName(stolen).User(), "/api/", "what its hub does")

	t.Say("at kubelets")
	keys := loot{"node": pair}
	for _, node := range []string{victim, theirs} {
		for _, a := range []struct{ method, path string }{
			{"GET", "/pods"}, {"POST", "/run/shop/plain-1/c?cmd=id"}, {"POST", "/run/shop/plain-3/c?cmd=id"}, {"GET", "/configz"},
		} {
			code, text := keys.tries(t, "node", node, a.method, "https://"+t.Node(node).Address()+":10250"+a.path)
			if code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Fail("%s %s of %s: %d %s", a.method, a.path, node, code, text)
			}
			attempts++
		}
	}
	t.Figure("refused_attempts", float64(attempts))

	key, target := t.Node(stolen).HubCertificate(), strings.TrimPrefix(access.Host, "https://")
	borrows := func() string { // not from the stolen machine, which loses its power
		conn, line, err := t.Node(victim).Tunnel(t.Pool.CoordinatorNode(), key, target)
		t.Must(err)
		t.Must(conn.Close())
		return line
	}
	t.Eventually(60*time.Second, "a neighbour lends its line to the key of its hub", func() error {
		if line := borrows(); !strings.Contains(line, "200") {
			return errors.New(line)
		}
		return nil
	})
	shutOut(t, stolen, func() (string, error) { return as(on["p1"], append(lease, stolen)...) })
	t.Eventually(60*time.Second, "no neighbour lends its line to that key", func() error {
		if line := borrows(); !strings.Contains(line, "403") {
			return errors.New(line)
		}
		return nil
	})
	refusedBy(inCloudAs,
		inShop("get", "secrets"), append(lease, victim), inShop("create", "token", "default"),
		[]string{"label", "node", victim, "x=y"},
	)
	client := nodeClient(t, theirs)
	if _, err := client.CoreV1().Nodes().Get(t.Ctx, theirs, metav1.GetOptions{}); err != nil {
		t.Fail("another node: %w", err)
	}
	t.NeverNotReady(t.Start, victim)
	t.NeverNotReady(t.Start, theirs)
}

// shutOut denies a stolen node, as docs/install.md says, and waits until its coordinator shows nothing to the node's
// certificate.
func shutOut(t *kit.T, stolen string, ownLease func() (string, error)) {
	t.Say("%s is known to be stolen: it is denied, and its Node deleted", stolen)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, stolen, lab.All))
	kubectlMust(t, "", "patch", "yurtcoordinator", "p1", "--type=merge", "-p",
		`{"spec":{"deniedUsers":["`+edge.NodeName(stolen).User()+`"]}}`)
	kubectlMust(t, "", "delete", "node", stolen, "--wait=false")
	took := t.Eventually(90*time.Second, "its certificate opens nothing at the coordinator", func() error {
		out, err := ownLease()
		if err == nil || !strings.Contains(out, "withdrawn") && !strings.Contains(out, "does not belong") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	t.Figure("shut_out_after_s", took.Seconds())
	audited(t, edge.NodeName(stolen).User(), "/", "withdrawn")
}

// forgedRequests requests others' certificates as a node, expects that none is issued, and returns how many it requested.
func forgedRequests(t *kit.T, stolen, victim string) int {
	requests := nodeClient(t, stolen).CertificatesV1().CertificateSigningRequests()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.Must(err)
	var made []string
	const client, server = certificatesv1.UsageClientAuth, certificatesv1.UsageServerAuth
	const toCloud, toPool = certificatesv1.KubeAPIServerClientSignerName, "coordinator.openyurt.io/p1"
	all := []struct {
		signer, name, group string
		usage               certificatesv1.KeyUsage
	}{
		{certificatesv1.KubeAPIServerClientKubeletSignerName, edge.NodeName(victim).User(), edge.GroupNodes, client},
		{certificatesv1.KubeletServingSignerName, edge.NodeName(victim).User(), edge.GroupNodes, server},
		{toCloud, "admin", "system:masters", client},
		{toCloud, edge.PoolName("p1").OperatorUser(), edge.GroupOperators, client},
		{toPool, edge.PoolName("p1").OperatorUser(), edge.GroupDebuggers, client},
		{toPool, edge.PoolName("p1").CoordinatorServerName(), edge.GroupOperators, client},
		{"coordinator.openyurt.io/p2", edge.NodeName(stolen).User(), edge.GroupOperators, client},
	}
	for i, a := range all {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: a.name, Organization: []string{a.group}}, DNSNames: namesOf(a.usage, victim),
		}, key)
		t.Must(err)
		r, err := requests.Create(t.Ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("stolen-%d", i)},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: a.signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, a.usage},
			},
		}, metav1.CreateOptions{})
		switch {
		case err == nil:
			made = append(made, r.Name)
		case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
			t.Say("refused: a certificate for %s of %s: %v", a.name, a.signer, err)
		default:
			t.Must(err)
		}
	}
	t.Hold(serverTries, "the others are judged several times")
	for _, name := range made {
		r, err := t.Cloud.CertificatesV1().CertificateSigningRequests().Get(t.Ctx, name, metav1.GetOptions{})
		t.Must(err)
		if len(r.Status.Certificate) > 0 || approvedNow(t, name) == nil {
			t.Fail("%s has got %s: %+v", stolen, name, r.Status.Conditions)
		}
	}
	t.Say("%d requests for others' certificates, none approved", len(all))
	return len(all)
}

func namesOf(usage certificatesv1.KeyUsage, node string) []string {
	if usage == certificatesv1.UsageServerAuth {
		return []string{node}
	}
	return nil
}

// kubeconfigOf writes a kubeconfig for a server with the certificate of an access, and returns its file. With unchecked, the
// thief does not verify the server, as one would who has no authority to verify it with.
func kubeconfigOf(t *kit.T, dir string, of *rest.Config, server string, unchecked bool) string {
	cluster := &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: of.CAData}
	if unchecked {
		cluster.CertificateAuthorityData, cluster.InsecureSkipTLSVerify = nil, true
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = cluster
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{ClientCertificateData: of.CertData, ClientKeyData: of.KeyData}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	text, err := clientcmd.Write(*config)
	t.Must(err)
	return written(t, dir, strings.NewReplacer("/", "-", ":", "-").Replace(server)+".kubeconfig", text)
}

// nodeClient returns the cloud's API as a node, over its own link.
func nodeClient(t *kit.T, node string) kubernetes.Interface {
	access, err := t.Lab.CloudConfigFrom(node)
	t.Must(err)
	client := t.Client(access)
	return client
}
