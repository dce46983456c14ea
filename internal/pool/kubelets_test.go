package pool

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
)

// TestWhereAKubeletIsOnTheLAN: where the Node's annotation says, in the coordinator's own IP family if it says one of that.
func TestWhereAKubeletIsOnTheLAN(t *testing.T) {
	for _, tt := range []struct{ self, said, want string }{
		{"192.0.2.1", "", "[{InternalIP 10.0.0.7} {InternalIP fd00::7}]"},
		{"fd00::1", "", "[{InternalIP fd00::7} {InternalIP 10.0.0.7}]"},
		{"192.0.2.1", "192.168.7.11", "[{InternalIP 192.168.7.11}]"},
		{"192.0.2.1", "fd00::11,192.168.7.11", "[{InternalIP 192.168.7.11} {InternalIP fd00::11}]"},
		{"fd00::1", "192.168.7.11,fd00::11", "[{InternalIP fd00::11} {InternalIP 192.168.7.11}]"},
		{"fd00::1", "192.168.7.11", "[{InternalIP 192.168.7.11}]"},
		{"192.0.2.1", "127.0.0.1", "[{InternalIP 10.0.0.7} {InternalIP fd00::7}]"},
		{"fd00::1", "192.168.7.11,metadata.internal", "[{InternalIP fd00::7} {InternalIP 10.0.0.7}]"},
	} {
		c := wiring{config: Config{BindAddress: tt.self}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{edge.AnnotationLANAddress: tt.said}}}
		node.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "fd00::7"},
			{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}, {Type: corev1.NodeExternalIP, Address: "198.51.100.7"},
		}
		if got := fmt.Sprint(c.onLAN(node)); got != tt.want {
			t.Errorf("of %q, from %s: %s, want %s", tt.said, tt.self, got, tt.want)
		}
		node.Status.Addresses = node.Status.Addresses[:2]
		if tt.said == "" && c.onLAN(node) != nil {
			t.Errorf("of one address, from %s: %v", tt.self, c.onLAN(node))
		}
	}
}

// TestAKubeletThatSignedItself: kubeadm's kubelets have such certificates. A coordinator takes exactly the one that the node has
// told of on its own Lease, and nobody else can tell of it.
func TestAKubeletThatSignedItself(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) {
		config.KubeletCertificateAuthority = config.ClientCAFile
		config.KubeletClientCertificate, config.KubeletClientKey = config.TLSCertFile, config.TLSPrivateKeyFile
		config.kubeletsAnywhere = true
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("hello from the edge"))
	}))
	own := pooltest.NewAuthority(t, "a kubelet of kubeadm's").Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	at := server.Listener.Addr().(*net.TCPAddr)
	sum := sha256.Sum256(own.Certificate[0])
	pin := edge.KubeletServing{Way: edge.KubeletPinned, Digest: hex.EncodeToString(sum[:])}.String()

	hub := c.hub(t, "n1")
	hub.Ask()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1", ResourceVersion: "1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at.Port)
	hub.Must(pooltest.KindNode, pooltest.Put(pooltest.AsObject(t, node)))
	hub.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 2)))

	operator := c.as(t, pooltest.Operator())
	logs := func(o corev1.PodLogOptions) (string, error) {
		o.Container = "c"
		text, err := operator.CoreV1().Pods("shop").GetLogs("a", &o).DoRaw(t.Context())
		return string(text), err
	}
	refused := func(when, why string) {
		t.Helper()
		for _, o := range []corev1.PodLogOptions{{}, {InsecureSkipTLSVerifyBackend: true}} {
			if text, err := logs(o); err == nil || !strings.Contains(text, why) {
				t.Errorf("%s: %q, %v, want %q", when, text, err, why)
			}
		}
	}
	refused("before its hub has told of it", "run yurthub check on the node")

	leases := c.as(t, pooltest.Node("n1")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	holder := "n1"
	lease, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{edge.AnnotationKubelet: pin}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := logs(corev1.PodLogOptions{}); err != nil || text != "hello from the edge" {
		t.Errorf("logs of a kubelet that is pinned: %q, %v", text, err)
	}

	other := strings.Repeat("0", 64)
	patch := []byte(`{"metadata":{"annotations":{"` + edge.AnnotationKubelet + `":"pinned/` + other + `"}}}`)
	for who, client := range map[string]kubernetes.Interface{"another node": c.as(t, pooltest.Node("n2")),
		"an operator": operator} {
		_, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(t.Context(), "n1", types.MergePatchType, patch,
			metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s tells of n1's kubelet: %v", who, err)
		}
	}
	if _, err := logs(corev1.PodLogOptions{}); err != nil {
		t.Errorf("after others have tried: %v", err)
	}

	lease.Annotations[edge.AnnotationKubelet] = "pinned/" + other
	if lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("with another one pinned", "another program may hold the port")
	lease.Annotations[edge.AnnotationKubelet] = "pinned/" + other[1:]
	if _, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused("with a pin that is none", "run yurthub check on the node")
}

// TestANodeThatNamesAnothersKubelet: n2 pushes a Node with the address of n1's kubelet, and reports its certificate, too.
func TestANodeThatNamesAnothersKubelet(t *testing.T) {
	t.Parallel()
	for common, want := range map[string][2]string{ // of n1, of n2
		"n1@1700000000":  {"", "the hub of node n1 has reported the same"},
		"system:node:n1": {"", "is that of node"},
		"kubelet":        {"the hub of node n2 has reported the same", "the hub of node n1 has reported the same"},
	} {
		t.Run(common, func(t *testing.T) {
			t.Parallel()
			c := start(t, func(config *Config) { config.kubeletsAnywhere = true })
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("secret words"))
			}))
			own := pooltest.NewAuthority(t, "a kubelet").Issue(t, pkix.Name{CommonName: common}, pooltest.Tomorrow()).TLS(t)
			server.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
			server.StartTLS()
			t.Cleanup(server.Close)
			at := server.Listener.Addr().(*net.TCPAddr)
			sum := sha256.Sum256(own.Certificate[0])
			pin := edge.KubeletServing{Way: edge.KubeletPinned, Digest: hex.EncodeToString(sum[:])}.String()
			for _, name := range []string{"n1", "n2"} {
				hub := c.hub(t, edge.NodeName(name))
				hub.Ask()
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}
				node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.IP.String()}}
				node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at.Port)
				hub.Must(pooltest.KindNode, pooltest.Put(pooltest.AsObject(t, node)))
				hub.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, edge.NodeName(name), "of-"+name, 2)))
				lease := heartbeat(name)
				lease.Annotations = map[string]string{edge.AnnotationKubelet: pin}
				leases := c.as(t, pooltest.Node(name)).CoordinationV1().Leases(corev1.NamespaceNodeLease)
				_, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
				allowed(t, name+"'s heartbeat", err)
			}
			operator := c.as(t, pooltest.Operator())
			for i, name := range []string{"n1", "n2"} {
				err := eventually(t.Context(), func() error { // until the coordinator's own copy has both Leases
					o := corev1.PodLogOptions{Container: "c"}
					text, err := operator.CoreV1().Pods("shop").GetLogs("of-"+name, &o).DoRaw(t.Context())
					if (err == nil) != (want[i] == "") || !strings.Contains(string(text), want[i]) {
						return fmt.Errorf("%q, %w", text, errors.Join(err, errors.New("want: "+want[i])))
					}
					return nil
				})
				allowed(t, "the logs of "+name, err)
			}
		})
	}
}
