package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var kubeadmScenarios = []kit.Scenario{
	{
		Name: "kubeadm-node", Tier: kit.Field, Lab: kit.OnePool.AsInstalled(), Run: kubeadmNode,
		Pages: []kit.Reading{
			nodeJoinPage, nodeCheckPage, troublePage, identityPage, nodeResetPage, tokenJoinPage,
			byHandPage, sealedPage,
		},
		Doc: "A machine with an empty disk becomes a node by `kubeadm join`, gets a hub by `yurthub join`, is " +
			"power-cycled while cut off, and is reset. `logs`, `exec` and `top` work at the coordinator, connected and " +
			"cut off, although kubelet signed its own certificate. After the reset its files are as kubeadm left them, to " +
			"the byte. A join with a token; and systemd keeps the key of " +
			"the hub's cache, sealed. The commands are those of the pages.",
	},
}

// kubeadmIgnored are the checks of kubeadm join that a lab's machine can't pass, with the reasons.
var kubeadmIgnored = map[string]string{
	"SystemVerification": "where the host's cgroups are of version 1, as a lab's may be, kubeadm asks to have it ignored",
}

// kubeadmConfig is the configuration that kubeadm init would get. It differs from kubeadm's default where a lab must: a machine
// has the host's cgroups, root's directories except /var are read-only, and everything is faster.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[1]s, bindPort: 6443}
nodeRegistration: {criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[2]s
controlPlaneEndpoint: %[1]s:6443
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
volumePluginDir: /var/lib/kubelet/volumeplugins
makeIPTablesUtilChains: false
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: "1%%", imagefs.available: "1%%", memory.available: "50Mi"}
nodeStatusUpdateFrequency: %[3]s
nodeLeaseDurationSeconds: %[4]d
`

// kubeadmUnits are kubelet's units, where a program without a package has them.
var kubeadmUnits = map[string]string{
	"kubelet.service": strings.Replace(kubeletUnit, "/usr/bin/kubelet", "/usr/local/bin/kubelet", 1),
	"kubelet.service.d/10-kubeadm.conf": `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf ` +
		`--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`,
}

// kubeadmBoots runs before boots on a machine whose own /usr/local has kubeadm's programs and units. The first time it makes
// the machine's /etc.
const kubeadmBoots = `set -eu
cd %[1]s
if [ ! -d etc ]; then
	` + ownEtc + `
	mkdir -p etc/default
	ln -s /usr/local/lib/systemd/system/kubelet.service etc/systemd/system/multi-user.target.wants/
	printf 'KUBELET_EXTRA_ARGS=--node-ip=%[2]s\n' >etc/default/kubelet
fi
mount --bind local /usr/local
`

// kubeadm runs kubeadm as the cloud's administrator and returns its output.
func kubeadm(t *kit.T, args ...string) string {
	cmd, err := t.Lab.Kubeadm(t.Ctx, args...)
	t.Must(err)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fail("kubeadm %v: %w: %s%s", args, err, out, complaints.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// kubeadmCluster gives the cloud the objects that kubeadm join reads, by the phases of kubeadm init that make them. It leaves
// out the phases that start a control plane, and the addons, which kubeadm-stock has.
func kubeadmCluster(t *kit.T) {
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	version, err := t.Cloud.Discovery().ServerVersion()
	t.Must(err)
	host, _, _ := strings.Cut(strings.TrimPrefix(access.Host, "https://"), ":")
	dir, err := os.MkdirTemp("", "kubeadm-")
	t.Must(err)
	defer func() { _ = os.RemoveAll(dir) }() // at worst it stays in the temporary directory
	path := filepath.Join(dir, "init.yaml")
	timing := t.Config.Timing
	t.Must(os.WriteFile(path, fmt.Appendf(nil, kubeadmConfig, host, version.GitVersion, timing.Lease/2,
		int(timing.Lease.Seconds())), 0o600))
	kubeadm(t, "init", "phase", "upload-config", "all", "--config="+path)
	kubeadm(t, "init", "phase", "bootstrap-token", "--config="+path, "--skip-token-print")
}

// bareNode turns a lab's node into a freshly installed machine, with systemd, containerd and kubeadm's programs. The cloud does
// not know it.
func bareNode(t *kit.T, name string) *installed {
	n := &installed{T: t, name: name, hub: "/usr/local/bin/yurthub"}
	address := t.Node(name).Address()
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, name, lab.All))
	t.Must(t.Cloud.CoreV1().Nodes().Delete(t.Ctx, name, metav1.DeleteOptions{}))
	disk, err := t.Lab.Reinstall(name, "")
	t.Must(err)
	n.furnish(disk, address, "", nil)
	t.Must(t.Lab.Node(t.Ctx, lab.Start, name, lab.All))
	if _, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fail("the cloud knows the Node %s before it has joined: %v", name, err)
	}
	return n
}

// furnish fills an empty disk for a machine with this address: with kubeadm's programs and their units, and ours. At each boot
// the machine runs script before its systemd. more are further units, which systemd also starts.
func (n *installed) furnish(disk, address, script string, more map[string]string) {
	t := n.T
	if t.Config.NoCgroups {
		t.Fail("systemd, which is to run on %s, needs cgroups: run this scenario as root", n.name)
	}
	bins, err := t.Lab.Programs()
	t.Must(err)
	n.dir = filepath.Join(disk, "install")
	programs, units := filepath.Join(n.dir, "local/bin"), filepath.Join(n.dir, "local/lib/systemd/system")
	for _, dir := range []string{programs, filepath.Join(units, "kubelet.service.d")} {
		t.Must(os.MkdirAll(dir, 0o755))
	}
	copyProgram(t, bins.YurtHub, filepath.Join(programs, "yurthub"))
	for _, program := range []string{bins.Kubelet, bins.Kubeadm} {
		t.Must(os.Symlink(program, filepath.Join(programs, filepath.Base(program))))
	}
	for _, all := range []map[string]string{kubeadmUnits, more} {
		for file, content := range all {
			t.Must(os.WriteFile(filepath.Join(units, file), []byte(content), 0o644))
		}
	}
	for unit := range more {
		script += "ln -sf /usr/local/lib/systemd/system/" + unit + " etc/systemd/system/multi-user.target.wants/\n"
	}
	t.Must(t.Lab.TakeOver(n.name, fmt.Sprintf(kubeadmBoots, n.dir, address)+script+
		fmt.Sprintf(boots, n.dir, "/etc/systemd/system:/usr/local/lib/systemd/system")))
}

// kubeadmJoin makes the machine a node of the first pool, as kubeadm's documentation says.
func (n *installed) kubeadmJoin() {
	n.runKubeadm("join", kubeadm(n.T, "token", "create", "--print-join-command"), "This node has joined the cluster")
	n.Eventually(time.Minute, "kubelet registers the node", func() error { // kubeadm ends as soon as kubelet has its certificate
		_, err := n.Cloud.CoreV1().Nodes().Patch(n.Ctx, n.name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:"p1"}}}`, edge.LabelNodePool), metav1.PatchOptions{})
		return err
	})
	n.beats("kubelet goes straight to the cloud, as kubeadm left it")
	n.goesStraight()
}

// joinToken matches a bootstrap token, which differs in every run.
var joinToken = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}`)

// runKubeadm runs a command of kubeadm's on the node. The output must contain the words of success; runKubeadm returns all of
// it.
func (n *installed) runKubeadm(verb, command, success string) string {
	for check, why := range kubeadmIgnored {
		n.Say("kubeadm's check %s is ignored: %s", check, why)
	}
	ignored := strings.Join(slices.Collect(maps.Keys(kubeadmIgnored)), ",")
	start := time.Now()
	said := n.lasts(8*time.Minute, fmt.Sprintf(
		"export PATH=/usr/local/bin:$PATH; %s --ignore-preflight-errors=%s || echo exit status $?", command, ignored))
	for line := range strings.Lines(joinToken.ReplaceAllString(said, "TOKEN")) {
		const colour = "\x1b[" // of the list of everything that the kernel has
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, colour) {
			n.Say("%s", line)
		}
	}
	if !strings.Contains(said, success) {
		n.Fail("kubeadm %s on %s does not say: %s", verb, n.name, success)
	}
	n.Figure("kubeadm_"+verb+"_s", time.Since(start).Seconds())
	return said
}

// lasts is mustSh for commands that may take longer than the lab waits for an order.
func (n *installed) lasts(within time.Duration, commands string) string {
	script, log, done := filepath.Join(n.dir, "lasts.sh"), filepath.Join(n.dir, "lasts.log"), filepath.Join(n.dir, "lasts.end")
	n.Must(os.WriteFile(script, []byte(commands), 0o600))
	n.Must(os.WriteFile(log, nil, 0o600)) // for who looks before the shell below has opened it
	if err := os.Remove(done); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.Fail("%w", err)
	}
	n.mustSh(fmt.Sprintf(`setsid sh -c 'sh -eu %s; echo $? >%s' >%s 2>&1 </dev/null &`, script, done, log))
	for deadline := time.Now().Add(within); ; n.Pause(100*time.Millisecond, commands) {
		status, err := os.ReadFile(done)
		said, logErr := os.ReadFile(log)
		n.Must(logErr)
		switch {
		case err == nil && strings.TrimSpace(string(status)) == "0":
			return string(said)
		case err == nil && len(status) > 0:
			n.Fail("%s: exit status %s: %s", commands, status, said)
		case time.Now().After(deadline):
			n.Fail("%s: not within %v: %s", commands, within, said)
		}
	}
}

// typed runs a command of a page on the node, as root types it there.
func (n *installed) typed(command string) string {
	return n.lasts(4*time.Minute, "cd "+n.dir+"; export PATH=/usr/local/bin:$PATH; "+command)
}

// What pages show about a node that kubeadm has joined, and about its hub.
var (
	nodeJoinPage  = kit.Reading{Page: "docs/install-node.md", Only: []string{"yurthub join --nodepool-name POOL"}}
	nodeCheckPage = kit.Reading{
		Page: "docs/install-node.md", Only: []string{"yurthub check"}, Notes: []kit.Note{{Prints: "(?m)^ok "}},
	}
	troublePage  = kit.Reading{Page: "docs/troubleshooting.md", Only: []string{"yurthub check"}}
	identityPage = kit.Reading{
		Page: "docs/identity.md", Only: []string{"curl"}, Notes: []kit.Note{{Prints: `"client": \{\s+"notBefore"`}},
	}
	nodeResetPage = kit.Reading{Page: "docs/install-node.md", Only: []string{"yurthub reset"}}
)

// goesStraight expects kubelet to run as kubeadm's drop-in says, and no hub.
func (n *installed) goesStraight() {
	argv := strings.Join(n.program("kubelet"), " ")
	if !strings.Contains(argv, "--kubeconfig=/etc/kubernetes/kubelet.conf") ||
		!strings.Contains(argv, "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf") {
		n.Fail("kubelet runs as %s", argv)
	}
}

// goesByHub expects kubelet to know no way other than the hub.
func (n *installed) goesByHub() {
	argv := strings.Join(n.program("kubelet"), " ")
	if !strings.Contains(argv, "--kubeconfig=/etc/yurthub/kubelet.conf") || strings.Contains(argv, "/etc/kubernetes/") {
		n.Fail("kubelet runs as %s", argv)
	}
	n.mustSh(n.hub + " check --joined")
}

// left returns everything that kubeadm, kubelet and their installation left on the node. A file has a line with its mode, its
// owner and its link's target, and a line with its content's hash.
func (n *installed) left() map[string]bool {
	listed := n.mustSh(`places='/etc /usr/local /var/lib/kubelet/pki /var/lib/kubelet/config.yaml
/var/lib/kubelet/instance-config.yaml /var/lib/kubelet/kubeadm-flags.env'
find $places -printf '%y %m %U:%G %p -> %l\n'
find $places -type f -exec sha256sum {} +`)
	lines := map[string]bool{}
	for line := range strings.Lines(listed) {
		lines[strings.TrimSpace(line)] = true
	}
	for _, must := range []string{"/etc/kubernetes/kubelet.conf", "/etc/kubernetes/pki/ca.crt", "/var/lib/kubelet/config.yaml"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(lines)), func(l string) bool { return strings.HasSuffix(l, " "+must) }) {
			n.Fail("kubeadm has left no %s: %d lines", must, len(lines))
		}
	}
	return lines
}

// sameAsLeft expects the node to have the same files as before.
func (n *installed) sameAsLeft(before map[string]bool) {
	after := n.left()
	var wrong []string
	for line := range before {
		if !after[line] {
			wrong = append(wrong, "gone: "+line)
		}
	}
	for line := range after {
		if !before[line] {
			wrong = append(wrong, "new: "+line)
		}
	}
	slices.Sort(wrong)
	if len(wrong) > 0 {
		n.Fail("the node is not as kubeadm left it:\n%s", strings.Join(wrong, "\n"))
	}
	n.Say("%d lines of files are as kubeadm left them", len(before))
}

func kubeadmNode(t *kit.T) {
	name := t.Pool.Follower(t.Pool.SettledAway())
	kubeadmCluster(t)
	n := bareNode(t, name)
	n.kubeadmJoin()
	n.signsItself()
	want := t.Node(name).DeployNeedy()
	n.deployWorkload()
	before, left := n.still(), n.left()

	t.Say("join")
	start := time.Now()
	r := t.NewReader()
	r.Words = append(r.Words, "POOL", "p1")
	r.ReadBy(nodeJoinPage, n.typed)
	t.Figure("node_join_s", time.Since(start).Seconds())
	n.beats("kubelet goes through the hub")
	n.adopt()
	n.undisturbed("joined", before)
	n.goesByHub()
	r.ReadBy(nodeCheckPage, n.typed)
	r.ReadBy(troublePage, n.typed)
	r.ReadBy(identityPage, n.typed)
	t.Pool.Settled(60 * time.Second)
	n.onSite("with the cloud connected")
	n.verifiable()

	n.offlineCycle(want)
	before.containers = t.Node(name).Processes("httpd -f")
	before.at = time.Now()
	n.resets(before, func() string {
		r.ReadBy(nodeResetPage, n.typed)
		return ""
	})
	n.goesStraight()
	n.sameAsLeft(left)

	n.joinsWithToken(r)
	n.sealsItsKey(r)
}

// signsItself expects kubelet to serve with a certificate that it has signed itself, as kubeadm's do.
func (n *installed) signsItself() {
	const pki = "/var/lib/kubelet/pki/"
	if found := n.machine("ls " + pki); !strings.Contains(found, "kubelet.crt") || strings.Contains(found, "kubelet-server") {
		n.Fail("kubelet keeps %s", strings.Fields(found))
	}
}

// workload is a Pod that operators may enter: it has nothing of its host's.
const workload = "workload"

func (n *installed) deployWorkload() {
	n.Node(n.name).RunPod(workload, []string{"sh", "-c", "echo here; exec sleep 86400"}, nil)
	n.PodRuns(workload)
}

// onSite gets at a Pod of the node and its figures at the pool's coordinator.
func (n *installed) onSite(when string) {
	ask := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(n.Ctx, 40*time.Second)
		defer cancel()
		cmd, err := n.Lab.Kubectl(ctx, "coordinator/p1", args)
		n.Must(err)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return string(out), err
	}
	start := time.Now()
	n.Eventually(90*time.Second, when+", logs, exec and top work at the coordinator", func() error {
		if _, err := ask("logs", "-n", kit.Namespace, workload); err != nil {
			return err
		}
		out, err := ask("exec", "-n", kit.Namespace, workload, "--", "echo", "on", "site")
		if err == nil && !strings.Contains(out, "on site") {
			err = fmt.Errorf("exec prints %s", out)
		}
		if err != nil {
			return err
		}
		out, err = ask("top", "node", n.name)
		if err == nil && !strings.Contains(out, n.name) {
			err = fmt.Errorf("top prints %s", out)
		}
		return err
	})
	n.Say("%s, logs, exec and top work at the coordinator, after %.1f s", when, time.Since(start).Seconds())
}

// verifiable expects the YurtCoordinator to say that kubelets can be verified: this node's kubelet by its pinned certificate,
// the lab's other kubelets by the cluster's authority.
func (n *installed) verifiable() {
	others := len(n.Pool.Nodes()) - 1
	want := fmt.Sprintf("True 1 verified by the certificate that the node's hub reports, %d by the cluster's authority", others)
	n.Eventually(60*time.Second, "the cloud knows how kubelets are known", func() error {
		cmd, err := n.Lab.Kubectl(n.Ctx, "cloud", []string{"get", "yurtcoordinators", "-o",
			`jsonpath={range .items[*].status.conditions[?(@.type=="KubeletsVerifiable")]}{.status} {.message}{end}`})
		n.Must(err)
		out, err := cmd.CombinedOutput()
		if said := strings.Replace(string(out), "Kubelets: ", "", 1); err == nil && !strings.HasPrefix(said, want) {
			err = fmt.Errorf("it says %q, want %q", said, want)
		}
		return err
	})
}

// offlineCycle power-cycles the node while it can reach nothing, then heals it.
func (n *installed) offlineCycle(want string) {
	n.Say("power-cycling %s, cut off from cloud and pool", n.name)
	n.Cut(n.name)
	n.Must(n.Lab.Cut(n.Ctx, lab.LAN, n.name, wire.Drop))
	n.Hold(3*time.Second, "the hub's disk is written once a second")
	n.Figure("kubeadm_restart_offline_s", n.Node(n.name).PowerCycle(want).Seconds())
	again := n.Node(n.name).Processes("httpd -f")
	n.Must(n.Lab.Heal(n.Ctx, lab.LAN, n.name))
	n.Cut("pool/p1")
	n.onSite("with the pool cut off from the cloud")
	n.Heal("pool/p1")
	n.Pool.Settled(60 * time.Second)
	n.beats("healed")
	if now := n.Node(n.name).Processes("httpd -f"); !kit.SameKeys(now, again) {
		n.Fail("healing has restarted containers: %v, before %v", now, again)
	}
}
