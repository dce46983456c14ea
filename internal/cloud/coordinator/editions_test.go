package coordinator

import (
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/version"
)

// TestEditions: the first is that of this source, the next one minor version older, and there are no others.
func TestEditions(t *testing.T) {
	parts := strings.Split(version.Next, ".")
	if len(editions) != 2 || "v"+editions[0].minor != parts[0]+"."+parts[1] {
		t.Errorf("%+v, and this source becomes %s", editions, version.Next)
	}
	for pinned, want := range map[string]string{
		"":                            editions[0].minor,
		"v0.2.0-k1.36.3":              "0.2",
		"v0.2.9-rc.1-k1.37.0":         "0.2",
		"v0.2.0-dev.g0e928d5-k1.36.3": "0.2",
		"v0.1.0-k1.36.3":              "0.1",
		"v0.3.0-k1.36.3":              "", // newer than this program
		"v1.2.0-k1.36.3":              "",
		"v0.0.1-k1.36.3":              "",
		"v0.2.0":                      "",
		"v1.36.3":                     "",
		"latest":                      "",
	} {
		of, ok := editionOf(pinned)
		if of.minor != want || ok != (want != "") {
			t.Errorf("%q is of %q, %v; want %q", pinned, of.minor, ok, want)
		}
		if err := CheckSettings(v1alpha1.CoordinatorSettings{Release: pinned}); (err == nil) != ok ||
			err != nil && !strings.Contains(err.Error(), "of v0.2 or v0.1") {
			t.Errorf("%q: %v", pinned, err)
		}
	}
}

// TestEachProgramKnowsItsFlags: a coordinator of a pinned release gets no flag that its program does not know. The flags that
// each knows are in files: of v0.1.0 as its source has them, of this source as a test of package pool holds them to be.
func TestEachProgramKnowsItsFlags(t *testing.T) {
	config := Config{KubeletAuthority: func() ([]byte, error) { return nil, nil }}.completed()
	for _, e := range editions {
		text, err := os.ReadFile("testdata/flags-v" + e.minor)
		if err != nil {
			t.Fatal(err)
		}
		known := strings.Fields(string(text))
		s := manySettings()
		s.ExtraArgs, s.Release = nil, "v"+e.minor+".0-k1.36.3"
		c := container(config, Wanted{Settings: s})
		for _, arg := range c.Args {
			if name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "="); !slices.Contains(known, name) {
				t.Errorf("v%s does not know %s", e.minor, arg)
			}
		}
		if len(c.Args) < 14 {
			t.Errorf("v%s has only %v", e.minor, c.Args)
		}
	}
}

// TestAnOlderCoordinatorIsProbedWhereItAnswers: v0.1 has no port for probes, and asks nobody there for a certificate.
func TestAnOlderCoordinatorIsProbedWhereItAnswers(t *testing.T) {
	for pinned, port := range map[string]int{
		"": edge.PortCoordinatorProbes, "v0.2.0-k1.36.3": edge.PortCoordinatorProbes, "v0.1.0-k1.36.3": edge.PortCoordinator,
	} {
		c := container(Config{}.completed(), Wanted{Settings: v1alpha1.CoordinatorSettings{Release: pinned}})
		ports := 1
		if port == edge.PortCoordinatorProbes {
			ports = 2
		}
		live, ready := c.LivenessProbe.HTTPGet, c.ReadinessProbe.HTTPGet
		if live.Port.IntValue() != port || ready.Port.IntValue() != port || (live.Host == "") != (ports == 1) ||
			len(c.Ports) != ports {
			t.Errorf("%q: probes at %s and %s, ports %v", pinned, live.Port.String(), ready.Port.String(), c.Ports)
		}
	}
}

// TestImages: the tag has our release and Kubernetes' version, each as somebody says it or as this program has it.
func TestImages(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	c := Config{
		Image: "host:5000/edge/yurt-coordinator", Release: "v0.2.0", Kubernetes: "v1.36.3",
		Digests: map[string]string{"v0.1.0-k1.35.1": digest},
	}
	for _, test := range []struct{ kubernetes, pinned, want string }{
		{"", "", "v0.2.0-k1.36.3"},
		{"v1.36.2", "", "v0.2.0-k1.36.2"},
		{"", "v0.1.0-k1.35.1", "v0.1.0-k1.35.1@" + digest},
		{"v1.35.2", "v0.1.0-k1.35.1", "v0.1.0-k1.35.2"},
	} {
		got := c.image(test.kubernetes, test.pinned)
		if got != c.Image+":"+test.want {
			t.Errorf("%q, %q: %s, want %s", test.kubernetes, test.pinned, got, test.want)
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

// TestAPinPins: what a pool runs that settings pin does not change with the controller; what another runs does.
func TestAPinPins(t *testing.T) {
	settings := v1alpha1.CoordinatorSettings{Release: "v0.2.0-k1.36.3"}
	shipped := func(release string, s v1alpha1.CoordinatorSettings) shipment {
		t.Helper()
		c := Config{Image: image, Release: release, Kubernetes: "v1.36.4"}.completed()
		given, err := shipmentOf(c, Wanted{Pool: "a", Image: c.image("", s.Release), Settings: s})
		if err != nil {
			t.Fatal(err)
		}
		return given
	}
	if before, after := shipped("v0.2.0", settings), shipped("v0.2.1", settings); before != after {
		t.Errorf("it changes from\n%s\nto\n%s", before.spec, after.spec)
	}
	none := v1alpha1.CoordinatorSettings{}
	if before, after := shipped("v0.2.0", none), shipped("v0.2.1", none); before == after {
		t.Error("what nobody pins does not change with the controller")
	}
}

// TestAnOlderReleaseHasNoStandbys, whatever its YurtCoordinator asks for.
func TestAnOlderReleaseHasNoStandbys(t *testing.T) {
	c := &v1alpha1.YurtCoordinator{Spec: v1alpha1.YurtCoordinatorSpec{Replicas: ptr.To[int32](3)}}
	for pinned, want := range map[string]edge.Slot{"": 3, "v0.2.0-k1.36.3": 3, "v0.1.0-k1.36.3": 1} {
		v := view{settings: settings{CoordinatorSettings: v1alpha1.CoordinatorSettings{Release: pinned}}}
		if got := v.replicas(c); got != want {
			t.Errorf("%q: %d, want %d", pinned, got, want)
		}
	}
}
