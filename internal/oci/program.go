package oci

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// nonroot is the user that programs run as, unless a Pod says otherwise.
const nonroot = "65532"

// Program is what an image is made of.
type Program struct {
	// Name is the program's, and Title says what it is, to people.
	Name, Title string

	// Content is the program itself, linked statically.
	Content []byte

	// SBOM is put beside it, if it is not empty.
	SBOM []byte

	Platform v1.Platform

	// Version is the image's tag. Revision is that of the source, Created its time; both may be empty.
	Version, Revision string
	Created           time.Time

	// Uncompressed leaves the layer as it is, for an image that goes nowhere.
	Uncompressed bool
}

// Image is the program's: /usr/local/bin/NAME, run as a user that is not root.
func (p Program) Image() (v1.Image, error) {
	if err := standsAlone(p.Content); err != nil {
		return nil, fmt.Errorf("image of %s: %w", p.Name, err)
	}
	path := "/usr/local/bin/" + p.Name
	files := []File{
		Text("/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:"+nonroot+":"+nonroot+":nonroot:/:/sbin/nologin\n"),
		Text("/etc/group", "root:x:0:\nnonroot:x:"+nonroot+":\n"),
		Dir("/tmp", fs.ModeSticky|0o777),
		Executable(path, p.Content),
	}
	if len(p.SBOM) > 0 {
		files = append(files, Text("/usr/share/sbom/"+p.Name+".cdx.json", string(p.SBOM)))
	}
	pack := CompressedLayer
	if p.Uncompressed {
		pack = Layer
	}
	layer, err := pack(files...)
	if err != nil {
		return nil, fmt.Errorf("image of %s: %w", p.Name, err)
	}
	image, err := Image(p.Platform, v1.Config{
		Entrypoint: []string{path}, User: nonroot + ":" + nonroot, WorkingDir: "/",
		Env: []string{"PATH=/usr/local/bin"}, Labels: p.labels(),
	}, layer)
	if err != nil {
		return nil, fmt.Errorf("image of %s: %w", p.Name, err)
	}
	return image, nil
}

func (p Program) labels() map[string]string {
	labels := map[string]string{}
	created := ""
	if !p.Created.IsZero() {
		created = p.Created.UTC().Format(time.RFC3339)
	}
	for name, value := range map[string]string{
		"title": p.Name, "description": p.Title, "version": p.Version, "revision": p.Revision, "created": created,
		"licenses": "Apache-2.0",
	} {
		if value != "" {
			labels["org.opencontainers.image."+name] = value
		}
	}
	return labels
}

// standsAlone returns an error unless a program runs without any other file.
func standsAlone(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it is linked dynamically, and there is nothing else in its image: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
