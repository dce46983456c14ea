package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"yurtcoordinator/internal/ends"
)

func TestRetriesAreBoundedAndSpread(t *testing.T) {
	for _, longest := range []time.Duration{30 * time.Second, 2 * time.Minute} {
		limiter := NewLimiter(longest, ends.Chance{})
		waits := make(map[time.Duration]bool)
		for range 30 {
			wait := limiter.When(reconcile.Request{})
			if wait < Base || wait > longest*3/2 {
				t.Errorf("waits %v", wait)
			}
			waits[wait] = true
		}
		if len(waits) < 20 {
			t.Errorf("only %d different waits", len(waits))
		}
	}
}

func TestAConflictIsTriedAgainSoon(t *testing.T) {
	var fails error
	c := Controller{Reconciler: reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: time.Hour}, fails
	})}
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("it has changed"))
	for _, err := range []error{conflict, fmt.Errorf("patch: %w", conflict), errors.Join(nil, conflict)} {
		fails = err
		got, err := c.reconcile(t.Context(), reconcile.Request{})
		if err != nil || got.RequeueAfter < conflictDelay || got.RequeueAfter > 2*conflictDelay {
			t.Errorf("%v: again after %v, %v", fails, got.RequeueAfter, err)
		}
	}
	for _, fails = range []error{nil, errors.New("no answer")} {
		got, err := c.reconcile(t.Context(), reconcile.Request{})
		if !errors.Is(err, fails) || got.RequeueAfter != time.Hour {
			t.Errorf("%v: again after %v, %v", fails, got.RequeueAfter, err)
		}
	}
}

func TestOn(t *testing.T) {
	type node = *corev1.Node
	named := func(name string) node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	for what, tt := range map[string]struct {
		changed func(was, is node) bool
		want    []string
	}{
		"each change":      {nil, []string{"new", "was", "is", "gone"}},
		"those that count": {func(was, is node) bool { return was.Name == is.Name }, []string{"new", "gone"}},
	} {
		var got []string
		h, ctx := On(tt.changed, func(_ context.Context, n node, _ Queue) { got = append(got, n.Name) }), t.Context()
		h.Create(ctx, event.TypedCreateEvent[node]{Object: named("new")}, nil)
		h.Update(ctx, event.TypedUpdateEvent[node]{ObjectOld: named("was"), ObjectNew: named("is")}, nil)
		h.Delete(ctx, event.TypedDeleteEvent[node]{Object: named("gone")}, nil)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", what, got, tt.want)
		}
	}
}
