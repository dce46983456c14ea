package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// nfpmConfig is what nfpm makes a package from; see https://nfpm.goreleaser.com/docs/configuration.
type nfpmConfig struct {
	Name          string            `json:"name"`
	Arch          string            `json:"arch"`
	Platform      string            `json:"platform"`
	Version       string            `json:"version"`
	VersionSchema string            `json:"version_schema"`
	Section       string            `json:"section"`
	Priority      string            `json:"priority"`
	Maintainer    string            `json:"maintainer"`
	Description   string            `json:"description"`
	License       string            `json:"license"`
	MTime         string            `json:"mtime"`
	Contents      []nfpmContent     `json:"contents"`
	Scripts       map[string]string `json:"scripts"`
	RPM           struct {
		BuildHost string `json:"buildhost"`
		Summary   string `json:"summary"`
	} `json:"rpm"`
}

type nfpmContent struct {
	Source      string       `json:"src"`
	Destination string       `json:"dst"`
	FileInfo    nfpmFileInfo `json:"file_info"`
}

type nfpmFileInfo struct {
	Mode  uint32 `json:"mode"`
	MTime string `json:"mtime"`
}

// The scripts of the hub's packages. A node whose kubelet goes through the hub would lose its API endpoint with the program:
// first `yurthub reset`. With a new program the hub is started again; one that runs from elsewhere is not touched.
const (
	beforeRemoval = `#!/bin/sh
case "$1" in
remove | 0)
    if [ -e /etc/yurthub/install/joined ]; then
        echo "kubelet on this node goes through yurthub: run yurthub reset first" >&2
        exit 1
    fi
    ;;
esac
`
	afterInstallation = `#!/bin/sh
case "$1" in
configure | 1 | 2) ;;
*) exit 0 ;; # dpkg: a removal or an upgrade was refused, and nothing has changed
esac
if [ -d /run/systemd/system ] && grep -qs '^ExecStart=/usr/bin/yurthub ' /etc/systemd/system/yurthub.service; then
    systemctl try-restart yurthub.service
fi
`
)

// epoch is the time in packages of a source whose time nobody knows.
var epoch = time.Unix(0, 0).UTC()

// packages makes the hub's deb and rpm.
func (r *Release) packages(ctx context.Context, out io.Writer, work string) (err error) {
	scratch, err := os.MkdirTemp("", "packages-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	at := epoch
	if !r.Created.IsZero() {
		at = r.Created.UTC()
	}
	stamp := at.Format(time.RFC3339)
	for _, platform := range r.Platforms {
		p, err := r.program(ctx, hub, platform)
		if err != nil {
			return err
		}
		license, err := os.ReadFile(filepath.Join(r.Root, "LICENSE"))
		if err != nil {
			return err
		}
		for name, content := range map[string][]byte{
			hub: p.content, "LICENSE": license, "sbom": p.sbom, "prerm": []byte(beforeRemoval),
			"postinst": []byte(afterInstallation),
		} {
			if err := os.WriteFile(filepath.Join(scratch, name), content, 0o755); err != nil {
				return err
			}
		}
		config := nfpmConfig{
			Name: hub, Arch: platform.Architecture, Platform: platform.OS, Version: r.Version, VersionSchema: "semver",
			Section: "admin", Priority: "optional", Maintainer: author,
			Description: "The API endpoint of an edge node's own programs\n" +
				"It keeps a node of a pool at work while its link to the cloud is cut. To use it: yurthub join.",
			License: "Apache-2.0", MTime: stamp,
			Scripts: map[string]string{
				"preremove": filepath.Join(scratch, "prerm"), "postinstall": filepath.Join(scratch, "postinst"),
			},
		}
		config.RPM.BuildHost, config.RPM.Summary = "localhost", "The API endpoint of an edge node's own programs"
		for _, f := range []struct {
			name, to string
			mode     uint32
		}{
			{hub, "/usr/bin/yurthub", 0o755}, {"LICENSE", "/usr/share/doc/yurthub/copyright", 0o644},
			{"sbom", "/usr/share/doc/yurthub/yurthub.cdx.json", 0o644},
		} {
			config.Contents = append(config.Contents, nfpmContent{
				filepath.Join(scratch, f.name), f.to, nfpmFileInfo{f.mode, stamp},
			})
		}
		content, err := yaml.Marshal(config)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(scratch, "nfpm.yaml"), content, 0o600); err != nil {
			return err
		}
		for _, kind := range []string{"deb", "rpm"} {
			file := fmt.Sprintf("%s-%s-%s-%s.%s", hub, r.Version, platform.OS, platform.Architecture, kind)
			cmd := exec.CommandContext(ctx, r.Packager, "package", "--config", filepath.Join(scratch, "nfpm.yaml"),
				"--packager", kind, "--target", filepath.Join(work, file))
			cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", at.Unix()))
			var failure bytes.Buffer
			cmd.Stdout, cmd.Stderr = &failure, &failure
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("nfpm makes %s: %w: %s", file, err, failure.String())
			}
			fmt.Fprintln(out, file)
		}
	}
	return nil
}
