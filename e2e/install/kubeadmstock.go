package install

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var stockScenarios = []kit.Scenario{{
	Name: "kubeadm-stock", Lab: stock(kit.OnePool.AsInstalled()), Run: kubeadmStock,
	Doc: "a machine with an empty disk, kubeadm join, kubeadm's own kube-proxy and CoreDNS, and flannel: `yurthub join` " +
		"alone has all three go through the hub, and no other container is restarted; power-cycled while cut off, its Pods " +
		"are back on flannel's network and answer; logs, exec and top work on site; then kubeadm upgrade node, reset, and " +
		"kubeadm reset under a hub",
}}

// stock is a lab whose nodes' network is the scenario's: no kube-proxy of the lab's.
func stock(c lab.Config) lab.Config {
	c.Addons, c.NoProxy = true, true
	return c
}

// stockAllowed is what differs from a cluster that kubeadm has made on machines of its own, with the reasons.
var stockAllowed = []string{
	"the control plane is the lab's, given what kubeadm init's phases upload-config, bootstrap-token and addon make: kubeadm " +
		"init itself starts one as static Pods, whose images the lab does not have",
	"kubelet's cgroupDriver, failCgroupV1 and oomScoreAdj: the machine has its host's cgroups, and no CAP_SYS_RESOURCE",
	"kube-proxy's conntrack: {maxPerCore: 0, min: 0}: a network namespace refuses the write",
	"images of kube-proxy, CoreDNS and flannel are built from their modules, under kubeadm's names",
	"kubeadm's check SystemVerification is ignored",
	"the Node's podCIDR is set by the scenario: the lab's kube-controller-manager allocates none",
	"kube-proxy, CoreDNS and flannel have a nodeSelector: the lab's other machines have a network of the lab's",
	"kube-proxy's volume lib-modules is another directory: the machine has its host's /lib, which may lack it",
	"flannel's CNI plugin is in no module that is served: the plugin bridge, by flannel's subnet.env, is in its place",
}

// stockSettings is what kubeadm init would get besides.
const stockSettings = `---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0, min: 0}
`

// stockBoots comes before a machine's own: its containerd is a service, as kubeadm's documentation has it, and not the lab's; its
// network is flannel's, which has to come back with each boot; CoreDNS has somewhere to forward to.
const stockBoots = `
pkill -x containerd || true
while pgrep -x containerd >/dev/null; do sleep 0.1; done
rm -f %[1]s/cni/*
printf 'nameserver 192.0.2.53\n' >%[2]s/etc/resolv.conf.new
mv -f %[2]s/etc/resolv.conf.new %[2]s/etc/resolv.conf
`

const containerdUnit = `[Unit]
Description=containerd
Before=kubelet.service

[Service]
Environment=PATH=%[1]s:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=%[2]s --config %[3]s/containerd.toml
Delegate=yes
KillMode=process
Restart=always
RestartSec=1
LimitNOFILE=1048576

[Install]
WantedBy=multi-user.target
`

// flannel is as flannel's own manifest, but for the allowances above. The container bridge writes what flannel's init container
// and its plugin do together.
const flannel = `apiVersion: v1
kind: Namespace
metadata: {name: kube-flannel, labels: {pod-security.kubernetes.io/enforce: privileged}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: flannel, namespace: kube-flannel}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flannel}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes/status], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flannel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flannel}
subjects: [{kind: ServiceAccount, name: flannel, namespace: kube-flannel}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg, namespace: kube-flannel}
data:
  net-conf.json: '{"Network": "10.128.0.0/9", "Backend": {"Type": "host-gw"}}'
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-flannel-ds, namespace: kube-flannel, labels: {app: flannel}}
spec:
  selector: {matchLabels: {app: flannel}}
  template:
    metadata: {labels: {app: flannel}}
    spec:
      hostNetwork: true
      priorityClassName: system-node-critical
      serviceAccountName: flannel
      nodeSelector: {kubernetes.io/hostname: %[1]s}
      tolerations: [{operator: Exists}]
      containers:
      - name: kube-flannel
        image: %[2]s
        command: [/opt/bin/flanneld]
        args: [--ip-masq, --kube-subnet-mgr, "--iface=$(NODE_IP)"]
        securityContext: {capabilities: {add: [NET_ADMIN, NET_RAW]}}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: NODE_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
        volumeMounts:
        - {name: run, mountPath: /run/flannel}
        - {name: flannel-cfg, mountPath: /etc/kube-flannel/}
        - {name: xtables-lock, mountPath: /run/xtables.lock}
      - name: bridge
        image: %[3]s
        command:
        - sh
        - -euc
        - |
          trap 'exit 0' TERM
          until [ -s /run/flannel/subnet.env ]; do sleep 1; done
          . /run/flannel/subnet.env
          subnet=${FLANNEL_SUBNET%%.1/*}.0/${FLANNEL_SUBNET#*/}
          cat >/cni/.new <<EOF
          {"cniVersion":"1.0.0","name":"cbr0","plugins":[
           {"type":"bridge","bridge":"cni0","isDefaultGateway":true,"ipMasq":false,"hairpinMode":true,"mtu":$FLANNEL_MTU,
            "ipam":{"type":"host-local","ranges":[[{"subnet":"$subnet"}]]}}]}
          EOF
          mv /cni/.new /cni/10-flannel.conflist
          while sleep 1; do :; done
        volumeMounts:
        - {name: run, mountPath: /run/flannel}
        - {name: cni, mountPath: /cni}
      volumes:
      - {name: run, hostPath: {path: /run/flannel, type: DirectoryOrCreate}}
      - {name: cni, hostPath: {path: %[4]s/cni, type: DirectoryOrCreate}}
      - {name: flannel-cfg, configMap: {name: kube-flannel-cfg}}
      - {name: xtables-lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}
`

// stockAgents are the programs that are to go through the hub.
var stockAgents = []string{"kube-proxy", "coredns", "flanneld"}

func kubeadmStock(t *kit.T) {
	for _, why := range stockAllowed {
		t.Say("allowed: %s", why)
	}
	n := stockNode(t, t.Pool.Follower(t.Pool.SettledAway()))
	const service = "10.96.0.1"
	n.agentsGo("as kubeadm and flannel leave them, straight", service)
	n.deployShop()
	n.deployWorkload()
	shop := n.shopAnswers("before the hub")
	before := n.others()

	t.Say("join")
	start := time.Now()
	said := n.mustSh(n.hub + " join --nodepool-name=p1")
	t.Say("%s", strings.TrimSpace(said))
	t.Figure("stock_join_s", time.Since(start).Seconds())
	t.Must(t.Lab.Adopt(n.name))
	n.beats("kubelet goes through the hub")
	n.goesByHub()
	for _, agent := range stockAgents {
		if !strings.Contains(said, agent+" goes through yurthub\n") {
			t.Fail("join does not say that %s goes through yurthub", agent)
		}
	}
	n.agentsGo("after join, by the hub", t.Node(n.name).Address())
	n.nobodyPast()
	n.same("join", before)
	t.Pool.Settled(60 * time.Second)
	n.onSite("with the cloud connected")

	t.Say("power-cycling %s, cut off from cloud and pool", n.name)
	lists := len(t.Pool.ListsOverWAN("endpointslices"))
	t.Must(t.Lab.Cut(t.Ctx, lab.WAN, n.name, wire.Drop))
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, n.name, wire.Drop))
	t.Hold(3*time.Second, "the hub's disk is written once a second")
	start = time.Now()
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, n.name, lab.All))
	moved := n.shopAnswers("after a power cut, cut off")
	t.Figure("stock_restart_offline_s", time.Since(start).Seconds())
	if moved == shop {
		t.Say("the Pod has its former address again")
	}
	n.agentsGo("after a power cut, cut off, by the hub", t.Node(n.name).Address())
	t.Must(t.Lab.Heal(t.Ctx, lab.LAN, n.name))
	t.Must(t.Lab.Cut(t.Ctx, lab.WAN, "pool/p1", wire.Drop))
	n.onSite("with the pool cut off from the cloud")
	t.Must(t.Lab.Heal(t.Ctx, lab.WAN, "pool/p1"))
	t.Pool.Settled(60 * time.Second)
	n.beats("healed")
	n.nobodyPast()
	if more := t.Pool.NewLists("endpointslices", lists); len(more) > 0 {
		t.Fail("after the pool has listed EndpointSlices once, it was listed again: %+v", more)
	}

	t.Say("kubeadm upgrade node")
	t.Say("%s", strings.TrimSpace(n.mustSh(`
export PATH=/usr/local/bin:$PATH
kubeadm upgrade node --ignore-preflight-errors=SystemVerification >/run/upgrade.log 2>&1 || {
	tr '\n' ' ' </run/upgrade.log
	exit 1
}
cat /run/upgrade.log`)))
	n.mustSh("systemctl restart kubelet.service")
	n.beats("upgraded by kubeadm")
	n.goesByHub()

	t.Say("%s", strings.TrimSpace(n.mustSh(n.hub+" reset")))
	n.beats("kubelet goes straight to the cloud again")
	n.goesStraight()
	n.agentsGo("after reset, straight", service)
	n.shopAnswers("after reset")

	t.Say("join again, and kubeadm reset under the hub")
	t.Say("%s", strings.TrimSpace(n.mustSh(n.hub+" join --nodepool-name=p1")))
	n.agentsGo("joined again, by the hub", t.Node(n.name).Address())
	n.mustSh("export PATH=/usr/local/bin:$PATH; kubeadm reset --force 2>&1 | tail -5")
	t.Say("%s", strings.TrimSpace(n.mustSh(n.hub+" reset")))
	t.Must(t.Cloud.CoreV1().Nodes().Delete(t.Ctx, n.name, metav1.DeleteOptions{}))
	n.kubeadmJoin()
	n.agentsGo("kubeadm has joined it again, straight", service)
	t.Say("%s", strings.TrimSpace(n.mustSh(n.hub+" join --nodepool-name=p1")))
	n.agentsGo("and join, by the hub", t.Node(n.name).Address())
	n.nobodyPast()
}

// stockNode makes a machine a node of a cluster with kubeadm's addons and flannel.
func stockNode(t *kit.T, name string) *installed {
	kubeadmCluster(t, stockSettings, []string{"addon", "all"})
	for _, args := range [][]string{
		{"-n", "kube-system", "patch", "daemonset", "kube-proxy", "-p", selecting(name, `,"volumes":[{"name":"lib-modules",`+
			`"hostPath":{"path":"/var/lib/modules","type":"DirectoryOrCreate"}}]`)},
		{"-n", "kube-system", "patch", "deployment", "coredns", "-p", selecting(name, "")},
	} {
		kubectlCloud(t, args...)
	}
	bins, err := t.Lab.Programs()
	t.Must(err)
	cidr := regexp.MustCompile(`"subnet":"([^"]+)"`)
	conflist, err := os.ReadFile(filepath.Join(t.Lab.Dir(), "machines", name, "cni", "10-pods.conflist"))
	t.Must(err)
	found := cidr.FindSubmatch(conflist)
	if found == nil {
		t.Fail("the lab's network names no range of Pods: %s", conflist)
	}
	disk := filepath.Join(t.Lab.Dir(), "machines", name)
	n := bareNodeWith(t, name, fmt.Sprintf(stockBoots, disk, filepath.Join(disk, "install")), map[string]string{
		"containerd.service": fmt.Sprintf(containerdUnit, filepath.Dir(bins.ContainerdShimRuncV2), bins.Containerd, disk),
	})
	n.pods = string(found[1])
	path := filepath.Join(disk, "flannel.yaml")
	t.Must(os.WriteFile(path, fmt.Appendf(nil, flannel, name, lab.FlannelImage(), kit.WebImage, disk), 0o600))
	kubectlCloud(t, "apply", "-f", path) // the node is not Ready without a network
	n.kubeadmJoin()
	return n
}

// podRange gives the Node its range of Pods, which flannel asks for.
func (n *installed) podRange() {
	_, err := n.Cloud.CoreV1().Nodes().Patch(n.Ctx, n.name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"podCIDR":%q,"podCIDRs":[%q]}}`, n.pods, n.pods), metav1.PatchOptions{})
	n.Must(err)
}

// selecting is a patch that has a workload's Pods on one node alone; more is besides in their spec.
func selecting(node, more string) string {
	return fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/hostname":%q}%s}}}}`, node, more)
}

func kubectlCloud(t *kit.T, args ...string) {
	cmd, err := t.Lab.Kubectl(t.Ctx, "cloud", args)
	t.Must(err)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fail("kubectl %v: %w: %s", args, err, out)
	}
}

const shop, shopPort = "shop", "8099"

// deployShop runs a Pod with an address of flannel's.
func (n *installed) deployShop() {
	_, err := n.Cloud.CoreV1().Pods(kit.Namespace).Create(n.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: shop},
		Spec: corev1.PodSpec{
			NodeName: n.name, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: shop, Image: kit.WebImage, Command: []string{"sh", "-c",
					"mkdir -p /www; hostname > /www/index.html; exec httpd -f -p " + shopPort + " -h /www"},
			}},
		},
	}, metav1.CreateOptions{})
	n.Must(err)
}

// shopAnswers waits until the Pod answers at the address that it has now, and returns that.
func (n *installed) shopAnswers(when string) (at netip.Addr) {
	within := n.Eventually(4*time.Minute, when+", the Pod answers at its address", func() error {
		listed, err := n.try(`pid=$(pgrep -f "[h]ttpd -f -p ` + shopPort + `" | head -1); [ -n "$pid" ] || exit 1
exec nsenter --target "$pid" --net ip -4 -o addr show dev eth0`)
		if err != nil {
			return err
		}
		fields := strings.Fields(listed)
		i := slices.Index(fields, "inet")
		if i < 0 || i+1 >= len(fields) {
			return errors.New("it has no address")
		}
		prefix, err := netip.ParsePrefix(fields[i+1])
		if err != nil {
			return err
		}
		at = prefix.Addr()
		answer, err := n.Node(n.name).Fetch("http://" + at.String() + ":" + shopPort)
		if err == nil && strings.TrimSpace(answer) != shop {
			err = fmt.Errorf("it answers %q", answer)
		}
		return err
	})
	n.Say("%s, the Pod answers at %s, after %.1f s", when, at, within.Seconds())
	return at
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
			all := strings.Fields(told)
			if len(all) == 0 {
				return fmt.Errorf("%s does not run", agent)
			}
			for _, each := range all {
				if each != address {
					return fmt.Errorf("%s was told %s, want %s", agent, each, address)
				}
			}
		}
		return nil
	})
	n.Say("%s: %s were told %s", when, strings.Join(stockAgents, ", "), address)
}

// nobodyPast expects yurthub check to see no program that asks the API servers past the hub.
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
