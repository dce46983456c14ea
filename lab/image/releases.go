package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/oci"
	"yurtcoordinator/internal/signed"
	"yurtcoordinator/lab/build/artifact"
)

// Files of an archive of releases in its set, and where an image has the signed list of its release's programs.
const (
	releasesName = "releases.tar"
	releaseKey   = "release.pub"
	dirRelease   = "/usr/share/release"
)

// ReleasesConfig says what images of yurthub's releases are made from, and where the archive is kept.
type ReleasesConfig struct {
	// CacheDir, Waiting and Clock are as in Config.
	CacheDir string
	Waiting  func(holder string)
	Clock    clock.WithTicker

	// Programs are yurthubs by their versions, which are the images' tags.
	Programs map[string]string
}

// Releases are images of yurthub, signed as a release is.
type Releases struct {
	Archive
	// Key is the file with the public key. Next to it, each version has a directory of its name with the list of its programs
	// and the list's signature, as a release page has them.
	Key string
}

// EnsureReleases returns the images of yurthub's releases, and makes them first, with a key of their own, if there are none.
func EnsureReleases(ctx context.Context, config ReleasesConfig) (Releases, error) {
	versions := slices.Sorted(maps.Keys(config.Programs))
	contents := map[string][]byte{}
	key, files := []string{recipe, runtime.GOARCH, "lists"}, []string{releasesName, releaseKey}
	for _, v := range versions {
		content, err := os.ReadFile(config.Programs[v])
		if err != nil {
			return Releases{}, fmt.Errorf("images of releases: %w", err)
		}
		contents[v] = content
		key = append(key, v, string(content))
		files = append(files, filepath.Join(v, signed.SumsFile), filepath.Join(v, signed.SignatureFile))
	}
	store := artifact.Store{Dir: config.CacheDir, Clock: config.Clock, Waiting: config.Waiting}
	e, err := store.Get(ctx, artifact.Spec{
		Name: "releases", Key: artifact.Key(key...), Files: files,
		Build: func(_ context.Context, dir, _ string) error { return makeReleases(dir, versions, contents) },
	})
	if err != nil {
		return Releases{}, fmt.Errorf("images of releases: %w", err)
	}
	if err := e.Close(); err != nil {
		return Releases{}, fmt.Errorf("images of releases: %w", err)
	}
	r := Releases{Archive{Path: e.Path(releasesName)}, e.Path(releaseKey)}
	for _, v := range versions {
		r.Images = append(r.Images, releaseImage(v))
	}
	return r, nil
}

func releaseImage(version string) string { return SystemRegistry + "/yurthub:" + version }

// writeList writes a release's list and its signature.
func writeList(dir, sums, signature string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, signed.SumsFile), []byte(sums), 0o600),
		os.WriteFile(filepath.Join(dir, signed.SignatureFile), []byte(signature), 0o600))
}

// makeReleases writes the archive, the lists and the public key.
func makeReleases(dir string, versions []string, contents map[string][]byte) error {
	key, err := signed.GenerateKey()
	if err != nil {
		return err
	}
	public, err := signed.EncodeKey(&key.PublicKey)
	if err != nil {
		return err
	}
	var images []oci.Named
	for _, v := range versions {
		sum := sha256.Sum256(contents[v])
		sums := signed.Sums{
			signed.ProgramName("yurthub", v, runtime.GOOS+"/"+runtime.GOARCH): hex.EncodeToString(sum[:]),
		}.String()
		signature, err := signed.Sign(key, []byte(sums))
		if err != nil {
			return err
		}
		if err := writeList(filepath.Join(dir, v), sums, string(signature)); err != nil {
			return err
		}
		program := oci.Program{Name: "yurthub", Content: contents[v], Platform: platform(), Version: v, Uncompressed: true}
		plain, err := program.Image()
		if err != nil {
			return err
		}
		layer, err := oci.Layer(oci.Text(path.Join(dirRelease, signed.SumsFile), sums),
			oci.Text(path.Join(dirRelease, signed.SignatureFile), string(signature)))
		if err != nil {
			return err
		}
		whole, err := mutate.AppendLayers(plain, layer)
		if err != nil {
			return err
		}
		images = append(images, oci.Named{Name: releaseImage(v), Content: whole})
	}
	return errors.Join(oci.WriteArchive(filepath.Join(dir, releasesName), images...),
		os.WriteFile(filepath.Join(dir, releaseKey), public, 0o600))
}
