package coordinator

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/version"
)

// edition is a minor line of our releases: its coordinators take the same flags, and are probed in the same way. A pool whose
// settings pin a release gets the workload of that release's edition. So a coordinator is never given what its program does not
// know. See docs/adr/0056-versions.md.
type edition struct {
	// minor version, as 0.2.
	minor string
	// lacks are the flags of the newest edition's workload that this one's program does not know.
	lacks []string
	// onePort says that it answers probes at the port of its API. Later ones demand a certificate there.
	onePort bool
	// alone says that it knows no standbys.
	alone bool
}

// editions are those that this program can run, its own first: the skew policy is one minor version back (docs/versions.md). When
// version.Next gets another minor version, the oldest goes and a new one comes.
var editions = []edition{
	{minor: "0.2"},
	{
		minor: "0.1", onePort: true, alone: true,
		lacks: []string{"addresses-file", "denied-users-file", "logging-format", "pool-addresses-file", "pool-ca-file"},
	},
}

// editionOf returns the edition of a release, as settings pin it: v0.2.0-k1.36.3. An empty one is this program's own; false means
// that this program can't run it.
func editionOf(pinned string) (edition, bool) {
	if pinned == "" {
		return editions[0], true
	}
	release, _, ok := version.SplitCoordinatorTag(pinned)
	if !ok {
		return edition{}, false
	}
	v, err := utilversion.ParseSemantic(release)
	if err != nil {
		return edition{}, false
	}
	minor := fmt.Sprintf("%d.%d", v.Major(), v.Minor())
	i := slices.IndexFunc(editions, func(e edition) bool { return e.minor == minor })
	if i < 0 {
		return edition{}, false
	}
	return editions[i], true
}

// checkRelease says what is wrong with a release that settings pin.
func checkRelease(pinned string) error {
	if _, ok := editionOf(pinned); ok {
		return nil
	}
	can := make([]string, len(editions))
	for i, e := range editions {
		can[i] = "v" + e.minor
	}
	return fmt.Errorf("release is %q: give the tag of a coordinators' image, such as %s, of %s: it knows the "+
		"flags of no others", pinned, version.CoordinatorTag(version.Next, "v1.36.3"), strings.Join(can, " or "))
}

// fit returns a container's flags, ports and probes as the edition knows them.
func (e edition) fit(c corev1.Container) corev1.Container {
	c.Args = slices.DeleteFunc(c.Args, func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		return slices.Contains(e.lacks, name)
	})
	if !e.onePort {
		return c
	}
	c.Ports = slices.DeleteFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return p.ContainerPort == edge.PortCoordinatorProbes
	})
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		p.HTTPGet.Host, p.HTTPGet.Port = "", intstr.FromInt32(edge.PortCoordinator)
	}
	return c
}

// image returns the image of a coordinator, whose YurtCoordinator names a version of Kubernetes and whose settings pin a release.
// Either may be empty.
func (c Config) image(kubernetes, pinned string) string {
	release, its, ok := version.SplitCoordinatorTag(pinned)
	if !ok {
		release, its = c.Release, c.Kubernetes
	}
	if kubernetes == "" {
		kubernetes = its
	}
	tag := version.CoordinatorTag(release, kubernetes)
	image := c.Image + ":" + tag
	if digest := c.Digests[tag]; digest != "" {
		image += "@" + digest
	}
	return image
}

// tagOf returns the tag of an image; empty if it has none.
func tagOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return tag
}
