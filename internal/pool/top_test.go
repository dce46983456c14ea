package pool

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"yurtcoordinator/internal/pool/pooltest"
)

// kubeletOf serves what the kubelet of a node would say of it and of these Pods in the namespace shop, each of which uses
// half a core, to the coordinator's certificate alone. It returns the status of the Node, and how often it has been asked.
func kubeletOf(t testing.TB, ca *pooltest.Authority, address, n string, pods ...string) (corev1.NodeStatus, *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	asked := new(atomic.Int64)
	began := time.Now().Add(-time.Hour)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics/resource" || len(r.TLS.PeerCertificates) != 1 {
			http.Error(w, "what is it?", http.StatusForbidden)
			return
		}
		asked.Add(1)
		seconds, at := time.Since(began).Seconds()/2, time.Now().UnixMilli()
		for _, m := range []struct {
			name, kind string
			value      float64
			of         []string
		}{
			{"node_cpu_usage_seconds_total", "counter", seconds, nil},
			{"node_memory_working_set_bytes", "gauge", 64 << 20, nil},
			{"container_cpu_usage_seconds_total", "counter", seconds, pods},
			{"container_memory_working_set_bytes", "gauge", 16 << 20, pods},
			{"container_start_time_seconds", "gauge", float64(began.Unix()), pods},
		} {
			_, _ = fmt.Fprintf(w, "# TYPE %s %s\n", m.name, m.kind)
			if strings.HasPrefix(m.name, "node_") {
				_, _ = fmt.Fprintf(w, "%s %f %d\n", m.name, m.value, at)
			}
			for _, pod := range m.of {
				_, _ = fmt.Fprintf(w, "%s{container=\"web\",namespace=\"shop\",pod=%q} %f %d\n", m.name, pod, m.value, at)
			}
		}
	}))
	pair := ca.Issue(t, pooltest.Node(n), pooltest.Tomorrow())
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	_ = server.Listener.Close()
	server.Listener = listener
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	host, _, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port := int32(portOf(t, listener.Addr().String()))
	return corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
	}, asked
}

func TestTop(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) {
		config.KubeletCertificateAuthority = config.ClientCAFile
		config.KubeletClientCertificate, config.KubeletClientKey = config.TLSCertFile, config.TLSPrivateKeyFile
		config.kubeletsAnywhere = true
	})
	status, asked := kubeletOf(t, c.ca, "127.0.0.1:0", "n1", "a")
	one := c.hub(t, "n1")
	one.Ask()
	meta := pooltest.CloudMeta("n1", 5)
	meta.Namespace = ""
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.AsObject(t, &corev1.Node{ObjectMeta: meta, Status: status})))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10)))
	if n := asked.Load(); n != 0 {
		t.Errorf("the kubelet was read %d times before anybody asked", n)
	}

	read := func(path string, into any) {
		t.Helper()
		raw, err := c.as(t, pooltest.Operator()).CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
	}
	var nodes metricsv1beta1.NodeMetricsList
	read("/apis/metrics.k8s.io/v1beta1/nodes", &nodes)
	if len(nodes.Items) != 1 || nodes.Items[0].Name != "n1" {
		t.Fatalf("%+v, want figures of n1", nodes.Items)
	}
	if cpu := nodes.Items[0].Usage.Cpu().MilliValue(); cpu < 490 || cpu > 510 {
		t.Errorf("n1 uses %dm, want half a core", cpu)
	}
	var pods metricsv1beta1.PodMetricsList
	read("/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods", &pods)
	if len(pods.Items) != 1 || pods.Items[0].Name != "a" || len(pods.Items[0].Containers) != 1 {
		t.Fatalf("%+v, want figures of Pod a", pods.Items)
	}
	if memory := pods.Items[0].Containers[0].Usage.Memory().Value(); memory != 16<<20 {
		t.Errorf("the Pod uses %d bytes, want %d", memory, 16<<20)
	}
	var none metricsv1beta1.PodMetricsList
	read("/apis/metrics.k8s.io/v1beta1/namespaces/elsewhere/pods", &none)
	if len(none.Items) != 0 {
		t.Errorf("%+v in another namespace", none.Items)
	}

	groups, err := c.as(t, pooltest.Operator()).Discovery().ServerGroups()
	if err != nil || !strings.Contains(fmt.Sprint(groups), "metrics.k8s.io") {
		t.Errorf("%v, %v: kubectl top looks for metrics.k8s.io there", groups, err)
	}
	code, body := c.get(t, c.http(t, c.certificate(t, pooltest.Node("n2"))), "/apis/metrics.k8s.io/v1beta1/nodes")
	if code != http.StatusForbidden {
		t.Errorf("a node asks for figures: %d %s", code, body)
	}
}
