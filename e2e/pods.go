package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var podScenarios = []Scenario{
	{
		Name: "pods-offline", Quick: true, Lab: sendingPods(joining(pool, 0)), run: podsOffline,
		Doc: "Pods are sent to their node's hub, which serves them over TLS with their ServiceAccounts' rights and no others: " +
			"with the cloud, without it, and after a restart without it",
	},
}

func sendingPods(c lab.Config) lab.Config {
	c.HubFlags = append(slices.Clone(c.HubFlags), "--masterservice")
	return c
}

// Of the ServiceAccounts that read through a hub.
const (
	readerName, strangerName = "reader", "stranger"
	settingsName             = "settings"
)

func podsOffline(t *T) {
	leader := t.settledAway()
	node := t.follower(leader)
	t.deployWeb()
	t.deployNeedy(node)
	t.servingApproved()
	t.sentToHub(node)
	t.grantReading()
	reader, stranger := t.podClient(node, readerName), t.podClient(node, strangerName)

	config, slices := t.reads(reader)
	lists, err := t.lab.CloudLists(t.ctx, "endpointslices")
	t.must(err)
	for _, l := range lists {
		if strings.HasPrefix(l.User, "system:serviceaccount:"+namespace) {
			t.fail("EndpointSlices were listed over the WAN for a Pod: %+v", l)
		}
	}
	t.refuses(reader, "secrets", http.StatusForbidden)
	t.refuses(stranger, "configmaps", http.StatusForbidden)
	t.refuses(stranger, "endpointslices", http.StatusForbidden)
	t.refuses(t.podClient(node, ""), "configmaps", http.StatusForbidden)
	t.refuses(t.podClientWith(node, "not.a.token"), "configmaps", http.StatusUnauthorized)
	t.hold(3*time.Second, "the hub's disk is written once a second")

	t.say("cutting %s off from cloud and pool", node)
	t.must(t.lab.Cut(t.ctx, lab.WAN, node, wire.Drop))
	t.must(t.lab.Cut(t.ctx, lab.LAN, node, wire.Drop))
	for _, restart := range []bool{false, true} {
		if restart {
			t.must(t.lab.Node(t.ctx, lab.Restart, node, lab.Hub))
		}
		t.eventually(30*time.Second, "the Pod reads what it read before", func() error {
			c, s, err := reader.read(t)
			if err == nil && (c != config || s != slices) {
				err = fmt.Errorf("%s and %s, before %s and %s", c, s, config, slices)
			}
			return err
		})
		t.refuses(reader, "secrets", http.StatusServiceUnavailable)
		t.refuses(stranger, "configmaps", http.StatusServiceUnavailable)
		t.refuses(stranger, "endpointslices", http.StatusServiceUnavailable)
		t.refuses(t.podClientWith(node, "not.a.token"), "configmaps", http.StatusServiceUnavailable)
	}

	t.say("healing, and changing what the Pod reads")
	t.must(t.lab.Heal(t.ctx, lab.LAN, node))
	t.must(t.lab.Heal(t.ctx, lab.WAN, node))
	found, err := t.cloud.CoreV1().ConfigMaps(namespace).Get(t.ctx, settingsName, metav1.GetOptions{})
	t.must(err)
	found.Data = map[string]string{"key": "another"}
	_, err = t.cloud.CoreV1().ConfigMaps(namespace).Update(t.ctx, found, metav1.UpdateOptions{})
	t.must(err)
	t.eventually(30*time.Second, "the Pod reads what has changed", func() error {
		c, _, err := reader.read(t)
		if err == nil && !strings.Contains(c, "another") {
			err = fmt.Errorf("it reads %s", c)
		}
		return err
	})
	t.refuses(stranger, "configmaps", http.StatusForbidden)
}

// servingApproved waits until each hub has a certificate to serve Pods with, and checks that nobody else approved it.
func (t *T) servingApproved() {
	t.eventually(60*time.Second, "all hubs have a certificate for Pods", func() error {
		for node, h := range t.hubs() {
			if h.Identity == nil || h.Identity.Serving.NotAfter.IsZero() {
				return fmt.Errorf("%s: %+v", node, h.Identity)
			}
		}
		return nil
	})
	list, err := t.cloud.CertificatesV1().CertificateSigningRequests().List(t.ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName,
	})
	t.must(err)
	for _, r := range list.Items {
		if !slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved && c.Reason == "HubServing"
		}) {
			t.fail("request %s was not approved by the controller: %+v", r.Name, r.Status.Conditions)
		}
	}
}

// sentToHub expects that a Pod of a node was told that the API server is at its hub.
func (t *T) sentToHub(node string) {
	environ, err := t.lab.Output(t.ctx, node, "sh", "-c",
		fmt.Sprintf("tr '\\0' '\\n' < /proc/$(pgrep -f 'httpd -f -p 127.0.0.1:%d' | head -1)/environ", needyPort))
	t.must(err)
	for name, want := range map[string]string{
		"KUBERNETES_SERVICE_HOST": t.address(node), "KUBERNETES_SERVICE_PORT": strconv.Itoa(edge.PortHubTLS),
	} {
		if !slices.Contains(strings.Split(environ, "\n"), name+"="+want) {
			t.fail("a Pod of %s was not told %s=%s but\n%s", node, name, want, environ)
		}
	}
}

// address is a node's in its LAN.
func (t *T) address(node string) string {
	n, err := t.cloud.CoreV1().Nodes().Get(t.ctx, node, metav1.GetOptions{})
	t.must(err)
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	t.fail("%s has no address", node)
	return ""
}

// grantReading makes two ServiceAccounts, one of which may read a ConfigMap's namespace and all EndpointSlices.
func (t *T) grantReading() {
	for _, name := range []string{readerName, strangerName} {
		_, err := t.cloud.CoreV1().ServiceAccounts(namespace).Create(t.ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		t.must(err)
	}
	_, err := t.cloud.CoreV1().ConfigMaps(namespace).Create(t.ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: settingsName}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	t.must(err)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: readerName}}
	reading := []string{"get", "list", "watch"}
	_, err = t.cloud.RbacV1().ClusterRoles().Create(t.ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: readerName},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: reading},
			{APIGroups: []string{discoveryv1.GroupName}, Resources: []string{"endpointslices"}, Verbs: reading},
		},
	}, metav1.CreateOptions{})
	t.must(err)
	_, err = t.cloud.RbacV1().ClusterRoleBindings().Create(t.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: readerName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: readerName}, Subjects: subjects,
	}, metav1.CreateOptions{})
	t.must(err)
}

// podClient is what a Pod of a node has, with the token of a ServiceAccount; with no token, if that is empty.
type podClient struct {
	kubernetes.Interface
	name string
}

func (t *T) podClient(node, account string) podClient {
	token := ""
	if account != "" {
		token = t.tokenOf(account)
	}
	c := t.podClientWith(node, token)
	c.name = account
	return c
}

func (t *T) tokenOf(account string) string {
	request, err := t.cloud.CoreV1().ServiceAccounts(namespace).CreateToken(t.ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	t.must(err)
	return request.Status.Token
}

func (t *T) podClientWith(node, token string) podClient {
	client, err := kubernetes.NewForConfig(t.podAccess(node, token))
	t.must(err)
	return podClient{client, "somebody"}
}

// podAccess is the way to a node's hub with a token, as a program whose reads are kept.
func (t *T) podAccess(node, token string) *rest.Config {
	access, err := t.lab.CloudConfig()
	t.must(err)
	hub, err := t.lab.HubConfig(node)
	t.must(err)
	return &rest.Config{
		Host:            "https://" + net.JoinHostPort(t.address(node), strconv.Itoa(edge.PortHubTLS)),
		TLSClientConfig: rest.TLSClientConfig{CAData: access.CAData},
		BearerToken:     token, Dial: hub.Dial, QPS: -1, UserAgent: "coredns/lab", Timeout: 20 * time.Second,
	}
}

// read is what a Pod may read, to compare.
func (c podClient) read(t *T) (config, slices string, err error) {
	maps, err := c.CoreV1().ConfigMaps(namespace).List(t.ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + settingsName,
	})
	if err != nil {
		return "", "", fmt.Errorf("ConfigMaps: %w", err)
	}
	for _, m := range maps.Items {
		config += m.Name + fmt.Sprint(m.Data)
	}
	all, err := c.DiscoveryV1().EndpointSlices(namespace).List(t.ctx, metav1.ListOptions{})
	if err != nil {
		return "", "", fmt.Errorf("EndpointSlices: %w", err)
	}
	for _, s := range all.Items {
		slices += s.Name + "@" + s.ResourceVersion + " "
	}
	return config, slices, nil
}

// reads waits until a Pod reads what the cloud has.
func (t *T) reads(c podClient) (config, slices string) {
	t.eventually(30*time.Second, "the Pod of "+c.name+" reads ConfigMap and EndpointSlices", func() error {
		var err error
		config, slices, err = c.read(t)
		if err != nil {
			return err
		}
		truth, err := t.cloud.DiscoveryV1().EndpointSlices(namespace).List(t.ctx, metav1.ListOptions{})
		t.must(err)
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

// refuses expects that a Pod is refused a list with a code.
func (t *T) refuses(c podClient, resource string, code int) {
	client := c.CoreV1().RESTClient()
	if resource == "endpointslices" {
		client = c.DiscoveryV1().RESTClient()
	}
	// client-go waits and tries again ten times otherwise.
	err := client.Get().Namespace(namespace).Resource(resource).MaxRetries(0).Do(t.ctx).Error()
	var status apierrors.APIStatus
	if !errors.As(err, &status) || int(status.Status().Code) != code {
		t.fail("a Pod of %s that lists %s: %v, want %d", c.name, resource, err, code)
	}
}
