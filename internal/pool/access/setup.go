package access

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
)

// furniture is what a coordinator has from the start besides its roles: the namespaces of the Leases, and the two
// Leases of the pool, held by nobody. An election Lease that nobody holds is free to take; a leader-informer-sync that
// nobody holds, without a renewTime, means what its absence would: the pool's resources are not complete.
func (s *Setup) furniture(ctx context.Context) error {
	for _, name := range systems {
		_, err := s.client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	for _, name := range []string{edge.LeaseElection, edge.LeaseInformerSync} {
		_, err := s.client.CoordinationV1().Leases(edge.NamespaceSystem).Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("lease %s: %w", name, err)
		}
	}
	return nil
}

const (
	// setupTimeout bounds one pass of a dozen requests to this very process.
	setupTimeout = 10 * time.Second
	// setupRetry is the first pause after a failed pass; it doubles up to setupResync.
	setupRetry = 20 * time.Millisecond
	// setupResync is how often a pass is made when nothing is wrong, give or take a tenth.
	setupResync = time.Minute
)

// Setup brings about the pool's roles, namespaces and Leases, and keeps them.
type Setup struct {
	client  kubernetes.Interface
	secrets bool // operators read them
	clock   clock.Clock
}

// NewSetup returns a Setup by client; with secrets operators may read Secrets.
func NewSetup(client kubernetes.Interface, secrets bool, c clock.Clock) *Setup {
	return &Setup{client: client, secrets: secrets, clock: c}
}

// Run makes passes until ctx ends, again and again, for somebody may take away what one has made. After the first that
// succeeds it calls done, once, whose error is that ctx has ended.
func (s *Setup) Run(ctx context.Context, done func(context.Context) error) error {
	logger := klog.FromContext(ctx)
	pause, installed := setupRetry, false
	for {
		next := around(setupResync)
		if err := s.pass(ctx); err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // asked to stop
			}
			if pause >= time.Second { // the first few find a server that is only just starting
				logger.Error(err, "Installing the pool's roles and Leases failed; trying again", "in", pause)
			}
			next, pause = around(pause), min(2*pause, setupResync)
		} else {
			pause = setupRetry
			if !installed {
				installed = true
				if err := done(ctx); err != nil {
					return nil //nolint:nilerr // only the context ends it
				}
			}
		}
		timer := s.clock.NewTimer(next)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// pass makes what is missing, rights what differs, and sees to it that it is in effect. It can be made any number of
// times.
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

// ensure creates want, or if it exists lets right correct it; right reports whether nothing had to be corrected.
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
func around(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}
