package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/logs/logstest"
)

// kubeconfig writes one for an API server.
func kubeconfig(t *testing.T, c *rest.Config) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := clientcmdapi.NewConfig()
	content.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	content.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	content.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	content.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*content, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// aPool makes a pool of three nodes that has a coordinator.
func aPool(t *testing.T, c client.Client) {
	t.Helper()
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: edge.NamespaceKeys}},
		&v1beta2.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p1"}, Spec: v1beta2.NodePoolSpec{Type: v1beta2.Edge}},
		&v1alpha1.YurtCoordinator{
			ObjectMeta: metav1.ObjectMeta{Name: "p1"}, Spec: v1alpha1.YurtCoordinatorSpec{NodePool: "p1"},
		},
	}
	for i := range 3 {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%d", i+1), Labels: map[string]string{edge.LabelNodePool: "p1"},
		}})
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOneFormAndNoSecret: the controllers, their library and its clients log in one form, all that there is, and nothing of the
// keys that they make.
func TestOneFormAndNoSecret(t *testing.T) {
	server := cloudtest.Start(t)
	c := cloudtest.Client(t, server)
	aPool(t, c)
	p := logstest.Start(t, "--kubeconfig="+kubeconfig(t, server), "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--leader-elect=false", "--coordinator-image=example.org/yurt-coordinator", "--logging-format=json", "-v=9")
	var keys []string
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 3*time.Minute, true,
		func(ctx context.Context) (_ bool, err error) {
			keys, err = keysOf(ctx, c)
			return len(keys) > 0, err
		}); err != nil {
		t.Fatalf("the pool gets no keys: %v\n%s", err, p.Log())
	}
	if err := p.Stop(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if highest := logstest.Highest(logstest.Entries(t, p.Log())); highest < 6 || highest > 7 {
		t.Errorf("the highest level is %d", highest)
	}
	log := p.Log()
	for _, key := range keys {
		if strings.Contains(log, key) || strings.Contains(log, base64.StdEncoding.EncodeToString([]byte(key))) {
			t.Errorf("%s is in the log", key)
		}
	}
}

// keysOf returns the private keys in Secrets: each as PEM, and a line of it.
func keysOf(ctx context.Context, c client.Client) (parts []string, err error) {
	var secrets corev1.SecretList
	if err := c.List(ctx, &secrets, client.InNamespace(edge.NamespaceKeys)); err != nil {
		return nil, err
	}
	for _, s := range secrets.Items {
		for _, value := range s.Data {
			if lines := strings.Split(string(value), "\n"); strings.Contains(lines[0], "PRIVATE KEY") {
				parts = append(parts, string(value), lines[1])
			}
		}
	}
	return parts, nil
}

func TestWhatIsWrongIsToldInJSON(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--logging-format=json"}, "--coordinator-image"},
		{[]string{"--bogus", "--logging-format=json"}, "--bogus"},
	} {
		log := logstest.Ends(t, tt.args...)
		if all := logstest.Entries(t, log); len(all) != 1 || !strings.Contains(fmt.Sprint(all[0]["err"]), tt.want) {
			t.Errorf("%v: %s", tt.args, log)
		}
	}
	const want = "coordinator-controller: --logging-format \"xml\": want text or json"
	if log := logstest.Ends(t, "--logging-format=xml"); log != want {
		t.Errorf("a form that is none: %s", log)
	}
}
