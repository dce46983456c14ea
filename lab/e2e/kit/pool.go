package kit

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
)

// Pool is the lab's first pool; most labs have only one.
type Pool struct{ t *T }

// Nodes returns the names of the first pool's nodes.
func (pool Pool) Nodes() []string {
	var names []string
	for i := 1; i <= pool.t.Config.Nodes; i++ {
		names = append(names, fmt.Sprintf("p1-n%d", i))
	}
	return names
}

// Hubs returns the status of all hubs of the first pool.
func (pool Pool) Hubs() map[string]lab.HubStatus {
	s, err := pool.t.Lab.Status(pool.t.Ctx)
	pool.t.Must(err)
	out := map[string]lab.HubStatus{}
	for _, n := range s.Nodes {
		if n.Pool == "p1" && n.Hub != nil {
			out[n.Name] = *n.Hub
		}
	}
	return out
}

// Roles, as hubs print them.
const (
	RolePending  = "pending"
	RoleFollower = "follower"
	RoleLeader   = "leader"
)

// Leader returns the only leader of the first pool, by the status of all its hubs.
func (pool Pool) Leader(hubs map[string]lab.HubStatus) (string, error) {
	leader := ""
	for name, h := range hubs {
		if h.Role == RoleLeader {
			if leader != "" {
				return "", fmt.Errorf("%s and %s both lead", leader, name)
			}
			leader = name
		}
	}
	if leader == "" {
		return "", fmt.Errorf("nobody leads: %v", hubs)
	}
	return leader, nil
}

// Settled waits until the first pool has one leader and all other hubs follow it.
func (pool Pool) Settled(within time.Duration) string {
	leader := ""
	pool.t.Eventually(within, "one hub leads and all others follow", func() error {
		hubs := pool.Hubs()
		if len(hubs) != pool.t.Config.Nodes {
			return fmt.Errorf("%d of %d hubs answer", len(hubs), pool.t.Config.Nodes)
		}
		var err error
		if leader, err = pool.Leader(hubs); err != nil {
			return err
		}
		for name, h := range hubs {
			if h.Leader != leader || (name != leader && h.Role != RoleFollower) || h.Cloud != "up" {
				return fmt.Errorf("%s says %+v, the leader is %s", name, h, leader)
			}
		}
		return nil
	})
	pool.t.Say("%s leads", leader)
	return leader
}

// NoticesCut waits until hubs know that the cloud can't be reached, and that the coordinator can.
func (pool Pool) NoticesCut(nodes ...string) {
	pool.t.Eventually(30*time.Second, "the hubs call the cloud down", func() error {
		for name, h := range pool.Hubs() {
			if slices.Contains(nodes, name) && (h.Cloud != "down" || h.Coordinator != "up") {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
}

// SettledAway waits as Settled does, and makes sure that the leader is not on the coordinator's node, so that each can
// break without the other.
func (pool Pool) SettledAway() string {
	leader, coordinatorNode := pool.Settled(30*time.Second), pool.CoordinatorNode()
	if leader != coordinatorNode {
		return leader
	}
	if !pool.t.Config.Installed { // else the next leader lists all that this one has listed, and not yet pushed
		pool.Shared(30*time.Second, EndpointSlices.Name)
	}
	pool.t.Say("moving leadership away from the coordinator's node")
	pool.t.Must(pool.t.Lab.Node(pool.t.Ctx, lab.Kill, coordinatorNode, lab.Hub))
	pool.t.Eventually(15*time.Second, "another hub leads", func() error {
		l, err := pool.Leader(pool.Hubs())
		if err == nil && l == coordinatorNode {
			return fmt.Errorf("%s still leads", l)
		}
		return err
	})
	pool.t.Must(pool.t.Lab.Node(pool.t.Ctx, lab.Start, coordinatorNode, lab.Hub))
	return pool.Settled(30 * time.Second)
}

// Follower returns a node of the first pool that is neither one of these nor the coordinator's.
func (pool Pool) Follower(but ...string) string {
	coordinatorNode := pool.CoordinatorNode()
	for _, name := range pool.Nodes() {
		if name != coordinatorNode && !slices.Contains(but, name) {
			return name
		}
	}
	pool.t.Fail("the lab has too few nodes for this scenario")
	return ""
}

// NodesReady fails with the nodes that are not ready.
func (pool Pool) NodesReady() error {
	list, err := pool.t.Cloud.CoreV1().Nodes().List(pool.t.Ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("%s is not Ready: %s", n.Name, c.Message)
			}
		}
	}
	return nil
}

// CoordinatorNode returns the node that runs the first pool's coordinator at this moment.
func (pool Pool) CoordinatorNode() string {
	node, err := pool.t.Lab.Coordinator(pool.t.Ctx, 1)
	pool.t.Must(err)
	return node
}

// Coordinator returns a client of the pool's coordinator, as that user.
func (pool Pool) Coordinator(name string) kubernetes.Interface {
	access, err := pool.t.Lab.CoordinatorConfig(1, name)
	pool.t.Must(err)
	client := pool.t.Client(access)
	return client
}

// ShutOut reports whether an error's text says that a server has refused a client in the TLS handshake. With TLS 1.3 a client has
// ended its side of the handshake by then. If it is about to write when the alert arrives, Go's HTTP/2 says only that nothing
// came before the end.
func ShutOut(text string) bool {
	return strings.Contains(text, "remote error: tls: ") || strings.Contains(text, "http2: client conn could not be established")
}

// CoordinatorPod returns the Pod of the first pool's coordinator; the lab has no other.
func (pool Pool) CoordinatorPod() *corev1.Pod {
	pods, err := pool.t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(pool.t.Ctx,
		metav1.ListOptions{LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator})
	pool.t.Must(err)
	if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
		pool.t.Fail("%d Pods of coordinators, want 1 with one container", len(pods.Items))
	}
	return &pods.Items[0]
}

// CoordinatorIn returns the Pod of a slot's coordinator that stays.
func (pool Pool) CoordinatorIn(slot edge.Slot) *corev1.Pod {
	pods, err := pool.CoordinatorsIn(slot)
	pool.t.Must(err)
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(pods) != 1 {
		pool.t.Fail("slot %d has %d Pods that stay, want 1", slot, len(pods))
	}
	return &pods[0]
}

// CoordinatorsIn returns the Pods of a slot, also those that are about to go. The lab has one pool with coordinators.
func (pool Pool) CoordinatorsIn(slot edge.Slot) ([]corev1.Pod, error) {
	selector := edge.LabelApp + "=" + edge.AppCoordinator + ",!" + edge.LabelSlot
	if slot > 0 {
		selector = edge.LabelSlot + "=" + strconv.Itoa(int(slot))
	}
	pods, err := pool.t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(pool.t.Ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// CoordinatorOf returns the Pod of a pool's coordinator that stays; one without a name means that there is none.
func (t *T) CoordinatorOf(pool string) *corev1.Pod {
	pods, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.Ctx, metav1.ListOptions{
		LabelSelector: edge.LabelApp + "=" + edge.AppCoordinator + "," + edge.LabelNodePool + "=" + pool,
	})
	t.Must(err)
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp == nil {
			return p
		}
	}
	return &corev1.Pod{}
}

// PodReady reports whether a Pod has the condition Ready.
func PodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// CoordinatorsRunning returns the nodes that run a coordinator's process.
func (pool Pool) CoordinatorsRunning() []string {
	s, err := pool.t.Lab.Status(pool.t.Ctx)
	pool.t.Must(err)
	var nodes []string
	for _, n := range s.Nodes {
		for _, p := range n.Processes {
			if p.Name == string(lab.Coordinator) {
				nodes = append(nodes, n.Name)
			}
		}
	}
	return nodes
}

// Shared waits until each hub has a resource from the right source: the leader from the cloud, the others from the
// coordinator.
func (pool Pool) Shared(within time.Duration, resource string) {
	short, _, _ := strings.Cut(resource, ".")
	_, noted := pool.t.alone[short]
	first := !noted
	// A hub that came up before its coordinator, as in an installed lab or on a busy machine, may have listed alone. It never
	// goes back to an earlier state, and a quiet resource advances once a minute.
	if first {
		within += 90 * time.Second
	}
	pool.t.Eventually(within, "the leader reads "+resource+" from the cloud, the others from the coordinator", func() error {
		for node, h := range pool.Hubs() {
			want := "coordinator"
			if h.Role == RoleLeader {
				want = "cloud"
			}
			r, ok := h.Replica(resource)
			if !ok || r.Source != want || r.Revision == 0 {
				return fmt.Errorf("%s (%s) has %+v", node, h.Role, r)
			}
		}
		return nil
	})
	if first {
		if pool.t.alone == nil {
			pool.t.alone = map[string]int{}
		}
		pool.t.alone[short] = len(pool.ListsOverWAN(short))
	}
}

// ListsOverWAN returns the requests with which the first pool's nodes made the cloud send all of a resource since the start of
// the lab.
func (pool Pool) ListsOverWAN(resource string) []lab.FullRead {
	return pool.t.Cloud.ListsBy(pool.Nodes(), resource)
}

// Selection says for whom a read is, and what it selects. It leaves out the timeout in a watch's URI, which is random.
func Selection(l lab.FullRead) string {
	path, rest, _ := strings.Cut(l.URI, "?")
	query, err := url.ParseQuery(rest)
	if err != nil {
		return l.User + " " + l.URI
	}
	return fmt.Sprint(l.User, " ", path, " ", query.Get("fieldSelector"), " ", query.Get("labelSelector"))
}

// firstLists returns how many lists over the WAN a resource had cost when the pool was complete. Usually that is one. In an
// installed lab, hubs start before their coordinator; there it is all lists until every hub had the shared resources from the
// coordinator.
func (pool Pool) firstLists(resource string) int {
	if !pool.t.Config.Installed {
		return 1
	}
	return max(1, pool.t.alone[resource])
}

// NewLists returns the lists of a resource over the WAN, without the first ones, whose number is before.
func (pool Pool) NewLists(resource string, before int) []lab.FullRead {
	lists := pool.ListsOverWAN(resource)[before:]
	for _, l := range lists {
		pool.t.Say("list over the WAN: %s at %s by %s (%s)", resource, l.At.Local().Format(time.TimeOnly), l.User, l.Verb)
	}
	return lists
}

// Steadily sends a request through each node's hub five times a second until stop is called. stop returns the errors.
func (t *T) Steadily(nodes []string) (stop func() []error) {
	ctx, cancel := context.WithCancel(t.Ctx)
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for _, name := range nodes {
		client := t.Node(name).Client()
		all.Go(func() {
			every := time.NewTicker(200 * time.Millisecond)
			defer every.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-every.C:
				}
				try, cancelTry := context.WithTimeout(ctx, 5*time.Second)
				_, err := client.CoreV1().Nodes().Get(try, name, metav1.GetOptions{})
				cancelTry()
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					errs = append(errs, fmt.Errorf("through the hub of %s: %w", name, err))
					mu.Unlock()
				}
			}
		})
	}
	return func() []error {
		cancel()
		all.Wait()
		return errs
	}
}
