package pool

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"yurtcoordinator/internal/pool/pooltest"
)

// TestAPoolOfIPv6: a coordinator of such a pool serves, takes what its nodes have, and calls their kubelets; at an IPv4 address
// of its node it serves as well.
func TestAPoolOfIPv6(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) {
		config.BindAddress = "::1"
		config.AddressesFile = pooltest.WriteFile(t, t.TempDir(), "addresses", []byte("::1\n127.0.0.1\n"))
		config.KubeletCertificateAuthority = config.ClientCAFile
		config.KubeletClientCertificate, config.KubeletClientKey = config.TLSCertFile, config.TLSPrivateKeyFile
		config.kubeletsAnywhere = true
	})
	if !strings.HasPrefix(c.address, "[::1]:") {
		t.Fatalf("it serves at %s", c.address)
	}
	status, _ := kubeletOf(t, c.ca, "[::1]:0", "n1", "a")
	hub := c.hub(t, "n1")
	hub.Ask()
	meta := pooltest.CloudMeta("n1", 5)
	meta.Namespace = ""
	hub.Must(pooltest.KindNode, pooltest.Put(pooltest.AsObject(t, &corev1.Node{ObjectMeta: meta, Status: status})))
	hub.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10)))

	_, port, err := net.SplitHostPort(c.address)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{c.address, net.JoinHostPort("127.0.0.1", port)} {
		if err := eventually(t.Context(), func() error {
			conn, err := net.Dial("tcp", at)
			if err == nil {
				err = conn.Close()
			}
			return err
		}); err != nil {
			t.Fatalf("it does not serve at %s: %v", at, err)
		}
		c.address = at
		operator := c.as(t, pooltest.Operator())
		pods, err := operator.CoreV1().Pods("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(pods.Items) != 1 {
			t.Fatalf("at %s: %v, %v", at, pods, err)
		}
		raw, err := operator.CoreV1().RESTClient().Get().AbsPath("/apis/metrics.k8s.io/v1beta1/nodes").DoRaw(t.Context())
		var nodes metricsv1beta1.NodeMetricsList
		if err == nil {
			err = json.Unmarshal(raw, &nodes)
		}
		if err != nil || len(nodes.Items) != 1 {
			t.Fatalf("at %s: %s, %v; want figures of n1", at, raw, err)
		}
	}
}
