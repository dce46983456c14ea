package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"yurtcoordinator/internal/edge"
)

// Kubelet is the kind of kubelet that nodes run.
type Kubelet string

// Kinds of kubelets.
const (
	// Real is a genuine kubelet with containerd and runc.
	Real Kubelet = "real"
	// Hollow is kubelet's own code with a runtime that only pretends to run containers.
	Hollow Kubelet = "hollow"
)

// Timing holds the Kubernetes settings that decide how fast a silent node is noticed and its Pods are moved.
type Timing struct {
	// Lease is kubelet's nodeLeaseDurationSeconds. kubelet renews four times in that time.
	Lease time.Duration `json:"lease"`
	// Report is kubelet's nodeStatusReportFrequency: how often it reports an unchanged status. Hollow kubelets always
	// use Kubernetes' default, 5 minutes.
	Report time.Duration `json:"report"`
	// Grace is kube-controller-manager's node-monitor-grace-period, Monitor its node-monitor-period.
	Grace   time.Duration `json:"grace"`
	Monitor time.Duration `json:"monitor"`
	// Toleration is how long Pods tolerate a node that is not ready or unreachable.
	Toleration time.Duration `json:"toleration"`
}

var (
	// Quick is for scenarios that must not take long. The grace period is shortened less than the other times: a hub needs 5 s
	// to notice a silent link, whatever the timing, and half of the grace period must cover that.
	Quick = Timing{
		Lease: 8 * time.Second, Report: 4 * time.Second, Grace: 20 * time.Second, Monitor: time.Second,
		Toleration: 5 * time.Second,
	}
	// Stock is Kubernetes' own timing (1.36), except for the toleration, which is 300 s there.
	Stock = Timing{
		Lease: 40 * time.Second, Report: 5 * time.Minute, Grace: 50 * time.Second, Monitor: 5 * time.Second,
		Toleration: 30 * time.Second,
	}
)

// Config describes a lab. It is passed to the lab's own process as JSON.
type Config struct {
	Name    string  `json:"name"`
	Pools   int     `json:"pools"`
	Nodes   int     `json:"nodes"` // in each pool
	Kubelet Kubelet `json:"kubelet"`
	// Kubernetes is the minor version of the cloud, such as 1.34; empty means ours. KubeletVersion is that of the nodes'
	// kubelet and kube-proxy; empty means the cloud's. Versions other than ours are built only for a lab that asks for them.
	Kubernetes     string `json:"kubernetes,omitempty"`
	KubeletVersion string `json:"kubeletVersion,omitempty"`
	// NoKubelet makes nodes that run only a hub (and a CoreDNS, if wanted), to measure many hubs. Then there are no
	// Node objects, and no kube-proxy.
	NoKubelet bool `json:"noKubelet,omitempty"`
	// NoProxy leaves kube-proxy out.
	NoProxy bool `json:"noProxy,omitempty"`
	// CoreDNS runs a CoreDNS on each node as a client of its hub, like kube-proxy. It is built only for a lab that asks
	// for it.
	CoreDNS bool `json:"coreDNS,omitempty"`
	// KubectlOlder adds a kubectl of the minor version before ours, for Client.KubectlOlder. It is built only for a lab
	// that asks for it.
	KubectlOlder bool `json:"kubectlOlder,omitempty"`
	// Bare makes machines with empty disks and no power, for a cluster that kubeadm makes on them: see Client.TakeOver and
	// Client.Follow. The machines have the images that kubeadm and flannel need, which are built only for such a lab. A bare
	// lab is Installed as well, but the lab itself installs nothing.
	Bare bool `json:"bare,omitempty"`
	// OpenYurt adds OpenYurt's yurt-manager, for Client.YurtManager. It is built only for a lab that asks for it.
	OpenYurt bool `json:"openYurt,omitempty"`
	// Prometheus adds Prometheus and promtool to Client.Programs. They are built only for a lab that asks for them.
	Prometheus bool `json:"prometheus,omitempty"`
	// Releases adds images of the next releases of yurthub, signed with the lab's own key: see Client.ReleaseKey. They are
	// built only for a lab that asks for them.
	Releases bool `json:"releases,omitempty"`
	// Former is the full hash of a commit of this repository whose hub, coordinator and controller are to run beside ours. They
	// are built from the repository's history, with that commit's go.mod. Client.RunHub runs its hub. In an installed lab all
	// nodes have images of the other two, tagged with version.Development of the commit. The coordinator's image has our
	// Kubernetes.
	Former string `json:"former,omitempty"`
	// Supply adds a registry, cosign and krew: see Client.Programs. They are built only for a lab that asks for them.
	Supply bool `json:"supply,omitempty"`
	// NoCoordinator starts the hubs with --enable-coordinator=false, and no coordinator.
	NoCoordinator bool `json:"noCoordinator,omitempty"`
	// Coordinators is how many coordinators each pool has, up to three. They run on its first nodes, one slot each. 0 means
	// one.
	Coordinators int `json:"coordinators,omitempty"`
	// Bootstrap makes the hubs get their certificates themselves, with BootstrapToken. The hubs then also serve Pods, at their
	// nodes' addresses in the LAN.
	Bootstrap bool `json:"bootstrap,omitempty"`
	// CertificateLife is the life of the certificates that the cloud signs; zero means a year.
	CertificateLife time.Duration `json:"certificateLife,omitempty"`
	// IPFamily is the IP family of the lab's addresses, or both; empty means IPv4.
	IPFamily IPFamily `json:"ipFamily,omitempty"`
	// NextAuthority makes a second authority of the cloud, which nothing uses yet: see Client.Authorities. The lab's own
	// clients and the control plane's trust both authorities from the beginning, and the second one has signed their
	// certificates.
	NextAuthority bool `json:"nextAuthority,omitempty"`
	// Installed makes the lab as an installation makes a cluster. The cloud's machine is also a node, on which
	// coordinator-controller runs as a Pod from the chart. The coordinators are Pods that coordinator-controller makes for
	// YurtCoordinators. Without Installed, the lab itself starts our programs.
	Installed bool `json:"installed,omitempty"`
	// Chart is the directory of the chart that an Installed lab applies.
	Chart string `json:"chart,omitempty"`
	// ChartValues are values for the chart, NAME=VALUE as for helm --set-string, after the lab's own.
	ChartValues []string `json:"chartValues,omitempty"`
	// NoCgroups is set by Up if it is not root: real kubelets and containers then do without cgroups.
	NoCgroups bool `json:"noCgroups,omitempty"`
	// HubFlags are added to every hub's own flags.
	HubFlags []string `json:"hubFlags,omitempty"`
	Timing   Timing   `json:"timing"`
	// Variants are the pools that differ from the others, by their numbers from 1.
	Variants map[int]Variant `json:"variants,omitempty"`
	// AuditAll makes the cloud's audit log record every request, for Client.Requests.
	AuditAll bool `json:"auditAll,omitempty"`
	// EventsApart makes the cloud keep Events in an etcd of their own. Its revisions are unrelated to all others.
	EventsApart bool `json:"eventsApart,omitempty"`

	// noHub is Variant.NoHub, in what Config.of returns.
	noHub bool
}

// AsInstalled returns the same lab with the system installed: its coordinators are Pods run by real kubelets. Pools get at
// least edge.MinPoolNodes nodes, the fewest for which a pool has a coordinator by default.
func (c Config) AsInstalled() Config {
	c.Installed, c.Kubelet, c.NoKubelet = true, Real, false
	c.Nodes = max(c.Nodes, edge.MinPoolNodes)
	return c
}

// AsBare returns the same lab without anything on its machines. kubeadm, and a user who follows our README, install the system.
func (c Config) AsBare() Config {
	c = c.AsInstalled()
	c.Bare, c.Timing = true, Stock
	return c
}

// DefaultName is the name of a lab without a given name.
const DefaultName = "default"

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// Validate returns an error that names the setting and says what it must be.
func (c Config) Validate() error {
	switch {
	case !validName.MatchString(c.Name):
		return fmt.Errorf("--name %q: want up to 40 lower-case letters, digits and hyphens", c.Name)
	case c.Pools < 1 || c.Pools > MaxPools:
		return fmt.Errorf("--pools %d: want 1 to %d", c.Pools, MaxPools)
	case c.Nodes < 1 || c.Nodes > MaxNodes:
		return fmt.Errorf("--nodes %d: want 1 to %d (in each pool)", c.Nodes, MaxNodes)
	case c.Kubelet != Real && c.Kubelet != Hollow:
		return fmt.Errorf("--kubelet %q: want real or hollow", c.Kubelet)
	case c.Kubelet == Hollow && !c.NoKubelet && (c.Kubernetes != "" || c.KubeletVersion != ""):
		return errors.New("--kubelet hollow is of our own Kubernetes: with --kubernetes or --kubelet-version, want real")
	case c.families() == nil:
		return fmt.Errorf("--ip-family %q: want %s, %s or %s", c.IPFamily, IPv4, IPv6, DualStack)
	case c.Coordinators < 0 || c.Coordinators > maxCoordinators || c.Coordinators > c.Nodes:
		return fmt.Errorf("%d coordinators in a pool: want 1 to %d, and no more than nodes", c.Coordinators, maxCoordinators)
	case c.Coordinators > 1 && (c.Installed || c.NoCoordinator):
		return errors.New("several coordinators are for a lab that starts them itself")
	case c.Former != "" && c.Bare:
		return errors.New("a bare lab has no hubs of another commit: they are the lab's own")
	case !c.Installed && c.Bare:
		return errors.New("a bare lab is an installed one")
	case c.Bare && len(c.families()) > 1 || c.Bare && c.families()[0] != four:
		return errors.New("a bare lab is one of IPv4: its machines' addresses are kubeadm's affair")
	case !c.Installed:
		return c.validateVariants()
	case c.Kubelet != Real || c.NoKubelet:
		return errors.New("--installed runs the system in Pods, which needs --kubelet real")
	case c.NoCoordinator:
		return errors.New("--installed makes a coordinator for each pool: leave --no-coordinator out")
	}
	return c.validateVariants()
}

// Component is a program of a node, by the name that the command line uses.
type Component string

// Components of a node.
const (
	Hub         Component = "hub"
	KubeletC    Component = "kubelet"
	KubeProxy   Component = "kube-proxy"
	CoreDNS     Component = "coredns"
	Coordinator Component = "coordinator"
	Containerd  Component = "containerd"
	// All is the whole machine: to kill it is a power cut, to pause it stops all its processes.
	All Component = "all"
)

// StateRoot is where running labs keep their files, each in its own directory.
func StateRoot() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/yurtlab", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "yurtlab"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no place for the lab's files: %w", err)
	}
	return filepath.Join(home, ".local", "state", "yurtlab"), nil
}

// Dir returns the directory of the lab of that name.
func Dir(name string) (string, error) {
	if !validName.MatchString(name) {
		return "", fmt.Errorf("--name %q: want up to 40 lower-case letters, digits and hyphens", name)
	}
	root, err := StateRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, name), nil
}

// Files in a lab's directory.
const (
	configFile = "config.json"
	socketFile = "lab.sock"
	dialFile   = "dial.sock"
	logFile    = "lab.log"
)

// watchers returns about how many inotify instances a lab needs, counted in labs of 10 and 30 nodes with Kubernetes
// 1.36.
func (c Config) watchers() int {
	each := map[Kubelet]int{Real: 8, Hollow: 2}[c.Kubelet] // a real node's containerd has two of them
	if c.NoKubelet {
		each = 0
	}
	if !c.NoProxy {
		each++
	}
	if c.Bare { // systemd has three of them, and the control plane's machine has all that a node has
		return 30 + c.Pools*2 + len(c.places())*(each+4)
	}
	return 20 + c.Pools*2 + len(c.places())*each // the cloud, coordinators, nodes
}
