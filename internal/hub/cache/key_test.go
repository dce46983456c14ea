package cache

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yurtcoordinator/internal/store"
)

// withSecrets is a disk's Config in which Pods, and blobs of one kind, are secret.
func withSecrets(dir string) DiskConfig {
	return DiskConfig{
		Dir: dir, Secret: func(id store.Collection) bool { return id == diskPods },
		SecretBlob: func(key string) bool { return strings.HasPrefix(key, "answer/secret") },
	}
}

// fillDisk writes something secret and something else.
func fillDisk(t *testing.T, c DiskConfig) {
	t.Helper()
	d := opened(t, c)
	err := errors.Join(d.Sink(diskPods).Replace(t.Context(), diskContent()), d.PutBlob("answer/secret", []byte("a token")),
		d.PutBlob("answer/other", []byte("no secret")), d.Flush(t.Context()), d.Close())
	if err != nil {
		t.Fatal(err)
	}
}

// has checks whether a disk has what is secret; the rest it must have in any case.
func has(t *testing.T, c DiskConfig, want bool) {
	t.Helper()
	d := opened(t, c)
	_, err := d.Load(diskPods)
	token, _ := d.Blob("answer/secret")
	if known := string(token) == "a token"; (err == nil) != want || known != want {
		t.Errorf("it has the collection: %v, and the blob: %t; want %t", err, known, want)
	}
	if other, err := d.Blob("answer/other"); string(other) != "no secret" {
		t.Errorf("the other blob: %q, %v", other, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// A copy of the cache reads as nothing; with the file beside it, it is what it was.
func TestACopiedCache(t *testing.T) {
	dir := t.TempDir()
	c := withSecrets(filepath.Join(dir, "cache"))
	fillDisk(t, c)
	has(t, c, true)
	key := filepath.Join(dir, "cache.key")
	if got := mode(t, key); got != 0o600 {
		t.Errorf("the key's mode is %o", got)
	}
	copied := withSecrets(filepath.Join(t.TempDir(), "cache"))
	if err := os.CopyFS(copied.Dir, os.DirFS(c.Dir)); err != nil {
		t.Fatal(err)
	}
	has(t, copied, false)

	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	has(t, c, true)
	if got := mode(t, key); got != 0o600 {
		t.Errorf("for all to read, the key's mode stays %o", got)
	}
}

// What was encrypted with a key that is lost is lost, and what comes then stays.
func TestALostKey(t *testing.T) {
	for name, lose := range map[string]func(key string) error{
		"removed":   os.Remove,
		"empty":     func(key string) error { return os.Truncate(key, 0) },
		"too long":  func(key string) error { return os.WriteFile(key, make([]byte, keyBytes+1), 0o600) },
		"another's": func(key string) error { return os.WriteFile(key, make([]byte, keyBytes), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			c := withSecrets(filepath.Join(t.TempDir(), "cache"))
			c.KeyFile = filepath.Join(t.TempDir(), "keys", "mine")
			fillDisk(t, c)
			if err := lose(c.KeyFile); err != nil {
				t.Fatal(err)
			}
			has(t, c, false)
			fillDisk(t, c)
			has(t, c, true)
		})
	}
}

// A key that cannot be read is not written over, one that cannot be kept ends with the process.
func TestAKeyThatCannotBeUsed(t *testing.T) {
	c := withSecrets(filepath.Join(t.TempDir(), "cache"))
	fillDisk(t, c)
	c.KeyFile = t.TempDir() // a directory
	has(t, c, false)
	if info, err := os.Stat(c.KeyFile); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
	c.KeyFile = filepath.Join(t.TempDir(), "file", "key")
	if err := os.WriteFile(filepath.Dir(c.KeyFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fillDisk(t, c)
	has(t, c, false)
}

func TestASystemdCredential(t *testing.T) {
	c := withSecrets(filepath.Join(t.TempDir(), "cache"))
	c.Credentials = t.TempDir()
	fillDisk(t, c) // there is none of ours
	if _, err := os.Stat(c.Dir + ".key"); err != nil {
		t.Error(err)
	}
	write := func(secret []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.Credentials, credential), secret, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(bytes.Repeat([]byte("0123456789abcdef"), 4))
	has(t, c, false)
	fillDisk(t, c)
	has(t, c, true)
	if err := os.Remove(c.Dir + ".key"); err != nil {
		t.Fatal(err)
	}
	has(t, c, true)
	if _, err := os.Stat(c.Dir + ".key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file is made beside the credential: %v", err)
	}
	for _, secret := range [][]byte{nil, []byte("short"), make([]byte, credentialBytes+1)} {
		write(secret)
		if _, err := OpenDisk(c); err == nil || !strings.Contains(err.Error(), "credential yurthub-cache-key") {
			t.Errorf("a credential of %d bytes: %v", len(secret), err)
		}
	}
}

func TestTheKeyIsNotInTheCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cache")
	for path, fine := range map[string]bool{
		dir + "/key": false, dir + "/a/b": false, dir: false, dir + "/../cache/key": false,
		dir + ".key": true, dir + "/../key": true, filepath.Dir(dir) + "/cache2/key": true, filepath.Dir(dir) + "/..key": true,
	} {
		c := withSecrets(dir)
		c.KeyFile = path
		d, err := OpenDisk(c)
		if (err == nil) != fine {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			_ = d.Close()
		}
	}
}
