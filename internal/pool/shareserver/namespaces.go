package shareserver

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
)

// A node must not read Namespaces in the cloud, so no hub has them. The coordinator creates its own wherever nodes have objects,
// so that kubectl get ns lists them and a shell completes their names. An annotation says that these are not the cloud's.
const (
	// labelMadeHere is on a Namespace that was made for pushed objects.
	labelMadeHere = "openyurt.io/made-by-coordinator"
	// annotationMadeHere tells people what such a Namespace is.
	annotationMadeHere = "openyurt.io/note"
	noteMadeHere       = "made by the pool's coordinator for the objects shown in it: uid, age and labels are not the cloud's"

	// namespacesPause is the least pause between two passes, and namespacesRetry the pause after a failure.
	namespacesPause = 250 * time.Millisecond
	namespacesRetry = 5 * time.Second
	// namespacesTimeout bounds a pass of requests to this process itself.
	namespacesTimeout = 10 * time.Second
)

// KeepNamespaces makes and removes Namespaces for the nodes' objects, until ctx ends.
func (o *NodeObjects) KeepNamespaces(ctx context.Context, client corev1client.NamespaceInterface) error {
	n := &namespaces{client: client, wanted: o.spaces, changed: o.changed}
	return n.Run(ctx)
}

// namespaces keeps a Namespace for each in which nodes have objects.
type namespaces struct {
	client  corev1client.NamespaceInterface
	wanted  func() []string
	changed <-chan struct{} // the wanted Namespaces may have changed
}

// Run makes and removes Namespaces until ctx ends.
func (n *namespaces) Run(ctx context.Context) error {
	var made []string // by the last pass; often none
	known := false
	for {
		pause := namespacesPause
		if wanted := n.wanted(); !known || !slices.Equal(made, wanted) {
			err := n.pass(ctx, wanted)
			made, known = wanted, err == nil
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Failed to make the Namespaces of the nodes' objects; will retry",
					"in", namespacesRetry)
				pause = namespacesRetry
			}
		}
		if known {
			select {
			case <-n.changed:
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *namespaces) pass(ctx context.Context, wanted []string) error {
	ctx, cancel := context.WithTimeout(ctx, namespacesTimeout)
	defer cancel()
	have, err := n.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	create, remove := planNamespaces(wanted, have.Items)
	for _, name := range remove {
		if err := n.remove(ctx, name); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, name := range create {
		_, err := n.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{labelMadeHere: "true"},
			Annotations: map[string]string{annotationMadeHere: noteMadeHere},
		}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsInvalid(err) { // a cloud would not have it either
			return err
		}
	}
	return nil
}

// remove removes a Namespace, and finalizes it itself. In a cluster a controller first deletes the content; here the content
// belongs to the hubs.
func (n *namespaces) remove(ctx context.Context, name string) error {
	if err := n.client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	last, err := n.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	last.Spec.Finalizers = nil
	_, err = n.client.Finalize(ctx, last, metav1.UpdateOptions{})
	return err
}

// planNamespaces returns which Namespaces to remove, and which to create after that. It removes those that the coordinator made
// and nobody wants. It also removes one that is wanted again but still terminates after a failed removal.
func planNamespaces(wanted []string, have []corev1.Namespace) (create, remove []string) {
	there := map[string]bool{}
	for i := range have {
		ns := &have[i]
		there[ns.Name] = ns.DeletionTimestamp == nil
		if ns.Labels[labelMadeHere] == "true" && (!slices.Contains(wanted, ns.Name) || ns.DeletionTimestamp != nil) {
			remove = append(remove, ns.Name)
		}
	}
	for _, name := range wanted {
		if !there[name] {
			create = append(create, name)
		}
	}
	return create, remove
}

// spaces returns the namespaces in which nodes have objects, sorted.
func (o *NodeObjects) spaces() []string {
	seen := map[string]struct{}{}
	o.mu.Lock()
	for id := range o.claims.objects {
		if id.Resource != resourceEvents { // Events about Nodes are in default, where nothing else may be
			seen[id.Namespace] = struct{}{}
		}
	}
	o.mu.Unlock()
	delete(seen, "") // Nodes
	return slices.Sorted(maps.Keys(seen))
}

// touched signals that spaces may have changed.
func (o *NodeObjects) touched() {
	select {
	case o.changed <- struct{}{}:
	default: // already signalled
	}
}
