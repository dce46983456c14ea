package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"yurtcoordinator/internal/signed"
)

// Names of files of a release: its public key, the signature of SHA256SUMS in the form that cosign 3 asks for, and what the
// release was built from.
const (
	KeyFile        = "release.pub"
	BundleFile     = "SHA256SUMS.sigstore.json"
	ProvenanceFile = "provenance.json"
)

// What cosign's signatures are in a registry, and the annotation that has one.
const (
	cosignPayload types.MediaType = "application/vnd.dev.cosign.simplesigning.v1+json"
	cosignKey     string          = "dev.cosignproject.cosign/signature"
)

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// files copies the bare programs, which people and nodes run outside of images, and the files in r.Files. It signs the list of
// the bare programs, which goes into the hub's image.
func (r *Release) files(_ io.Writer, work string) error {
	sums := signed.Sums{}
	for _, name := range []string{hub, plugin} {
		for _, platform := range r.platforms {
			from, to := r.program(name, platform), signed.ProgramName(name, r.Version, platform.OS+"/"+platform.Architecture)
			content, err := os.ReadFile(from)
			if err != nil {
				return err
			}
			sums[to] = sumOf(content)
			if err := os.WriteFile(filepath.Join(work, to), content, 0o755); err != nil {
				return err
			}
			if err := copyTo(filepath.Join(work, to+".cdx.json"), from+".cdx.json", 0o644); err != nil {
				return err
			}
		}
	}
	for _, from := range r.Files {
		if err := copyTo(filepath.Join(work, filepath.Base(from)), from, 0o644); err != nil {
			return err
		}
	}
	var err error
	r.sums = []byte(sums.String())
	r.signature, err = signed.Sign(r.Key, r.sums)
	return err
}

// signImages makes a signature of each thing that a registry gets, at the place where cosign looks for it. Like cosign, it signs
// the digest and the repository. It also signs the tag, as an annotation, because a digest alone does not say which version it
// is, and older versions are signed as well.
func (r *Release) signImages(_ io.Writer, work string) error {
	for _, name := range r.repositories() {
		content, err := json.Marshal(map[string]any{
			"critical": map[string]any{
				"identity": map[string]string{"docker-reference": r.Registry + "/" + name},
				"image":    map[string]string{"docker-manifest-digest": r.digests[name]},
				"type":     "cosign container image signature",
			},
			"optional": map[string]string{"tag": r.tag(name)},
		})
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
		layer := newBlob(cosignPayload, content)
		layer.descriptor.Annotations = map[string]string{cosignKey: strings.TrimSpace(string(signature))}
		dir := r.layoutDir(work, name+signatureSuffix)
		if _, err := writeArtifact(dir, r.signatureName(name), newBlob(types.OCIConfigJSON, config), layer); err != nil {
			return err
		}
	}
	return nil
}

// signatureName is where cosign looks for the signature of what a repository has of the release.
func (r *Release) signatureName(name string) string {
	return r.Registry + "/" + name + ":" + strings.Replace(r.digests[name], ":", "-", 1) + ".sig"
}

// signatureSuffix is what the layout of a signature is called, after what it signs.
const signatureSuffix = "-signature"

// sign writes the list of all files and images, its signature in two forms, and the key by which that is verified.
func (r *Release) sign(_ io.Writer, work string) error {
	sums := signed.Sums{}
	entries, err := os.ReadDir(work)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() { // what a registry gets has signatures of its own
			continue
		}
		content, err := os.ReadFile(filepath.Join(work, e.Name()))
		if err != nil {
			return err
		}
		sums[e.Name()] = sumOf(content)
	}
	for _, p := range imagePrograms { // by which a node knows the image that it is to run
		sums[signed.ImageName(p.name, r.tag(p.name))] = strings.TrimPrefix(r.digests[p.name], "sha256:")
	}
	if err := r.attest(work, sums); err != nil {
		return err
	}
	list := []byte(sums.String())
	signature, err := signed.Sign(r.Key, list)
	if err != nil {
		return err
	}
	public, err := signed.EncodeKey(&r.Key.PublicKey)
	if err != nil {
		return err
	}
	bundle, err := bundled(list, signature, public)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		signed.SumsFile: list, signed.SignatureFile: signature, BundleFile: bundle, KeyFile: public,
	} {
		if err := os.WriteFile(filepath.Join(work, name), content, 0o644); err != nil {
			return err
		}
	}
	read, err := signed.ParseSums(list)
	if err == nil && !bytes.Equal([]byte(read.String()), list) {
		return fmt.Errorf("%s is not read as it was written", signed.SumsFile)
	}
	return err
}

// attest writes an in-toto statement with SLSA's provenance: what built the files and images, and from which commit. The
// statement is one of the files in the signed list. Nothing in it differs from one run to the next.
func (r *Release) attest(work string, sums signed.Sums) error {
	var subjects []any
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		subjects = append(subjects, map[string]any{"name": name, "digest": map[string]string{"sha256": sums[name]}})
	}
	source := map[string]any{"uri": r.Source, "digest": map[string]string{"gitCommit": r.Revision}}
	content, err := json.MarshalIndent(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "subject": subjects, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": map[string]any{
			"buildDefinition": map[string]any{
				"buildType": r.Builder, "externalParameters": map[string]string{"version": r.Version},
				"resolvedDependencies": []any{source},
			},
			"runDetails": map[string]any{"builder": map[string]string{"id": r.Builder}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	sums[ProvenanceFile] = sumOf(content)
	return os.WriteFile(filepath.Join(work, ProvenanceFile), content, 0o644)
}

// bundled returns a signature as a Sigstore bundle, version 0.3. The bundle has only a checksum of the key, so whoever verifies
// it needs the key from elsewhere.
func bundled(content, signature, public []byte) ([]byte, error) {
	of := func(content []byte) string {
		sum := sha256.Sum256(content)
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	return json.MarshalIndent(map[string]any{
		"mediaType":            "application/vnd.dev.sigstore.bundle.v0.3+json",
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": of(public)}},
		"messageSignature": map[string]any{
			"messageDigest": map[string]string{"algorithm": "SHA2_256", "digest": of(content)},
			"signature":     strings.TrimSpace(string(signature)),
		},
	}, "", "  ")
}
