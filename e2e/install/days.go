package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

// kubeadmShort makes the cloud's certificates for a node last for a minute and a half, and a coordinator's for one.
var kubeadmShort = func() lab.Config {
	c := kit.ShortLived(kit.OnePool.AsInstalled())
	c.CertificateLife = 90 * time.Second
	return c
}()

// Certificates of a node, by their owner.
const (
	kubeletClient  = "kubelet as a client"
	kubeletServing = "kubelet as a server"
	hubsOwn        = "the hub"
	coordinators   = "the coordinator"
)

// ends returns when the certificates end without which a pool can't live long without the cloud: the node's, and the
// one that the coordinator shows.
func (n *installed) ends() (map[string]time.Time, error) {
	all := map[string]time.Time{}
	for who, file := range map[string]string{
		kubeletClient: "kubelet/pki/kubelet-client-current.pem", kubeletServing: "kubelet/pki/kubelet-server-current.pem",
		hubsOwn: "yurthub/pki/client.pem",
	} {
		// Without the key.
		found, err := cert.ParseCertsPEM([]byte(n.machine("sed -n '/BEGIN CERT/,/END CERT/p' /var/lib/" + file)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[who] = found[0].NotAfter
	}
	shown, err := coordinatorShows(n.T)
	if err != nil {
		return nil, fmt.Errorf("the coordinator: %w", err)
	}
	all[coordinators] = shown.NotAfter
	return all, nil
}

// coordinatorShows returns the first pool's coordinator's serving certificate, valid or not.
func coordinatorShows(t *kit.T) (*x509.Certificate, error) {
	access, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Ctx, 5*time.Second)
	defer cancel()
	conn, err := access.Dial(ctx, "tcp", strings.TrimPrefix(access.Host, "https://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // read, not trusted
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

// allEnd waits until each of the certificates has ended.
func (n *installed) allEnd() map[string]time.Time {
	ends, err := n.ends()
	n.Must(err)
	last := time.Now()
	for _, end := range ends {
		if end.After(last) {
			last = end
		}
	}
	n.Hold(time.Until(last)+3*time.Second, "the certificates expire")
	ends, err = n.ends()
	n.Must(err)
	for who, end := range ends {
		if end.After(time.Now()) {
			n.Fail("that of %s has been renewed, until %s", who, end)
		}
		n.Say("that of %s has ended %.0f s ago", who, time.Since(end).Seconds())
	}
	return ends
}

func kubeadmDays(t *kit.T) {
	name := t.Pool.Follower(t.Pool.SettledAway())
	kubeadmCluster(t, bootstrapped)
	n := bareNode(t, name)
	n.kubeadmJoin()
	n.kubeletIsKnown()
	want := t.Node(name).DeployNeedy()
	t.Say("%s", strings.TrimSpace(n.mustSh(n.hub+" join --nodepool-name=p1")))
	n.beats("kubelet goes through the hub")
	n.adopt()
	t.Pool.Settled(60 * time.Second)
	first, err := n.ends()
	t.Must(err)
	servers := t.Node(name).Processes("httpd -f")
	kubelet := t.Node(name).Processes("--kubeconfig=/etc/yurthub/kubelet.conf")

	t.Say("cutting the pool off from the cloud until no certificate is valid")
	t.Cut("pool/p1")
	tokensEnd(t)
	ended := n.allEnd()
	if ended[hubsOwn].Before(first[hubsOwn]) {
		t.Fail("the hub's certificate ended at %s, before %s", ended[hubsOwn], first[hubsOwn])
	}
	if now := t.Node(name).Processes("httpd -f"); !kit.SameKeys(now, servers) {
		t.Fail("containers were restarted: %v, before %v", now, servers)
	}
	if now := t.Node(name).Processes("--kubeconfig=/etc/yurthub/kubelet.conf"); !kit.SameKeys(now, kubelet) {
		t.Fail("kubelet was restarted: %v, before %v", now, kubelet)
	}
	t.Figure("restart_expired_s", t.Node(name).PowerCycle(want).Seconds())
	servers = t.Node(name).Processes("httpd -f")

	t.Say("healing; the token has expired, too")
	t.Heal("pool/p1")
	n.refusedGently()

	t.Say("a new token")
	token := kubeadm(t, "token", "create")
	put := time.Now()
	n.mustSh("umask 077; printf '%s\\n' " + token + " >/etc/yurthub/bootstrap-token")
	n.allRenewed()
	t.Figure("new_token_to_renewed_s", time.Since(put).Seconds())
	t.Pool.Settled(60 * time.Second)
	n.beats("kubelet goes through the hub, with certificates of now")
	if now := t.Node(name).Processes("httpd -f"); !kit.SameKeys(now, servers) {
		t.Fail("containers were restarted: %v, before %v", now, servers)
	}
	n.kubeletIsKnown()

	t.Say("reset: kubelet has what it needs to go straight")
	t.Say("%s", strings.TrimSpace(n.mustSh(n.hub+" reset")))
	n.beats("kubelet goes straight to the cloud again")
	n.goesStraight()
}

// tokensEnd ends all tokens that nodes can join with, as time would.
func tokensEnd(t *kit.T) {
	secrets := t.Cloud.CoreV1().Secrets(edge.NamespaceSystem)
	t.Must(secrets.DeleteCollection(t.Ctx, metav1.DeleteOptions{}, metav1.ListOptions{
		FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken),
	}))
}

// refusedGently waits until the hub says what the node needs. It expects that kubelet, when it asks for a certificate,
// is asked to try again and is not refused as nobody: kubelet would exit then, every five minutes.
func (n *installed) refusedGently() {
	n.Eventually(60*time.Second, "the hub says that it needs a token", func() error {
		h, err := n.Lab.Hub(n.Ctx, n.name)
		if err != nil {
			return err
		}
		if p := h.Identity.Client.Problem; h.Cloud != "up" || !strings.Contains(p, "kubeadm token create") {
			return fmt.Errorf("the cloud is %s; it says %q", h.Cloud, p)
		}
		return nil
	})
	access, err := n.Lab.HubConfig(n.name)
	n.Must(err)
	client := n.Client(access)
	ctx, cancel := context.WithTimeout(n.Ctx, 30*time.Second)
	defer cancel()
	asked := client.CertificatesV1().RESTClient().Post().Resource("certificatesigningrequests").MaxRetries(0).
		Body(&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}}).Do(ctx).Error()
	if !apierrors.IsServiceUnavailable(asked) {
		n.Fail("a kubelet that asks for a certificate is told: %w, want %d", asked,
			http.StatusServiceUnavailable)
	}
	said := n.mustSh(n.hub + " check || true")
	if !strings.Contains(said, "kubeadm token create") {
		n.Fail("check does not say what to do:\n%s", said)
	}
}

// allRenewed waits until each certificate is new, and valid.
func (n *installed) allRenewed() {
	n.Eventually(2*time.Minute, "kubelet, hub and coordinator have certificates of now", func() error {
		ends, err := n.ends()
		if err != nil {
			return err
		}
		var old []string
		for who, end := range ends {
			if !end.After(time.Now()) {
				old = append(old, fmt.Sprintf("that of %s ended at %s", who, end.Format(time.TimeOnly)))
			}
		}
		slices.Sort(old)
		if len(old) > 0 {
			return errors.New(strings.Join(old, "; "))
		}
		return nil
	})
}
