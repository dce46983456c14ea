package usage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/metrics-server/pkg/scraper"
	"sigs.k8s.io/metrics-server/pkg/scraper/client"
	"sigs.k8s.io/metrics-server/pkg/scraper/client/resource"
	"sigs.k8s.io/metrics-server/pkg/storage"
)

const (
	// maxMetrics bounds what is read from a kubelet, which may lie. 110 Pods of three containers take some 150 KB.
	maxMetrics = 4 << 20
	// listTimeout bounds a list from the API server in this process.
	listTimeout = 10 * time.Second
)

// Kubelets says how to reach the kubelets.
type Kubelets struct {
	// To returns the transport to a node's kubelet at an address. It authenticates the caller and verifies the kubelet.
	To func(ctx context.Context, node, host string) (http.RoundTripper, error)
	// Port is the port of kubelets whose Nodes do not name one.
	Port int
	// AddressTypes are the types of Node addresses to dial, best first.
	AddressTypes []corev1.NodeAddressType
	// Addresses returns the addresses of a node that are used in place of those in its status. If Addresses is nil or returns
	// none, those in the status are used.
	Addresses func(node *corev1.Node) []corev1.NodeAddress
}

// New returns a Meter of the kubelets of all Nodes, and of all Pods, on the API server behind api.
func New(api *rest.Config, kubelets Kubelets, c clock.Clock) (*Meter, error) {
	typed, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, err
	}
	partial, err := metadata.NewForConfig(api)
	if err != nil {
		return nil, err
	}
	source, err := resource.NewForConfig(&client.KubeletClientConfig{
		Client:              rest.Config{Transport: bounded{kubelets.To}, Timeout: scrapeTimeout},
		AddressTypePriority: kubelets.AddressTypes,
		Scheme:              "https",
		DefaultPort:         kubelets.Port,
		UseNodeStatusPort:   true,
	})
	if err != nil {
		return nil, fmt.Errorf("client of kubelets: %w", err)
	}
	nodes := nodeLister{typed}
	return newMeter(nodes, podLister{partial, metav1.NamespaceAll},
		scraper.NewScraper(nodes, named{source, kubelets.Addresses}, scrapeTimeout, nil), c), nil
}

// named tells the transport which node's kubelet is read, and the client where it is.
type named struct {
	client.KubeletMetricsGetter
	addresses func(node *corev1.Node) []corev1.NodeAddress
}

type nodeKey struct{}

// GetMetrics implements client.KubeletMetricsGetter.
func (n named) GetMetrics(ctx context.Context, node *corev1.Node) (*storage.MetricsBatch, error) {
	if n.addresses != nil {
		if others := n.addresses(node); len(others) > 0 {
			node = node.DeepCopy()
			node.Status.Addresses = others
		}
	}
	return n.KubeletMetricsGetter.GetMetrics(context.WithValue(ctx, nodeKey{}, node.Name), node)
}

// bounded goes to the kubelet of the node that named has told of, and fails the reading of an answer that is too long.
type bounded struct {
	to func(ctx context.Context, node, host string) (http.RoundTripper, error)
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	node, _ := r.Context().Value(nodeKey{}).(string)
	transport, err := b.to(r.Context(), node, r.URL.Hostname())
	if err != nil {
		return nil, err
	}
	response, err := transport.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxMetrics)
	}
	return response, err
}

// nodeLister and podLister read from the API server on demand, because an informer would hold all Pods in memory.
type nodeLister struct{ client kubernetes.Interface }

var _ corelisters.NodeLister = nodeLister{}

// List implements NodeLister.
func (l nodeLister) List(selector labels.Selector) ([]*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	list, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	return pointers(list.Items), nil
}

// Get implements NodeLister.
func (l nodeLister) Get(name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	return l.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

type podLister struct {
	client    metadata.Interface
	namespace string
}

var (
	_ cache.GenericLister          = podLister{}
	_ cache.GenericNamespaceLister = podLister{}
)

func (l podLister) resource() metadata.ResourceInterface {
	return l.client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(l.namespace)
}

// ByNamespace implements GenericLister.
func (l podLister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return podLister{l.client, namespace}
}

// List implements GenericLister.
func (l podLister) List(selector labels.Selector) ([]runtime.Object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	list, err := l.resource().List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, err
	}
	objects := make([]runtime.Object, len(list.Items))
	for i := range list.Items {
		objects[i] = &list.Items[i]
	}
	return objects, nil
}

// Get implements GenericNamespaceLister.
func (l podLister) Get(name string) (runtime.Object, error) {
	if l.namespace == metav1.NamespaceAll {
		return nil, errors.New("a Pod is found in its namespace")
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	return l.resource().Get(ctx, name, metav1.GetOptions{})
}

func pointers[T any](items []T) []*T {
	all := make([]*T, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}
