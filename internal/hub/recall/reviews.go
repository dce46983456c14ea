package recall

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// tokenReviews ends the path of a request that asks who owns a token. accessReviews ends the path of one that asks what a user
// may do.
const tokenReviews, accessReviews = "/tokenreviews", "/subjectaccessreviews"

// TenureJudge decides how long the cloud's answer about a user holds while the cloud cannot be asked; Tenure is one.
type TenureJudge interface {
	Stamp(u *authenticationv1.UserInfo) Stamp
	Renews(next, old Stamp) bool
	Judge(s Stamp) TenureVerdict
}

// asksAbout returns the end of a review's path (tokenReviews or accessReviews); empty means that the request is no review.
func asksAbout(r *http.Request) string {
	for group, end := range map[string]string{"authentication.k8s.io": tokenReviews, "authorization.k8s.io": accessReviews} {
		path := r.URL.Path
		if r.Method == http.MethodPost && strings.HasPrefix(path, "/apis/"+group+"/") && strings.HasSuffix(path, end) {
			return end
		}
	}
	return ""
}

// isReview reports whether a key is that of an answer to a review.
func isReview(key string) bool {
	return strings.Contains(key, tokenReviews+" ") || strings.Contains(key, accessReviews+" ")
}

// stamped returns the cloud's answer to a review with a Stamp, and without the token. It fails if the answer must not be kept.
func (a *Answers) stamped(asked question, said answer) (answer, error) {
	user, err := userOf(said.Body)
	if err != nil {
		return said, err
	}
	if asked.token != "" {
		if said, err = blanked(said, asked.token); err != nil {
			return said, err
		}
	}
	now := a.cfg.Tenure.Stamp(user)
	if a.cfg.Tenure.Judge(now) == Over {
		return said, errNotKept
	}
	old, err := a.read(asked.key)
	if err == nil && old.Said != nil && old.Status == said.Status && bytes.Equal(old.Body, said.Body) &&
		!a.cfg.Tenure.Renews(now, *old.Said) {
		now = *old.Said // so the disk need not be written
	}
	said.Said = &now
	return said, nil
}

// lasts reports whether an answer holds while the cloud cannot be asked. It forgets an answer that does not.
func (a *Answers) lasts(key string, said answer) bool {
	if !isReview(key) {
		return true
	}
	holds := Over
	if said.Said != nil {
		holds = a.cfg.Tenure.Judge(*said.Said)
	}
	if holds == Over {
		a.forget(key)
	}
	return holds == Holds
}

// Tidy forgets reviews that no longer hold, the tokens of Pods that are gone, and reads of such Pods. Otherwise the answers about
// Jobs' Pods would take the room of useful ones.
func (a *Answers) Tidy() {
	for _, key := range a.disk.Blobs(a.prefix) {
		if isReview(key) {
			if said, err := a.read(key); err == nil {
				a.lasts(key, said)
			}
			continue
		}
		pod, ok := podOf(key)
		if !ok {
			continue
		}
		if uid, ours := a.podIn(key); ours && a.cfg.Gone(pod.namespace, pod.name, uid) {
			a.forget(key)
		}
	}
}

// podIn returns the UID of the Pod that an answer shows, or whose token the answer is; empty if the UID can't be read. ours says
// that the Pod is this node's. A Pod with a token always is.
func (a *Answers) podIn(key string) (uid string, ours bool) {
	_, ours = boundTo(key)
	said, err := a.read(key)
	if err != nil {
		return "", ours
	}
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(said.Body, nil, nil)
	if err != nil {
		return "", ours
	}
	switch is := decoded.(type) {
	case *corev1.Pod:
		return string(is.UID), is.Spec.NodeName == string(a.cfg.Node)
	case *authenticationv1.TokenRequest:
		if ref := is.Spec.BoundObjectRef; ref != nil {
			return string(ref.UID), ours
		}
	}
	return "", ours
}

// errNotKept says that answers about a user are not remembered.
var errNotKept = errors.New("nothing is remembered of this user")

// userOf returns the user that the answer to a review is about. The user is empty if the cloud does not know the token.
func userOf(body []byte) (*authenticationv1.UserInfo, error) {
	decoded, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	switch review := decoded.(type) {
	case *authenticationv1.TokenReview:
		return &review.Status.User, nil
	case *authorizationv1.SubjectAccessReview:
		u := &authenticationv1.UserInfo{Username: review.Spec.User, Extra: map[string]authenticationv1.ExtraValue{}}
		for key, value := range review.Spec.Extra {
			u.Extra[key] = authenticationv1.ExtraValue(value)
		}
		return u, nil
	default:
		return nil, fmt.Errorf("it is %T, not a review", decoded)
	}
}

// errShown says that an answer to a review cannot be kept, because the token cannot be removed from it.
var errShown = errors.New("the token that was shown cannot be taken out of it")

// shown returns the token in the body of a TokenReview.
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

// blanked returns the cloud's answer to a TokenReview without the token. It fails if the token is also in another place of the
// answer.
func blanked(said answer, token string) (answer, error) {
	said, err := withToken(said, "")
	if err == nil && bytes.Contains(said.Body, []byte(token)) {
		err = errShown
	}
	return said, err
}

// withToken returns the cloud's answer to a TokenReview with the token put back.
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
