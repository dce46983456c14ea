package coordinator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	// dataDir is below the volume's directory, because the coordinator must make dataDir private, and the volume's own directory
	// belongs to root.
	dataVolume, volumeDir, dataDir = "data", "/var/lib/yurt-coordinator", "/var/lib/yurt-coordinator/pool"

	// nonroot is the user and group of the image.
	nonroot = 65532

	// placeholder stands for the pool's name in patches, also where OpenYurt's controller makes the workloads.
	placeholder = edge.PoolName("{{nodepool-name}}")
)

// Asked is all that somebody asks of a pool's coordinators. Pools that ask the same share a tweak.
type Asked struct {
	// Version of Kubernetes that the YurtCoordinator names; empty means the controller's own.
	Version  string
	Taints   []corev1.Taint
	Settings v1alpha1.CoordinatorSettings
}

// askedOf returns what a pool asks of its coordinators. It leaves out settings that do not change the Pod, and the preferred
// nodes, which have a label instead. The nodes' names in the YurtAppSet would take a tweak for each pool.
func askedOf(version string, taints []corev1.Taint, s v1alpha1.CoordinatorSettings) Asked {
	s.Create, s.MinNodes, s.Replicas, s.PreferredNodes = "", nil, nil, nil
	return Asked{version, taints, s}
}

// key is equal for pools that ask the same. It is the value of edge.LabelCoordinatorSettings on their NodePools.
func (a Asked) key() string {
	asked := toJSON([]any{a.Version, tolerations(a.Taints, nil), a.Settings})
	return digest(map[string][]byte{"asked": []byte(asked)})[:16]
}

// digestIn returns a digest of the Pod that is made of it in a slot, which is on the Pod.
func (a Asked) digestIn(c Config, slot edge.Slot) string {
	return digest(map[string][]byte{"pod": []byte(toJSON(podSpec(c, slot, a)))})[:16]
}

// AppSet returns the YurtAppSet of a slot. It runs a coordinator in each pool whose NodePool has edge.LabelCoordinators with a
// number above the slot's. The NodePool's label edge.LabelCoordinatorSettings says which of the given Asked the pool gets.
func AppSet(c Config, slot edge.Slot, asked ...Asked) (*v1beta1.YurtAppSet, error) {
	app := &v1beta1.YurtAppSet{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "YurtAppSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: slot.App(), Labels: map[string]string{labelManagedBy: FieldOwner},
		},
	}
	in := metav1.LabelSelectorRequirement{Key: edge.LabelCoordinators, Operator: metav1.LabelSelectorOpIn}
	for n := int(slot) + 1; n <= edge.MaxSlots; n++ {
		in.Values = append(in.Values, strconv.Itoa(n))
	}
	app.Spec.NodePoolSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in}}
	app.Spec.RevisionHistoryLimit, app.Spec.Rollout = ptr.To[int32](3), c.Rollout.spec()
	app.Spec.Workload.WorkloadTemplate.DeploymentTemplate = template(c, slot)
	// All paths are below /spec, because OpenYurt's webhook tries each tweak on a Deployment that has only the template's spec.
	all, err := patches(
		change{"metadata/labels/" + strings.ReplaceAll(edge.LabelNodePool, "/", "~1"), placeholder},
		change{"spec/volumes/0/secret/secretName", placeholder.CoordinatorSecretIn(slot)})
	if err != nil {
		return nil, err
	}
	tweaks := []v1beta1.WorkloadTweak{{NodePoolSelector: &metav1.LabelSelector{}, Tweaks: v1beta1.Tweaks{Patches: all}}}
	for _, a := range asked {
		its, err := tweaksFor(c, slot, a)
		if err != nil {
			return nil, err
		}
		tweaks = append(tweaks, v1beta1.WorkloadTweak{NodePoolSelector: selects(a.key()), Tweaks: v1beta1.Tweaks{Patches: its}})
	}
	app.Spec.Workload.WorkloadTweaks = tweaks
	return app, nil
}

// selects returns the selector of the pools that ask the same.
func selects(key string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{edge.LabelCoordinatorSettings: key}}
}

// tweaksFor returns the patches that make the template into the Pod of a pool that asks this: where it differs, and its digest.
func tweaksFor(c Config, slot edge.Slot, a Asked) ([]v1beta1.Patch, error) {
	base, is := podSpec(c, slot, Asked{Settings: c.Settings}), podSpec(c, slot, a)
	differs := []change{{"metadata/annotations", map[string]string{annotationDigest: a.digestIn(c, slot)}}}
	for _, each := range []struct {
		path    string
		was, is any
	}{
		{"nodeSelector", base.NodeSelector, is.NodeSelector},
		{"tolerations", base.Tolerations, is.Tolerations},
		{"containers/0/image", base.Containers[0].Image, is.Containers[0].Image},
		{"containers/0/args", base.Containers[0].Args, is.Containers[0].Args},
		{"containers/0/resources", base.Containers[0].Resources, is.Containers[0].Resources},
	} {
		if !equality.Semantic.DeepEqual(each.was, each.is) {
			differs = append(differs, change{"spec/" + each.path, each.is})
		}
	}
	return patches(differs...)
}

// change is a value in the template of a Deployment's Pods.
type change struct {
	path  string
	value any
}

// patches returns operations that add values or replace them.
func patches(changes ...change) (all []v1beta1.Patch, err error) {
	for _, c := range changes {
		content, err := json.Marshal(c.value)
		if err != nil {
			return nil, fmt.Errorf("patch of %s: %w", c.path, err)
		}
		all = append(all, v1beta1.Patch{
			Path: "/spec/template/" + c.path, Operation: v1beta1.OperationAdd, Value: &apiextensionsv1.JSON{Raw: content},
		})
	}
	return all, nil
}

// tolerations returns the tolerations of a coordinator's Pod. The first ones keep the Pod on a dead node until watchOver makes
// it leave. Then come those for the pool's own taints, sorted, and those of the settings. edge.TaintUnschedulable is not
// tolerated. So a new coordinator starts on no delegated node, and on a relayed one by default only if it fits nowhere else.
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
	d := &v1beta1.DeploymentTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), RevisionHistoryLimit: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: selects},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(c, slot, Asked{Settings: c.Settings}),
			},
		},
	}
	c.Rollout.paces(&d.Spec)
	return d
}

// podSpec returns the spec of a coordinator's Pod, with the placeholder for the pool's name.
func podSpec(c Config, slot edge.Slot, p Asked) corev1.PodSpec {
	spec := corev1.PodSpec{
		HostNetwork:                   true,
		DNSPolicy:                     corev1.DNSDefault,
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		PriorityClassName:             priorityClass,
		TerminationGracePeriodSeconds: ptr.To[int64](10), // it drains for two seconds
		NodeSelector:                  p.Settings.NodeSelector,
		Affinity:                      affinity(slot),
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
				SecretName: placeholder.CoordinatorSecretIn(slot), DefaultMode: ptr.To[int32](0o400), Optional: ptr.To(false),
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
func container(c Config, p Asked) corev1.Container {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
		}}
	}
	return corev1.Container{
		Name:            containerName,
		Image:           c.image(p.Version),
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
		}, { // closed while nobody has a link to the page
			Name: "links", ContainerPort: edge.PortCoordinatorLinks, HostPort: edge.PortCoordinatorLinks,
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

// kubeletArgs returns the flags by which a coordinator verifies kubelets.
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
