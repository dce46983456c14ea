package thief

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var controllerScenarios = []kit.Scenario{{
	Name: "compromised-controller", Lab: kit.OnePool.AsInstalled(), Run: compromisedController,
	Doc: "Somebody has coordinator-controller's token, then coordinator-approver's, and tries to become an administrator " +
		"through Secrets, certificates, workloads, Nodes, Pods and roles. All attempts are refused and counted by the API " +
		"server, while a coordinator is being recreated.",
}}

const (
	controllerAccount, approverAccount = "coordinator-controller", "coordinator-approver"
	// powerful is a ServiceAccount that may give itself any right, wherever kube-controller-manager runs.
	powerful = "clusterrole-aggregation-controller"
)

// robber is a thief with a ServiceAccount's token.
type robber struct {
	*kit.T
	kubernetes.Interface
	access *rest.Config
}

// asAccount takes the token of a ServiceAccount of kube-system, as the account's Pod has it.
func asAccount(t *kit.T, account string) robber {
	token, err := t.Cloud.CoreV1().ServiceAccounts(edge.NamespaceSystem).CreateToken(t.Ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	t.Must(err)
	access, err := t.Lab.CloudConfig()
	t.Must(err)
	access = rest.AnonymousClientConfig(access)
	access.BearerToken, access.QPS = token.Status.Token, -1
	client := t.Client(access)
	return robber{t, client, access}
}

func compromisedController(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	thief := asAccount(t, controllerAccount)
	for policy, count := range denials(t) {
		if count > 0 {
			t.Fail("%s has refused the controllers' own work %v times", policy, count)
		}
	}
	t.Say("with the token of %s", controllerAccount)
	thief.secrets()
	thief.rights()
	thief.workloads()
	thief.nodes()
	forAdministrator := thief.certificates()

	t.Say("with the token of %s", approverAccount)
	asAccount(t, approverAccount).approves(forAdministrator)

	attacked := denials(t)
	for policy, count := range attacked {
		if count == 0 {
			t.Fail("the API server counts no refusal by %s", policy)
		}
		t.Say("counted: %v refusals by %s", count, policy)
	}

	t.Say("the controllers' own work goes on: the coordinator is made anew")
	coordinators := t.Cloud.Objects.Resource(lab.YurtCoordinators)
	t.Must(coordinators.Delete(t.Ctx, "p1", metav1.DeleteOptions{}))
	t.Cloud.Gone("p1", "p1")
	_, err := coordinators.Create(t.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lab.YurtCoordinators.GroupVersion().String(), "kind": "YurtCoordinator",
		"metadata": map[string]any{"name": "p1"}, "spec": map[string]any{"nodePool": "p1"},
	}}, metav1.CreateOptions{})
	t.Must(err)
	took := t.Eventually(90*time.Second, "it is Ready", func() error { return t.Cloud.Condition("p1", "Ready", "True", "") })
	t.Pool.Settled(time.Minute)
	t.Figure("coordinator_anew_s", took.Seconds())
	if now := denials(t); !maps.Equal(now, attacked) {
		t.Fail("the policies have refused the controllers' own work: %v, before %v", now, attacked)
	}
}

// secrets tries to get at bootstrap tokens, others' Secrets, and tokens of ServiceAccounts.
func (r robber) secrets() {
	const bootstrap = "bootstrap-token-abcdef"
	system := r.CoreV1().Secrets(edge.NamespaceSystem)
	_, err := r.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Create(r.Ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: bootstrap},
	}, metav1.CreateOptions{})
	r.Must(err)
	_, err = system.Get(r.Ctx, bootstrap, metav1.GetOptions{})
	refused(r.T, "a bootstrap token", err, "cannot get resource")
	_, err = r.CoreV1().Secrets("").List(r.Ctx, metav1.ListOptions{})
	refused(r.T, "Secrets of all namespaces", err, "cannot list resource")
	_, err = system.Create(r.Ctx, &corev1.Secret{
		Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
			Name: edge.PoolName("p8").CoordinatorSecret(), Annotations: map[string]string{corev1.ServiceAccountNameKey: powerful},
		},
	}, metav1.CreateOptions{})
	refused(r.T, "a Secret that Kubernetes writes a ServiceAccount's token into", err, corev1.ServiceAccountNameKey)
	_, err = r.CoreV1().ServiceAccounts(edge.NamespaceSystem).CreateToken(r.Ctx, powerful, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	refused(r.T, "a ServiceAccount's token", err, "cannot create resource")
}

// rights tries to get others' rights.
func (r robber) rights() {
	_, err := r.RbacV1().ClusterRoles().Create(r.Ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "thief"}},
		metav1.CreateOptions{})
	refused(r.T, "a ClusterRole", err, "cannot create resource")
	_, err = r.RbacV1().Roles(corev1.NamespaceNodeLease).Create(r.Ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: edge.PoolName("p8").Forwarder()},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	refused(r.T, "a Role for everything, by its right to escalate", err, "may give rights only")
	other := rest.CopyConfig(r.access)
	other.Impersonate = rest.ImpersonationConfig{UserName: "kubernetes-admin", Groups: []string{"system:masters"}}
	admin := r.Client(other)
	_, err = admin.CoreV1().Secrets(edge.NamespaceSystem).List(r.Ctx, metav1.ListOptions{})
	refused(r.T, "acting as an administrator", err, "cannot impersonate")
	err = r.CoreV1().RESTClient().Post().Namespace(edge.NamespaceSystem).Resource("pods").Name(r.Pool.CoordinatorPod().Name).
		SubResource("exec").VersionedParams(&corev1.PodExecOptions{Command: []string{"id"}, Stdout: true},
		scheme.ParameterCodec).Do(r.Ctx).Error()
	refused(r.T, "a command in a Pod", err, "pods/exec")
}

// workloads tries to run Pods that would have more rights than the robber has.
func (r robber) workloads() {
	genuine := r.Pool.CoordinatorPod()
	deployments, err := r.Cloud.AppsV1().Deployments(edge.NamespaceSystem).List(r.Ctx, metav1.ListOptions{})
	r.Must(err)
	i := slices.IndexFunc(deployments.Items, func(d appsv1.Deployment) bool {
		return strings.HasPrefix(genuine.Name, d.Name+"-")
	})
	if i < 0 {
		r.Fail("no Deployment has made %s", genuine.Name)
	}
	own := deployments.Items[i]
	try := func(namespace string, edit func(*corev1.PodSpec)) error {
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "yurt-coordinator-p8", OwnerReferences: own.OwnerReferences[:1],
			},
			Spec: *own.Spec.DeepCopy(),
		}
		d.Spec.Template.Spec.NodeSelector = map[string]string{edge.LabelNodePool: "p1"}
		edit(&d.Spec.Template.Spec)
		_, err := r.AppsV1().Deployments(namespace).Create(r.Ctx, d, metav1.CreateOptions{DryRun: []string{"All"}})
		return err
	}
	const system = edge.NamespaceSystem
	hostPath := corev1.Volume{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}
	r.Must(try(system, func(*corev1.PodSpec) {}))
	refused(r.T, "a Deployment with a hostPath", try(system, func(p *corev1.PodSpec) {
		p.Volumes = append(p.Volumes, hostPath)
	}), "only memory")
	refused(r.T, "a Deployment with another image", try(system, func(p *corev1.PodSpec) {
		p.Containers[0].Image = "evil:v1"
	}), "image.mirrors")
	refused(r.T, "a Deployment in another namespace", try(metav1.NamespaceDefault, func(*corev1.PodSpec) {}),
		"cannot create resource")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "yurthub-upgrade-p1-n1"}, Spec: corev1.PodSpec{
		NodeName: r.Pool.Follower(), Containers: genuine.Spec.Containers[:1], Volumes: []corev1.Volume{hostPath},
	}}
	p.Spec.Containers[0].VolumeMounts = nil
	_, err = r.CoreV1().Pods(system).Create(r.Ctx, p, metav1.CreateOptions{DryRun: []string{"All"}})
	refused(r.T, "a Pod that upgrades a hub, with a hostPath", err, "directories for upgrades")
}

// nodes tries to change a Node and a Pod.
func (r robber) nodes() {
	node := r.Pool.Follower()
	address := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"192.0.2.9"}}}`, edge.AnnotationLANAddress)
	_, err := r.CoreV1().Nodes().Patch(r.Ctx, node, types.MergePatchType, address, metav1.PatchOptions{})
	refused(r.T, node+" gets another address in the LAN", err, "its address in the LAN")
	pod := r.Pool.CoordinatorPod()
	image := fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"image":"evil"}]}}`, pod.Spec.Containers[0].Name)
	_, err = r.CoreV1().Pods(pod.Namespace).Patch(r.Ctx, pod.Name, types.StrategicMergePatchType, image, metav1.PatchOptions{})
	refused(r.T, "a Pod gets another image", err, "of a Pod only")
}

// certificates asks for an administrator's certificate, and returns the request's name.
func (r robber) certificates() string {
	requests := r.CertificatesV1().CertificateSigningRequests()
	_, err := requests.Create(r.Ctx, administrators(r.T, "thief"), metav1.CreateOptions{})
	refused(r.T, "asking for a client's certificate by any name", err, "may ask only")
	const name = "yurt-coordinator-p1-kubelet-client-0123456789abcdef"
	asked, err := requests.Create(r.Ctx, administrators(r.T, name), metav1.CreateOptions{})
	r.Must(err)
	_, err = requests.UpdateApproval(r.Ctx, name, approved(asked), metav1.UpdateOptions{})
	refused(r.T, "approving its own request", err, "cannot update resource")
	r.Eventually(30*time.Second, "an Event says why the request is not approved", func() error {
		events, err := r.Cloud.CoreV1().Events(metav1.NamespaceDefault).List(r.Ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + name,
		})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if strings.Contains(e.Message, "kubeadm:cluster-admins") {
				r.Say("Event of %s: %s", name, e.Message)
				return nil
			}
		}
		return fmt.Errorf("none of %d Events does", len(events.Items))
	})
	if approvedNow(r.T, name) == nil {
		r.Fail("%s is approved", name)
	}
	return name
}

// approves tries what the approver's token alone is good for.
func (r robber) approves(ofTheController string) {
	requests := r.CertificatesV1().CertificateSigningRequests()
	_, err := requests.Create(r.Ctx, administrators(r.T, "thief"), metav1.CreateOptions{})
	refused(r.T, "asking for a certificate", err, "cannot create resource")
	others, err := r.Cloud.CertificatesV1().CertificateSigningRequests().Create(r.Ctx, administrators(r.T, "somebody"),
		metav1.CreateOptions{})
	r.Must(err)
	_, err = requests.UpdateApproval(r.Ctx, others.Name, approved(others), metav1.UpdateOptions{})
	refused(r.T, "approving anybody's request for a client's certificate", err, "only those that coordinator-controller")
	_, err = r.CoreV1().Secrets(edge.NamespaceSystem).List(r.Ctx, metav1.ListOptions{})
	refused(r.T, "Secrets", err, "cannot list resource")
	_, err = r.CoreV1().Pods("").List(r.Ctx, metav1.ListOptions{})
	refused(r.T, "Pods", err, "cannot list resource")
	_, err = r.CoreV1().Nodes().Patch(r.Ctx, r.Pool.Follower(), types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
	refused(r.T, "a patch of a Node", err, "cannot patch resource")
	_, err = r.CoreV1().ServiceAccounts(edge.NamespaceSystem).CreateToken(r.Ctx, controllerAccount,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	refused(r.T, "the other account's token", err, "cannot create resource")
	if approvedNow(r.T, ofTheController) == nil {
		r.Fail("%s is approved", ofTheController)
	}
}

// administrators is a request for a client certificate in the group of kubeadm's administrators.
func administrators(t *kit.T, name string) *certificatesv1.CertificateSigningRequest {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	t.Must(err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "thief", Organization: []string{"kubeadm:cluster-admins"}},
	}, key)
	t.Must(err)
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: ptr.To[int32](3600),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
}

func approved(r *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	r = r.DeepCopy()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Thief", Message: "x",
	})
	return r
}

// denials returns how often the API server says that our policies about the two accounts have refused something.
func denials(t *kit.T) map[string]float64 {
	counts := map[string]float64{}
	for _, policy := range []string{
		"controller-rights", "controller-workloads", "controller-nodes", "controller-upgraders", "controller-images",
		"approver-rights",
	} {
		counts[policy] = t.Cloud.Metric("apiserver_validating_admission_policy_check_total",
			`policy="`+policy+`.openyurt.io"`, `enforcement_action="deny"`)
	}
	return counts
}

// approvedNow fails unless a request is approved.
func approvedNow(t *kit.T, name string) error {
	r, err := t.Cloud.CertificatesV1().CertificateSigningRequests().Get(t.Ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range r.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved {
			return nil
		}
	}
	return fmt.Errorf("%s is not: %v", name, r.Status.Conditions)
}

// refused expects that an attempt was forbidden, for that reason.
func refused(t *kit.T, what string, err error, why string) {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
		t.Fail("%s: %v; want it forbidden, and a message that says %q", what, err, why)
	}
	t.Say("refused: %s: %v", what, err)
}
