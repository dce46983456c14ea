package cloudscale

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yurtcoordinator/internal/edge"
)

// certsHash is the annotation of a Pod whose certificates exist; only then does a kubelet mount them.
const certsHash = "openyurt.io/certs-hash"

// stage plays the scheduler and the kubelets for the coordinators' Pods.
type stage struct {
	pods coreclient.PodInterface

	mu  sync.Mutex
	err error
}

// run plays until ctx ends.
func (s *stage) run(ctx context.Context, c client.WithWatch) {
	var working sync.WaitGroup
	defer working.Wait()
	work := make(chan *corev1.Pod, 4096) // room for more Pods than there are pools, so that sending never blocks
	defer close(work)
	for range 4 {
		working.Go(func() {
			for p := range work {
				if err := s.play(ctx, p); err != nil && ctx.Err() == nil {
					s.fail(err)
				}
			}
		})
	}
	err := follow(ctx, c, &corev1.PodList{}, func(o runtime.Object, _ time.Time) {
		if p, ok := o.(*corev1.Pod); ok && p.DeletionTimestamp == nil {
			work <- p
		}
	}, client.InNamespace(edge.NamespaceSystem), client.MatchingLabels{edge.LabelApp: edge.AppCoordinator})
	if err != nil && ctx.Err() == nil {
		s.fail(err)
	}
}

func (s *stage) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *stage) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// play takes the next step for a Pod.
func (s *stage) play(ctx context.Context, p *corev1.Pod) error {
	pool := p.Labels[edge.LabelNodePool]
	switch {
	case p.Spec.NodeName == "":
		err := s.pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: pool + "-n01"},
		}, metav1.CreateOptions{})
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // already done, or the Pod is gone
			return nil
		}
		return err
	case p.Status.HostIP == "":
		return s.patch(ctx, p, corev1.PodPending, corev1.ConditionFalse)
	case p.Annotations[certsHash] != "" && p.Status.Phase == corev1.PodPending:
		return s.patch(ctx, p, corev1.PodRunning, corev1.ConditionTrue)
	}
	return nil
}

func (s *stage) patch(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase, ready corev1.ConditionStatus) error {
	var pool, node int
	if _, err := fmt.Sscanf(p.Spec.NodeName, "p%04d-n%02d", &pool, &node); err != nil {
		return fmt.Errorf("node %q of Pod %s: %w", p.Spec.NodeName, p.Name, err)
	}
	now := metav1.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status":{"phase":%q,"hostIP":%[2]q,"podIP":%[2]q,"podIPs":[{"ip":%[2]q}],"startTime":%[3]q,
		"conditions":[{"type":"Ready","status":%[4]q,"lastTransitionTime":%[3]q},
		{"type":"ContainersReady","status":%[4]q,"lastTransitionTime":%[3]q}]}}`, phase, addressOf(pool, node), now, ready)
	_, err := s.pods.Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
