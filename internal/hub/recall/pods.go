package recall

import (
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// podToken returns a request's TokenRequest for a Pod; nil means that the request asks for something else.
func podToken(r *http.Request, body []byte) *authenticationv1.TokenRequest {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/token") {
		return nil
	}
	asked, err := tokenRequest(body)
	if err != nil {
		return nil
	}
	ref := asked.Spec.BoundObjectRef
	if ref == nil || ref.Kind != "Pod" || ref.Name == "" || len(ref.Name) > 253 || strings.ContainsAny(ref.Name, " /") {
		return nil
	}
	return asked
}

func tokenRequest(body []byte) (*authenticationv1.TokenRequest, error) {
	read, kind := &authenticationv1.TokenRequest{}, authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
	_, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, read)
	return read, err
}

// podKey names a Pod.
type podKey struct{ namespace, name string }

// podOf returns the Pod that an answer is about, given the answer's key. It returns false for other answers.
func podOf(key string) (podKey, bool) {
	if pod, ok := boundTo(key); ok {
		return pod, true
	}
	parts := partsOf(key)
	if len(parts) < 3 || parts[1] != "pods" {
		return podKey{}, false
	}
	return podKey{parts[0], parts[2]}, true
}

// boundTo returns the Pod whose token an answer is, given the answer's key. It returns false for other answers.
func boundTo(key string) (podKey, bool) {
	_, rest, _ := strings.Cut(key, " ")
	_, pod, bound := strings.Cut(rest, " ")
	return podKey{partsOf(key)[0], pod}, bound
}

// Secret reports whether the value of a key on the disk is a Secret, or a Pod's token.
func Secret(key string) bool {
	parts := partsOf(key)
	return len(parts) > 2 && parts[1] == "secrets" ||
		len(parts) > 3 && parts[1] == "serviceaccounts" && parts[3] == "token"
}

// partsOf returns the parts of a key's path after the core group's namespaces/; the first part is the namespace.
func partsOf(key string) []string {
	_, path, _ := strings.Cut(key, "/api/v1/namespaces/")
	path, _, _ = strings.Cut(path, " ")
	return strings.Split(path, "/")
}
