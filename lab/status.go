package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/machine"
	"yurtcoordinator/lab/wire"
)

var everything = labels.Everything()

// Status is the lab at one moment.
type Status struct {
	Config Config       `json:"config"`
	Nodes  []NodeStatus `json:"nodes"`
}

// NodeStatus is one node at one moment: what the cloud says about it beside what its own hub says.
type NodeStatus struct {
	Name string `json:"name"`
	Pool string `json:"pool"`
	// Power is false after a power cut.
	Power bool `json:"power"`
	// WAN and LAN are the faults of its cables: none, drop, reject or oneway.
	WAN string `json:"wan"`
	LAN string `json:"lan"`
	// WANLine and LANLine are the lines of its cables; nil for a cable without a shape.
	WANLine *LineStatus `json:"wanLine,omitempty"`
	LANLine *LineStatus `json:"lanLine,omitempty"`
	// Hub is the hub's own status; nil if it does not answer.
	Hub *HubStatus `json:"hub,omitempty"`
	// Ready is the Node's Ready condition in the cloud; empty if there is no Node.
	Ready string `json:"ready"`
	// Taint is the effect of the taint that keeps Pods off the node because its link is down; empty means no such taint.
	Taint corev1.TaintEffect `json:"taint,omitempty"`
	// HeartbeatAge is how many seconds ago the Lease in the cloud was last seen to be renewed; -1 means never.
	HeartbeatAge float64 `json:"heartbeatAge"`
	// HeartbeatBy is "itself", or the leader's name, or "" before the first heartbeat.
	HeartbeatBy string            `json:"heartbeatBy"`
	Traffic     wire.Bytes        `json:"traffic"`
	Processes   []machine.Process `json:"processes,omitempty"`
}

// HubStatus is a hub's answer at /status on its health port.
type HubStatus struct {
	Role        string `json:"role"`
	Leader      string `json:"leader"`
	Cloud       string `json:"cloud"`
	Coordinator string `json:"coordinator"`
	// RelayedBy is the node over whose line this hub reaches the cloud; empty means its own line. Relays is how many other hubs
	// use this hub's line.
	RelayedBy string `json:"relayedBy"`
	Relays    int    `json:"relays"`
	// CoordinatorAddress is where the hub expects the coordinator; empty means nowhere.
	CoordinatorAddress string `json:"coordinatorAddress"`
	// Coordinators are those of the hub's pool, in the order of their slots; empty if the pool has only one.
	Coordinators []CoordinatorStatus `json:"coordinators"`
	// Replicas are the hub's copies of resources.
	Replicas []ReplicaStatus `json:"replicas"`
	// Kept are the selections that the hub follows for programs of its node.
	Kept []KeptStatus `json:"kept"`
	// Disk is the state of the hub's cache on disk; nil means that it has none.
	Disk *DiskStatus `json:"disk"`
	// Settings says which of the pool's settings the hub runs with; nil means that it knows of none.
	Settings *SettingsStatus `json:"settings"`
	// Identity is the state of the certificates that the hub gets by itself; nil means that it was given its certificate.
	Identity *struct {
		Client  CertificateStatus `json:"client"`
		Serving CertificateStatus `json:"serving"`
		// Authorities are the authorities by which the hub verifies the cloud.
		Authorities struct {
			Trusted []AuthorityStatus `json:"trusted"`
		} `json:"authorities"`
	} `json:"identity"`
}

// CoordinatorStatus is what a hub says about one of its pool's coordinators.
type CoordinatorStatus struct {
	Slot    int    `json:"slot"`
	Address string `json:"address"`
	Link    string `json:"link"`
	// Home says that the hub works with this coordinator. Leader is the node whose hub leads at it.
	Home   bool   `json:"home"`
	Leader string `json:"leader"`
}

// SettingsStatus is what a hub says about its pool's settings.
type SettingsStatus struct {
	Generation int64    `json:"generation"` // that it was told
	Running    int64    `json:"running"`
	State      string   `json:"state"` // restart, refused; empty: it runs with all of it
	Why        string   `json:"why"`
	Own        []string `json:"own"`
}

// AuthorityStatus is an authority that a hub trusts.
type AuthorityStatus struct {
	Hash string `json:"hash"`
}

// CertificateStatus is what a hub says about a certificate that it gets by itself.
type CertificateStatus struct {
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Problem   string    `json:"problem"`
}

// DiskStatus is what a hub says about its cache on disk.
type DiskStatus struct {
	Bytes   int64  `json:"bytes"`
	Error   string `json:"error"`
	Corrupt string `json:"corrupt"`
}

// ReplicaStatus is what a hub says about its copy of one resource.
type ReplicaStatus struct {
	Resource     string `json:"resource"` // as in endpointslices.discovery.k8s.io
	Shared       bool   `json:"shared"`   // one of the pool's resources
	Source       string `json:"source"`   // cloud, coordinator or none
	Revision     uint64 `json:"revision"`
	Objects      int    `json:"objects"`
	Bytes        int    `json:"bytes"`
	HistoryBytes int    `json:"historyBytes"`
	Watches      int    `json:"watches"`
}

// KeptStatus is what a hub says about a selection that it follows.
type KeptStatus struct {
	Selection string `json:"selection"`
	Revision  uint64 `json:"revision"`
	Requests  int    `json:"requests"` // that read it now
}

// Replica returns what the hub says about its copy of a resource; false means that it has none.
func (h HubStatus) Replica(resource string) (ReplicaStatus, bool) {
	for _, r := range h.Replicas {
		if r.Resource == resource {
			return r, true
		}
	}
	return ReplicaStatus{}, false
}

// Status asks every hub and the cloud. An answer that takes longer than a second counts as none.
func (l *Lab) Status(ctx context.Context) Status {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s := Status{Config: l.cfg, Nodes: make([]NodeStatus, len(l.all))}
	traffic := l.Traffic(false)
	var wg sync.WaitGroup
	for i, p := range l.all {
		s.Nodes[i] = l.wiring(p)
		s.Nodes[i].Traffic = traffic[string(p.name())]
		l.cloudView(&s.Nodes[i])
		wg.Go(func() { l.ownView(ctx, &s.Nodes[i]) })
	}
	wg.Wait()
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.HeartbeatBy == byLeader {
			n.HeartbeatBy = leaderOf(s.Nodes, n.Pool)
		}
	}
	return s
}

// byLeader stands for the leader's name until it is known.
const byLeader = "leader"

func leaderOf(nodes []NodeStatus, pool string) string {
	i := slices.IndexFunc(nodes, func(n NodeStatus) bool {
		return n.Pool == pool && n.Hub != nil && n.Hub.Role == "leader"
	})
	if i < 0 {
		return byLeader
	}
	return nodes[i].Name
}

func (l *Lab) wiring(p place) NodeStatus {
	l.mu.Lock()
	s := NodeStatus{
		Name: string(p.name()), Pool: string(p.poolName()), Power: l.hosts[string(p.name())].machine != nil,
		WAN: l.cuts[link{p, WAN}].String(), LAN: l.cuts[link{p, LAN}].String(), HeartbeatAge: -1,
	}
	wan, lan := l.lines[link{p, WAN}], l.lines[link{p, LAN}]
	l.mu.Unlock()
	s.WANLine, s.LANLine = wan.status(), lan.status()
	return s
}

func (l *Lab) cloudView(s *NodeStatus) {
	node, err := l.watch().nodes.Get(s.Name)
	if err != nil {
		return
	}
	s.Ready = string(condition(node, corev1.NodeReady).Status)
	for _, t := range node.Spec.Taints {
		if t.Key == edge.TaintUnschedulable {
			s.Taint = t.Effect
		}
	}
	lease, err := l.watch().leases.Leases(corev1.NamespaceNodeLease).Get(s.Name)
	if err != nil || lease.Spec.RenewTime == nil {
		return
	}
	// All machines of a lab have the host's clock, so the Lease's own time may be compared with ours.
	s.HeartbeatAge = time.Since(timeOf(lease.Spec.RenewTime)).Seconds()
	s.HeartbeatBy = "itself"
	if lease.Annotations[edge.DelegateHeartbeat] == edge.DelegateHeartbeatOn {
		s.HeartbeatBy = byLeader
	}
}

func (l *Lab) ownView(ctx context.Context, s *NodeStatus) {
	l.mu.Lock()
	m := l.hosts[s.Name].machine
	l.mu.Unlock()
	if m == nil {
		return
	}
	if ps, err := m.Processes(ctx); err == nil {
		s.Processes = ps
	}
	if l.cfg.Installed {
		s.Processes = append(s.Processes, coordinatorsOn(ctx, m)...)
	}
	hub, err := askHub(ctx, func(ctx context.Context, _, address string) (net.Conn, error) {
		return dialInside(ctx, m.PID, address)
	})
	if err == nil {
		s.Hub = &hub
	}
}

// coordinatorsOn returns the coordinators in Pods of a machine, under the name of the lab's program.
func coordinatorsOn(ctx context.Context, m *machine.Machine) []machine.Process {
	found, err := m.Find(ctx, edge.AppCoordinator)
	if err != nil {
		return nil
	}
	for i := range found {
		found[i].Name = string(Coordinator)
	}
	return found
}

// askHub asks the hub at the other end of dial for its status.
func askHub(ctx context.Context, dial dialFunc) (HubStatus, error) {
	var hub HubStatus
	err := getFromHub(ctx, dial, "/status", func(body io.Reader) error { return json.NewDecoder(body).Decode(&hub) })
	return hub, err
}

// dialFunc connects to an address, as net.Dialer.DialContext does.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// getFromHub reads what the hub at the other end of dial answers at its health port. It fails for any answer but 200.
func getFromHub(ctx context.Context, dial dialFunc, path string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
	url := fmt.Sprintf("http://127.0.0.1:%d%s", edge.PortHubHealth, path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return read(resp.Body)
}

// dialInside connects to address from within the machine whose first process is pid: a TCP address, or the path of a Unix socket.
func dialInside(ctx context.Context, pid int, address string) (conn net.Conn, err error) {
	network := "tcp"
	if filepath.IsAbs(address) {
		network, address = "unix", fmt.Sprintf("/proc/%d/root%s", pid, address)
	}
	enterErr := wire.Enter(pid, func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, enterErr
}
