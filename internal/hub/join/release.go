package join

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"

	"yurtcoordinator/internal/hub/upgrade"
	"yurtcoordinator/internal/signed"
)

// programName is what a release calls the hub.
const programName = "yurthub"

// readReleaseList reads the file of --release-list, and the signature beside it.
func (c *Config) readReleaseList() error {
	if c.ReleaseList == "" {
		return nil
	}
	for path, to := range map[string]*string{c.ReleaseList: &c.list, c.ReleaseList + signatureSuffix: &c.listSignature} {
		content, err := readFile(path)
		if err != nil {
			return fmt.Errorf("--release-list: %w", err)
		}
		*to = content
	}
	return nil
}

// signatureSuffix is what the name of a list's signature has more than the list's.
var signatureSuffix = strings.TrimPrefix(signed.SignatureFile, signed.SumsFile)

// heldToRelease returns the image that the static Pod is to name. With --release-list it refuses a program and an image that are
// not of the release, and has the Pod name the image by its digest: a registry can then give no other.
func heldToRelease(c *Config, f *facts) (image string, err error) {
	if c.ReleaseList == "" {
		return pinnedBefore(c.Image, f.files[f.pod()]), nil
	}
	text := or(c.releaseKey, f.files[upgrade.FileKeys])
	if text == "" {
		return "", errors.New("--release-list needs --release-key: whose signature is to count?")
	}
	keys, err := signed.ParseKeys([]byte(text))
	if err != nil {
		return "", fmt.Errorf("%s: %w", upgrade.FileKeys, err)
	}
	sums, err := keys.Open([]byte(c.list), []byte(c.listSignature))
	if err != nil {
		return "", fmt.Errorf("--release-list: %w", err)
	}
	if err := programIsReleased(c, f, sums); err != nil {
		return "", fmt.Errorf("--binary %s: %w in %s", c.Binary, err, c.ReleaseList)
	}
	if c.Image == "" {
		return "", nil
	}
	if image, err = pinned(c.Image, sums); err != nil {
		return "", fmt.Errorf("--static-pod %s: %w", c.Image, err)
	}
	return image, nil
}

// programIsReleased returns an error unless the node's program is a hub of the release; in an image of a node, for any machine.
func programIsReleased(c *Config, f *facts, sums signed.Sums) error {
	file, err := os.Open(c.root() + f.binary)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = sums.Name(file, func(name string) bool {
		if _, ok := signed.ProgramVersion(name, programName, runtime.GOOS+"/"+runtime.GOARCH); ok {
			return true
		}
		return !c.starts() && strings.HasPrefix(name, programName+"-v")
	})
	return err
}

// pinned returns the name of an image with the digest that the release says. The registry may be any, and a mirror's: the digest
// is of the content.
func pinned(image string, sums signed.Sums) (string, error) {
	name, digest, _ := strings.Cut(image, "@sha256:")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if !tagged && digest == "" {
		return "", errors.New("say which: NAME:TAG, as the release's version")
	}
	if !tagged {
		for listed, sum := range sums {
			if of, ok := signed.ImageTag(listed, programName); ok && sum == digest {
				return name + ":" + of + "@sha256:" + digest, nil
			}
		}
		return "", errors.New("the release has no image of yurthub with that digest")
	}
	switch listed := sums[signed.ImageName(programName, tag)]; {
	case listed == "":
		return "", fmt.Errorf("the release has no image of yurthub with the tag %s", tag)
	case digest != "" && digest != listed:
		return "", fmt.Errorf("the release's image with the tag %s is another, sha256:%s", tag, listed)
	default:
		return name + "@sha256:" + listed, nil
	}
}

var podImage = regexp.MustCompile(`(?m)^ *(?:- )?image: *"?([^"\n]+?)"? *$`)

// pinnedBefore returns the image as the Pod that is there names it, if that is the same with a digest: join again with other
// settings does not take back what was verified.
func pinnedBefore(image, pod string) string {
	if found := podImage.FindStringSubmatch(pod); found != nil && image != "" && strings.HasPrefix(found[1], image+"@sha256:") {
		return found[1]
	}
	return image
}
