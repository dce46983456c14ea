package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/oci"
)

// Chart says what a packed chart is of.
type Chart struct {
	// Dir has the chart's source, whose Chart.yaml names the chart.
	Dir string
	// Version is the release's, as v0.2.0. The chart's own version has no v.
	Version string
	// Registry is where its images are; empty leaves that to who installs it.
	Registry string
	// Digests are those of its images, by PROGRAM:TAG. One without is known by its tag alone.
	Digests map[string]string
}

// chartName is the name of the one chart that there is. It gets a repository that is not among the coordinators' images.
const (
	chartName       = "yurt-coordinator"
	chartRepository = "charts/" + chartName
)

// What Helm calls a chart's parts in a registry.
const (
	helmConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	helmContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// digestsFile is where the chart's templates look for the images' digests. The digests are not among the chart's values, because
// `helm upgrade --reuse-values` would combine the former release's digests with this release's tags.
const digestsFile = "files/digests.json"

// ChartFile returns the name of a packed chart, as Helm names it.
func ChartFile(version string) string {
	return chartName + "-" + strings.TrimPrefix(version, "v") + ".tgz"
}

// chart packs the chart that runs these images, as a file and as what a registry gets.
func (r *Release) chart(out io.Writer, work string) error {
	if r.digests[controller] == "" || r.digests[coordinator] == "" {
		return nil // the chart runs both
	}
	registry := r.Registry
	if registry == Nowhere {
		registry = "" // who installs it says it
	}
	packed, about, err := Chart{
		Dir: r.Chart, Version: r.Version, Registry: registry,
		Digests: map[string]string{
			controller + ":" + r.tag(controller):   r.digests[controller],
			coordinator + ":" + r.tag(coordinator): r.digests[coordinator],
		},
	}.Pack()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, ChartFile(r.Version)), packed, 0o644); err != nil {
		return err
	}
	config, err := yaml.YAMLToJSON(about)
	if err != nil {
		return err
	}
	digest, err := writeArtifact(r.layoutDir(work, chartRepository), r.called(chartRepository),
		newBlob(helmConfig, config), newBlob(helmContent, packed))
	if err != nil {
		return err
	}
	r.digests[chartRepository] = digest
	_, err = fmt.Fprintf(out, "%s@%s\n", r.called(chartRepository), digest)
	return err
}

// Pack returns the chart as an archive that Helm installs, and its Chart.yaml.
func (c Chart) Pack() (packed, about []byte, err error) {
	var files []oci.File
	err = fs.WalkDir(os.DirFS(c.Dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(os.DirFS(c.Dir), name)
		if err != nil {
			return err
		}
		switch name {
		case "Chart.yaml":
			if content, err = edited(content, "version: ", strings.TrimPrefix(c.Version, "v")); err == nil {
				content, err = edited(content, "appVersion: ", c.Version)
			}
			about = content
		case "values.yaml":
			if c.Registry != "" {
				content, err = edited(content, "  registry: ", strconv.Quote(c.Registry))
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, oci.Text(path.Join(chartName, name), string(content)))
		return nil
	})
	if err == nil && about == nil {
		err = errors.New("it has no Chart.yaml")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("chart %s: %w", c.Dir, err)
	}
	if len(c.Digests) > 0 {
		content, err := json.MarshalIndent(c.Digests, "", "  ")
		if err != nil {
			return nil, nil, err
		}
		files = append(files, oci.Text(path.Join(chartName, digestsFile), string(content)+"\n"))
	}
	// Helm looks for Chart.yaml while it reads.
	first := slices.IndexFunc(files, func(f oci.File) bool { return f.Path == chartName+"/Chart.yaml" })
	files[0], files[first] = files[first], files[0]
	layer, err := oci.CompressedLayer(files...)
	if err != nil {
		return nil, nil, err
	}
	content, err := layer.Compressed()
	if err != nil {
		return nil, nil, err
	}
	packed, err = io.ReadAll(content)
	return packed, about, errors.Join(err, content.Close())
}

// edited returns a text whose one line that begins so has another value. What is around it, comments too, stays.
func edited(text []byte, begins, value string) ([]byte, error) {
	line := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(begins) + ".*$")
	if n := len(line.FindAll(text, -1)); n != 1 {
		return nil, fmt.Errorf("%d lines begin with %q, want one", n, begins)
	}
	return line.ReplaceAllLiteral(text, []byte(begins+value)), nil
}
