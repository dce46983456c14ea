package cache

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"
)

const (
	// credential names the systemd credential (LoadCredential=, LoadCredentialEncrypted=) that the key is derived from.
	credential = "yurthub-cache-key" //nolint:gosec // its name
	// keyBytes is the size of the key and of its file, and the least size of a credential.
	keyBytes = 32
	// credentialBytes bounds a credential.
	credentialBytes = 64 << 10
)

// keyFor returns the key that encrypts secret content. It derives the key from systemd's credential if there is one, and fails if
// the credential is useless, because an operator wants it used. Otherwise it reads a file, which it makes if the file is missing
// or useless. If the file can't be read or written, the key lasts only as long as this process. Nobody can read content whose key
// is lost, so the hub reads that content from the cloud again.
func keyFor(c DiskConfig) ([]byte, error) {
	if dir := c.Credentials; dir != "" {
		secret, err := head(filepath.Join(dir, credential), credentialBytes)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("the key for the cache: credential %s: %w", credential, err)
		case len(secret) < keyBytes || len(secret) > credentialBytes:
			return nil, fmt.Errorf("the key for the cache: credential %s has %d bytes: want %d random ones, such as of "+
				"head -c %d /dev/urandom", credential, len(secret), keyBytes, keyBytes)
		default:
			return hkdf.Key(sha256.New, secret, nil, "yurthub cache", keyBytes)
		}
	}
	path := c.KeyFile
	if path == "" {
		path = strings.TrimRight(c.Dir, "/") + ".key"
	}
	if inside(c.Dir, path) {
		return nil, fmt.Errorf("the key %s must not be in the cache %s: a copy of the one would bring the other", path, c.Dir)
	}
	key, err := head(path, keyBytes)
	if err == nil && len(key) == keyBytes {
		_ = os.Chmod(path, 0o600) // it fails on a read-only disk, where nothing can be done about it
		return key, nil
	}
	made := make([]byte, keyBytes)
	if _, err := rand.Read(made); err != nil {
		return nil, err
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // another time it may be read
		klog.Background().Info("The key for the cache can't be read; what is secret is lost, and read from the cloud again",
			"file", path, "err", err)
		return made, nil
	}
	if err := writeKey(path, made); err != nil {
		klog.Background().Info("The key for the cache can't be kept; what is secret is lost when this process ends",
			"file", path, "err", err)
	}
	return made, nil
}

// head reads a file of at most so many bytes; of a longer file it returns one byte more.
func head(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most+1))
}

// inside reports whether a path is in a directory, or the directory itself.
func inside(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err != nil || rel != ".." && !strings.HasPrefix(rel, "../")
}

// writeKey writes the file atomically, before anything is encrypted with the key.
func writeKey(path string, key []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = f.Chmod(0o600)
	if err == nil {
		_, err = f.Write(key)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
