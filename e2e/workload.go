package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

const (
	webName   = "web"
	webImage  = "registry.local/shell:1"
	namespace = corev1.NamespaceDefault
)

// deployWeb deploys a web server with two Pods for each node, spread evenly, behind a Service, and waits until all are
// ready endpoints.
func (t *T) deployWeb() map[types.UID]podAt {
	replicas := int32(2 * t.cfg.Pools * t.cfg.Nodes)
	labels := map[string]string{"app": webName}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: webName},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
					}},
					Containers: []corev1.Container{{
						Name: webName, Image: webImage,
						Command: []string{"sh", "-c",
							"mkdir -p /www; hostname > /www/index.html; exec httpd -f -p 80 -h /www"},
						Ports: []corev1.ContainerPort{{ContainerPort: 80}},
					}},
				},
			},
		},
	}
	_, err := t.cloud.AppsV1().Deployments(namespace).Create(t.ctx, d, metav1.CreateOptions{})
	t.must(err)
	_, err = t.cloud.CoreV1().Services(namespace).Create(t.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: webName},
		Spec: corev1.ServiceSpec{
			Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
		},
	}, metav1.CreateOptions{})
	t.must(err)
	start := time.Now()
	goal := fmt.Sprintf("%d Pods of Deployment %s are ready endpoints", replicas, webName)
	t.eventually(90*time.Second, goal, func() error {
		pods := t.seen.livePods()
		for _, p := range pods {
			if !p.ready {
				return fmt.Errorf("the Pod %s is not ready", p.name)
			}
		}
		if len(pods) != int(replicas) {
			return fmt.Errorf("%d Pods", len(pods))
		}
		return t.seen.endpointsKept(addresses(pods), start.Add(time.Hour)) // only the present state counts
	})
	return t.seen.livePods()
}

// answers expects the Service to answer from a node's own network: kube-proxy, which knows the cloud only through the
// hub, has programmed the node for it. Hollow Pods can't answer.
func (t *T) answers(node string) {
	if t.cfg.Kubelet != lab.Real || t.cfg.NoProxy {
		return
	}
	service, err := t.cloud.CoreV1().Services(namespace).Get(t.ctx, webName, metav1.GetOptions{})
	t.must(err)
	url := "http://" + service.Spec.ClusterIP + "/"
	t.eventually(20*time.Second, "Service "+webName+" answers on "+node, func() error {
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return t.lab.Dial(ctx, node, address)
			},
		}}
		body, err := fetch(t.ctx, client, url)
		if err == nil && !strings.HasPrefix(body, webName+"-") {
			err = fmt.Errorf("it answers %q", body)
		}
		return err
	})
}

// scale sets the number of Pods and returns at once.
func (t *T) scale(replicas int32) {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := t.cloud.AppsV1().Deployments(namespace).Patch(t.ctx, webName, types.MergePatchType, patch,
		metav1.PatchOptions{})
	t.must(err)
}

// on returns the Pods that are on a node.
func on(pods map[types.UID]podAt, node string) map[types.UID]podAt {
	out := map[types.UID]podAt{}
	for uid, p := range pods {
		if p.node == node {
			out[uid] = p
		}
	}
	return out
}

func addresses(pods map[types.UID]podAt) []string {
	var all []string
	for _, p := range pods {
		all = append(all, p.ip)
	}
	return all
}

// nodeNames of the first pool.
func (t *T) nodeNames() []string {
	var names []string
	for i := 1; i <= t.cfg.Nodes; i++ {
		names = append(names, fmt.Sprintf("p1-n%d", i))
	}
	return names
}

// coordinatorNode is where the first pool's coordinator is at this moment.
func (t *T) coordinatorNode() string {
	node, err := t.lab.Coordinator(t.ctx, 1)
	t.must(err)
	return node
}

// hubs asks all hubs of the first pool what they say of themselves.
func (t *T) hubs() map[string]lab.HubStatus {
	s, err := t.lab.Status(t.ctx)
	t.must(err)
	out := map[string]lab.HubStatus{}
	for _, n := range s.Nodes {
		if n.Pool == "p1" && n.Hub != nil {
			out[n.Name] = *n.Hub
		}
	}
	return out
}

// leader returns the only leader of the first pool, by what all its hubs say.
func (t *T) leader(hubs map[string]lab.HubStatus) (string, error) {
	leader := ""
	for name, h := range hubs {
		if h.Role == roleLeader {
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

// Roles, as hubs print them.
const (
	rolePending  = "pending"
	roleFollower = "follower"
	roleLeader   = "leader"
)

// settled waits until the first pool has one leader and all other hubs follow it.
func (t *T) settled(within time.Duration) string {
	leader := ""
	t.eventually(within, "one hub leads and all others follow", func() error {
		hubs := t.hubs()
		if len(hubs) != t.cfg.Nodes {
			return fmt.Errorf("%d of %d hubs answer", len(hubs), t.cfg.Nodes)
		}
		var err error
		if leader, err = t.leader(hubs); err != nil {
			return err
		}
		for name, h := range hubs {
			if h.Leader != leader || (name != leader && h.Role != roleFollower) || h.Cloud != "up" {
				return fmt.Errorf("%s says %+v, the leader is %s", name, h, leader)
			}
		}
		return nil
	})
	t.say("%s leads", leader)
	return leader
}

// settledAway waits as settled does, and sees to it that the leader is not on the coordinator's node, so that the two
// can be broken one without the other.
func (t *T) settledAway() string {
	leader, coordinatorNode := t.settled(30*time.Second), t.coordinatorNode()
	if leader != coordinatorNode {
		return leader
	}
	t.say("moving leadership away from the coordinator's node")
	t.must(t.lab.Node(t.ctx, lab.Kill, coordinatorNode, lab.Hub))
	t.eventually(15*time.Second, "another hub leads", func() error {
		l, err := t.leader(t.hubs())
		if err == nil && l == coordinatorNode {
			return fmt.Errorf("%s still leads", l)
		}
		return err
	})
	carried, err := t.lab.Traffic(t.ctx, false)
	t.must(err)
	t.carriedBefore[coordinatorNode] = carried[coordinatorNode]
	t.must(t.lab.Node(t.ctx, lab.Start, coordinatorNode, lab.Hub))
	return t.settled(30 * time.Second)
}

// follower returns a node of the first pool that is none of these, and not the coordinator's.
func (t *T) follower(but ...string) string {
	coordinatorNode := t.coordinatorNode()
	for _, name := range t.nodeNames() {
		if name != coordinatorNode && !slices.Contains(but, name) {
			return name
		}
	}
	t.fail("the lab has too few nodes for this scenario")
	return ""
}

// delegated waits until a node's heartbeats arrive in the cloud by way of the leader and the node is tainted, and
// records how long each took since the cut.
func (t *T) delegated(node string, cut time.Time) {
	isDelegated := func(l leaseAt) bool { return l.delegated }
	t.eventually(30*time.Second, node+"'s Lease in the cloud is delegated, and it is tainted", func() error {
		if _, ok := t.seen.firstLease(node, cut, isDelegated); !ok {
			return fmt.Errorf("its Lease is not annotated %s", edge.DelegateHeartbeat)
		}
		if !t.seen.node(node).tainted {
			return fmt.Errorf("it has no taint %s", edge.TaintUnschedulable)
		}
		return nil
	})
	annotated, _ := t.seen.firstLease(node, cut, isDelegated)
	tainted, _ := t.seen.firstNode(node, cut, func(n nodeAt) bool { return n.tainted })
	t.figure("cut_to_first_delegated_heartbeat_s", annotated.Sub(cut).Seconds())
	// The two are told by two watches, in either order when they are a moment apart.
	t.figure("annotation_to_taint_s", max(0, tainted.Sub(annotated).Seconds()))
}

// direct waits until a node's own heartbeats arrive in the cloud again and its taint is gone.
func (t *T) direct(node string, healed time.Time) {
	clean := func(l leaseAt) bool { return !l.delegated }
	t.eventually(30*time.Second, node+" reports itself again, and is not tainted", func() error {
		if _, ok := t.seen.firstLease(node, healed, clean); !ok {
			return fmt.Errorf("its Lease is still annotated %s", edge.DelegateHeartbeat)
		}
		if n := t.seen.node(node); n.tainted || n.linkDown != corev1.ConditionFalse {
			return fmt.Errorf("tainted: %v, %s=%s", n.tainted, edge.ConditionCloudLinkDown, n.linkDown)
		}
		return nil
	})
	first, _ := t.seen.firstLease(node, healed, clean)
	untainted, _ := t.seen.firstNode(node, first, func(n nodeAt) bool { return !n.tainted })
	t.figure("heal_to_first_direct_heartbeat_s", first.Sub(healed).Seconds())
	t.figure("clean_lease_to_untaint_s", max(0, untainted.Sub(first).Seconds()))
}
