package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

var secretsID = Collection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: "a"}

// locked is a store's Config with a key; 0 stands for none.
func locked(dir string, key byte) Config {
	c := Config{Dir: dir}
	if key != 0 {
		c.Secrets = Secrets{
			Key:        bytes.Repeat([]byte{key}, 32),
			Collection: func(id Collection) bool { return id.Resource.Resource == "secrets" },
			Blob:       func(key string) bool { return strings.HasPrefix(key, "token/") },
		}
	}
	return c
}

const confidential = "nobody-may-read-this"

// filled is a store with something secret, small and large, and something else. Some of it has been removed again.
func filled(t *testing.T, c Config) {
	t.Helper()
	s := opening(t, c, nil)
	replace(t, s, slicesID, snapshotOf(20, 300, 5))
	secret := stream.Snapshot{Type: streamtest.EndpointSlices, Revision: 7}
	for _, name := range []string{"a", "b", "c"} {
		small, large := confidential, strings.Repeat(confidential, 100)
		secret.Objects = append(secret.Objects, object("a", name, 7, small), object("b", name, 7, large))
	}
	replace(t, s, secretsID, secret)
	for key, value := range map[string]string{
		"token/old": confidential, "token/p": confidential + " for p", "answer/x": "not secret",
	} {
		if err := s.PutBlob(key, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, s)
	s.DropBlob("token/old")
	err := s.Sink(secretsID).Apply(context.Background(), []stream.Event{
		{Type: stream.Deleted, Object: object("a", "c", 8, confidential)},
		{Type: stream.Modified, Object: object("b", "b", 9, confidential)},
	})
	if err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// checkRest checks what is not secret.
func checkRest(t *testing.T, s *Store) {
	t.Helper()
	holds(t, s, slicesID, snapshotOf(20, 300, 5))
	if got, err := s.Blob("answer/x"); string(got) != "not secret" {
		t.Errorf("%q, %v", got, err)
	}
	if h := s.Health(); h.Corrupt != "" || h.Err != "" {
		t.Errorf("%+v", h)
	}
}

// checkSecrets checks what filled has left.
func checkSecrets(t *testing.T, s *Store) {
	t.Helper()
	got, err := s.Load(secretsID)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Objects) != 5 || got.Revision != 9 {
		t.Errorf("%d Secrets at %s", len(got.Objects), got.Revision)
	}
	for _, o := range got.Objects {
		if !bytes.Contains(o.Raw, []byte(confidential)) {
			t.Errorf("%s is %q", o.Key, o.Raw)
		}
	}
	if token, err := s.Blob("token/p"); string(token) != confidential+" for p" {
		t.Errorf("%q, %v", token, err)
	}
	if _, err := s.Blob("token/old"); !errors.Is(err, ErrMiss) {
		t.Errorf("what was removed: %v", err)
	}
}

// readable lists the files of a directory in which something confidential is in clear.
func readable(t *testing.T, dir string) (found []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte(confidential)) {
			found = append(found, f.Name())
		}
	}
	return found
}

func TestSecretsAreEncrypted(t *testing.T) {
	t.Parallel()
	c := locked(t.TempDir(), 1)
	filled(t, c)
	for range 2 {
		if found := readable(t, c.Dir); len(found) > 0 {
			t.Errorf("it can be read in %v", found)
		}
		s := opening(t, c, nil)
		checkSecrets(t, s)
		checkRest(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Whoever has no key, or another one, reads nothing; all else is as it was, and what is written then stays.
func TestWithoutTheKey(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]byte{"none": 0, "another": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := locked(t.TempDir(), 1)
			filled(t, c)
			c.Secrets = locked("", key).Secrets
			s := opening(t, c, nil)
			misses(t, s, secretsID, "never stored")
			if _, err := s.Blob("token/p"); !errors.Is(err, ErrMiss) {
				t.Errorf("the token: %v", err)
			}
			if p := s.Sink(secretsID).Position(); p != 0 {
				t.Errorf("Secrets go on at %s", p)
			}
			if keys := s.Blobs("token/"); len(keys) > 0 {
				t.Errorf("%v are said to be there", keys)
			}
			if n := s.Health().Foreign; n != 2 {
				t.Errorf("%d entries are said to be removed, want a collection and a blob", n)
			}
			checkRest(t, s)
			replace(t, s, secretsID, snapshotOf(2, 10, 20))
			if err := s.PutBlob("token/p", []byte("new")); err != nil {
				t.Fatal(err)
			}
			flush(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = opening(t, c, nil)
			holds(t, s, secretsID, snapshotOf(2, 10, 20))
			if got, err := s.Blob("token/p"); string(got) != "new" {
				t.Errorf("%q, %v", got, err)
			}
			if n := s.Health().Foreign; n != 0 {
				t.Errorf("%d entries are there that nobody can read", n)
			}
			checkRest(t, s)
		})
	}
}

// A damaged file that is kept aside reveals nothing.
func TestADamagedFileIsKept(t *testing.T) {
	t.Parallel()
	c := locked(t.TempDir(), 1)
	filled(t, c)
	path := filepath.Join(c.Dir, fileName)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content[bytes.Index(content, []byte("not secret"))] ^= 1
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s := opening(t, c, nil)
	checkSecrets(t, s)
	if s.Health().Corrupt == "" {
		t.Error("nothing was found")
	}
	if _, err = os.Stat(filepath.Join(c.Dir, corruptName)); err != nil {
		t.Errorf("it is not kept aside: %v", err)
	}
	if found := readable(t, c.Dir); len(found) > 0 {
		t.Errorf("it can be read in %v", found)
	}
}

// A value is read only where it was written, and no two look alike.
func TestAnEncryptedValueHasItsPlace(t *testing.T) {
	t.Parallel()
	v, err := newVault(locked("", 1).Secrets)
	if err != nil {
		t.Fatal(err)
	}
	c, o := coder{vault: v}, object("a", "s", 7, confidential)
	key, other := []byte("a\x00s"), []byte("a\x00t")
	value := c.encode(1, key, o, true)
	if again := c.encode(1, key, o, true); bytes.Equal(value, again) {
		t.Error("the same object is the same bytes")
	}
	if got, err := c.decode(1, key, value); err != nil || !bytes.Equal(got.Raw, o.Raw) || got.Revision != 7 {
		t.Errorf("%v, %v", got, err)
	}
	moved := func(number uint64, key, value []byte) []byte { // with a checksum that is right there
		return seal(ofObject, number, key, value[sealHead:])
	}
	newer := bytes.Clone(value)
	newer[formAt-1]++
	for name, err := range map[string]error{
		"of another collection": second(c.decode(2, key, moved(2, key, value))),
		"of another object":     second(c.decode(1, other, moved(1, other, value))),
		"of another revision":   second(c.decode(1, key, moved(1, key, newer))),
		"cut short":             second(c.decode(1, key, moved(1, key, value[:len(value)-1]))),
		"without content":       second(c.decode(1, key, moved(1, key, value[:valueHead]))),
		"of another blob": second(v.unsealBlob([]byte("token/b"), seal(ofClosedBlob, 0, []byte("token/b"),
			v.sealBlob([]byte("token/a"), []byte("x"))[sealHead:]))),
	} {
		if !errors.Is(err, errForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[A any](_ A, err error) error { return err }

func TestAKeyIsOf32Bytes(t *testing.T) {
	t.Parallel()
	for _, c := range []Secrets{
		{Key: []byte("short")}, {Key: make([]byte, 32)}, {Key: []byte{}, Blob: func(string) bool { return true }},
	} {
		if _, err := Open(Config{Dir: t.TempDir(), Secrets: c}); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}
