package cloudscale

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/apis/apps/v1beta2"
	"yurtcoordinator/internal/edge"
)

// newClient returns a client for all kinds used here. It asks for built-in kinds in protobuf.
func newClient(cfg *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(kubernetes.AddToScheme(scheme), v1alpha1.AddToScheme(scheme), v1beta2.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0 // it watches
	return client.NewWithWatch(cfg, client.Options{Scheme: scheme})
}

// install creates what the chart has in files: CRDs, rights and policies.
func install(ctx context.Context, c client.Client, cfg Config) error {
	for _, pattern := range []string{"crds/*.yaml", "rbac/*.yaml", "policies/*.yaml"} {
		files, err := cfg.files(pattern)
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := createAll(ctx, c, file); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: edge.NamespaceSystem, Name: "default"}}
	if err := c.Create(ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return eventually(ctx, "the CRDs are served", serveTimeout, func(ctx context.Context) error {
		return errors.Join(c.List(ctx, &v1alpha1.YurtCoordinatorList{}), c.List(ctx, &v1beta2.NodePoolList{}))
	})
}

// createAll creates the objects of a YAML file.
func createAll(ctx context.Context, c client.Client, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for r := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return err
		}
		if len(o.Object) == 0 {
			continue
		}
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
}

// makeNodes creates the nodes and their Leases, pool by pool.
func makeNodes(ctx context.Context, c client.Client, firstPool, pools, nodes int) ([]*member, error) {
	members := make([]*member, pools*nodes)
	err := each(len(members), func(i int) error {
		now := time.Now()
		pool := firstPool + i%pools
		n := makeNode(pool, 1+i/pools, now)
		if err := c.Create(ctx, n); err != nil {
			return fmt.Errorf("create Node %s: %w", n.Name, err)
		}
		lease := makeLease(n, now)
		if err := c.Create(ctx, lease); err != nil {
			return fmt.Errorf("create Lease %s: %w", n.Name, err)
		}
		members[i] = &member{name: edge.NodeName(n.Name), pool: pool, lease: lease}
		return nil
	})
	return members, err
}

// create creates objects in parallel.
func create[T client.Object](ctx context.Context, c client.Client, first, n int, of func(int) T) error {
	return each(n, func(i int) error {
		o := of(first + i)
		if err := c.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
		return nil
	})
}

// pick returns at most so many members with these numbers in their pools (from 1), pool by pool.
func pick(members []*member, pools, from, to, most int) []*member {
	var found []*member
	for pool := range pools {
		for n := from; n <= to && len(found) < most; n++ {
			found = append(found, members[(n-1)*pools+pool])
		}
	}
	return slices.Clip(found)
}
