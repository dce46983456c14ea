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

// Program is the content and the description of an image.
type Program struct {
	// Name is the program's name. Title describes it to people.
	Name, Title string

	// Content is the program itself, linked statically.
	Content []byte

	// SBOM is stored beside the program, unless it is empty.
	SBOM []byte

	// Beside are more files, in a layer of their own: what is in them changes no other layer.
	Beside []File

	Platform v1.Platform

	// Version is the image's tag. Revision is the source's, and Created its time; both may be empty.
	Version, Revision string
	Created           time.Time

	// Uncompressed leaves the layer uncompressed, for an image that stays on this machine.
	Uncompressed bool
}

// Image returns an image that has the program as /usr/local/bin/NAME and runs it as a user other than root.
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
	layers := []v1.Layer{layer}
	if len(p.Beside) > 0 {
		beside, err := pack(p.Beside...)
		if err != nil {
			return nil, fmt.Errorf("image of %s: %w", p.Name, err)
		}
		layers = append(layers, beside)
	}
	image, err := Image(p.Platform, v1.Config{
		Entrypoint: []string{path}, User: nonroot + ":" + nonroot, WorkingDir: "/",
		Env: []string{"PATH=/usr/local/bin"}, Labels: p.labels(),
	}, layers...)
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

// standsAlone fails unless the program runs without any other file.
func standsAlone(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("the program is linked dynamically, but its image has no libraries: build it with CGO_ENABLED=0")
		}
	}
	return nil
}
