package thief

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
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
	_, err = system.List(r.Ctx, metav1.ListOptions{})
	refused(r.T, "all Secrets of kube-system", err, "cannot list resource")
	for what, patch := range map[string]struct {
		of   types.PatchType
		text string
	}{
		"a patch of nothing":      {types.MergePatchType, "{}"},
		"a patch of another type": {types.StrategicMergePatchType, `{"type":"x"}`},
		"a copy into the type":    {types.JSONPatchType, `[{"op":"copy","from":"/data/token-secret","path":"/type"}]`},
		"a copy into the labels":  {types.JSONPatchType, `[{"op":"copy","from":"/data","path":"/metadata/labels"}]`},
		"a copy into the owners":  {types.JSONPatchType, `[{"op":"copy","from":"/data","path":"/metadata/ownerReferences"}]`},
		"a move":                  {types.JSONPatchType, `[{"op":"move","from":"/data/token-secret","path":"/type"}]`},
		"a move into what is removed": {
			types.JSONPatchType, `[{"op":"remove","path":"/type"},{"op":"move","from":"/data/token-secret","path":"/type"}]`,
		},
		"an apply of another's type": {types.ApplyYAMLPatchType, `{"apiVersion":"v1","kind":"Secret","type":"x"}`},
	} {
		_, err = system.Patch(r.Ctx, bootstrap, patch.of, []byte(patch.text),
			metav1.PatchOptions{DryRun: []string{"All"}, FieldManager: "x"})
		refused(r.T, "a bootstrap token, by "+what, err, "cannot patch resource")
	}
	_, err = system.Update(r.Ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: bootstrap}},
		metav1.UpdateOptions{DryRun: []string{"All"}})
	refused(r.T, "a bootstrap token's content", err, "may touch only")
	_, err = r.CoreV1().Secrets("").List(r.Ctx, metav1.ListOptions{})
	refused(r.T, "Secrets of all namespaces", err, "cannot list resource")
	_, err = system.Create(r.Ctx, &corev1.Secret{
		Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
			Name: edge.PoolName("p8").CoordinatorSecret(), Annotations: map[string]string{corev1.ServiceAccountNameKey: powerful},
		},
	}, metav1.CreateOptions{})
	refused(r.T, "a Secret that Kubernetes writes a ServiceAccount's token into", err, corev1.ServiceAccountNameKey)
	_, err = system.Create(r.Ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: edge.PoolName("p8").CoordinatorSecret(), Labels: map[string]string{"owner": "helm", "name": "yurt-coordinator"},
	}}, metav1.CreateOptions{})
	refused(r.T, "a Secret that Helm takes for a release of its own", err, "only labels and annotations")
	_, err = r.CoreV1().ServiceAccounts(edge.NamespaceSystem).CreateToken(r.Ctx, powerful, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	refused(r.T, "a ServiceAccount's token", err, "cannot create resource")
}

// rights tries to get others' rights, and others' connections.
func (r robber) rights() {
	user := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: edge.NamespaceSystem, Name: controllerAccount}
	_, err := r.RbacV1().ClusterRoles().Create(r.Ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "thief"}},
		metav1.CreateOptions{})
	refused(r.T, "a ClusterRole", err, "cannot create resource")
	_, err = r.RbacV1().ClusterRoleBindings().Create(r.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "thief"}, Subjects: []rbacv1.Subject{user},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	refused(r.T, "being an administrator", err, "cannot create resource")
	_, err = r.RbacV1().Roles(corev1.NamespaceNodeLease).Create(r.Ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: edge.PoolName("p8").Forwarder()},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	refused(r.T, "a Role for everything, by its right to escalate", err, "may give rights only")
	_, err = r.RbacV1().Roles(edge.NamespaceSystem).Create(r.Ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: edge.PoolName("p8").DiscoveryConfigMap()},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"coredns"},
			Verbs: []string{"patch"},
		}},
	}, metav1.CreateOptions{})
	refused(r.T, "a node's right to another ConfigMap", err, "only to read ConfigMaps")
	settings := edge.PoolName("p8").SettingsConfigMap()
	_, err = r.RbacV1().Roles(edge.NamespaceSystem).Create(r.Ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: settings},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"},
			ResourceNames: []string{edge.PoolName("p1").SettingsConfigMap()}, Verbs: []string{"get"},
		}},
	}, metav1.CreateOptions{})
	refused(r.T, "a node's right to another pool's settings", err, "of a pool's settings")
	_, err = r.CoreV1().ConfigMaps(edge.NamespaceSystem).Create(r.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "thief"},
	}, metav1.CreateOptions{})
	refused(r.T, "a ConfigMap of another name", err, "may touch only")
	_, err = r.CoordinationV1().Leases(edge.NamespaceSystem).Create(r.Ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "thief"},
	}, metav1.CreateOptions{})
	refused(r.T, "another's leader election", err, "of its own leader election")
	_, err = r.CoreV1().Services(edge.NamespaceSystem).Create(r.Ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "thief"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}, ExternalIPs: []string{"192.0.2.1"}},
	}, metav1.CreateOptions{})
	refused(r.T, "a Service that takes others' connections", err, "only the Service")
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
	pool := map[string]string{edge.LabelNodePool: "p1"}
	genuine := r.Pool.CoordinatorPod()
	var set metav1.OwnerReference
	deployments, err := r.Cloud.AppsV1().Deployments(edge.NamespaceSystem).List(r.Ctx, metav1.ListOptions{})
	r.Must(err)
	var own *appsv1.Deployment
	for i, d := range deployments.Items {
		if strings.HasPrefix(genuine.Name, d.Name+"-") {
			own, set = &deployments.Items[i], d.OwnerReferences[0]
		}
	}
	if own == nil {
		r.Fail("no Deployment has made %s", genuine.Name)
	}
	try := func(what, namespace, why string, edit func(*corev1.PodSpec)) {
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "yurt-coordinator-p8", OwnerReferences: []metav1.OwnerReference{set},
			},
			Spec: *own.Spec.DeepCopy(),
		}
		d.Spec.Template.Spec.NodeSelector = pool
		edit(&d.Spec.Template.Spec)
		_, err := r.AppsV1().Deployments(namespace).Create(r.Ctx, d, metav1.CreateOptions{DryRun: []string{"All"}})
		if why == "" {
			r.Must(err)
			return
		}
		refused(r.T, "a Deployment "+what, err, why)
	}
	const system = edge.NamespaceSystem
	hostPath := corev1.Volume{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}
	secret := corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "bootstrap-token-abcdef"},
	}}
	try("like a coordinator's", system, "", func(*corev1.PodSpec) {})
	try("as another ServiceAccount", system, "ServiceAccount default", func(p *corev1.PodSpec) {
		p.ServiceAccountName = powerful
	})
	try("with a token", system, "without its token", func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = ptr.To(true) })
	try("with a hostPath", system, "only memory", func(p *corev1.PodSpec) { p.Volumes = append(p.Volumes, hostPath) })
	try("with another's Secret", system, "only memory", func(p *corev1.PodSpec) { p.Volumes = append(p.Volumes, secret) })
	try("with privileges", system, "without privileges", func(p *corev1.PodSpec) {
		p.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	})
	try("on the cloud's node", system, "on nodes of a pool", func(p *corev1.PodSpec) { p.NodeSelector = nil })
	for what, harm := range harms {
		try(what, system, harm.ofDeployments, harm.do)
	}
	try("in another namespace", metav1.NamespaceDefault, "cannot create resource", func(*corev1.PodSpec) {})
	take := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"serviceAccountName":%q}}}}`, powerful)
	_, err = r.AppsV1().Deployments(system).Patch(r.Ctx, controllerAccount, types.MergePatchType, take, metav1.PatchOptions{})
	refused(r.T, "its own Deployment, as another ServiceAccount", err, "coordinator-controller may ") // two policies refuse it
	pods := r.CoreV1().Pods(system)
	for name, why := range map[string]string{"coredns": "names begin with", "yurthub-upgrade-p1-n1": "directories for upgrades",
		"yurtappset-pull-p1-n1": "directories for upgrades"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			NodeName: r.Pool.Follower(), Containers: genuine.Spec.Containers[:1], Volumes: []corev1.Volume{hostPath},
		}}
		p.Spec.Containers[0].VolumeMounts = nil
		_, err = pods.Create(r.Ctx, p, metav1.CreateOptions{DryRun: []string{"All"}})
		refused(r.T, "a Pod that is called "+name+", with a hostPath", err, why)
	}
	for what, harm := range harms {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "yurthub-pull-p1-n1"}, Spec: pulls(genuine.Spec.Containers[0].Image)}
		_, err = pods.Create(r.Ctx, p, metav1.CreateOptions{DryRun: []string{"All"}})
		r.Must(err)
		harm.do(&p.Spec)
		_, err = pods.Create(r.Ctx, p, metav1.CreateOptions{DryRun: []string{"All"}})
		refused(r.T, "a Pod "+what, err, harm.ofPods)
	}
}

// pulls is a Pod that pulls an image, as the controller makes it.
func pulls(image string) corev1.PodSpec {
	return corev1.PodSpec{
		NodeSelector: map[string]string{edge.LabelNodePool: "p1"}, RestartPolicy: corev1.RestartPolicyNever,
		AutomountServiceAccountToken: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](edge.UpgradeUser), RunAsGroup: ptr.To[int64](edge.UpgradeUser),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{Name: "c", Image: image, SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}},
	}
}

// harms are what neither a coordinator nor a Pod that pulls an image may do, and what the refusal of each says.
var harms = map[string]struct {
	do                    func(*corev1.PodSpec)
	ofDeployments, ofPods string
}{
	"with another's Secret for pulling images, which its node could read": {func(p *corev1.PodSpec) {
		p.ImagePullSecrets = append(p.ImagePullSecrets, corev1.LocalObjectReference{Name: "bootstrap-token-abcdef"})
	}, "image.pullSecrets", "image.pullSecrets"},
	"with another image": {func(p *corev1.PodSpec) { p.Containers[0].Image = "evil:v1" }, "image.mirrors", "image.mirrors"},
	"on any node": {
		func(p *corev1.PodSpec) { p.NodeName = "cloud" }, "on nodes of a pool", "on nodes of a pool",
	},
	"with a port of the node": {func(p *corev1.PodSpec) {
		p.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 53, HostPort: 53}}
	}, "of the node's ports only", "no ports of the node"},
	"with a probe of another host": {func(p *corev1.PodSpec) {
		p.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt32(2381)},
		}}
	}, "of probes only those of a coordinator", "no probes and no hooks"},
	"with a hook": {func(p *corev1.PodSpec) {
		p.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
			HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)},
		}}
	}, "no hooks", "no probes and no hooks"},
	"in root's group": {
		func(p *corev1.PodSpec) { p.SecurityContext.RunAsGroup = ptr.To[int64](0) }, "not root's", "only as group 65532",
	},
	"with any system call": {func(p *corev1.PodSpec) {
		p.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}, "profiles of seccomp", "profiles of seccomp"},
}

// nodes tries to change Nodes and Pods.
func (r robber) nodes() {
	node := r.Pool.Follower()
	for what, try := range map[string]struct{ patch, sub, why string }{
		"its address in the LAN": {
			fmt.Sprintf(`{"metadata":{"annotations":{%q:"192.0.2.9"}}}`, edge.AnnotationLANAddress), "", "its address in the LAN",
		},
		"another pool": {fmt.Sprintf(`{"metadata":{"labels":{%q:"p9"}}}`, edge.LabelNodePool), "", "a Node's pool"},
		"a role":       {`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, "", "Kubernetes' own"},
		"another address": {
			`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.9"}]}}`, "status", "only the conditions",
		},
		"a volume less in use": {`{"status":{"volumesInUse":["x"]}}`, "status", "only the conditions"},
		"a record by which a label of Kubernetes' own goes": {
			`{"metadata":{"annotations":{"apps.openyurt.io/nodepool-attributes":"{\"labels\":[\"kubernetes.io/os\"]}"}}}`, "",
			"may not record",
		},
	} {
		_, err := r.CoreV1().Nodes().Patch(r.Ctx, node, types.MergePatchType, []byte(try.patch), metav1.PatchOptions{},
			subresource(try.sub)...)
		refused(r.T, node+" gets "+what, err, try.why)
	}
	pod := r.Pool.CoordinatorPod()
	image := fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"image":"evil"}]}}`, pod.Spec.Containers[0].Name)
	_, err := r.CoreV1().Pods(pod.Namespace).Patch(r.Ctx, pod.Name, types.StrategicMergePatchType, image, metav1.PatchOptions{})
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
	counts := map[string]float64{
		"controller-rights.openyurt.io": 0, "controller-workloads.openyurt.io": 0, "controller-nodes.openyurt.io": 0,
		"controller-upgraders.openyurt.io": 0, "controller-images.openyurt.io": 0, "approver-rights.openyurt.io": 0,
	}
	ctx, cancel := context.WithTimeout(t.Ctx, commandTimeout)
	defer cancel()
	text, err := t.Cloud.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	t.Must(err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "apiserver_validating_admission_policy_check_total{") || !strings.Contains(line, `"deny"`) {
			continue
		}
		for policy := range counts {
			if strings.Contains(line, `policy="`+policy+`"`) {
				var value float64
				_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value)
				t.Must(err)
				counts[policy] += value
			}
		}
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

func subresource(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// refused expects that an attempt was forbidden, for that reason.
func refused(t *kit.T, what string, err error, why string) {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), why) {
		t.Fail("%s: %v; want it forbidden, and a message that says %q", what, err, why)
	}
	t.Say("refused: %s: %v", what, err)
}
