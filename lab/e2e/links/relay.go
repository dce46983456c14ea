package links

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var relayScenarios = []kit.Scenario{
	{
		Name: "relay", Tier: kit.Core, Lab: kit.RealKubelets(kit.Joining(kit.OnePool, 0)), Run: relayed,
		Doc: "A node loses its link and carries on over a neighbour's: it receives a changed ConfigMap, starts a new Pod " +
			"and reports its crash. The neighbour's hub dies and another takes over; then the link heals.",
	},
	{
		Name: "rollout-while-relayed", Lab: kit.RealKubelets(kit.Joining(kit.OnePool, 0)), Run: rolloutWhileRelayed,
		Doc: "A DaemonSet that tolerates nothing is rolled out while a node goes over a neighbour's line: the node gets its " +
			"new Pod while its own line is still down. It is rolled out again as soon as the line is back.",
	},
	{
		Name: "relay-abuse", Lab: kit.Joining(twoPools(kit.OnePool), 0), Run: relayAbuse,
		Doc: "A stranger without a certificate, another pool's hub, a wrong target address and a flood all try the port " +
			"where a hub relays. All are refused and counted, while a node of the pool is relayed as usual. A greedy " +
			"neighbour gets its share of the bytes. Connections for the coordinator are passed on, within limits.",
	},
}

func twoPools(c lab.Config) lab.Config {
	c.Pools, c.Nodes = 2, 2
	return c
}

// soon is the time promised for whatever goes over a neighbour's line. A scenario fails at three times that.
const soon = 5 * time.Second

// crewName is the DaemonSet whose Pod starts on the cut node. crewRuns is what its container runs.
const (
	crewName = "crew"
	crewRuns = "4194301"
)

func relayed(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	t.Pool.ServesPods()
	t.DeployWeb()
	t.Node(node).DeployNeedy()
	othersRelay(t, node)

	t.Say("cutting the WAN link of %s, silently", node)
	cut := t.Cut(node)
	by := reachesTheCloudBy(t, node, "relayed", "")
	t.Figure("cut_to_relayed_s", time.Since(cut).Seconds())

	configReaches(t, node, "changed")
	pod := crewStarts(t, node)
	crashIsSeen(t, node, pod)
	t.Node(node).Delegated(cut)
	marked(t, node, by)
	t.NeverNotReady(cut, node)

	t.Say("killing the hub of %s, over whose line %s goes", by, node)
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, by, lab.Hub))
	killed := time.Now()
	next := reachesTheCloudBy(t, node, "relayed", by)
	t.Figure("neighbour_lost_to_next_s", time.Since(killed).Seconds())
	configReaches(t, node, "changed again")
	t.Must(t.Lab.Node(t.Ctx, lab.Start, by, lab.Hub))
	t.Figure("relay_kb", t.Node(next).Metric("yurthub_relay_bytes_total")/1024)
	t.Figure("neighbour_anonymous_mb", t.Node(next).Memory(kit.ProgramHub).Anonymous/(1<<20))

	t.Say("healing the link")
	healed := t.Heal(node)
	t.Node(node).Direct(healed)
	t.Eventually(15*time.Second, "its line is its own again, and nobody relays", func() error {
		for name, h := range t.Pool.Hubs() {
			if h.Cloud != "up" || h.RelayedBy != "" || h.Relays != 0 {
				return fmt.Errorf("%s: cloud %s, relayed by %q, relays for %d", name, h.Cloud, h.RelayedBy, h.Relays)
			}
		}
		return nil
	})
	t.Hold(t.Config.Timing.Grace, "a grace period after healing")
	t.NeverNotReady(cut, node)
	lease, err := t.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, node, metav1.GetOptions{})
	t.Must(err)
	if by, ok := lease.Annotations[edge.AnnotationRelayedBy]; ok {
		t.Fail("the Lease of %s still says that %s relays", node, by)
	}
}

// othersRelay waits until the copies of all nodes but one say that their hubs relay.
func othersRelay(t *kit.T, but string) {
	t.Eventually(60*time.Second, "the pool's other hubs relay", func() error {
		list, err := t.Pool.Coordinator(lab.Operator).CoordinationV1().Leases(corev1.NamespaceNodeLease).List(t.Ctx,
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, name := range t.Pool.Nodes() {
			i := slices.IndexFunc(list.Items, leaseOf(name))
			if i < 0 || name != but && list.Items[i].Annotations[edge.AnnotationRelaysAt] == "" {
				return fmt.Errorf("%s does not say so", name)
			}
		}
		return nil
	})
}

// reachesTheCloudBy waits until a node's hub reaches the cloud over a neighbour's line, with its link in the state cloud. It
// returns the neighbour, which must not be the node gone.
func reachesTheCloudBy(t *kit.T, node, cloud, gone string) (by string) {
	t.Eventually(30*time.Second, node+" goes over a neighbour's line", func() error {
		h, err := t.Lab.Hub(t.Ctx, node)
		if err == nil && (h.Cloud != cloud || h.RelayedBy == "" || h.RelayedBy == gone) {
			err = fmt.Errorf("its link is %s, relayed by %q", h.Cloud, h.RelayedBy)
		}
		by = h.RelayedBy
		return err
	})
	return by
}

// configReaches changes the needy Pod's ConfigMap in the cloud, and waits until what kubelet follows of it has the change.
func configReaches(t *kit.T, node, value string) {
	maps := t.Cloud.CoreV1().ConfigMaps(kit.Namespace)
	found, err := maps.Get(t.Ctx, kit.NeedyName, metav1.GetOptions{})
	t.Must(err)
	found.Data = map[string]string{"key": value}
	_, err = maps.Update(t.Ctx, found, metav1.UpdateOptions{})
	t.Must(err)
	took := t.Eventually(3*soon, "the ConfigMap reaches "+node, func() error {
		list, err := t.Node(node).List("/api/v1/namespaces/" + kit.Namespace + "/configmaps?fieldSelector=metadata.name%3D" +
			kit.NeedyName + "&resourceVersion=0")
		if err == nil && !strings.Contains(fmt.Sprint(list), value) {
			err = errors.New("it has the former one")
		}
		return err
	})
	t.Figure("config_change_s", took.Seconds())
}

// crewStarts makes a DaemonSet that tolerates our taint, and waits until the cloud sees its Pod ready on the node.
func crewStarts(t *kit.T, node string) *corev1.Pod {
	makeCrew(t, []corev1.Toleration{{Key: edge.TaintUnschedulable, Operator: corev1.TolerationOpExists}})
	pod, took := crewOn(t, node, "", 3*soon)
	t.Figure("daemonset_pod_s", took.Seconds())
	return pod
}

// makeCrew makes a DaemonSet, of which all Pods are replaced at once.
func makeCrew(t *kit.T, tolerations []corev1.Toleration) {
	labels := map[string]string{"app": crewName}
	_, err := t.Cloud.AppsV1().DaemonSets(kit.Namespace).Create(t.Ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: crewName},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString("100%"))},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					Tolerations:                   tolerations,
					Containers: []corev1.Container{{
						Name: crewName, Image: kit.WebImage, Command: []string{"sleep", crewRuns},
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	t.Must(err)
}

// crewOn waits until the cloud sees the DaemonSet's only Pod on the node ready. It must be another Pod than the former one.
func crewOn(t *kit.T, node string, former types.UID, within time.Duration) (pod *corev1.Pod, took time.Duration) {
	took = t.Eventually(within, "the DaemonSet's Pod runs on "+node+", and the cloud sees it", func() error {
		list, err := t.Cloud.CoreV1().Pods(kit.Namespace).List(t.Ctx, metav1.ListOptions{
			LabelSelector: "app=" + crewName, FieldSelector: "spec.nodeName=" + node,
		})
		if err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d Pods, %w", len(list.Items), errors.Join(err, errors.New("want one")))
		}
		if pod = &list.Items[0]; pod.UID == former || !kit.PodReady(pod) {
			return fmt.Errorf("%s is %s; the former has UID %q", pod.Name, pod.Status.Phase, former)
		}
		return nil
	})
	return pod, took
}

// rollOut makes a DaemonSet's controller replace all of its Pods, as kubectl rollout restart does.
func rollOut(t *kit.T, turn string) {
	_, err := t.Cloud.AppsV1().DaemonSets(kit.Namespace).Patch(t.Ctx, crewName, types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"annotations":{"turn":"`+turn+`"}}}}}`), metav1.PatchOptions{})
	t.Must(err)
}

func rolloutWhileRelayed(t *kit.T) {
	leader := t.Pool.SettledAway()
	node := t.Pool.Follower(leader)
	t.Pool.ServesPods()
	othersRelay(t, node)
	makeCrew(t, nil)
	pod, _ := crewOn(t, node, "", 60*time.Second)

	t.Say("cutting the WAN link of %s, silently", node)
	cut := t.Cut(node)
	by := reachesTheCloudBy(t, node, "relayed", "")
	t.Node(node).Delegated(cut)
	marked(t, node, by)
	t.Eventually(30*time.Second, node+" lets in what fits nowhere else", func() error {
		if is := t.Seen.Node(node).Taint; is != corev1.TaintEffectPreferNoSchedule {
			return fmt.Errorf("its taint is %q", is)
		}
		return nil
	})
	t.Say("rolling the DaemonSet out")
	rollOut(t, "relayed")
	pod, took := crewOn(t, node, pod.UID, 60*time.Second)
	t.Figure("relayed_rollout_s", took.Seconds())
	if h, err := t.Lab.Hub(t.Ctx, node); err != nil || h.Cloud != "relayed" {
		t.Fail("the line of %s is not down any more: %+v, %v", node, h, err)
	}

	t.Say("healing the link, and rolling it out again")
	healed := t.Heal(node)
	t.Eventually(15*time.Second, node+" goes over its own line again", func() error {
		h, err := t.Lab.Hub(t.Ctx, node)
		if err == nil && h.Cloud != "up" {
			err = fmt.Errorf("its link is %s", h.Cloud)
		}
		return err
	})
	rollOut(t, "healed")
	_, took = crewOn(t, node, pod.UID, 60*time.Second)
	t.Figure("healed_rollout_s", took.Seconds())
	t.Node(node).Direct(healed)
	t.NeverNotReady(cut, node)
}

// crashIsSeen kills the Pod's container, and waits until the cloud knows that it was started again.
func crashIsSeen(t *kit.T, node string, pod *corev1.Pod) {
	var killed time.Time
	for process := range t.Node(node).Processes("sleep " + crewRuns) {
		id, _, _ := strings.Cut(process, " ")
		_, err := t.Lab.Output(t.Ctx, node, "kill", "-9", id)
		t.Must(err)
		killed = time.Now()
	}
	if killed.IsZero() {
		t.Fail("no process of %s runs on %s", pod.Name, node)
	}
	took := t.Eventually(3*soon, "the cloud sees that it has crashed", func() error {
		all := t.Seen.OfPod(pod.UID)
		if len(all) == 0 || all[len(all)-1].Restarts == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	t.Figure("crash_seen_s", took.Seconds())
}

// marked expects the cloud to be told that a node's own link is down, by the node itself.
func marked(t *kit.T, node, by string) {
	t.Eventually(30*time.Second, "the cloud says that "+node+" is relayed", func() error {
		lease, err := t.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if lease.Annotations[edge.DelegateHeartbeat] != edge.DelegateHeartbeatOn ||
			edge.ParseRelayed(lease.Annotations[edge.AnnotationRelayedBy]).By != edge.NodeName(by) {
			return fmt.Errorf("its Lease bears %v", lease.Annotations)
		}
		n, err := t.Cloud.CoreV1().Nodes().Get(t.Ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == edge.ConditionCloudLinkDown
		})
		if i < 0 || n.Status.Conditions[i].Status != corev1.ConditionTrue || n.Status.Conditions[i].Reason != "Relayed" {
			return fmt.Errorf("its conditions are %v", n.Status.Conditions)
		}
		return nil
	})
	t.Eventually(10*time.Second, "nobody forwards its heartbeats", func() error {
		for name := range t.Pool.Hubs() {
			if n := t.Node(name).Metric("yurthub_delegated_nodes"); n != 0 {
				return fmt.Errorf("%s forwards those of %v nodes", name, n)
			}
		}
		list, err := t.Pool.Coordinator(lab.Operator).CoordinationV1().Leases(corev1.NamespaceNodeLease).List(t.Ctx,
			metav1.ListOptions{})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list.Items, leaseOf(node))
		if i < 0 || edge.ParseRelayed(list.Items[i].Annotations[edge.AnnotationRelayedBy]).By != edge.NodeName(by) ||
			list.Items[i].Labels[edge.DelegateHeartbeat] != "" {
			return errors.New("its copy asks for it")
		}
		return nil
	})
}

func leaseOf(name string) func(l coordinationv1.Lease) bool {
	return func(l coordinationv1.Lease) bool { return l.Name == name }
}

// mostTunnels is how many one node may have open at a neighbour.
const mostTunnels = 32

func relayAbuse(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	t.Pool.ServesPods()
	host, other := t.Pool.Nodes()[0], t.Pool.Nodes()[1]
	othersRelay(t, "")
	config, err := t.Lab.CloudConfigFrom(host)
	t.Must(err)
	cloud := strings.TrimPrefix(config.Host, "https://")
	a := attack{T: t, host: host, from: other}
	refused := func(why string) float64 {
		return t.Node(host).Metric("yurthub_relay_refused_total", `reason="`+why+`"`)
	}
	ours, kubelet := t.Node(other).HubCertificate(), net.JoinHostPort(t.Node(other).Address(), "10250")
	coordinator := net.JoinHostPort(t.Node(host).Address(), strconv.Itoa(edge.PortCoordinator))
	for _, tc := range []struct {
		name   string
		pair   *tls.Certificate // nil: none
		target string
		want   string // empty: the handshake fails
		why    string // as it is counted
	}{
		{"a stranger without a certificate", nil, cloud, "", "no-certificate"},
		{"another pool's hub", t.Node("p2-n1").HubCertificate(), cloud, "", "unknown"},
		{"a hub of the pool, to a neighbour's kubelet", ours, kubelet, "403", "target"},
		{"a hub of the pool, to the coordinator", ours, coordinator, "403", "target"},
		{"a hub of the pool, to the cloud", ours, cloud, "200", ""},
	} {
		before := refused(tc.why)
		conn, got, err := a.ask(tc.pair, tc.target)
		if conn != nil {
			_ = conn.Close()
		}
		if (err == nil) != (tc.want != "") || !strings.Contains(got, tc.want) {
			t.Fail("%s: answered %q, %v", tc.name, got, err)
		}
		t.Say("%s: %s %v", tc.name, got, err)
		if tc.why == "" {
			continue
		}
		t.Eventually(10*time.Second, tc.name+" is counted", func() error {
			if now := refused(tc.why); now <= before {
				return fmt.Errorf("%v refused as %s, before %v", now, tc.why, before)
			}
			return nil
		})
	}
	a.flood(cloud, refused)
	a.greedy(cloud)
	a.throng(refused)
}

// attack is an attacker at the port where a hub relays.
type attack struct {
	*kit.T
	host, from string
}

// ask asks for a tunnel, and returns the first line of the answer.
func (a attack) ask(pair *tls.Certificate, target string) (net.Conn, string, error) {
	return a.Node(a.host).Tunnel(a.from, pair, target)
}

// greedyFor is how long a neighbour takes all that it gets. greedyShare is what a hub may carry for it in a second: a fourth of
// what it carries for all.
const greedyFor, greedyShare = 10 * time.Second, 512 << 10

// greedy reads from the cloud through one tunnel, as fast as it can.
func (a attack) greedy(cloud string) {
	pair := a.Node(a.from).HubCertificate()
	access, err := a.Lab.CloudConfigFrom(a.from)
	a.Must(err)
	access.Dial = func(context.Context, string, string) (net.Conn, error) {
		conn, line, err := a.ask(pair, cloud)
		if err == nil && !strings.Contains(line, "200") {
			err = errors.New(line)
		}
		return conn, err
	}
	client, err := rest.HTTPClientFor(access)
	a.Must(err)
	defer client.CloseIdleConnections()
	carried := func() float64 { return a.Node(a.host).Metric("yurthub_relay_bytes_total") }
	before, began := carried(), time.Now()
	for time.Since(began) < greedyFor {
		_, err := kit.Fetch(a.Ctx, client, strings.TrimSuffix(access.Host, "/")+"/openapi/v2?"+strconv.Itoa(int(carried())))
		a.Must(err)
	}
	took := time.Since(began).Seconds()
	bytes := carried() - before
	a.Figure("greedy_kb_s", bytes/1024/took)
	if bytes < greedyShare || bytes > (took+2)*greedyShare {
		a.Fail("a greedy neighbour got %.0f KB in %.0f s, want %d KB/s at most", bytes/1024, took, greedyShare>>10)
	}
}

// flood opens more tunnels than one node may have. The rest is refused, and the hub serves on.
func (a attack) flood(cloud string, refused func(string) float64) {
	pair := a.Node(a.from).HubCertificate()
	before := refused("too-many")
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	denied := 0
	for range mostTunnels + 10 {
		conn, line, err := a.ask(pair, cloud)
		a.Must(err)
		open = append(open, conn)
		if strings.Contains(line, "429") {
			denied++
		}
	}
	if denied < 10 || refused("too-many") < before+10 {
		a.Fail("%d of %d tunnels were refused, %v counted", denied, len(open), refused("too-many")-before)
	}
	a.Say("of %d tunnels %d were refused", len(open), denied)
	if h, err := a.Lab.Hub(a.Ctx, a.host); err != nil || h.Cloud != "up" || h.Relays != 1 {
		a.Fail("%s says %+v, %v", a.host, h, err)
	}
}

// mostPassed is how many connections of one address a hub passes on to the coordinator.
const mostPassed = 16

// throng asks a hub for the coordinator by its name, and then more often than anybody may.
func (a attack) throng(refused func(string) float64) {
	access, err := a.Lab.CoordinatorConfig(0, lab.Operator)
	a.Must(err)
	config, err := rest.TLSConfigFor(access)
	a.Must(err)
	config.InsecureSkipVerify = true // the lab's coordinator has no name in its certificate
	connect := func(from string, port int, name string) (*tls.Conn, error) {
		raw, err := a.Lab.Dial(a.Ctx, from, net.JoinHostPort(a.Node(a.host).Address(), strconv.Itoa(port)))
		a.Must(err)
		named := config.Clone()
		named.ServerName = name
		conn := tls.Client(raw, named)
		_ = raw.SetDeadline(time.Now().Add(20 * time.Second))
		return conn, conn.HandshakeContext(a.Ctx)
	}
	ours, theirs := edge.PoolName("p1").CoordinatorServerName(), edge.PoolName("p2").CoordinatorServerName()
	direct, err := connect(a.from, edge.PortCoordinator, ours)
	a.Must(err)
	_ = direct.Close()
	coordinator := direct.ConnectionState().PeerCertificates[0]
	var open []*tls.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	other, err := connect(a.from, edge.PortHubRelay, theirs)
	a.Must(err)
	_ = other.Close()
	if shown := other.ConnectionState().PeerCertificates[0]; shown.Equal(coordinator) {
		a.Fail("the name of another pool's coordinator leads to this one's")
	}
	before, own := refused("too-many"), a.Node(a.host).Metric("yurthub_passed_connections")
	for i := range mostPassed + 10 {
		conn, err := connect(a.from, edge.PortHubRelay, ours)
		if (err == nil) != (i < mostPassed) {
			a.Fail("connection %d to the coordinator: %v", i, err)
		}
		open = append(open, conn)
		if err == nil && !conn.ConnectionState().PeerCertificates[0].Equal(coordinator) {
			a.Fail("connection %d leads to somebody else than the coordinator", i)
		}
	}
	if n := refused("too-many") - before; n != 10 {
		a.Fail("%v were refused, want 10", n)
	}
	if n := a.Node(a.host).Metric("yurthub_passed_connections") - own; n != mostPassed {
		a.Fail("%v are passed on, want %d", n, mostPassed)
	}
	answers := func(c *tls.Conn) {
		_, err := io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: "+ours+"\r\n\r\n")
		a.Must(err)
		if line, err := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, "200") {
			a.Fail("the coordinator answers %q, %v", line, err)
		}
	}
	answers(open[mostPassed-1])
	another, err := connect(a.host, edge.PortHubRelay, ours)
	a.Must(err)
	open = append(open, another)
	answers(another)
	if h, err := a.Lab.Hub(a.Ctx, a.host); err != nil || h.Coordinator != "up" {
		a.Fail("%s says %+v, %v", a.host, h, err)
	}
	a.Say("of %d connections to the coordinator %d were passed on; another address has its own", mostPassed+10, mostPassed)
}
