package access

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// furniture makes what a coordinator has from the start besides its roles: the namespaces of the Leases, and the pool's own
// Leases, without holders. Any node may take an election Lease without a holder. The Lease leader-informer-sync without a
// holder and a renewTime means that the pool's resources are not current, as if that Lease did not exist.
func (s *Setup) furniture(ctx context.Context) error {
	for _, name := range systems {
		_, err := s.client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	for _, name := range poolLeases {
		_, err := s.client.CoordinationV1().Leases(edge.NamespaceSystem).Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("lease %s: %w", name, err)
		}
	}
	return nil
}

const (
	// setupTimeout bounds one pass of a dozen requests to this process itself.
	setupTimeout = 10 * time.Second
	// setupRetry is the first pause after a failed pass; it doubles up to setupResync.
	setupRetry = 20 * time.Millisecond
	// setupResync is the time between passes when nothing is wrong, plus or minus a tenth.
	setupResync = time.Minute
)

// Setup makes the pool's roles, namespaces and Leases, and keeps them.
type Setup struct {
	client  kubernetes.Interface
	secrets bool // operators read them
	chance  ends.Chance
}

// NewSetup returns a Setup that works through client. If secrets is set, operators may read Secrets.
func NewSetup(client kubernetes.Interface, secrets bool, chance ends.Chance) *Setup {
	return &Setup{client: client, secrets: secrets, chance: chance}
}

// Run repeats its pass until ctx ends, because somebody may remove what a pass has made. After the first pass that succeeds,
// Run calls done once. done may fail only if ctx has ended.
func (s *Setup) Run(ctx context.Context, done func(context.Context) error) error {
	logger := klog.FromContext(ctx)
	pause, installed := setupRetry, false
	for {
		next := s.around(setupResync)
		if err := s.pass(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // stopped
			}
			if pause >= time.Second { // the server is only just starting in the first few
				logger.Error(err, "Failed to install the pool's roles and Leases; will retry", "in", pause)
			}
			next, pause = s.around(pause), min(2*pause, setupResync)
		} else {
			pause = setupRetry
			if !installed {
				installed = true
				if err := done(ctx); err != nil {
					return nil //nolint:nilerr // only the context ends it
				}
			}
		}
		timer := time.NewTimer(next)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// pass makes what is missing, corrects what differs, and waits until it is in effect. It may run any number of times.
func (s *Setup) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if err := s.furniture(ctx); err != nil {
		return err
	}
	rbac := s.client.RbacV1()
	for _, want := range clusterRoles(s.secrets) {
		err := ensure(ctx, rbac.ClusterRoles(), &want, func(have *rbacv1.ClusterRole) bool {
			same := equality.Semantic.DeepEqual(have.Rules, want.Rules) && have.AggregationRule == nil
			have.Rules, have.AggregationRule = want.Rules, nil
			return same
		})
		if err != nil {
			return err
		}
	}
	for _, want := range roles() {
		err := ensure(ctx, rbac.Roles(want.Namespace), &want, func(have *rbacv1.Role) bool {
			same := equality.Semantic.DeepEqual(have.Rules, want.Rules)
			have.Rules = want.Rules
			return same
		})
		if err != nil {
			return err
		}
	}
	for _, want := range clusterRoleBindings() {
		err := ensure(ctx, rbac.ClusterRoleBindings(), &want, func(have *rbacv1.ClusterRoleBinding) bool {
			same := equality.Semantic.DeepEqual(have.Subjects, want.Subjects)
			have.Subjects = want.Subjects
			return same
		})
		if err != nil {
			return err
		}
	}
	for _, want := range roleBindings() {
		err := ensure(ctx, rbac.RoleBindings(want.Namespace), &want, func(have *rbacv1.RoleBinding) bool {
			same := equality.Semantic.DeepEqual(have.Subjects, want.Subjects)
			have.Subjects = want.Subjects
			return same
		})
		if err != nil {
			return err
		}
	}
	return s.inEffect(ctx)
}

type store[T any] interface {
	Create(ctx context.Context, object T, o metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
}

// ensure creates want or, if it exists, lets right correct it. right reports whether nothing had to be corrected.
func ensure[T metav1.Object](ctx context.Context, objects store[T], want T, right func(have T) bool) error {
	_, err := objects.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var have T
		if have, err = objects.Get(ctx, want.GetName(), metav1.GetOptions{}); err == nil && !right(have) {
			_, err = objects.Update(ctx, have, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kindOf(want), want.GetName(), err)
	}
	return nil
}

func kindOf(object any) string { return fmt.Sprintf("%T", object)[len("*v1."):] }

// around spreads d by a tenth either way.
func (s *Setup) around(d time.Duration) time.Duration {
	return d - d/10 + s.chance.Below(d/5)
}
