package cache

import (
	"net/http"
	"net/url"
	"path"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/store"
)

// Hub is the client name of the hub's own selections. It keeps them apart on the disk from a program's equal selections. No
// caller has this name, because callers' names contain a space.
const Hub = "yurthub"

// Selection is what a list or a watch asks for.
type Selection struct {
	Resource schema.GroupVersionResource
	// Namespace is empty for all namespaces, and for resources without namespaces.
	Namespace string
	// Fields and Labels are selectors, as the program sent them.
	Fields, Labels string
}

// Whole is the selection of all objects of a resource.
func Whole(r schema.GroupVersionResource) Selection { return Selection{Resource: r} }

// selectionOf returns the selection of a list or watch. It returns false if the path names an object, which no client has done
// since Kubernetes 1.11.
func selectionOf(r *http.Request, info *request.RequestInfo) (Selection, bool) {
	query := r.URL.Query()
	return Selection{
		Resource: schema.GroupVersionResource{
			Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource,
		},
		Namespace: info.Namespace, Fields: query.Get("fieldSelector"), Labels: query.Get("labelSelector"),
	}, len(info.Parts) == 1
}

func (s Selection) id(client string) store.Collection {
	return store.Collection{Client: client, Resource: s.Resource, Namespace: s.Namespace, Fields: s.Fields, Labels: s.Labels}
}

// OfNode reports whether the node itself needs a collection to start. When the disk runs out of space, such a collection must not
// be dropped in favour of a Pod's.
func OfNode(id store.Collection) bool { return id.Client == "" || id.Client == Hub }

// Secret reports whether a collection's objects are Secrets, whoever reads them.
func Secret(id store.Collection) bool { return id.Resource.GroupResource() == secrets.GroupResource() }

// Prompt reports whether an object that is removed from a collection must not come back after a crash. That holds for the
// node's Pods, because kubelet would run such a Pod again with a valid token; for Secrets; and for ConfigMaps that Pods get one
// by one.
//
// It does not hold for the rest. If a removed EndpointSlice comes back, the resumed watch removes it again, and a rolling
// update removes many. When an agent follows all Pods of the cloud, the disk must not write at once for each Pod that ends on
// another node.
func Prompt(id store.Collection) bool {
	switch id.Resource.GroupResource() {
	case pods.GroupResource(), configMaps.GroupResource():
		return id.Fields != ""
	}
	return Secret(id)
}

// String returns the selection in a form for people.
func (s Selection) String() string { return s.id("").String() }

// sound reports whether every server reads an address in the same way. The cloud answers requests for other addresses, such as
// "/a/../b", "/a%2Fb" and "?a;b".
func sound(u *url.URL) bool {
	_, err := url.ParseQuery(u.RawQuery)
	return err == nil && u.RawPath == "" && path.Clean(u.Path) == u.Path
}

// plain returns a copy of a request without selectors, because the selection already applies them.
func plain(r *http.Request) *http.Request {
	query := r.URL.Query()
	query.Del("fieldSelector")
	query.Del("labelSelector")
	u := *r.URL
	u.RawQuery = query.Encode()
	stripped := r.WithContext(r.Context())
	stripped.URL = &u
	return stripped
}
