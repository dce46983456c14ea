package recall

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/store"
)

const (
	secret   = "/api/v1/namespaces/a/secrets/s"
	token    = "/api/v1/namespaces/a/serviceaccounts/sa/token"
	asProto  = "application/vnd.kubernetes.protobuf"
	asJSON   = "application/json"
	tokenFor = `{"spec":{"audiences":["%s"],"boundObjectRef":{"kind":"Pod","name":"p","uid":"%s"}}}`
)

// says has the cloud answer with a body of a type.
func (w *world) says(code int, contentType, body string, header ...string) {
	w.cloud = func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", contentType)
		for i := 0; i+1 < len(header); i += 2 {
			out.Header().Set(header[i], header[i+1])
		}
		out.WriteHeader(code)
		_, _ = io.WriteString(out, body)
	}
}

// offline asks while the link is down; what is not remembered is answered "unknown".
func (w *world) offline(method, target, body string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	was, cloud := w.link.Get(), w.cloud
	w.link.Set(link.Down)
	w.says(http.StatusServiceUnavailable, "text/plain", "unknown", "Retry-After", "1")
	out := w.ask(method, target, body, header...)
	w.link.Set(was)
	w.cloud = cloud
	w.passed()
	return out
}

func (w *world) unknown(method, target, body string, header ...string) {
	w.t.Helper()
	if out := w.offline(method, target, body, header...); out.Code != http.StatusServiceUnavailable ||
		out.Body.String() != "unknown" || out.Header().Get("Warning") != "" {
		w.t.Errorf("%s %s is answered from memory: %d %s", method, target, out.Code, out.Body)
	}
}

func TestTheLastAnswerIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, body := range []string{"\x6b\x38\x73\x00\x0a\xff", "second", "", strings.Repeat("x", answerBytes)} {
			w.says(http.StatusOK, asProto, body)
			out := w.get(secret, "Accept", asProto)
			if out.Code != http.StatusOK || out.Body.String() != body || out.Header().Get("Warning") != "" {
				t.Fatalf("%d with %d bytes and warning %q", out.Code, out.Body.Len(), out.Header().Get("Warning"))
			}
			w.passedOn()
			for range 2 {
				out = w.offline(http.MethodGet, secret, "", "Accept", asProto)
				if out.Code != http.StatusOK || out.Body.String() != body || out.Header().Get("Content-Type") != asProto ||
					out.Header().Get("Content-Length") != fmt.Sprint(len(body)) {
					t.Errorf("%d %q (%d bytes)", out.Code, out.Header(), out.Body.Len())
				}
				if !strings.HasPrefix(out.Header().Get("Warning"), `110 yurthub "`) {
					t.Errorf("Warning: %q", out.Header().Get("Warning"))
				}
			}
		}
		w.restart()
		if out := w.offline(http.MethodGet, secret, "", "Accept", asProto); out.Body.Len() != answerBytes {
			t.Errorf("after a restart: %d with %d bytes", out.Code, out.Body.Len())
		}
		// Those who ask for the same in another way.
		for _, query := range []string{
			"?timeout=1s", "?resourceVersion=0", "?resourceVersion=7&resourceVersionMatch=NotOlderThan",
		} {
			if out := w.offline(http.MethodGet, secret+query, "", "Accept", asProto); out.Code != http.StatusOK {
				t.Errorf("%s: %d", query, out.Code)
			}
		}
	})
}

// TestAnotherOnesAnswerIsNotRemembered: the coordinator has answered for a cloud that did not. What the cloud said stays.
func TestAnotherOnesAnswerIsNotRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.says(http.StatusOK, asJSON, `{"by":"another"}`, "Cache-Control", "no-store")
		w.get(secret)
		w.unknown(http.MethodGet, secret, "")
		w.says(http.StatusOK, asJSON, "{}")
		w.get(secret)
		w.says(http.StatusOK, asJSON, `{"by":"another"}`, "Cache-Control", "no-store")
		w.get(secret)
		if out := w.offline(http.MethodGet, secret, ""); out.Body.String() != "{}" {
			t.Errorf("the cloud has not said %s", out.Body)
		}
	})
}

func accepts(form string) []string {
	if form == "" {
		return nil
	}
	return []string{"Accept", form}
}

func TestWhatIsNotThereIsForgotten(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusGone} {
		bubble(t, func(t *testing.T, w *world) {
			w.says(http.StatusOK, asJSON, "{}")
			w.get(secret)
			w.get(secret, "Accept", asProto)
			w.get(secret + "t")
			w.says(code, asJSON, `{"kind":"Status"}`)
			want(t, w.get(secret), code)
			for range 2 {
				w.unknown(http.MethodGet, secret, "")
				w.unknown(http.MethodGet, secret, "", "Accept", asProto)
				want(t, w.offline(http.MethodGet, secret+"t", ""), http.StatusOK)
				w.restart()
			}
		})
	}
}

// TestWhatIsDeniedIsForgottenOfACaller: when the cloud refuses a read, the answer is forgotten for a caller with credentials of
// its own. For the node it is kept: an API server that has just started refuses without meaning it, and Pods could not start.
func TestWhatIsDeniedIsForgottenOfACaller(t *testing.T) {
	for client, forgets := range map[string]bool{"": false, "system:serviceaccount:a:b 1": true} {
		bubble(t, func(t *testing.T, w *world) {
			w.Answers = w.of(client, w.disk)
			w.says(http.StatusOK, asJSON, "{}")
			w.get(secret)
			w.get(secret, "Accept", asProto)
			w.says(http.StatusForbidden, asJSON, `{"kind":"Status"}`)
			want(t, w.get(secret), http.StatusForbidden)
			for _, form := range []string{"", asProto} {
				if forgets {
					w.unknown(http.MethodGet, secret, "", accepts(form)...)
				} else if out := w.offline(http.MethodGet, secret, "", accepts(form)...); out.Body.String() != "{}" {
					t.Errorf("the node is answered %d %s", out.Code, out.Body)
				}
			}
		})
	}
}

// A token with which kubelet's Pod can speak to API servers is told from the answer that gives it; others are nobody's business.
func TestATokenIsToldOnceItIsGiven(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const ofPod = `"boundObjectRef":{"kind":"Pod","name":"p","uid":"1"}`
		w.says(http.StatusCreated, asJSON,
			`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","status":{"token":"a.b.c"}}`)
		for _, body := range []string{`{"spec":{"audiences":["vault"],` + ofPod + `}}`, `{"spec":{}}`} {
			w.ask(http.MethodPost, token, body)
		}
		guest := w.of("somebody", w.disk)
		guest.Remember(httptest.NewRecorder(), asked(t, http.MethodPost, token, strings.NewReader(`{"spec":{`+ofPod+`}}`)),
			w.cloud)
		if len(w.given) > 0 {
			t.Errorf("told %q", w.given)
		}
		w.ask(http.MethodPost, token, `{"spec":{`+ofPod+`}}`)
		if !slices.Equal(w.given, []string{"a.b.c"}) {
			t.Errorf("told %q", w.given)
		}
		w.offline(http.MethodPost, token, `{"spec":{`+ofPod+`}}`)
		w.says(http.StatusForbidden, asJSON, "no")
		w.ask(http.MethodPost, token, `{"spec":{`+ofPod+`}}`)
		if len(w.given) != 1 {
			t.Errorf("told %q", w.given)
		}
	})
}

// TestATokenThatIsRefusedIsForgottenAlone: that its Pod is gone says nothing of the tokens of others.
func TestATokenThatIsRefusedIsForgottenAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		first, second := fmt.Sprintf(tokenFor, "api", "1"), fmt.Sprintf(tokenFor, "api", "2")
		w.says(http.StatusCreated, asJSON, "{}")
		w.ask(http.MethodPost, token, first)
		w.ask(http.MethodPost, token, second)
		w.says(http.StatusNotFound, asJSON, "{}")
		w.ask(http.MethodPost, token, first)
		w.unknown(http.MethodPost, token, first)
		want(t, w.offline(http.MethodPost, token, second), http.StatusCreated)
	})
}

func TestWhatIsNotRemembered(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "{")
			panic(http.ErrAbortHandler)
		},
		"less than was promised": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		},
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.Repeat("x", answerBytes))
			_, _ = io.WriteString(w, "y")
		},
		"compressed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "{}")
		},
		"an error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"denied":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"a redirection": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		},
		"not modified":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
		"a part":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) },
		"no answer":      func(http.ResponseWriter, *http.Request) {},
		"only a promise": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusEarlyHints) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.cloud = answer
				func() {
					defer func() { _ = recover() }() // as net/http does
					w.get(secret)
				}()
				w.unknown(http.MethodGet, secret, "")

				// What was known stays so, the last whole answer, unless there was a newer one.
				remembered := "known"
				if name == "too large" || name == "compressed" {
					remembered = "unknown"
				}
				w.says(http.StatusOK, asJSON, "known")
				w.get(secret)
				w.cloud = answer
				func() {
					defer func() { _ = recover() }()
					w.get(secret)
				}()
				if out := w.offline(http.MethodGet, secret, ""); out.Body.String() != remembered {
					t.Errorf("%d %s", out.Code, out.Body)
				}
			})
		})
	}
}

func TestATokenIsThatOfItsRequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cloud = func(out http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			out.Header().Set("Content-Type", asJSON)
			out.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(out, "token for %s by %s at %s", body, r.Header.Get("Content-Type"), r.URL)
		}
		type asking struct{ target, body, media string }
		var all []asking
		for _, target := range []string{token, token + "?dryRun=All", strings.Replace(token, "/sa/", "/sb/", 1),
			strings.Replace(token, "/a/", "/b/", 1)} {
			for _, audience := range []string{"", "api", "vault"} {
				for _, uid := range []string{"1", "2"} {
					for _, media := range []string{asJSON, asProto} {
						all = append(all, asking{target, fmt.Sprintf(tokenFor, audience, uid), media})
					}
				}
			}
		}
		said := map[string]bool{}
		for _, a := range all {
			w.unknown(http.MethodPost, a.target, a.body, "Content-Type", a.media)
			out := w.ask(http.MethodPost, a.target, a.body, "Content-Type", a.media)
			if !strings.Contains(out.Body.String(), a.body) {
				t.Errorf("the cloud got another body: %s", out.Body)
			}
			said[out.Body.String()] = true
		}
		if len(said) != len(all) {
			t.Fatalf("%d answers to %d requests", len(said), len(all))
		}
		w.restart()
		for _, a := range all {
			out := w.offline(http.MethodPost, a.target, a.body, "Content-Type", a.media)
			if got := out.Body.String(); out.Code != http.StatusCreated ||
				got != fmt.Sprintf("token for %s by %s at %s", a.body, a.media, a.target) {
				t.Errorf("%d: %s for %+v", out.Code, got, a)
			}
		}
		for _, a := range []asking{
			{token, "", asJSON}, {token, fmt.Sprintf(tokenFor, "api", "3"), asJSON},
			{token, fmt.Sprintf(tokenFor, "api", "1") + " ", asJSON}, {token, fmt.Sprintf(tokenFor, "api", "1"), ""},
		} {
			w.unknown(http.MethodPost, a.target, a.body, "Content-Type", a.media)
		}
	})
}

func TestNothingOfOneIsGivenToAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.says(http.StatusOK, asJSON, "{}")
		w.get(secret, "Accept", asJSON)
		for _, target := range []string{
			secret + "t", secret + "/", secret + "?pretty=1", "/api/v1/namespaces/b/secrets/s",
			"/api/v1/namespaces/a/configmaps/s",
			"/api/v1/namespaces/a/secrets%2Fs", "/api/v1/namespaces/x/../a/secrets/s", secret + "?a;b", secret + "?%zz",
		} {
			w.unknown(http.MethodGet, target, "", "Accept", asJSON)
		}
		w.unknown(http.MethodGet, secret, "", "Accept", asProto)
		w.unknown(http.MethodGet, secret, "", "Accept", asJSON, "Accept", asProto)
		w.unknown(http.MethodGet, secret, "a body", "Accept", asJSON)
		w.unknown(http.MethodHead, secret, "", "Accept", asJSON)
		w.unknown(http.MethodPost, secret, "", "Accept", asJSON)
		if out := w.offline(http.MethodGet, secret, "", "Accept", asJSON); out.Code != http.StatusOK {
			t.Errorf("%d", out.Code)
		}
	})
}

func TestDiscoveryIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, target := range []string{"/api", "/apis", "/version", "/apis/apps/v1", "/api/v1"} {
			w.says(http.StatusOK, asJSON, "what is at "+target)
			w.get(target)
			if out := w.offline(http.MethodGet, target, ""); out.Body.String() != "what is at "+target {
				t.Errorf("%s: %d %s", target, out.Code, out.Body)
			}
		}
	})
}

// TestTheDiscoveryOfManyKinds: API servers compress what is larger than 128 KiB.
func TestTheDiscoveryOfManyKinds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for target, fits := range map[string]bool{
			"/apis": true, "/openapi/v3/apis/apps/v1": true, "/api/v1/namespaces/a/configmaps/large": false, "/version": false,
		} {
			large := strings.Repeat("x", documentBytes)
			w.says(http.StatusOK, asJSON, large, "Content-Encoding", "gzip")
			w.get(target, "Accept-Encoding", "gzip")
			if !fits {
				w.unknown(http.MethodGet, target, "", "Accept-Encoding", "gzip")
				continue
			}
			out := w.offline(http.MethodGet, target, "", "Accept-Encoding", "gzip")
			if out.Body.String() != large || out.Header().Get("Content-Encoding") != "gzip" {
				t.Errorf("%s: %d, %d bytes in %q", target, out.Code, out.Body.Len(), out.Header().Get("Content-Encoding"))
			}
			w.unknown(http.MethodGet, target, "") // who does not understand it
			w.says(http.StatusOK, asJSON, large+"x", "Content-Encoding", "gzip")
			w.get(target, "Accept-Encoding", "gzip")
			w.unknown(http.MethodGet, target, "", "Accept-Encoding", "gzip")
		}
	})
}

// counted is an endless body of which it is known how much was read.
type counted struct{ read int }

func (c *counted) Read(p []byte) (int, error) {
	c.read += len(p)
	return len(p), nil
}

func TestAHugeRequestIsNeitherKeptNorRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		body := &counted{}
		r := asked(t, http.MethodPost, token, io.LimitReader(body, 100<<20))
		if _, err := w.questionOf(r); err == nil || errors.Is(err, errNotSingle) {
			t.Error("a request of 100 MB has a key")
		}
		if body.read > 2*requestBytes {
			t.Errorf("%d bytes were read", body.read)
		}
		if n, err := io.Copy(io.Discard, r.Body); n != 100<<20 || err != nil {
			t.Errorf("%d bytes are passed on: %v", n, err)
		}

		w.cloud = func(out http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			out.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprint(out, n, err)
		}
		large := strings.Repeat("x", requestBytes+1)
		if out := w.ask(http.MethodPost, token, large); out.Body.String() != fmt.Sprintf("%d <nil>", len(large)) {
			t.Errorf("the cloud got %s", out.Body)
		}
		w.unknown(http.MethodPost, token, large)
		w.says(http.StatusOK, asJSON, "{}")
		long := "/api/v1/namespaces/a/secrets/" + strings.Repeat("s", pathBytes)
		w.get(long)
		w.unknown(http.MethodGet, long, "")
	})
}

// Jobs leave answers about Pods that were, and tokens of theirs: none of these takes the place of what is of use.
func TestAnswersAboutPodsThatAreGoneAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		gone := map[string]bool{}
		w.cfg.Gone = func(namespace, name, _ string) bool { return namespace == "a" && gone[name] }
		pod := func(name string) string { return "/api/v1/namespaces/a/pods/" + name }
		tokenOf := func(name string) string {
			return strings.Replace(fmt.Sprintf(tokenFor, "api", "1"), `"name":"p"`, `"name":"`+name+`"`, 1)
		}
		asProtobuf := func(name string) string {
			raw, err := (&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", Name: name},
			}}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			unknown := runtime.Unknown{
				TypeMeta: runtime.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}, Raw: raw,
			}
			if raw, err = unknown.Marshal(); err != nil {
				t.Fatal(err)
			}
			return "k8s\x00" + string(raw)
		}
		for _, name := range []string{"stays", "goes"} {
			w.says(http.StatusCreated, asJSON, `{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"n1"}}`)
			w.get(pod(name))
			w.says(http.StatusCreated, asJSON, strings.Repeat("x", answerBytes/2))
			w.ask(http.MethodPost, token, tokenOf(name), "Content-Type", asJSON)
			w.ask(http.MethodPost, token, asProtobuf(name), "Content-Type", asProto)
		}
		w.says(http.StatusOK, asJSON, `{"kind":"Pod","apiVersion":"v1","spec":{"nodeName":"n2"}}`)
		w.get(pod("elsewhere"))
		gone["goes"], gone["elsewhere"] = true, true
		w.Tidy()
		want(t, w.offline(http.MethodGet, pod("elsewhere"), ""), http.StatusOK)
		for name, want := range map[string]int{"stays": http.StatusCreated, "goes": http.StatusServiceUnavailable} {
			for _, out := range []*httptest.ResponseRecorder{
				w.offline(http.MethodGet, pod(name), ""),
				w.offline(http.MethodPost, token, tokenOf(name), "Content-Type", asJSON),
				w.offline(http.MethodPost, token, asProtobuf(name), "Content-Type", asProto),
			} {
				if out.Code != want {
					t.Errorf("%s: %d, want %d", name, out.Code, want)
				}
			}
		}
	})
}

// A new answer finds room when the disk is full: the least recent ones of its client go.
func TestTheDiskMakesRoom(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.bound = map[string]int{answerPrefix: 4 << 20, "": 1 << 20}
		w.restart()
		at := func(i int) string { return fmt.Sprintf("/api/v1/namespaces/a/secrets/s%d", i) }
		w.says(http.StatusOK, asJSON, strings.Repeat("x", answerBytes-1))
		const n = 30 // of 170 KiB: 5 MiB
		for i := range n {
			w.get(at(i))
			w.get(at(0)) // the cloud's again
		}
		for _, i := range []int{0, n - 1, n - 20} {
			if out := w.offline(http.MethodGet, at(i), ""); out.Code != http.StatusOK {
				t.Errorf("the answer %d of %d is not remembered", i, n)
			}
		}
		w.unknown(http.MethodGet, at(1), "")
	})
}

// TestNobodyTakesTheRoomOfOthers: callers that come back no more leave room for those that come, the node's answers take none of
// the callers', and theirs none of the node's.
func TestNobodyTakesTheRoomOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.bound = map[string]int{answerPrefix: 8 << 20, guestPrefix: 8 << 20, "": 1 << 20}
		w.restart()
		guests := NewClients(Config{Disk: w.disk, Tenure: w.tenure})
		node := w.Answers
		as := func(client string) (end func()) {
			w.Answers = guests.Of(client)
			return func() { w.Answers = node }
		}
		at := func(i int) string { return fmt.Sprintf("/api/v1/namespaces/a/secrets/s%d", i) }
		w.says(http.StatusOK, asJSON, strings.Repeat("x", answerBytes-1))
		const n = 12 // of 170 KiB: 2 MiB
		for client := range 6 {
			end := as(fmt.Sprint(client))
			for i := range n {
				w.get(at(i))
			}
			end()
		}
		w.says(http.StatusOK, asJSON, "{}")
		end := as("small")
		w.get(secret)
		end()
		w.says(http.StatusOK, asJSON, strings.Repeat("x", answerBytes-1))
		for i := range n {
			end := as("late")
			w.get(at(i))
			end()
		}
		remembers := func(when string) {
			t.Helper()
			for client, target := range map[string]string{"0": at(n - 1), "5": at(n - 1), "late": at(n - 1), "small": secret} {
				end := as(client)
				if out := w.offline(http.MethodGet, target, ""); out.Code != http.StatusOK {
					t.Errorf("%s: %s's last answer is not remembered", when, client)
				}
				end()
			}
		}
		remembers("when the callers have read")
		guestsHave := len(w.disk.Blobs(guestPrefix))
		for i := range 6 * n {
			w.get(at(i))
		}
		remembers("when the node has read")
		if has := len(w.disk.Blobs(guestPrefix)); has != guestsHave || has < 40 {
			t.Errorf("%d of the callers' answers are remembered, and there were %d", has, guestsHave)
		}
		if has := len(w.disk.Blobs(answerPrefix)); has < 40 || has > 6*n-10 {
			t.Errorf("%d of the node's answers are remembered", has)
		}
	})
}

func TestADiskThatRefusesAnswers(t *testing.T) {
	for _, fails := range []error{store.ErrFull, store.ErrUnwritable, store.ErrClosed} {
		bubble(t, func(t *testing.T, w *world) {
			w.says(http.StatusOK, asJSON, "first")
			w.get(secret)
			w.disk.mu.Lock()
			w.disk.fails = fails
			w.disk.mu.Unlock()
			w.says(http.StatusOK, asJSON, "second")
			want(t, w.get(secret), http.StatusOK, "second")
			w.unknown(http.MethodGet, secret, "") // the first would be a wrong one
			w.disk.mu.Lock()
			w.disk.fails = nil
			w.disk.mu.Unlock()
			w.get(secret)
			if out := w.offline(http.MethodGet, secret, ""); out.Body.String() != "second" {
				t.Errorf("%v: %d %s", fails, out.Code, out.Body)
			}
		})
	}
}

// An answer that the disk has lost is written again when the cloud gives it again.
func TestWhatTheDiskHasLostIsWrittenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.says(http.StatusOK, asJSON, "{}")
		w.get(secret)
		for _, key := range w.disk.Blobs(answerPrefix) {
			w.disk.DropBlob(key)
		}
		w.unknown(http.MethodGet, secret, "")
		w.get(secret)
		if out := w.offline(http.MethodGet, secret, ""); out.Code != http.StatusOK {
			t.Errorf("%d", out.Code)
		}
	})
}

// A link that is not judged down yet, and a node whose certificate has expired.
func TestWhatTheCloudDoesNotAnswerIsAnsweredFromMemory(t *testing.T) {
	token := func(uid string) string { return fmt.Sprintf(tokenFor, "a", uid) }
	for _, code := range []int{
		http.StatusUnauthorized, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	} {
		bubble(t, func(t *testing.T, w *world) {
			w.says(http.StatusCreated, asJSON, `{"status":{}}`)
			w.ask(http.MethodPost, "/api/v1/namespaces/a/serviceaccounts/sa/token", token("1"))
			w.says(http.StatusOK, asJSON, "{}")
			w.get(secret)
			w.passed()
			w.says(code, "text/plain", "a much longer body", "Retry-After", "1", "Content-Length", "18")
			out := w.get(secret)
			if out.Code != http.StatusOK || out.Body.String() != "{}" || out.Header().Get("Content-Length") != "2" ||
				out.Header().Get("Retry-After") != "" || !strings.HasPrefix(out.Header().Get("Warning"), `110 yurthub "`) {
				t.Errorf("%d: %d %v %s", code, out.Code, out.Header(), out.Body)
			}
			out = w.ask(http.MethodPost, "/api/v1/namespaces/a/serviceaccounts/sa/token", token("1"))
			if out.Code != http.StatusCreated || out.Body.String() != `{"status":{}}` {
				t.Errorf("%d: a token is answered %d %s", code, out.Code, out.Body)
			}
			for _, unknown := range []*httptest.ResponseRecorder{
				w.get("/api/v1/namespaces/a/secrets/other"),
				w.ask(http.MethodPost, "/api/v1/namespaces/a/serviceaccounts/sa/token", token("2")),
			} {
				h := unknown.Header()
				if unknown.Code != code || unknown.Body.String() != "a much longer body" || h.Get("Warning") != "" ||
					h.Get("Retry-After") != "1" || h.Get("Content-Length") != "18" {
					t.Errorf("%d: what is not known is answered %d %v %s", code, unknown.Code, unknown.Header(), unknown.Body)
				}
			}
			if said := w.passed(); len(said) != 4 {
				t.Errorf("passed on: %v, want all four requests", said)
			}
			w.says(http.StatusForbidden, asJSON, "{}")
			want(t, w.get(secret), http.StatusForbidden) // that is an answer
			w.passedOn()
		})
	}
}

func TestTheNodesProgramsAreAClientToo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		clients := NewClients(Config{Client: "not looked at", Disk: w.disk, Tenure: w.tenure})
		known := []string{"", "sa 1"}
		for _, client := range known {
			r := asked(t, http.MethodGet, secret, nil)
			if clients.Recall(httptest.NewRecorder(), r, client) {
				t.Errorf("%q is answered what nobody knows", client)
			}
			clients.Remember(httptest.NewRecorder(), r, client, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "for "+client)
			}))
		}
		for _, client := range known {
			out := httptest.NewRecorder()
			if !clients.Recall(out, asked(t, http.MethodGet, secret, nil), client) || out.Body.String() != "for "+client {
				t.Errorf("%q is answered %s", client, out.Body)
			}
		}
	})
}

// A server behind the API server that is down is not stood in for while the cloud can be reached: its figures are old.
func TestAnAggregatedAPIThatIsDown(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for target, code := range map[string]int{
			"/apis/metrics.k8s.io/v1beta1/namespaces/a/pods/p": http.StatusServiceUnavailable,
			"/apis/apps/v1/namespaces/a/deployments/d":         http.StatusOK,
			secret: http.StatusOK,
		} {
			w.says(http.StatusOK, asJSON, "{}")
			w.get(target)
			w.says(http.StatusServiceUnavailable, "text/plain", "the server is down")
			want(t, w.get(target), code)
			if out := w.offline(http.MethodGet, target, ""); out.Code != http.StatusOK {
				t.Errorf("%s without the cloud: %d", target, out.Code)
			}
		}
	})
}
