package charts

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/cloudtest"
	cloudcoordinator "yurtcoordinator/internal/cloud/coordinator"
)

// workload is a Deployment as package appset writes it for the coordinators' YurtAppSet. edit may alter it.
func workload(namespace, name, set string, edit func(*appsv1.Deployment)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps.openyurt.io/v1beta1", Kind: "YurtAppSet", Name: set, UID: "s", Controller: new(true),
			}},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		},
	}
	if edit != nil {
		edit(d)
	}
	return d
}

// coordinatorsPod is what the controller really runs.
func coordinatorsPod(t *testing.T) corev1.PodSpec {
	t.Helper()
	app, err := cloudcoordinator.AppSet(cloudcoordinator.Config{
		Image: "registry.example/yurt-coordinator", PullSecrets: []string{"registry"},
	}, []cloudcoordinator.Wanted{{Pool: "p1", Image: "registry.example/yurt-coordinator:v1"}})
	if err != nil {
		t.Fatal(err)
	}
	wanted := appset.Render(app, []*v1beta2.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "p1"}}})
	d := &appsv1.Deployment{}
	if err := errors.Join(wanted[0].Err,
		runtime.DefaultUnstructuredConverter.FromUnstructured(wanted[0].Object.Object, d)); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Template.Spec
}

// TestWorkloadsOfTheController: what it runs are YurtAppSets' workloads, and in kube-system coordinators.
func TestWorkloadsOfTheController(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	c := cloudtest.Client(t, cloudtest.As(cfg, "system:serviceaccount:kube-system:coordinator-controller", "system:masters"))
	const system, plain, edgy = "kube-system", "workloads-plain", "workloads-edgy"
	create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: plain}})
	create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: edgy, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
	}})
	genuine := coordinatorsPod(t)
	const ours, names = "yurt-coordinator", "yurt-coordinator-p1"
	type pod = corev1.PodSpec
	of := func(edit func(*pod)) *appsv1.Deployment {
		return workload(system, names, ours, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec = *genuine.DeepCopy()
			if edit != nil {
				edit(&d.Spec.Template.Spec)
			}
		})
	}
	hostPath := corev1.Volume{Name: "h", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}
	secret := corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "bootstrap-token-abcdef"},
	}}
	token := corev1.Volume{Name: "t", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
	}}}
	onNode := func(edit func(*pod)) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { edit(&d.Spec.Template.Spec) }
	}
	privileged := func(p *pod) { p.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)} }
	for what, test := range map[string]struct {
		object client.Object
		why    string
	}{
		"a coordinator": {of(nil), ""},
		"a coordinator by another name": {
			workload(system, "coredns", ours, onNode(func(p *pod) { *p = genuine })), "begin with",
		},
		"another YurtAppSet's": {
			workload(system, names, "mine", onNode(func(p *pod) { *p = genuine })), "belong to a YurtAppSet",
		},
		"nobody's": {
			workload(system, names, ours, func(d *appsv1.Deployment) { d.OwnerReferences = nil }), "belong to",
		},
		"another ServiceAccount": {
			of(func(p *pod) { p.ServiceAccountName = "clusterrole-aggregation-controller" }), "ServiceAccount default",
		},
		"with the ServiceAccount's token": {
			of(func(p *pod) { p.AutomountServiceAccountToken = nil }), "without its token",
		},
		"with a token all the same": {of(func(p *pod) { p.Volumes = append(p.Volumes, token) }), "only memory"},
		"with a hostPath": {
			of(func(p *pod) { p.Volumes = append(p.Volumes, hostPath) }), "only memory",
		},
		"with another Secret": {
			of(func(p *pod) { p.Volumes = append(p.Volumes, secret) }), "only memory",
		},
		"with another Secret, by variables": {of(func(p *pod) {
			p.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "bootstrap-token-abcdef"},
			}}}
		}), "only memory"},
		"with another Secret, by one variable": {of(func(p *pod) {
			p.Containers[0].Env = append(p.Containers[0].Env, corev1.EnvVar{Name: "S", ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "bootstrap-token-abcdef"}, Key: "token-secret",
				},
			}})
		}), "only memory"},
		"privileged": {of(privileged), "without privileges"},
		"its init container privileged": {of(func(p *pod) {
			p.InitContainers = []corev1.Container{{
				Name: "i", Image: "i", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
			}}
		}), "without privileges"},
		"as root": {
			of(func(p *pod) { p.Containers[0].SecurityContext.RunAsUser = new(int64(0)) }), "not as root",
		},
		"with a capability": {
			of(func(p *pod) {
				p.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
			}), "without privileges",
		},
		"among others' processes": {of(func(p *pod) { p.HostPID = true }), "without privileges"},
		"on any node":             {of(func(p *pod) { p.NodeSelector = nil }), "on nodes of a pool"},
		"on one node":             {of(func(p *pod) { p.NodeName = "control-plane" }), "on nodes of a pool"},
		"elsewhere": {
			workload(plain, "web-p1", "web", onNode(func(p *pod) { p.ServiceAccountName = "any" })), "",
		},
		"elsewhere, nobody's": {
			workload(plain, "web-p1", "web", func(d *appsv1.Deployment) { d.OwnerReferences = nil }), "belong to a YurtAppSet",
		},
		"elsewhere, privileged": {
			workload(plain, "web-p1", "web", onNode(privileged)), "enforce=privileged",
		},
		"elsewhere, on its host's network": {
			workload(plain, "web-p1", "web", onNode(func(p *pod) { p.HostNetwork = true })), "enforce=privileged",
		},
		"elsewhere, with a hostPath": {workload(plain, "web-p1", "web", onNode(func(p *pod) {
			p.Volumes = []corev1.Volume{hostPath}
		})), "kubectl label namespace " + plain},
		"privileged where that is said": {workload(edgy, "web-p1", "web", onNode(privileged)), ""},
	} {
		expect(t, what, c.Create(t.Context(), test.object, client.DryRunAll), test.why)
	}

	create(t, admin, workload(system, "workloads-dns", ours, func(d *appsv1.Deployment) { d.OwnerReferences = nil }))
	create(t, admin, of(nil))
	own := workload(system, "coordinator-controller", ours, func(d *appsv1.Deployment) { d.OwnerReferences = nil })
	create(t, admin, own)
	t.Cleanup(func() { mustAccept(t, "its end", admin.Delete(context.WithoutCancel(t.Context()), own)) })
	patch := func(name, content string) error {
		return c.Patch(t.Context(), workload(system, name, ours, nil), client.RawPatch(types.MergePatchType, []byte(content)),
			client.DryRunAll)
	}
	take := `{"metadata":{"ownerReferences":[{"apiVersion":"apps.openyurt.io/v1beta1","kind":"YurtAppSet",` +
		`"name":"yurt-coordinator","uid":"s","controller":true}]}}`
	expect(t, "taking another's", patch("workloads-dns", take), "belong to a YurtAppSet")
	others := workload(system, "workloads-dns", ours, nil)
	expect(t, "deleting another's", c.Delete(t.Context(), others, client.DryRunAll), "belong to")
	expect(t, "its coordinators' replicas", patch(names, `{"spec":{"replicas":0}}`), "")
	expect(t, "deleting a coordinator", c.Delete(t.Context(), of(nil), client.DryRunAll), "")
	expect(t, "stopping itself", patch(own.Name, `{"spec":{"replicas":0}}`), "")
	expect(t, "more of itself", patch(own.Name, `{"spec":{"replicas":5}}`), "belong to a YurtAppSet")
	expect(t, "stopping itself with another account",
		patch(own.Name, `{"spec":{"replicas":0,"template":{"spec":{"serviceAccountName":"x"}}}}`), "belong to a YurtAppSet")
	theirs := workload(system, "x", ours, onNode(privileged))
	expect(t, "somebody else's", admin.Create(t.Context(), theirs, client.DryRunAll), "")
}

// TestNodesAndPodsOfTheController: what it may patch as a whole it may change in what is its own.
func TestNodesAndPodsOfTheController(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	c := cloudtest.Client(t, cloudtest.As(cfg, "system:serviceaccount:kube-system:coordinator-controller", "system:masters"))
	there := node("rights-n1", "p1", map[string]string{
		"apps.openyurt.io/nodepool-attributes": `{"labels":["kubernetes.io/old"]}`,
	})
	there.Labels["kubernetes.io/old"], there.Labels["kubernetes.io/os"] = "x", "linux"
	there.Finalizers = []string{"example.org/f"}
	create(t, admin, there)
	status := there.DeepCopy()
	status.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	status.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}}
	mustAccept(t, "its status", admin.Status().Update(t.Context(), status))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		end := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		mustAccept(t, "its end", errors.Join(admin.Patch(ctx, node("rights-n1", "", nil), end),
			admin.Delete(ctx, node("rights-n1", "", nil))))
	})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rights-p"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}
	create(t, admin, pod)
	for what, test := range map[string]struct{ patch, sub, why string }{
		"a label of its pool's": {`{"metadata":{"labels":{"site":"x"},"annotations":{"n":"x"}}}`, "", ""},
		"a zone":                {`{"metadata":{"labels":{"topology.kubernetes.io/zone":"x"}}}`, "", ""},
		"that its nodes don't count": {
			`{"metadata":{"labels":{"node.kubernetes.io/exclude-disruption":"x"}}}`, "", "",
		},
		"the end of a former one": {`{"metadata":{"labels":{"kubernetes.io/old":null}}}`, "", ""},
		"a role": {
			`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, "", "Kubernetes' own",
		},
		"a role, by the status": {
			`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`, "status", "Kubernetes' own",
		},
		"the end of one": {`{"metadata":{"labels":{"kubernetes.io/os":null}}}`, "", "Kubernetes' own"},
		"an annotation of kubelet's": {
			`{"metadata":{"annotations":{"volumes.kubernetes.io/x":"y"}}}`, "", "Kubernetes' own",
		},
		"another pool": {
			`{"metadata":{"labels":{"apps.openyurt.io/nodepool":"p2"}}}`, "", "a Node's pool",
		},
		"no pool": {
			`{"metadata":{"labels":{"apps.openyurt.io/nodepool":null}}}`, "", "a Node's pool",
		},
		"no finalizers": {`{"metadata":{"finalizers":null}}`, "", "owners or finalizers"},
		"a taint": {
			`{"spec":{"taints":[{"key":"node.openyurt.io/unschedulable","effect":"NoSchedule"}]}}`, "", "",
		},
		"another's taint": {
			`{"spec":{"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]}}`, "", "only taints",
		},
		"a cordon":   {`{"spec":{"unschedulable":true}}`, "", "only taints"},
		"a provider": {`{"spec":{"providerID":"x://y"}}`, "", "only taints"},
		"its conditions": {
			`{"status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"CloudLinkDown","status":"True"}]}}`,
			"status", "",
		},
		"another's condition": {
			`{"status":{"conditions":[{"type":"MemoryPressure","status":"True"}]}}`, "status", "only the conditions",
		},
		"another address": {
			`{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.9"}]}}`, "status", "only the conditions",
		},
		"another kubelet's port": {
			`{"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":443}}}}`, "status", "only the conditions",
		},
	} {
		by := client.RawPatch(types.MergePatchType, []byte(test.patch))
		if test.sub == "" {
			expect(t, "of a Node, "+what, c.Patch(t.Context(), node("rights-n1", "", nil), by, client.DryRunAll), test.why)
		} else {
			err := c.Status().Patch(t.Context(), node("rights-n1", "", nil), by, client.DryRunAll)
			expect(t, "of a Node, "+what, err, test.why)
		}
	}
	for what, test := range map[string]struct{ patch, why string }{
		"a toleration": {`{"spec":{"tolerations":[{"key":"k","operator":"Exists"}]}}`, ""},
		"its annotations": {
			`{"metadata":{"annotations":{"apps.openyurt.io/x":"y","openyurt.io/certs-hash":"z"}}}`, "",
		},
		"another's annotation": {`{"metadata":{"annotations":{"example.org/x":"y"}}}`, "of a Pod only"},
		"a label":              {`{"metadata":{"labels":{"k8s-app":"kube-dns"}}}`, "of a Pod only"},
		"another image":        {`{"spec":{"containers":[{"name":"c","image":"evil"}]}}`, "of a Pod only"},
		"an end":               {`{"spec":{"activeDeadlineSeconds":1}}`, "of a Pod only"},
		"a finalizer":          {`{"metadata":{"finalizers":["example.org/f"]}}`, "owners or finalizers"},
	} {
		err := c.Patch(t.Context(), &corev1.Pod{ObjectMeta: pod.ObjectMeta},
			client.RawPatch(types.StrategicMergePatchType, []byte(test.patch)), client.DryRunAll)
		expect(t, "of a Pod, "+what, err, test.why)
	}
}
