package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/deploy"
	"yurtcoordinator/internal/cloud/forwarding"
	"yurtcoordinator/internal/edge"
)

// applyManifests gives the cloud what an installation would: the rights of the controller, and of each pool's leader.
// An object that is there already, since the cloud was powered on again, is left as it is.
func applyManifests(ctx context.Context, cfg *rest.Config, pools, nodes int) error {
	objects, err := decodeAll(deploy.ControllerRBAC)
	if err != nil {
		return err
	}
	for p := 1; p <= pools; p++ {
		var names []edge.NodeName
		for _, n := range places(pools, nodes) {
			if n.pool == p {
				names = append(names, n.name())
			}
		}
		objects = append(objects, forwarding.Objects(poolName(p), names)...)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("manifests: %w", err)
	}
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("manifests: %s %s: %w", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
		}
	}
	return nil
}

func decodeAll(documents []byte) ([]client.Object, error) {
	var objects []client.Object
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(documents), 4096); ; {
		o := &unstructured.Unstructured{}
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("manifests: %w", err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}
