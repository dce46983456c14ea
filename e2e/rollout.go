package e2e

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

	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/line"
)

var rolloutScenarios = []Scenario{{
	Name: "rollout-config", Lab: realKubelets(pool), run: rolloutConfig,
	Doc: "a ConfigMap and a Secret used by env are changed after kubelet and hub have let go of them, over a WAN with a round " +
		"trip of 300 ms, and 20 Deployments are restarted at once: 20 new Pods have the new values",
}}

const (
	rolloutName        = "rollout"
	rolloutDeployments = 20
	// rolloutCommand is what their containers run: a process that nothing else is.
	rolloutCommand = "sleep 86431"
	// rolloutWithin is three times what a node of this lab may take for its share of 20 Pods.
	rolloutWithin = 180 * time.Second
)

func rolloutConfig(t *T) {
	t.settledAway()
	t.giveRollout("old")
	t.each(rolloutDeployments, t.deployRollout)
	t.rolledOut(1)
	before := t.rolloutValues("old")
	for _, node := range t.nodeNames() {
		t.letGo(node, rolloutName)
		if len(before[node]) == 0 {
			t.fail("no Pod is on %s, whose hub has nothing old then: %v", node, before)
		}
		t.shape(lab.WAN, node, line.Shape{Delay: 150 * time.Millisecond}, 1, false)
	}

	t.say("changing ConfigMap and Secret, and restarting all Deployments")
	t.giveRollout("new")
	began := time.Now()
	restart := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`,
		"kubectl.kubernetes.io/restartedAt", began.Format(time.RFC3339))
	t.each(rolloutDeployments, func(i int) error {
		_, err := t.cloud.AppsV1().Deployments(namespace).Patch(t.ctx, rolloutDeployment(i), types.StrategicMergePatchType,
			restart, metav1.PatchOptions{})
		return err
	})
	t.rolledOut(2)
	t.figure("restart_to_rolled_out_s", time.Since(began).Seconds())
	t.rolloutValues("new")
}

// each does something for each number below n at once, and fails if any of it does.
func (t *T) each(n int, do func(int) error) {
	failed := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { failed[i] = do(i) })
	}
	all.Wait()
	t.must(errors.Join(failed...))
}

func rolloutDeployment(i int) string { return fmt.Sprintf("%s-%02d", rolloutName, i) }

// giveRollout writes the ConfigMap and the Secret.
func (t *T) giveRollout(value string) {
	meta := metav1.ObjectMeta{Name: rolloutName}
	config := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": value + "-config"}}
	secret := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"key": value + "-secret"}}
	if _, err := t.cloud.CoreV1().ConfigMaps(namespace).Update(t.ctx, config, metav1.UpdateOptions{}); err != nil {
		_, err = t.cloud.CoreV1().ConfigMaps(namespace).Create(t.ctx, config, metav1.CreateOptions{})
		t.must(err)
	}
	if _, err := t.cloud.CoreV1().Secrets(namespace).Update(t.ctx, secret, metav1.UpdateOptions{}); err != nil {
		_, err = t.cloud.CoreV1().Secrets(namespace).Create(t.ctx, secret, metav1.CreateOptions{})
		t.must(err)
	}
}

// deployRollout makes a Deployment of one Pod; those of all are spread over the nodes.
func (t *T) deployRollout(i int) error {
	own, all := map[string]string{"deployment": rolloutDeployment(i)}, map[string]string{"app": rolloutName}
	_, err := t.cloud.AppsV1().Deployments(namespace).Create(t.ctx, &appsv1.Deployment{
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
						Name: rolloutName, Image: webImage, Command: strings.Fields(rolloutCommand),
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

// rolledOut waits until all Deployments are at their so-manieth revision, and of the Pods before none is left.
func (t *T) rolledOut(revision int) {
	t.eventually(rolloutWithin, fmt.Sprintf("%d Deployments are at revision %d", rolloutDeployments, revision), func() error {
		t.pause(200*time.Millisecond, "rolling out")
		for i := range rolloutDeployments {
			d, err := t.cloud.AppsV1().Deployments(namespace).Get(t.ctx, rolloutDeployment(i), metav1.GetOptions{})
			t.must(err)
			s := d.Status
			if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != 1 || s.Replicas != 1 || s.AvailableReplicas != 1 ||
				d.Annotations["deployment.kubernetes.io/revision"] != fmt.Sprint(revision) {
				return fmt.Errorf("%s: %+v", d.Name, s)
			}
		}
		pods, err := t.cloud.CoreV1().Pods(namespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=" + rolloutName})
		t.must(err)
		if len(pods.Items) != rolloutDeployments {
			return fmt.Errorf("%d Pods", len(pods.Items))
		}
		return nil
	})
}

// rolloutValues expects each Pod's container, the only one that it has had, to have been given a value, and returns the Pods
// by node.
func (t *T) rolloutValues(value string) map[string][]string {
	given := map[string]map[string]string{}
	for _, node := range t.nodeNames() {
		for _, environ := range t.environs(node, rolloutCommand) {
			given[environ["GIVEN_POD"]] = environ
		}
	}
	pods, err := t.cloud.CoreV1().Pods(namespace).List(t.ctx, metav1.ListOptions{LabelSelector: "app=" + rolloutName})
	t.must(err)
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
		t.fail("%d of %d Pods do not have the %s values: %w", len(wrong), len(pods.Items), value, errors.Join(wrong...))
	}
	t.say("%d Pods have the %s values", len(pods.Items), value)
	return byNode
}
