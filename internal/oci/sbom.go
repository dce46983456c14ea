package oci

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
)

// SBOM lists the modules of a Go program, read from the program itself, as CycloneDX JSON without times or anything random.
func SBOM(name, version string, program []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, fmt.Errorf("SBOM of %s: %w", name, err)
	}
	return describe(info, name, version, sha256.Sum256(program))
}

// describe writes what a program with this hash says of itself.
func describe(info *debug.BuildInfo, name, version string, sum [sha256.Size]byte) ([]byte, error) {
	main := component(cyclonedx.ComponentTypeApplication, info.Main.Path, version)
	main.Name = name
	main.PackageURL += "#" + strings.TrimPrefix(strings.TrimPrefix(info.Path, info.Main.Path), "/")
	main.BOMRef = main.PackageURL
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}

	components := []cyclonedx.Component{
		component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go")),
	}
	for _, m := range info.Deps {
		components = append(components, dependency(m))
	}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = uuid.NewHash(sha256.New(), uuid.Nil, sum[:], 8).URN()
	bom.Metadata = &cyclonedx.Metadata{Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}

	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	// Today's scanners read version 1.6.
	if err := encoder.EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("SBOM of %s: %w", name, err)
	}
	return out.Bytes(), nil
}

func component(kind cyclonedx.ComponentType, path, version string) cyclonedx.Component {
	url := "pkg:golang/" + path
	if version != "" {
		url += "@" + version
	}
	return cyclonedx.Component{Type: kind, Name: path, Version: version, PackageURL: url, BOMRef: url}
}

// dependency returns a module, or its replacement.
func dependency(m *debug.Module) cyclonedx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := component(cyclonedx.ComponentTypeLibrary, m.Path, m.Version)
	if m.Sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "golang:h1", Value: m.Sum}}
	}
	return c
}
