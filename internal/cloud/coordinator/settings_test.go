package coordinator

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/version"
)

func quantity(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }

// manySettings say something in each field.
func manySettings() v1alpha1.CoordinatorSettings {
	return v1alpha1.CoordinatorSettings{
		Create: v1alpha1.CreateAlways, MinNodes: ptr.To[int32](1),
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
	config := Config{Program: Program{Image: image, Release: "v1.0.0", Kubernetes: "v1.36.3"}}.completed()
	spec := podSpec(config, 0, Asked{Taints: tainted, Settings: manySettings()})
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
	if len(preferred) != preferredMax || preferred[1].Weight <= preferred[2].Weight ||
		preferred[0].Weight <= preferred[1].Weight ||
		preferred[0].Preference.MatchExpressions[0].Values[0] != "0" || spec.NodeSelector["ups"] != "yes" {
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
	flags := container(config, Asked{Settings: s}).Args
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

// TestTheProgramKnowsItsFlags: a coordinator gets no flag that its program does not know. A test of package pool holds the file
// to the program.
func TestTheProgramKnowsItsFlags(t *testing.T) {
	parts := strings.Split(version.Next, ".")
	text, err := os.ReadFile("testdata/flags-" + parts[0] + "." + parts[1])
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(text))
	s := manySettings()
	s.ExtraArgs = nil
	config := Config{KubeletAuthority: func() ([]byte, error) { return nil, nil }}.completed()
	c := container(config, Asked{Settings: s})
	for _, arg := range c.Args {
		if name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "="); !slices.Contains(known, name) {
			t.Errorf("it does not know %s", arg)
		}
	}
	if len(c.Args) < 14 {
		t.Errorf("it has only %v", c.Args)
	}
}

// TestImages: the tag has our release and Kubernetes' version, each as somebody says it or as this program has it.
func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	c := Config{Program: Program{
		Image: "host:5000/edge/yurt-coordinator", Release: "v0.2.0", Kubernetes: "v1.36.3",
		Digests: map[string]string{"v0.2.0-k1.35.1": digest},
	}}
	for _, test := range []struct{ kubernetes, want string }{
		{"", "v0.2.0-k1.36.3"},
		{"v1.36.2", "v0.2.0-k1.36.2"},
		{"v1.35.1", "v0.2.0-k1.35.1@" + digest},
	} {
		got := c.image(test.kubernetes)
		if got != c.Image+":"+test.want {
			t.Errorf("%q: %s, want %s", test.kubernetes, got, test.want)
		}
		if tag, _, _ := strings.Cut(test.want, "@"); tagOf(got) != tag {
			t.Errorf("the tag of %s is read as %q", got, tagOf(got))
		}
	}
	for _, none := range []string{"", "host:5000/edge/yurt-coordinator", "yurt-coordinator@" + digest} {
		if tag := tagOf(none); tag != "" {
			t.Errorf("the tag of %s is read as %q", none, tag)
		}
	}
	own := Config{}.completed()
	if own.Release != version.Get().Version {
		t.Errorf("coordinators are of %s without a word, and this program of %s", own.Release, version.Get().Version)
	}
}

// TestASmallPool gets its coordinator where somebody says so, and no other does.
func TestASmallPool(t *testing.T) {
	w := newWorld(t)
	w.pool("p1", 1)
	w.pool("p2", 1)
	w.coordinator("c1", "p1")
	w.coordinator("c2", "p2")
	w.says("small", func(s *v1alpha1.PoolSettingsSpec) {
		s.NodePoolSelector, s.Pools, s.Coordinator.MinNodes = nil, []string{"p1"}, ptr.To[int32](1)
	})
	w.turns(7)
	w.complete("c1", "p1", "p1-n1", "192.0.2.1")
	if got := w.condition("c2", v1alpha1.YurtCoordinatorStalled); got != "True/"+ReasonTooFewNodes {
		t.Errorf("c2: %s", got)
	}
}
