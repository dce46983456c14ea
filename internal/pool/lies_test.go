package pool

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/version"
)

// TestALyingNode: it says that its kubelet is where something else is, and that a neighbour's Pod is its own. Nobody is
// connected to it, and the Pod is shown as nobody's.
func TestALyingNode(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	victim, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer victim.Close()
	reached := make(chan struct{})
	go func() {
		if conn, err := victim.Accept(); err == nil {
			_ = conn.Close()
			close(reached)
		}
	}()
	at := netip.MustParseAddrPort(victim.Addr().String())
	honest, liar := c.hub(t, "n1"), c.hub(t, "n2")
	honest.Ask()
	liar.Ask()
	meta := pooltest.CloudMeta("n2", 5)
	meta.Namespace = ""
	liar.Must(pooltest.KindNode, pooltest.Put(pooltest.AsObject(t, &corev1.Node{ObjectMeta: meta, Status: corev1.NodeStatus{
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.Addr().String()}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(at.Port())}},
	}})))
	liar.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "bait", 9)))
	honest.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "till", 10)))
	operator := c.as(t, pooltest.Operator()).CoreV1().Pods("shop")
	err = operator.GetLogs("bait", &corev1.PodLogOptions{}).Do(t.Context()).Error()
	if err == nil || !strings.Contains(err.Error(), "only at 10250") {
		t.Errorf("logs: %v, want a message that says where kubelets are called", err)
	}
	select {
	case <-reached:
		t.Error("the coordinator connected to what is no kubelet")
	default:
	}

	if _, err := operator.Get(t.Context(), "till", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	liar.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "till", 50)))
	if got, err := operator.Get(t.Context(), "till", metav1.GetOptions{}); err == nil {
		t.Errorf("a Pod that two nodes claim is shown as that of %s", got.Spec.NodeName)
	}
}

// TestOwnMetrics are served with kube-apiserver's, once in a process: it runs while no other coordinator does.
func TestOwnMetrics(t *testing.T) {
	c := start(t, nil)
	code, body := c.get(t, c.http(t, c.certificate(t, pooltest.Operator())), "/metrics")
	for _, name := range []string{
		"yurt_coordinator_contested_pods", "yurt_coordinator_contests_total",
	} {
		if code != http.StatusOK || !strings.Contains(body, "\n"+name+" 0\n") {
			t.Errorf("/metrics: %d, without %s", code, name)
		}
	}
	want := `,version="` + version.Get().Version + `"} 1`
	if !strings.Contains(body, "\nyurt_coordinator_build_info{") || !strings.Contains(body, want) {
		t.Errorf("/metrics do not say that it is of %s", version.Get().Version)
	}
}
