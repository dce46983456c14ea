package offline

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var podScenarios = []kit.Scenario{
	{
		Name: "pods-offline", Tier: kit.Core, Lab: sendingPods(kit.Joining(kit.OnePool, 0)), Run: podsOffline,
		Doc: "Pods talk to their node's hub over TLS with the rights of their own ServiceAccount and no others: online, " +
			"cut off, and after a restart while cut off. A Pod verifies its hub by what is mounted in it, and the hub's " +
			"key opens nothing in the cloud or at the coordinator.",
	},
}

func sendingPods(c lab.Config) lab.Config {
	c.HubFlags = append(slices.Clone(c.HubFlags), "--masterservice")
	return c
}

// Names of the ServiceAccounts that read through a hub.
const (
	readerName, strangerName = "reader", "stranger"
	settingsName             = "settings"
)

func podsOffline(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	t.DeployWeb()
	servingApproved(t)
	t.Node(node).DeployNeedy()
	sentToHub(t, node)
	verifiesHub(t, node)
	nobodyElsewhere(t, node)
	grantReading(t)
	reader, stranger := newPodClient(t, node, readerName), newPodClient(t, node, strangerName)

	config, slices := reads(t, reader)
	lists, err := t.Lab.CloudLists(t.Ctx, "endpointslices")
	t.Must(err)
	for _, l := range lists {
		if strings.HasPrefix(l.User, "system:serviceaccount:"+kit.Namespace) {
			t.Fail("EndpointSlices were listed over the WAN for a Pod: %+v", l)
		}
	}
	refuses(t, reader, "secrets", http.StatusForbidden)
	refuses(t, stranger, "configmaps", http.StatusForbidden)
	refuses(t, stranger, "endpointslices", http.StatusForbidden)
	refuses(t, newPodClient(t, node, ""), "configmaps", http.StatusUnauthorized)
	refuses(t, podClientWith(t, node, "not.a.token"), "configmaps", http.StatusUnauthorized)
	t.Hold(3*time.Second, "the hub's disk is written once a second")

	t.Say("cutting %s off from cloud and pool", node)
	t.Cut(node)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
	for _, restart := range []bool{false, true} {
		if restart {
			t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.Hub))
		}
		t.Eventually(30*time.Second, "the Pod reads what it read before", func() error {
			c, s, err := reader.read(t)
			if err == nil && (c != config || s != slices) {
				err = fmt.Errorf("%s and %s, before %s and %s", c, s, config, slices)
			}
			return err
		})
		refuses(t, reader, "secrets", http.StatusServiceUnavailable)
		refuses(t, stranger, "configmaps", http.StatusServiceUnavailable)
		refuses(t, stranger, "endpointslices", http.StatusServiceUnavailable)
		refuses(t, podClientWith(t, node, "not.a.token"), "configmaps", http.StatusServiceUnavailable)
	}

	t.Say("healing, and changing what the Pod reads")
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, node))
	t.Heal(node)
	readsTheChange(t, reader)
	refuses(t, stranger, "configmaps", http.StatusForbidden)
}

// readsTheChange changes the ConfigMap that a Pod reads, and waits until the Pod reads the change.
func readsTheChange(t *kit.T, reader podClient) {
	found, err := t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Get(t.Ctx, settingsName, metav1.GetOptions{})
	t.Must(err)
	found.Data = map[string]string{"key": "another"}
	_, err = t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Update(t.Ctx, found, metav1.UpdateOptions{})
	t.Must(err)
	t.Eventually(30*time.Second, "the Pod reads what has changed", func() error {
		c, _, err := reader.read(t)
		if err == nil && !strings.Contains(c, "another") {
			err = fmt.Errorf("it reads %s", c)
		}
		return err
	})
}

// servingApproved waits until each hub has a certificate to serve Pods with, and checks that nobody else approved it.
func servingApproved(t *kit.T) {
	t.Pool.ServesPods()
	list, err := t.Cloud.CertificatesV1().CertificateSigningRequests().List(t.Ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + edge.SignerHubs,
	})
	t.Must(err)
	for _, r := range list.Items {
		if !slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved && c.Reason == "HubServing"
		}) {
			t.Fail("request %s was not approved by the controller: %+v", r.Name, r.Status.Conditions)
		}
	}
}

// sentToHub expects that a Pod of a node was told that the API server is at its hub.
func sentToHub(t *kit.T, node string) {
	environ := ofPod(t, node, `tr '\0' '\n' < /proc/$pod/environ`)
	for name, want := range map[string]string{
		"KUBERNETES_SERVICE_HOST": t.Node(node).Address(), "KUBERNETES_SERVICE_PORT": strconv.Itoa(edge.PortHubTLS),
	} {
		if !slices.Contains(strings.Split(environ, "\n"), name+"="+want) {
			t.Fail("a Pod of %s was not told %s=%s but\n%s", node, name, want, environ)
		}
	}
}

// ofPod returns what a command prints for the needy Pod of a node, whose process is $pod.
func ofPod(t *kit.T, node, command string) string {
	text, err := t.Lab.Output(t.Ctx, node, "sh", "-c",
		fmt.Sprintf("pod=$(pgrep -f 'httpd -f -p 127.0.0.1:%d' | head -1); %s", kit.NeedyPort, command))
	t.Must(err)
	return text
}

// verifiesHub expects that a Pod on a node can verify the node's hub with the authorities mounted in the Pod, and that the
// cluster's authority alone does not suffice. The hub's certificate must name only the hub, without a group.
func verifiesHub(t *kit.T, node string) {
	mounted := ofPod(t, node, "nsenter -t $pod -m cat /var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	shown, err := shownTo(t, node, []byte(mounted))
	t.Must(err)
	if _, err := shownTo(t, node, access.CAData); err == nil {
		t.Fail("the cluster's authority signs for the hub of %s, too", node)
	}
	want := "CN=" + edge.NodeName(node).HubUser()
	if len(shown) != 1 || shown[0].Subject.String() != want || len(shown[0].DNSNames) > 0 {
		t.Fail("the hub of %s shows %v, want %s", node, shown[0].Subject, want)
	}
	cloud, err := cert.ParseCertsPEM([]byte(mounted))
	t.Must(err)
	t.Say("a Pod of %s verifies %s by %q", node, shown[0].Subject, cloud[len(cloud)-1].Subject)
}

// shownTo returns the certificates that a node's hub shows to a client that verifies it by these authorities.
func shownTo(t *kit.T, node string, authorities []byte) ([]*x509.Certificate, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	address := t.Node(node).Address()
	conn, err := t.Lab.Dial(t.Ctx, node, net.JoinHostPort(address, strconv.Itoa(edge.PortHubTLS)))
	t.Must(err)
	defer conn.Close()
	hub := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: address, MinVersion: tls.VersionTLS12})
	if err := hub.HandshakeContext(t.Ctx); err != nil {
		return nil, err
	}
	return hub.ConnectionState().PeerCertificates, nil
}

// nobodyElsewhere expects that the key with which a hub serves Pods gives access neither to the cloud nor to the coordinator.
func nobodyElsewhere(t *kit.T, node string) {
	key := t.Node(node).HubKeys() + "/hub.pem"
	for what, configOf := range map[string]func() (*rest.Config, error){
		"the cloud":       t.Lab.CloudConfig,
		"the coordinator": func() (*rest.Config, error) { return t.Lab.CoordinatorConfig(1, lab.Operator) },
	} {
		access, err := configOf()
		t.Must(err)
		thief := rest.AnonymousClientConfig(access)
		thief.CertFile, thief.KeyFile, thief.Dial = key, key, access.Dial
		client := t.Client(thief)
		_, err = client.CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{})
		if err == nil || apierrors.IsForbidden(err) && strings.Contains(err.Error(), edge.NodeName(node).HubUser()) {
			t.Fail("%s knows who has the key of the hub of %s: %v", what, node, err)
		}
		t.Say("%s answers who has the key of a hub: %v", what, err)
	}
}

// grantReading makes two ServiceAccounts, one of which may read a ConfigMap's namespace and all EndpointSlices.
func grantReading(t *kit.T) {
	for _, name := range []string{readerName, strangerName} {
		t.MakeAccount(name)
	}
	_, err := t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(t.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: settingsName}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	t.Must(err)
	t.Grant(readerName, []rbacv1.PolicyRule{
		kit.Reads("", "configmaps"), kit.Reads(discoveryv1.GroupName, "endpointslices"),
	}, kit.Account(readerName))
}

// podClient is the client of a Pod on a node, with the token of a ServiceAccount; an empty name means no token.
type podClient struct {
	kubernetes.Interface
	name string
}

func newPodClient(t *kit.T, node, account string) podClient {
	token := ""
	if account != "" {
		token = t.Token(account)
	}
	c := podClientWith(t, node, token)
	c.name = account
	return c
}

func podClientWith(t *kit.T, node, token string) podClient {
	client := t.Client(podAccess(t, node, token))
	return podClient{client, "somebody"}
}

// podAccess returns the access to a node's hub with a token, as a program whose reads the hub keeps.
func podAccess(t *kit.T, node, token string) *rest.Config {
	authorities, err := t.Node(node).PodAuthorities()
	t.Must(err)
	hub, err := t.Lab.HubConfig(node)
	t.Must(err)
	return &rest.Config{
		Host:            "https://" + net.JoinHostPort(t.Node(node).Address(), strconv.Itoa(edge.PortHubTLS)),
		TLSClientConfig: rest.TLSClientConfig{CAData: authorities},
		BearerToken:     token, Dial: hub.Dial, QPS: -1, UserAgent: "coredns/lab", Timeout: 20 * time.Second,
	}
}

// read returns what a Pod may read, to compare.
func (c podClient) read(t *kit.T) (config, slices string, err error) {
	maps, err := c.CoreV1().ConfigMaps(kit.Namespace).List(t.Ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + settingsName,
	})
	if err != nil {
		return "", "", fmt.Errorf("ConfigMaps: %w", err)
	}
	for _, m := range maps.Items {
		config += m.Name + fmt.Sprint(m.Data)
	}
	all, err := c.DiscoveryV1().EndpointSlices(kit.Namespace).List(t.Ctx, metav1.ListOptions{})
	if err != nil {
		return "", "", fmt.Errorf("EndpointSlices: %w", err)
	}
	for _, s := range all.Items {
		slices += s.Name + "@" + s.ResourceVersion + " "
	}
	return config, slices, nil
}

// reads waits until a Pod reads what the cloud has.
func reads(t *kit.T, c podClient) (config, slices string) {
	t.Eventually(30*time.Second, "the Pod of "+c.name+" reads ConfigMap and EndpointSlices", func() error {
		var err error
		config, slices, err = c.read(t)
		if err != nil {
			return err
		}
		truth, err := t.Cloud.DiscoveryV1().EndpointSlices(kit.Namespace).List(t.Ctx, metav1.ListOptions{})
		t.Must(err)
		for _, s := range truth.Items {
			if !strings.Contains(slices, s.Name+"@"+s.ResourceVersion) {
				return fmt.Errorf("%s@%s is not among %s", s.Name, s.ResourceVersion, slices)
			}
		}
		if config != settingsName+"map[key:value]" || len(truth.Items) == 0 {
			return fmt.Errorf("it reads %q, and %d EndpointSlices", config, len(truth.Items))
		}
		return nil
	})
	return config, slices
}

// refuses expects that a Pod's list is refused with a code.
func refuses(t *kit.T, c podClient, resource string, code int) {
	client := c.CoreV1().RESTClient()
	if resource == "endpointslices" {
		client = c.DiscoveryV1().RESTClient()
	}
	// Otherwise client-go waits and tries again ten times.
	err := client.Get().Namespace(kit.Namespace).Resource(resource).MaxRetries(0).Do(t.Ctx).Error()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || int(status.Status().Code) != code {
		t.Fail("a Pod of %s that lists %s: %v, want %d", c.name, resource, err, code)
	}
}
