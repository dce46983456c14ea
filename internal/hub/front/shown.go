package front

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
)

// viewed are the resources that a hub shows differently from the cloud, with revisions of its own (ADR 19).
var viewed = map[schema.GroupResource]bool{
	{Resource: "endpoints"}: true, {Resource: "services"}: true, {Group: "discovery.k8s.io", Resource: "endpointslices"}: true,
}

// maxWrite is the largest body that an API server reads.
const maxWrite = 3 << 20

// unshown returns the query for the cloud. A resourceVersion that the hub made for a view is replaced by the cloud's own. The
// hub's handlers get the query unchanged, because that resourceVersion says that the client saw a view.
func unshown(query string) string {
	const option = "resourceVersion"
	values, err := url.ParseQuery(query)
	if err != nil || !values.Has(option) {
		return query
	}
	revision, err := edge.ParseRevision(values.Get(option))
	own, shown := revision.Own()
	if err != nil || !shown {
		return query
	}
	values.Set(option, own.String())
	return values.Encode()
}

// overwrites returns a conflict if a request would overwrite an object with the part of it that a view shows; else nil.
func overwrites(r *http.Request, info *request.RequestInfo) *metav1.Status {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if !info.IsResourceRequest {
		return nil
	}
	// The API server itself refuses such a write of any other resource: the object never had that revision.
	if r.Method == http.MethodGet || !viewed[resource] || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	body, whole := r.Body, &bytes.Buffer{}
	_, err := io.CopyN(whole, body, maxWrite)
	rest := io.Reader(body)
	if err != nil && err != io.EOF { //nolint:errorlint // CopyN returns it bare
		rest = failed{err}
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(whole.Bytes()), rest), body}
	if !namesShown(whole.Bytes()) {
		return nil
	}
	status := apierrors.NewConflict(resource, info.Name, errPart).Status()
	return &status
}

var errPart = errors.New(
	"the object was read through a yurthub, which shows only a part of it; read it at the cloud's API server to change it")

type failed struct{ error }

func (f failed) Read([]byte) (int, error) { return 0, f.error }

// shownDigits is the length of every shown revision.
const shownDigits = 19

// namesShown reports whether a body, in any encoding, contains a revision that the hub made for a view. In the viewed resources,
// nothing else is a number of shownDigits digits.
func namesShown(body []byte) bool {
	digits := 0
	for i := 0; i <= len(body); i++ {
		if i < len(body) && body[i] >= '0' && body[i] <= '9' {
			digits++
			continue
		}
		if digits == shownDigits {
			if revision, err := edge.ParseRevision(string(body[i-digits : i])); err == nil {
				if _, shown := revision.Own(); shown {
					return true
				}
			}
		}
		digits = 0
	}
	return false
}
