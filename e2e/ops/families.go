package ops

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var familyScenarios = []kit.Scenario{
	{
		Name: "ipv6", Lab: ofFamily(lab.IPv6), Run: ipv6Alone,
		Doc: "Cloud, nodes, Pods and Services with IPv6 only. Hubs join, a node that is cut off is delegated and keeps " +
			"its Pods, and `get`, `logs`, `exec` and `top` work on site. After a power cut with nothing in reach its Pods " +
			"run again. Nothing speaks IPv4.",
	},
	{
		Name: "dual-stack", Lab: ofFamily(lab.DualStack), Run: dualStack,
		Doc: "Nodes, Pods and Services with both IP families. The pool shares the EndpointSlices of both, listed once. A " +
			"cut node's Service answers at both addresses. Hubs use the coordinator's first address, or the other one " +
			"where an administrator says so.",
	},
}

func ofFamily(f lab.IPFamily) lab.Config {
	c := kit.Joining(kit.RealKubelets(kit.OnePool).AsInstalled(), 0)
	c.IPFamily = f
	c.HubFlags = []string{"--secure-bind-address=node", "--masterservice"} // as join has them
	return c
}

func ipv6Alone(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	t.Pool.ServesPods()
	pods := t.DeployWeb()
	ofTheseFamilies(t, pods)
	coordinatorServesAt(t, 0)
	podsFindHub(t, kit.On(pods, node), node)
	onNode := kit.On(pods, node)
	t.Node(node).CutOff(pods, func() { worksOnSite(t, onNode) })
	noIPv4(t)

	want := t.Node(node).DeployNeedy()
	t.Say("cutting %s off from cloud and pool", node)
	t.Cut(node)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
	t.Hold(3*time.Second, "the hub's disk is written once a second")
	servers := t.Node(node).Servers()
	t.Say("power-cycling %s", node)
	t.Figure("restart_offline_s", t.Node(node).PowerCycle(want).Seconds())
	t.Node(node).ServersBack(servers)
	t.Node(node).HealingKeeps(t.Node(node).Servers())
	t.Node(node).WebAnswers()
	noIPv4(t)
}

func dualStack(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	shared := kit.EndpointSlices
	t.Pool.Shared(30*time.Second, shared.Name)
	t.Pool.ServesPods()
	lists := len(t.Pool.ListsOverWAN(shared.Resource))
	pods := t.DeployWeb()
	ofTheseFamilies(t, pods)
	for _, name := range t.Pool.Nodes() {
		hubHasEndpoints(t, name, pods)
	}
	if more := t.Pool.NewLists(shared.Resource, lists); len(more) > 0 {
		t.Fail("for Services of two families, EndpointSlices were listed over the WAN %d times more", len(more))
	}
	coordinatorServesAt(t, 0)
	coordinatorAnswersAtAll(t, node)
	podsFindHub(t, kit.On(pods, node), node)
	onNode := kit.On(pods, node)
	t.Node(node).CutOff(pods, func() { worksOnSite(t, onNode) })

	t.Say("an administrator says that the LAN is at the second address of each node")
	said := time.Now()
	for _, name := range t.Pool.Nodes() {
		t.Must(annotate(t, t.Cloud, name, addressesOf(t, name)[1].String()))
	}
	coordinatorServesAt(t, 1)
	t.Figure("moved_to_ipv6_s", time.Since(said).Seconds())
	t.Pool.Settled(30 * time.Second)
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	worksOnSite(t, onNode)
	t.NeverNotReady(cut, node)
	healed := t.Heal(node)
	t.Node(node).Direct(healed)

	t.Say("the administrator takes it back")
	for _, name := range t.Pool.Nodes() {
		t.Must(annotate(t, t.Cloud, name, ""))
	}
	coordinatorServesAt(t, 0)
	t.NeverNotReady(said, node)
}

// ofTheseFamilies expects that nodes, Pods and the web Service have addresses of each of the lab's IP families, and no others.
func ofTheseFamilies(t *kit.T, pods map[types.UID]kit.PodAt) {
	families := len(t.Config.SaveRules())
	check := func(what string, addresses []string) {
		for _, text := range addresses {
			address, err := netip.ParseAddr(text)
			t.Must(err)
			if !t.Config.Belongs(address) {
				t.Fail("%s has the address %s", what, address)
			}
		}
		if len(addresses) != families {
			t.Fail("%s has the addresses %v, want one of each of %d families", what, addresses, families)
		}
	}
	for _, name := range t.Pool.Nodes() {
		n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, name, metav1.GetOptions{})
		t.Must(err)
		var addresses []string
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				addresses = append(addresses, a.Address)
			}
		}
		check(name, addresses)
		if want := fmt.Sprint(addressesOf(t, name)); fmt.Sprint(addresses) != want {
			t.Fail("%s has the addresses %v, want %s", name, addresses, want)
		}
	}
	for _, p := range pods {
		check(p.Name, p.IPs)
	}
	service, err := t.Cloud.CoreV1().Services(kit.Namespace).Get(t.Ctx, kit.WebName, metav1.GetOptions{})
	t.Must(err)
	check("Service "+kit.WebName, service.Spec.ClusterIPs)
}

// hubHasEndpoints waits until a node's hub has an endpoint of the web Service for each address of these Pods.
func hubHasEndpoints(t *kit.T, node string, pods map[types.UID]kit.PodAt) {
	want := kit.Addresses(pods)
	slices.Sort(want)
	client := t.Node(node).Client()
	t.Eventually(30*time.Second, fmt.Sprintf("the hub of %s has %d endpoints of %s", node, len(want), kit.WebName), func() error {
		all, err := client.DiscoveryV1().EndpointSlices(kit.Namespace).List(t.Ctx, metav1.ListOptions{
			LabelSelector: discoveryv1.LabelServiceName + "=" + kit.WebName,
		})
		if err != nil {
			return err
		}
		var has []string
		for i := range all.Items {
			for _, e := range all.Items[i].Endpoints {
				has = append(has, e.Addresses...)
			}
		}
		if slices.Sort(has); !slices.Equal(has, want) {
			return fmt.Errorf("it has %v, want %v", has, want)
		}
		return nil
	})
}

// coordinatorAnswersAtAll expects that the coordinator serves at each of its node's addresses, and has a certificate for it.
func coordinatorAnswersAtAll(t *kit.T, from string) {
	access, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	config, err := rest.TLSConfigFor(access)
	t.Must(err)
	for _, address := range addressesOf(t, t.Pool.CoordinatorNode()) {
		at := net.JoinHostPort(address.String(), strconv.Itoa(edge.PortCoordinator))
		t.Eventually(30*time.Second, "the coordinator is known at "+at, func() error {
			conn, err := t.Lab.Dial(t.Ctx, from, at)
			if err != nil {
				return err
			}
			defer conn.Close()
			config := config.Clone()
			config.ServerName = address.String()
			return tls.Client(conn, config).HandshakeContext(t.Ctx)
		})
	}
}

// podsFindHub expects that Pods of a node are sent to its hub, at the first of its addresses, and can verify it there.
func podsFindHub(t *kit.T, pods map[types.UID]kit.PodAt, node string) {
	hub := addressesOf(t, node)[0].String()
	for _, p := range pods {
		args := []string{"exec", "-n", p.Namespace, p.Name, "--", "sh", "-c", "echo $KUBERNETES_SERVICE_HOST"}
		out, err := kubectlSays(t, kubectlRun{place: place{via: atCloud}, args: args})
		if err != nil || strings.TrimSpace(out) != hub {
			t.Fail("the Pod %s is sent to %s, %v; want %s", p.Name, out, err, hub)
		}
	}
	authorities, err := t.Node(node).PodAuthorities()
	t.Must(err)
	token, err := t.Cloud.CoreV1().ServiceAccounts(kit.Namespace).CreateToken(t.Ctx, "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	t.Must(err)
	kubelet, err := t.Lab.HubConfig(node)
	t.Must(err)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            "https://" + net.JoinHostPort(hub, strconv.Itoa(edge.PortHubTLS)),
		TLSClientConfig: rest.TLSClientConfig{CAData: authorities}, BearerToken: token.Status.Token, Dial: kubelet.Dial,
	})
	t.Must(err)
	t.Eventually(30*time.Second, "a Pod's token is good for the hub of "+node+" at "+hub, func() error {
		_, err := client.Discovery().ServerVersion()
		return err
	})
}

// noIPv4 expects that no program of a node has a connection over IPv4 that leaves the node.
func noIPv4(t *kit.T) {
	for _, name := range t.Pool.Nodes() {
		out, err := t.Lab.Output(t.Ctx, name, "ss", "-Htn", "state", "connected")
		t.Must(err)
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			to, err := netip.ParseAddrPort(fields[len(fields)-1])
			t.Must(err)
			if at := to.Addr().Unmap(); at.Is4() && !at.IsLoopback() {
				t.Fail("%s has a connection over IPv4: %s", name, line)
			}
		}
	}
}
