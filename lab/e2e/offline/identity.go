package offline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// shortLife is how long certificates last in a scenario in which they expire. The hub renews when 2/3 to 9/10 of the life is
// over, counted from 5 min before the issue, because the cloud's signer backdates. It never renews twice within a minute.
const shortLife = 2 * time.Minute

var identityScenarios = []kit.Scenario{
	{
		Name: "offline-days", Lab: kit.Joining(kit.OnePool, shortLife), Run: offlineDays,
		Doc: "Certificates are renewed under load without a failed request. Then the certificates and the token all " +
			"expire during a cut: hubs restart and answer, no Pod is restarted, and a new token brings every node back.",
	},
}

// certificates returns the hubs' own certificates, by node.
func certificates(t *kit.T) map[string]lab.CertificateStatus {
	all := map[string]lab.CertificateStatus{}
	for node, h := range t.Pool.Hubs() {
		if h.Identity == nil {
			t.Fail("the hub of %s says nothing of its certificate", node)
		}
		all[node] = h.Identity.Client
	}
	return all
}

func offlineDays(t *kit.T) {
	leader := t.Pool.SettledAway()
	node, nodes := t.Pool.Follower(leader), t.Pool.Nodes()
	want := t.Node(node).DeployNeedy()
	renewed(t, nodes)

	t.Say("cutting the pool off from the cloud until no certificate is valid")
	t.Cut("pool/p1")
	t.Must(t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Delete(t.Ctx, lab.BootstrapSecret, metav1.DeleteOptions{}))
	servers := t.Node(node).Processes("httpd -f")
	ends := time.Now()
	for _, c := range certificates(t) {
		if c.NotAfter.After(ends) {
			ends = c.NotAfter
		}
	}
	t.Hold(time.Until(ends)+5*time.Second, "the certificates expire")
	expired(t, nodes, "")
	before, err := t.Node(node).List(podsPath(node))
	t.Must(err)
	listsAsBefore(t, node, before, lab.Hub, 30*time.Second)

	t.Say("healing; the token has expired, too")
	t.Heal("pool/p1")
	expired(t, nodes, "kubeadm token create")
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.KubeletC))
	t.Hold(10*time.Second, "time for kubelet, which the cloud does not know any more, to do something wrong")
	if now := t.Node(node).Processes("httpd -f"); !kit.SameKeys(now, servers) {
		t.Fail("containers were restarted: %v, before %v", now, servers)
	}

	t.Figure("restart_expired_s", t.Node(node).PowerCycle(want).Seconds())
	servers = t.Node(node).Processes("httpd -f")

	t.Say("a new token")
	const token = "fedcba.fedcba9876543210"
	_, err = t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Create(t.Ctx, bootstrapToken(token), metav1.CreateOptions{})
	t.Must(err)
	put := time.Now()
	for _, n := range nodes {
		t.Must(t.Lab.JoinWith(n, token))
	}
	t.Eventually(90*time.Second, "all nodes have a certificate", func() error { return valid(certificates(t), time.Now()) })
	t.Pool.Settled(60 * time.Second)
	t.Eventually(60*time.Second, "all nodes are Ready", func() error { return t.Pool.NodesReady() })
	t.Figure("new_token_to_ready_s", time.Since(put).Seconds())
	if answer, err := t.Node(node).NeedyAnswers(); err != nil || answer != want {
		t.Fail("the Pod %s, which nothing evicts, answers %q, %v, want %q", kit.NeedyName, answer, err, want)
	}
	if now := t.Node(node).Processes("httpd -f -p"); len(now) != 1 || !servers[slices.Collect(maps.Keys(now))[0]] {
		t.Fail("the Pod %s was restarted", kit.NeedyName)
	}
}

// renewed waits until every hub has its next certificate, while they are used.
func renewed(t *kit.T, nodes []string) {
	stop := t.Steadily(nodes)
	access, err := t.Lab.HubConfig(nodes[len(nodes)-1])
	t.Must(err)
	watch, err := t.Client(access).DiscoveryV1().EndpointSlices("").Watch(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	defer watch.Stop()
	ended := make(chan struct{})
	t.Background.Go(func() {
		defer close(ended)
		for range watch.ResultChan() { // its end is what matters
		}
	})
	first := certificates(t)
	t.Eventually(shortLife, "all hubs have their next certificate", func() error {
		for node, c := range certificates(t) {
			if c.NotAfter.Equal(first[node].NotAfter) || c.Problem != "" {
				return fmt.Errorf("%s: %+v", node, c)
			}
		}
		return nil
	})
	t.Hold(10*time.Second, "the new ones are used")
	for _, err := range stop() {
		t.Fail("a request during the renewal: %w", err)
	}
	select {
	case <-ended:
		t.Fail("a watch ended during the renewal")
	default:
	}
}

// expired waits until every hub says that its certificate has expired, and why it gets no other.
func expired(t *kit.T, nodes []string, why string) {
	t.Eventually(90*time.Second, "all hubs say that their certificates have expired "+why, func() error {
		all := certificates(t)
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

// bootstrapToken returns the Secret that makes a token valid.
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
