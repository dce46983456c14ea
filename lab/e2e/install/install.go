package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var installScenarios = []kit.Scenario{{
	Name: "node-join", Tier: kit.Core, Lab: kit.Joining(kit.OnePool, 0), Run: nodeJoin,
	Doc: "`yurthub join` puts a hub in front of a running kubelet, and `yurthub reset` removes it. No container is " +
		"restarted, the node stays Ready, and nothing is left behind.",
}}

// installed is a node on which the scenario works as an administrator would.
type installed struct {
	*kit.T
	name string
	// dir is on its disk, at the same path inside and outside.
	dir string
	hub string // the program
	// dns is how many CoreDNS are to run on the node.
	dns int
}

// mustSh runs shell commands on the node, as one of systemd's own processes, and returns what they print.
func (n *installed) mustSh(commands string) string {
	return n.machine(`exec nsenter --target "$(pgrep --oldest --exact systemd)" --pid --mount sh -euc "$0"`, commands)
}

// machine runs a shell script in the node's machine. Its processes include systemd's, and containers besides.
func (n *installed) machine(script string, args ...string) string {
	out, err := n.Lab.Output(n.Ctx, n.name, append([]string{"sh", "-euc", script}, args...)...)
	if err != nil {
		n.Fail("%s %v: %w: %s", script, args, err, out)
	}
	return out
}

// program returns the command line of a running program of the node.
func (n *installed) program(name string) []string {
	for line := range strings.Lines(n.machine("ps -e -o args=")) {
		argv := strings.Fields(line)
		if filepath.Base(argv[0]) == name {
			return argv
		}
	}
	n.Fail("no %s runs on %s", name, n.name)
	return nil
}

// straightNode turns a lab's node into one as kubeadm leaves it: without a hub, with a kubelet that systemd starts, also when
// the machine is powered on again.
func straightNode(t *kit.T, name string) *installed {
	if t.Config.NoCgroups {
		t.Fail("systemd, which is to run on %s, needs cgroups: run this scenario as root", name)
	}
	n := &installed{T: t, name: name, dir: filepath.Join(filepath.Dir(t.Node(name).HubKeys()), "install")}
	t.Must(os.Mkdir(n.dir, 0o755))
	n.hub = filepath.Join(n.dir, "yurthub")
	copyProgram(t, n.program("yurthub")[0], n.hub)
	var kubelet []string
	for _, arg := range n.program("kubelet") {
		if !strings.HasPrefix(arg, "--kubeconfig=") && !strings.HasPrefix(arg, "--config=") {
			kubelet = append(kubelet, arg)
		}
	}
	kubeconfig, certificate := kubeadmAccess(t, name)
	for file, content := range map[string]string{
		"kubelet.conf": kubeconfig, "client.pem": certificate, "kubelet.service": kubeletUnit,
		"10-kubeadm.conf": fmt.Sprintf(`[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
ExecStart=
ExecStart=%s $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS
`, strings.Join(kubelet, " ")),
	} {
		t.Must(os.WriteFile(filepath.Join(n.dir, file), []byte(content), 0o600))
	}
	boot := fmt.Sprintf(boots, n.dir, "/etc/systemd/system")
	n.machine(`
cd ` + n.dir + ownEtc + `
mkdir -p etc/kubernetes/manifests etc/systemd/system/kubelet.service.d /var/lib/kubelet/pki /var/lib/kubelet/manifests
cp kubelet.conf etc/kubernetes/
cp kubelet.service etc/systemd/system/
cp 10-kubeadm.conf etc/systemd/system/kubelet.service.d/
ln -s ../kubelet.service etc/systemd/system/multi-user.target.wants/
cp client.pem /var/lib/kubelet/pki/kubelet-client-current.pem
sed '/^tls\(Cert\|PrivateKey\)File:/d; $aserverTLSBootstrap: true' ../kubelet.yaml >/var/lib/kubelet/config.yaml
`)
	for _, c := range []lab.Component{lab.KubeletC, lab.Hub} {
		t.Must(t.Lab.Node(t.Ctx, lab.Kill, name, c))
	}
	t.Must(t.Lab.TakeOver(name, boot))
	n.machine(boot)
	n.beats("kubelet goes straight to the cloud")
	n.kubeletIsKnown()
	return n
}

// copyProgram puts a program where a service can see it, because a service sees no home directories.
func copyProgram(t *kit.T, from, to string) {
	content, err := os.ReadFile(from)
	t.Must(err)
	t.Must(os.WriteFile(to, content, 0o755))
}

// adopt makes the lab's kube-proxy go through the hub that was installed.
func (n *installed) adopt() {
	n.Must(n.Lab.Adopt(n.name))
	n.Must(n.Lab.Node(n.Ctx, lab.Restart, n.name, lab.KubeProxy))
}

// kubeletIsKnown waits until kubelet serves with a certificate that it requested from the cluster, by which a coordinator
// verifies it. For that the controller has approved the request, and Kubernetes has signed it.
func (n *installed) kubeletIsKnown() {
	access, err := n.Lab.CloudConfig()
	n.Must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(access.CAData)
	n.Eventually(60*time.Second, "kubelet serves with a certificate of the cluster's", func() error {
		conn, err := n.Lab.Dial(n.Ctx, n.name, "127.0.0.1:10250")
		if err != nil {
			return err
		}
		defer conn.Close()
		known := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: n.Node(n.name).Address(), MinVersion: tls.VersionTLS12})
		ctx, cancel := context.WithTimeout(n.Ctx, 5*time.Second)
		defer cancel()
		return known.HandshakeContext(ctx)
	})
	list, err := n.Cloud.CertificatesV1().CertificateSigningRequests().List(n.Ctx, metav1.ListOptions{
		FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName,
	})
	n.Must(err)
	if !slices.ContainsFunc(list.Items, func(r certificatesv1.CertificateSigningRequest) bool {
		return r.Spec.Username == edge.NodeName(n.name).User() && len(r.Status.Conditions) == 1 &&
			r.Status.Conditions[0].Reason == "KubeletServing"
	}) {
		n.Fail("no request of %s's kubelet was approved by the controller", n.name)
	}
}

// kubeletUnit is the unit in kubeadm's package.
const kubeletUnit = `[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network.target
After=network.target
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
`

// ownEtc is a script. Where it runs, it makes a copy of the host's /etc with only the units that systemd requires.
const ownEtc = `
cp -a /etc etc
rm -rf etc/systemd/system etc/kubernetes
mkdir -p etc/systemd/system/multi-user.target.wants
for target in sysinit basic multi-user network shutdown; do
	printf '[Unit]\nDefaultDependencies=no\n' >etc/systemd/system/$target.target
done
`

// boots starts the machine's systemd, with a read-only copy of the host's /etc, and with only the units at these paths. systemd
// is process 1 of a new namespace. Its services and containerd see each other's mounts. Without a journal, the services' output
// goes where systemd's own goes.
const boots = `set -eu
mount --bind %[1]s/etc /etc
mkdir -p /run/systemd/system
mount --make-rshared /
export container=lab SYSTEMD_UNIT_PATH=%[2]s SYSTEMD_GENERATOR_PATH=/run/none
setsid unshare --pid --fork --mount --propagation=unchanged --mount-proc /lib/systemd/systemd --system \
	--unit=multi-user.target --show-status=no --default-standard-output=inherit </dev/null >>/var/log/systemd.log 2>&1 &
# It does not answer whoever is outside of its namespace.
timeout 30 sh -c 'until nsenter --target "$(pgrep --oldest --exact systemd)" --pid --mount \
	systemctl --quiet is-active multi-user.target 2>/dev/null; do sleep 0.1; done'
`

// kubeadmAccess returns the files that kubeadm leaves a kubelet: a kubeconfig, and the certificate that this names in
// /var/lib/kubelet/pki.
func kubeadmAccess(t *kit.T, node string) (kubeconfig, certificate string) {
	access, err := t.Lab.CloudConfigAs(node)
	t.Must(err)
	const current = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	c := clientcmdapi.NewConfig()
	c.Clusters["default-cluster"] = &clientcmdapi.Cluster{Server: access.Host, CertificateAuthorityData: access.CAData}
	c.AuthInfos["default-auth"] = &clientcmdapi.AuthInfo{ClientCertificate: current, ClientKey: current}
	c.Contexts["default-context"] = &clientcmdapi.Context{Cluster: "default-cluster", AuthInfo: "default-auth"}
	c.CurrentContext = "default-context"
	content, err := clientcmd.Write(*c)
	t.Must(err)
	return string(content), string(access.CertData) + string(access.KeyData)
}

// beats waits until two heartbeats have reached the cloud, and the node is Ready.
func (n *installed) beats(what string) {
	var first time.Time
	n.Eventually(60*time.Second, what+": heartbeats arrive, and the node is Ready", func() error {
		lease, err := n.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(n.Ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if first.IsZero() {
			first = lease.Spec.RenewTime.Time
		}
		if lease.Spec.RenewTime.Sub(first) < 3*time.Second {
			return fmt.Errorf("the last heartbeat is of %s", lease.Spec.RenewTime)
		}
		return n.ready()
	})
}

// someKept is what a check says of a hub that follows something for programs.
var someKept = regexp.MustCompile(`[1-9]\d* selections? (?:is|are) kept`)

// ready reports whether the node is ready.
func (n *installed) ready() error {
	node, err := n.Cloud.CoreV1().Nodes().Get(n.Ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("its conditions: %v", node.Status.Conditions)
}

// stillness is the state of a node that no work on the node may change.
type stillness struct {
	containers map[string]bool
	at         time.Time
	files      string
}

func (n *installed) still() stillness {
	n.Must(n.ready())
	return stillness{n.Node(n.name).Processes("httpd -f"), time.Now(), n.files()}
}

// files returns the files that join and reset write, and those beside them.
func (n *installed) files() string {
	return n.mustSh(`find /etc -printf '%p %y %m %s %l\n' | sort
for dir in /var/lib /var/lib/kubelet/manifests /var/lib/kubelet/pki; do
	if [ -d $dir ]; then ls -A $dir; fi
done`)
}

// undisturbed expects that no container restarted, and that the node was Ready all the time. An exception is a kubelet that was
// started anew: on a busy machine it may itself say for a moment that it is not ready yet, with or without a hub.
func (n *installed) undisturbed(when string, before stillness) {
	if now := n.Node(n.name).Processes("httpd -f"); !kit.SameKeys(now, before.containers) {
		n.Fail("%s: containers are %v, before %v", when, now, before.containers)
	}
	starting, err := n.Seen.ReadyButForStarts(n.name, before.at)
	if err != nil {
		n.Fail("%s: %w", when, err)
	}
	if starting > 0 {
		n.Say("%s: for %v the kubelet that was started anew said that it is not ready yet", when, starting)
	}
}

// joinCommand puts the node behind a hub, with these flags besides.
func (n *installed) joinCommand(flags string) string {
	return fmt.Sprintf("%[1]s join --binary=%[1]s --nodepool-name=p1 %[2]s", n.hub, flags)
}

// reset removes the hub and expects that nothing of it is left.
func (n *installed) reset(before stillness) {
	n.resets(before, func() string { return n.mustSh(n.hub + " reset") })
}

// resets does what reset does, with a command that resets the node.
func (n *installed) resets(before stillness, command func() string) {
	n.Say("reset")
	n.Say("%s", strings.TrimSpace(command()))
	n.beats("kubelet goes straight to the cloud again")
	n.undisturbed("reset", before)
	if after := n.files(); after != before.files {
		n.Fail("reset leaves something. Before:\n%s\nafter:\n%s", before.files, after)
	}
	if h, err := n.Lab.Hub(n.Ctx, n.name); err == nil {
		n.Fail("a hub runs after reset: %+v", h)
	}
}

func nodeJoin(t *kit.T) {
	name := t.Pool.Follower(t.Pool.SettledAway())
	t.Node(name).DeployNeedy()
	n := straightNode(t, name)
	before := n.still()

	t.Say("join")
	start := time.Now()
	coordinator, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	join := n.joinCommand("--coordinator-server-addr=" + coordinator.Host)
	t.Say("%s", strings.TrimSpace(n.mustSh(join)))
	t.Figure("node_join_s", time.Since(start).Seconds())
	n.beats("kubelet goes through the hub")
	n.adopt()
	n.undisturbed("joined", before)
	t.Say("check says:\n%s", n.mustSh(n.hub+" check --joined"))
	if argv := n.program("kubelet"); !strings.Contains(strings.Join(argv, " "), "--kubeconfig=/etc/yurthub/kubelet.conf") {
		t.Fail("kubelet runs as %v", argv)
	}
	t.Eventually(30*time.Second, "the hub follows the node's Pods for kubelet", func() error {
		status := n.mustSh(n.hub + " check --joined -o json")
		if !someKept.MatchString(status) {
			return fmt.Errorf("it says %s", status)
		}
		return nil
	})
	t.Say("join, once more")
	kubelet := t.Node(name).Processes("--kubeconfig=/etc/yurthub/kubelet.conf")
	n.mustSh(join)
	if now := t.Node(name).Processes("--kubeconfig=/etc/yurthub/kubelet.conf"); !kit.SameKeys(now, kubelet) {
		t.Fail("kubelet was restarted for nothing: %v, before %v", now, kubelet)
	}

	n.checkTellsOfACut()

	n.reset(before)
}

func (n *installed) checkTellsOfACut() {
	n.Cut(n.name)
	n.Eventually(60*time.Second, "check fails, and says that the cloud is not reached", func() error {
		out := n.mustSh(n.hub + " check || echo exit status $?")
		if !strings.Contains(out, "fail  cloud") || !strings.Contains(out, "exit status 1") {
			return fmt.Errorf("it says:\n%s", out)
		}
		return nil
	})
	n.Heal(n.name)
	n.beats("healed")
}
