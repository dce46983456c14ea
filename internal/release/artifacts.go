package release

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/oci"
	"yurtcoordinator/internal/signed"
)

// Media types of what a registry gets besides images: Helm's charts, and cosign's signatures.
const (
	helmConfig    types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	helmContent   types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	cosignPayload types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	cosignKey                     = "dev.cosignproject.cosign/signature"
)

// chartRepository is below the registry, so that the chart is not among the coordinators' images.
const chartRepository = "charts/" + chartName

// charts packs the chart, as a file and as what a registry gets.
func (r *Release) charts(_ context.Context, out io.Writer, work string) error {
	packed, err := r.chart().Pack()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, ChartFile(r.Version)), packed, 0o644); err != nil {
		return err
	}
	source, err := os.ReadFile(filepath.Join(r.chart().Dir, "Chart.yaml"))
	if err != nil {
		return err
	}
	about, err := r.chart().about(source)
	if err != nil {
		return err
	}
	config, err := yaml.YAMLToJSON(about)
	if err != nil {
		return err
	}
	image, err := artifact(helmConfig, config, mutate.Addendum{Layer: static.NewLayer(packed, helmContent)})
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	r.digests[chartRepository] = digest.String()
	fmt.Fprintf(out, "%s@%s\n", r.called(chartRepository), digest)
	return oci.WriteLayout(filepath.Join(work, layoutsDir, "chart"), oci.Named{Name: r.called(chartRepository), Image: image})
}

// artifact is what a registry gets that is no image: a configuration and layers.
func artifact(kind types.MediaType, config []byte, layers ...mutate.Addendum) (v1.Image, error) {
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		return nil, err
	}
	return configured{mutate.ConfigMediaType(image, kind), config}, nil
}

// configured is an image whose configuration is any text.
type configured struct {
	v1.Image
	config []byte
}

// RawConfigFile implements v1.Image.
func (c configured) RawConfigFile() ([]byte, error) { return c.config, nil }

// ConfigFile implements v1.Image: what a layout's index says of its platform, which this has none of.
func (c configured) ConfigFile() (*v1.ConfigFile, error) { return &v1.ConfigFile{}, nil }

// ConfigName implements v1.Image.
func (c configured) ConfigName() (v1.Hash, error) { return partial.ConfigName(c) }

// Manifest implements v1.Image.
func (c configured) Manifest() (*v1.Manifest, error) {
	m, err := c.Image.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	name, err := c.ConfigName()
	m.Config = v1.Descriptor{MediaType: m.Config.MediaType, Size: int64(len(c.config)), Digest: name}
	return m, err
}

// RawManifest implements v1.Image.
func (c configured) RawManifest() ([]byte, error) {
	m, err := c.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// Digest implements v1.Image.
func (c configured) Digest() (v1.Hash, error) { return partial.Digest(c) }

// Size implements v1.Image.
func (c configured) Size() (int64, error) { return partial.Size(c) }

// payload is what cosign signs of an image: which it is, and where; and, as an annotation, its tag: a digest alone does not say
// which version it is of, and an older one is signed as well.
type payload struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional struct {
		Tag string `json:"tag"`
	} `json:"optional"`
}

// imageSignatures makes the signatures of all that a registry gets, where cosign looks for them.
func (r *Release) imageSignatures(_ context.Context, _ io.Writer, work string) error {
	for _, name := range r.repositories() {
		var p payload
		p.Critical.Identity.Reference, p.Critical.Image.Digest = r.Registry+"/"+name, r.digests[name]
		p.Critical.Type, p.Optional.Tag = "cosign container image signature", r.tag(name)
		content, err := json.Marshal(p)
		if err != nil {
			return err
		}
		signature, err := signed.Sign(r.Key, content)
		if err != nil {
			return err
		}
		config, err := json.Marshal(v1.ConfigFile{})
		if err != nil {
			return err
		}
		image, err := artifact(types.OCIConfigJSON, config, mutate.Addendum{
			Layer: static.NewLayer(content, cosignPayload), MediaType: cosignPayload,
			Annotations: map[string]string{cosignKey: strings.TrimSpace(string(signature))},
		})
		if err != nil {
			return err
		}
		dir := filepath.Join(work, layoutsDir, strings.ReplaceAll(name, "/", "-")+"-signature")
		if err := oci.WriteLayout(dir, oci.Named{Name: r.signatureName(name), Image: image}); err != nil {
			return err
		}
	}
	return nil
}

// repositories are those below the registry that a release has something in, by their names there.
func (r *Release) repositories() []string {
	var all []string
	for _, p := range imagePrograms {
		all = append(all, p.name)
	}
	return append(all, chartRepository)
}

// signatureName is where cosign looks for the signature of what a repository has of the release.
func (r *Release) signatureName(name string) string {
	return r.Registry + "/" + name + ":" + strings.Replace(r.digests[name], ":", "-", 1) + ".sig"
}

// pushed is a layout, and the name that it gets in its registry.
type pushed struct{ dir, name string }

// pushRelease pushes all that a registry gets, signatures first: what is there without one is not to be trusted.
func (r *Release) pushRelease(ctx context.Context, out io.Writer) error {
	var all []pushed
	for _, name := range r.repositories() {
		dir := filepath.Join(r.Out, layoutsDir, strings.ReplaceAll(name, "/", "-")+"-signature")
		all = append(all, pushed{dir, r.signatureName(name)})
	}
	for _, p := range imagePrograms {
		all = append(all, pushed{filepath.Join(r.Out, layoutsDir, p.name), r.called(p.name)})
	}
	return push(ctx, out, slices.Concat(all, []pushed{{filepath.Join(r.Out, layoutsDir, "chart"), r.called(chartRepository)}}))
}

// crane pushes layouts. As a program of its own, since what it brings to read Docker's credentials is more than all that
// our programs need otherwise.
const crane = "github.com/google/go-containerregistry/cmd/crane@v0.22.1"

func push(ctx context.Context, out io.Writer, all []pushed) error {
	for _, p := range all {
		dir, err := filepath.Abs(p.dir)
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "go", "run", crane, "push", dir, p.name)
		cmd.Dir = string(filepath.Separator) // not our module
		cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("push %s: %w", p.name, err)
		}
	}
	return nil
}
