package recall

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
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

// admin is who the cloud says that a token is.
var admin = authenticationv1.TokenReviewStatus{
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
				w.reviewing(form, admin)
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

// The disk of a hub from before has tokens.
func TestAReviewOfBeforeIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		r := asked(t, http.MethodPost, reviews, strings.NewReader(review(t, asJSON, shownToken, nil)))
		q, err := w.questionOf(r)
		if err != nil {
			t.Fatal(err)
		}
		value, err := json.Marshal(answer{
			Status: http.StatusCreated, ContentType: asJSON, Body: []byte(review(t, asJSON, shownToken, &admin)),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.disk.PutBlob(q.key, value); err != nil {
			t.Fatal(err)
		}
		w.restart()
		if _, err := w.disk.Blob(q.key); err == nil {
			t.Error("it is still there")
		}
	})
}

// What cannot be kept without the token is not kept, nor what was kept before it.
func TestAReviewThatCannotBeBlankedIsNotStored(t *testing.T) {
	elsewhere := admin
	elsewhere.Error = "do not show " + shownToken
	for name, change := range map[string]func(w *world){
		"the token is in the status": func(w *world) { w.reviewing(asJSON, elsewhere) },
		"another form":               func(w *world) { w.says(http.StatusCreated, "text/plain", shownToken) },
		"another kind": func(w *world) {
			w.says(http.StatusCreated, asJSON, `{"kind":"Status","apiVersion":"v1","message":"`+shownToken+`"}`)
		},
		"a form that is not said": func(w *world) { w.says(http.StatusCreated, "", review(w.t, asJSON, shownToken, &admin)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				asks := review(t, asJSON, shownToken, nil)
				w.reviewing(asJSON, admin)
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
			w.says(http.StatusCreated, asJSON, review(t, asJSON, "", &admin))
			w.ask(http.MethodPost, reviews, asks)
			w.unknown(http.MethodPost, reviews, asks)
		}
	})
}
