package cloud

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var standbyScenarios = []kit.Scenario{{
	Name: "standby-installed", Lab: fourNodes.AsInstalled(), Run: standbyInstalled,
	Doc: "A pool is asked to have two coordinators. The second runs on another node with a certificate and a kubeconfig " +
		"context of its own. An upgrade replaces one after the other, so that one always answers. Asked for one again, " +
		"nothing of the second is left.",
}}

func standbyInstalled(t *kit.T) {
	const pool = edge.PoolName("p1")
	coordinatorIsReady(t, "p1", time.Minute)
	first := t.Pool.CoordinatorIn(0)
	asked := time.Now()
	replicas(t, 2)
	allServe(t, 90*time.Second)
	t.Figure("asked_to_standby_ready_s", time.Since(asked).Seconds())
	standby := t.Pool.CoordinatorIn(1)
	if now := t.Pool.CoordinatorIn(0); now.UID != first.UID || standby.Spec.NodeName == first.Spec.NodeName {
		t.Fail("slot 0 was %s on %s and is %s, slot 1 is on %s", first.Name, first.Spec.NodeName, now.Name, standby.Spec.NodeName)
	}
	on := []string{first.Spec.NodeName, standby.Spec.NodeName}
	slices.Sort(on)
	t.Eventually(10*time.Second, "a coordinator runs on each of two nodes", func() error {
		if running := t.Pool.CoordinatorsRunning(); !slices.Equal(slices.Sorted(slices.Values(running)), on) {
			return fmt.Errorf("on %v, want %v", running, on)
		}
		return nil
	})
	operatorsReach(t, pool)
	upgradeLeavesOne(t)

	kept := t.Pool.CoordinatorIn(0)
	replicas(t, 1)
	t.Eventually(time.Minute, "nothing of the standby is left", func() error { return nothingOfStandby(t, pool) })
	if now := t.Pool.CoordinatorIn(0); now.UID != kept.UID {
		t.Fail("slot 0 was made anew")
	}
	coordinatorIsReady(t, "p1", 20*time.Second)
}

func replicas(t *kit.T, n int) {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
	_, err := t.Cloud.Objects.Resource(lab.YurtCoordinators).
		Patch(t.Ctx, "p1", types.MergePatchType, patch, metav1.PatchOptions{})
	t.Must(err)
}

func allServe(t *kit.T, within time.Duration) {
	t.Eventually(within, "all coordinators serve", func() error {
		return t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorStandbysReady, v1alpha1.ConditionTrue, "")
	})
}

// operatorsReach expects that the kubeconfig that operators fetch leads to each coordinator, from the LAN alone.
func operatorsReach(t *kit.T, pool edge.PoolName) {
	bystander := t.Pool.Nodes()[slices.IndexFunc(t.Pool.Nodes(), func(n string) bool {
		return !slices.Contains(t.Pool.CoordinatorsRunning(), n)
	})]
	for slot, name := range []string{"yurt-coordinator-p1", "yurt-coordinator-p1/1"} {
		t.Eventually(30*time.Second, fmt.Sprintf("operators reach the coordinator in slot %d", slot), func() error {
			out, err := onNode(t, string(pool), bystander, "--context="+name, "--request-timeout=5s", "auth", "whoami")
			if err != nil || !strings.Contains(out, pool.OperatorUser()) {
				return errors.Join(err, errors.New(out))
			}
			return nil
		})
	}
}

// answers returns nil if a coordinator answers its operators at a node's address, now.
func answers(t *kit.T, node string) error {
	access, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	if err != nil {
		return err
	}
	at := net.JoinHostPort(t.Node(node).Address(), strconv.Itoa(edge.PortCoordinator))
	access.Host, access.Timeout = "https://"+at, 2*time.Second
	access.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return t.Lab.Dial(ctx, "", at) }
	client, err := discovery.NewDiscoveryClientForConfig(access)
	if err != nil {
		return err
	}
	_, err = client.ServerVersion()
	return err
}

// upgradeLeavesOne changes the NodePool's taints, by which the coordinators are made again, and sends them requests all the
// while. It does not count the answers of a coordinator that is about to end.
func upgradeLeavesOne(t *kit.T) {
	home, standby := t.Pool.CoordinatorIn(0), t.Pool.CoordinatorIn(1)
	taint := corev1.Taint{Key: "example.com/upgraded", Effect: corev1.TaintEffectPreferNoSchedule}
	patch := fmt.Appendf(nil, `{"spec":{"taints":[{"key":%q,"effect":%q}]}}`, taint.Key, taint.Effect)
	began := time.Now()
	_, err := t.Cloud.Objects.Resource(lab.NodePools).Patch(t.Ctx, "p1", types.MergePatchType, patch, metav1.PatchOptions{})
	t.Must(err)
	asks := 0
	replaced := func(slot edge.Slot, was *corev1.Pod) (*corev1.Pod, error) {
		pods, err := t.Pool.CoordinatorsIn(slot)
		for i := range pods {
			if p := &pods[i]; p.UID != was.UID && kit.PodReady(p) && p.DeletionTimestamp == nil {
				return p, err
			}
		}
		return nil, err
	}
	t.Eventually(3*time.Minute, "both are of the new template, and one has answered at any time", func() error {
		answered := []error{}
		for _, slot := range []edge.Slot{0, 1} {
			pods, err := t.Pool.CoordinatorsIn(slot)
			if err != nil {
				return err
			}
			for _, p := range pods {
				if p.Spec.NodeName != "" {
					answered = append(answered, answers(t, p.Spec.NodeName))
				}
			}
		}
		if !slices.Contains(answered, nil) {
			t.Fail("no coordinator answers %v after the change: %v", time.Since(began), errors.Join(answered...))
		}
		asks++
		newHome, err := replaced(0, home)
		if err != nil {
			return err
		}
		newStandby, err := replaced(1, standby)
		if err != nil {
			return err
		}
		if newHome == nil || newStandby == nil {
			return fmt.Errorf("slot 0 is new: %t, and slot 1: %t", newHome != nil, newStandby != nil)
		}
		return nil
	})
	allServe(t, 30*time.Second)
	t.Figure("upgrade_of_two_s", time.Since(began).Seconds())
	t.Say("asked %d times during the upgrade", asks)
}

// nothingOfStandby fails with what is left of slot 1.
func nothingOfStandby(t *kit.T, pool edge.PoolName) error {
	if pods, err := t.Pool.CoordinatorsIn(1); err != nil || len(pods) > 0 {
		return errors.Join(err, fmt.Errorf("%d Pods", len(pods)))
	}
	_, err := t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(t.Ctx, pool.CoordinatorSecretIn(1), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return errors.Join(err, errors.New("its Secret"))
	}
	hint, err := t.Cloud.CoreV1().ConfigMaps(edge.NamespaceSystem).Get(t.Ctx, pool.DiscoveryConfigMap(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if _, told := hint.Data[edge.Slot(1).ServerKey()]; told {
		return errors.New("hubs are told of it")
	}
	secret, err := t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(t.Ctx, pool.KubeconfigSecret(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err == nil && config.Contexts["yurt-coordinator-p1/1"] != nil {
		err = errors.New("operators have its context")
	}
	return err
}

// onNode runs a pool's kubectl on a node, with the operators' kubeconfig of the pool.
func onNode(t *kit.T, pool, node string, args ...string) (string, error) {
	onSite, err := t.Lab.Kubectl(t.Ctx, "coordinator/"+pool, args)
	t.Must(err)
	i := slices.IndexFunc(onSite.Args, func(a string) bool { return strings.HasSuffix(a, "/kubectl") })
	if i < 0 {
		t.Fail("no kubectl in %v", onSite.Args)
	}
	cmd, err := t.Lab.Inside(t.Ctx, node, onSite.Args[i:]...)
	t.Must(err)
	return combined(cmd)
}

func combined(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, out.String())
	}
	return out.String(), nil
}
