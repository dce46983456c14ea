package release

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"yurtcoordinator/internal/oci"
)

// archives packs the bare programs with what belongs to them, and writes krew's manifest.
func (r *Release) archives(ctx context.Context, out io.Writer, work string) error {
	license, err := os.ReadFile(filepath.Join(r.Root, "LICENSE"))
	if err != nil {
		return err
	}
	completion, err := os.ReadFile(filepath.Join(r.Root, "deploy", "plugin", "kubectl_complete-yurt"))
	if err != nil {
		return err
	}
	beside := map[string][]oci.File{
		hub:    {oci.Text("LICENSE", string(license)), oci.Text("INSTALL.md", r.install())},
		plugin: {oci.Text("LICENSE", string(license)), oci.Executable("kubectl_complete-yurt", completion)},
	}
	for _, name := range []string{hub, plugin} {
		for _, platform := range r.Platforms {
			p, err := r.program(ctx, name, platform)
			if err != nil {
				return err
			}
			dir := fmt.Sprintf("%s-%s-%s-%s", name, r.Version, platform.OS, platform.Architecture)
			files := []oci.File{oci.Executable(path.Join(dir, name), p.content)}
			for _, f := range append(beside[name], oci.Text(name+".cdx.json", string(p.sbom))) {
				f.Path = path.Join(dir, f.Path)
				files = append(files, f)
			}
			packed, err := gzipped(files)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(work, dir+".tar.gz"), packed, 0o644); err != nil {
				return err
			}
			fmt.Fprintf(out, "%s.tar.gz: %.1f MB\n", dir, float64(len(packed))/mb)
		}
	}
	return r.krew(work)
}

// install says what to do with the hub's archive.
func (r *Release) install() string {
	return fmt.Sprintf(`# yurthub %[1]s

One static program, which installs itself. First verify what you have downloaded: see docs/releases.md of the source. Then, as
root on a node of a pool:

    install -m 0755 yurthub /usr/local/bin/yurthub
    yurthub join --nodepool-name=POOL

`+"`yurthub join --help`"+` says what else there is, docs/install-node.md what it does; `+"`yurthub reset`"+` takes it off.
`, r.Version)
}

// krewManifest is what krew's index has of a plugin.
type krewManifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage,omitempty"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string     `json:"uri"`
	SHA256 string     `json:"sha256"`
	Files  []krewFile `json:"files"`
	Bin    string     `json:"bin"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// krew writes the manifest by which krew installs the plugin.
func (r *Release) krew(work string) error {
	var m krewManifest
	m.APIVersion, m.Kind, m.Metadata.Name = "krew.googlecontainertools.github.com/v1alpha2", "Plugin", "yurt"
	m.Spec.Version = r.Version
	m.Spec.ShortDescription = "Ask about pools of edge nodes"
	m.Spec.Description = "Says who speaks for a pool of edge nodes, which nodes are cut off, and why a node is in its state: " +
		"from the cloud, or from the pool's own coordinator while the cloud can't be reached."
	for _, platform := range r.Platforms {
		dir := fmt.Sprintf("%s-%s-%s-%s", plugin, r.Version, platform.OS, platform.Architecture)
		content, err := os.ReadFile(filepath.Join(work, dir+".tar.gz"))
		if err != nil {
			return err
		}
		var p krewPlatform
		p.Selector.MatchLabels = map[string]string{"os": platform.OS, "arch": platform.Architecture}
		p.URI = strings.TrimSuffix(cmp.Or(r.Downloads, "https://example.org"), "/") + "/" + r.Version + "/" + dir + ".tar.gz"
		p.SHA256, p.Bin = sumOf(content), plugin
		p.Files = []krewFile{{dir + "/" + plugin, "."}, {dir + "/LICENSE", "."}}
		m.Spec.Platforms = append(m.Spec.Platforms, p)
	}
	content, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(work, "krew-yurt.yaml"), content, 0o644)
}
