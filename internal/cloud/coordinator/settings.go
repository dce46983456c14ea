package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/cloud/precedence"
	"yurtcoordinator/internal/edge"
)

// Defaults of a coordinator's settings. An idle coordinator takes 120 MB of memory; two thirds of that are pages of the
// program's file. Under load it takes 190 MB, and 45 MB of files in memory (docs/adr/0001). The memory limit has room for both
// quotas.
var (
	defaultCPU         = resource.MustParse("50m")
	defaultMemory      = resource.MustParse("160Mi")
	defaultMemoryLimit = resource.MustParse("640Mi")
	defaultEtcdQuota   = resource.MustParse("256Mi")
	defaultMirrorQuota = resource.MustParse("128Mi")
)

// priorityClass is that of coordinators: workloads of a node must not take their place.
const priorityClass = "system-cluster-critical"

// preferredMax is how many preferredNodes there can be.
const preferredMax = 10

// settings are those of a pool's coordinator.
type settings struct {
	v1alpha1.CoordinatorSettings
	// from are the PoolSettings that select the pool, by name.
	from []v1alpha1.SettingsGeneration
	// bad says why they can't be used.
	bad error
}

// poolSettings returns all PoolSettings from the cache. They must not be changed.
func (r *Reconciler) poolSettings(ctx context.Context) ([]v1alpha1.PoolSettings, error) {
	if !r.cfg.PoolSettings {
		return nil, nil
	}
	var all v1alpha1.PoolSettingsList
	if err := r.cfg.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PoolSettings: %w", err)
	}
	return all.Items, nil
}

// settingsFor returns what these say of a pool's coordinator.
func (r *Reconciler) settingsFor(pool *v1beta2.NodePool, all []v1alpha1.PoolSettings) (settings, error) {
	var s settings
	var err error
	chosen := precedence.Of(pool, all)
	if s.CoordinatorSettings, _, err = precedence.Coordinator(r.cfg.Settings, chosen); err != nil {
		return s, fmt.Errorf("settings of pool %s: %w", pool.Name, err)
	}
	for _, from := range chosen {
		s.from = append(s.from, v1alpha1.SettingsGeneration{Name: from.Name, Generation: from.Generation})
	}
	slices.SortFunc(s.from, func(a, b v1alpha1.SettingsGeneration) int { return strings.Compare(a.Name, b.Name) })
	s.bad = CheckSettings(s.CoordinatorSettings)
	return s, nil
}

// minNodes returns how many nodes the pool must have.
func (s settings) minNodes() int { return int(ptr.Deref(s.MinNodes, edge.MinPoolNodes)) }

// args returns the flags that settings say.
func args(s v1alpha1.CoordinatorSettings) []string {
	var all []string
	for _, quota := range []struct {
		flag  string
		value *resource.Quantity
	}{{"etcd-quota-bytes", s.EtcdQuota}, {"mirror-quota-bytes", s.MirrorQuota}, {"own-quota-bytes", s.OwnQuota}} {
		if quota.value != nil {
			all = append(all, fmt.Sprintf("--%s=%d", quota.flag, quota.value.Value()))
		}
	}
	if s.OwnSecrets != nil {
		all = append(all, fmt.Sprintf("--own-secrets=%t", *s.OwnSecrets))
	}
	if s.Verbosity != nil {
		all = append(all, fmt.Sprintf("--v=%d", *s.Verbosity))
	}
	if s.LoggingFormat != "" {
		all = append(all, "--logging-format="+s.LoggingFormat)
	}
	return append(all, s.ExtraArgs...)
}

// resources returns a container's. A larger quota takes a larger limit, unless somebody says one.
func resources(s v1alpha1.CoordinatorSettings) corev1.ResourceRequirements {
	limit := defaultMemoryLimit.DeepCopy()
	for _, quota := range []struct {
		is   *resource.Quantity
		than resource.Quantity
	}{{s.EtcdQuota, defaultEtcdQuota}, {s.MirrorQuota, defaultMirrorQuota}} {
		if quota.is != nil && quota.is.Cmp(quota.than) > 0 {
			limit.Add(*quota.is)
			limit.Sub(quota.than)
		}
	}
	all := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: defaultCPU, corev1.ResourceMemory: defaultMemory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: limit},
	}
	if s.Resources != nil {
		for name, value := range s.Resources.Requests {
			all.Requests[name] = value
		}
		for name, value := range s.Resources.Limits {
			all.Limits[name] = value
		}
	}
	return all
}

// affinity returns the affinity of a coordinator's Pod. The Pod prefers the nodes that the settings prefer, which have a label. A
// standby's Pod must not run where another coordinator runs. The scheduler applies this rule in both directions, so slot 0 needs
// no rule, and its Pod is the same with and without standbys. The rule need not name the pool, because no other pool's
// coordinators run on the pool's nodes.
func affinity(slot edge.Slot) *corev1.Affinity {
	nodes := &corev1.NodeAffinity{}
	for rank := range preferredMax {
		is := corev1.NodeSelectorRequirement{
			Key: edge.LabelCoordinatorNode, Operator: corev1.NodeSelectorOpIn, Values: []string{strconv.Itoa(rank)},
		}
		nodes.PreferredDuringSchedulingIgnoredDuringExecution = append(nodes.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{
				Weight:     int32(100 - 9*rank),
				Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{is}},
			})
	}
	all := &corev1.Affinity{NodeAffinity: nodes}
	if slot != 0 {
		all.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{edge.LabelApp: edge.AppCoordinator}},
			TopologyKey:   corev1.LabelHostname,
		}}}
	}
	return all
}

// CheckSettings returns what is wrong with a pool's merged settings; nil means nothing. The API server checks each PoolSettings
// alone, and only what validation rules can express.
func CheckSettings(s v1alpha1.CoordinatorSettings) error {
	var wrong []error
	for _, arg := range s.ExtraArgs {
		name, _, given := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !given || !strings.HasPrefix(arg, "--") || slices.Contains(v1alpha1.ReservedCoordinatorFlags(), name) {
			wrong = append(wrong, fmt.Errorf("extraArgs: %q: give --name=value, of a flag that nothing else sets", arg))
		}
	}
	if n := ptr.Deref(s.MinNodes, 1); n < 1 {
		wrong = append(wrong, fmt.Errorf("minNodes is %d: a coordinator runs on a node", n))
	}
	if n := ptr.Deref(s.Replicas, 1); n < 1 || n > edge.MaxSlots {
		wrong = append(wrong, fmt.Errorf("replicas is %d: a pool has 1 to %d coordinators", n, edge.MaxSlots))
	}
	etcd, own := ptr.Deref(s.EtcdQuota, defaultEtcdQuota), ptr.Deref(s.OwnQuota, resource.Quantity{})
	if own.Cmp(etcd) > 0 {
		wrong = append(wrong, fmt.Errorf("ownQuota is %s, and all objects may take %s (etcdQuota)", own.String(), etcd.String()))
	}
	r := resources(s)
	for name, limit := range r.Limits {
		if request, ok := r.Requests[name]; ok && request.Cmp(limit) > 0 {
			wrong = append(wrong, fmt.Errorf("resources: it requests %s of %s, more than the limit of %s", request.String(), name,
				limit.String()))
		}
	}
	for key, value := range s.NodeSelector {
		for _, is := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
			wrong = append(wrong, fmt.Errorf("nodeSelector: %s=%s: %s", key, value, is))
		}
	}
	return errors.Join(append(wrong, checkTolerations(s.Tolerations)...)...)
}

func checkTolerations(all []corev1.Toleration) []error {
	var wrong []error
	say := func(t corev1.Toleration, is string) {
		wrong = append(wrong, fmt.Errorf("tolerations: %s: %s", t.Key, is))
	}
	for _, t := range all {
		for _, is := range validation.IsQualifiedName(t.Key) {
			say(t, is)
		}
		if slices.Contains(leaves, t.Key) || t.Key == edge.TaintUnschedulable {
			say(t, "whether a coordinator stays on such a node is not a matter of settings")
		}
		switch t.Operator {
		case "", corev1.TolerationOpEqual:
			for _, is := range validation.IsValidLabelValue(t.Value) {
				say(t, is)
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				say(t, "the operator Exists has no value")
			}
		default:
			say(t, fmt.Sprintf("the operator %q is not Equal or Exists", t.Operator))
		}
		switch t.Effect {
		case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			say(t, fmt.Sprintf("there is no effect %q", t.Effect))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			say(t, "tolerationSeconds go with the effect NoExecute")
		}
	}
	return wrong
}
