package views

import (
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubeProxy is kube-proxy's kubeconfig, in the ConfigMap that kubeadm makes for the kube-proxy of all nodes. It is shown with the
// hub as its server, since kube-proxy with a kubeconfig does not go where Pods are told that the API server is. Its inputs are
// those of KubeProxyInputs.
var KubeProxy = Shown{Namespace: "kube-system", Name: "kube-proxy", Key: "kubeconfig.conf", Form: throughHub}

// KubeProxyInputs returns what KubeProxy depends on: the hub's URL for Pods, and in PEM the authorities that verify it. An empty
// URL has the kubeconfig shown as it is.
func KubeProxyInputs(url, authorities string) string {
	if url == "" {
		return ""
	}
	return url + "\n" + authorities
}

// ofPods is where a Pod has the authorities of its cluster and, as kubelet sees them (RootCA), of its hub.
const ofPods = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

// throughHub has a kubeconfig lead to the hub, as the same user. It leaves one as it is that it can't read, or with which nobody
// could verify the hub.
func throughHub(kubeconfig, inputs string) string {
	url, authorities, ok := strings.Cut(inputs, "\n")
	if !ok {
		return kubeconfig
	}
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return kubeconfig
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || !byToken(config.AuthInfos[current.AuthInfo]) {
		return kubeconfig
	}
	cluster := config.Clusters[current.Cluster]
	switch {
	case len(cluster.CertificateAuthorityData) > 0:
		cluster.CertificateAuthorityData = []byte(withAuthorities(string(cluster.CertificateAuthorityData), authorities))
	case cluster.CertificateAuthority != ofPods:
		return kubeconfig
	}
	cluster.Server, cluster.TLSServerName, cluster.ProxyURL = url, "", ""
	shown, err := clientcmd.Write(*config)
	if err != nil {
		return kubeconfig
	}
	return string(shown)
}

// byToken reports whether a user is known by a token: the hub asks Pods for no certificate.
func byToken(user *clientcmdapi.AuthInfo) bool {
	return user != nil && (user.Token != "" || user.TokenFile != "")
}
