package thief

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var stolenScenarios = []kit.Scenario{{
	Name: "stolen-coordinator", Lab: lab.Config{Pools: 2, Nodes: 3, Timing: lab.Quick}.AsInstalled(), Run: stolenCoordinator,
	Doc: "Somebody has everything that a coordinator's Pod mounts and tries each key in the cloud and at another pool's " +
		"kubelets and coordinator. All are refused. In its own pool the key enters Pods and reads metrics, and nothing " +
		"else of kubelet's, until a person changes `spec.rekey`; the coordinator keeps running.",
}}

// loot are the keys that a coordinator's Pod mounts, by what they are for.
type loot map[string]tls.Certificate

// toKubelets is the key in a loot that kubelets know.
const toKubelets = "kubelets"

func robbed(t *kit.T, pool edge.PoolName) loot {
	secret, err := t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(t.Ctx, pool.CoordinatorSecret(), metav1.GetOptions{})
	t.Must(err)
	keys := loot{}
	for name, files := range map[string][2]string{
		"serving": {"tls.crt", "tls.key"}, toKubelets: {"kubelet-client.crt", "kubelet-client.key"},
	} {
		keys[name], err = tls.X509KeyPair(secret.Data[files[0]], secret.Data[files[1]])
		t.Must(err)
	}
	for name, content := range secret.Data {
		if strings.Contains(string(content), "PRIVATE KEY") && name != "tls.key" && name != "kubelet-client.key" {
			t.Fail("the Pod mounts another key, %s, which nobody tries", name)
		}
	}
	return keys
}

// tries makes a request from a machine with a stolen key, and does not verify the server. It returns the answer's code and the
// beginning of its text.
func (l loot) tries(t *kit.T, key, machine, method, url string) (int, string) {
	ctx, cancel := context.WithTimeout(t.Ctx, commandTimeout)
	defer cancel()
	transport := careless(t, machine)
	// Whatever authorities the server names.
	transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return ptr.To(l[key]), nil
	}
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	t.Must(err)
	response, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err.Error() // the handshake is refused
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	return response.StatusCode, string(text)
}

func stolenCoordinator(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	at, victim := t.Pool.CoordinatorNode(), t.Pool.Follower()
	const theirs = "p2-n1"
	deployPlain(t, victim, theirs)
	theirCoordinator := coordinatorOf(t, "p2")
	keys := robbed(t, "p1")

	t.Say("at the cloud, at p2's kubelets and at p2's coordinator, from their own LAN")
	attempts := 0
	refused := func(machine, method, url string) {
		for key := range keys {
			code, text := keys.tries(t, key, machine, method, url)
			shutOut := code == 0 && kit.ShutOut(text)
			if !shutOut && code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Fail("%s %s from %s with the key for %s: %d %s", method, url, machine, key, code, text)
			}
			attempts++
		}
	}
	cloud, err := t.Lab.CloudConfigFrom(at)
	t.Must(err)
	for _, a := range []struct{ method, path string }{
		{"GET", "/api/v1/nodes"}, {"GET", "/api/v1/pods"}, {"GET", "/api/v1/secrets"}, {"GET", "/api/v1/nodes/" + victim},
		{"GET", "/api/v1/nodes/" + victim + "/proxy/pods"},
		{"POST", "/api/v1/nodes/" + theirs + "/proxy/run/shop/plain-2/c?cmd=id"},
		{"GET", "/api/v1/nodes/" + victim + "/metrics"},
		{"POST", "/api/v1/namespaces/shop/pods/plain-1/exec?command=id&stdout=true"},
		{"POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"},
		{"GET", "/api/v1/namespaces/" + edge.NamespaceKeys + "/secrets/" + edge.PoolName("p1").AuthoritySecret()},
		{"GET", "/api/v1/namespaces/kube-system/configmaps/" + edge.PoolName("p1").DiscoveryConfigMap()},
	} {
		refused(at, a.method, strings.TrimSuffix(cloud.Host, "/")+a.path)
	}
	kubelet := func(node string) string { return "https://" + net.JoinHostPort(t.Node(node).Address(), "10250") }
	for _, a := range []struct{ method, path string }{
		{"GET", "/pods"}, {"POST", "/run/shop/plain-2/c?cmd=id"}, {"GET", "/containerLogs/shop/plain-2/c"}, {"GET", "/metrics"},
		{"GET", "/metrics/resource"}, {"GET", "/configz"}, {"GET", "/healthz"},
	} {
		refused(theirs, a.method, kubelet(theirs)+a.path)
	}
	for _, path := range []string{
		"/api/v1/nodes", "/api/v1/pods", "/apis/coordination.k8s.io/v1/leases", "/own/v1/core/v1/pods",
	} {
		refused(theirs, "GET", theirCoordinator+path)
	}

	t.Say("in p1: into its Pods, by the key for kubelets alone")
	inside := func(key string) (int, string) {
		return keys.tries(t, key, victim, "POST", kubelet(victim)+"/run/shop/plain-1/c?cmd=id")
	}
	if code, text := inside(toKubelets); code != http.StatusOK || !strings.Contains(text, "uid=") {
		t.Fail("exec with the coordinator's own key: %d %s", code, text)
	}
	if code, text := inside("serving"); code != http.StatusUnauthorized {
		t.Fail("exec with its serving key: %d %s", code, text)
	}
	for path, want := range map[string]int{
		"/metrics/resource": http.StatusOK, "/logs/": http.StatusForbidden, "/stats/summary": http.StatusForbidden,
		"/statusz": http.StatusForbidden,
	} {
		if code, text := keys.tries(t, toKubelets, victim, "GET", kubelet(victim)+path); code != want {
			t.Fail("GET %s of %s: %d %s, want %d", path, victim, code, text, want)
		}
	}
	t.Figure("refused_attempts", float64(attempts))

	t.Say("the machine is known to be stolen: p1 gets another key")
	kubectlMust(t, "", "patch", "yurtcoordinator", "p1", "--type=merge", "-p", `{"spec":{"rekey":"stolen"}}`)
	took := t.Eventually(60*time.Second, "p1's kubelets let the stolen key in no more", func() error {
		for _, node := range t.Pool.Nodes() {
			code, text := keys.tries(t, toKubelets, node, "GET", kubelet(node)+"/metrics/resource")
			if code != http.StatusForbidden {
				return fmt.Errorf("%s: %d %.60s", node, code, text)
			}
		}
		if code, text := inside(toKubelets); code != http.StatusForbidden {
			return fmt.Errorf("exec: %d %s", code, text)
		}
		return nil
	})
	t.Figure("revoked_after_s", took.Seconds())
	took = t.Eventually(2*time.Minute, "the operator gets into the Pod through the coordinator", func() error {
		out, err := kubectl(t, onSite, "", "exec", "plain-1", "-n", workspace, "--", "id")
		if err == nil && !strings.Contains(out, "uid=") {
			return fmt.Errorf("it prints %s", out)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	t.Figure("exec_again_after_s", took.Seconds())
	if code, text := inside(toKubelets); code != http.StatusForbidden {
		t.Fail("the stolen key is let in again: %d %s", code, text)
	}
}

// deployPlain makes a Pod plain-1, plain-2, … on each of the nodes.
func deployPlain(t *kit.T, nodes ...string) {
	_, err := t.Cloud.CoreV1().Namespaces().Create(t.Ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: workspace}},
		metav1.CreateOptions{})
	t.Must(err)
	for i, node := range nodes {
		t.Node(node).RunPod(fmt.Sprintf("plain-%d", i+1), []string{"sleep", "3600"}, func(p *corev1.Pod) {
			p.Namespace, p.Spec.Containers[0].Name = workspace, "c"
		})
	}
	t.Eventually(90*time.Second, "the Pods run", func() error {
		for i := range nodes {
			p, err := t.Cloud.CoreV1().Pods(workspace).Get(t.Ctx, fmt.Sprintf("plain-%d", i+1), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !kit.PodReady(p) {
				return fmt.Errorf("%s: %+v", p.Name, p.Status)
			}
		}
		return nil
	})
}

// coordinatorOf returns where a pool's coordinator is, as the pool's hubs are told.
func coordinatorOf(t *kit.T, pool edge.PoolName) string {
	var server string
	t.Eventually(60*time.Second, string(pool)+" has a coordinator", func() error {
		hint, err := t.Cloud.CoreV1().ConfigMaps(edge.NamespaceSystem).Get(t.Ctx, pool.DiscoveryConfigMap(), metav1.GetOptions{})
		if err == nil {
			server = hint.Data[edge.DiscoveryServer]
		}
		return err
	})
	return server
}
