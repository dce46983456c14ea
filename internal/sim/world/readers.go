package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/hub/front"
	"yurtcoordinator/internal/run"
	"yurtcoordinator/internal/sim/history"
	"yurtcoordinator/internal/sim/model"
	"yurtcoordinator/internal/sim/network"
)

// read are the resources that programs read on each node. The pool shares services and endpointslices; each hub gets configmaps
// for itself. It is a constant.
var read = []schema.GroupResource{
	corev1.Resource("services"), discoveryv1.Resource("endpointslices"), corev1.Resource("configmaps"),
}

// readNamespace is the only namespace that has objects of the resources in read.
const readNamespace = "data"

// edits changes a few objects of each resource in the cloud at random: it makes, changes and deletes them, mostly one by one, and
// sometimes 20 at once. No event hinders it, because its client needs no network.
type edits struct {
	client kubernetes.Interface
	random *rand.Rand
	count  int
}

// run edits until ctx ends.
func (e *edits) run(ctx context.Context) {
	for ctx.Err() == nil {
		many, pause := 1, time.Duration(100+e.random.IntN(8000))*time.Millisecond
		if e.random.IntN(12) == 0 {
			many = 20
		}
		for range many {
			e.one(ctx)
		}
		_ = run.Pause(ctx, pause)
	}
}

// one changes one object. What fails changes nothing.
func (e *edits) one(ctx context.Context) {
	e.count++
	resource, deletes := read[e.random.IntN(len(read))], e.random.IntN(3) == 0
	m := metav1.ObjectMeta{
		Namespace: readNamespace, Name: "o" + strconv.Itoa(e.random.IntN(5)),
		Labels: map[string]string{"n": strconv.Itoa(e.count)},
	}
	switch resource.Resource {
	case "services":
		edit(ctx, e.client.CoreV1().Services(readNamespace), &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: int32(1 + e.count%1000)}},
		}}, deletes)
	case "endpointslices":
		edit(ctx, e.client.DiscoveryV1().EndpointSlices(readNamespace), &discoveryv1.EndpointSlice{
			ObjectMeta: m, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.9.%d.%d", e.count/250%250, 1+e.count%250)}}},
		}, deletes)
	default:
		edit(ctx, e.client.CoreV1().ConfigMaps(readNamespace), &corev1.ConfigMap{
			ObjectMeta: m, Data: map[string]string{"n": strconv.Itoa(e.count)},
		}, deletes)
	}
}

// editor is what a typed client can do to objects of one kind.
type editor[T metav1.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// edit makes an object, or changes it if it is there, or deletes it.
func edit[T metav1.Object](ctx context.Context, c editor[T], o T, deletes bool) {
	if deletes {
		_ = c.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		return
	}
	if _, err := c.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		_, _ = c.Update(ctx, o, metav1.UpdateOptions{})
	}
}

// watches makes everything that is about reading: the truth, the edits, and a program on each node that reads.
func (w *World) watches() error {
	c, err := kubernetes.NewForConfig(w.client())
	if err != nil {
		return err
	}
	w.truth = newTruth()
	w.cloud.store.Follow(func(c model.Change) { w.truth.add(c) })
	for _, n := range w.nodes {
		for _, resource := range read {
			n.reads = append(n.reads, &reading{truth: w.truth, node: n.name, resource: resource})
		}
		n.program("reader", n.runReader)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	e := &edits{client: c, random: rand.New(rand.NewPCG(w.cfg.Seed, 7))}
	go func() {
		defer close(done)
		e.run(ctx)
	}()
	w.stop = append(w.stop, func() {
		cancel()
		<-done
	})
	return nil
}

// runReader reads through the hub: with client-go's reflectors, and a single ConfigMap every 3 s. On every second node the
// reflectors list first. On the rest of the nodes they get the present objects in their watch.
func (n *node) runReader(ctx context.Context, p *network.Process) error {
	if !n.hasToken(ctx) {
		return nil
	}
	c, err := kubernetes.NewForConfig(&rest.Config{
		Host: "https://127.0.0.1:10261", Dial: p.Dial, QPS: -1, BearerTokenFile: n.file("keys/" + front.FileToken),
		TLSClientConfig: rest.TLSClientConfig{CAFile: n.file("keys/" + front.FileCertificate)}, UserAgent: "reader",
		ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	})
	if err != nil {
		return err
	}
	of := map[string]struct {
		client cache.Getter
		object runtime.Object
	}{
		"services":       {c.CoreV1().RESTClient(), &corev1.Service{}},
		"endpointslices": {c.DiscoveryV1().RESTClient(), &discoveryv1.EndpointSlice{}},
		"configmaps":     {c.CoreV1().RESTClient(), &corev1.ConfigMap{}},
	}
	silent := klog.FromContext(n.world.logs(ctx, n.name+"/reader"))
	done := make(chan struct{})
	for _, r := range n.reads {
		r.begins()
		from := of[r.resource.Resource]
		var lw cache.ListerWatcher = cache.NewListWatchFromClient(
			from.client, r.resource.Resource, readNamespace, fields.Everything())
		if n.ofSecond {
			lw = lists{lw}
		}
		reflector := cache.NewReflectorWithOptions(lw, from.object, r, cache.ReflectorOptions{Logger: &silent, Name: n.name})
		go func() {
			defer func() { done <- struct{}{} }()
			reflector.RunWithContext(klog.NewContext(ctx, silent))
		}()
	}
	maps := n.reads[slices.IndexFunc(n.reads, func(r *reading) bool { return r.resource.Resource == "configmaps" })]
	for ctx.Err() == nil {
		q := maps.asks()
		name := "o" + strconv.Itoa(q.asked.Second()/3%5)
		o, err := c.CoreV1().ConfigMaps(readNamespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			maps.got(readNamespace+"/"+name, o, q)
		case apierrors.IsNotFound(err):
			maps.got(readNamespace+"/"+name, nil, q)
		}
		_ = run.Pause(ctx, 3*time.Second)
	}
	for range n.reads {
		<-done
	}
	return nil
}

// lists is a ListerWatcher whose reflector lists before it watches.
type lists struct{ cache.ListerWatcher }

// IsWatchListSemanticsUnSupported is what a reflector asks.
func (lists) IsWatchListSemanticsUnSupported() bool { return true }

// begins takes in that the program has started again: it knows nothing.
func (r *reading) begins() {
	r.truth.mu.Lock()
	defer r.truth.mu.Unlock()
	r.at = 0
}

func revisionIn(version string) int64 {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return -1
	}
	return revision
}

// accessor returns an object's metadata, which all objects read have.
func accessor(o any) metav1.Object {
	m, err := meta.Accessor(o)
	if err != nil {
		panic(err)
	}
	return m
}

const (
	// current is how long a node's line must have been whole, and its hub and its reader have run, before the oracle expects
	// changes within the time soon. It is 10 s and two of client-go's longest pauses, which are 30 s and by chance up to a
	// minute.
	current = 2*time.Minute + 10*time.Second
	// soon bounds how long a change takes to a program that reads. If the other end of a connection has lost its power, the hub
	// may learn that only from a ping. The ping comes after 75 s, and is given up after 15 s (upstream's pingAfter and
	// pingTimeout). Then the hub and client-go try again.
	soon = 100 * time.Second
	// wakes is how long a machine's connections to itself may stand still after the machine was suspended. TCP may wait 2 minutes
	// before it sends again. No ping ends that wait, because the hub's port for programs speaks HTTP/1.1.
	wakes = 2*time.Minute + soon
)

// reads judges what programs have read.
func (j *Judge) reads(now time.Time) {
	if j.w.truth == nil || j.w.restored > 0 {
		return // a cloud that was set back is not judged
	}
	for _, n := range j.w.nodes {
		if j.w.blank(n.name) {
			j.w.truth.forget(n.name)
		}
		f := j.nodes[n.name]
		j.whole.keep(n.name+" reads", j.w.asks(n.name) && j.w.runs(n.name, "reader"), now)
		j.whole.keep(n.name+" goes", len(j.w.harmed(func(e history.Event) bool {
			return e.Does == history.Machine && j.w.within(e.On, n.name) && suspends(e)
		})) == 0, now)
		reads, goes := min(f.lined, j.whole.lasts(n.name+" reads", now)), j.whole.lasts(n.name+" goes", now)
		is := min(reads, j.whole.lasts(n.name+": "+ownLine, now)) >= current && goes >= wakes
		if n.isCurrent(is, now); !is {
			continue
		}
		for _, r := range n.reads {
			if c := r.late(now.Add(-soon)); c != nil {
				j.breach("current", n.name, fmt.Sprintf("%s: the change of %s at revision %d, %v ago, is not read; the program "+
					"is at %d", r.resource.Resource, c.Path, c.Revision, now.Sub(c.at), r.at))
			}
		}
	}
	for _, f := range j.w.truth.take() {
		j.breach("read", f.node, f.what)
	}
}
