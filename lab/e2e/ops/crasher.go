package ops

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/lab/e2e/kit"
)

const (
	crasherName = "crasher"
	crasherArgs = "sleep 7654321" // no other process has this command line
	// backOff is the reason of the Event about a container that crashes repeatedly.
	backOff = "BackOff"
)

// deployCrasher runs a Pod on a node that can be made to crash, and stays there whatever the cloud thinks of the node.
func deployCrasher(t *kit.T, node string) types.UID {
	uid := t.Node(node).RunPod(crasherName, strings.Fields(crasherArgs), nil)
	t.PodRuns(crasherName)
	return uid
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
func restartsShown(t *kit.T, server kubernetes.Interface, want int32, within time.Duration) {
	t.Eventually(within, fmt.Sprintf("%d restarts are shown", want), func() error {
		p, got, err := crasher(t, server)
		if err == nil && (got != want || p.Status.ContainerStatuses[0].State.Running == nil) {
			err = fmt.Errorf("shown are %d restarts, and %+v", got, p.Status.ContainerStatuses[0].State)
		}
		return err
	})
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

// healedAgree heals a link, and expects that the cloud then has what the coordinator showed: the restarts, and each Event once.
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
