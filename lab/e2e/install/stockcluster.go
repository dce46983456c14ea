package install

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// stockAllowed are the differences from a cluster that kubeadm makes on a user's own machines, with the reasons.
var stockAllowed = []string{
	"kubelet's cgroupDriver, failCgroupV1 and oomScoreAdj: a machine has its host's cgroups, and no CAP_SYS_RESOURCE",
	"kubelet's evictionHard and imageGCHighThresholdPercent: a machine's disk is a directory of its host's, however full that is",
	"kubelet's --node-ip: a node has two networks",
	"kube-proxy's conntrack: {maxPerCore: 0, min: 0}: a network namespace refuses the write",
	"kube-apiserver has an audit log, in which the scenario counts lists",
	"images are built from modules, under kubeadm's and flannel's names, and are on the machines",
	"kubeadm's check SystemVerification is ignored",
	"flannel's CNI plugin is in no module that is served: the plugin bridge, by flannel's subnet.env, is in its place",
	"flannel's host-gw needs one network: Pods of the site and Pods on the control plane's machine don't reach each other",
}

// stockPods is kubeadm init's --pod-network-cidr, from flannel's documentation. stockDNS is kubeadm's address of kube-dns.
const stockPods, stockDNS = "10.244.0.0/16", "10.96.0.10"

// stockInit is the configuration of kubeadm init. The audit policy is on the machine before.
const stockInit = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[1]s}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[2]s
controlPlaneEndpoint: %[1]s:6443
networking: {podSubnet: ` + stockPods + `}
apiServer:
  extraArgs:
  - {name: audit-policy-file, value: /etc/kubernetes/audit/policy.yaml}
  - {name: audit-log-path, value: ` + lab.BareAuditLog + `}
  - {name: audit-log-mode, value: blocking}
  extraVolumes:
  - {name: audit-policy, hostPath: /etc/kubernetes/audit, mountPath: /etc/kubernetes/audit, readOnly: true, pathType: Directory}
  - {name: audit-log, hostPath: ` + lab.BareAudit + `, mountPath: ` + lab.BareAudit + `, pathType: DirectoryOrCreate}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: "1%%", imagefs.available: "1%%", memory.available: "50Mi"}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
conntrack: {maxPerCore: 0, min: 0}
`

// stockBoots runs before a machine's own boot script. It ends the lab's containerd, since containerd is a systemd service here,
// as in kubeadm's documentation. It removes old network configuration, so that flannel writes it again at each boot. It gives
// CoreDNS a server to forward to. It makes /usr writable until the next loss of power, for files that kubeadm's manifests want
// there.
const stockBoots = `
mkdir -p /run/usr/upper /run/usr/work
umount /usr/local
mount -t overlay usr -o lowerdir=/usr,upperdir=/run/usr/upper,workdir=/run/usr/work /usr
mount --bind local /usr/local
pkill -x containerd || true
while pgrep -x containerd >/dev/null; do sleep 0.1; done
mkdir -p etc/cni/net.d
rm -rf etc/cni/net.d/*
printf 'nameserver 192.0.2.53\n' >etc/resolv.conf.new
mv -f etc/resolv.conf.new etc/resolv.conf
`

const containerdUnit = `[Unit]
Description=containerd
Before=kubelet.service

[Service]
Type=notify
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

// flannel is flannel's own manifest, except for the allowances above. The container bridge does what flannel's init container
// and its plugin do together: it writes the network's configuration.
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
  net-conf.json: '{"Network": "` + stockPods + `", "Backend": {"Type": "host-gw"}}'
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
      tolerations: [{operator: Exists}]
      containers:
      - name: kube-flannel
        image: %[1]s
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
        image: %[2]s
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
      - {name: cni, hostPath: {path: /etc/cni/net.d, type: DirectoryOrCreate}}
      - {name: flannel-cfg, configMap: {name: kube-flannel-cfg}}
      - {name: xtables-lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}
`

// stockCluster is what kubeadm makes of bare machines: a control plane, nodes that are in no pool, kube-proxy, and flannel.
type stockCluster struct {
	cloud *installed
	edge  []*installed
	// join is the command that kubeadm init has printed.
	join string
	// reader is the reader who follows our README.
	reader *kit.Reader
}

// makeStockCluster makes a cluster with kubeadm, as kubeadm's documentation says.
func makeStockCluster(t *kit.T) *stockCluster {
	c := &stockCluster{cloud: bareMachine(t, lab.BareCloud, lab.BareAddress())}
	for i, name := range t.Pool.Nodes() {
		c.edge = append(c.edge, bareMachine(t, name, t.Config.LANAddresses(1, i+1)[0].String()))
	}
	c.powerOn(t)
	c.join = c.cloud.kubeadmInit()
	kubectlCloud(t, "apply", "-f", manifests(t, "flannel.yaml", fmt.Sprintf(flannel, lab.FlannelImage(), kit.WebImage)))
	for _, n := range c.edge {
		n.runKubeadm("join", c.join, "This node has joined the cluster")
	}
	t.Eventually(4*time.Minute, "all nodes are Ready", func() error {
		nodes, err := t.Cloud.CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{})
		if err == nil && len(nodes.Items) != 1+len(c.edge) {
			err = fmt.Errorf("there are %d", len(nodes.Items))
		}
		if err != nil {
			return err
		}
		return t.Pool.NodesReady()
	})
	return c
}

// bareMachine installs on a machine of a bare lab what kubeadm's documentation asks for: containerd, kubelet and kubeadm.
func bareMachine(t *kit.T, name, address string) *installed {
	bins, err := t.Lab.Programs()
	t.Must(err)
	n := &installed{T: t, name: name, hub: "/usr/local/bin/yurthub"}
	disk := filepath.Join(t.Lab.Dir(), "machines", name)
	n.furnish(disk, address, stockBoots, map[string]string{
		"containerd.service": fmt.Sprintf(containerdUnit, filepath.Dir(bins.ContainerdShimRuncV2), bins.Containerd, disk),
	})
	return n
}

// powerOn starts all machines at once.
func (c *stockCluster) powerOn(t *kit.T) {
	start := time.Now()
	all := append([]*installed{c.cloud}, c.edge...)
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, n := range all {
		group.Go(func() { errs[i] = t.Lab.Node(t.Ctx, lab.Start, n.name, lab.All) })
	}
	group.Wait()
	for _, err := range errs {
		t.Must(err)
	}
	for _, n := range all {
		n.mustSh("systemctl start containerd.service") // it waits for the one that the boot has started
	}
	t.Figure("machines_on_s", time.Since(start).Seconds())
}

// kubeadmInit makes the machine a control plane, which is then the lab's cloud. It returns the command with which nodes join,
// as kubeadm prints it.
func (n *installed) kubeadmInit() (join string) {
	bins, err := n.Lab.Programs()
	n.Must(err)
	config, audit := filepath.Join(n.dir, "init.yaml"), filepath.Join(n.dir, "etc", "kubernetes", "audit")
	n.Must(os.WriteFile(config, fmt.Appendf(nil, stockInit, lab.BareAddress(), bins.KubernetesVersion), 0o600))
	n.Must(os.MkdirAll(audit, 0o755))
	n.Must(os.WriteFile(filepath.Join(audit, "policy.yaml"), []byte(lab.AuditPolicy()), 0o600))
	said := n.runKubeadm("init", "kubeadm init --config="+config, "Your Kubernetes control-plane has initialized successfully!")
	at := strings.LastIndex(said, "kubeadm join ")
	if at < 0 {
		n.Fail("kubeadm init prints no command for nodes")
	}
	join, _, _ = strings.Cut(strings.TrimSpace(strings.ReplaceAll(said[at:], "\\\n", " ")), "\n")
	access, err := os.ReadFile(filepath.Join(n.dir, "etc", "kubernetes", "admin.conf"))
	n.Must(err)
	n.Follow(access)
	return join
}

// addDNS runs CoreDNS in two forms on each node. One is kubeadm's Deployment, scaled until it has spread. The other is a
// DaemonSet of the same Pods on nodes of the pool, as docs/agents.md says, so that each node asks its own CoreDNS.
func (c *stockCluster) addDNS(t *kit.T) {
	kubectlCloud(t, "-n", "kube-system", "scale", "deployment", "coredns", fmt.Sprintf("--replicas=%d", 2+len(c.edge)))
	kubectlCloud(t, "-n", "kube-system", "annotate", "service", "kube-dns", edge.AnnotationTopologyKeys+"=kubernetes.io/hostname")
	d, err := t.Cloud.AppsV1().Deployments("kube-system").Get(t.Ctx, "coredns", metav1.GetOptions{})
	t.Must(err)
	template := *d.Spec.Template.DeepCopy()
	const form = "form"
	template.Labels[form] = "daemonset"
	template.Spec.NodeSelector = map[string]string{edge.LabelNodePool: "p1"}
	set, err := json.Marshal(&appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns-edge"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{form: template.Labels[form]}}, Template: template,
		},
	})
	t.Must(err)
	kubectlCloud(t, "apply", "-f", manifests(t, "coredns-edge.json", string(set)))
	for _, n := range c.edge {
		n.dns = 2
	}
}

// What the README says of installing: in the cloud, and on each node.
var (
	readmeCloud = kit.Reading{
		Page: "README.md", Only: []string{"kubectl label node", "helm install", "kubectl apply -f examples/pool.yaml"},
		Notes: []kit.Note{
			{Begins: "helm install", Within: 3 * time.Minute},
			{Begins: "kubectl apply", Soon: true}, // the chart's kinds are served soon
		},
	}
	readmeNode = kit.Reading{
		Page: "README.md", Only: []string{"yurthub join"}, Notes: []kit.Note{{Prints: "kube-proxy goes through yurthub"}},
	}
	installNode = kit.Reading{
		Page: "docs/install.md", Only: []string{"yurthub join"}, Notes: []kit.Note{{Prints: "kube-proxy goes through yurthub"}},
	}
	installReset = kit.Reading{Page: "docs/install.md", Only: []string{"yurthub reset"}}
)

// install follows our README, with its own commands and the example that it applies.
func (c *stockCluster) install(t *kit.T) {
	c.reader = t.NewReader()
	c.reader.Words = append(c.reader.Words, "shop-1", "p1-n1", "shop-2", "p1-n2", "shop-3", "p1-n3", "hangzhou", "p1")
	c.reader.Example("pool.yaml", "hangzhou", "p1")
	c.reader.Read(readmeCloud)
	start := time.Now()
	kubectlCloud(t, "wait", "--for=condition=Ready", "yurtcoordinator/p1", "--timeout=3m")
	t.Figure("coordinator_ready_s", time.Since(start).Seconds())
	pods, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.Ctx, metav1.ListOptions{
		LabelSelector: edge.LabelApp + " in (coordinator-controller, coordinator-approver)",
	})
	t.Must(err)
	for _, p := range pods.Items {
		if p.Spec.NodeName != "" && p.Spec.NodeName != lab.BareCloud {
			t.Fail("a replica of the controller is on %s, a node of the pool", p.Spec.NodeName)
		}
	}
	if len(pods.Items) == 0 {
		t.Fail("there is no replica of the controller")
	}
}

func kubectlCloud(t *kit.T, args ...string) { t.Kubectls([][]string{args}) }

// manifests keeps manifests in the lab's directory, and returns their path.
func manifests(t *kit.T, name, content string) string {
	path := filepath.Join(t.Lab.Dir(), name)
	t.Must(os.WriteFile(path, []byte(content), 0o600))
	return path
}
