package oci

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Source is a Go program to build.
type Source struct {
	// Dir is the directory of the program's module. Package is its path as the go command takes it.
	Dir, Package string

	// Tags are separated by commas. LDFlags are added to those that remove symbols and the build's ID.
	Tags    string
	LDFlags []string
}

// Compile builds the program for a platform, statically, with the go command. The result depends only on the source
// code, the version of Go and the fields of Source: not on the directory or the user's settings.
func (s Source) Compile(ctx context.Context, platform v1.Platform) (program []byte, err error) {
	work, err := os.MkdirTemp("", "compile-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	out := filepath.Join(work, "program")
	ldflags := append([]string{"-s", "-w", "-buildid="}, s.LDFlags...)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags="+s.Tags,
		"-ldflags="+strings.Join(ldflags, " "), "-o", out, s.Package)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOOS="+platform.OS, "GOARCH="+platform.Architecture)
	var failure bytes.Buffer
	cmd.Stderr = &failure
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build %s for %s/%s: %w\n%s", s.Package, platform.OS, platform.Architecture, err, failure.String())
	}
	return os.ReadFile(out)
}
