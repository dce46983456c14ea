package coordinator

import (
	"fmt"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"yurtcoordinator/internal/version"
)

// minorOf returns the minor line of a release, as v0.2; empty if it is none.
func minorOf(release string) string {
	v, err := utilversion.ParseSemantic(release)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("v%d.%d", v.Major(), v.Minor())
}

// checkRelease returns an error if this program can't run the release that settings pin, such as v0.2.0-k1.36.3. It must be of
// this program's own minor version, whose flags coordinators get. Empty is valid and means this program's own release.
func checkRelease(pinned string) error {
	own := minorOf(version.Next)
	if release, _, ok := version.SplitCoordinatorTag(pinned); pinned == "" || ok && minorOf(release) == own {
		return nil
	}
	return fmt.Errorf("release is %q: give the tag of a coordinators' image, such as %s, of %s: it knows the flags of no "+
		"others", pinned, version.CoordinatorTag(version.Next, "v1.36.3"), own)
}

// image returns the image of a coordinator. kubernetes is the version that its YurtCoordinator names, and pinned is the release
// that its settings pin. Either may be empty.
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
