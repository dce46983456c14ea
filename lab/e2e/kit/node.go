package kit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
)

// Node is one of the lab's nodes.
type Node struct {
	t    *T
	name string
}

// Node returns the node of that name.
func (t *T) Node(name string) Node { return Node{t, name} }

// Address returns the node's address in its LAN.
func (node Node) Address() string {
	n, err := node.t.Cloud.CoreV1().Nodes().Get(node.t.Ctx, node.name, metav1.GetOptions{})
	node.t.Must(err)
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	node.t.Fail("%s has no address", node.name)
	return ""
}

// Client returns a client that uses a node's hub, as the node.
func (node Node) Client() kubernetes.Interface {
	access, err := node.t.Lab.HubConfig(node.name)
	node.t.Must(err)
	client := node.t.Client(access)
	return client
}

// List lists at a node's hub, as a program whose reads the hub keeps.
func (node Node) List(path string) (map[string]any, error) {
	access, err := node.t.Lab.HubConfig(node.name)
	node.t.Must(err)
	access.Timeout = 20 * time.Second // a hub waits up to 15 s for what it does not know and may learn
	client, err := rest.HTTPClientFor(access)
	node.t.Must(err)
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(node.t.Ctx, http.MethodGet, strings.TrimSuffix(access.Host, "/")+path, nil)
	node.t.Must(err)
	r.Header.Set("Edge-Cache", "true")
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var list map[string]any
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %v", response.Status, list["message"])
	}
	return list, nil
}

// Fetch gets a URL as a program of the node would.
func (node Node) Fetch(url string) (string, error) {
	return Fetch(node.t.Ctx, &http.Client{Timeout: 2 * time.Second, Transport: node.t.From(node.name)}, url)
}

// Metric returns the sum of a metric of the node's hub over all series that have each of these labels, as name="value".
func (node Node) Metric(name string, labels ...string) float64 {
	var text string
	var err error
	for range 5 { // a machine that is busy with something else may need more than one
		if text, err = node.Fetch(fmt.Sprintf("http://127.0.0.1:%d/metrics", edge.PortHubHealth)); err == nil {
			break
		}
		node.t.Pause(time.Second, "the hub of "+node.name+" tells its metrics")
	}
	node.t.Must(err)
	sum, err := SumOf(text, name, labels)
	node.t.Must(err)
	return sum
}

// HubKeys returns the directory of the keys and certificates that the hub got with its token.
func (node Node) HubKeys() string {
	dir, err := node.t.Lab.HubKeysDir(node.name)
	node.t.Must(err)
	return dir
}

// IPTables changes a rule of the network of a node, or of the machine "cloud".
func (node Node) IPTables(rule ...string) {
	cmd, err := node.t.Lab.Inside(node.t.Ctx, node.name, append([]string{"iptables", "--wait"}, rule...)...)
	node.t.Must(err)
	node.t.Runs(cmd)
}

// Processes returns the node's processes whose command line contains a text, with their IDs and start times. So a process that
// was started again is another one.
func (node Node) Processes(text string) map[string]bool {
	listed, err := node.t.Lab.Output(node.t.Ctx, node.name, "ps", "-e", "-o", "pid=,lstart=,args=")
	node.t.Must(err)
	found := map[string]bool{}
	for line := range strings.Lines(listed) {
		if strings.Contains(line, text) {
			found[strings.Join(strings.Fields(line), " ")] = true
		}
	}
	return found
}

// Memory is a program's memory, in bytes.
type Memory struct {
	// Anonymous is the program's own memory. RSS also counts pages of files, mostly of the program's file, which the system
	// takes back when it needs them. MostRSS is the highest RSS since the program's start.
	Anonymous, RSS, MostRSS float64
}

// Programs of ours by the names that the kernel keeps for processes. It cuts the end of a long name.
const (
	ProgramHub         = "yurthub"
	ProgramCoordinator = "yurt-coord.*"
)

// Memory returns the memory of the first process of a program on the node.
func (node Node) Memory(program string) Memory {
	status, err := node.t.Lab.Output(node.t.Ctx, node.name, "sh", "-c", "cat /proc/$(pgrep -o -x '"+program+"')/status")
	node.t.Must(err)
	m, err := memoryIn(status)
	node.t.Must(err)
	return m
}

// memoryIn reads a /proc/PID/status.
func memoryIn(status string) (m Memory, err error) {
	of := map[string]*float64{"RssAnon": &m.Anonymous, "VmRSS": &m.RSS, "VmHWM": &m.MostRSS}
	for line := range strings.Lines(status) {
		name, rest, _ := strings.Cut(line, ":")
		var kB float64
		if into := of[name]; into != nil {
			if _, err := fmt.Sscanf(rest, "%f kB", &kB); err != nil {
				return m, fmt.Errorf("%q: %w", line, err)
			}
			*into = kB * 1024
		}
	}
	if m.Anonymous == 0 || m.RSS == 0 || m.MostRSS == 0 {
		return m, fmt.Errorf("not all of RssAnon, VmRSS and VmHWM are in %q", status)
	}
	return m, nil
}

// SameKeys reports whether two sets are equal.
func SameKeys(a, b map[string]bool) bool {
	if len(a) != len(b) {
		return false
	}
	for k := range a {
		if !b[k] {
			return false
		}
	}
	return true
}

// damped is how long a change of a node's taint may take: the third within a minute waits for that to be over.
const damped = 90 * time.Second

// Delegated waits until a node's heartbeats arrive in the cloud through the leader and the node is tainted. It records how long
// each of the two took after the cut.
func (node Node) Delegated(cut time.Time) {
	isDelegated := func(l LeaseAt) bool { return l.Delegated }
	node.t.Eventually(damped, node.name+"'s Lease in the cloud is delegated, and it is tainted", func() error {
		if _, ok := node.t.Seen.FirstLease(node.name, cut, isDelegated); !ok {
			return fmt.Errorf("its Lease is not annotated %s", edge.DelegateHeartbeat)
		}
		if node.t.Seen.Node(node.name).Taint == "" {
			return fmt.Errorf("it has no taint %s", edge.TaintUnschedulable)
		}
		return nil
	})
	annotated, _ := node.t.Seen.FirstLease(node.name, cut, isDelegated)
	tainted, _ := node.t.Seen.FirstNode(node.name, cut, func(n NodeAt) bool { return n.Taint != "" })
	node.t.Figure("cut_to_first_delegated_heartbeat_s", annotated.Sub(cut).Seconds())
	// Two watches deliver these two changes, in either order if they are a moment apart.
	node.t.Figure("annotation_to_taint_s", max(0, tainted.Sub(annotated).Seconds()))
}

// Direct waits until a node's own heartbeats arrive in the cloud again and its taint is gone.
func (node Node) Direct(healed time.Time) {
	clean := func(l LeaseAt) bool { return !l.Delegated }
	node.t.Eventually(damped, node.name+" reports itself again, and is not tainted", func() error {
		if _, ok := node.t.Seen.FirstLease(node.name, healed, clean); !ok {
			return fmt.Errorf("its Lease is still annotated %s", edge.DelegateHeartbeat)
		}
		if n := node.t.Seen.Node(node.name); n.Taint != "" || n.LinkDown != corev1.ConditionFalse {
			return fmt.Errorf("taint %q, %s=%s", n.Taint, edge.ConditionCloudLinkDown, n.LinkDown)
		}
		return nil
	})
	first, _ := node.t.Seen.FirstLease(node.name, healed, clean)
	untainted, _ := node.t.Seen.FirstNode(node.name, first, func(n NodeAt) bool { return n.Taint == "" })
	node.t.Figure("heal_to_first_direct_heartbeat_s", first.Sub(healed).Seconds())
	node.t.Figure("clean_lease_to_untaint_s", max(0, untainted.Sub(first).Seconds()))
}
