package ops

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var aggregatedScenarios = []kit.Scenario{{
	Name: "crd-behind-503", Lab: auditAll(kit.RealKubelets(kit.OnePool)), Run: aggregated503,
	Doc: "A second kube-apiserver serves a custom resource as an aggregated API. For three minutes a balancer in front of it " +
		"answers 503. Agents get the 503 or what the hub remembers; everything else reaches the node's programs within " +
		"seconds, every heartbeat is direct, and nothing is listed again. Then the agents are current within a minute.",
}}

// aggregatedPort is where the second kube-apiserver listens on the cloud's machine.
const aggregatedPort = 7444

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

func aggregated503(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	second := aggregate(t)
	agents := agentsOf(t, node)
	f := follow(t, node)
	setWidget(t, second, widgets, 1)
	agents.have(1)
	f.current()
	t.Hold(5*time.Second, "what was new has been read")
	before := calmSince(t)

	t.Say("a balancer without servers comes in front of the second kube-apiserver, then the custom resource changes")
	began := time.Now()
	end := balance(t, "cloud", "127.0.0.1", strconv.Itoa(aggregatedPort))
	t.Eventually(30*time.Second, "the cloud refuses a list of the aggregated API", func() error {
		_, err := t.Cloud.Objects.Resource(widgets).List(t.Ctx, metav1.ListOptions{})
		if codeOf(err) != http.StatusServiceUnavailable {
			return fmt.Errorf("it says %w", errors.Join(err))
		}
		return nil
	})
	setWidget(t, second, widgets, 2)
	bound := time.Now()
	t.Node(node).DeployNeedy() // the hub must begin to follow what it needs
	t.Figure("new_pod_answers_s", time.Since(bound).Seconds())
	for time.Since(began) < sickFor {
		f.current()
		agents.refusedOr(1)
		t.Hold(20*time.Second, "the balancer stays")
	}
	before.holds()

	t.Say("the balancer goes")
	healed := time.Now()
	t.Figure("requests_refused", float64(end()))
	agents.have(2)
	t.Figure("healed_to_current_s", time.Since(healed).Seconds())
	agents.follow(2, 2*time.Minute)
	f.current()
	before.holds()
}

// aggregate starts the second kube-apiserver, which has a prefix of its own in etcd, and has the first pass requests for the
// widgets on to it. The returned client reaches the second one itself.
func aggregate(t *kit.T) dynamic.Interface {
	bins, err := t.Lab.Programs()
	t.Must(err)
	cloud := cloudURL(t)
	keys := filepath.Join(t.Lab.Dir(), "machines", "cloud", "pki")
	key := func(name string) string { return filepath.Join(keys, name) }
	// The first shows this certificate to the second, which takes it for an administrator.
	t.Must(t.Lab.Cloud(t.Ctx, lab.Restart, lab.KubeAPIServer,
		"--proxy-client-cert-file="+key("kube-apiserver-kubelet-client.crt"),
		"--proxy-client-key-file="+key("kube-apiserver-kubelet-client.key")))
	cmd, err := t.Lab.Inside(t.Ctx, "cloud", bins.KubeAPIServer,
		"--etcd-servers=http://127.0.0.1:2379", "--etcd-prefix=/second",
		"--bind-address=0.0.0.0", "--advertise-address="+cloud.Hostname(), fmt.Sprintf("--secure-port=%d", aggregatedPort),
		"--service-cluster-ip-range=10.200.0.0/24", "--tls-cert-file="+key("kube-apiserver.crt"),
		"--tls-private-key-file="+key("kube-apiserver.key"),
		"--client-ca-file="+key("ca.crt"), "--authorization-mode=RBAC", "--cert-dir="+t.Lab.Dir(),
		"--service-account-key-file="+key("sa.pub"), "--service-account-signing-key-file="+key("sa.key"),
		"--service-account-issuer=https://second.example.com")
	t.Must(err)
	log, err := os.Create(filepath.Join(t.Lab.Dir(), "second-kube-apiserver.log"))
	t.Must(err)
	cmd.Stdout, cmd.Stderr = log, log
	t.Must(cmd.Start())
	t.Background.Go(func() {
		_ = cmd.Wait() // it is killed with the scenario
		_ = log.Close()
	})
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	access.Host = fmt.Sprintf("https://%s", net.JoinHostPort(cloud.Hostname(), strconv.Itoa(aggregatedPort)))
	second, err := dynamic.NewForConfig(access)
	t.Must(err)
	t.Eventually(time.Minute, "the second kube-apiserver serves", func() error {
		_, err := second.Resource(definitions).List(t.Ctx, metav1.ListOptions{})
		return err
	})
	defineWidgets(t, second, nil, widgets)

	const name = "second"
	_, err = t.Cloud.CoreV1().Services(kit.Namespace).Create(t.Ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"},
	}, metav1.CreateOptions{})
	t.Must(err)
	_, err = t.Cloud.Objects.Resource(apiServices).Create(t.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiServices.GroupVersion().String(), "kind": "APIService",
		"metadata": map[string]any{"name": widgets.Version + "." + widgets.Group},
		"spec": map[string]any{
			"group": widgets.Group, "version": widgets.Version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"service":               map[string]any{"namespace": kit.Namespace, "name": name, "port": int64(aggregatedPort)},
			"insecureSkipTLSVerify": true,
		},
	}}, metav1.CreateOptions{})
	t.Must(err)
	t.Eventually(time.Minute, "the cloud serves the aggregated API", func() error {
		_, err := t.Cloud.Objects.Resource(widgets).List(t.Ctx, metav1.ListOptions{})
		return err
	})
	return second
}

// refusedOr expects that each agent gets the cloud's 503, or the widget as the hub remembers it.
func (all agents) refusedOr(remembered int64) {
	for _, a := range all {
		is, err := a.lists()
		a.t.Say("the agent with the identity of %s gets size %d, %v", a.as, is, err)
		if err == nil && is != remembered || err != nil && codeOf(err) != http.StatusServiceUnavailable {
			a.t.Fail("the agent with the identity of %s gets size %d, %v", a.as, is, err)
		}
	}
}
