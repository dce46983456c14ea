package recall

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	reviews    = "/apis/authentication.k8s.io/v1/tokenreviews"
	shownToken = "eyJhbGciOiJSUzI1NiJ9.c2hvd24.bm9ib2R5IG1heSBrZWVwIHRoaXM"
)

// review is a TokenReview in a form, without a status as kubelet sends it, or with one as the cloud answers it.
func review(t *testing.T, form, token string, status *authenticationv1.TokenReviewStatus) string {
	t.Helper()
	r := &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token},
	}
	if status != nil {
		r.Status = *status
	}
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), form)
	if !ok {
		t.Fatal(form)
	}
	b, err := runtime.Encode(info.Serializer, r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// adminReview is who the cloud says that a token is.
var adminReview = authenticationv1.TokenReviewStatus{
	Authenticated: true, Audiences: []string{"api"},
	User: authenticationv1.UserInfo{Username: "admin", Groups: []string{"ops"}},
}

// reviewing has the cloud answer a TokenReview as an API server does: with the object that it was given.
func (w *world) reviewing(form string, status authenticationv1.TokenReviewStatus) {
	w.cloud = func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.t.Error(err)
		}
		token, err := shown(body)
		if err != nil {
			w.t.Error(err)
		}
		out.Header().Set("Content-Type", form)
		out.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(out, review(w.t, form, token, &status))
	}
}

// leftOf lists where in a directory's files a token is, as it is or within what is written in base64.
func leftOf(t *testing.T, dir, token string) (found []string) {
	t.Helper()
	forms := map[string]string{"clear": token}
	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + token))
		forms["base64, shifted by "+string(rune('0'+shift))] = encoded[4 : len(encoded)-4]
	}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for form, text := range forms {
			if bytes.Contains(content, []byte(text)) {
				found = append(found, entry.Name()+": "+form)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestATokenThatIsShownIsNeverStored(t *testing.T) {
	for _, form := range []string{asJSON, asProto} {
		t.Run(form, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.reviewing(form, adminReview)
				asks := review(t, form, shownToken, nil)
				header := []string{"Content-Type", form, "Accept", form, "Authorization", "Bearer " + shownToken}
				live := w.ask(http.MethodPost, reviews, asks, header...)
				want(t, live, http.StatusCreated)
				w.restart()
				if found := leftOf(t, w.dir, shownToken); len(found) > 0 {
					t.Errorf("the token is on the disk: %v", found)
				}
				out := w.offline(http.MethodPost, reviews, asks, header...)
				want(t, out, http.StatusCreated)
				if out.Body.String() != live.Body.String() {
					t.Errorf("from memory: %q\nfrom the cloud: %q", out.Body, live.Body)
				}
				w.unknown(http.MethodPost, reviews, review(t, form, "another", nil), header...)
			})
		})
	}
}

// access is a SubjectAccessReview, allowed if it is the cloud's answer.
func access(t *testing.T, user authenticationv1.UserInfo, allowed bool) string {
	t.Helper()
	r := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec:     authorizationv1.SubjectAccessReviewSpec{User: user.Username, Extra: map[string]authorizationv1.ExtraValue{}},
		Status:   authorizationv1.SubjectAccessReviewStatus{Allowed: allowed},
	}
	for key, value := range user.Extra {
		r.Spec.Extra[key] = authorizationv1.ExtraValue(value)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What kubelet was told of a Pod of this node holds for as long as that is there, of anybody else for a day.
func TestHowLongReviewsHold(t *testing.T) {
	const accesses = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	pod := authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
		Username: "system:serviceaccount:a:agent", Extra: map[string]authenticationv1.ExtraValue{
			"authentication.kubernetes.io/pod-name": {"p"}, "authentication.kubernetes.io/pod-uid": {"u1"},
		},
	}}
	bubble(t, func(t *testing.T, w *world) {
		w.pods["a/p"] = "u1"
		asks := map[string]string{} // who → token
		for who, status := range map[string]authenticationv1.TokenReviewStatus{"pod": pod, "admin": adminReview} {
			asks[who] = review(t, asJSON, "the token of "+who, nil)
			w.reviewing(asJSON, status)
			w.ask(http.MethodPost, reviews, asks[who])
			w.says(http.StatusCreated, asJSON, access(t, status.User, true))
			w.ask(http.MethodPost, accesses, access(t, status.User, false))
		}
		users := map[string]authenticationv1.UserInfo{"pod": pod.User, "admin": adminReview.User}
		known := func(when string, who ...string) {
			t.Helper()
			for name, body := range asks {
				code := http.StatusServiceUnavailable
				if slices.Contains(who, name) {
					code = http.StatusCreated
				}
				for target, body := range map[string]string{reviews: body, accesses: access(t, users[name], false)} {
					if out := w.offline(http.MethodPost, target, body); out.Code != code {
						t.Errorf("%s, %s of %s: %d, want %d", when, target, name, out.Code, code)
					}
				}
			}
		}
		known("at first", "pod", "admin")
		w.passes += 23 * time.Hour
		w.restart()
		known("after 23 hours", "pod", "admin")
		w.passes += 2 * time.Hour
		known("after 25 hours", "pod")
		w.passes += 30 * 24 * time.Hour
		w.restart()
		w.Tidy()
		known("after a month", "pod")
		w.pods["a/p"] = "u2"
		w.Tidy()
		if keys := w.disk.Blobs(answerPrefix); len(keys) != 0 {
			t.Errorf("when the Pod is gone, this is left: %v", keys)
		}
		known("when the Pod is gone")
	})
}

// The same answer is written once an hour at most.
func TestAReviewIsSeldomWritten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.reviewing(asJSON, adminReview)
		asks := review(t, asJSON, shownToken, nil)
		said := func() int64 {
			t.Helper()
			w.ask(http.MethodPost, reviews, asks)
			keys := w.disk.Blobs(answerPrefix)
			if len(keys) != 1 {
				t.Fatal(keys)
			}
			known, err := w.read(keys[0])
			if err != nil || known.Said == nil {
				t.Fatal(known, err)
			}
			return known.Said.Wall
		}
		first := said()
		w.passes += 50 * time.Minute
		if again := said(); again != first {
			t.Errorf("written again after %d s", again-first)
		}
		w.passes += 20 * time.Minute
		if again := said(); again != first+70*60 {
			t.Errorf("after 70 minutes it was said %d s later", again-first)
		}
	})
}

// Tokens go with their Pod, and with the first of two Pods of one name.
func TestTokensGoWithTheirPod(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		now := map[string]string{"p": "u2"}
		w.cfg.Gone = func(_, name, uid string) bool { return now[name] == "" || uid != "" && now[name] != uid }
		of := func(pod, uid string) string {
			return fmt.Sprintf(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{"boundObjectRef":{`+
				`"kind":"Pod","name":%q,"uid":%q}}}`, pod, uid)
		}
		pods := [][2]string{{"p", "u1"}, {"p", "u2"}, {"q", "u3"}}
		for _, pod := range pods {
			w.says(http.StatusCreated, asJSON, of(pod[0], pod[1]))
			w.ask(http.MethodPost, token, of(pod[0], pod[1]))
		}
		w.says(http.StatusOK, asJSON, "{}")
		w.get("/api/v1/namespaces/a/pods/elsewhere")
		w.Tidy()
		w.unknown(http.MethodPost, token, of("p", "u1"))
		w.unknown(http.MethodPost, token, of("q", "u3"))
		want(t, w.offline(http.MethodPost, token, of("p", "u2")), http.StatusCreated)
		want(t, w.offline(http.MethodGet, "/api/v1/namespaces/a/pods/elsewhere", ""), http.StatusOK)
	})
}

// What cannot be kept without the token is not kept, nor what was kept before it.
func TestAReviewThatCannotBeBlankedIsNotStored(t *testing.T) {
	elsewhere := adminReview
	elsewhere.Error = "do not show " + shownToken
	for name, change := range map[string]func(w *world){
		"the token is in the status": func(w *world) { w.reviewing(asJSON, elsewhere) },
		"another form":               func(w *world) { w.says(http.StatusCreated, "text/plain", shownToken) },
		"another kind": func(w *world) {
			w.says(http.StatusCreated, asJSON, `{"kind":"Status","apiVersion":"v1","message":"`+shownToken+`"}`)
		},
		"a form that is not said": func(w *world) {
			w.says(http.StatusCreated, "", review(w.t, asJSON, shownToken, &adminReview))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				asks := review(t, asJSON, shownToken, nil)
				w.reviewing(asJSON, adminReview)
				w.ask(http.MethodPost, reviews, asks)
				want(t, w.offline(http.MethodPost, reviews, asks), http.StatusCreated)
				change(w)
				w.ask(http.MethodPost, reviews, asks)
				w.unknown(http.MethodPost, reviews, asks)
				w.restart()
				if found := leftOf(t, w.dir, shownToken); len(found) > 0 {
					t.Errorf("the token is on the disk: %v", found)
				}
			})
		})
	}
	bubble(t, func(t *testing.T, w *world) {
		for _, asks := range []string{"", "{}", "rubbish", review(t, asJSON, "", nil)} {
			w.says(http.StatusCreated, asJSON, review(t, asJSON, "", &adminReview))
			w.ask(http.MethodPost, reviews, asks)
			w.unknown(http.MethodPost, reviews, asks)
		}
	})
}

func TestWhatIsSecret(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for target, secret := range map[string]bool{
			"/api/v1/namespaces/a/secrets/s": true, "/api/v1/namespaces/a/configmaps/s": false,
			"/api/v1/namespaces/secrets/configmaps/s": false, "/api/v1/namespaces/a/serviceaccounts/sa": false,
			"/api/v1/nodes/n1": false, "/version": false,
		} {
			for _, client := range []string{"", "system:serviceaccount:a:b 1"} {
				w.Answers = w.of(client, w.disk)
				q, err := w.questionOf(asked(t, http.MethodGet, target, nil))
				if err != nil || Secret(q.key) != secret {
					t.Errorf("%s is secret: %t, %v", target, !secret, err)
				}
			}
		}
		for _, body := range []string{"{}", `{"spec":{"boundObjectRef":{"kind":"Pod","name":"p"}}}`} {
			q, err := w.questionOf(asked(t, http.MethodPost, token, strings.NewReader(body)))
			if err != nil || !Secret(q.key) {
				t.Errorf("a token is not secret: %v", err)
			}
		}
	})
}
