package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

var statusScenarios = []Scenario{{
	Name: "status-while-cut", Lab: realKubelets(pool), run: statusWhileCut,
	Doc: "a Pod of a node that is cut off crashes: operators see its restarts, its Events and the node's heartbeats at the " +
		"coordinator, also one that has come back empty; healed, the cloud has them, each once, and no Pod is restarted; the " +
		"same with all links of the pool cut",
}}

const (
	crasherName = "crasher"
	crasherArgs = "sleep 7654321" // nobody else runs it
	// backOff is the reason of the Event about a container that crashes again and again.
	backOff = "BackOff"
)

func statusWhileCut(t *T) {
	leader := t.settled(30 * time.Second)
	names := t.nodeNames()
	site := t.coordinator(lab.Operator)
	cut := t.follower(leader)
	uid := t.deployCrasher(cut)
	t.shownAsInTheCloud(site, names, 30*time.Second)

	t.say("cutting the WAN link of %s", cut)
	t.must(t.lab.Cut(t.ctx, lab.WAN, cut, wire.Drop))
	t.allDown(cut)
	began := time.Now()
	t.crash(cut)
	t.figure("crash_to_shown_s", t.restartsShown(site, 1, 15*time.Second).Seconds())
	t.crash(cut)
	t.eventually(15*time.Second, "the Event about its back-off is shown", func() error {
		return hasEvent(t.events(site, uid), backOff)
	})
	t.restartsShown(site, 2, 30*time.Second)
	t.heartbeatShown(site, cut, began.Add(10*time.Second))
	t.reviewed(cut)

	t.say("starting the coordinator anew")
	t.must(t.lab.Node(t.ctx, lab.Kill, t.coordinatorNode(), lab.Coordinator))
	t.must(t.lab.Node(t.ctx, lab.Start, t.coordinatorNode(), lab.Coordinator))
	again := time.Now()
	t.restartsShown(site, 2, 30*time.Second)
	t.eventually(15*time.Second, "so is the Event", func() error { return hasEvent(t.events(site, uid), backOff) })
	t.figure("restart_to_shown_s", time.Since(again).Seconds())

	t.say("starting the hub anew")
	t.must(t.lab.Node(t.ctx, lab.Restart, cut, lab.Hub))
	t.allDown(cut)
	t.healedAgree(site, cut, uid, 2)

	t.say("cutting all WAN links of the pool")
	t.must(t.lab.Cut(t.ctx, lab.WAN, "pool/p1", wire.Drop))
	t.allDown(names...)
	t.crash(cut)
	t.restartsShown(site, 3, 60*time.Second) // kubelet waits longer each time
	t.healedAgree(site, "pool/p1", uid, 3)
}

// deployCrasher runs a Pod on a node that can be crashed, and stays there whatever the cloud thinks of the node.
func (t *T) deployCrasher(node string) types.UID {
	p, err := t.cloud.CoreV1().Pods(namespace).Create(t.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: crasherName},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:  []corev1.Container{{Name: "c", Image: webImage, Command: strings.Fields(crasherArgs)}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	t.must(err)
	t.eventually(60*time.Second, "the Pod "+crasherName+" runs", func() error {
		got, err := t.cloud.CoreV1().Pods(namespace).Get(t.ctx, crasherName, metav1.GetOptions{})
		if err == nil && got.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", got.Status.Phase)
		}
		return err
	})
	return p.UID
}

// allDown waits until hubs know that the cloud cannot be reached, and that the coordinator can.
func (t *T) allDown(nodes ...string) {
	t.eventually(20*time.Second, "the hubs call the cloud down", func() error {
		for name, h := range t.hubs() {
			if slices.Contains(nodes, name) && (h.Cloud != "down" || h.Coordinator != "up") {
				return fmt.Errorf("%s says %+v", name, h)
			}
		}
		return nil
	})
}

// crash kills the Pod's container, once it runs.
func (t *T) crash(node string) {
	t.eventually(60*time.Second, "the Pod's container is killed", func() error {
		_, err := t.lab.Output(t.ctx, node, "pkill", "-9", "-f", "^"+crasherArgs)
		return err
	})
}

func (t *T) crasher(server kubernetes.Interface) (*corev1.Pod, int32, error) {
	p, err := server.CoreV1().Pods(namespace).Get(t.ctx, crasherName, metav1.GetOptions{})
	if err != nil {
		return nil, 0, err
	}
	if len(p.Status.ContainerStatuses) != 1 {
		return nil, 0, fmt.Errorf("its status is %+v", p.Status)
	}
	return p, p.Status.ContainerStatuses[0].RestartCount, nil
}

// restartsShown waits until a server shows the Pod running, with so many restarts.
func (t *T) restartsShown(server kubernetes.Interface, want int32, within time.Duration) time.Duration {
	return t.eventually(within, fmt.Sprintf("%d restarts are shown", want), func() error {
		p, got, err := t.crasher(server)
		if err == nil && (got != want || p.Status.ContainerStatuses[0].State.Running == nil) {
			err = fmt.Errorf("shown are %d restarts, and %+v", got, p.Status.ContainerStatuses[0].State)
		}
		return err
	})
}

// heartbeatShown waits until the coordinator shows that kubelet has reported its Node since some moment.
func (t *T) heartbeatShown(site kubernetes.Interface, node string, since time.Time) {
	t.eventually(60*time.Second, "the Node's heartbeat is shown", func() error {
		n, err := site.CoreV1().Nodes().Get(t.ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.LastHeartbeatTime.After(since) && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", n.Status.Conditions)
	})
}

// reviewed expects that kubelet is told who may use it, by somebody: not whom nobody has ever asked about.
func (t *T) reviewed(node string) {
	config, err := t.lab.HubConfig(node)
	t.must(err)
	kubelet, err := kubernetes.NewForConfig(config)
	t.must(err)
	got, err := kubelet.AuthorizationV1().SubjectAccessReviews().Create(t.ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "admin", Groups: []string{"system:masters"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "create", Resource: "nodes", Subresource: "proxy", Name: node,
			},
		},
	}, metav1.CreateOptions{})
	t.must(err)
	if got.Status.Allowed {
		t.fail("the coordinator speaks for an administrator of the cloud")
	}
}

// events are a server's about the Pod, by name.
func (t *T) events(server kubernetes.Interface, pod types.UID) map[string]corev1.Event {
	list, err := server.CoreV1().Events(namespace).List(t.ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(pod),
	})
	t.must(err)
	all := map[string]corev1.Event{}
	for _, e := range list.Items {
		all[e.Name] = e
	}
	return all
}

func hasEvent(all map[string]corev1.Event, reason string) error {
	for _, e := range all {
		if e.Reason == reason {
			return nil
		}
	}
	return fmt.Errorf("no Event %s among %d", reason, len(all))
}

// healedAgree heals a link, and expects the cloud to have what the coordinator has shown: the restarts, and each Event once.
func (t *T) healedAgree(site kubernetes.Interface, target string, uid types.UID, restarts int32) {
	shown := t.events(site, uid)
	process := t.processes(t.nodeOfCrasher(site), crasherArgs)
	t.say("healing")
	t.must(t.lab.Heal(t.ctx, lab.WAN, target))
	healed := time.Now()
	t.restartsShown(t.cloud, restarts, 40*time.Second)
	t.figure("healed_to_cloud_knows_s", time.Since(healed).Seconds())
	t.eventually(30*time.Second, "the cloud has all Events that were shown", func() error {
		have := t.events(t.cloud, uid)
		for name, e := range shown {
			if there, ok := have[name]; !ok || there.Count < e.Count {
				return fmt.Errorf("%s %s ×%d: there is %+v", e.Reason, e.Message, e.Count, there)
			}
		}
		return nil
	})
	said := map[string]string{}
	for name, e := range t.events(t.cloud, uid) {
		what := e.Reason + ": " + e.Message
		if other, twice := said[what]; twice {
			t.fail("two Events say %q: %s and %s", what, name, other)
		}
		said[what] = name
	}
	t.shownAsInTheCloud(site, t.nodeNames(), 60*time.Second)
	if after := t.processes(t.nodeOfCrasher(site), crasherArgs); !sameKeys(process, after) {
		t.fail("it was started again: %v, before %v", after, process)
	}
	t.restartsShown(t.cloud, restarts, time.Second)
}

func (t *T) nodeOfCrasher(server kubernetes.Interface) string {
	p, _, err := t.crasher(server)
	t.must(err)
	return p.Spec.NodeName
}
