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

// OfNode reports whether the node itself needs a collection to start. When the disk runs out of space, it drops such collections
// last.
func OfNode(id store.Collection) bool { return id.Client == "" || id.Client == Hub }

// Secret reports whether a collection's objects are Secrets, whoever reads them.
func Secret(id store.Collection) bool { return id.Resource.GroupResource() == secrets.GroupResource() }

// Prompt reports whether the disk must write each removal from a collection at once, because a removed object must not come back
// after a crash. That is so for Secrets, for ConfigMaps that kubelet follows one by one, and for the node's Pods, because kubelet
// would run a removed Pod again.
//
// In other collections the resumed watch removes the object again. A rolling update removes many EndpointSlices, and an agent may
// follow all Pods of the cloud, so the disk does not write at once for these.
func Prompt(id store.Collection) bool {
	switch id.Resource.GroupResource() {
	case pods.GroupResource(), configMaps.GroupResource():
		return id.Fields != ""
	}
	return Secret(id)
}

// String returns the selection in a form for people.
func (s Selection) String() string { return s.id("").String() }

// sound reports whether every server reads a URL in the same way. The cloud answers requests for other URLs, such as "/a/../b",
// "/a%2Fb" and "?a;b".
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
