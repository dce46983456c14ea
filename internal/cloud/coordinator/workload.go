package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
)

const (
	containerName = "yurt-coordinator"
	program       = "/usr/local/bin/yurt-coordinator"

	certsVolume, certsDir = "certs", "/etc/yurt-coordinator/certs"
	// The data is in a directory below the volume. The coordinator must make its directory private, and the volume's own belongs
	// to root.
	dataVolume, volumeDir, dataDir = "data", "/var/lib/yurt-coordinator", "/var/lib/yurt-coordinator/pool"

	// nonroot is the user and group of the image.
	nonroot = 65532

	// placeholder stands for the pool's name in patches, also where OpenYurt's controller makes the workloads.
	placeholder = edge.PoolName("{{nodepool-name}}")
)

// Wanted is a pool that must have a coordinator in a slot.
type Wanted struct {
	Pool     edge.PoolName
	Slot     edge.Slot
	Image    string
	Taints   []corev1.Taint
	Settings v1alpha1.CoordinatorSettings
}

// AppSet returns the YurtAppSet of a slot in which each of these pools has what it is to have there.
func AppSet(c Config, slot edge.Slot, pools []Wanted) (*v1beta1.YurtAppSet, error) {
	given := make(map[edge.PoolName]shipment, len(pools))
	for _, p := range pools {
		var err error
		if given[p.Pool], err = shipmentOf(c, p); err != nil {
			return nil, err
		}
	}
	return appSet(c, slot, given)
}

// appSet returns the YurtAppSet that runs a slot's coordinator in each of these pools. Pools whose shipments are the same share a
// tweak: with one tweak per pool, a YurtAppSet of some thousand pools would be too large for etcd.
func appSet(c Config, slot edge.Slot, pools map[edge.PoolName]shipment) (*v1beta1.YurtAppSet, error) {
	app := &v1beta1.YurtAppSet{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "YurtAppSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: slot.App(), Labels: map[string]string{labelManagedBy: FieldOwner},
		},
	}
	app.Spec.RevisionHistoryLimit = ptr.To[int32](3)
	deployment := template(c, slot)
	app.Spec.Workload.WorkloadTemplate.DeploymentTemplate = deployment
	pods, err := canonical(deployment.Spec.Template.Spec)
	if err != nil {
		return nil, err
	}
	groups := make(map[shipment]int)
	for _, pool := range slices.Sorted(maps.Keys(pools)) {
		i, known := groups[pools[pool]]
		if !known {
			tweaks, err := tweaksTo(pods, slot, pools[pool])
			if err != nil {
				return nil, fmt.Errorf("tweaks of pool %s: %w", pool, err)
			}
			i = len(app.Spec.Workload.WorkloadTweaks)
			groups[pools[pool]] = i
			app.Spec.Workload.WorkloadTweaks = append(app.Spec.Workload.WorkloadTweaks, v1beta1.WorkloadTweak{Tweaks: tweaks})
		}
		group := &app.Spec.Workload.WorkloadTweaks[i]
		group.Pools = append(group.Pools, string(pool))
		app.Spec.Pools = append(app.Spec.Pools, string(pool))
	}
	return app, nil
}

// tolerations returns the tolerations of a coordinator's Pod. The first keep the Pod on a dead node until watchOver makes it
// leave. Then come those for the pool's own taints, sorted, and those of the settings. edge.TaintUnschedulable is not tolerated.
// So a new coordinator starts on no delegated node, and on a relayed one only if it fits nowhere else.
func tolerations(taints []corev1.Taint, more []corev1.Toleration) []corev1.Toleration {
	all := make([]corev1.Toleration, 0, 2+len(taints))
	for _, key := range leaves {
		all = append(all, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
		})
	}
	taints = slices.Clone(taints)
	slices.SortFunc(taints, func(a, b corev1.Taint) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(string(a.Effect), string(b.Effect)))
	})
	for _, t := range taints {
		if t.Key == edge.TaintUnschedulable {
			continue
		}
		all = append(all, corev1.Toleration{
			Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: t.Effect,
		})
	}
	return append(all, more...)
}

func template(c Config, slot edge.Slot) *v1beta1.DeploymentTemplateSpec {
	labels := map[string]string{edge.LabelApp: edge.AppCoordinator, labelManagedBy: FieldOwner}
	selects := map[string]string{edge.LabelApp: edge.AppCoordinator}
	if slot != 0 {
		labels[edge.LabelSlot], selects[edge.LabelSlot] = strconv.Itoa(int(slot)), strconv.Itoa(int(slot))
	}
	return &v1beta1.DeploymentTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: selects},
			// The Deployment deletes the old Pod before it creates the new one, but does not wait for it: a Pod on a dead node
			// stays for as long as its Node does. Until the old coordinator has drained, hubs go by the ConfigMap, which names
			// the newest. On one node the port keeps the two apart.
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxUnavailable: ptr.To(intstr.FromInt32(1)), MaxSurge: ptr.To(intstr.FromInt32(0)),
				},
			},
			RevisionHistoryLimit: ptr.To[int32](1),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       podSpec(c, Wanted{Slot: slot, Image: c.image("", c.Settings.Release), Settings: c.Settings}),
			},
		},
	}
}

// podSpec returns the spec of a coordinator's Pod, with the placeholder for the pool's name.
func podSpec(c Config, p Wanted) corev1.PodSpec {
	spec := corev1.PodSpec{
		HostNetwork:                   true,
		DNSPolicy:                     corev1.DNSDefault,
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		PriorityClassName:             priorityClass,
		TerminationGracePeriodSeconds: ptr.To[int64](10), // it drains for two seconds
		NodeSelector:                  p.Settings.NodeSelector,
		Affinity:                      affinity(p.Settings, p.Slot),
		Tolerations:                   tolerations(p.Taints, p.Settings.Tolerations),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](nonroot), RunAsGroup: ptr.To[int64](nonroot),
			FSGroup:        ptr.To[int64](nonroot), // lets it read the Secret
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{container(c, p)},
		Volumes: []corev1.Volume{
			// Not optional: so the Pod waits for its certificate.
			{Name: certsVolume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: placeholder.CoordinatorSecretIn(p.Slot), DefaultMode: ptr.To[int32](0o400), Optional: ptr.To(false),
			}}},
			// As large as the container's memory, because its pages count there.
			{Name: dataVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				Medium: corev1.StorageMediumMemory,
			}}},
		},
	}
	for _, name := range c.PullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	return spec
}

// container returns a coordinator's container.
func container(c Config, p Wanted) corev1.Container {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
		}}
	}
	return corev1.Container{
		Name:            containerName,
		Image:           p.Image,
		ImagePullPolicy: c.PullPolicy,
		Command:         []string{program},
		Args: slices.Concat([]string{
			"--node-name=$(NODE_NAME)",
			"--bind-address=$(HOST_IP)",
			"--data-dir=" + dataDir,
			"--tls-cert-file=" + certsDir + "/" + corev1.TLSCertKey,
			"--tls-private-key-file=" + certsDir + "/" + corev1.TLSPrivateKeyKey,
			"--client-ca-file=" + certsDir + "/" + keyClientCA,
			"--pool-nodes-file=" + certsDir + "/" + keyPoolNodes,
			"--pool-addresses-file=" + certsDir + "/" + keyPoolAt,
			"--pool-ca-file=" + certsDir + "/" + keyPoolCA,
			"--denied-users-file=" + certsDir + "/" + keyDenied,
			"--addresses-file=" + certsDir + "/" + keyAddresses,
			"--kubelet-client-certificate=" + certsDir + "/" + keyKubeletCert,
			"--kubelet-client-key=" + certsDir + "/" + keyKubeletKey,
		}, kubeletArgs(c), args(p.Settings)),
		Env: []corev1.EnvVar{field("NODE_NAME", "spec.nodeName"), field("HOST_IP", "status.hostIP")},
		Ports: []corev1.ContainerPort{{
			Name: "https", ContainerPort: edge.PortCoordinator, HostPort: edge.PortCoordinator, Protocol: corev1.ProtocolTCP,
		}, {
			Name: "probes", ContainerPort: edge.PortCoordinatorProbes, HostPort: edge.PortCoordinatorProbes, HostIP: loopback,
			Protocol: corev1.ProtocolTCP,
		}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: certsVolume, MountPath: certsDir, ReadOnly: true},
			{Name: dataVolume, MountPath: volumeDir},
		},
		LivenessProbe:  probe("/livez", 10),
		ReadinessProbe: probe("/readyz", 5),
		Resources:      resources(p.Settings),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// kubeletArgs are the flags by which a coordinator verifies kubelets. There are none for tokens of ServiceAccounts: a caller with
// only a token must not use the pool's API, because nothing there tells whether the token is still valid.
func kubeletArgs(c Config) []string {
	if c.KubeletAuthority == nil {
		return nil
	}
	return []string{"--kubelet-certificate-authority=" + certsDir + "/" + keyKubeletCA}
}

// loopback is where kubelet finds the port for probes, since the Pod is on its node's network.
const loopback = "127.0.0.1"

// probe goes to a port of its own: a kubelet shows no certificate to what it probes, and the coordinator's port demands one.
func probe(path string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Host: loopback, Path: path, Port: intstr.FromInt32(edge.PortCoordinatorProbes), Scheme: corev1.URISchemeHTTPS,
		}},
		PeriodSeconds: period, TimeoutSeconds: 5, FailureThreshold: 3, SuccessThreshold: 1,
	}
}

// Service returns the Service of all coordinators. Each node sees only its own pool's coordinators behind it.
func Service() *corev1.Service {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: edge.ServiceCoordinator,
			Labels:      map[string]string{labelManagedBy: FieldOwner, edge.LabelApp: edge.AppCoordinator},
			Annotations: map[string]string{edge.AnnotationTopologyKeys: edge.TopologyNodePool},
		},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: map[string]string{edge.LabelApp: edge.AppCoordinator},
			// Each coordinator counts its own revisions: a client stays with the one that it has, as long as that serves.
			SessionAffinity: corev1.ServiceAffinityClientIP,
			Ports: []corev1.ServicePort{{
				Name: "https", Protocol: corev1.ProtocolTCP, Port: edge.PortCoordinator,
				TargetPort: intstr.FromInt32(edge.PortCoordinator),
			}},
		},
	}
}
