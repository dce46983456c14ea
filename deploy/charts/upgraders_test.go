package charts

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/cloud/cloudtest"
	"yurtcoordinator/internal/edge"
)

// upgrader is a Pod that upgrades a hub.
func upgrader(change func(p *corev1.Pod)) *corev1.Pod {
	directory := corev1.HostPathDirectory
	volume := func(name, path string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &directory},
		}}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "yurthub-upgrade-n1"},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{edge.LabelNodePool: "p1"}, PriorityClassName: "system-node-critical",
			RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](edge.UpgradeUser),
				RunAsGroup:     ptr.To[int64](edge.UpgradeUser),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Volumes: []corev1.Volume{volume("inbox", edge.UpgradeInbox), volume("outbox", edge.UpgradeOutbox)},
			Containers: []corev1.Container{{
				Name: "yurthub", Image: "i",
				Env: []corev1.EnvVar{{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
				}}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "inbox", MountPath: edge.UpgradeInbox},
					{Name: "outbox", MountPath: edge.UpgradeOutbox, ReadOnly: true},
				},
			}},
		},
	}
	change(p)
	return p
}

// TestUpgraders: coordinator-controller makes no Pods but those that upgrade hubs, and these have of a node what an upgrade
// takes.
func TestUpgraders(t *testing.T) {
	cfg := policed(t)
	const account = "system:serviceaccount:kube-system:coordinator-controller"
	c, admin := cloudtest.Client(t, cloudtest.As(cfg, account, "system:masters")), cloudtest.Client(t, cfg)
	container := func(change func(c *corev1.Container)) func(p *corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
	}
	security := func(change func(c *corev1.SecurityContext)) func(p *corev1.Pod) {
		return container(func(c *corev1.Container) { change(c.SecurityContext) })
	}
	for what, tt := range map[string]struct {
		change func(p *corev1.Pod)
		why    string
	}{
		"an upgrader": {func(*corev1.Pod) {}, ""},
		"one that pulls": {func(p *corev1.Pod) {
			p.Name, p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = "yurthub-pull-n1", nil, nil
		}, ""},
		"one that pulls an image of a YurtAppSet": {func(p *corev1.Pod) {
			p.Spec.PriorityClassName = "system-cluster-critical"
			p.Name, p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = "yurtappset-pull-5d4f", nil, nil
		}, ""},
		"such a one in another namespace": {func(p *corev1.Pod) {
			p.Namespace, p.Name, p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = "default", "yurtappset-pull-5d4f", nil, nil
		}, ""},
		"such a one with a directory of the node": {
			func(p *corev1.Pod) { p.Name = "yurtappset-pull-5d4f" }, "directories for upgrades",
		},
		"such a one with memory of its own": {func(p *corev1.Pod) {
			p.Name = "yurtappset-pull-5d4f"
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
			p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = p.Spec.Volumes[:1], p.Spec.Containers[0].VolumeMounts[:1]
		}, "directories for upgrades"},
		"a coordinator":     {func(p *corev1.Pod) { p.Name = "yurt-coordinator-p1" }, "names begin with"},
		"another name":      {func(p *corev1.Pod) { p.Name = "coredns" }, "names begin with"},
		"another namespace": {func(p *corev1.Pod) { p.Namespace = "default" }, "in kube-system those"},
		"the node's root":   {func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = "/" }, "directories for upgrades"},
		"what is above": {
			func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = "/var/lib/yurthub/upgrade" }, "directories for upgrades",
		},
		"a directory that it makes": {func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Type = nil }, "directories for upgrades"},
		"a Secret": {func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}
		}, "directories for upgrades"},
		"the outbox, to write": {
			container(func(c *corev1.Container) { c.VolumeMounts[1].ReadOnly = false }), "writes only what is delivered",
		},
		"a second container": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b", Image: "i"})
		}, "one container"},
		"one before it": {
			func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "b", Image: "i"}} }, "one container",
		},
		"a Secret in its environment": {container(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"},
			}}}
		}), "reads no Secrets"},
		"the node's network":   {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "no namespaces of the node"},
		"the node's processes": {func(p *corev1.Pod) { p.Spec.HostPID = true }, "no namespaces of the node"},
		"root": {
			func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = ptr.To[int64](0) }, "only as user 65532",
		},
		"another user": {
			func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = ptr.To[int64](1000) }, "only as user 65532",
		},
		"root in its container": {
			security(func(c *corev1.SecurityContext) { c.RunAsUser = ptr.To[int64](0) }), "only as user 65532",
		},
		"privileges": {
			security(func(c *corev1.SecurityContext) { c.AllowPrivilegeEscalation, c.Privileged = nil, ptr.To(true) }),
			"no privileges",
		},
		"a way to privileges": {
			security(func(c *corev1.SecurityContext) { c.AllowPrivilegeEscalation = nil }), "no privileges",
		},
		"a capability": {
			security(func(c *corev1.SecurityContext) { c.Capabilities.Add = []corev1.Capability{"NET_RAW"} }), "no privileges",
		},
		"those of others": {security(func(c *corev1.SecurityContext) { c.Capabilities.Drop = nil }), "no privileges"},
		"root's group": {
			func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsGroup = ptr.To[int64](0) }, "only as group 65532",
		},
		"no group": {func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsGroup = nil }, "only as group 65532"},
		"root's group for its files": {
			func(p *corev1.Pod) { p.Spec.SecurityContext.FSGroup = ptr.To[int64](0) }, "only as group 65532",
		},
		"any system call": {func(p *corev1.Pod) {
			p.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}, "profiles of seccomp"},
		"no word on system calls": {func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile = nil }, "profiles of seccomp"},
		"any system call of its container": {security(func(c *corev1.SecurityContext) {
			c.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}), "profiles of seccomp"},
		"no AppArmor": {security(func(c *corev1.SecurityContext) {
			c.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}), "profiles of seccomp, AppArmor and SELinux"},
		"no AppArmor, by an annotation": {func(p *corev1.Pod) {
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/yurthub": "unconfined"}
		}, "profiles of seccomp, AppArmor and SELinux"},
		"another type of SELinux": {func(p *corev1.Pod) {
			p.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}, "profiles of seccomp, AppArmor and SELinux"},
		"another type of SELinux in its container": {security(func(c *corev1.SecurityContext) {
			c.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}), "profiles of seccomp, AppArmor and SELinux"},
		"less important": {func(p *corev1.Pod) { p.Spec.PriorityClassName = "" }, "class system-node-critical"},
		"one that pulls an image of a YurtAppSet, more important than it": {func(p *corev1.Pod) {
			p.Name, p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = "yurtappset-pull-5d4f", nil, nil
		}, "otherwise system-cluster-critical"},
		"a probe of any host": {container(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt32(2381)},
			}}
		}), "no probes and no hooks"},
		"a hook": {container(func(c *corev1.Container) {
			c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{
				HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254", Port: intstr.FromInt32(80)},
			}}
		}), "no probes and no hooks"},
		"a port of the node": {container(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 10270, HostPort: 10270}}
		}), "no ports of the node"},
		"a token": {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }, "without its token"},
		"another account": {
			func(p *corev1.Pod) { p.Spec.ServiceAccountName = "coordinator-controller" }, "as the ServiceAccount default",
		},
		"any node":           {func(p *corev1.Pod) { p.Spec.NodeSelector = nil }, "only on nodes of a pool"},
		"a node by its name": {func(p *corev1.Pod) { p.Spec.NodeName = "control-plane-1" }, "only on nodes of a pool"},
		"for ever":           {func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }, "only once"},
	} {
		err := c.Create(t.Context(), upgrader(tt.change), client.DryRunAll)
		if tt.why == "" {
			mustAccept(t, what, err)
		} else {
			mustRefuse(t, what, err, tt.why)
		}
	}
	mustAccept(t, "somebody else's Pod", admin.Create(t.Context(), upgrader(func(p *corev1.Pod) {
		p.Name, p.Spec.HostNetwork = "eve", true
	}), client.DryRunAll))

	others := upgrader(func(p *corev1.Pod) {
		p.Name, p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = "not-an-upgrader", nil, nil
	})
	create(t, admin, others)
	mustRefuse(t, "somebody else's Pod to be deleted", c.Delete(t.Context(), others, client.GracePeriodSeconds(0)),
		"names begin with")
	bare := func(name, app string) *corev1.Pod {
		return upgrader(func(p *corev1.Pod) {
			p.Name, p.Spec.Volumes, p.Spec.Containers[0].VolumeMounts = name, nil, nil
			p.Labels = map[string]string{edge.LabelApp: app}
		})
	}
	shop := bare("yurtappset-pull-shop-5d4f-x", "yurtappset") // of a YurtAppSet of that name
	create(t, admin, shop)
	mustRefuse(t, "a Pod of a workload to be deleted", c.Delete(t.Context(), shop, client.GracePeriodSeconds(0)),
		"names begin with")
	puller := bare("yurtappset-pull-5d4f", "yurtappset-pull")
	puller.Spec.PriorityClassName = "system-cluster-critical"
	create(t, c, puller)
	mustAccept(t, "its own that pulls", c.Delete(t.Context(), puller, client.GracePeriodSeconds(0)))
	own := upgrader(func(*corev1.Pod) {})
	create(t, c, own)
	mustAccept(t, "its own", c.Delete(t.Context(), own, client.GracePeriodSeconds(0)))
	mustAccept(t, "theirs", admin.Delete(t.Context(), others, client.GracePeriodSeconds(0)))
	for what, tt := range map[string]struct {
		app, owner string
		why        string
	}{
		"a coordinator that is to move":     {edge.AppCoordinator, "ReplicaSet", ""},
		"one that only looks like it":       {edge.AppCoordinator, "", "names begin with"},
		"a mirror Pod that looks like it":   {edge.AppCoordinator, "Node", "names begin with"},
		"a Pod of another Deployment":       {"coredns", "ReplicaSet", "names begin with"},
		"a Pod of another, without a label": {"", "ReplicaSet", "names begin with"},
	} {
		pod := bare("yurt-coordinator-p1-5d4f-x", tt.app)
		if tt.owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: tt.owner, Name: "o", UID: "u", Controller: ptr.To(true)},
			}
		}
		create(t, admin, pod)
		if err := c.Delete(t.Context(), pod, client.DryRunAll); tt.why == "" {
			mustAccept(t, what, err)
		} else {
			mustRefuse(t, what, err, tt.why)
		}
		mustAccept(t, what+", by another", admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
}
