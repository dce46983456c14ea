package recall

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// podOfToken is what a key has at its end if the request is for the token of a Pod: the Pod's name.
func podOfToken(r *http.Request, body []byte) string {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/token") {
		return ""
	}
	asked, kind := &authenticationv1.TokenRequest{}, authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, asked); err != nil {
		return ""
	}
	ref := asked.Spec.BoundObjectRef
	if ref == nil || ref.Kind != "Pod" || ref.Name == "" || len(ref.Name) > 253 || strings.ContainsAny(ref.Name, " /") {
		return ""
	}
	return " " + ref.Name
}

// podOf is the Pod that an answer is about, by its key; false if it is about none.
func podOf(key string) (namespace, name string, ok bool) {
	_, path, _ := strings.Cut(key, "/api/v1/namespaces/")
	path, rest, _ := strings.Cut(path, " ")
	parts := strings.Split(path, "/")
	_, pod, bound := strings.Cut(rest, " ")
	switch {
	case len(parts) >= 3 && parts[1] == "pods":
		return parts[0], parts[2], true
	case bound:
		return parts[0], pod, true
	default:
		return "", "", false
	}
}
