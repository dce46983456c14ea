package cloud

import (
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var settingsReplacedScenarios = []kit.Scenario{{
	Name: "settings-replaced", Run: settingsReplaced,
	Lab: lab.Config{
		Pools: 3, Nodes: 3, Timing: lab.Quick, ChartValues: []string{"yurtAppSets.namespaces={default}"},
	}.AsInstalled(),
	Doc: "Three pools have coordinators because of a PoolSettings. It is replaced, deleted and made again, and has a typo for " +
		"a while; the coordinators' YurtAppSet is to be deleted; a user's YurtAppSet selects nothing for a moment. All " +
		"YurtCoordinators, keys and Pods stay, a condition and an Event say why, and a node that is cut off is delegated all " +
		"along. Deleted by hand, three go at once, and so do three whose number is confirmed; a wrong number does nothing.",
}}

const (
	alwaysFile = "always.yaml"
	always     = `apiVersion: apps.openyurt.io/v1alpha1
kind: PoolSettings
metadata: {name: always}
spec:
  nodepoolSelector: {}
  coordinator: {create: Always}
`
	tillFile = "till.yaml"
	till     = `apiVersion: apps.openyurt.io/v1beta1
kind: YurtAppSet
metadata: {name: till, namespace: default}
spec:
  nodepoolSelector: {}
  workload:
    workloadTemplate:
      deploymentTemplate:
        spec:
          selector: {matchLabels: {app: till}}
          template:
            metadata: {labels: {app: till}}
            spec: {containers: [{name: till, image: "` + kit.WebImage + `", command: [httpd, -f]}]}
`
	typo = `--type=merge --patch='{"spec":{"nodepoolSelector":{"matchLabels":{"no":"such"}}}}'`
)

// replacedSettings is a lab with the PoolSettings.
type replacedSettings struct{ *kit.Reader }

func settingsReplaced(t *kit.T) {
	r := replacedSettings{t.NewReader()}
	t.Figure("deleted_by_hand_s", r.took(func() { r.Run("kubectl delete yurtcoordinators --all --timeout=50s") }))
	r.write(alwaysFile, always)
	r.serveAll()
	r.write(tillFile, till)
	t.Eventually(time.Minute, "the workload is in each pool", func() error { return r.tills(3) })
	t.Pool.Settled(time.Minute)

	follower := t.Pool.Follower(t.Pool.SettledAway())
	before, site, began := r.identities(), t.Pool.Coordinator(lab.Operator), time.Now()
	t.Say("cutting the WAN link of %s, silently", follower)
	cut := t.Cut(follower)
	t.Node(follower).Delegated(cut)
	r.Run("kubectl replace --force -f " + alwaysFile)
	r.stays(before, "replaced")
	r.Run("kubectl delete -f " + alwaysFile)
	r.doubts()
	r.Run("kubectl apply -f " + alwaysFile)
	r.stays(before, "deleted and made again")
	r.Run("kubectl patch poolsettings always " + typo)
	r.doubts()
	t.Hold(20*time.Second, "a typo stays for a while")
	r.Run("kubectl replace -f " + alwaysFile)
	r.stays(before, "with a typo for a while")

	refused := r.Run("kubectl delete yurtappset yurt-coordinator --namespace kube-system 2>&1 || true")
	if !strings.Contains(refused, "this would remove 3 coordinators at once") {
		t.Fail("to delete the coordinators' YurtAppSet: %s", refused)
	}
	r.Run("kubectl patch yurtappset till " + typo)
	r.Run("kubectl wait yurtappset/till --timeout=30s " +
		`--for='jsonpath={.status.conditions[?(@.type=="AppDeleted")].reason}=RemovalWaits'`)
	t.Hold(20*time.Second, "it selects nothing")
	t.Must(r.tills(3))
	r.Run("kubectl replace -f " + tillFile)
	r.stays(before, "at the end")
	if _, err := site.CoreV1().Nodes().Get(t.Ctx, follower, metav1.GetOptions{}); err != nil {
		t.Fail("with the kubeconfig from before: %w", err)
	}
	t.NeverNotReady(began, t.Pool.Nodes()...)
	t.Heal(follower)
	t.Node(follower).Direct(time.Now())

	r.Run("kubectl delete -f " + alwaysFile)
	r.doubts()
	r.confirm("2")
	t.Hold(10*time.Second, "three wait, and not two")
	if now := r.identities(); now != before {
		t.Fail("confirmed with a wrong number there is\n%s\nwas\n%s", now, before)
	}
	r.confirm("3")
	took := t.Eventually(90*time.Second, "all are gone", func() error {
		for _, pool := range r.pools() {
			if _, err := t.Cloud.YurtCoordinator(pool); !apierrors.IsNotFound(err) {
				return fmt.Errorf("YurtCoordinator %s is there: %w", pool, err)
			}
		}
		return nil
	})
	t.Figure("confirmed_to_gone_s", took.Seconds())
	r.Run("kubectl annotate yurtappset yurt-coordinator --namespace kube-system apps.openyurt.io/confirm-removal-")
	r.Run("kubectl apply -f " + alwaysFile)
	r.serveAll()
}

// pools are the names of the pools, and of their YurtCoordinators.
func (r replacedSettings) pools() (names []string) {
	for p := 1; p <= r.Config.Pools; p++ {
		names = append(names, fmt.Sprintf("p%d", p))
	}
	return names
}

func (r replacedSettings) took(do func()) float64 {
	began := time.Now()
	do()
	return time.Since(began).Seconds()
}

// write makes a file of this content, and applies it.
func (r replacedSettings) write(name, content string) {
	r.Run("cat > " + name + " <<'END'\n" + content + "END\nkubectl apply -f " + name)
}

func (r replacedSettings) confirm(n string) {
	r.Run("kubectl annotate yurtappset yurt-coordinator --namespace kube-system --overwrite " +
		"apps.openyurt.io/confirm-removal=" + n)
}

func (r replacedSettings) serveAll() {
	for _, pool := range r.pools() {
		coordinatorIsReady(r.T, pool, 2*time.Minute)
	}
}

// tills fails unless so many Deployments of the user's YurtAppSet are there, none of them on its way out.
func (r replacedSettings) tills(want int) error {
	all, err := r.Cloud.AppsV1().Deployments(metav1.NamespaceDefault).List(r.Ctx, metav1.ListOptions{
		LabelSelector: "apps.openyurt.io/yurtappset=till",
	})
	if err != nil {
		return err
	}
	n := 0
	for _, d := range all.Items {
		if d.DeletionTimestamp == nil {
			n++
		}
	}
	if n != want {
		return fmt.Errorf("there are %d Deployments, want %d", n, want)
	}
	return nil
}

// identities are what must stay of all pools: their YurtCoordinators, authorities and Pods.
func (r replacedSettings) identities() string {
	var all []string
	for _, pool := range r.pools() {
		c, err := r.Cloud.YurtCoordinator(pool)
		r.Must(err)
		name := edge.PoolName(pool).AuthoritySecret()
		authority, err := r.Cloud.CoreV1().Secrets(edge.NamespaceKeys).Get(r.Ctx, name, metav1.GetOptions{})
		r.Must(err)
		all = append(all, fmt.Sprintf("%s: YurtCoordinator %s, authority %s, Pod %s",
			pool, c.UID, authority.UID, r.CoordinatorOf(pool).UID))
	}
	return strings.Join(all, "\n")
}

// stays waits until nothing is to be removed any more, and fails unless all is as it was.
func (r replacedSettings) stays(before, what string) {
	r.Eventually(30*time.Second, "nothing waits: "+what, func() error {
		for _, pool := range r.pools() {
			err := r.Cloud.Condition(pool, v1alpha1.YurtCoordinatorStalled, v1alpha1.ConditionFalse, "")
			if err != nil {
				return err
			}
		}
		return nil
	})
	if now := r.identities(); now != before {
		r.Fail("%s: there is\n%s\nwas\n%s", what, now, before)
	}
}

// doubts waits until each YurtCoordinator says that it is no longer asked for, and an Event does.
func (r replacedSettings) doubts() {
	r.Eventually(30*time.Second, "all wait", func() error {
		for _, pool := range r.pools() {
			err := r.Cloud.Condition(pool, v1alpha1.YurtCoordinatorStalled, v1alpha1.ConditionTrue, "RemovalWaits")
			if err != nil {
				return err
			}
		}
		return nil
	})
	r.Eventually(10*time.Second, "an Event says so", func() error {
		events, err := r.Cloud.CoreV1().Events(metav1.NamespaceDefault).List(r.Ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=YurtCoordinator,reason=RemovalWaits",
		})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
}
