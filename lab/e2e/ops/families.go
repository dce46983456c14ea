package ops

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var familyScenarios = []kit.Scenario{
	{
		Name: "ipv6", Lab: ofFamily(lab.IPv6), Run: ipv6Alone,
		Doc: "Cloud, nodes, Pods and Services with IPv6 only. Hubs join, a node that is cut off is delegated and keeps " +
			"its Pods, and `get`, `logs`, `exec` and `top` work on site. After a power cut with nothing in reach its Pods " +
			"run again. Nothing speaks IPv4.",
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

// podsFindHub expects that a node's Pods are sent to its hub, at the node's first address, and can verify the hub there.
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
	kubelet, err := t.Lab.HubConfig(node)
	t.Must(err)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            "https://" + net.JoinHostPort(hub, strconv.Itoa(edge.PortHubTLS)),
		TLSClientConfig: rest.TLSClientConfig{CAData: authorities}, BearerToken: t.Token("default"), Dial: kubelet.Dial,
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

// coordinatorServesAt waits until hubs are told that the coordinator is at one of its node's addresses on the LAN, and reach it
// there. number is the address's position among the node's addresses.
func coordinatorServesAt(t *kit.T, number int) {
	host := t.Pool.CoordinatorNode()
	at := net.JoinHostPort(addressesOf(t, host)[number].String(), strconv.Itoa(edge.PortCoordinator))
	t.Eventually(90*time.Second, "hubs are told that the coordinator is at "+at, func() error {
		told, err := t.Cloud.CoreV1().ConfigMaps(edge.NamespaceSystem).Get(t.Ctx, edge.PoolName("p1").DiscoveryConfigMap(),
			metav1.GetOptions{})
		if err == nil && told.Data[edge.DiscoveryServer] != "https://"+at {
			err = fmt.Errorf("they are told %s", told.Data[edge.DiscoveryServer])
		}
		return err
	})
	t.Eventually(90*time.Second, "all hubs reach the coordinator there, and nowhere else", func() error {
		for _, name := range t.Pool.Nodes() {
			out, err := t.Lab.Output(t.Ctx, name, "ss", "-Htn", "state", "established", "dport", "=",
				":"+strconv.Itoa(edge.PortCoordinator))
			if err != nil {
				return err
			}
			for line := range strings.Lines(out) {
				if to := strings.Fields(line); to[len(to)-1] != at {
					return fmt.Errorf("%s has a connection to %s", name, to[len(to)-1])
				}
			}
			if out == "" {
				return fmt.Errorf("%s has no connection to %s", name, at)
			}
		}
		return nil
	})
}

// addressesOf returns the addresses of a node of the first pool on the LAN.
func addressesOf(t *kit.T, node string) []netip.Addr {
	i := slices.Index(t.Pool.Nodes(), node)
	return t.Config.LANAddresses(1, i+1)
}

// worksOnSite expects that people on site see Pods at the coordinator, and get into them.
func worksOnSite(t *kit.T, pods map[types.UID]kit.PodAt) {
	for _, p := range pods {
		for _, args := range [][]string{
			{"get", "pod", "-n", p.Namespace, p.Name, "-o", "name"},
			{"logs", "-n", p.Namespace, p.Name}, {"exec", "-n", p.Namespace, p.Name, "--", "hostname"},
			{"top", "pod", "-n", p.Namespace, p.Name},
		} {
			t.Eventually(60*time.Second, "on site: kubectl "+strings.Join(args, " "), func() error {
				out, err := kubectlSays(t, kubectlRun{place: place{via: atSite}, args: args})
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				if args[0] != "logs" && !strings.Contains(out, p.Name) {
					return errors.New(out)
				}
				return nil
			})
		}
	}
}
