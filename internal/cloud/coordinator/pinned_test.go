package coordinator

import (
	"os"
	"slices"
	"strings"
	"testing"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/version"
)

// TestPinnableReleases are those of this program's minor version.
func TestPinnableReleases(t *testing.T) {
	if minorOf(version.Next) != "v0.2" {
		t.Error("by docs/versions.md the minor version before can be pinned, too: testdata has the flags that it knows")
	}
	for pinned, can := range map[string]bool{
		"":                            true,
		"v0.2.0-k1.36.3":              true,
		"v0.2.9-rc.1-k1.37.0":         true,
		"v0.2.0-dev.g0e928d5-k1.36.3": true,
		"v0.3.0-k1.36.3":              false, // newer than this program
		"v1.2.0-k1.36.3":              false,
		"v0.0.1-k1.36.3":              false,
		"v0.2.0":                      false,
		"v1.36.3":                     false,
		"latest":                      false,
	} {
		err := CheckSettings(v1alpha1.CoordinatorSettings{Release: pinned})
		if (err == nil) != can || err != nil && !strings.Contains(err.Error(), "of v0.2: it knows") {
			t.Errorf("%q: %v", pinned, err)
		}
	}
}

// TestTheProgramKnowsItsFlags: a coordinator gets no flag that its program does not know. A test of package pool holds the file
// to the program.
func TestTheProgramKnowsItsFlags(t *testing.T) {
	text, err := os.ReadFile("testdata/flags-" + minorOf(version.Next))
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Fields(string(text))
	s := manySettings()
	s.ExtraArgs = nil
	config := Config{KubeletAuthority: func() ([]byte, error) { return nil, nil }}.completed()
	c := container(config, Wanted{Settings: s})
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
	c := Config{
		Image: "host:5000/edge/yurt-coordinator", Release: "v0.2.0", Kubernetes: "v1.36.3",
		Digests: map[string]string{"v0.3.0-k1.35.1": digest},
	}
	for _, test := range []struct{ kubernetes, pinned, want string }{
		{"", "", "v0.2.0-k1.36.3"},
		{"v1.36.2", "", "v0.2.0-k1.36.2"},
		{"", "v0.3.0-k1.35.1", "v0.3.0-k1.35.1@" + digest},
		{"v1.35.2", "v0.3.0-k1.35.1", "v0.3.0-k1.35.2"},
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
