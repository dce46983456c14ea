package install

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var stockScenarios = []kit.Scenario{{
	Name: "kubeadm-stock", Tier: kit.Field, Lab: kit.OnePool.AsBare(), Run: kubeadmStock,
	Pages: []kit.Reading{readmeCloud, readmeNode, installNode, installReset},
	Doc: "Four machines with empty disks, `kubeadm init` and `join`, kubeadm's own kube-proxy and CoreDNS, and flannel; " +
		"then nothing but the commands of the README. All agents go through the hubs, no other container is restarted, " +
		"and the pool lists EndpointSlices once. A node that is cut off is delegated and never NotReady; power-cycled " +
		"while cut off, its Pods are back on flannel's network and answer at their new addresses, also through their " +
		"Service. `logs`, `exec` and `top` work on site. Then `kubeadm upgrade node`, `yurthub reset`, and `kubeadm " +
		"reset` under a hub.",
}}

// stockAgents are the programs that are to go through the hub.
var stockAgents = []string{"kube-proxy", "coredns", "flanneld"}

func kubeadmStock(t *kit.T) {
	for _, why := range stockAllowed {
		t.Say("allowed: %s", why)
	}
	c := makeStockCluster(t)
	const service = "10.96.0.1"
	c.install(t)
	c.addDNS(t)
	n := c.last(t)
	for _, each := range c.edge {
		each.agentsGo("as kubeadm and flannel leave them, straight", service)
	}
	n.deployShop()
	n.deployWorkload()
	shop := n.shopAnswers("before the hub")
	n.shopServes("before the hub", n.name)
	before := n.others()

	for _, each := range c.edge {
		each.joinPool(c.reader, readmeNode)
	}
	joined := time.Now()
	n.same("join", before)
	t.Pool.Settled(2 * time.Minute)
	for _, each := range c.edge {
		each.nobodyPast()
	}
	lists := t.Pool.ListsOverWAN(endpointSlices)
	for _, l := range lists {
		t.Say("list over the WAN: %s at %s by %s (%s)", endpointSlices, l.At.Local().Format(time.TimeOnly), l.User, l.Verb)
	}
	if len(lists) != 1 {
		t.Fail("EndpointSlices were listed %d times for the pool, want once", len(lists))
	}
	n.onSite("with the cloud connected")
	n.namesAnswer("with the cloud connected")
	n.delegatedWhileCut()
	c.powerCycle(n, shop, joined)

	t.Say("kubeadm upgrade node")
	n.runKubeadm("upgrade", "kubeadm upgrade node", "The kubelet configuration for this node was successfully upgraded!")
	n.mustSh("systemctl restart kubelet.service")
	n.beats("upgraded by kubeadm")
	n.goesByHub()

	c.reader.ReadBy(installReset, n.typed)
	n.beats("kubelet goes straight to the cloud again")
	n.goesStraight()
	n.agentsGo("after reset, straight", service)
	n.shopAnswers("after reset")
	n.shopServes("after reset", n.name)

	t.Say("join again, and kubeadm reset under the hub")
	n.joinPool(c.reader, installNode)
	n.runKubeadm("reset", "kubeadm reset --force", "The reset process does not")
	t.Say("%s", strings.TrimSpace(n.lasts(4*time.Minute, n.hub+" reset")))
	// As kubeadm reset asks for, and flannel's documentation: a node that joins anew gets another range of addresses.
	n.mustSh("rm -rf /etc/cni/net.d/* /run/flannel/*; ip link delete cni0")
	t.Must(t.Cloud.CoreV1().Nodes().Delete(t.Ctx, n.name, metav1.DeleteOptions{}))
	n.dns = 1 // of the Deployment's Pods it may get none
	n.runKubeadm("join", c.join, "This node has joined the cluster")
	kubectlCloud(t, "label", "node", n.name, edge.LabelNodePool+"=p1")
	n.agentsGo("kubeadm has joined it again, straight", service)
	n.joinPool(c.reader, readmeNode)
	n.nobodyPast()
}

const endpointSlices = "endpointslices"

// last puts a node that does not run the coordinator at the end, and returns it. When it joins, others have hubs, and one
// leads.
func (c *stockCluster) last(t *kit.T) *installed {
	coordinator := t.Pool.CoordinatorNode()
	for i, n := range c.edge {
		if n.name != coordinator {
			c.edge = append(slices.Delete(c.edge, i, i+1), n)
			break
		}
	}
	return c.edge[len(c.edge)-1]
}

// joinPool puts the node behind a hub, by the command of a page.
func (n *installed) joinPool(r *kit.Reader, page kit.Reading) {
	start := time.Now()
	var said string
	r.ReadBy(page, func(command string) string {
		said = n.typed(command)
		return said
	})
	n.Say("%s", strings.TrimSpace(said))
	n.Figure("stock_join_s", time.Since(start).Seconds())
	n.beats("kubelet of " + n.name + " goes through the hub")
	n.goesByHub()
	for _, agent := range stockAgents {
		if !strings.Contains(said, agent+" goes through yurthub\n") {
			n.Fail("join does not say that %s goes through yurthub", agent)
		}
	}
	n.agentsGo("after join, by the hub", n.Node(n.name).Address())
}

// delegatedWhileCut cuts the node's link for longer than Kubernetes' grace period.
func (n *installed) delegatedWhileCut() {
	cut := n.Cut(n.name)
	n.Node(n.name).Delegated(cut)
	n.onSite("with the node cut off from the cloud")
	n.namesAnswer("with the node cut off from the cloud")
	if left := 75*time.Second - time.Since(cut); left > 0 {
		n.Hold(left, "longer than the 50 s in which Kubernetes would take the node for dead")
	}
	healed := n.Heal(n.name)
	n.Node(n.name).Direct(healed)
	n.NeverNotReady(cut, n.name)
}

// powerCycle cuts and restores the power of a node that can reach nothing. Later it cuts the pool off from the cloud.
func (c *stockCluster) powerCycle(n *installed, shop netip.Addr, joined time.Time) {
	n.Say("power-cycling %s, cut off from cloud and pool", n.name)
	n.Cut(n.name)
	n.Must(n.Lab.Cut(n.Ctx, lab.LAN, n.name, wire.Drop))
	n.namesAnswer("cut off from cloud and pool")
	n.Hold(3*time.Second, "the hub's disk is written once a second")
	start := time.Now()
	n.Must(n.Lab.Node(n.Ctx, lab.Restart, n.name, lab.All))
	moved := n.shopAnswers("after a power cut, cut off")
	n.Figure("stock_restart_offline_s", time.Since(start).Seconds())
	if moved == shop {
		n.Say("the Pod has its former address again")
	}
	n.shopServes("after a power cut, cut off", n.name)
	n.Figure("stock_service_offline_s", time.Since(start).Seconds())
	n.agentsGo("after a power cut, cut off, by the hub", n.Node(n.name).Address())
	n.dnsPodsAnswer("after a power cut, cut off")
	n.Must(n.Lab.Heal(n.Ctx, lab.LAN, n.name))
	n.Cut("pool/p1")
	n.onSite("with the pool cut off from the cloud")
	n.shopServes("with the pool cut off from the cloud", n.name)
	n.shopServes("with the pool cut off from the cloud", c.edge[0].name)
	n.Heal("pool/p1")
	n.Pool.Settled(2 * time.Minute)
	n.beats("healed")
	n.shopServes("healed", n.name)
	n.shopServes("healed", c.edge[0].name)
	n.nobodyPast()
	if more := n.Pool.NewLists(endpointSlices, 1); len(more) > 0 {
		n.Fail("after the pool has listed EndpointSlices once, it was listed again: %+v", more)
	}
	// kube-proxy and CoreDNS of the control plane's node have been connected all the time.
	all, err := n.Lab.CloudLists(n.Ctx, endpointSlices)
	n.Must(err)
	for _, l := range all {
		agent, isAgent := strings.CutPrefix(l.User, "system:serviceaccount:kube-system:")
		if isAgent && l.At.After(joined) && (agent == "kube-proxy" || agent == "coredns") {
			n.Fail("after all nodes have joined, %s has listed EndpointSlices in the cloud: %+v", agent, l)
		}
	}
}

// namesAnswer asks for a name at the Service kube-dns: the node's own CoreDNS answers, by kube-proxy's rules.
func (n *installed) namesAnswer(when string) {
	server := netip.MustParseAddrPort(stockDNS + ":53")
	n.Eventually(time.Minute, when+", the Service kube-dns answers on "+n.name, func() error { return n.nameAnswers(server) })
}

func (n *installed) nameAnswers(server netip.AddrPort) error {
	got, err := n.Lab.LookupAt(n.Ctx, n.name, server, "kube-system", "kube-dns")
	if err == nil && (len(got) != 1 || got[0].String() != stockDNS) {
		err = fmt.Errorf("it answers %v, want %s", got, stockDNS)
	}
	return err
}

// dnsPodsAnswer asks each CoreDNS of the node at its Pod's address.
func (n *installed) dnsPodsAnswer(when string) {
	n.Eventually(2*time.Minute, when+", each CoreDNS answers at its Pod's address", func() error {
		addresses, err := n.podAddresses("-x coredns")
		if err != nil {
			return err
		}
		if len(addresses) < n.dns {
			return fmt.Errorf("%d have an address, want %d", len(addresses), n.dns)
		}
		for _, a := range addresses {
			if err := n.nameAnswers(netip.AddrPortFrom(a, 53)); err != nil {
				return err
			}
		}
		return nil
	})
}

const (
	shop, shopPort = "shop", "8099"
	// shopAddress is that of the Service.
	shopAddress = "10.96.0.99"
)

// deployShop runs a Pod with an address of flannel's, and a Service of it.
func (n *installed) deployShop() {
	labels := map[string]string{"app": shop}
	_, err := n.Cloud.CoreV1().Services(kit.Namespace).Create(n.Ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: shop},
		Spec: corev1.ServiceSpec{
			ClusterIP: shopAddress, Selector: labels,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.Parse(shopPort)}},
		},
	}, metav1.CreateOptions{})
	n.Must(err)
	n.Node(n.name).RunPod(shop, []string{
		"sh", "-c", "mkdir -p /www; hostname > /www/index.html; exec httpd -f -p " + shopPort + " -h /www",
	}, func(p *corev1.Pod) { p.Labels = labels })
}

// shopAnswers waits until the Pod answers at the address that it has now, and returns that.
func (n *installed) shopAnswers(when string) (at netip.Addr) {
	within := n.Eventually(4*time.Minute, when+", the Pod answers at its address", func() error {
		addresses, err := n.podAddresses(`-f "[h]ttpd -f -p ` + shopPort + `"`)
		if err != nil {
			return err
		}
		if len(addresses) == 0 {
			return errors.New("it has no address")
		}
		at = addresses[0]
		answer, err := n.Node(n.name).Fetch("http://" + at.String() + ":" + shopPort)
		if err == nil && strings.TrimSpace(answer) != shop {
			err = fmt.Errorf("it answers %q", answer)
		}
		return err
	})
	n.Say("%s, the Pod answers at %s, after %.1f s", when, at, within.Seconds())
	return at
}

// shopServes waits until the Pod answers on a node through its Service, and expects it to do so ten times in a row.
func (n *installed) shopServes(when, node string) {
	ask := func() error {
		answer, err := n.Node(node).Fetch("http://" + shopAddress)
		if err == nil && strings.TrimSpace(answer) != shop {
			err = fmt.Errorf("it answers %q", answer)
		}
		return err
	}
	within := n.Eventually(time.Minute, when+", the Pod answers on "+node+" through its Service", ask)
	for range 10 {
		n.Must(ask())
	}
	n.Say("%s, the Pod answers on %s through its Service, after %.1f s", when, node, within.Seconds())
}

// podAddresses returns the addresses of the Pods of the node's processes that pgrep finds with these arguments.
func (n *installed) podAddresses(pgrep string) ([]netip.Addr, error) {
	listed, err := n.try(`for pid in $(pgrep ` + pgrep + `); do
	nsenter --target "$pid" --net ip -4 -o addr show dev eth0
done`)
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	for line := range strings.Lines(listed) {
		fields := strings.Fields(line)
		if i := slices.Index(fields, "inet"); i >= 0 && i+1 < len(fields) {
			prefix, err := netip.ParsePrefix(fields[i+1])
			if err != nil {
				return nil, err
			}
			found = append(found, prefix.Addr())
		}
	}
	return found, nil
}

// try runs a script in the node's machine.
func (n *installed) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(n.Ctx, 20*time.Second)
	defer cancel()
	return n.Lab.Output(ctx, n.name, "sh", "-euc", script)
}

// agentsGo waits until all agents run, and were told that the API server is at this address and no other.
func (n *installed) agentsGo(when, address string) {
	n.Eventually(4*time.Minute, when+": the agents", func() error {
		for _, agent := range stockAgents {
			told, err := n.try(`for pid in $(pgrep -x ` + agent + `); do
	tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^KUBERNETES_SERVICE_HOST=//p'
done`)
			if err != nil {
				return fmt.Errorf("%s: %w", agent, err)
			}
			all, want := strings.Fields(told), 1
			if agent == "coredns" {
				want = n.dns
			}
			if len(all) < want {
				return fmt.Errorf("%d %s run, want %d", len(all), agent, want)
			}
			for _, each := range all {
				if each != address {
					return fmt.Errorf("%s was told %s, want %s", agent, each, address)
				}
			}
		}
		return nil
	})
	n.Say("%s: %s on %s were told %s", when, strings.Join(stockAgents, ", "), n.name, address)
}

// nobodyPast expects yurthub check to see no program that goes to the API servers without the hub.
func (n *installed) nobodyPast() {
	n.Eventually(90*time.Second, "no program asks the API servers past the hub", func() error {
		for line := range strings.Lines(n.mustSh(n.hub + " check --joined --agents 2>&1 || true")) {
			if strings.Contains(line, "programs past yurthub") {
				if strings.HasPrefix(line, "ok ") {
					return nil
				}
				return errors.New(strings.TrimSpace(line))
			}
		}
		return errors.New("check says nothing of it")
	})
}

// others are the processes of containers that are no agents.
func (n *installed) others() map[string]bool {
	all := n.Node(n.name).Processes("httpd -f")
	for each := range n.Node(n.name).Processes("sleep 86400") {
		all[each] = true
	}
	if len(all) < 2 {
		n.Fail("of the Pods %s and %s run: %v", shop, workload, all)
	}
	return all
}

func (n *installed) same(when string, before map[string]bool) {
	if now := n.others(); !kit.SameKeys(now, before) {
		n.Fail("%s has restarted containers: %v, before %v", when, now, before)
	}
}
