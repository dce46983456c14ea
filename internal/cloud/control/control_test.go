package control

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
