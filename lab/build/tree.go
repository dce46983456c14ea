package build

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// fingerprints returns the fingerprints of several modules, joined.
func fingerprints(roots ...string) (string, error) {
	all := make([]string, len(roots))
	for i, root := range roots {
		var err error
		if all[i], err = fingerprint(root); err != nil {
			return "", err
		}
	}
	return strings.Join(all, " "), nil
}

// fingerprint returns the hash of all files of a module that its build could read: its Go code, and whatever it may embed. It
// leaves out tests, hidden directories, testdata, documents and nested modules.
//
// `go build` itself knows best what is up to date, but takes a second to find out for programs of this size; a lab must start
// in less. If fingerprint includes a file too many, a change of that file only costs that second.
func fingerprint(root string) (string, error) {
	tree, err := os.OpenRoot(root)
	if err != nil {
		return "", fmt.Errorf("source of our programs: %w", err)
	}
	defer tree.Close()
	total := sha256.New()
	err = fs.WalkDir(tree.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && skipDir(tree, path, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || skipFile(d.Name()) {
			return nil
		}
		sum, err := hashFile(tree, path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's temporary file
		} else if err != nil {
			return err
		}
		fmt.Fprintf(total, "%s %s\n", sum, path)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("source of our programs: %w", err)
	}
	return hex.EncodeToString(total.Sum(nil)), nil
}

func skipDir(tree *os.Root, path, name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
		return true
	}
	_, err := tree.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

func skipFile(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".md")
}

func hashFile(tree *os.Root, path string) (string, error) {
	f, err := tree.Open(path)
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
