package cloud

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var missingKindScenarios = []kit.Scenario{{
	Name: "missing-kind", Lab: kit.OnePool.AsInstalled(), Run: missingKind,
	Doc: "The CRD of YurtAppSets is deleted and coordinator-controller starts without it. The controllers that need it " +
		"wait and say so in a metric and on the YurtCoordinator; the others work. When it is installed again, the pool " +
		"has a coordinator again.",
}}

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	appSets     = schema.GroupVersionResource{Group: "apps.openyurt.io", Version: "v1beta1", Resource: "yurtappsets"}
)

// waitsFor is the metric of controllers that wait.
const waitsFor = "coordinator_controller_waiting"

func missingKind(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	began, each := time.Now(), controllerMetrics(t)
	fleetIsSeen(t, each)
	metrics := func(want float64, labels ...string) error {
		return each(func(pod, text string) error {
			if is, err := kit.SumOf(text, waitsFor, labels); err != nil || is != want {
				return errors.Join(err, fmt.Errorf("%s: the Pod %s says that %v wait, want %v", labels, pod, is, want))
			}
			return nil
		})
	}
	t.Eventually(time.Minute, "no controller waits", func() error { return metrics(0) })
	definition := withoutAppSets(t)
	deployment := "deployment/" + string(lab.CoordinatorController)
	t.Kubectls([][]string{
		{"-n", edge.NamespaceSystem, "rollout", "restart", deployment},
		{"-n", edge.NamespaceSystem, "rollout", "status", deployment, "--timeout=2m"},
	})
	t.Eventually(time.Minute, "the YurtCoordinator says what its controller waits for", func() error {
		return t.Cloud.Condition("p1", v1alpha1.YurtCoordinatorPending, v1alpha1.ConditionTrue, "KindNotServed")
	})
	kind := fmt.Sprintf("kind=%q", appSets.GroupVersion().String()+" YurtAppSet")
	for controller, want := range map[string]float64{
		"yurtappset": 1, "yurtcoordinator": 1, "nodepool": 0, "heartbeat": 0, "poolcut": 0, "poolsettings": 0,
	} {
		t.Eventually(time.Minute, fmt.Sprintf("the metric of %s is %v", controller, want), func() error {
			return metrics(want, fmt.Sprintf("controller=%q", controller), kind)
		})
	}
	inventPool(t, "p9", 2)
	t.Eventually(20*time.Second, "a new NodePool is counted all the same", func() error {
		pool, err := t.Cloud.Objects.Resource(lab.NodePools).Get(t.Ctx, "p9", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n, _, _ := unstructured.NestedInt64(pool.Object, "status", "unreadyNodeNum"); n != 2 {
			return fmt.Errorf("it has %d nodes", n)
		}
		return nil
	})

	t.Say("installing the CRD")
	installed := time.Now()
	_, err := t.Cloud.Objects.Resource(definitions).Create(t.Ctx, definition, metav1.CreateOptions{})
	t.Must(err)
	t.Eventually(90*time.Second, "nobody waits any more", func() error { return metrics(0) })
	coordinatorIsReady(t, "p1", 90*time.Second)
	t.Pool.Settled(time.Minute)
	t.Figure("installed_to_all_well_s", time.Since(installed).Seconds())

	cutOff, cut := t.Pool.Follower(t.Pool.CoordinatorNode()), time.Now()
	t.Cut(cutOff)
	t.Node(cutOff).Delegated(cut)
	t.Heal(cutOff)
	t.Node(cutOff).Direct(time.Now())
	t.NeverNotReady(began, t.Pool.Nodes()...)
}

// withoutAppSets deletes the CRD of YurtAppSets, and with it all that they own, and returns it as it can be made again.
func withoutAppSets(t *kit.T) *unstructured.Unstructured {
	all, name := t.Cloud.Objects.Resource(definitions), appSets.Resource+"."+appSets.Group
	was, err := all.Get(t.Ctx, name, metav1.GetOptions{})
	t.Must(err)
	t.Must(all.Delete(t.Ctx, name, metav1.DeleteOptions{}))
	t.Eventually(time.Minute, "YurtAppSets are not served", func() error {
		if _, err := all.Get(t.Ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("their CRD is there: %w", err)
		}
		if _, err := t.Cloud.Objects.Resource(appSets).List(t.Ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("a list of them: %w", err)
		}
		return nil
	})
	t.Eventually(2*time.Minute, "the coordinator, which one of them owns, runs no more", func() error {
		if running := t.Pool.CoordinatorsRunning(); len(running) > 0 {
			return fmt.Errorf("one does on %v", running)
		}
		return nil
	})
	again := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": was.GetAPIVersion(), "kind": was.GetKind(), "spec": was.Object["spec"],
	}}
	again.SetName(name)
	again.SetAnnotations(was.GetAnnotations())
	again.SetLabels(was.GetLabels())
	return again
}

// fleetIsSeen has coordinator-controller say how the pool's hubs are, by what their leader reports.
func fleetIsSeen(t *kit.T, each func(look func(pod, text string) error) error) {
	t.Eventually(time.Minute, "the metrics of the fleet say how the pool is", func() error {
		for _, of := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"coordinator_controller_pool_led", []string{`pool="p1"`}, 1},
			{"coordinator_controller_hub_links", []string{`state="up"`}, float64(t.Config.Nodes)},
			{"coordinator_controller_hubs", nil, float64(t.Config.Nodes)},
			{"coordinator_controller_node_trouble", nil, 0},
		} {
			sum := 0.0
			if err := each(func(_, text string) error {
				is, err := kit.SumOf(text, of.name, of.labels)
				sum += is
				return err
			}); err != nil {
				return err
			}
			if sum != of.want {
				return fmt.Errorf("%s is %v, want %v", of.name, sum, of.want)
			}
		}
		return nil
	})
}

// controllerMetrics lets a ServiceAccount read metrics, as docs/metrics.md says, and returns what looks at those of each of
// coordinator-controller's Pods.
func controllerMetrics(t *kit.T) func(look func(pod, text string) error) error {
	const reader = "reader"
	_, err := t.Cloud.CoreV1().ServiceAccounts("default").Create(t.Ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: reader}}, metav1.CreateOptions{})
	t.Must(err)
	_, err = t.Cloud.RbacV1().ClusterRoleBindings().Create(t.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: reader},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "openyurt:metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: reader}},
	}, metav1.CreateOptions{})
	t.Must(err)
	token, err := t.Cloud.CoreV1().ServiceAccounts("default").CreateToken(t.Ctx, reader,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	t.Must(err)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it signs its own: docs/metrics.md
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return t.Lab.Dial(ctx, "cloud", address)
		},
	}}
	read := func(pod *corev1.Pod) (string, error) {
		ctx, cancel := context.WithTimeout(t.Ctx, 10*time.Second)
		defer cancel()
		url := "https://" + net.JoinHostPort(pod.Status.PodIP, "8443") + "/metrics"
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return "", err
		}
		request.Header.Set("Authorization", "Bearer "+token.Status.Token)
		answer, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(io.LimitReader(answer.Body, 8<<20))
		if answer.StatusCode != http.StatusOK {
			return "", fmt.Errorf("%s: %s", answer.Status, text)
		}
		return string(text), err
	}
	return func(look func(pod, text string) error) error {
		pods, err := t.Cloud.CoreV1().Pods(edge.NamespaceSystem).List(t.Ctx, metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/name=" + string(lab.CoordinatorController),
		})
		if err != nil {
			return err
		}
		asked := 0
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.DeletionTimestamp != nil {
				continue
			}
			asked++
			text, err := read(pod)
			if err != nil {
				return err
			}
			if err := look(pod.Name, text); err != nil {
				return err
			}
		}
		if asked == 0 {
			return errors.New("coordinator-controller has no Pod")
		}
		return nil
	}
}
