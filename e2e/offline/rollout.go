package offline

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/line"
)

var rolloutScenarios = []kit.Scenario{{
	Name: "rollout-config", Lab: kit.RealKubelets(kit.OnePool), Run: rolloutConfig,
	Doc: "A ConfigMap and a Secret used for environment variables change after kubelet and hub have let go of them, and " +
		"20 Deployments are restarted at once, 300 ms from the cloud. All 20 new Pods have the new values.",
}}

const (
	rolloutName        = "rollout"
	rolloutDeployments = 20
	// rolloutCommand is what their containers run: no other process has this command line.
	rolloutCommand = "sleep 86431"
	// rolloutWithin is three times as long as a node of this lab may take for its share of 20 Pods.
	rolloutWithin = 180 * time.Second
)

func rolloutConfig(t *kit.T) {
	t.Pool.SettledAway()
	giveRollout(t, "old")
	each(t, rolloutDeployments, func(i int) error { return deployRollout(t, i) })
	rolledOut(t, 1)
	before := rolloutValues(t, "old")
	for _, node := range t.Pool.Nodes() {
		letGo(t, node, rolloutName)
		if len(before[node]) == 0 {
			t.Fail("no Pod is on %s, whose hub has nothing old then: %v", node, before)
		}
		t.Shape(lab.WAN, node, line.Shape{Delay: 150 * time.Millisecond}, 1, false)
	}

	t.Say("changing ConfigMap and Secret, and restarting all Deployments")
	giveRollout(t, "new")
	began := time.Now()
	restart := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`,
		"kubectl.kubernetes.io/restartedAt", began.Format(time.RFC3339))
	each(t, rolloutDeployments, func(i int) error {
		_, err := t.Cloud.AppsV1().Deployments(kit.Namespace).Patch(t.Ctx, rolloutDeployment(i), types.StrategicMergePatchType,
			restart, metav1.PatchOptions{})
		return err
	})
	rolledOut(t, 2)
	t.Figure("restart_to_rolled_out_s", time.Since(began).Seconds())
	rolloutValues(t, "new")
}

// each calls do for each number below n at once, and fails if one of the calls does.
func each(t *kit.T, n int, do func(int) error) {
	failed := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { failed[i] = do(i) })
	}
	all.Wait()
	t.Must(errors.Join(failed...))
}

func rolloutDeployment(i int) string { return fmt.Sprintf("%s-%02d", rolloutName, i) }

// giveRollout writes the ConfigMap and the Secret.
func giveRollout(t *kit.T, value string) {
	meta := metav1.ObjectMeta{Name: rolloutName}
	config := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": value + "-config"}}
	secret := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": value + "-secret"}}
	if _, err := t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Update(t.Ctx, config, metav1.UpdateOptions{}); err != nil {
		_, err = t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(t.Ctx, config, metav1.CreateOptions{})
		t.Must(err)
	}
	if _, err := t.Cloud.CoreV1().Secrets(kit.Namespace).Update(t.Ctx, secret, metav1.UpdateOptions{}); err != nil {
		_, err = t.Cloud.CoreV1().Secrets(kit.Namespace).Create(t.Ctx, secret, metav1.CreateOptions{})
		t.Must(err)
	}
}

// deployRollout makes a Deployment of one Pod. The Pods of all Deployments are spread over the nodes.
func deployRollout(t *kit.T, i int) error {
	own, all := map[string]string{"deployment": rolloutDeployment(i)}, map[string]string{"app": rolloutName}
	_, err := t.Cloud.AppsV1().Deployments(kit.Namespace).Create(t.Ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: rolloutDeployment(i)},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: own},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"deployment": rolloutDeployment(i), "app": rolloutName}},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1), AutomountServiceAccountToken: ptr.To(false),
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: &metav1.LabelSelector{MatchLabels: all},
					}},
					Containers: []corev1.Container{{
						Name: rolloutName, Image: kit.WebImage, Command: strings.Fields(rolloutCommand),
						Env: []corev1.EnvVar{
							fromConfig("GIVEN_CONFIG", rolloutName), fromSecret("GIVEN_SECRET", rolloutName),
							{Name: "GIVEN_POD", ValueFrom: &corev1.EnvVarSource{
								FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
							}},
						},
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// rolledOut waits until all Deployments are at this revision, and none of the earlier Pods is left.
func rolledOut(t *kit.T, revision int) {
	t.Eventually(rolloutWithin, fmt.Sprintf("%d Deployments are at revision %d", rolloutDeployments, revision), func() error {
		t.Pause(200*time.Millisecond, "rolling out")
		for i := range rolloutDeployments {
			d, err := t.Cloud.AppsV1().Deployments(kit.Namespace).Get(t.Ctx, rolloutDeployment(i), metav1.GetOptions{})
			t.Must(err)
			s := d.Status
			if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != 1 || s.Replicas != 1 || s.AvailableReplicas != 1 ||
				d.Annotations["deployment.kubernetes.io/revision"] != fmt.Sprint(revision) {
				return fmt.Errorf("%s: %+v", d.Name, s)
			}
		}
		pods, err := t.Cloud.CoreV1().Pods(kit.Namespace).List(t.Ctx, metav1.ListOptions{LabelSelector: "app=" + rolloutName})
		t.Must(err)
		if len(pods.Items) != rolloutDeployments {
			return fmt.Errorf("%d Pods", len(pods.Items))
		}
		return nil
	})
}

// rolloutValues expects that each Pod's only container so far got a value, and returns the Pods by node.
func rolloutValues(t *kit.T, value string) map[string][]string {
	given := map[string]map[string]string{}
	for _, node := range t.Pool.Nodes() {
		for _, environ := range environs(t, node, rolloutCommand) {
			given[environ["GIVEN_POD"]] = environ
		}
	}
	pods, err := t.Cloud.CoreV1().Pods(kit.Namespace).List(t.Ctx, metav1.ListOptions{LabelSelector: "app=" + rolloutName})
	t.Must(err)
	byNode, wrong := map[string][]string{}, []error(nil)
	for _, p := range pods.Items {
		byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], p.Name)
		has := given[p.Name]
		if config, secret := has["GIVEN_CONFIG"], has["GIVEN_SECRET"]; config != value+"-config" || secret != value+"-secret" ||
			p.Status.ContainerStatuses[0].RestartCount != 0 {
			wrong = append(wrong, fmt.Errorf("%s on %s has %q and %q", p.Name, p.Spec.NodeName, config, secret))
		}
	}
	if len(wrong) > 0 {
		t.Fail("%d of %d Pods do not have the %s values: %w", len(wrong), len(pods.Items), value, errors.Join(wrong...))
	}
	t.Say("%d Pods have the %s values", len(pods.Items), value)
	return byNode
}
