package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/deploy"
	"yurtcoordinator/internal/cloud/forwarding"
	"yurtcoordinator/internal/edge"
)

// applyManifests gives the cloud the objects that an installation would: the rights of the controller and of each pool's
// leader, and the rights that any cluster gives its nodes. In an installed lab it leaves out the rights that the chart and the
// controller make. Objects that are there already, as after the cloud was powered off and on, stay as they are.
func (l *Lab) applyManifests(ctx context.Context) error {
	objects, err := l.systemRights()
	if err != nil {
		return err
	}
	if l.cfg.CoreDNS || !l.cfg.Installed {
		objects = append(objects, readerRights()...)
	}
	if l.cfg.Bootstrap {
		more, err := bootstrapping(l.cfg.families().cloudAddress(), filepath.Join(l.pki(), "ca.crt"))
		if err != nil {
			return err
		}
		objects = append(objects, more...)
	}
	return createAll(ctx, l.watch().access, objects)
}

// createAll creates objects that the cloud does not have yet.
func createAll(ctx context.Context, access *rest.Config, objects []client.Object) error {
	c, err := client.New(access, client.Options{})
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

// systemRights returns the rights of the controller and of each pool's leader. For an installed lab it returns nothing: the
// chart has the controller's rights, and the controller makes the leaders'.
func (l *Lab) systemRights() ([]client.Object, error) {
	if l.cfg.Installed {
		return nil, nil
	}
	objects, err := decodeAll(deploy.ControllerRBAC())
	if err != nil {
		return nil, err
	}
	for p := 1; p <= l.cfg.Pools; p++ {
		var names []edge.NodeName
		for _, n := range l.all {
			if n.pool == p {
				names = append(names, n.name())
			}
		}
		constrained := since(l.bins.KubernetesVersion, constrainedSince)
		objects = append(objects, forwarding.Objects(poolName(p), names, constrained)...)
	}
	return objects, nil
}

// readerRights lets a node's CoreDNS read what it serves, and a node's hub read what it keeps for all of the node's programs.
// In an installed lab the chart gives the hub its rights. Namespaces are for scenarios, which read them as a node.
func readerRights() []client.Object {
	const name = "yurtlab:reader"
	verbs := []string{"get", "list", "watch"}
	return []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"endpoints", "namespaces", "services"}, Verbs: verbs},
				{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: verbs},
				{APIGroups: []string{NodePools.Group}, Resources: []string{NodePools.Resource}, Verbs: verbs},
			},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: edge.GroupNodes},
				{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userDNS},
			},
		},
	}
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
