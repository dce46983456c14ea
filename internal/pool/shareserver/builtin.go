package shareserver

import (
	"fmt"
	"net/http"
	"path"
	"reflect"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"

	"yurtcoordinator/internal/pool/exchange"
	"yurtcoordinator/internal/stream"
)

// maxStoredBytes is the size of the largest object that etcd accepts.
const maxStoredBytes = 1536<<10 - 4<<10

// BuiltIn is a resource that kube-apiserver serves, and whose objects arrive as the cloud's own bytes.
type BuiltIn struct {
	Kind   schema.GroupVersionKind
	Prefix string // of its keys in etcd, with a slash at the end
	New    func() Message
}

// Message is a Kubernetes type that protobuf can fill.
type Message interface {
	metav1.Object
	runtime.Object
	Unmarshal(data []byte) error
}

// Find looks up where kube-apiserver keeps the resource. It fails if kube-apiserver stores the resource in another version,
// because kube-apiserver then could not read the cloud's bytes.
func (b *BuiltIn) Find(getter generic.RESTOptionsGetter, resource schema.GroupResource) error {
	options, err := getter.GetRESTOptions(resource, b.New())
	if err != nil {
		return err
	}
	config := options.StorageConfig
	kind, ok := config.EncodeVersioner.KindForGroupVersionKinds([]schema.GroupVersionKind{b.Kind})
	if !ok || kind != b.Kind {
		return fmt.Errorf("%s is stored as %s, not %s", resource, kind, b.Kind)
	}
	b.Prefix = path.Join("/", config.Prefix, options.ResourcePrefix) + "/"
	return nil
}

// Key returns the key under which kube-apiserver keeps an object.
func (b *BuiltIn) Key(k stream.Key) []byte { return []byte(b.Prefix + k.String()) }

// Decode reads an object before it is stored. Its errors are refusals.
func (b *BuiltIn) Decode(o stream.Object) (Message, error) {
	if len(o.Raw) > maxStoredBytes {
		return nil, exchange.Refused(http.StatusRequestEntityTooLarge, "%s has %d bytes; etcd accepts %d", o.Key,
			len(o.Raw), maxStoredBytes)
	}
	object := b.New()
	size, err := sizeInMemory(reflect.TypeOf(object).Elem(), o.Raw)
	switch most := maxGrowth*len(o.Raw) + growthSlack; {
	case err != nil:
	case size > most:
		return nil, exchange.Refused(http.StatusRequestEntityTooLarge,
			"%s has %d bytes and would take %d of memory; that of its size may take %d", o.Key, len(o.Raw), size, most)
	default:
		err = object.Unmarshal(o.Raw)
	}
	if err != nil {
		return nil, exchange.Refused(http.StatusUnprocessableEntity, "%s is not a %s: %v", o.Key, b.Kind.Kind, err)
	}
	if object.GetName() != o.Key.Name || object.GetNamespace() != o.Key.Namespace {
		return nil, exchange.Refused(http.StatusUnprocessableEntity, "%s names itself %s/%s", o.Key, object.GetNamespace(),
			object.GetName())
	}
	return object, nil
}

// CheckKey refuses a key that would reach another key's place in etcd.
func CheckKey(k stream.Key, namespaced bool) error {
	if problems := content.IsPathSegmentName(k.Name); len(problems) > 0 || k.Name == "" || len(k.Name) > 253 {
		return exchange.Refused(http.StatusUnprocessableEntity, "%.300q is not a valid name of an object", k.Name)
	}
	if k.Namespace == "" && !namespaced {
		return nil
	}
	if problems := validation.ValidateNamespaceName(k.Namespace, false); len(problems) > 0 {
		return exchange.Refused(http.StatusUnprocessableEntity, "%.300q is not a valid name of a namespace", k.Namespace)
	}
	return nil
}
