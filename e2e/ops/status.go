package ops

import (
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var statusScenarios = []kit.Scenario{{
	Name: "status-while-cut", Lab: kit.RealKubelets(kit.OnePool), Run: statusWhileCut,
	Doc: "A Pod crashes on a node that is cut off. Operators see its restarts, its Events and the node's heartbeats at " +
		"the coordinator, even one that came back empty. Once healed, the cloud has each of them once, and no Pod is " +
		"restarted. The same with all links of the pool cut.",
}}

const (
	crasherName = "crasher"
	crasherArgs = "sleep 7654321" // no other process has this command line
	// backOff is the reason of the Event about a container that crashes repeatedly.
	backOff = "BackOff"
)

func statusWhileCut(t *kit.T) {
	leader := t.Pool.Settled(30 * time.Second)
	names := t.Pool.Nodes()
	site := t.Pool.Coordinator(lab.Operator)
	cut := t.Pool.Follower(leader)
	uid := deployCrasher(t, cut)
	shownAsInTheCloud(t, site, names, 30*time.Second)

	t.Say("cutting the WAN link of %s", cut)
	t.Cut(cut)
	t.Pool.NoticesCut(cut)
	began := time.Now()
	crash(t, cut)
	t.Figure("crash_to_shown_s", restartsShown(t, site, 1, 15*time.Second).Seconds())
	crash(t, cut)
	t.Eventually(15*time.Second, "the Event about its back-off is shown", func() error {
		return hasEvent(events(t, site, uid), backOff)
	})
	restartsShown(t, site, 2, 30*time.Second)
	heartbeatShown(t, site, cut, began.Add(10*time.Second))
	reviewed(t, cut)

	t.Say("starting the coordinator anew")
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, t.Pool.CoordinatorNode(), lab.Coordinator))
	t.Must(t.Lab.Node(t.Ctx, lab.Start, t.Pool.CoordinatorNode(), lab.Coordinator))
	again := time.Now()
	restartsShown(t, site, 2, 30*time.Second)
	t.Eventually(15*time.Second, "so is the Event", func() error { return hasEvent(events(t, site, uid), backOff) })
	t.Figure("restart_to_shown_s", time.Since(again).Seconds())

	t.Say("starting the hub anew")
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, cut, lab.Hub))
	t.Pool.NoticesCut(cut)
	healedAgree(t, site, cut, uid, 2)

	t.Say("cutting all WAN links of the pool")
	t.Cut("pool/p1")
	t.Pool.NoticesCut(names...)
	crash(t, cut)
	restartsShown(t, site, 3, 60*time.Second) // kubelet waits longer each time
	healedAgree(t, site, "pool/p1", uid, 3)
}

// deployCrasher runs a Pod on a node that can be made to crash, and stays there whatever the cloud thinks of the node.
func deployCrasher(t *kit.T, node string) types.UID {
	p, err := t.Cloud.CoreV1().Pods(kit.Namespace).Create(t.Ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: crasherName},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:  []corev1.Container{{Name: "c", Image: kit.WebImage, Command: strings.Fields(crasherArgs)}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	t.Must(err)
	t.Eventually(60*time.Second, "the Pod "+crasherName+" runs", func() error {
		got, err := t.Cloud.CoreV1().Pods(kit.Namespace).Get(t.Ctx, crasherName, metav1.GetOptions{})
		if err == nil && got.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", got.Status.Phase)
		}
		return err
	})
	return p.UID
}

// crash kills the Pod's container, once it runs.
func crash(t *kit.T, node string) {
	t.Eventually(60*time.Second, "the Pod's container is killed", func() error {
		_, err := t.Lab.Output(t.Ctx, node, "pkill", "-9", "-f", "^"+crasherArgs)
		return err
	})
}

func crasher(t *kit.T, server kubernetes.Interface) (*corev1.Pod, int32, error) {
	p, err := server.CoreV1().Pods(kit.Namespace).Get(t.Ctx, crasherName, metav1.GetOptions{})
	if err != nil {
		return nil, 0, err
	}
	if len(p.Status.ContainerStatuses) != 1 {
		return nil, 0, fmt.Errorf("its status is %+v", p.Status)
	}
	return p, p.Status.ContainerStatuses[0].RestartCount, nil
}

// restartsShown waits until a server shows the Pod running, with so many restarts.
func restartsShown(t *kit.T, server kubernetes.Interface, want int32, within time.Duration) time.Duration {
	return t.Eventually(within, fmt.Sprintf("%d restarts are shown", want), func() error {
		p, got, err := crasher(t, server)
		if err == nil && (got != want || p.Status.ContainerStatuses[0].State.Running == nil) {
			err = fmt.Errorf("shown are %d restarts, and %+v", got, p.Status.ContainerStatuses[0].State)
		}
		return err
	})
}

// heartbeatShown waits until the coordinator shows that kubelet has reported its Node since some moment.
func heartbeatShown(t *kit.T, site kubernetes.Interface, node string, since time.Time) {
	t.Eventually(60*time.Second, "the Node's heartbeat is shown", func() error {
		n, err := site.CoreV1().Nodes().Get(t.Ctx, node, metav1.GetOptions{})
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

// reviewed expects that nobody says yes to kubelet in the cloud's place: of coordinators its hub speaks, by what it knows, and of
// all others the cloud alone.
func reviewed(t *kit.T, node string) {
	config, err := t.Lab.HubConfig(node)
	t.Must(err)
	kubelet := t.Client(config)
	ask := func(user string, groups ...string) (*authorizationv1.SubjectAccessReview, error) {
		return kubelet.AuthorizationV1().SubjectAccessReviews().Create(t.Ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user, Groups: groups,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "create", Resource: "nodes", Subresource: "proxy", Name: node,
				},
			},
		}, metav1.CreateOptions{})
	}
	got, err := ask(edge.PoolName("p1").CoordinatorUser())
	t.Must(err)
	if got.Status.Allowed {
		t.Fail("a coordinator without a certificate may use kubelet")
	}
	if got, err = ask("admin", "system:masters"); !apierrors.IsServiceUnavailable(err) {
		t.Fail("of an administrator of the cloud it was said: %+v, %v", got.Status, err)
	}
}

// events returns a server's Events about the Pod, by name.
func events(t *kit.T, server kubernetes.Interface, pod types.UID) map[string]corev1.Event {
	list, err := server.CoreV1().Events(kit.Namespace).List(t.Ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(pod),
	})
	t.Must(err)
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

// healedAgree heals a link, and expects that the cloud has what the coordinator has shown: the restarts, and each Event
// once.
func healedAgree(t *kit.T, site kubernetes.Interface, target string, uid types.UID, restarts int32) {
	shown := events(t, site, uid)
	process := t.Node(nodeOfCrasher(t, site)).Processes(crasherArgs)
	t.Say("healing")
	t.Heal(target)
	healed := time.Now()
	restartsShown(t, t.Cloud, restarts, 40*time.Second)
	t.Figure("healed_to_cloud_knows_s", time.Since(healed).Seconds())
	t.Eventually(30*time.Second, "the cloud has all Events that were shown", func() error {
		have := events(t, t.Cloud, uid)
		for name, e := range shown {
			if there, ok := have[name]; !ok || there.Count < e.Count {
				return fmt.Errorf("%s %s ×%d: there is %+v", e.Reason, e.Message, e.Count, there)
			}
		}
		return nil
	})
	said := map[string]string{}
	for name, e := range events(t, t.Cloud, uid) {
		what := e.Reason + ": " + e.Message
		if other, twice := said[what]; twice {
			t.Fail("two Events say %q: %s and %s", what, name, other)
		}
		said[what] = name
	}
	shownAsInTheCloud(t, site, t.Pool.Nodes(), 60*time.Second)
	if after := t.Node(nodeOfCrasher(t, site)).Processes(crasherArgs); !kit.SameKeys(process, after) {
		t.Fail("it was started again: %v, before %v", after, process)
	}
	restartsShown(t, t.Cloud, restarts, time.Second)
}

func nodeOfCrasher(t *kit.T, server kubernetes.Interface) string {
	p, _, err := crasher(t, server)
	t.Must(err)
	return p.Spec.NodeName
}
