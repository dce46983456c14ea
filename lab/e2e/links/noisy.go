package links

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/lab/e2e/kit"
)

var noisyScenarios = []kit.Scenario{{
	Name: "noisy-cloud", Lab: kit.Unrelayed(kit.OnePool.AsInstalled()), Run: noisyCloud,
	Doc: "Pods' clients ask so much of the cloud's API server that it refuses them. A delegated node stays ready and keeps " +
		"its Pods: its heartbeats have the priority of a node's own. Without the chart's FlowSchema it is called NotReady.",
}}

func noisyCloud(t *kit.T) {
	pods := t.DeployWeb()
	node := t.Pool.Follower(t.Pool.SettledAway())
	cut := t.Cut(node)
	t.Node(node).Delegated(cut)

	quiet := crowd(t)
	noisy := time.Now()
	refused(t)
	t.Hold(3*t.Config.Timing.Grace, "three grace periods in which Pods' clients are refused")
	refused(t)
	t.Figure("largest_lease_age_s", t.Seen.LargestAge(node, noisy, time.Now()).Seconds())
	t.NeverNotReady(cut, t.Pool.Nodes()...)
	t.Must(t.Seen.Untouched(kit.On(pods, node), cut))

	t.Say("the FlowSchema of forwarded heartbeats is deleted")
	without := time.Now()
	t.Must(t.Cloud.FlowcontrolV1().FlowSchemas().Delete(t.Ctx, "forwarded-heartbeats.openyurt.io", metav1.DeleteOptions{}))
	t.Eventually(3*time.Minute, node+" is called NotReady: the rest of this scenario could fail", func() error {
		if t.Seen.NeverNotReady(node, without) == nil {
			return errors.New("it is Ready")
		}
		return nil
	})
	quiet()
	t.Eventually(time.Minute, "all nodes are ready", t.Pool.NodesReady)
}

const (
	crowdIn    = "crowd" // a namespace
	crowdUsers = 200
	crowdEach  = 10

	crowdManifest = `
{apiVersion: v1, kind: Namespace, metadata: {name: crowd}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: crowd, namespace: crowd}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:serviceaccounts:crowd"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: crowd}
webhooks:
- name: silent.example.org
  clientConfig: {url: "https://127.0.0.1:9/"}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: crowd}}
  failurePolicy: Ignore
  sideEffects: None
  timeoutSeconds: 30
  admissionReviewVersions: [v1]
`
)

// crowd lets ServiceAccounts send more requests at once than workload-low has seats and queues for. The load is cheap, because
// each request waits for a webhook that does not answer. The returned function ends the load.
func crowd(t *kit.T) (quiet func()) {
	cmd, err := t.Lab.Kubectl(t.Ctx, "cloud", []string{"apply", "-f", "-"})
	t.Must(err)
	cmd.Stdin = strings.NewReader(crowdManifest)
	t.Runs(cmd)
	t.Node("cloud").IPTables("-I", "INPUT", "-i", "lo", "-p", "tcp", "--dport", "9", "-j", "DROP")

	ctx, cancel := context.WithCancel(t.Ctx)
	var all sync.WaitGroup
	for user := range crowdUsers {
		client, err := kubernetes.NewForConfig(serviceAccount(t, crowdIn, fmt.Sprint("user-", user)))
		t.Must(err)
		for range crowdEach {
			all.Go(func() {
				for ctx.Err() == nil {
					_, _ = client.CoreV1().ConfigMaps(crowdIn).Create(ctx, &corev1.ConfigMap{
						ObjectMeta: metav1.ObjectMeta{GenerateName: crowdIn},
					}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}) // it waits, or is refused
				}
			})
		}
	}
	return func() { cancel(); all.Wait() }
}

// serviceAccount returns access to the cloud as a ServiceAccount.
func serviceAccount(t *kit.T, namespace, name string) *rest.Config {
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	access.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + name
	return access
}

// refused waits until the cloud refuses a Pod's client that has asked nothing before.
func refused(t *kit.T) {
	t.Eventually(2*time.Minute, "the cloud refuses a Pod's client", func() error {
		response, err := t.Ask(t.Ctx, serviceAccount(t, metav1.NamespaceDefault, "default"), "/apis", "application/json")
		switch {
		case err == nil:
			return errors.Join(errors.New("it is answered"), response.Body.Close())
		case !strings.Contains(err.Error(), "429"):
			return err
		}
		return nil
	})
}
