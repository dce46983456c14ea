package cloud

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// kinds is an API server that serves these kinds.
type kinds struct {
	discovery.ServerResourcesInterface

	mu    sync.Mutex
	of    map[string][]string
	err   error
	asked int
}

func (k *kinds) ServerResourcesForGroupVersion(gv string) (*metav1.APIResourceList, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked++
	if k.err != nil {
		return nil, k.err
	}
	all, ok := k.of[gv]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, gv)
	}
	list := &metav1.APIResourceList{}
	for _, kind := range all {
		list.APIResources = append(list.APIResources, metav1.APIResource{Kind: kind})
	}
	return list, nil
}

func (k *kinds) times() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

func (k *kinds) set(of map[string][]string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of, k.err = of, err
}

func TestWhenServed(t *testing.T) {
	const group = "apps.openyurt.io"
	all := map[string][]string{group + "/v1beta1": {"YurtAppSet"}, group + "/v1beta2": {"Other", "NodePool"}}
	wanted := []schema.GroupVersionKind{
		{Group: group, Version: "v1beta2", Kind: "NodePool"}, {Group: group, Version: "v1beta1", Kind: "YurtAppSet"},
	}
	synctest.Test(t, func(t *testing.T) {
		server := &kinds{}
		var added atomic.Int32
		waiting := newWaiting()
		add := func() error { added.Add(1); return errors.New("added") }
		w := &whenServed{"x", wanted, server, add, waiting}
		ended := make(chan error, 1)
		go func() { ended <- w.Start(t.Context()) }()
		for _, step := range []struct {
			of  map[string][]string
			err error
		}{
			{nil, nil}, {nil, errors.New("no answer")}, {map[string][]string{group + "/v1beta1": {"YurtAppSet"}}, nil},
			{map[string][]string{group + "/v1beta1": {"YurtAppSet"}, group + "/v1beta2": {"Other"}}, nil},
		} {
			server.set(step.of, step.err)
			time.Sleep(5 * time.Minute)
			if n := testutil.CollectAndCount(waiting); added.Load() != 0 || n == 0 {
				t.Fatalf("added when there is %v, %v, or waits for %d kinds", step.of, step.err, n)
			}
		}
		if most, asked := 2*int(20*time.Minute/askMax)*2, server.times(); asked > most {
			t.Errorf("asked %d times in twenty minutes, want %d at most", asked, most)
		}
		server.set(all, nil)
		time.Sleep(askMax)
		if err := <-ended; added.Load() != 1 || err == nil || testutil.CollectAndCount(waiting) != 0 {
			t.Errorf("added %d times, %v, or still waits", added.Load(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		server.set(nil, nil)
		go func() { ended <- w.Start(ctx) }()
		time.Sleep(time.Second)
		cancel()
		if err := <-ended; err != nil || added.Load() != 1 {
			t.Errorf("asked to stop: %v, added %d times", err, added.Load())
		}
	})
	half := &kinds{of: map[string][]string{group + "/v1beta2": {"NodePool"}}}
	missing, err := (&whenServed{kinds: wanted, discovery: half}).missing()
	if !slices.Equal(missing, []string{group + "/v1beta1 YurtAppSet"}) || err != nil {
		t.Errorf("missing %q, %v", missing, err)
	}
	half.err = errors.New("no answer")
	if missing, err = (&whenServed{kinds: wanted, discovery: half}).missing(); len(missing) != 2 || err == nil {
		t.Errorf("missing %q, %v", missing, err)
	}
}
