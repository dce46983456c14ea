package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const packedDir, programsDir = "../../dist/goreleaser", "../../dist/programs"

// unpacked returns the files of a compressed tar, and fails unless root owns them.
func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(strings.NewReader(content(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		of, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "root" || h.Gname != "root" {
			t.Errorf("%s: %s is of %d:%d, %s:%s", path, h.Name, h.Uid, h.Gid, h.Uname, h.Gname)
		}
		files[h.Name] = string(of)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestPacked checks what goreleaser has made before it is signed: `make release` runs it.
func TestPacked(t *testing.T) {
	version := os.Getenv("VERSION")
	if os.Getenv("PACKED") == "" || version == "" {
		t.Skip("`make release` runs it")
	}
	dirs, err := filepath.Glob(programsDir + "/linux/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no programs: %v", err)
	}
	var architectures []string
	for _, dir := range dirs {
		architectures = append(architectures, filepath.Base(dir))
	}
	t.Run("archives", func(t *testing.T) { areArchives(t, version, architectures) })
	t.Run("krew", func(t *testing.T) { isForKrew(t, version, architectures) })
	t.Run("packages", func(t *testing.T) { arePackages(t, version, architectures) })
}

func areArchives(t *testing.T, version string, architectures []string) {
	for _, architecture := range architectures {
		dir := "yurthub-" + version + "-linux-" + architecture
		of := unpacked(t, filepath.Join(packedDir, dir+".tar.gz"))
		names := slices.Sorted(maps.Keys(of))
		want := []string{dir + "/INSTALL.md", dir + "/LICENSE", dir + "/yurthub", dir + "/yurthub.cdx.json"}
		if !slices.Equal(names, want) {
			t.Errorf("%v, want %v", names, want)
		}
		if of[dir+"/yurthub"] != content(t, filepath.Join(programsDir, "linux", architecture, "yurthub")) {
			t.Error("the program in the archive is not the bare one")
		}
		// A scanner finds the statements on vulnerabilities by the name that a program has in its SBOM.
		for _, name := range []string{"yurthub", "kubectl-yurt"} {
			sbom := content(t, filepath.Join(programsDir, "linux", architecture, name+".cdx.json"))
			if id := "pkg:golang/yurtcoordinator@" + version + "#cmd/" + name; !strings.Contains(sbom, `"purl": "`+id+`"`) {
				t.Errorf("the SBOM of %s calls it otherwise than %s", name, id)
			}
		}
	}
}

// isForKrew: the manifest names each platform's archive, by its sum, and the archive has what krew takes.
func isForKrew(t *testing.T, version string, architectures []string) {
	var m struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(content(t, filepath.Join(packedDir, "krew-yurt.yaml"))), &m); err != nil {
		t.Fatal(err)
	}
	if m.Metadata.Name != "yurt" || m.Spec.Version != version || len(m.Spec.Platforms) != len(architectures) {
		t.Errorf("%+v", m)
	}
	for _, p := range m.Spec.Platforms {
		name := "kubectl-yurt-" + version + "-linux-" + p.Selector.MatchLabels["arch"] + ".tar.gz"
		sum := sha256.Sum256([]byte(content(t, filepath.Join(packedDir, name))))
		want := strings.TrimSuffix(os.Getenv("DOWNLOADS"), "/") + "/" + version + "/" + name
		if p.URI != want || p.SHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("krew gets %s, %s; want %s", p.URI, p.SHA256, want)
		}
		of := unpacked(t, filepath.Join(packedDir, name))
		for _, file := range []string{p.Bin, "LICENSE", "kubectl_complete-yurt", "kubectl-yurt.cdx.json"} {
			if of[file] == "" {
				t.Errorf("krew takes %s, which is not in %s", file, name)
			}
		}
	}
}

// arePackages: dpkg knows what is in the deb, and the rpm is one.
func arePackages(t *testing.T, version string, architectures []string) {
	for _, architecture := range architectures {
		deb := filepath.Join(packedDir, "yurthub-"+version+"-linux-"+architecture+".deb")
		release, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), "-")
		for args, want := range map[string]string{
			"--field":    "Architecture: " + architecture,
			"--contents": "./usr/bin/yurthub",
			"--info":     "Version: " + release,
		} {
			out, err := exec.CommandContext(t.Context(), "dpkg-deb", args, deb).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("dpkg-deb %s: %v: %s; want %q", args, err, out, want)
			}
		}
		rpm := []byte(content(t, strings.TrimSuffix(deb, "deb")+"rpm"))
		inRPM := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[architecture]
		if !bytes.HasPrefix(rpm, []byte("\xed\xab\xee\xdb")) || !bytes.Contains(rpm, []byte(inRPM)) {
			t.Errorf("the rpm for %s is none", architecture)
		}
	}
}
