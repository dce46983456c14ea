package views

import (
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// KubeProxy shows kubelet kube-proxy's kubeconfig, which kubeadm makes, with the hub as its server. A kube-proxy with a
// kubeconfig ignores the address that kubelet tells Pods. The function KubeProxyInputs returns the inputs of Form.
var KubeProxy = Shown{Namespace: "kube-system", Name: "kube-proxy", Key: "kubeconfig.conf", Form: throughHub}

// KubeProxyInputs returns the inputs of KubeProxy: the hub's URL for Pods, and the CA certificates that verify the hub, in PEM.
// An empty URL leaves the kubeconfig unchanged.
func KubeProxyInputs(url, authorities string) string {
	if url == "" {
		return ""
	}
	return url + "\n" + authorities
}

// ofPods is the file in a Pod with the cluster's CA certificates. Because of RootCA it also has those of the node's hub.
const ofPods = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

// throughHub returns a kubeconfig with the hub as its server, for the same user. It changes nothing if it can't read the
// kubeconfig, if the user has no token, or if kube-proxy could not verify the hub.
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
