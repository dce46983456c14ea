package views

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// asKubeadm is kube-proxy's kubeconfig as kubeadm has it (cmd/kubeadm/app/phases/addons/proxy), with places for changes.
const asKubeadm = `apiVersion: v1
kind: Config
clusters:
- cluster:
    @AUTHORITY@
    server: https://cloud.example:6443
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    @USER@
`

func TestKubeProxyGoesThroughTheHub(t *testing.T) {
	const hub, authorities = "https://10.0.0.7:10268", "hub's\n"
	const token = "tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token"
	const ofPod = "certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	for name, tt := range map[string]struct {
		authority, user, inputs string
		through                 bool
		data                    string // of the authority, as shown
	}{
		"kubeadm's":       {ofPod, token, KubeProxyInputs(hub, authorities), true, ""},
		"no hub yet":      {ofPod, token, "", false, ""},
		"no hub any more": {ofPod, token, KubeProxyInputs("", authorities), false, ""},
		"its authority is in it": {"certificate-authority-data: Y2xvdWQncwo=", token, KubeProxyInputs(hub, authorities), true,
			"cloud's\nhub's\n"},
		"another authority's file": {"certificate-authority: /etc/ca.crt", token, KubeProxyInputs(hub, authorities), false, ""},
		"no authority":             {"insecure-skip-tls-verify: true", token, KubeProxyInputs(hub, authorities), false, ""},
		"a certificate of its own": {ofPod, "client-certificate: /etc/proxy.crt\n    client-key: /etc/proxy.key",
			KubeProxyInputs(hub, authorities), false, ""},
		"a way of its own": {ofPod + "\n    proxy-url: http://proxy:3128\n    tls-server-name: cloud.example", token,
			KubeProxyInputs(hub, authorities), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			raw := strings.NewReplacer("@AUTHORITY@", tt.authority, "@USER@", tt.user).Replace(asKubeadm)
			shown := KubeProxy.Form(raw, tt.inputs)
			if !tt.through {
				if shown != raw {
					t.Errorf("it is shown as\n%s", shown)
				}
				return
			}
			got, err := clientcmd.Load([]byte(shown))
			if err != nil {
				t.Fatal(err)
			}
			want, err := clientcmd.Load([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			cluster := got.Clusters["default"]
			if cluster.Server != hub || cluster.ProxyURL != "" || cluster.TLSServerName != "" ||
				string(cluster.CertificateAuthorityData) != tt.data ||
				cluster.CertificateAuthority != want.Clusters["default"].CertificateAuthority {
				t.Errorf("its cluster is %+v", cluster)
			}
			if user := got.AuthInfos["default"]; user.TokenFile != want.AuthInfos["default"].TokenFile {
				t.Errorf("its user is %+v", user)
			}
			if again := KubeProxy.Form(raw, tt.inputs); again != shown {
				t.Error("it is shown in two forms")
			}
		})
	}
	for _, rubbish := range []string{"", "{", "kind: Config\n"} {
		if shown := KubeProxy.Form(rubbish, KubeProxyInputs(hub, authorities)); shown != rubbish {
			t.Errorf("%q is shown as %q", rubbish, shown)
		}
	}
}
