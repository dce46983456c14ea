package views

import (
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubeProxy is kube-proxy's kubeconfig, in the ConfigMap that kubeadm makes for the kube-proxy of all nodes. kubelet sees the
// kubeconfig with the hub as its server, because a kube-proxy with a kubeconfig ignores the address that kubelet tells Pods.
// KubeProxyInputs returns its inputs.
var KubeProxy = Shown{Namespace: "kube-system", Name: "kube-proxy", Key: "kubeconfig.conf", Form: throughHub}

// KubeProxyInputs returns the inputs of KubeProxy: the hub's URL for Pods, and the CA certificates that verify the hub, in PEM.
// An empty URL leaves the kubeconfig unchanged.
func KubeProxyInputs(url, authorities string) string {
	if url == "" {
		return ""
	}
	return url + "\n" + authorities
}

// ofPods is the file in a Pod with its cluster's CA certificates. In the form that kubelet sees (RootCA), it also has those of
// the Pod's hub.
const ofPods = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

// throughHub points a kubeconfig to the hub, with the same user. It leaves the kubeconfig unchanged if it can't read it, or if
// kube-proxy could not verify the hub by it.
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

// byToken reports whether a user authenticates with a token. The hub asks Pods for no certificate, so no other user can use it.
func byToken(user *clientcmdapi.AuthInfo) bool {
	return user != nil && (user.Token != "" || user.TokenFile != "")
}
