package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta1"
	"yurtcoordinator/internal/edge"
)

func quantity(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }

// manySettings say something in each field.
func manySettings() v1alpha1.CoordinatorSettings {
	return v1alpha1.CoordinatorSettings{
		Create: v1alpha1.CreateAlways, MinNodes: ptr.To[int32](1), Paused: ptr.To(false),
		ExtraArgs: []string{"--service-cluster-ip-range=10.96.0.0/12"}, OwnSecrets: ptr.To(true), Verbosity: ptr.To[int32](2),
		LoggingFormat: "json",
		MirrorQuota:   quantity("384Mi"), OwnQuota: quantity("128Mi"), EtcdQuota: quantity("512Mi"),
		Resources: &v1alpha1.CoordinatorResources{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.1")},
			Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		},
		NodeSelector: map[string]string{"ups": "yes"}, PreferredNodes: []string{"n3", "n1"},
		Tolerations: []corev1.Toleration{{Key: "edge", Operator: corev1.TolerationOpExists}},
	}
}

func TestWhatSettingsMakeOfThePod(t *testing.T) {
	config := Config{Image: image, Release: "v1.0.0", Kubernetes: "v1.36.3"}.completed()
	spec := podSpec(config, Wanted{Image: "x:1", Taints: tainted, Settings: manySettings()})
	args := strings.Join(spec.Containers[0].Args, " ")
	for _, want := range []string{
		"--service-cluster-ip-range=10.96.0.0/12", "--own-secrets=true", "--v=2", "--logging-format=json",
		"--mirror-quota-bytes=402653184",
		"--own-quota-bytes=134217728", "--etcd-quota-bytes=536870912", "--node-name=$(NODE_NAME)",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("no %s in %s", want, args)
		}
	}
	r := spec.Containers[0].Resources
	got := fmt.Sprint(r.Requests.Cpu(), " ", r.Requests.Memory(), " ", r.Limits.Cpu(), " ", r.Limits.Memory())
	if got != "100m 160Mi 1 1152Mi" { // 640 and what both quotas are larger by
		t.Errorf("resources: %s", got)
	}
	nodes := spec.Affinity.NodeAffinity
	preferred := nodes.PreferredDuringSchedulingIgnoredDuringExecution
	if len(preferred) != 3 || preferred[1].Weight <= preferred[2].Weight || preferred[0].Weight <= preferred[1].Weight ||
		preferred[0].Preference.MatchFields[0].Values[0] != "n3" || spec.NodeSelector["ups"] != "yes" {
		t.Errorf("placement: %+v, %+v", nodes, spec.NodeSelector)
	}
	last := spec.Tolerations[len(spec.Tolerations)-1]
	if last.Key != "edge" || len(spec.Tolerations) != 5 {
		t.Errorf("tolerations: %+v", spec.Tolerations)
	}
	s := manySettings()
	s.Resources.Limits[corev1.ResourceMemory] = resource.MustParse("2Gi")
	if limits := resources(s).Limits; limits.Memory().String() != "2Gi" {
		t.Errorf("a limit that is given: %s", limits.Memory())
	}
	if err := CheckSettings(s); err != nil {
		t.Error(err)
	}
}

// TestTheWorkloadsFlagsAreReserved: of each flag that the workload sets nobody else can say anything.
func TestTheWorkloadsFlagsAreReserved(t *testing.T) {
	config := Config{KubeletAuthority: func() ([]byte, error) { return nil, nil }}.completed()
	s := manySettings()
	own := s.ExtraArgs
	s.ExtraArgs = nil
	reserved := v1alpha1.ReservedCoordinatorFlags()
	flags := container(config, Wanted{Settings: s}).Args
	if len(flags) < 16 {
		t.Fatalf("%v", flags)
	}
	for _, arg := range flags {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !slices.Contains(reserved, name) {
			t.Errorf("%s is set by the workload, and not reserved", arg)
		}
		if CheckSettings(v1alpha1.CoordinatorSettings{ExtraArgs: []string{"--" + name + "=x"}}) == nil {
			t.Errorf("--%s can be given twice", name)
		}
	}
	if err := CheckSettings(v1alpha1.CoordinatorSettings{ExtraArgs: own}); err != nil {
		t.Error(err)
	}
	if !slices.IsSorted(reserved) {
		t.Error("they are not sorted")
	}
}

func TestCheckSettings(t *testing.T) {
	tolerates := func(all ...corev1.Toleration) v1alpha1.CoordinatorSettings {
		return v1alpha1.CoordinatorSettings{Tolerations: all}
	}
	for want, s := range map[string]v1alpha1.CoordinatorSettings{
		"give --name=value": {ExtraArgs: []string{"-v=3"}},
		"that nothing else": {ExtraArgs: []string{"--data-dir=/x"}},
		"minNodes is 0":     {MinNodes: ptr.To[int32](0)},
		"replicas is 4":     {Replicas: ptr.To[int32](4)},
		"replicas is 0":     {Replicas: ptr.To[int32](0)},
		"ownQuota is 1Gi":   {OwnQuota: quantity("1Gi")},
		"more than the": {Resources: &v1alpha1.CoordinatorResources{
			Requests: corev1.ResourceList{"memory": *quantity("1Gi")},
		}},
		"nodeSelector: a b=": {NodeSelector: map[string]string{"a b": "c"}},
		"a=ü":                {NodeSelector: map[string]string{"a": "ü"}},
		"not a matter":       tolerates(corev1.Toleration{Key: edge.TaintUnschedulable, Operator: "Exists"}),
		"has no value":       tolerates(corev1.Toleration{Key: "a", Operator: "Exists", Value: "b"}),
		"not Equal or":       tolerates(corev1.Toleration{Key: "a", Operator: "Near"}),
		"no effect":          tolerates(corev1.Toleration{Key: "a", Effect: "Never"}),
		"go with the effect": tolerates(corev1.Toleration{Key: "a", TolerationSeconds: ptr.To[int64](1)}),
	} {
		if err := CheckSettings(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if err := errors.Join(CheckSettings(v1alpha1.CoordinatorSettings{}), CheckSettings(manySettings())); err != nil {
		t.Error(err)
	}
}

// TestShipmentsAreReadBack: what a pool was given is in the YurtAppSet, whatever the template becomes.
func TestShipmentsAreReadBack(t *testing.T) {
	config := Config{Image: image, Release: "v1.0.0", Kubernetes: "v1.36.3", PullSecrets: []string{"pull"}}.completed()
	given := make(map[edge.PoolName]shipment)
	for _, p := range []Wanted{
		{Pool: "plain", Image: image + ":v1"}, {Pool: "tainted", Image: image + ":v2", Taints: tainted},
		{Pool: "set", Image: image + ":v1", Settings: manySettings()},
	} {
		var err error
		if given[p.Pool], err = shipmentOf(config, p); err != nil {
			t.Fatal(err)
		}
	}
	other := Config{Image: "elsewhere", Release: "v9.0.0", Kubernetes: "v1.36.3", Settings: manySettings()}
	for _, next := range []Config{config, other} {
		app, err := appSet(next.completed(), 0, given)
		if err != nil {
			t.Fatal(err)
		}
		content, err := json.Marshal(app)
		if err != nil {
			t.Fatal(err)
		}
		app = &v1beta1.YurtAppSet{}
		if err := json.Unmarshal(content, app); err != nil {
			t.Fatal(err)
		}
		if got := shipped(app); !reflect.DeepEqual(got, given) {
			t.Errorf("%v, want %v", got, given)
		}
		for pool, want := range given {
			if got, ok := shippedTo(app, pool); !ok || got != want {
				t.Errorf("%s: %v, want %v", pool, got, want)
			}
		}
		if _, ok := shippedTo(app, "another"); ok {
			t.Error("a pool that was given nothing")
		}
		app.Spec.Workload.WorkloadTweaks[0].Tweaks.Patches[0].Path = "/no/such/path"
		broken := edge.PoolName(app.Spec.Workload.WorkloadTweaks[0].Pools[0])
		if _, ok := shippedTo(app, broken); ok || len(shipped(app)) == len(given) {
			t.Error("a tweak that somebody has broken")
		}
	}
	if _, ok := shippedTo(nil, "plain"); ok || len(shipped(nil)) > 0 {
		t.Error("without a YurtAppSet")
	}
}
