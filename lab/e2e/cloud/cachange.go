package cloud

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var caChangeScenarios = []kit.Scenario{{
	Name: "cloud-ca-change", Lab: kit.Unrelayed(nextAuthority(kit.Joining(kit.OnePool, caChangeLife))),
	Run: cloudCAChange,
	Doc: "The cloud gets a new certificate authority as Kubernetes documents it. Hubs learn of it, get certificates from " +
		"it and carry on without the old one; a node that was cut off learns of it later. No node is NotReady, and no Pod " +
		"refuses its hub.",
}}

// caChangeLife is the life of certificates. When an authority gets a successor, hubs renew the certificates that it signed
// within a thousandth of their life. If the old authority has signed again, they renew once more after a hundredth.
const caChangeLife = time.Hour

func nextAuthority(c lab.Config) lab.Config {
	c.NextAuthority, c.Kubelet = true, lab.Hollow
	c.HubFlags = append(slices.Clone(c.HubFlags), "--masterservice")
	return c
}

// heardWithin is how long a hub may take to learn the cloud's authorities after a restart of the API server: a minute, and the
// time until the hub sees that the server is back.
const heardWithin = 90 * time.Second

// caChange is the change of the authority, with the clients that must not notice it.
type caChange struct {
	*kit.T
	files    lab.Authorities
	old, new string // their hashes, as hubs show them
	pod      mountedPod
}

func cloudCAChange(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	c := &caChange{T: t, files: t.Lab.Authorities()}
	c.old, c.new = c.hash(c.files.Old), c.hash(c.files.New)
	c.trusted(t.Pool.Nodes(), heardWithin, c.old)
	c.knownBy(c.files.Old)
	c.deployPod(leader)
	liarRefused(t, node)
	c.trusted(t.Pool.Nodes(), time.Second, c.old)

	t.Say("both are announced, while %s is cut off", node)
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	c.clientsKnown(c.files.Both)
	c.announce(c.files.Both, c.files.Old, strings.TrimSuffix(c.files.Old, ".crt")+".key")
	t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer))
	others := slices.DeleteFunc(slices.Clone(t.Pool.Nodes()), func(n string) bool { return n == node })
	t.Figure("announced_to_trusted_s", c.trusted(others, heardWithin, c.old, c.new).Seconds())
	c.trusted([]string{node}, time.Second, c.old)

	t.Say("%s is back", node)
	healed := t.Heal(node)
	t.Node(node).Direct(healed)
	t.Figure("healed_to_trusted_s", c.trusted([]string{node}, heardWithin, c.old, c.new).Seconds())

	t.Say("the new one signs")
	t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer, c.shown()...))
	c.announce(c.files.Both, c.files.New, c.files.NewKey)
	c.knownBy(c.files.New)
	t.Pool.Settled(60 * time.Second)

	t.Say("the old one is dropped")
	t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer, append(c.shown(), "--client-ca-file="+c.files.New)...))
	c.announce(c.files.New, c.files.New, c.files.NewKey)
	t.Pool.Settled(60 * time.Second)
	dropped := time.Now()
	t.Hold(t.Config.Timing.Grace+10*time.Second, "longer than a silent node stays Ready")
	for _, name := range t.Pool.Nodes() {
		if n := len(t.Seen.Renewals(name, dropped)); n < 3 {
			t.Fail("%s renewed its Lease %d times since", name, n)
		}
		t.NeverNotReady(t.Start, name)
	}
	c.trusted(t.Pool.Nodes(), time.Second, c.old, c.new) // the old one for a week
	c.pod.judge(t)

	t.Say("a node is delegated all the same")
	cut = t.Cut(node)
	t.Node(node).Delegated(cut)
	healed = t.Heal(node)
	t.Node(node).Direct(healed)
}

// shown are the API server's flags with which it shows a certificate by the new authority.
func (c *caChange) shown() []string {
	return []string{"--tls-cert-file=" + c.files.Cert, "--tls-private-key-file=" + c.files.Key}
}

// announce makes the cloud publish a bundle of authorities, and sign certificates by one of them.
func (c *caChange) announce(bundle, signer, key string) {
	c.Must(c.Lab.Cloud(c.Ctx, lab.Restart, lab.KubeControllerManager, "--root-ca-file="+bundle,
		"--cluster-signing-cert-file="+signer, "--cluster-signing-key-file="+key))
	want := c.read(bundle)
	c.Eventually(30*time.Second, "the cloud says it in "+lab.RootConfigMap, func() error {
		has, err := c.Cloud.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(c.Ctx, lab.RootConfigMap, metav1.GetOptions{})
		if err == nil && has.Data["ca.crt"] != string(want) {
			err = errors.New("it says something else")
		}
		return err
	})
	infos := c.Cloud.CoreV1().ConfigMaps(metav1.NamespacePublic)
	info, err := infos.Get(c.Ctx, "cluster-info", metav1.GetOptions{})
	c.Must(err)
	access, err := c.Lab.CloudConfig()
	c.Must(err)
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthorityData: want}
	said, err := clientcmd.Write(*config)
	c.Must(err)
	info.Data = map[string]string{"kubeconfig": string(said)}
	_, err = infos.Update(c.Ctx, info, metav1.UpdateOptions{})
	c.Must(err)
}

// clientsKnown makes the pool's coordinator verify its clients by a bundle. In an installed lab the controller does that.
func (c *caChange) clientsKnown(bundle string) {
	c.Must(c.Lab.TrustClients(c.Pool.CoordinatorNode(), c.read(bundle)))
}

// trusted waits until the hubs of these nodes trust exactly these authorities.
func (c *caChange) trusted(nodes []string, within time.Duration, want ...string) time.Duration {
	return c.Eventually(within, fmt.Sprintf("the hubs of %v trust %d", nodes, len(want)), func() error {
		for name, h := range c.Pool.Hubs() {
			if !slices.Contains(nodes, name) {
				continue
			}
			var has []string
			if h.Identity != nil {
				for _, a := range h.Identity.Authorities.Trusted {
					has = append(has, a.Hash)
				}
			}
			if !slices.Equal(has, want) {
				return fmt.Errorf("that of %s trusts %v", name, has)
			}
		}
		return nil
	})
}

// knownBy waits until each hub's certificate for the cloud is by this authority. Its certificate for Pods has another
// authority.
func (c *caChange) knownBy(file string) {
	all, err := cert.CertsFromFile(file)
	c.Must(err)
	took := c.Eventually(4*time.Minute, "all hubs have their certificate by "+c.hash(file), func() error {
		for _, node := range c.Pool.Nodes() {
			dir := c.Node(node).HubKeys()
			own, err := cert.CertsFromFile(dir + "/client.pem")
			if err != nil {
				return err
			}
			if err := own[0].CheckSignatureFrom(all[0]); err != nil {
				return fmt.Errorf("%s: %w", node, err)
			}
		}
		return nil
	})
	c.Figure("signing_to_renewed_s", took.Seconds())
}

func (c *caChange) read(file string) []byte {
	content, err := os.ReadFile(file)
	c.Must(err)
	return content
}

func (c *caChange) hash(file string) string {
	all, err := cert.CertsFromFile(file)
	c.Must(err)
	return fmt.Sprintf("sha256:%x", sha256.Sum256(all[0].RawSubjectPublicKeyInfo))
}

// liarRefused tries to announce an authority with a node's certificate, and expects the cloud to forbid it.
func liarRefused(t *kit.T, node string) {
	access, err := t.Lab.CloudConfigAs(node)
	t.Must(err)
	liar := t.Client(access)
	for _, name := range []string{lab.RootConfigMap, "cluster-info"} {
		_, err := liar.CoreV1().ConfigMaps(metav1.NamespacePublic).Patch(t.Ctx, name, types.MergePatchType,
			[]byte(`{"data":{"ca.crt":"mine"}}`), metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) {
			t.Fail("%s writes %s: %v, want it forbidden", node, name, err)
		}
	}
}

// mountedPod is a Pod on a node that verifies its hub by the authorities that are mounted in Pods.
type mountedPod struct {
	mu     sync.Mutex
	asked  int
	failed int
	wrong  []error // its hub's certificate was not by an authority that Pods know
}

func (c *caChange) deployPod(node string) {
	t := c.T
	t.Bind("mounted", "view", kit.Account("default"))
	t.Node(node).RunPod("mounted", nil, nil) // it mounts what is read, or the node may not
	hub, err := t.Lab.HubConfig(node)
	t.Must(err)
	access := &rest.Config{
		Host:        "https://" + net.JoinHostPort(t.Node(node).Address(), strconv.Itoa(edge.PortHubTLS)),
		BearerToken: t.Token("default"), Dial: hub.Dial, QPS: -1, UserAgent: "coredns/lab", Timeout: 20 * time.Second,
	}
	t.Eventually(30*time.Second, "a Pod on "+node+" reads through its hub", func() error { return c.ask(t.Ctx, node, access) })
	t.Background.Go(func() {
		every := time.NewTicker(300 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-every.C:
			case <-t.Ctx.Done():
				return
			}
			err := c.ask(t.Ctx, node, access)
			if t.Ctx.Err() != nil {
				return
			}
			c.pod.note(err)
		}
	})
}

// ask reads the authorities mounted in Pods, and then a ConfigMap through the hub, over a new connection.
func (c *caChange) ask(ctx context.Context, node string, access *rest.Config) error {
	mounted, err := c.Node(node).PodAuthorities()
	if err != nil {
		return err
	}
	access = rest.CopyConfig(access)
	access.CAData = mounted
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return err
	}
	defer utilnet.CloseIdleConnectionsFor(client.Transport)
	pod, err := kubernetes.NewForConfigAndClient(access, client)
	if err != nil {
		return err
	}
	return pod.CoreV1().RESTClient().Get().Namespace(kit.Namespace).Resource("configmaps").MaxRetries(0).
		Do(ctx).Into(&corev1.ConfigMapList{})
}

func (p *mountedPod) note(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		p.wrong = append(p.wrong, err)
	case err != nil:
		p.failed++
	}
}

// judge expects that the Pod never refused its hub, and was always answered except while the API server was restarted.
func (p *mountedPod) judge(t *kit.T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Figure("pod_requests", float64(p.asked))
	t.Figure("pod_failures", float64(p.failed))
	if len(p.wrong) > 0 {
		t.Fail("of %d requests of a Pod %d met a hub that it did not know: %w", p.asked, len(p.wrong), p.wrong[0])
	}
	if p.failed > p.asked/10 {
		t.Fail("of %d requests of a Pod %d failed", p.asked, p.failed)
	}
}
