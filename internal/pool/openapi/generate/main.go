// Command generate packs the OpenAPI documents of Kubernetes' module, of the groups and versions that a coordinator
// serves, into the directory documents of the package that it is run in.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// served are the paths of what a coordinator serves of Kubernetes; a test of the coordinator holds them against it.
var served = []string{
	"api/v1",
	"apis/authentication.k8s.io/v1",
	"apis/authorization.k8s.io/v1",
	"apis/coordination.k8s.io/v1",
	"apis/discovery.k8s.io/v1",
	"apis/networking.k8s.io/v1",
	"apis/rbac.authorization.k8s.io/v1",
	"apis/resource.k8s.io/v1",
	"apis/storage.k8s.io/v1",
}

const directory = "documents"

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "generate OpenAPI documents:", err)
		os.Exit(1)
	}
}

func generate() error {
	found, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return fmt.Errorf("find the module k8s.io/kubernetes: %w", err)
	}
	sources := filepath.Join(strings.TrimSpace(string(found)), "api", "openapi-spec", "v3")
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	if err := os.Mkdir(directory, 0o755); err != nil {
		return err
	}
	for _, path := range served {
		name := strings.ReplaceAll(path, "/", "__")
		source, err := os.ReadFile(filepath.Join(sources, name+"_openapi.json"))
		if err != nil {
			return err
		}
		packed, err := pack(source)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(filepath.Join(directory, name+".json.gz"), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack takes the white space out of a document and compresses it, the same every time.
func pack(source []byte) ([]byte, error) {
	var plain, packed bytes.Buffer
	if err := json.Compact(&plain, source); err != nil {
		return nil, err
	}
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain.Bytes()); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
