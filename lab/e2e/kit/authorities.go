package kit

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/lab"
)

// PodAuthorities returns the authorities, in PEM, by which the node's Pods verify the API server, and so their hub, as kubelet
// gets them.
func (node Node) PodAuthorities() ([]byte, error) {
	access, err := node.t.Lab.HubConfig(node.name)
	if err != nil {
		return nil, err
	}
	access.UserAgent, access.Timeout = "kubelet/lab", 20*time.Second
	connections, err := rest.HTTPClientFor(access)
	if err != nil {
		return nil, err
	}
	defer utilnet.CloseIdleConnectionsFor(connections.Transport)
	client, err := kubernetes.NewForConfigAndClient(access, connections)
	if err != nil {
		return nil, err
	}
	found, err := client.CoreV1().ConfigMaps(Namespace).Get(node.t.Ctx, lab.RootConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("what Pods of %s verify their hub by: %w", node.name, err)
	}
	return []byte(found.Data["ca.crt"]), nil
}

// ServesPods waits until each hub of the pool has a certificate by the pool's authority, and serves Pods with it.
func (pool Pool) ServesPods() {
	pool.t.Eventually(60*time.Second, "all hubs have a certificate for Pods", func() error {
		for node, h := range pool.Hubs() {
			if h.Identity == nil || h.Identity.Serving.NotAfter.IsZero() {
				return fmt.Errorf("%s: %+v", node, h.Identity)
			}
		}
		return nil
	})
}
