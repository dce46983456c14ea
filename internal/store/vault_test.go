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

	"yurtcoordinator/internal/edge"
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

// A value is read only where it was written, and no two look alike.
func TestAnEncryptedValueHasItsPlace(t *testing.T) {
	t.Parallel()
	v, err := newVault(locked("", 1).Secrets)
	if err != nil {
		t.Fatal(err)
	}
	head, body := frame{key: key{blob: "token/a"}, moment: edge.Moment{Revision: 7}}, []byte(confidential)
	closed := v.close(body, head.place())
	if bytes.Equal(closed, v.close(body, head.place())) {
		t.Error("the same value is the same bytes")
	}
	moved := head
	moved.batch, moved.prev, moved.form = 9, 100, packed // another time, at another place of the file
	if got, err := v.open(closed, moved.place()); err != nil || !bytes.Equal(got, body) {
		t.Errorf("%q, %v", got, err)
	}
	other, newer, does := head, head, head
	other.key.blob, newer.moment.Revision, does.kind = "token/b", 8, goesOn
	for name, place := range map[string]frame{"another key": other, "another revision": newer, "another kind": does} {
		if _, err := v.open(closed, place.place()); !errors.Is(err, errForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, n := range []int{0, 1, len(closed) - 1} {
		if _, err := v.open(closed[:n], head.place()); !errors.Is(err, errForeign) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
}

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
