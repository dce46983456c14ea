package kit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/apis/apps/v1alpha1"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
)

// Cloud is the lab's cloud, with an administrator's access.
type Cloud struct {
	kubernetes.Interface
	// Objects is a client for any kind.
	Objects dynamic.Interface

	t *T
}

func newCloud(t *T) (Cloud, error) {
	access, err := t.Lab.CloudConfig()
	if err != nil {
		return Cloud{}, err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return Cloud{}, err
	}
	objects, err := dynamic.NewForConfig(access)
	return Cloud{Interface: client, Objects: objects, t: t}, err
}

// ListsBy is ListsOverWAN for any nodes.
func (cloud Cloud) ListsBy(ours []string, resource string) []lab.FullRead {
	all, err := cloud.t.Lab.CloudLists(cloud.t.Ctx, resource)
	cloud.t.Must(err)
	return slices.DeleteFunc(all, func(l lab.FullRead) bool {
		node, isNode := strings.CutPrefix(l.User, "system:node:")
		return !isNode || !slices.Contains(ours, node)
	})
}

// MakePool makes a NodePool without nodes.
func (cloud Cloud) MakePool(name string) {
	_, err := cloud.Objects.Resource(lab.NodePools).Create(cloud.t.Ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": lab.NodePools.GroupVersion().String(), "kind": "NodePool",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"type": "Edge"},
	}}, metav1.CreateOptions{})
	cloud.t.Must(err)
}

// YurtCoordinator returns the YurtCoordinator of that name.
func (cloud Cloud) YurtCoordinator(name string) (*v1alpha1.YurtCoordinator, error) {
	o, err := cloud.Objects.Resource(lab.YurtCoordinators).Get(cloud.t.Ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	c := &v1alpha1.YurtCoordinator{}
	return c, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, c)
}

// Condition fails unless a YurtCoordinator has a condition with this status and, if it is not empty, reason.
func (cloud Cloud) Condition(
	name string, kind v1alpha1.YurtCoordinatorConditionType, status v1alpha1.ConditionStatus, reason string,
) error {
	c, err := cloud.YurtCoordinator(name)
	if err != nil {
		return err
	}
	for _, has := range c.Status.Conditions {
		if has.Type == kind && has.Status == status && (reason == "" || has.Reason == reason) {
			return nil
		}
	}
	return fmt.Errorf("YurtCoordinator %s has %+v, want %s=%s %s", name, c.Status.Conditions, kind, status, reason)
}

// OfPool lists all objects in the cloud that were made for a pool's coordinator, except the pool's nodes.
func (cloud Cloud) OfPool(pool edge.PoolName) ([]string, error) {
	var found []string
	selector := metav1.ListOptions{LabelSelector: edge.LabelNodePool + "=" + string(pool)}
	lists, err := cloud.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	client := cloud.Objects
	for _, list := range lists {
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Node" || r.Kind == "Event" {
				continue
			}
			gv := strings.Split(list.GroupVersion, "/")
			gvr := lab.YurtCoordinators
			gvr.Group, gvr.Version, gvr.Resource = strings.Join(gv[:len(gv)-1], ""), gv[len(gv)-1], r.Name
			labelled, err := client.Resource(gvr).List(cloud.t.Ctx, selector)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range labelled.Items {
				found = append(found, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
			}
		}
	}
	workloads, err := cloud.AppsV1().Deployments(edge.NamespaceSystem).List(cloud.t.Ctx, metav1.ListOptions{
		LabelSelector: edge.LabelWorkloadPool + "=" + string(pool),
	})
	if err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	for _, d := range workloads.Items {
		found = append(found, "Deployment "+d.Namespace+"/"+d.Name)
	}
	for name, namespace := range map[string]string{
		pool.CoordinatorSecret(): edge.NamespaceSystem, pool.KubeconfigSecret(): edge.NamespaceSystem,
		pool.AuthoritySecret(): edge.NamespaceKeys, pool.KubeletClientSecret(): edge.NamespaceKeys,
	} {
		if _, err := cloud.CoreV1().Secrets(namespace).Get(cloud.t.Ctx, name, metav1.GetOptions{}); err == nil {
			found = append(found, "Secret "+name)
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return found, nil
}

// Gone waits until nothing of a pool's coordinator is left: its object, what was made for it, and its process.
func (cloud Cloud) Gone(name string, pool edge.PoolName) {
	cloud.t.Eventually(time.Minute, "nothing is left of YurtCoordinator "+name+" in the cloud", func() error {
		if _, err := cloud.YurtCoordinator(name); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the object is there: %w", err)
		}
		left, err := cloud.OfPool(pool)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %v", left)
		}
		return err
	})
	cloud.t.Eventually(time.Minute, "no coordinator runs", func() error {
		if running := cloud.t.Pool.CoordinatorsRunning(); len(running) > 0 {
			return fmt.Errorf("one does on %v", running)
		}
		return nil
	})
}
