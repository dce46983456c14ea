package release

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

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

// chartName is the name of the one chart that there is.
const chartName = "yurt-coordinator"

// digestsFile is where the chart's templates look for digests. They are no values: `helm upgrade --reuse-values` would put those
// of the former release to the tags of this one.
const digestsFile = "files/digests.json"

// ChartFile returns the name of a packed chart, as Helm names it.
func ChartFile(version string) string {
	return chartName + "-" + strings.TrimPrefix(version, "v") + ".tgz"
}

// Pack returns the chart as an archive that Helm installs.
func (c Chart) Pack() ([]byte, error) {
	var files []oci.File
	err := fs.WalkDir(os.DirFS(c.Dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(os.DirFS(c.Dir), name)
		if err != nil {
			return err
		}
		switch name {
		case "Chart.yaml":
			content, err = c.about(content)
		case "values.yaml":
			content, err = c.values(content)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, oci.Text(path.Join(chartName, name), string(content)))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", c.Dir, err)
	}
	if len(c.Digests) > 0 {
		content, err := json.MarshalIndent(c.Digests, "", "  ")
		if err != nil {
			return nil, err
		}
		files = append(files, oci.Text(path.Join(chartName, digestsFile), string(content)+"\n"))
	}
	// Helm looks for Chart.yaml while it reads.
	slices.SortStableFunc(files, func(a, b oci.File) int { return rank(a) - rank(b) })
	return gzipped(files)
}

func rank(f oci.File) int {
	if f.Path == chartName+"/Chart.yaml" {
		return 0
	}
	return 1
}

// gzipped packs files into a compressed tar.
func gzipped(files []oci.File) ([]byte, error) {
	packed, err := oci.Tar(files...)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(packed)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// about is Chart.yaml with the release's versions.
func (c Chart) about(content []byte) ([]byte, error) {
	return edited(content,
		edit{"version: ", strings.TrimPrefix(c.Version, "v")},
		edit{"appVersion: ", c.Version})
}

// values are the chart's with the registry of the release's images.
func (c Chart) values(content []byte) ([]byte, error) {
	if c.Registry == "" {
		return content, nil
	}
	return edited(content, edit{"  registry: ", fmt.Sprintf("%q", c.Registry)})
}

// edit gives the one line that begins so another value.
type edit struct{ begins, value string }

// edited returns a text after edits. What is around the lines, comments too, stays.
func edited(text []byte, edits ...edit) ([]byte, error) {
	lines := strings.Split(string(text), "\n")
	for _, e := range edits {
		found := 0
		for i, line := range lines {
			if strings.HasPrefix(line, e.begins) {
				lines[i] = e.begins + e.value
				found++
			}
		}
		if found != 1 {
			return nil, fmt.Errorf("%d lines begin with %q, want one", found, e.begins)
		}
	}
	return []byte(strings.Join(lines, "\n")), nil
}
