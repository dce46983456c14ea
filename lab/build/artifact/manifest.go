package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

const (
	manifestName    = "manifest.json"
	manifestVersion = 1
)

// manifest is what a set's files are compared with before use.
type manifest struct {
	Version int    `json:"version"`
	Files   []file `json:"files"`
}

type file struct {
	Path   string      `json:"path"`
	Size   int64       `json:"size"`
	Mode   fs.FileMode `json:"mode"`
	Time   int64       `json:"time"` // of the last modification, nanoseconds since 1970
	SHA256 string      `json:"sha256"`
}

// check returns nil if the set in dir is complete and has all wanted files.
func check(dir string, wanted []string) error {
	m, err := readManifest(dir)
	if err != nil {
		return err
	}
	for _, path := range wanted {
		if !slices.ContainsFunc(m.Files, func(f file) bool { return f.Path == path }) {
			return fmt.Errorf("%s: no %s in it", manifestName, path)
		}
	}
	return verify(dir, &m)
}

func readManifest(dir string) (manifest, error) {
	var m manifest
	content, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return m, fmt.Errorf("%s: %w", manifestName, err)
	}
	if m.Version != manifestVersion {
		return m, fmt.Errorf("%s: version %d, want %d", manifestName, m.Version, manifestVersion)
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) {
			return m, fmt.Errorf("%s: path %q", manifestName, f.Path)
		}
	}
	return m, nil
}

// verify compares the files with the manifest. If a time stamp changed but not the content (after a restored backup, or a
// linker run that found its output up to date), verify records the new time stamp, so that it need not hash the content again.
func verify(dir string, m *manifest) error {
	renewed := false
	for i, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		switch {
		case info.Mode() != f.Mode:
			return fmt.Errorf("%s: mode %s, was built with %s", f.Path, info.Mode(), f.Mode)
		case info.Size() != f.Size:
			return fmt.Errorf("%s: %d bytes, was built with %d", f.Path, info.Size(), f.Size)
		case info.ModTime().UnixNano() == f.Time:
			continue
		}
		sum, err := hash(path)
		if err != nil {
			return err
		}
		if sum != f.SHA256 {
			return fmt.Errorf("%s: its content has changed since it was built", f.Path)
		}
		m.Files[i].Time, renewed = info.ModTime().UnixNano(), true
	}
	if renewed {
		// A cache that can't be written still works, only slower.
		_ = writeManifest(dir, *m)
	}
	return nil
}

// seal writes dir's manifest, and syncs everything to the disk.
func seal(dir string, wanted []string) error {
	m := manifest{Version: manifestVersion}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return syncDir(path)
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if rel == manifestName {
			return nil
		}
		f, err := describe(path)
		if err != nil {
			return err
		}
		f.Path = filepath.ToSlash(rel)
		m.Files = append(m.Files, f)
		return nil
	})
	if err != nil {
		return err
	}
	for _, path := range wanted {
		if !slices.ContainsFunc(m.Files, func(f file) bool { return f.Path == path }) {
			return fmt.Errorf("the build succeeded but made no %s", path)
		}
	}
	return writeManifest(dir, m)
}

func describe(path string) (file, error) {
	f, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return file{}, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return file{}, err
	}
	if !info.Mode().IsRegular() {
		return file{}, fmt.Errorf("%s: %s, not a regular file", path, info.Mode())
	}
	sum, err := hash(path)
	if err != nil {
		return file{}, err
	}
	return file{Size: info.Size(), Mode: info.Mode(), Time: info.ModTime().UnixNano(), SHA256: sum}, nil
}

func hash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func writeManifest(dir string, m manifest) (err error) {
	content, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "."+manifestName)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, manifestName))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
