// generate writes one bbolt file, gzipped, to standard output: with the release of bbolt that is built in. all.sh does it
// for each release. What is in the file is known to the test that reads it.
package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	bolt "go.etcd.io/bbolt"
)

func main() {
	if err := generate(os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func generate(out io.Writer) error {
	dir, err := os.MkdirTemp("", "bbolt")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "db")
	// Small pages make a deep tree of few bytes.
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 512})
	if err != nil {
		return err
	}
	// Each step is a transaction: pages become free, are used again, and some are free in the end.
	for _, step := range []func(*bolt.Tx) error{
		func(tx *bolt.Tx) error {
			for _, name := range []string{"deep", "empty", "gone", "inline", "large"} {
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return put(tx, "gone", 0, 200)
		},
		func(tx *bolt.Tx) error { return put(tx, "deep", 0, 500) },
		func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("gone")) },
		func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("large")).Put([]byte("run"), []byte(strings.Repeat("0123456789", 500)))
		},
		func(tx *bolt.Tx) error {
			for i := 0; i < 500; i += 3 {
				if err := tx.Bucket([]byte("deep")).Delete([]byte(fmt.Sprintf("key-%04d", i))); err != nil {
					return err
				}
			}
			return put(tx, "inline", 0, 3)
		},
	} {
		if err := db.Update(step); err != nil {
			return err
		}
	}
	if err := db.Close(); err != nil {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(out)
	if _, err := z.Write(content); err != nil {
		return err
	}
	return z.Close()
}

func put(tx *bolt.Tx, bucket string, from, to int) error {
	for i := from; i < to; i++ {
		key, value := fmt.Sprintf("key-%04d", i), fmt.Sprintf("value %d", i)
		if err := tx.Bucket([]byte(bucket)).Put([]byte(key), []byte(value)); err != nil {
			return err
		}
	}
	return nil
}
