package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const chartDir = "../../deploy/charts/yurt-coordinator"

// unpacked returns the files of a compressed tar, and their names in order.
func unpacked(t *testing.T, archive []byte) (files map[string]string, order []string) {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, order
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[h.Name], order = string(content), append(order, h.Name)
		}
	}
}

var (
	digestOfOne   = "sha256:" + strings.Repeat("0a", 32)
	digestOfOther = "sha256:" + strings.Repeat("0b", 32)
)

// TestChart: what is packed says which release it is of, and which images it runs, and is otherwise as its source.
func TestChart(t *testing.T) {
	c := Chart{
		Dir: chartDir, Version: "v0.3.0-rc.1", Registry: "registry.example.org/edge",
		Digests: map[string]string{
			"coordinator-controller:v0.3.0-rc.1": digestOfOne, "yurt-coordinator:v0.3.0-rc.1-k1.36.3": digestOfOther,
		},
	}
	packed, _, err := c.Pack()
	if err != nil {
		t.Fatal(err)
	}
	files, order := unpacked(t, packed)
	if order[0] != "yurt-coordinator/Chart.yaml" {
		t.Errorf("the first file is %s", order[0])
	}
	var about struct{ Version, AppVersion, KubeVersion string }
	if err := yaml.Unmarshal([]byte(files["yurt-coordinator/Chart.yaml"]), &about); err != nil {
		t.Fatal(err)
	}
	if about.Version != "0.3.0-rc.1" || about.AppVersion != "v0.3.0-rc.1" || about.KubeVersion == "" {
		t.Errorf("%+v", about)
	}
	var values struct{ Image struct{ Registry string } }
	if err := yaml.Unmarshal([]byte(files["yurt-coordinator/values.yaml"]), &values); err != nil {
		t.Fatal(err)
	}
	if values.Image.Registry != c.Registry {
		t.Errorf("%+v", values)
	}
	var digests map[string]string
	err = json.Unmarshal([]byte(files["yurt-coordinator/"+digestsFile]), &digests)
	if err != nil || !maps.Equal(digests, c.Digests) {
		t.Errorf("%v, %v", digests, err)
	}
	delete(files, "yurt-coordinator/"+digestsFile)
	for name, content := range files {
		name = strings.TrimPrefix(name, "yurt-coordinator/")
		source, err := os.ReadFile(filepath.Join(chartDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(content, "\n"); lines != strings.Count(string(source), "\n") ||
			name != "Chart.yaml" && name != "values.yaml" && content != string(source) {
			t.Errorf("%s is not as its source", name)
		}
	}
	if again, _, err := c.Pack(); err != nil || !bytes.Equal(again, packed) {
		t.Errorf("packed again it differs: %v", err)
	}
	if name := ChartFile(c.Version); name != "yurt-coordinator-0.3.0-rc.1.tgz" {
		t.Errorf("it is called %s", name)
	}
}

// TestHelmTakesTheChart: it renders the images that the release has.
func TestHelmTakesTheChart(t *testing.T) {
	helm := os.Getenv("HELM")
	if helm == "" {
		t.Fatal("HELM is not set: run `make unit`, or export HELM=$(bin/yurtlab build --print helm)/helm")
	}
	packed, _, err := Chart{
		Dir: chartDir, Version: "v0.3.0", Registry: "registry.example.org/edge",
		Digests: map[string]string{
			"coordinator-controller:v0.3.0": digestOfOne, "yurt-coordinator:v0.3.0-k1.36.3": digestOfOther,
		},
	}.Pack()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, ChartFile("v0.3.0"))
	if err := os.WriteFile(file, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	render := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), helm, append([]string{
			"template", "yurt-coordinator", file, "--namespace=kube-system", "--kube-version=v1.36.0",
		}, args...)...)
		cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	out := render()
	for _, want := range []string{
		"image: registry.example.org/edge/coordinator-controller:v0.3.0@" + digestOfOne + "\n",
		"- --coordinator-image=registry.example.org/edge/yurt-coordinator\n", "- --coordinator-release=v0.3.0\n",
		"- --coordinator-image-digests=v0.3.0-k1.36.3=" + digestOfOther + "\n", `app.kubernetes.io/version: "v0.3.0"`,
		"helm.sh/chart: yurt-coordinator-0.3.0\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it has no %q", want)
		}
	}
	// Another tag is another image, and what somebody says comes first.
	out = render("--set=controller.image.tag=v0.3.1", "--set=coordinator.image.digests.v0\\.3\\.0-k1\\.36\\.3="+digestOfOne,
		"--set=coordinator.image.digests.v0\\.2\\.0-k1\\.36\\.3="+digestOfOther)
	for _, want := range []string{
		"image: registry.example.org/edge/coordinator-controller:v0.3.1\n",
		"- --coordinator-image-digests=v0.2.0-k1.36.3=" + digestOfOther + ",v0.3.0-k1.36.3=" + digestOfOne + "\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("with other values it has no %q", want)
		}
	}
}

// TestEditedFindsItsLine, or says that it does not: a chart whose values have moved must not be released with others.
func TestEditedFindsItsLine(t *testing.T) {
	if got, err := edited([]byte("a: 1\nb: 2\n"), "b: ", "3"); err != nil || string(got) != "a: 1\nb: 3\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"a: 1\n", "b: 1\nb: 2\n"} {
		if got, err := edited([]byte(text), "b: ", "3"); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}
