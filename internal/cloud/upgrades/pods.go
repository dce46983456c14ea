package upgrades

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/cloud/objects"
	"yurtcoordinator/internal/edge"
)

const (
	// labelVersion says of which version an upgrader is.
	labelVersion = "openyurt.io/hub-version"

	// Prefixes of upgraders' names, which a policy holds this controller to: see controller-upgraders.yaml.
	prefixPull    = "yurthub-pull-"
	prefixDeliver = "yurthub-upgrade-"

	// deadline bounds a Pod's life. A node answers within a minute.
	deadline = 15 * time.Minute
	// maxMessage bounds what is passed on of what a node says, in bytes.
	maxMessage = 300
)

// podName returns the name of a node's upgrader.
func podName(prefix string, n edge.NodeName) string {
	const most = 253
	if name := prefix + string(n); len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(n))
	return prefix + hex.EncodeToString(sum[:])
}

// podFor returns an upgrader for a node of a pool: one with prefixPull only has its image pulled.
func (c Config) podFor(prefix string, pool edge.PoolName, s step) *corev1.Pod {
	directory := corev1.HostPathDirectory
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: edge.NamespaceSystem, Name: podName(prefix, s.node),
			Labels: map[string]string{edge.LabelApp: edge.AppUpgrader, labelVersion: s.of},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			ActiveDeadlineSeconds:         ptr.To(int64(deadline / time.Second)),
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			PriorityClassName:             "system-node-critical",
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true),
				RunAsUser:    ptr.To[int64](edge.UpgradeUser), RunAsGroup: ptr.To[int64](edge.UpgradeUser),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "yurthub", Image: c.Image + ":" + s.of, ImagePullPolicy: c.PullPolicy, Args: []string{"--version"},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
					},
					// Pages of what is copied count, and can be dropped.
					Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	objects.Pin(&p.Spec, pool, s.node)
	for _, name := range c.PullSecrets {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if prefix == prefixPull {
		return p
	}
	container := &p.Spec.Containers[0]
	container.Args = []string{"upgrade", "deliver", "--id=$(POD_UID)", "--version=" + s.of}
	container.Env = []corev1.EnvVar{{Name: "POD_UID", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"},
	}}}
	for _, v := range []struct {
		name, path string
		readOnly   bool
	}{{"inbox", edge.UpgradeInbox, false}, {"outbox", edge.UpgradeOutbox, true}} {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: v.name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: v.path, Type: &directory},
		}})
		container.VolumeMounts = append(container.VolumeMounts,
			corev1.VolumeMount{Name: v.name, MountPath: v.path, ReadOnly: v.readOnly})
	}
	return p
}

// upgrader is what a node's Pods say.
type upgrader struct {
	work  work
	of    string
	since time.Time
	why   string
}

// read returns what the Pods of a node say: nil means that there is no such Pod. The one that delivers counts.
func read(pull, deliver *corev1.Pod) upgrader {
	p := deliver
	if p == nil {
		p = pull
	}
	if p == nil {
		return upgrader{}
	}
	u := upgrader{of: p.Labels[labelVersion], since: p.CreationTimestamp.Time, work: pulling}
	switch {
	case p.DeletionTimestamp != nil:
		u.work = lost
	case p == pull && p.Status.Phase == corev1.PodSucceeded:
		u.work = pulled
	case p.Status.Phase == corev1.PodFailed && p == pull:
		u.work = lost
	case p == pull:
		u.why = waitsFor(p)
	case p.Status.Phase == corev1.PodSucceeded:
		u.work = done
	case p.Status.Phase == corev1.PodFailed:
		u.work, u.why = answer(p)
	default:
		u.work, u.why = busy, waitsFor(p)
	}
	return u
}

// waitsFor says why a Pod's container does not run; empty if it does, or nobody says.
func waitsFor(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return short(fmt.Sprintf("%s: %s", c.Reason, c.Message))
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" {
			return short(fmt.Sprintf("%s: %s", w.Reason, w.Message))
		}
	}
	return ""
}

// answer returns what a failed Pod's termination message says of its node. A message without an Outcome counts as a refusal:
// the Pod could not deliver, or the node did not answer. A Pod that was killed leaves no message, and counts as lost.
func answer(p *corev1.Pod) (work, string) {
	for _, c := range p.Status.ContainerStatuses {
		t := c.State.Terminated
		if t == nil {
			continue
		}
		var r edge.UpgradeResult
		if json.Unmarshal([]byte(t.Message), &r) != nil {
			continue
		}
		if r.Outcome == edge.UpgradeWentBack {
			return wentBack, short(r.Why)
		}
		return refused, short(r.Why)
	}
	return lost, ""
}

func short(text string) string {
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return text
}
