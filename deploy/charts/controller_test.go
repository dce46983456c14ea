package charts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/appset"
	"yurtcoordinator/internal/cloud/cloudtest"
	cloudcoordinator "yurtcoordinator/internal/cloud/coordinator"
	"yurtcoordinator/internal/cloud/nodepool"
	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
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
func coordinatorsPod(t *testing.T, slot edge.Slot) corev1.PodSpec {
	t.Helper()
	app, err := cloudcoordinator.AppSet(cloudcoordinator.Config{Program: cloudcoordinator.Program{
		Image: "registry.example/yurt-coordinator", PullSecrets: []string{"registry"},
	}}, slot, cloudcoordinator.Asked{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	wanted := appset.Render(app, []*v1beta2.NodePool{{ObjectMeta: metav1.ObjectMeta{Name: "p1"}}}, nil)
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
	genuine, standby := coordinatorsPod(t, 0), coordinatorsPod(t, 1)
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
		"a standby": {
			workload(system, "yurt-coordinator--1-p1", "yurt-coordinator--1", onNode(func(p *pod) { *p = standby })), "",
		},
		"a slot that there is not": {
			workload(system, "yurt-coordinator--3-p1", "yurt-coordinator--3", onNode(func(p *pod) { *p = standby })), "belong to",
		},
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
		"in root's group": {
			of(func(p *pod) { p.SecurityContext.RunAsGroup = new(int64(0)) }), "in a group that is not root's",
		},
		"with others' groups": {
			of(func(p *pod) { p.SecurityContext.SupplementalGroups = []int64{0} }), "in a group that is not root's",
		},
		"with files of root's group": {
			of(func(p *pod) { p.SecurityContext.FSGroup = new(int64(0)) }), "in a group that is not root's",
		},
		"with any system call": {of(func(p *pod) {
			p.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}), "profiles of seccomp"},
		"its container with any system call": {of(func(p *pod) {
			p.Containers[0].SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}), "profiles of seccomp"},
		"without AppArmor": {of(func(p *pod) {
			p.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}), "profiles of seccomp, AppArmor and SELinux"},
		"without AppArmor, by an annotation": {
			workload(system, names, ours, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec = *genuine.DeepCopy()
				d.Spec.Template.Annotations = map[string]string{
					"container.apparmor.security.beta.kubernetes.io/" + genuine.Containers[0].Name: "unconfined",
				}
			}), "profiles of seccomp, AppArmor and SELinux",
		},
		"with another type of SELinux": {of(func(p *pod) {
			p.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}), "profiles of seccomp, AppArmor and SELinux"},
		"with a level of SELinux, as some clusters add": {of(func(p *pod) {
			p.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c1,c2"}
		}), ""},
		"its container with another type of SELinux": {of(func(p *pod) {
			p.Containers[0].SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}), "profiles of seccomp, AppArmor and SELinux"},
		"restarted by a person": {
			workload(system, names, ours, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec = *genuine.DeepCopy()
				d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
			}), "",
		},
		"more important than a node's own": {
			of(func(p *pod) { p.PriorityClassName = "system-node-critical" }), "of the class system-cluster-critical",
		},
		"many": {
			workload(system, names, ours, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec, d.Spec.Replicas = *genuine.DeepCopy(), new(int32(100000))
			}), "only one Pod of each Deployment",
		},
		"with a probe of another port": {
			of(func(p *pod) { p.Containers[0].LivenessProbe.HTTPGet.Port = intstr.FromInt32(2381) }),
			"only those of a coordinator",
		},
		"with a probe of another host": {
			of(func(p *pod) { p.Containers[0].ReadinessProbe.HTTPGet.Host = "169.254.169.254" }), "only those of a coordinator",
		},
		"with a probe that runs something": {of(func(p *pod) {
			p.Containers[0].LivenessProbe.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}
		}), "only those of a coordinator"},
		"with a hook": {of(func(p *pod) {
			p.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
				HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)},
			}}
		}), "no hooks"},
		"with a port of the node": {of(func(p *pod) {
			dns := corev1.ContainerPort{Name: "x", ContainerPort: 53, HostPort: 53}
			p.Containers[0].Ports = append(p.Containers[0].Ports, dns)
		}), "of the node's ports only"},
		"with the port for probes on the LAN": {
			of(func(p *pod) { p.Containers[0].Ports[1].HostIP = "" }), "of the node's ports only",
		},
		"on any node": {of(func(p *pod) { p.NodeSelector = nil }), "on nodes of a pool"},
		"on one node": {of(func(p *pod) { p.NodeName = "control-plane" }), "on nodes of a pool"},
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
	expect(t, "more of its coordinators", patch(names, `{"spec":{"replicas":2}}`), "only one Pod of each Deployment")
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
		nodepool.AnnotationAttributes: `{"labels":["kubernetes.io/old"]}`,
		nodepool.AnnotationTaints:     `[{"key":"kubernetes.io/old-taint","effect":"NoSchedule"}]`,
	})
	taint := func(key, effect string) string { return fmt.Sprintf(`{"key":%q,"effect":%q}`, key, effect) }
	isControl, old := taint("node-role.kubernetes.io/control-plane", "NoSchedule"), taint("kubernetes.io/old-taint", "NoSchedule")
	evicted := taint(corev1.TaintNodeUnreachable, "NoExecute")
	record := func(key, value string) string { return attributePatch("annotations", key, value) }
	taints := func(all ...string) string {
		all = append(all, taint(corev1.TaintNodeNotReady, "NoSchedule")) // as the API server gives each new Node
		return `{"spec":{"taints":[` + strings.Join(all, ",") + `]}}`
	}
	mustAccept(t, "its taints", json.Unmarshal([]byte(taints(isControl, evicted, old)), there))
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
		Spec: corev1.PodSpec{
			Containers:      []corev1.Container{{Name: "c", Image: "c"}},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.org/g"}},
		},
	}
	create(t, admin, pod)
	for what, test := range map[string]struct{ patch, sub, why string }{
		"a label of its pool's": {`{"metadata":{"labels":{"site":"x"},"annotations":{"n":"x"}}}`, "", ""},
		"a zone":                {`{"metadata":{"labels":{"topology.kubernetes.io/zone":"x"}}}`, "", ""},
		"that its nodes don't count": {
			`{"metadata":{"labels":{"node.kubernetes.io/exclude-disruption":"x"}}}`, "", "",
		},
		"that a coordinator runs there next": {
			`{"metadata":{"labels":{"openyurt.node-restriction.kubernetes.io/coordinator":"0"}}}`, "", "",
		},
		"another label of that domain": {
			`{"metadata":{"labels":{"openyurt.node-restriction.kubernetes.io/x":"0"}}}`, "", "Kubernetes' own",
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
		"its address in the LAN": {
			`{"metadata":{"annotations":{"openyurt.io/lan-address":"192.0.2.9"}}}`, "", "its address in the LAN",
		},
		"another pool": {
			`{"metadata":{"labels":{"apps.openyurt.io/nodepool":"p2"}}}`, "", "a Node's pool",
		},
		"another pool, as OpenYurt says it": {
			`{"metadata":{"labels":{"apps.openyurt.io/desired-nodepool":"p2"}}}`, "", "a Node's pool",
		},
		"no pool": {
			`{"metadata":{"labels":{"apps.openyurt.io/nodepool":null}}}`, "", "a Node's pool",
		},
		"no finalizers":              {`{"metadata":{"finalizers":null}}`, "", "owners or finalizers"},
		"a taint":                    {taints(isControl, evicted, old, taint(edge.TaintUnschedulable, "NoSchedule")), "", ""},
		"another's taint":            {taints(isControl, evicted, old, taint("k8s.io/x", "NoExecute")), "", "only taints"},
		"another's in place of it":   {taints(isControl, taint(corev1.TaintNodeUnreachable, "NoSchedule")), "", "only taints"},
		"the end of an eviction":     {taints(isControl, old), "", ""},
		"the end of a former taint":  {taints(isControl, evicted), "", ""},
		"the end of another's taint": {taints(evicted, old), "", "only end an eviction"},
		"what its pool gives": {
			record(nodepool.AnnotationAttributes, `{"labels":["site","topology.kubernetes.io/zone"]}`), "", "",
		},
		"that its pool gave what is Kubernetes' own": {
			record(nodepool.AnnotationAttributes, `{"labels":["kubernetes.io/old","kubernetes.io/os"]}`), "", "may not record",
		},
		"that its pool gave another's taint": {record(nodepool.AnnotationTaints, "["+isControl+"]"), "", "may not record"},
		"that OpenYurt's gave a label": {
			record(nodepool.AnnotationPrevious, `{"labels":{"kubernetes.io/os":"linux"}}`), "", "may not record",
		},
		"an owner": {
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]}}`, "",
			"owners or finalizers",
		},
		"a range of Pods": {`{"spec":{"podCIDR":"192.0.2.0/24","podCIDRs":["192.0.2.0/24"]}}`, "", "only taints"},
		"a cordon":        {`{"spec":{"unschedulable":true}}`, "", "only taints"},
		"a provider":      {`{"spec":{"providerID":"x://y"}}`, "", "only taints"},
		"its conditions": {
			`{"status":{"conditions":[{"type":"MemoryPressure","status":"False"},{"type":"CloudLinkDown","status":"True"}]}}`,
			"status", "",
		},
		"another's condition": {
			`{"status":{"conditions":[{"type":"MemoryPressure","status":"True"}]}}`, "status", "only the conditions",
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
	statusOfTheController(t, c, "rights-n1")
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
		"its gate":             {`{"spec":{"schedulingGates":null}}`, "of a Pod only"},
		"another node":         {`{"spec":{"nodeSelector":{"kubernetes.io/hostname":"n"}}}`, "of a Pod only"},
	} {
		err := c.Patch(t.Context(), &corev1.Pod{ObjectMeta: pod.ObjectMeta},
			client.RawPatch(types.StrategicMergePatchType, []byte(test.patch)), client.DryRunAll)
		expect(t, "of a Pod, "+what, err, test.why)
	}
}

// statusOfTheController expects that the controller may change none of a Node's status but conditions, field by field.
func statusOfTheController(t *testing.T, c client.Client, name string) {
	t.Helper()
	fields := map[string]string{
		"addresses":        `[{"type":"InternalIP","address":"192.0.2.9"}]`,
		"allocatable":      `{"cpu":"7"}`,
		"capacity":         `{"cpu":"7"}`,
		"daemonEndpoints":  `{"kubeletEndpoint":{"Port":443}}`,
		"declaredFeatures": `["X"]`,
		"features":         `{"supplementalGroupsPolicy":true}`,
		"images":           `[{"names":["x"],"sizeBytes":1}]`,
		"nodeInfo":         `{"machineID":"x"}`,
		"phase":            `"Terminated"`,
		"runtimeHandlers":  `[{"name":"x"}]`,
		"volumesAttached":  `[{"name":"x","devicePath":"y"}]`,
		"volumesInUse":     `["x"]`,
	}
	for field, value := range fields {
		by := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{%q:%s}}`, field, value))
		err := c.Status().Patch(t.Context(), node(name, "", nil), by, client.DryRunAll)
		expect(t, "of a Node's status, "+field, err, "only the conditions")
	}
	for i := range reflect.TypeFor[corev1.NodeStatus]().NumField() {
		field, _, _ := strings.Cut(reflect.TypeFor[corev1.NodeStatus]().Field(i).Tag.Get("json"), ",")
		if fields[field] == "" && field != "conditions" && field != "config" { // which the API server drops
			t.Errorf("of a Node's status, %s is not tried", field)
		}
	}
}

func TestRightsOfTheController(t *testing.T) {
	cfg := policed(t)
	const account = "system:serviceaccount:kube-system:coordinator-controller"
	c := cloudtest.Client(t, cloudtest.As(cfg, account, "system:masters"))
	const system, nodeLease = "kube-system", "kube-node-lease"
	const writer, impersonator, reader = "heartbeat-forwarder-p1", "impersonator-heartbeat-forwarder-p1", "yurt-coordinator-p1"
	role := func(namespace, name, group, resource, verb string, names ...string) client.Object {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names,
		}}}
	}
	binding := func(namespace, name, kind, role, subjectKind, subject string) client.Object {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: subjectKind, Name: subject}},
		}
	}
	secretIn := func(namespace, name string) client.Object {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	secret := func(name string) client.Object { return secretIn(system, name) }
	token := func(namespace, name string) client.Object { // which kube-controller-manager would fill
		return &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "clusterrole-aggregation-controller"},
		}}
	}
	service := func(name string, external ...string) client.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}, Spec: corev1.ServiceSpec{
			ExternalIPs: external, Ports: []corev1.ServicePort{{Port: 10270}},
		}}
	}
	attached := func(o client.Object, labels, annotations string) client.Object {
		o.SetLabels(map[string]string{edge.LabelNodePool: "p1", "app.kubernetes.io/managed-by": "x", labels: "helm"})
		o.SetAnnotations(map[string]string{"openyurt.io/coordinator-rekey": "", annotations: "x"})
		return o
	}
	const fine, certs = "openyurt.io/x", "yurt-coordinator-p1-certs"
	configMap := func(namespace, name string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	admin := cloudtest.Client(t, cfg)
	const person, group = rbacv1.UserKind, rbacv1.GroupKind
	const leases, accounts, maps, node1 = "leases", "serviceaccounts", "configmaps", "system:node:n1"
	const poolSettings = "yurthub-settings-p1"
	const onGet = "impersonate-on:serviceaccount:get"
	const coordination, forwarder = "coordination.k8s.io", "system:serviceaccount:kube-node-lease:heartbeat-forwarder-p1"
	for what, test := range map[string]struct {
		object client.Object
		want   bool
	}{
		"a Role for named Leases":          {role(nodeLease, writer, coordination, leases, "update", "n1"), true},
		"a Role for all Leases":            {role(nodeLease, writer, coordination, leases, "update"), false},
		"a Role to impersonate one":        {role(nodeLease, impersonator, "", accounts, "impersonate", writer), true},
		"a Role to impersonate on a Lease": {role(nodeLease, impersonator, coordination, leases, onGet, "n1"), true},
		"a Role to impersonate on Leases":  {role(nodeLease, impersonator, coordination, leases, onGet), false},
		"an impersonator's Role to write":  {role(nodeLease, impersonator, coordination, leases, "update", "n1"), false},
		"a Role to impersonate all":        {role(nodeLease, impersonator, "", accounts, "impersonate"), false},
		"a Role of another name":           {role(nodeLease, "eve", coordination, leases, "update", "n1"), false},
		"a Role to impersonate, in system": {role(system, impersonator, "", accounts, "impersonate", writer), false},
		"a Role for one ConfigMap":         {role(system, reader, "", maps, "get", reader), true},
		"a Role for one Secret":            {role(system, reader, "", "secrets", "get", "yurt-coordinator-p1-ca"), false},
		"a Role of another name in system": {role(system, "eve", "", maps, "get", "x"), false},
		"a Role elsewhere":                 {role("default", reader, "", maps, "get", "x"), false},
		"a binding to a node":              {binding(nodeLease, impersonator, "Role", impersonator, person, node1), true},
		"a binding to its identity":        {binding(nodeLease, writer, "Role", writer, person, forwarder), true},
		"a binding to another's identity":  {binding(nodeLease, writer, "Role", writer, person, forwarder+"0"), false},
		"a binding to a person":            {binding(nodeLease, impersonator, "Role", impersonator, person, "eve"), false},
		"a binding to a group":             {binding(nodeLease, impersonator, "Role", impersonator, group, node1), false},
		"a binding to a ClusterRole":       {binding(system, reader, "ClusterRole", "cluster-admin", person, node1), false},
		"a binding to another Role":        {binding(system, reader, "Role", "eve", person, node1), false},
		"a coordinator's Secret":           {secret("yurt-coordinator-p1-certs"), true},
		"operators' Secret":                {secret("yurt-coordinator-p1-kubeconfig"), true},
		"its keys":                         {secretIn(edge.NamespaceKeys, "yurt-coordinator-p1-ca"), true},
		"its keys, where they once were":   {secret("yurt-coordinator-p1-ca"), false},
		"another Secret beside its keys":   {secretIn(edge.NamespaceKeys, "other"), false},
		"another Secret":                   {secret("bootstrap-token-abcdef"), false},
		"a ServiceAccount's token":         {token(system, "yurt-coordinator-p1-certs"), false},
		"one beside its keys":              {token(edge.NamespaceKeys, "yurt-coordinator-p1-ca"), false},
		"a Role to write its ConfigMap":    {role(system, reader, "", maps, "patch", reader), false},
		"a Role for another ConfigMap":     {role(system, reader, "", maps, "get", "coredns"), false},
		"a Role for a pool's settings":     {role(system, poolSettings, "", maps, "get", poolSettings), true},
		"… for another pool's":             {role(system, poolSettings, "", maps, "get", "yurthub-settings-p2"), false},
		"… for where its coordinator is":   {role(system, poolSettings, "", maps, "get", reader), false},
		"… to write them":                  {role(system, poolSettings, "", maps, "patch", poolSettings), false},
		"… for Secrets":                    {role(system, poolSettings, "", "secrets", "get", poolSettings), false},
		"… in another namespace":           {role("default", poolSettings, "", maps, "get", poolSettings), false},
		"a pool's settings":                {configMap(system, poolSettings), true},
		"settings in another namespace":    {configMap("default", poolSettings), false},
		"another ConfigMap":                {configMap(system, "coredns"), false},
		"a Secret named like settings":     {secret(poolSettings), false},
		"a Secret with labels of ours":     {attached(secret(certs), fine, fine), true},
		"a Secret that Helm knows":         {attached(secret(certs), "owner", fine), false},
		"a Secret annotated for another":   {attached(secret(certs), fine, "meta.helm.sh/release-name"), false},
		"a ConfigMap with labels of ours":  {attached(configMap(system, reader), fine, fine), true},
		"a ConfigMap that Helm knows":      {attached(configMap(system, reader), "owner", fine), false},
		"its Service with labels of ours":  {attached(service("yurt-coordinator-apiserver"), edge.LabelApp, fine), true},
		"its Service by a name of others": {
			attached(service("yurt-coordinator-apiserver"), fine, "external-dns.alpha.kubernetes.io/hostname"), false,
		},
		"its own leader election":           {lease("coordinator-controller", system, false), true},
		"another's leader election":         {lease("cert-manager-controller", system, false), false},
		"a Lease named like a report":       {lease("yurt-coordinator-p1", system, false), false},
		"a node's heartbeat":                {lease("n9", nodeLease, false), false},
		"the coordinators' Service":         {service("yurt-coordinator-apiserver"), true},
		"another Service":                   {service("kube-dns"), false},
		"its Service, at others' addresses": {service("yurt-coordinator-apiserver", "192.0.2.1"), false},
	} {
		err := c.Create(t.Context(), test.object, client.DryRunAll)
		if test.want {
			mustAccept(t, what, err)
		} else {
			mustRefuse(t, what, err, "coordinator-controller may")
		}
	}
	mustAccept(t, "somebody else's Role", admin.Create(t.Context(), role("default", "eve", "", maps, "get"), client.DryRunAll))
	mustAccept(t, "somebody else's Secret", admin.Create(t.Context(), secret("bootstrap-token-abcdef"), client.DryRunAll))
	create(t, admin, secret("rights-other"))
	create(t, admin, secret("yurt-coordinator-other"))
	mustRefuse(t, "deletion of another Secret", c.Delete(t.Context(), secret("rights-other"), client.DryRunAll), "may touch only")
	update := func(name string) error { return c.Update(t.Context(), secret(name), client.DryRunAll) }
	mustRefuse(t, "another Secret's content", update("rights-other"), "may touch only")
	mustRefuse(t, "that of another of our own", update("yurt-coordinator-other"), "only in yurt-coordinator-system")
	create(t, admin, secret(certs))
	mustAccept(t, "that of a coordinator's Secret", update(certs))
	known := attached(secret(certs), "owner", fine)
	mustRefuse(t, "a label of it that Helm knows", c.Update(t.Context(), known, client.DryRunAll), "owner")
	labelled := configMap(system, reader)
	labelled.SetLabels(map[string]string{"example.org/backup": "yes"})
	create(t, admin, labelled)
	labelled.SetAnnotations(map[string]string{fine: "x"})
	mustAccept(t, "a ConfigMap that another has labelled", c.Update(t.Context(), labelled, client.DryRunAll))
	create(t, admin, lease("yurt-coordinator-p9", nodeLease, false))
	create(t, admin, lease("yurt-coordinator--2-p9", nodeLease, false))
	create(t, admin, lease("n9", nodeLease, false))
	mustAccept(t, "deletion of a report", c.Delete(t.Context(), lease("yurt-coordinator-p9", nodeLease, false)))
	mustAccept(t, "deletion of slot 2's", c.Delete(t.Context(), lease("yurt-coordinator--2-p9", nodeLease, false)))
	mustRefuse(t, "deletion of a heartbeat", c.Delete(t.Context(), lease("n9", nodeLease, false)), "may touch only")
}

// TestTheControllerReadsNoSecrets, not by an answer that refuses it either: the API server prints the content of invalid fields
// before it asks any policy.
func TestTheControllerReadsNoSecrets(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	for _, s := range verbatim(t) {
		if strings.HasPrefix(s.file, "files/rbac/") && s.object.GetKind() != "Namespace" {
			create(t, admin, s.object)
			t.Cleanup(func() { _ = admin.Delete(context.Background(), s.object) })
		}
	}
	c := cloudtest.Client(t, cloudtest.As(cfg, "system:serviceaccount:kube-system:coordinator-controller",
		"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"))
	at := metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-credentials"}
	create(t, admin, &corev1.Secret{ObjectMeta: at, Data: map[string][]byte{"key": []byte("hush, hush")}})
	const encoded = "aHVzaCwgaHVzaA"
	silent := func(what string, err error) {
		t.Helper()
		if said := fmt.Sprint(err); err == nil || strings.Contains(said, encoded) || strings.Contains(said, "hush") {
			t.Errorf("%s: %s", what, said)
		}
	}
	for what, patch := range map[string]string{
		"a copy into the type":     `[{"op":"copy","from":"/data/key","path":"/type"}]`,
		"a copy into the labels":   `[{"op":"copy","from":"/data","path":"/metadata/labels"}]`,
		"a copy into the owners":   `[{"op":"copy","from":"/data","path":"/metadata/ownerReferences"}]`,
		"a move into the type":     `[{"op":"remove","path":"/type"},{"op":"move","from":"/data/key","path":"/type"}]`,
		"a move into the name":     `[{"op":"move","from":"/data/key","path":"/metadata/name"}]`,
		"a test of the content":    `[{"op":"test","path":"/data/key","value":"x"}]`,
		"a copy into a finalizer":  `[{"op":"copy","from":"/data/key","path":"/metadata/finalizers"}]`,
		"a copy into other labels": `[{"op":"copy","from":"/data/key","path":"/metadata/labels"}]`,
	} {
		for _, opts := range [][]client.PatchOption{nil, {client.DryRunAll}} {
			silent(what, c.Patch(t.Context(), &corev1.Secret{ObjectMeta: at},
				client.RawPatch(types.JSONPatchType, []byte(patch)), opts...))
		}
	}
	for what, patch := range map[string]client.Patch{
		"a patch of nothing": client.RawPatch(types.MergePatchType, []byte(`{}`)),
		"a strategic one":    client.RawPatch(types.StrategicMergePatchType, []byte(`{"type":"x"}`)),
		"of the name":        client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"name":"x"}}`)),
		"of the UID":         client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"uid":"x"}}`)),
	} {
		silent(what, c.Patch(t.Context(), &corev1.Secret{ObjectMeta: at}, patch, client.DryRunAll))
	}
	for what, edit := range map[string]func(*corev1.Secret){
		"an update":                  func(*corev1.Secret) {},
		"an update to another type":  func(s *corev1.Secret) { s.Type = "x" },
		"one of another UID":         func(s *corev1.Secret) { s.UID = "x" },
		"one of another version":     func(s *corev1.Secret) { s.ResourceVersion = "1" },
		"one that makes it constant": func(s *corev1.Secret) { s.Immutable = new(true) },
	} {
		s := &corev1.Secret{ObjectMeta: at}
		edit(s)
		silent(what, c.Update(t.Context(), s, client.DryRunAll))
	}
	read := &corev1.Secret{}
	silent("a read", c.Get(t.Context(), client.ObjectKey{Namespace: at.Namespace, Name: at.Name}, read))
	silent("a list", c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(at.Namespace)))
	silent("a deletion", c.Delete(t.Context(), &corev1.Secret{ObjectMeta: at},
		client.PropagationPolicy(metav1.DeletePropagationForeground)))
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: "yurt-coordinator-p7-certs"}}
	mustAccept(t, "its own Secret", objects.Put(t.Context(), c, mine, "test"))
	versions := map[string]bool{}
	for range 2 {
		mine.Data, mine.ResourceVersion = map[string][]byte{"a": []byte("b")}, ""
		mustAccept(t, "its own Secret once more", objects.Put(t.Context(), c, mine, "test"))
		versions[mine.ResourceVersion] = true
	}
	if len(versions) != 1 {
		t.Errorf("the same content was written twice: %v", versions)
	}
}

// TestThePutBackStamps: RBAC lets the controller patch every node's Lease, the policy to put its stamp back and no more.
func TestThePutBackStamps(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	const account = "system:serviceaccount:kube-system:coordinator-controller"
	c := cloudtest.Client(t, cloudtest.As(cfg, account, "system:masters"))
	create(t, admin, heartbeatOf("back-1", false))
	for what, test := range map[string]struct {
		edit func(*beat)
		want string
	}{
		"a stamp put back": {func(l *beat) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.AnnotationPutBack, "2001-09-09T01:46:30.000000Z")
		}, ""},
		"a stamp moved on":   {func(l *beat) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(time.Hour) }, "put the renewTime"},
		"no stamp":           {func(l *beat) { l.Spec.RenewTime = nil }, ""},
		"another holder too": {func(l *beat) { *l.Spec.HolderIdentity = "x" }, "put the renewTime"},
		"an owner, too":      {func(l *beat) { l.OwnerReferences = nil }, "put the renewTime"},
		"a mark, too": {func(l *beat) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.DelegateHeartbeat, edge.DelegateHeartbeatOn)
		}, "ValidatingAdmissionPolicy"}, // of two, either
	} {
		l := &coordinationv1.Lease{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(heartbeatOf("back-1", false)), l); err != nil {
			t.Fatal(err)
		}
		base := client.MergeFrom(l.DeepCopy())
		l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(-10 * time.Second)
		test.edit(l)
		err := c.Patch(t.Context(), l, base, client.DryRunAll)
		if what == "no stamp" {
			if err == nil {
				t.Errorf("%s: accepted", what)
			}
			continue
		}
		expect(t, what, err, test.want)
	}
}

// approvals of certificates: its own for a client, and those for hubs that another policy is not about.
func TestCertificatesOfTheController(t *testing.T) {
	cfg := policed(t)
	admin := cloudtest.Client(t, cfg)
	const account = "system:serviceaccount:kube-system:coordinator-controller"
	c := cloudtest.Client(t, cloudtest.As(cfg, account, "system:masters"))
	request := func(name, signer string) *certificatesv1.CertificateSigningRequest {
		usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
		if signer == certificatesv1.KubeletServingSignerName || signer == edge.SignerHubs {
			usages[1] = certificatesv1.UsageServerAuth
		}
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: signingRequest(t), SignerName: signer, Usages: usages,
			},
		}
	}
	const own = "yurt-coordinator-p1-kubelet-client-0123456789abcdef"
	const client509 = certificatesv1.KubeAPIServerClientSignerName
	for _, name := range []string{
		"other", "yurt-coordinator-kubelet-client", "yurt-coordinator-p1-kubelet-client", own + "0", "x" + own,
	} {
		err := c.Create(t.Context(), request(name, client509), client.DryRunAll)
		mustRefuse(t, "a request named "+name, err, "may ask only")
	}
	approve := func(by client.Client, name, signer string, maker client.Client) error {
		r := request(name, signer)
		create(t, maker, r)
		defer func() {
			if err := admin.Delete(context.WithoutCancel(t.Context()), r); err != nil {
				t.Error(err)
			}
		}()
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
		})
		return by.SubResource("approval").Update(t.Context(), r)
	}
	approver := cloudtest.Client(t, cloudtest.As(cfg, "system:serviceaccount:kube-system:coordinator-approver", "system:masters"))
	const asked = "only those that coordinator-controller has asked for"
	mustAccept(t, "the controller's", approve(approver, own, client509, c))
	mustRefuse(t, "one that somebody else has made in its place", approve(approver, own, client509, admin), asked)
	mustRefuse(t, "another client's", approve(approver, "csr-client", client509, admin), asked)
	mustAccept(t, "a kubelet's", approve(approver, "csr-kubelet", certificatesv1.KubeletServingSignerName, admin))
	mustAccept(t, "a hub's", approve(approver, "csr-hub", edge.SignerHubs, admin))
	mustAccept(t, "another client's, by somebody else", approve(admin, "csr-client", client509, admin))

	answer := func(by client.Client, name, signer string) error {
		r := request(name, signer)
		create(t, admin, r)
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "Test",
		})
		return by.SubResource("status").Update(t.Context(), r)
	}
	mustAccept(t, "an operator's", answer(c, "operator-1", "coordinator.openyurt.io/p1"))
	mustAccept(t, "a hub's", answer(c, "hub-1", "hub.openyurt.io/serving"))
	mustRefuse(t, "an answer for Kubernetes' signer", answer(c, "operator-2", client509), "only requests for its own signers")
	mustAccept(t, "the same, by somebody else", answer(admin, "operator-3", client509))
}
