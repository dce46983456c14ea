package e2e

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

// kubeadmShort has what the cloud signs for a node last for a minute and a half, and a coordinator's for one.
var kubeadmShort = func() lab.Config {
	c := shortLived(pool.AsInstalled())
	c.CertificateLife = 90 * time.Second
	return c
}()

// Certificates of a node, by who has them.
const (
	kubeletClient  = "kubelet as a client"
	kubeletServing = "kubelet as a server"
	hubsOwn        = "the hub"
	coordinators   = "the coordinator"
)

// ends are when the certificates end that a pool cannot do without the cloud for long: those of the node, and the one that
// the coordinator shows.
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
	shown, err := n.coordinatorShows()
	if err != nil {
		return nil, fmt.Errorf("the coordinator: %w", err)
	}
	all[coordinators] = shown.NotAfter
	return all, nil
}

// coordinatorShows returns the certificate that the first pool's coordinator serves with, valid or not.
func (t *T) coordinatorShows() (*x509.Certificate, error) {
	access, err := t.lab.CoordinatorConfig(1, lab.Operator)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
	defer cancel()
	conn, err := access.Dial(ctx, "tcp", strings.TrimPrefix(access.Host, "https://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is looked at, not trusted
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return client.ConnectionState().PeerCertificates[0], nil
}

// allEnd waits until each of the certificates has ended.
func (n *installed) allEnd() map[string]time.Time {
	ends, err := n.ends()
	n.must(err)
	last := time.Now()
	for _, end := range ends {
		if end.After(last) {
			last = end
		}
	}
	n.hold(time.Until(last)+3*time.Second, "the certificates expire")
	ends, err = n.ends()
	n.must(err)
	for who, end := range ends {
		if end.After(time.Now()) {
			n.fail("that of %s has been renewed, until %s", who, end)
		}
		n.say("that of %s has ended %.0f s ago", who, time.Since(end).Seconds())
	}
	return ends
}

func kubeadmDays(t *T) {
	name := t.follower(t.settledAway())
	t.kubeadmCluster()
	n := t.bareNode(name)
	n.kubeadmJoin()
	want := t.deployNeedy(name)
	t.say("%s", strings.TrimSpace(n.mustSh("sh "+n.dir+"/join --nodepool-name=p1")))
	n.beats("kubelet goes through the hub")
	t.settled(60 * time.Second)
	first, err := n.ends()
	t.must(err)
	servers := t.processes(name, "httpd -f")
	kubelet := t.processes(name, "--kubeconfig=/etc/yurthub/kubelet.conf")

	t.say("cutting the pool off from the cloud until no certificate is valid")
	t.must(t.lab.Cut(t.ctx, lab.WAN, "pool/p1", wire.Drop))
	t.tokensEnd()
	ended := n.allEnd()
	if ended[hubsOwn].Before(first[hubsOwn]) {
		t.fail("the hub's certificate ended at %s, before %s", ended[hubsOwn], first[hubsOwn])
	}
	if now := t.processes(name, "httpd -f"); !sameKeys(now, servers) {
		t.fail("containers were restarted: %v, before %v", now, servers)
	}
	if now := t.processes(name, "--kubeconfig=/etc/yurthub/kubelet.conf"); !sameKeys(now, kubelet) {
		t.fail("kubelet was restarted: %v, before %v", now, kubelet)
	}
	t.figure("restart_expired_s", t.powerCycle(name, want).Seconds())
	servers = t.processes(name, "httpd -f")

	t.say("healing; the token has expired, too")
	t.must(t.lab.Heal(t.ctx, lab.WAN, "pool/p1"))
	n.refusedGently()

	t.say("a new token")
	token := t.kubeadm("token", "create")
	put := time.Now()
	n.mustSh("umask 077; printf '%s\\n' " + token + " >/etc/yurthub/bootstrap-token")
	n.allRenewed()
	t.figure("new_token_to_renewed_s", time.Since(put).Seconds())
	t.settled(60 * time.Second)
	n.beats("kubelet goes through the hub, with certificates of now")
	if now := t.processes(name, "httpd -f"); !sameKeys(now, servers) {
		t.fail("containers were restarted: %v, before %v", now, servers)
	}
	n.kubeletIsKnown()

	t.say("reset: kubelet has what it needs to go straight")
	t.say("%s", strings.TrimSpace(n.mustSh("sh "+n.dir+"/reset")))
	n.beats("kubelet goes straight to the cloud again")
	n.goesStraight()
}

// tokensEnd ends all tokens that nodes can join with, as time does.
func (t *T) tokensEnd() {
	secrets := t.cloud.CoreV1().Secrets(edge.NamespaceSystem)
	t.must(secrets.DeleteCollection(t.ctx, metav1.DeleteOptions{}, metav1.ListOptions{
		FieldSelector: "type=" + string(corev1.SecretTypeBootstrapToken),
	}))
}

// refusedGently waits until the hub says what the node needs, and expects that kubelet is asked to try again when it asks
// for a certificate, and not told that it is nobody: of that it would exit, every five minutes.
func (n *installed) refusedGently() {
	n.eventually(60*time.Second, "the hub says that it needs a token", func() error {
		h, err := n.lab.Hub(n.ctx, n.name)
		if err != nil {
			return err
		}
		if p := h.Identity.Client.Problem; h.Cloud != "up" || !strings.Contains(p, "kubeadm token create") {
			return fmt.Errorf("the cloud is %s; it says %q", h.Cloud, p)
		}
		return nil
	})
	access, err := n.lab.HubConfig(n.name)
	n.must(err)
	client, err := kubernetes.NewForConfig(access)
	n.must(err)
	ctx, cancel := context.WithTimeout(n.ctx, 30*time.Second)
	defer cancel()
	asked := client.CertificatesV1().RESTClient().Post().Resource("certificatesigningrequests").MaxRetries(0).
		Body(&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}}).Do(ctx).Error()
	if !apierrors.IsServiceUnavailable(asked) {
		n.fail("a program without credentials that asks for a certificate is told: %w, want %d", asked,
			http.StatusServiceUnavailable)
	}
	said := n.mustSh(n.hub + " check || true")
	if !strings.Contains(said, "kubeadm token create") {
		n.fail("check does not say what to do:\n%s", said)
	}
}

// allRenewed waits until each certificate is another, and valid.
func (n *installed) allRenewed() {
	n.eventually(2*time.Minute, "kubelet, hub and coordinator have certificates of now", func() error {
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
