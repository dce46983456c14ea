package follow

import (
	"net/http"
	"net/url"
	"path"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/store"
)

// Hub is the client that selections of the hub itself have on the disk: a program may follow the same at the same time. No
// user has this name, for those of callers have a blank in them.
const Hub = "yurthub"

// Selection is what a list or a watch speaks of.
type Selection struct {
	Resource schema.GroupVersionResource
	// Namespace is empty for all, and for what has none.
	Namespace string
	// Fields and Labels are selectors, as the program sent them.
	Fields, Labels string
}

// Whole is the selection of all objects of a resource.
func Whole(r schema.GroupVersionResource) Selection { return Selection{Resource: r} }

// selectionOf returns the selection of a list or watch, and false if it names an object in its path, as nobody has done
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

// OfNode reports whether a collection is one that the node itself needs to start: no Pod's takes its place on the disk.
func OfNode(id store.Collection) bool { return id.Client == "" || id.Client == Hub }

// String is the selection for people to read.
func (s Selection) String() string { return s.id("").String() }

// sound reports whether an address means the same to everybody who reads it. Others are passed on: "/a/../b", "/a%2Fb" and
// "?a;b" are the cloud's to understand.
func sound(u *url.URL) bool {
	_, err := url.ParseQuery(u.RawQuery)
	return err == nil && u.RawPath == "" && path.Clean(u.Path) == u.Path
}

// plain is a request without the selectors that its selection stands for.
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
