package recall

import (
	"errors"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"yurtcoordinator/internal/stream"
)

// Written answers a write by the handler pass. If the write succeeds or finds no object, Written forgets this client's earlier
// answers about the object. After a write of a built-in kind's status, Written forgets only the answer to a get with the same
// Accept header. If the response is the object, this client's later reads may get it from memory (Answers.takes). gone is the
// object's path if the object is known to be gone, or a path with a slash behind it if all objects below that path may be gone.
// Otherwise gone is empty.
func (a *Answers) Written(w http.ResponseWriter, r *http.Request, pass http.Handler) (gone string) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok || r.URL.Query().Has("dryRun") { // a dry run changes nothing
		pass.ServeHTTP(w, r)
		return ""
	}
	t, ended := &tee{ResponseWriter: w, most: answerBytes}, false
	defer func() { gone = a.written(r, info, t, ended) }() // also for an answer that breaks off, which panics
	pass.ServeHTTP(t, r)
	ended = true
	return ""
}

func (a *Answers) written(r *http.Request, info *request.RequestInfo, t *tee, ended bool) (gone string) {
	path, name := r.URL.Path, info.Name
	if i := strings.LastIndex(path, "/"+info.Subresource); info.Subresource != "" && i > 0 {
		path = path[:i]
	}
	switch {
	case (t.status == http.StatusNotFound || t.status == http.StatusGone) && info.Subresource == "" && name != "":
		a.forgetAt(path, "")
		return ""
	case t.status < http.StatusOK || t.status >= http.StatusMultipleChoices:
		return ""
	case info.Verb == "deletecollection":
		for _, key := range a.disk.Blobs(a.prefix + path + "/") {
			a.forget(key)
		}
		return path + "/"
	}
	kind, meta, err := t.object(ended)
	if name == "" { // it is created, and only the answer names it
		if name = meta.Name; name == "" {
			return ""
		}
		path += "/" + name
	}
	is := err == nil && meta.Name == name
	stays := is && (meta.DeletionTimestamp == nil && info.Verb != "delete" || terminates(&meta))
	status := info.Subresource == "status" && scheme.Scheme.IsGroupRegistered(info.APIGroup)
	key := a.key(path, http.MethodGet, "", accept(r), "", "")
	if !status {
		a.forgetAt(path, key)
	} // else the other forms stay: kubelet reports all the time on a Node that an agent reads once, when it starts
	if stays && (status || info.Subresource == "") && a.takes(r, info, key) {
		a.remember(key, answer{Status: http.StatusOK, ContentType: t.Header().Get("Content-Type"), Body: t.body.Bytes()})
	} else {
		a.forget(key)
	}
	if !stays && info.Subresource == "" && (is || err == nil && info.Verb == "delete" && kind == "Status") {
		gone = path
	}
	return gone
}

// takes reports whether to remember the response to a client's write as what the client would read. A caller that may write
// need not be allowed to read, so it must have read the object before. Leases and Events are excluded, because clients write
// them much more often than they read them.
func (a *Answers) takes(r *http.Request, info *request.RequestInfo, key string) bool {
	if !sound(r.URL) || info.Resource == "leases" || info.Resource == "events" {
		return false
	}
	if a.cfg.Client == "" {
		return true
	}
	_, err := a.disk.Blob(key)
	return err == nil
}

// terminates reports whether an object is being deleted but still exists, because it has finalizers or a grace period.
func terminates(m *metav1.ObjectMeta) bool {
	grace := m.DeletionGracePeriodSeconds
	return m.DeletionTimestamp != nil && (len(m.Finalizers) > 0 || grace != nil && *grace > 0)
}

var errPart = errors.New("there is a part of it only, or it is compressed")

// object reads the kind and metadata of the object that was written through the tee.
func (t *tee) object(ended bool) (kind string, m metav1.ObjectMeta, err error) {
	if !ended || !t.whole() {
		return "", m, errPart
	}
	typ, raw, err := stream.OpenEnvelope(t.body.Bytes())
	if err == nil {
		m, err = stream.ScanMeta(typ.Encoding, raw)
	}
	return typ.Kind, m, err
}
