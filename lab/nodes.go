package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/lab/build"
	"yurtcoordinator/lab/machine"
)

// node is what the lab knows about one node's set-up.
type node struct {
	place
	cfg  Config
	bins build.Binaries
	disk string // the machine's disk
	// authority is the hash by which a joining node recognizes the cloud's authority.
	authority string
	// images are archives that containerd gets before the kubelet starts.
	images []string
	// importing is the lab's.
	importing *semaphore.Weighted
	// snapshotter is containerd's: overlayfs if the disk allows it.
	snapshotter string
}

// coordinatorIndex is the number of the node in each pool on which the lab starts a coordinator, unless the lab is installed:
// see Lab.Coordinator. The coordinators of further slots, up to maxCoordinators in all, run on the nodes after it.
const (
	coordinatorIndex = 1
	maxCoordinators  = 3
)

// coordinators are the places of a pool's coordinators, in the order of their slots.
func (c Config) coordinators(pool int) (all []place) {
	for slot := range max(c.Coordinators, 1) {
		all = append(all, place{pool, coordinatorIndex + slot})
	}
	return all
}

// hubAddress is where a node's own programs find its hub.
var hubAddress = fmt.Sprintf("https://127.0.0.1:%d", edge.PortHub)

// Files by which a hub and its kubelet know each other.
const hubAuthority, kubeletToken = "local.crt", "kubelet.token"

func (n node) file(name string) string { return filepath.Join(n.disk, name) }
func (n node) log(c Component) string  { return n.file(string(c) + ".log") }
func (n node) cert(name string) string { return n.file(filepath.Join(keysDir, name)) }
func (n node) containers() bool        { return n.cfg.Kubelet == Real && !n.cfg.NoKubelet }

// runsCoordinator reports whether the lab itself starts a coordinator on the node.
func (n node) runsCoordinator() bool {
	return slices.Contains(n.cfg.coordinators(n.pool), n.place) && !n.cfg.NoCoordinator && !n.cfg.Installed
}

func (n node) internals() string { return strings.Join(texts(n.internal(n.cfg)), ",") }

func (n node) userKey() (crt, key string) {
	return n.cert(string(n.name()) + ".crt"), n.cert(string(n.name()) + ".key")
}

// keys returns the files that the node's programs need.
func (n node) keys() []string {
	names := slices.Concat(both(string(n.name())), both(string(n.name())+"-kubelet"))
	if n.runsCoordinator() {
		names = append(names, both(string(n.name())+"-coordinator")...)
	}
	if n.place == inCloud {
		names = append(names, cloudMachine+".kubeconfig")
	}
	return names
}

// components lists the programs that run on the node, in the order of start. For the cloud it lists those that make it a node.
func (n node) components() []Component {
	if n.cfg.Bare {
		return []Component{Containerd}
	}
	if n.place == inCloud {
		return []Component{Containerd, KubeletC, KubeProxy}
	}
	var all []Component
	if n.runsCoordinator() {
		all = append(all, Coordinator)
	}
	if !n.takenOver() && !n.cfg.noHub {
		all = append(all, Hub)
	}
	if n.cfg.CoreDNS {
		all = append(all, CoreDNS)
	}
	if n.cfg.NoKubelet {
		return all
	}
	if n.containers() {
		all = append(all, Containerd)
	}
	if !n.takenOver() {
		all = append(all, KubeletC)
	}
	if !n.cfg.NoProxy {
		all = append(all, KubeProxy)
	}
	return all
}

func (n node) command(c Component) machine.Command {
	cmd := machine.Command{Name: string(c), Log: n.log(c)}
	switch c {
	case Coordinator:
		cmd.Argv = n.coordinator()
	case Hub:
		cmd.Argv = n.hub()
	case Containerd:
		cmd.Argv = []string{n.bins.Containerd, "--config", n.file("containerd.toml")}
		// containerd finds its shim next to itself only by PATH.
		cmd.Env = []string{"PATH=" + filepath.Dir(n.bins.ContainerdShimRuncV2) + ":" + os.Getenv("PATH")}
	case KubeletC:
		cmd.Argv = n.kubelet()
	case KubeProxy:
		cmd.Argv = []string{n.bins.KubeProxy, "--config=" + n.file("kube-proxy.yaml"),
			"--hostname-override=" + string(n.name())}
	case CoreDNS:
		cmd.Argv = []string{n.bins.CoreDNS, "-conf", n.file("Corefile"), "-dns.port", strconv.Itoa(portDNS)}
	}
	return cmd
}

func (n node) coordinator() []string {
	server := string(n.name()) + "-coordinator"
	return []string{
		n.bins.YurtCoordinator, "--node-name=" + string(n.name()), "--bind-address=" + n.lan(n.cfg.families()[0]).String(),
		fmt.Sprintf("--secure-port=%d", edge.PortCoordinator), "--data-dir=/run/yurt-coordinator",
		"--tls-cert-file=" + n.cert(server+".crt"), "--tls-private-key-file=" + n.cert(server+".key"),
		"--client-ca-file=" + n.cert("ca.crt"),
	}
}

func (n node) hub() []string {
	crt, key := n.userKey()
	argv := []string{
		n.hubProgram(), "--node-name=" + string(n.name()), "--nodepool-name=" + string(n.poolName()),
		"--server-addr=" + n.cfg.families().cloudAddress(), "--config=" + n.file(hubSettings),
		"--disk-cache-path=" + n.file(hubCache), "--cert-dir=" + n.file(hubKeys),
	}
	if n.cfg.Bootstrap {
		argv = append(argv, "--bootstrap-file="+n.file(bootstrapFile), "--discovery-token-ca-cert-hash="+n.authority,
			"--secure-bind-address="+n.lan(n.cfg.families()[0]).String())
	} else {
		argv = append(argv, "--ca-file="+n.cert("ca.crt"), "--cert-file="+crt, "--key-file="+key)
	}
	if n.containers() {
		argv = append(argv, "--kubelet-config="+n.file(kubeletSettings))
	}
	if n.cfg.NoCoordinator {
		argv = append(argv, "--enable-coordinator=false")
	} else {
		argv = append(argv, "--enable-coordinator=true")
		if !n.cfg.Installed { // otherwise the cloud says where it is
			var all []string
			for _, p := range n.cfg.coordinators(n.pool) {
				all = append(all, n.cfg.families().coordinatorAddress(p))
			}
			argv = append(argv, "--coordinator-server-addr="+strings.Join(all, ","))
		}
	}
	return append(argv, n.cfg.HubFlags...)
}

func (n node) kubelet() []string {
	if n.cfg.Kubelet == Hollow {
		return []string{
			n.bins.HollowKubelet, "--kubeconfig=" + n.kubeconfig(kubeletUser), "--node-name=" + string(n.name()),
			"--node-ip=" + n.internals(), "--lease-duration=" + n.cfg.Timing.Lease.String(),
			"--status-frequency=" + statusEvery(n.cfg.Timing).String(), "--root-dir=/var/lib/kubelet",
			"--node-labels=" + edge.LabelNodePool + "=" + string(n.poolName()), "--pod-cidr=" + listed(n.cfg.families(), n.pods),
		}
	}
	argv := []string{
		n.bins.Kubelet, "--config=" + n.file(kubeletSettings), "--kubeconfig=" + n.kubeconfig(kubeletUser),
		"--hostname-override=" + string(n.name()), "--node-ip=" + n.internals(),
	}
	if n.place != inCloud {
		argv = append(argv, "--node-labels="+edge.LabelNodePool+"="+string(n.poolName()))
	}
	return append(argv, "--v=1")
}

// kubeconfig returns a program's kubeconfig. It leads through the node's hub, as its user; the cloud's machine has no hub.
func (n node) kubeconfig(user string) string {
	if n.place == inCloud {
		return n.cert(cloudMachine + ".kubeconfig")
	}
	return n.file(user + ".kubeconfig")
}

// statusEvery returns kubelet's nodeStatusUpdateFrequency: 10 s, less if everything is faster.
func statusEvery(t Timing) time.Duration { return min(10*time.Second, t.Lease/2) }

// writeFiles puts the configuration files of the node's programs on its disk.
func (n node) writeFiles() error {
	files := map[string]string{}
	if !n.cfg.Bare {
		files["kube-proxy.yaml"] = n.kubeProxyConfig()
		if n.place != inCloud {
			n.addHubFiles(files)
		}
	}
	if n.containers() {
		files["containerd.toml"] = n.containerdConfig()
	}
	if n.containers() && !n.cfg.Bare {
		files[kubeletSettings] = n.kubeletConfig()
		files["cni/10-pods.conflist"] = n.networkConfig()
	}
	if n.cfg.NoCgroups {
		files[runcFile] = runcScript(n.bins.Runc)
	}
	for name, content := range files {
		path := n.file(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if name == runcFile {
			mode = 0o700
		}
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			return err
		}
	}
	return nil
}

// addHubFiles adds the files of a node's hub and of the programs that reach the cloud through the hub. On a node without a hub
// these programs reach the cloud directly: kubelet with the node's certificate, the others with their tokens.
func (n node) addHubFiles(files map[string]string) {
	server, authority := hubAddress, n.file(filepath.Join(hubKeys, hubAuthority))
	asKubelet := fmt.Sprintf("tokenFile: %q", n.file(filepath.Join(hubKeys, kubeletToken)))
	if n.cfg.noHub {
		crt, key := n.userKey()
		server, authority = n.cfg.families().cloudAddress(), n.cert("ca.crt")
		asKubelet = fmt.Sprintf("client-certificate: %q, client-key: %q", crt, key)
	}
	for user, credentials := range map[string]string{
		kubeletUser: asKubelet,
		proxyUser:   fmt.Sprintf("token: %q", tokenOf(proxyUser)),
		dnsUser:     fmt.Sprintf("token: %q", tokenOf(dnsUser)),
	} {
		files[user+".kubeconfig"] = fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: hub
clusters: [{name: hub, cluster: {server: %q, certificate-authority: %q}}]
contexts: [{name: hub, context: {cluster: hub, user: program}}]
users: [{name: program, user: {%s}}]
`, server, authority, credentials)
	}
	if _, err := os.Stat(authority); n.takenOver() && errors.Is(err, fs.ErrNotExist) {
		ca, _ := os.ReadFile(n.cert("ca.crt")) // programs need any authority to start: Client.Adopt brings the right one
		files[filepath.Join(hubKeys, hubAuthority)] = string(ca)
	}
	if _, err := os.Stat(n.file(hubSettings)); errors.Is(err, fs.ErrNotExist) {
		files[hubSettings] = "" // what Client.HubSettings has written outlives a power cut
	}
	if _, err := os.Stat(n.file(bootstrapFile)); n.cfg.Bootstrap && errors.Is(err, fs.ErrNotExist) {
		files[bootstrapFile] = BootstrapToken + "\n"
	}
	if n.cfg.CoreDNS {
		files["Corefile"] = n.corefile()
	}
}

// Users of the hub at its node. kubelet has the token that the hub made for it, the others have tokens of the cloud.
const kubeletUser, proxyUser, dnsUser = "hub", "proxy", "dns"

// waitKeys waits until the hub has made the files by which it and its programs know each other. A program that finds none does
// not start. The token is the last one.
func (n node) waitKeys(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, restartTimeout, fmt.Errorf("the hub of %s makes no %s", n.name(), kubeletToken))
	defer cancel()
	for {
		if _, err := os.Stat(n.file(filepath.Join(hubKeys, kubeletToken))); err == nil {
			return nil
		}
		if err := run.Pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// kubeletSettings is a kubelet's configuration file.
const kubeletSettings = "kubelet.yaml"

// hubSettings is a hub's configuration file. It is empty until Client.HubSettings writes it.
const hubSettings = "hub.yaml"

// bootScript, if the file exists, starts a node's hub and kubelet: see Client.TakeOver.
const bootScript = "boot"

func (n node) takenOver() bool {
	_, err := os.Stat(n.file(bootScript))
	return err == nil
}

// hubCache is where a hub keeps what it knows. It outlives a power cut.
const hubCache = "hub-cache"

// runcFile replaces runc where there are no cgroups; see bundle.go.
const runcFile = "runc"

func (n node) runc() string {
	if n.cfg.NoCgroups {
		return n.file(runcFile)
	}
	return n.bins.Runc
}

func (n node) containerdConfig() string {
	return strings.NewReplacer(
		"$SNAPSHOTTER", n.snapshotter, "$NO_CGROUPS", strconv.FormatBool(n.cfg.NoCgroups),
		"$CNI_BIN", n.bins.CNIDir, "$CNI_CONF", n.networkDir(), "$RUNC", n.runc(),
		"$REGISTRIES", n.file(registriesDir),
	).Replace(`version = 4
disabled_plugins = [
  'io.containerd.nri.v1.nri', 'io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing',
]
[plugins.'io.containerd.internal.v1.opt']
  path = '/var/lib/containerd-opt'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = '$SNAPSHOTTER'
  disable_snapshot_annotations = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'registry.local/pause:1'
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '$REGISTRIES'
[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  restrict_oom_score_adj = true
  disable_apparmor = $NO_CGROUPS
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['$CNI_BIN']
    conf_dir = '$CNI_CONF'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '$RUNC'
      SystemdCgroup = false
`)
}

// networkDir is where containerd looks for its network's configuration. On a bare machine that is the usual directory.
func (n node) networkDir() string {
	if n.cfg.Bare {
		return "/etc/cni/net.d"
	}
	return n.file("cni")
}

// allowedFor is how long a kubelet caches the answer that a client may use it. It is less than Kubernetes' default of 5
// minutes, so that scenarios see the permission end.
const allowedFor = 20 * time.Second

func (n node) kubeletConfig() string {
	server := string(n.name()) + "-kubelet"
	return strings.NewReplacer(
		"$CA", n.cert("ca.crt"), "$CRT", n.cert(server+".crt"), "$KEY", n.cert(server+".key"),
		"$CGROUPS", n.kubeletCgroups(), "$GATES", n.kubeletGates(), "$STATUS", statusEvery(n.cfg.Timing).String(),
		// If only the update frequency is set, kubelet reports as often as it computes.
		"$ALLOWED", allowedFor.String(), "$REPORT", n.cfg.Timing.Report.String(),
		"$LEASE", fmt.Sprint(int(n.cfg.Timing.Lease.Seconds())), "$DOMAIN", clusterDomain, "$DNS", n.kubeletDNS(),
	).Replace(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
$CGROUPS
$GATES
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: /var/lib/kubelet/manifests
volumePluginDir: /var/lib/kubelet/volumeplugins
podLogsDir: /var/log/pods
address: 0.0.0.0
healthzBindAddress: 127.0.0.1
failSwapOn: false
resolvConf: ""
clusterDomain: $DOMAIN
$DNS
imageGCHighThresholdPercent: 100
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: "50Mi"}
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: $STATUS
nodeStatusReportFrequency: $REPORT
nodeLeaseDurationSeconds: $LEASE
oomScoreAdj: 0
rotateCertificates: false
tlsCertFile: $CRT
tlsPrivateKeyFile: $KEY
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $CA}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: $ALLOWED}}
`) + n.kubeletInstalled()
}

// kubeletInstalled returns the settings that a kubelet has only in an installed lab. A coordinator that a scenario kills a
// second time is back as soon as after the first, and ordinary Pods stay off the cloud's node.
func (n node) kubeletInstalled() string {
	settings := ""
	if n.cfg.Installed {
		settings += "crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n"
	}
	if n.place == inCloud {
		settings += "registerWithTaints: [{key: " + labelControlPlane + ", effect: NoSchedule}]\n"
	}
	return settings
}

// kubeletCgroups returns the settings that decide whether Pods have their own cgroups.
func (n node) kubeletCgroups() string {
	if n.cfg.NoCgroups {
		return "cgroupsPerQOS: false\nenforceNodeAllocatable: []"
	}
	return "cgroupsPerQOS: true\nenforceNodeAllocatable: [pods]"
}

// kubeletGates returns the settings of kubelet's feature gates, which may be none.
func (n node) kubeletGates() string {
	var gates []string
	if n.cfg.NoCgroups {
		gates = append(gates, "KubeletInUserNamespace: true")
	}
	if n.cfg.Installed && !since(n.bins.KubeletVersion, restartPeriodSince) {
		gates = append(gates, "KubeletCrashLoopBackOffMax: true")
	}
	if len(gates) == 0 {
		return ""
	}
	return "featureGates: {" + strings.Join(gates, ", ") + "}"
}

func (n node) networkConfig() string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","plugins":[
 {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","dataDir":"/run/cni-ipam","ranges":[%s],"routes":[%s]}}]}
`, strings.Join(each(n.cfg.families(), func(f family) string { return fmt.Sprintf(`[{"subnet":%q}]`, n.pods(f)) }), ","),
		strings.Join(each(n.cfg.families(), func(f family) string { return fmt.Sprintf(`{"dst":%q}`, f.everything) }), ","))
}

func (n node) kubeProxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: %q}
clusterCIDR: %q
bindAddress: 0.0.0.0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
iptables: {masqueradeAll: true}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, n.kubeconfig(proxyUser), listed(n.cfg.families(), func(f family) netip.Prefix { return f.pods.Prefix }))
}
