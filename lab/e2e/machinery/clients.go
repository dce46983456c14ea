package machinery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

func (k kind) gvr(e *Env) schema.GroupVersionResource {
	group := k.group
	if group == "*" {
		group = e.Group
	}
	return schema.GroupVersionResource{Group: group, Version: k.version, Resource: k.resource}
}

// told is what an informer has reported.
type told struct {
	mu     sync.Mutex
	events []string
	last   map[string]Object
	ended  bool
}

func (t *told) take(what string, o any) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if u.GetName() == "end" {
		t.ended = true
	}
	t.events = append(t.events, what+" "+u.GetName())
	t.last[u.GetName()] = u.Object
	if what == "delete" {
		delete(t.last, u.GetName())
	}
}

// informer makes client-go's informer follow, as controllers and kubelet do.
func informer(e *Env, k kind) {
	query := values("labelSelector=seen%3Dyes")
	k.fresh(e, query, k.create(e, "before", 1, "seen", "yes"))
	ctx, cancel := context.WithCancel(e.ctx)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(e.Dynamic(e.Reader), 0, e.Namespace,
		func(o *metav1.ListOptions) { o.LabelSelector = "seen=yes" })
	defer factory.Shutdown()
	defer cancel()
	t := &told{last: map[string]Object{}}
	shared := factory.ForResource(k.gvr(e)).Informer()
	_, err := shared.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { t.take("add", o) },
		UpdateFunc: func(_, o any) { t.take("update", o) },
		DeleteFunc: func(o any) { t.take("delete", o) },
	})
	e.Must(err)
	factory.Start(ctx.Done())
	e.Until("the informer is in step", func() error {
		if !shared.HasSynced() {
			return errors.New("it has not synced")
		}
		return nil
	})
	k.create(e, "one", 1, "seen", "yes")
	k.create(e, "two", 2, "seen", "no")
	k.change(e, "one", 3)
	k.label(e, "before", "seen", "")
	k.label(e, "two", "seen", "yes")
	k.remove(e, "one")
	k.create(e, "end", 4, "seen", "yes")
	e.Until("the informer has told the end", func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.ended {
			return fmt.Errorf("it has told %v", t.events)
		}
		return nil
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	e.Note("what the informer told", t.events)
	e.Note("what it has", t.last)
	want := []string{"add before", "add one", "update one", "delete before", "add two", "delete one", "add end"}
	e.Expect("it told every change once", slices.Equal(t.events, want), t.events)
}

// typedEncodings reads with the typed client and the metadata client, in Protobuf, in CBOR where it is offered, and in
// JSON.
func typedEncodings(e *Env) {
	var all []Object
	k := of("configmaps")
	for i := range 3 {
		all = append(all, k.createdQuietly(e, fmt.Sprintf("a-%d", i), i))
	}
	k.fresh(e, values(mine), all...)
	options := metav1.ListOptions{LabelSelector: "endpointslice.kubernetes.io/skip-mirror"}
	for i, contentType := range []string{"application/json", protobuf} {
		client := e.Typed(e.Reader, contentType).CoreV1().ConfigMaps(e.Namespace)
		list, err := client.List(e.ctx, options)
		e.Must(err)
		e.Note("list in "+contentType, list.Items)
		one, err := client.Get(e.ctx, "a-1", metav1.GetOptions{})
		e.Must(err)
		e.Note("get in "+contentType, one)
		_, err = client.Get(e.ctx, "nobody", metav1.GetOptions{})
		e.Note("get what is not there in "+contentType, err)
		watched := options
		watched.ResourceVersion = list.ResourceVersion
		w, err := client.Watch(e.ctx, watched)
		e.Must(err)
		k.change(e, "a-1", 10+i)
		var event watch.Event
		select {
		case event = <-w.ResultChan():
		case <-time.After(patience):
		}
		w.Stop()
		changed, _ := event.Object.(*corev1.ConfigMap)
		e.Note("watch in "+contentType, []any{event.Type, changed})
	}
	meta, err := metadata.NewForConfig(e.Reader.config)
	e.Must(err)
	list, err := meta.Resource(k.gvr(e)).Namespace(e.Namespace).List(e.ctx, options)
	e.Must(err)
	for i := range list.Items {
		list.Items[i].ManagedFields = nil
	}
	e.Note("metadata alone", list.Items)
}
