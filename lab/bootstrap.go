package lab

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// BootstrapToken is the token with which nodes join the cloud in a lab with Config.Bootstrap. Like AdminToken it is not
// secret.
const BootstrapToken = "abcdef.0123456789abcdef"

// BootstrapSecret is the name of the Secret in kube-system that makes the token valid.
const BootstrapSecret = api.BootstrapTokenSecretPrefix + "abcdef"

// RootConfigMap is the ConfigMap of each namespace with the cloud's authorities.
const RootConfigMap = "kube-root-ca.crt"

// bootstrapFile is the file on a node with the bootstrap token. hubKeys is the directory where the node's hub keeps the
// certificates that it gets with the token. Both outlive a power cut.
const bootstrapFile, hubKeys = "bootstrap-token", "hub-pki"

// bootstrapping gives a cloud what kubeadm sets up for joining with a token: the token, the public facts about the
// cloud, and the rights to ask for a node's first and next certificate.
func bootstrapping(cloud, authority string) ([]client.Object, error) {
	ca, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: cloud, CertificateAuthorityData: ca}
	said, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", api.ConfigMapClusterInfo, err)
	}
	const reader, authorities = "yurtlab:cluster-info", "yurtlab:authorities"
	group := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}}
	}
	may := func(name, role, who string) client.Object {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "yurtlab:" + name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   group(who),
		}
	}
	const bootstrappers = api.BootstrapDefaultGroup
	return []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespacePublic}}, // the cloud makes it a bit later
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: BootstrapSecret},
			Type:       corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{
				api.BootstrapTokenIDKey: BootstrapToken[:6], api.BootstrapTokenSecretKey: BootstrapToken[7:],
				api.BootstrapTokenUsageAuthentication: "true", api.BootstrapTokenUsageSigningKey: "true",
			},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: api.ConfigMapClusterInfo},
			Data:       map[string]string{api.KubeConfigKey: string(said)},
		},
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: reader},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{api.ConfigMapClusterInfo},
				Verbs: []string{"get"},
			}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: reader},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: reader},
			Subjects:   group("system:unauthenticated"),
		},
		// In an installed lab the chart gives this right.
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: authorities},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{RootConfigMap},
				Verbs: []string{"get"},
			}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: authorities},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: authorities},
			Subjects:   group(edge.GroupNodes),
		},
		may("bootstrap", "system:node-bootstrapper", bootstrappers),
		may("approve-first", "system:certificates.k8s.io:certificatesigningrequests:nodeclient", bootstrappers),
		may("approve-next", "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", edge.GroupNodes),
	}, nil
}
