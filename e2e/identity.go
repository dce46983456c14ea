package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

// joining are hubs that get their certificates by themselves.
func joining(c lab.Config, life time.Duration) lab.Config {
	c.Bootstrap, c.CertificateLife = true, life
	return c
}

// shortLife is how long certificates last in a scenario in which they expire. The hub renews when 2/3 to 9/10 of the life is
// over, of which the cloud's signer says that it began 5 min ago, but not within a minute of the last time.
const shortLife = 2 * time.Minute

var identityScenarios = []Scenario{
	{
		Name: "join", Quick: true, Lab: joining(pool, 0), run: join,
		Doc: "nodes that have a bootstrap token and nothing else become part of the cluster; one that has lost its key joins " +
			"again with the certificate of a kubelet",
	},
	{
		Name: "offline-days", Lab: joining(pool, shortLife), run: offlineDays,
		Doc: "certificates are renewed while they are used; then all nodes are cut off for longer than certificate and " +
			"token last: they go on, restart, also when the cloud is there and refuses them, and are back with a new token",
	},
}

func join(t *T) {
	nodes := t.nodeNames()
	for name, r := range t.certificateRequests() {
		if r.Spec.Username != "system:bootstrap:"+lab.BootstrapToken[:6] || len(r.Status.Certificate) == 0 {
			t.fail("request %s of %s: want one made with the bootstrap token, and granted: %+v", name, r.Spec.Username, r.Status)
		}
	}
	if n := len(t.certificateRequests()); n != len(nodes) {
		t.fail("%d requests for certificates, want one of each of %d nodes", n, len(nodes))
	}
	leader := t.settledAway()
	node := t.follower(leader)
	t.secretive(nodes)

	t.say("restarting the hub of %s: it has its certificate", node)
	t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.Hub))
	t.settled(30 * time.Second)
	if n := len(t.certificateRequests()); n != len(nodes) {
		t.fail("%d requests for certificates, want no new one", n)
	}

	t.say("%s loses its key, and has a kubelet's certificate in the place of the token", node)
	t.must(t.lab.Node(t.ctx, lab.Kill, node, lab.Hub))
	t.must(os.RemoveAll(t.hubKeys(node)))
	t.must(t.lab.JoinWith(node, t.kubeconfigOf(node)))
	t.must(t.lab.Node(t.ctx, lab.Start, node, lab.Hub))
	t.settled(60 * time.Second)
	own := 0
	for _, r := range t.certificateRequests() {
		if r.Spec.Username == edge.NodeName(node).User() {
			own++
		}
	}
	if own != 1 {
		t.fail("%d requests for certificates by the node %s, want 1", own, node)
	}
	t.secretive(nodes)
}

// certificateRequests are those in the cloud, by name.
func (t *T) certificateRequests() map[string]certificatesv1.CertificateSigningRequest {
	list, err := t.cloud.CertificatesV1().CertificateSigningRequests().List(t.ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + certificatesv1.KubeAPIServerClientKubeletSignerName,
	})
	t.must(err)
	all := map[string]certificatesv1.CertificateSigningRequest{}
	for _, r := range list.Items {
		all[r.Name] = r
	}
	return all
}

// hubKeys is the directory of what a hub got for its token.
func (t *T) hubKeys(node string) string {
	dir, err := t.lab.HubKeysDir(node)
	t.must(err)
	return dir
}

// secretive expects that nobody else can read a hub's key, and that no log has the token.
func (t *T) secretive(nodes []string) {
	for _, node := range nodes {
		dir := t.hubKeys(node)
		for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "client.pem"): 0o600} {
			info, err := os.Stat(path)
			t.must(err)
			if got := info.Mode().Perm(); got != want {
				t.fail("%s is %v, want %v", path, got, want)
			}
		}
	}
	logs, err := t.lab.Logs()
	t.must(err)
	for _, path := range logs {
		content, err := os.ReadFile(path)
		t.must(err)
		if _, secret, _ := strings.Cut(lab.BootstrapToken, "."); strings.Contains(string(content), secret) {
			t.fail("%s has the bootstrap token in it", path)
		}
	}
}

// kubeconfigOf is a kubelet's of a node that has joined in another way.
func (t *T) kubeconfigOf(node string) string {
	access, err := t.lab.CloudConfigAs(node)
	t.must(err)
	c := clientcmdapi.NewConfig()
	c.Clusters["cloud"] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthorityData: access.CAData}
	c.AuthInfos["kubelet"] = &clientcmdapi.AuthInfo{ClientCertificateData: access.CertData, ClientKeyData: access.KeyData}
	c.Contexts["kubelet"] = &clientcmdapi.Context{Cluster: "cloud", AuthInfo: "kubelet"}
	c.CurrentContext = "kubelet"
	content, err := clientcmd.Write(*c)
	t.must(err)
	return string(content)
}

// certificates are the hubs' own, by node.
func (t *T) certificates() map[string]lab.CertificateStatus {
	all := map[string]lab.CertificateStatus{}
	for node, h := range t.hubs() {
		if h.Identity == nil {
			t.fail("the hub of %s says nothing of its certificate", node)
		}
		all[node] = h.Identity.Client
	}
	return all
}

func offlineDays(t *T) {
	leader := t.settledAway()
	node, nodes := t.follower(leader), t.nodeNames()
	want := t.deployNeedy(node)
	t.renewed(nodes)

	t.say("cutting the pool off from the cloud until no certificate is valid")
	t.must(t.lab.Cut(t.ctx, lab.WAN, "pool/p1", wire.Drop))
	t.must(t.cloud.CoreV1().Secrets(edge.NamespaceSystem).Delete(t.ctx, lab.BootstrapSecret, metav1.DeleteOptions{}))
	servers := t.processes(node, "httpd -f")
	ends := time.Now()
	for _, c := range t.certificates() {
		if c.NotAfter.After(ends) {
			ends = c.NotAfter
		}
	}
	t.hold(time.Until(ends)+5*time.Second, "the certificates expire")
	t.expired(nodes, "")
	pods := "/api/v1/pods?fieldSelector=spec.nodeName%3D" + node
	before, err := t.listFrom(node, pods)
	t.must(err)
	t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.Hub))
	t.eventually(30*time.Second, "the hub, restarted with an expired certificate, lists the node's Pods as before", func() error {
		now, err := t.listFrom(node, pods)
		if err != nil {
			return err
		}
		return differs(before, now)
	})

	t.say("healing; the token has expired, too")
	t.must(t.lab.Heal(t.ctx, lab.WAN, "pool/p1"))
	t.expired(nodes, "kubeadm token create")
	t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.KubeletC))
	t.hold(10*time.Second, "time for kubelet, which the cloud does not know any more, to do something wrong")
	if now := t.processes(node, "httpd -f"); !sameKeys(now, servers) {
		t.fail("containers were restarted: %v, before %v", now, servers)
	}

	t.figure("restart_expired_s", t.powerCycle(node, want).Seconds())
	servers = t.processes(node, "httpd -f")

	t.say("a new token")
	const token = "fedcba.fedcba9876543210"
	_, err = t.cloud.CoreV1().Secrets(edge.NamespaceSystem).Create(t.ctx, bootstrapToken(token), metav1.CreateOptions{})
	t.must(err)
	put := time.Now()
	for _, n := range nodes {
		t.must(t.lab.JoinWith(n, token))
	}
	t.eventually(90*time.Second, "all nodes have a certificate", func() error { return valid(t.certificates(), time.Now()) })
	t.settled(60 * time.Second)
	t.eventually(60*time.Second, "all nodes are Ready", func() error { return t.nodesReady() })
	t.figure("new_token_to_ready_s", time.Since(put).Seconds())
	if answer, err := t.needyAnswers(node); err != nil || answer != want {
		t.fail("the Pod %s, which nothing evicts, answers %q, %v, want %q", needyName, answer, err, want)
	}
	if now := t.processes(node, "httpd -f -p"); len(now) != 1 || !servers[slices.Collect(maps.Keys(now))[0]] {
		t.fail("the Pod %s was restarted", needyName)
	}
}

// renewed waits until every hub has its next certificate, while they are used.
func (t *T) renewed(nodes []string) {
	stop := t.steadily(nodes)
	watch := t.kubectlWatch(nodes[len(nodes)-1])
	first := t.certificates()
	t.eventually(shortLife, "all hubs have their next certificate", func() error {
		for node, c := range t.certificates() {
			if c.NotAfter.Equal(first[node].NotAfter) || c.Problem != "" {
				return fmt.Errorf("%s: %+v", node, c)
			}
		}
		return nil
	})
	t.hold(10*time.Second, "the new ones are used")
	for _, err := range stop() {
		t.fail("a request during the renewal: %w", err)
	}
	if ends := watch.ended(); len(ends) > 0 {
		t.fail("kubectl's watch ended during the renewal: %v", ends)
	}
}

// expired waits until every hub says that its certificate has, and why it gets no other.
func (t *T) expired(nodes []string, why string) {
	t.eventually(90*time.Second, "all hubs say that their certificates have expired "+why, func() error {
		all := t.certificates()
		for _, node := range nodes {
			if p := all[node].Problem; !strings.Contains(p, "expired") || !strings.Contains(p, why) {
				return fmt.Errorf("%s says %q", node, p)
			}
		}
		return nil
	})
}

func valid(all map[string]lab.CertificateStatus, now time.Time) error {
	for node, c := range all {
		if c.Problem != "" || !now.Before(c.NotAfter) {
			return fmt.Errorf("%s: until %v; %s", node, c.NotAfter, c.Problem)
		}
	}
	return nil
}

// nodesReady reports which node is not.
func (t *T) nodesReady() error {
	list, err := t.cloud.CoreV1().Nodes().List(t.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("%s is not Ready: %s", n.Name, c.Message)
			}
		}
	}
	return nil
}

// bootstrapToken is the Secret that makes a token valid.
func bootstrapToken(token string) *corev1.Secret {
	id, secret, _ := strings.Cut(token, ".")
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
		},
	}
}
