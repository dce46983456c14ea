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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var lanScenarios = []kit.Scenario{{
	Name: "lan-address", Lab: internalWAN(kit.RealKubelets(kit.OnePool).AsInstalled()), Run: lanAddress,
	Doc: "Nodes whose InternalIP is their WAN address. Once an administrator has said where they are on the LAN, a node " +
		"that is cut off is delegated and its logs can be read on site. A node may not say so itself.",
}}

func internalWAN(c lab.Config) lab.Config {
	c.InternalWAN = true
	return c
}

func lanAddress(t *kit.T) {
	pods := t.DeployWeb()
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	if at := t.Node(node).Address(); strings.HasPrefix(at, "10.78.") {
		t.Fail("the InternalIP of %s is %s, on the LAN", node, at)
	}

	t.Say("a node says itself where it is on the LAN")
	access, err := t.Lab.CloudConfigAs(node)
	t.Must(err)
	self := t.Client(access)
	if err := annotate(t, self, node, t.Config.LANAddresses(1, 1)[0].String()); !apierrors.IsForbidden(err) {
		t.Fail("a node says where it is: %v, want it forbidden", err)
	}
	if err := annotate(t, t.Cloud, node, "the-shop"); !apierrors.IsForbidden(err) {
		t.Fail("an administrator says a name: %v, want it refused", err)
	}

	t.Say("an administrator says it of each")
	said := time.Now()
	for i, name := range t.Pool.Nodes() {
		t.Must(annotate(t, t.Cloud, name, t.Config.LANAddresses(1, i+1)[0].String()))
	}
	coordinatorServesAt(t, 0)
	t.Figure("moved_to_the_lan_s", time.Since(said).Seconds())
	t.Pool.Settled(30 * time.Second)

	t.Say("cutting the WAN link of %s, where its InternalIP is", node)
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)
	worksOnSite(t, kit.On(pods, node))
	t.Hold(time.Until(cut.Add(2*(t.Config.Timing.Grace+t.Config.Timing.Toleration))), "twice the time in which Kubernetes evicts")
	t.NeverNotReady(cut, node)
	t.Must(t.Seen.Untouched(kit.On(pods, node), cut))
	healed := t.Heal(node)
	t.Node(node).Direct(healed)
}

// coordinatorServesAt waits until hubs are told that the coordinator is at one of its node's addresses on the LAN, by the
// number of that address, and reach it there.
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

// annotate says where a node is on the LAN; an empty address takes it back.
func annotate(t *kit.T, as kubernetes.Interface, node, address string) error {
	value := strconv.Quote(address)
	if address == "" {
		value = "null"
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, edge.AnnotationLANAddress, value)
	_, err := as.CoreV1().Nodes().Patch(t.Ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
