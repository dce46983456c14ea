// Command consumer reads an object of ours as a program of another module does: it prints which nodes a NodePool names.
package main

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"yurtcoordinator/apis"
	"yurtcoordinator/apis/apps/v1beta2"
)

const manifest = `
apiVersion: apps.openyurt.io/v1beta2
kind: NodePool
metadata: {name: shop-7}
status:
  nodes: [till-1, till-2]
`

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	scheme := runtime.NewScheme()
	if err := apis.AddToScheme(scheme); err != nil {
		return err
	}
	var pool v1beta2.NodePool
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := decoder.Decode([]byte(manifest), nil, &pool); err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", pool.Name, strings.Join(pool.Status.Nodes, ", "))
	return nil
}
