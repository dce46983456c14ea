// Command generate packs the OpenAPI documents of Kubernetes' module, for the groups and versions that a coordinator
// serves, into the directory documents of the package that it runs in. The module's documents do not say which values a
// field may have, but a kube-apiserver does: so Kubernetes' definitions describe each type again.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	definitions "k8s.io/kubernetes/pkg/generated/openapi"
)

// served are the paths of Kubernetes that a coordinator serves; a test of the coordinator compares them with it.
var served = []string{
	"api/v1",
	"apis/authentication.k8s.io/v1",
	"apis/authorization.k8s.io/v1",
	"apis/coordination.k8s.io/v1",
	"apis/discovery.k8s.io/v1",
	"apis/rbac.authorization.k8s.io/v1",
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
	types := describe()
	for _, path := range served {
		name := strings.ReplaceAll(path, "/", "__")
		source, err := os.ReadFile(filepath.Join(sources, name+"_openapi.json"))
		if err != nil {
			return err
		}
		packed, err := pack(source, types)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(filepath.Join(directory, name+".json.gz"), packed, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// describe describes each type of Kubernetes as a kube-apiserver does.
func describe() *common.OpenAPIV3Config {
	return genericapiserver.DefaultOpenAPIV3Config(definitions.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(scheme.Scheme))
}

// pack describes a document's types again and compresses it. Its result is the same every time.
func pack(source []byte, types *common.OpenAPIV3Config) ([]byte, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(source, &document); err != nil {
		return nil, err
	}
	var components map[string]map[string]json.RawMessage
	if err := json.Unmarshal(document["components"], &components); err != nil {
		return nil, err
	}
	schemas := components["schemas"]
	described, err := builder3.BuildOpenAPIDefinitionsForResources(types, slices.Sorted(maps.Keys(schemas))...)
	if err != nil {
		return nil, err
	}
	for name := range schemas {
		if schemas[name], err = json.Marshal(described[name]); err != nil {
			return nil, err
		}
	}
	if document["components"], err = json.Marshal(components); err != nil {
		return nil, err
	}
	plain, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
