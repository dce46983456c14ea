package recall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// tokenReviews is the path's end, as it is in a key, of requests that show the token of somebody, to learn who that is.
const tokenReviews = "/tokenreviews"

// isTokenReview reports whether a key is that of an answer to one.
func isTokenReview(key string) bool { return strings.Contains(key, tokenReviews+" ") }

// shows reports whether the disk has an answer with the token in it, or what may be one.
func (a *Answers) shows(key string) bool {
	value, err := a.disk.Blob(key)
	var said answer
	if err != nil || json.Unmarshal(value, &said) != nil {
		return true
	}
	review, err := tokenReview(said.Body)
	return err != nil || review.Spec.Token != ""
}

// asksWho reports whether a request shows a token.
func asksWho(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/") &&
		strings.HasSuffix(r.URL.Path, tokenReviews)
}

// errShown says that a review cannot be kept without the token that was shown.
var errShown = errors.New("the token that was shown cannot be taken out of it")

// shown returns the token that the body of a TokenReview shows.
func shown(body []byte) (string, error) {
	review, err := tokenReview(body)
	if err != nil {
		return "", err
	}
	if review.Spec.Token == "" {
		return "", errShown
	}
	return review.Spec.Token, nil
}

// blanked returns what the cloud said to a TokenReview without the token, which the cloud repeats. It fails if the token is
// anywhere else in it.
func blanked(said answer, token string) (answer, error) {
	said, err := withToken(said, "")
	if err == nil && bytes.Contains(said.Body, []byte(token)) {
		err = errShown
	}
	return said, err
}

// withToken returns what the cloud said to a TokenReview with the token in its place.
func withToken(said answer, token string) (answer, error) {
	review, err := tokenReview(said.Body)
	if err != nil {
		return answer{}, err
	}
	media, _, _ := strings.Cut(said.ContentType, ";")
	form, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), strings.TrimSpace(media))
	if !ok {
		return answer{}, fmt.Errorf("%w: it is %q", errShown, said.ContentType)
	}
	review.Spec.Token = token
	var body bytes.Buffer
	if err := form.Serializer.Encode(review, &body); err != nil {
		return answer{}, fmt.Errorf("%w: %w", errShown, err)
	}
	said.Body = body.Bytes()
	return said, nil
}

func tokenReview(body []byte) (*authenticationv1.TokenReview, error) {
	kind := authenticationv1.SchemeGroupVersion.WithKind("TokenReview")
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &kind, nil)
	if err != nil {
		return nil, errors.Join(errShown, err)
	}
	review, ok := decoded.(*authenticationv1.TokenReview)
	if !ok {
		return nil, fmt.Errorf("%w: it is %T", errShown, decoded)
	}
	return review, nil
}
