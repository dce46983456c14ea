package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// watched is the one object that changes under watch.
const watched = "ticks"

// watch measures when each of watchEvents changes arrives on two watches: one straight at the cloud and one through the hub.
// Both are in this one process, with the same client and the same decoding.
func (l *load) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchEvents*watchEvery+20*time.Second)
	defer cancel()
	object, err := l.admin.CoreV1().ConfigMaps(namespaceWatch).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: watched}, Data: map[string]string{"content": filler(1 << 10)},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	var arrived [2][]time.Time
	receiving, receiveCtx := errgroup.WithContext(ctx)
	for i, w := range []Way{HTTP2, Hub} {
		client, err := l.client(w)
		if err != nil {
			return err
		}
		events, err := follow(receiveCtx, client, object.ResourceVersion)
		if err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
		defer events.Stop()
		receiving.Go(func() (err error) {
			if arrived[i], err = arrivals(receiveCtx, events); err != nil {
				err = fmt.Errorf("%s: %w", w, err)
			}
			return err
		})
	}
	sent, writeErr := l.write(receiveCtx)
	if writeErr != nil {
		cancel()
	}
	if err := errors.Join(writeErr, receiving.Wait()); err != nil {
		return err
	}
	direct, hub := make([]time.Duration, watchEvents), make([]time.Duration, watchEvents)
	added := make([]time.Duration, watchEvents)
	for i := range watchEvents {
		direct[i], hub[i] = arrived[0][i].Sub(sent[i]), arrived[1][i].Sub(sent[i])
		added[i] = hub[i] - direct[i]
	}
	l.m.Watch.Direct, l.m.Watch.Hub, l.m.Watch.Added = quantiles(direct), quantiles(hub), quantiles(added)
	return nil
}

func follow(ctx context.Context, c kubernetes.Interface, after string) (watch.Interface, error) {
	return c.CoreV1().ConfigMaps(namespaceWatch).Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + watched, ResourceVersion: after,
	})
}

// write changes the object at a steady pace and returns when each change began.
func (l *load) write(ctx context.Context) ([]time.Time, error) {
	every := time.NewTicker(watchEvery)
	defer every.Stop()
	sent := make([]time.Time, watchEvents)
	for i := range sent {
		select {
		case <-every.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		change := fmt.Appendf(nil, `{"data":{"tick":"%d"}}`, i)
		sent[i] = time.Now()
		_, err := l.admin.CoreV1().ConfigMaps(namespaceWatch).
			Patch(ctx, watched, types.MergePatchType, change, metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
	}
	return sent, nil
}

// arrivals returns when each change arrived. A missing or repeated change is an error.
func arrivals(ctx context.Context, events watch.Interface) ([]time.Time, error) {
	arrived := make([]time.Time, 0, watchEvents)
	for len(arrived) < watchEvents {
		select {
		case e, open := <-events.ResultChan():
			now := time.Now()
			if !open {
				return nil, errors.New("the watch ended")
			}
			object, ok := e.Object.(*corev1.ConfigMap)
			if !ok || e.Type != watch.Modified || object.Data["tick"] != strconv.Itoa(len(arrived)) {
				return nil, fmt.Errorf("event %s of %T, want change %d", e.Type, e.Object, len(arrived))
			}
			arrived = append(arrived, now)
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d changes arrived: %w", len(arrived), watchEvents, context.Cause(ctx))
		}
	}
	return arrived, nil
}
