package load

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// Namespace is the load's namespace, unless its Spec names another.
	Namespace = "load"
	// ManagedBy is the value of the label endpointslice.kubernetes.io/managed-by on all objects of this package. Kubernetes'
	// own controllers leave objects alone whose label has another name than theirs.
	ManagedBy = "yurtlab-load"
	// AnnotationSequence counts the changes that this package makes.
	AnnotationSequence = "load.yurtlab/sequence"

	// sliceSize is how many endpoints kube-controller-manager puts into one EndpointSlice (max-endpoints-per-slice).
	sliceSize = 100

	portName, port = "http", 8080
)

// Spec says which objects must exist.
type Spec struct {
	// Namespace is made if it is missing; empty means the constant Namespace.
	Namespace string
	// Services is how many there are. Each has EndpointsEach endpoints, in EndpointSlices of at most 100.
	Services, EndpointsEach int
	// Nodes are assigned to the endpoints in turn, each in a zone of its own name; empty means no nodes.
	Nodes []string
	// Writers is how many requests are under way at a time; 0 means 8.
	Writers int
}

// Counts says what was done.
type Counts struct {
	// Services and Slices count objects, Addresses the endpoints in Slices.
	Services, Slices, Addresses int
	// Updates counts changes of existing objects, Retries the requests that had to be sent again.
	Updates, Retries int
	// Sequence is the highest number in an AnnotationSequence.
	Sequence uint64
}

func (s Spec) withDefaults() Spec {
	if s.Namespace == "" {
		s.Namespace = Namespace
	}
	if s.Writers <= 0 {
		s.Writers = defaultWriters
	}
	return s
}

// Services makes Services without selectors and their EndpointSlices. It leaves existing objects as they are.
func Services(ctx context.Context, client kubernetes.Interface, spec Spec) (Counts, error) {
	spec = spec.withDefaults()
	if spec.Services < 0 || spec.EndpointsEach < 0 {
		return Counts{}, fmt.Errorf("%d Services of %d endpoints: want none or more", spec.Services, spec.EndpointsEach)
	}
	var retries atomic.Int64
	err := create(ctx, &retries, func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Create(ctx, namespace(spec.Namespace), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return Counts{}, fmt.Errorf("namespace %s: %w", spec.Namespace, err)
	}
	writing, ctx := errgroup.WithContext(ctx)
	writing.SetLimit(spec.Writers)
	for i := range spec.Services {
		writing.Go(func() error {
			if err := spec.makeService(ctx, client, i, &retries); err != nil {
				return fmt.Errorf("service %s: %w", serviceName(i), err)
			}
			return nil
		})
	}
	if err := writing.Wait(); err != nil {
		return Counts{}, err
	}
	return Counts{
		Services: spec.Services, Slices: spec.Services * spec.slicesEach(),
		Addresses: spec.Services * spec.EndpointsEach, Retries: int(retries.Load()),
	}, nil
}

// create makes an object. One that already exists will do.
func create(ctx context.Context, retries *atomic.Int64, do func(context.Context) error) error {
	n, err := persist(ctx, do)
	retries.Add(int64(n))
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (s Spec) makeService(ctx context.Context, client kubernetes.Interface, i int, retries *atomic.Int64) error {
	services := client.CoreV1().Services(s.Namespace)
	var made *corev1.Service
	err := create(ctx, retries, func(ctx context.Context) (err error) {
		made, err = services.Create(ctx, s.service(i), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			made, err = services.Get(ctx, serviceName(i), metav1.GetOptions{})
		}
		return err
	})
	if err != nil {
		return err
	}
	for n := range s.slicesEach() {
		if err := create(ctx, retries, func(ctx context.Context) error {
			_, err := client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, s.slice(made, i, n, time.Now()),
				metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func serviceName(i int) string { return fmt.Sprintf("load-%05d", i) }

// slicesEach returns how many EndpointSlices a Service has: at least one, as kube-controller-manager makes it.
func (s Spec) slicesEach() int { return max(1, (s.EndpointsEach+sliceSize-1)/sliceSize) }

func (s Spec) service(i int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName(i), Namespace: s.Namespace, Labels: map[string]string{"app": serviceName(i)},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: portName, Port: 80, Protocol: corev1.ProtocolTCP}}},
	}
}

// slice returns the n-th EndpointSlice of the i-th Service.
func (s Spec) slice(owner *corev1.Service, i, n int, now time.Time) *discoveryv1.EndpointSlice {
	yes := true
	name, number, protocol := portName, int32(port), corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%03d", owner.Name, n), GenerateName: owner.Name + "-", Namespace: s.Namespace,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: owner.Name, discoveryv1.LabelManagedBy: ManagedBy, "app": owner.Name,
			},
			Annotations: map[string]string{
				corev1.EndpointsLastChangeTriggerTime: now.UTC().Format(time.RFC3339Nano), AnnotationSequence: "0",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: owner.Name, UID: owner.UID, Controller: &yes,
				BlockOwnerDeletion: &yes,
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &protocol}},
	}
	for e := n * sliceSize; e < min(s.EndpointsEach, (n+1)*sliceSize); e++ {
		slice.Endpoints = append(slice.Endpoints, s.endpoint(owner.Name, i*s.EndpointsEach+e))
	}
	return slice
}

// endpoint returns the endpoint of that number. All endpoints ever made have different numbers.
func (s Spec) endpoint(service string, number int) discoveryv1.Endpoint {
	yes, no := true, false
	e := discoveryv1.Endpoint{
		Addresses:  []string{address(number)},
		Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		TargetRef:  s.pod(service, number),
	}
	if node := s.nodeOf(number); node != "" {
		e.NodeName, e.Zone = &node, &node
	}
	return e
}

func (s Spec) nodeOf(number int) string {
	if len(s.Nodes) == 0 {
		return ""
	}
	return s.Nodes[number%len(s.Nodes)]
}

// fewest returns the node with the fewest endpoints of a Service, as a scheduler would choose. If several nodes have as few, it
// takes the one that nodeOf names, or the next after it. If nodeOf alone chose, a rolling update would give a Service the same
// few nodes again and again.
func (s Spec) fewest(has map[string]int, number int) string {
	best := s.nodeOf(number)
	for i := range s.Nodes {
		if node := s.nodeOf(number + i); has[node] < has[best] {
			best = node
		}
	}
	return best
}

// pod returns a reference to a Pod, named as a Deployment would name it.
func (s Spec) pod(service string, number int) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind: "Pod", Namespace: s.Namespace, Name: fmt.Sprintf("%s-7f9c6d5b48-%07d", service, number),
		UID: types.UID(fmt.Sprintf("6f1d0c9e-0000-4000-8000-%012d", number)),
	}
}

// address returns an address in 172.16.0.0/12, which a lab does not use. The addresses start again from the first after about a
// million numbers.
func address(number int) string {
	n := uint32(number%(1<<20)) | 172<<24 | 16<<16 // below 1<<20
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}).String()
}

// ErrNothingToChange says that there are no objects of this package.
var ErrNothingToChange = errors.New("nothing to change: make Services first")
