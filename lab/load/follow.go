package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Resource is a resource that can be followed.
type Resource string

// Resources.
const (
	ServicesResource       Resource = "services"
	EndpointSlicesResource Resource = "endpointslices"
	NamespacesResource     Resource = "namespaces"
	ConfigMapsResource     Resource = "configmaps"
	PodsResource           Resource = "pods"
	NodesResource          Resource = "nodes"
)

// Stream is one resource with its selectors.
type Stream struct {
	Resource Resource
	// Labels and Fields are selectors; empty means all.
	Labels, Fields string
}

// FollowSpec says what a client follows.
type FollowSpec struct {
	// Streams have different resources. None means Services and EndpointSlices, without selectors.
	Streams []Stream
	// Namespace is the only one followed; empty means all.
	Namespace string
	// Compared is the only namespace whose objects are in a State; empty means all. It exists because a hub shows a Service
	// with a topology differently from the cloud.
	Compared string
	// Agent is the client's name in audit logs; "yurtlab-follower" if empty.
	Agent string
}

// KubeProxy returns what a kube-proxy follows, with its selectors, except its own Node. (From the audit log, Kubernetes 1.36.)
func KubeProxy() FollowSpec {
	return FollowSpec{Streams: []Stream{
		{ServicesResource, "!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"},
		{EndpointSlicesResource, "!service.kubernetes.io/headless", ""},
	}}
}

// CoreDNS returns what CoreDNS' plugin kubernetes follows. (From the audit log, CoreDNS 1.15.)
func CoreDNS() FollowSpec {
	return FollowSpec{Streams: []Stream{
		{Resource: ServicesResource}, {Resource: EndpointSlicesResource}, {Resource: NamespacesResource},
	}}
}

func (s FollowSpec) withDefaults() FollowSpec {
	if len(s.Streams) == 0 {
		s.Streams = []Stream{{Resource: ServicesResource}, {Resource: EndpointSlicesResource}}
	}
	if s.Agent == "" {
		s.Agent = "yurtlab-follower"
	}
	return s
}

func (s Stream) options() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: s.Labels, FieldSelector: s.Fields}
}

// Version is one object as a client has it.
type Version struct {
	// Revision is the resourceVersion, Sequence the AnnotationSequence (0 means none), and Digest a hash of the whole content.
	Revision string
	Sequence uint64
	Digest   uint64
}

// State is what a client has, by resource.
type State map[Resource]versions

// versions are objects by "namespace/name".
type versions map[string]Version

func (v versions) add(o *reduced, compared string) {
	if compared == "" || o.Namespace == compared {
		v[o.key()] = o.version
	}
}

// Diff says in one line how s differs from want; empty means that it does not.
func (s State) Diff(want State) string {
	for _, r := range slices.SortedFunc(maps.Keys(want), cmp.Compare[Resource]) {
		for _, key := range slices.Sorted(maps.Keys(want[r])) {
			has, ok := s[r][key]
			switch wanted := want[r][key]; {
			case !ok:
				return fmt.Sprintf("%s: %d of %d; %s is missing", r, len(s[r]), len(want[r]), key)
			case has.Revision != wanted.Revision:
				return fmt.Sprintf("%s: %s is at %s, want %s", r, key, has.Revision, wanted.Revision)
			case has != wanted:
				return fmt.Sprintf("%s: %s has different content at revision %s", r, key, has.Revision)
			}
		}
		if len(s[r]) == len(want[r]) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(s[r])) {
			if _, ok := want[r][key]; !ok {
				return fmt.Sprintf("%s: %s should be gone", r, key)
			}
		}
	}
	return ""
}

// Follower runs client-go's informers, as kube-proxy and CoreDNS do. It keeps only the Version of each object, so that
// dozens of followers fit into one process.
type Follower struct {
	factories []informers.SharedInformerFactory
	informers map[Resource]cache.SharedIndexInformer
	compared  string
	// changed has a token when something has changed since the last token was taken.
	changed chan struct{}
}

// NewFollower returns a follower of the server that cfg names. It sends nothing before Run.
func NewFollower(cfg *rest.Config, spec FollowSpec) (*Follower, error) {
	spec = spec.withDefaults()
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = spec.Agent
	client, err := Client(cfg)
	if err != nil {
		return nil, err
	}
	return newFollower(client, spec)
}

func newFollower(client kubernetes.Interface, spec FollowSpec) (*Follower, error) {
	f := &Follower{
		informers: map[Resource]cache.SharedIndexInformer{}, compared: spec.Compared, changed: make(chan struct{}, 1),
	}
	for _, s := range spec.Streams {
		factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
			informers.WithNamespace(spec.Namespace), informers.WithTransform(reduce),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.LabelSelector, o.FieldSelector = s.Labels, s.Fields
			}))
		i, err := informerOf(factory, s.Resource)
		if err != nil {
			return nil, err
		}
		if f.informers[s.Resource] != nil {
			return nil, fmt.Errorf("resource %s: two streams", s.Resource)
		}
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { f.signal() }, UpdateFunc: func(any, any) { f.signal() }, DeleteFunc: func(any) { f.signal() },
		}); err != nil {
			return nil, err
		}
		f.factories, f.informers[s.Resource] = append(f.factories, factory), i
	}
	return f, nil
}

func informerOf(f informers.SharedInformerFactory, r Resource) (cache.SharedIndexInformer, error) {
	switch r {
	case ServicesResource:
		return f.Core().V1().Services().Informer(), nil
	case EndpointSlicesResource:
		return f.Discovery().V1().EndpointSlices().Informer(), nil
	case NamespacesResource:
		return f.Core().V1().Namespaces().Informer(), nil
	case ConfigMapsResource:
		return f.Core().V1().ConfigMaps().Informer(), nil
	case PodsResource:
		return f.Core().V1().Pods().Informer(), nil
	case NodesResource:
		return f.Core().V1().Nodes().Informer(), nil
	}
	return nil, fmt.Errorf("resource %q: %w", r, errResource)
}

var errResource = errors.New("want services, endpointslices, namespaces, configmaps, pods or nodes")

func (f *Follower) signal() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// Run follows until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	for _, factory := range f.factories {
		factory.Start(ctx.Done())
	}
	<-ctx.Done()
	for _, factory := range f.factories {
		factory.Shutdown()
	}
	return nil
}

// Synced reports whether the first list of every resource has arrived.
func (f *Follower) Synced() bool {
	for _, i := range f.informers {
		if !i.HasSynced() {
			return false
		}
	}
	return true
}

// State returns what the client has at this moment.
func (f *Follower) State() State {
	s := State{}
	for r, i := range f.informers {
		objects := i.GetStore().List()
		s[r] = make(versions, len(objects))
		for _, o := range objects {
			if o, ok := o.(*reduced); ok {
				s[r].add(o, f.compared)
			}
		}
	}
	return s
}

// compareEvery bounds how often WaitEqual compares while many changes arrive.
const compareEvery = 20 * time.Millisecond

// WaitEqual returns when the client has exactly this. If ctx ends first, the error says what differs.
func (f *Follower) WaitEqual(ctx context.Context, want State) error {
	for {
		difference := "the first list has not arrived"
		if f.Synced() {
			difference = f.State().Diff(want)
		}
		if difference == "" {
			return nil
		}
		select {
		case <-time.After(compareEvery):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", difference, context.Cause(ctx))
		}
		select {
		case <-f.changed:
		case <-time.After(time.Second): // an empty first list brings no event
		case <-ctx.Done():
		}
	}
}

// reduced replaces an object in an informer's store.
type reduced struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	version Version
}

// DeepCopyObject implements runtime.Object. A reduced never changes.
func (r *reduced) DeepCopyObject() runtime.Object { c := *r; return &c }

func (r *reduced) key() string { return cache.NewObjectName(r.Namespace, r.Name).String() }

// reduce is a cache.TransformFunc.
func reduce(object any) (any, error) {
	switch o := object.(type) {
	case *reduced:
		return o, nil
	case cache.DeletedFinalStateUnknown:
		return o, nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	message, ok := object.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, fmt.Errorf("%T has no binary form", object)
	}
	content, err := message.Marshal()
	if err != nil {
		return nil, err
	}
	digest := fnv.New64a()
	_, _ = digest.Write(content) // never fails
	return &reduced{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion(),
		},
		version: Version{
			Revision: m.GetResourceVersion(), Digest: digest.Sum64(),
			Sequence: sequenceOf(&metav1.ObjectMeta{Annotations: m.GetAnnotations()}),
		},
	}, nil
}

// Read lists what a follower with this spec must have: the newest state, not what the server has in memory.
func Read(ctx context.Context, client kubernetes.Interface, spec FollowSpec) (State, error) {
	spec = spec.withDefaults()
	state := State{}
	for _, s := range spec.Streams {
		list, err := s.list(ctx, client, spec.Namespace)
		if err != nil {
			return nil, fmt.Errorf("resource %s: %w", s.Resource, err)
		}
		all := versions{}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			v, err := reduce(o)
			if v, ok := v.(*reduced); ok {
				all.add(v, spec.Compared)
			}
			return err
		}); err != nil {
			return nil, fmt.Errorf("resource %s: %w", s.Resource, err)
		}
		state[s.Resource] = all
	}
	return state, nil
}

func (s Stream) list(ctx context.Context, client kubernetes.Interface, namespace string) (runtime.Object, error) {
	switch s.Resource {
	case ServicesResource:
		return client.CoreV1().Services(namespace).List(ctx, s.options())
	case EndpointSlicesResource:
		return client.DiscoveryV1().EndpointSlices(namespace).List(ctx, s.options())
	case NamespacesResource:
		return client.CoreV1().Namespaces().List(ctx, s.options())
	case ConfigMapsResource:
		return client.CoreV1().ConfigMaps(namespace).List(ctx, s.options())
	case PodsResource:
		return client.CoreV1().Pods(namespace).List(ctx, s.options())
	case NodesResource:
		return client.CoreV1().Nodes().List(ctx, s.options())
	}
	return nil, errResource
}

var _ runtime.Object = &reduced{}
