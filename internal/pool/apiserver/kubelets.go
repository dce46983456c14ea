package apiserver

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/cluster/ports"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
)

// kubeletTimeout bounds the connection to a kubelet, which is on the same LAN. It is Kubernetes' default.
const kubeletTimeout = 5 * time.Second

// Kubelets says how to reach kubelets. Empty files mean that no client certificate is shown, and that serving
// certificates are not verified.
type Kubelets struct {
	CertFile, KeyFile, CAFile string
}

// Reach returns the transport to kubelets, their port, and the types of Node addresses to try, in order.
func (k Kubelets) Reach() (_ http.RoundTripper, port int, addressTypes []corev1.NodeAddressType, err error) {
	config := k.client()
	transport, err := kubeletclient.MakeTransport(&config)
	if err != nil {
		return nil, 0, nil, err
	}
	for _, name := range config.PreferredAddressTypes {
		addressTypes = append(addressTypes, corev1.NodeAddressType(name))
	}
	return transport, int(config.Port), addressTypes, nil
}

func (k Kubelets) client() kubeletclient.KubeletClientConfig {
	return kubeletclient.KubeletClientConfig{
		Port:         ports.KubeletPort,
		ReadOnlyPort: ports.KubeletReadOnlyPort,
		// Addresses come before names: a site's resolver may be down, or in the cloud.
		PreferredAddressTypes: []string{string(corev1.NodeInternalIP), string(corev1.NodeExternalIP),
			string(corev1.NodeInternalDNS), string(corev1.NodeHostName)},
		HTTPTimeout: kubeletTimeout,
		TLSClientConfig: kubeletclient.KubeletTLSConfig{
			CertFile: k.CertFile,
			KeyFile:  k.KeyFile,
			CAFile:   k.CAFile,
		},
	}
}
