package cache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/edit"
)

// bubble runs a test with a set that runs, in fake time.
func bubble(t *testing.T, test func(t *testing.T, w *setWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		test(t, w)
		w.stop()
	})
}

func TestAListIsOfTheCloudsContentAndRevision(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		s := w.has(inA, 9, setObject("x", 5), setObject("y", 9))
		out := w.get(listOfA)
		want(t, out, http.StatusOK, `"resourceVersion":"9"`, `"name":"x"`, `"name":"y"`, `"at":"5"`)
		if out.Header().Get("Warning") != "" {
			t.Error("what the cloud says now bears a warning")
		}
		for range 3 {
			w.get(listOfA + "?limit=500&resourceVersion=0")
		}
		if lists, running := s.count(); lists != 1 || running != 1 {
			t.Errorf("%d lists at the cloud and %d feeds, want one of each", lists, running)
		}
		w.nothing()
		synctest.Wait()
		if all := w.Status(); len(all) != 1 || all[0].Revision != 9 || all[0].Objects != 2 || all[0].Source != "cloud" ||
			all[0].Selection.String() != "configmaps namespace=a" {
			t.Errorf("Status() = %+v", all)
		}
	})
}

func TestEachSelectionIsItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		for target, what := range map[string]Selection{
			"/api/v1/configmaps":       {Resource: configMaps},
			listOfA:                    inA,
			listOfA + "?watch=0":       inA,
			"/api/v1/watch/configmaps": {Resource: configMaps},
			listOfA + "?fieldSelector=metadata.name%3Dx":                  {configMaps, "a", "metadata.name=x", ""},
			listOfA + "?labelSelector=a%3Db":                              {configMaps, "a", "", "a=b"},
			listOfA + "?labelSelector=a%3Db&fieldSelector=a%3Db":          {configMaps, "a", "a=b", "a=b"},
			"/api/v1/namespaces/b/configmaps?labelSelector=a%3Db&limit=1": {configMaps, "b", "", "a=b"},
		} {
			s := w.has(what, 20)
			if strings.Contains(target, "/watch/") {
				_, end := w.watch(target)
				end()
			} else {
				want(t, w.get(target), http.StatusOK, `"resourceVersion":"20"`)
			}
			if lists, _ := s.count(); lists != 1 {
				t.Errorf("%s: %d lists of %v", target, lists, what)
			}
		}
		w.nothing()
		if n := len(w.Status()); n != 6 {
			t.Errorf("%d selections, want 6", n)
		}
	})
}

func TestWhatWasNeverKnownIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(inA, 9, setObject("x", 5))
		w.link.Set(link.Down)
		began := time.Now()
		for _, target := range []string{listOfA, listOfA + "?watch=1", listOfA + "?watch=1&resourceVersion=5"} {
			out := w.get(target)
			want(t, out, http.StatusServiceUnavailable,
				`"reason":"ServiceUnavailable"`, "cannot be reached", "configmaps namespace=a")
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("it took %v", waited)
		}
		w.link.Set(link.Up)
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		w.nothing()
	})
}

// TestWhileTheCloudFails what is complete is served, and what is not has the cloud's own answer, at once.
func TestWhileTheCloudFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(inA, 9, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		w.link.Set(link.Failing)
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		all := Selection{Resource: configMaps}
		failing := w.source(all)
		failing.set(func() { failing.fails = apierrors.NewServiceUnavailable("no servers") })
		w.nothing()
		began := time.Now()
		w.says(http.StatusBadGateway, "text/plain", "no servers")
		want(t, w.get("/api/v1/configmaps"), http.StatusBadGateway, "no servers")
		if waited := time.Since(began); waited >= patience {
			t.Errorf("it waited %v", waited)
		}
	})
}

func TestARequestWaitsForTheLink(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(inA, 9, setObject("x", 5))
		w.link.Set(link.Unknown)
		out, end := w.watch(listOfA)
		defer end()
		if out.Body.Len() > 0 {
			t.Fatalf("answered %d before the link is known", out.Code)
		}
		w.link.Set(link.Up)
		synctest.Wait()
		want(t, out, http.StatusOK, `"name":"x"`)

		w.link.Set(link.Unknown)
		w.has(Selection{Resource: configMaps}, 9)
		began := time.Now()
		want(t, w.get("/api/v1/configmaps"), http.StatusServiceUnavailable, "not yet sent all")
		if waited := time.Since(began); waited != patience {
			t.Errorf("it waited %v, want %v", waited, patience)
		}
		w.nothing()
	})
}

func TestWhatTheCloudDeniesIsAnsweredByTheCloud(t *testing.T) {
	for name, err := range map[string]error{"denied": forbidden(), "not to be followed": errors.New("it has no revision")} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *setWorld) {
				s := w.source(inA)
				s.set(func() { s.fails = err })
				for _, target := range []string{listOfA, listOfA, listOfA + "?watch=1&resourceVersion=9"} {
					began := time.Now()
					want(t, w.get(target), http.StatusOK, "the cloud's own")
					if waited := time.Since(began); waited != 0 {
						t.Errorf("%s waited %v", target, waited)
					}
					w.passedOn()
				}
				w.link.Set(link.Down)
				synctest.Wait()
				want(t, w.get(listOfA), http.StatusServiceUnavailable, "cannot be reached")
				w.nothing()
				s.set(func() { s.fails = nil })
				w.has(inA, 9, setObject("x", 5))
				w.link.Set(link.Up)
				time.Sleep(2 * time.Minute)
				want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
				w.nothing()
			})
		})
	}
}

func TestAfterARestartWithoutTheCloud(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		s := w.has(inA, 9, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK)
		w.apply(inA, stream.Added, setObject("y", 12))
		time.Sleep(3 * time.Second) // for the disk
		w.link.Set(link.Down)
		w.restart()
		for range 2 {
			out := w.get(listOfA)
			want(t, out, http.StatusOK, `"resourceVersion":"12"`, `"name":"x"`, `"name":"y"`)
		}
		want(t, w.get("/api/v1/configmaps"), http.StatusServiceUnavailable)
		out, end := w.watch(listOfA + "?watch=1&resourceVersion=12")
		defer end()
		if out.Code != http.StatusOK || out.Body.Len() > 0 {
			t.Fatalf("a watch that has nothing to tell: %d %s", out.Code, out.Body)
		}

		lists, _ := s.count()
		w.apply(inA, stream.Modified, setObject("x", 15))
		w.link.Set(link.Up)
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, out, http.StatusOK, `"MODIFIED"`, `"at":"15"`)
		if again, _ := s.count(); again != lists {
			t.Errorf("%d lists to resume", again-lists)
		}
		w.nothing()
	})
}

// The disk records that another history has emptied a selection. After a restart without the cloud, "there is none" is then an
// answer: kubelet needs it to start a container whose optional ConfigMap the cloud has lost.
func TestWhatAnotherHistoryHasEmptied(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		one := Selection{Resource: configMaps, Namespace: "a", Fields: "metadata.name=x"}
		listOfOne := listOfA + "?fieldSelector=metadata.name%3Dx"
		w.stop()
		w.histories = true
		w.open()
		w.run()
		s := w.has(one, 9, setObject("x", 5))
		want(t, w.get(listOfOne), http.StatusOK, `"name":"x"`)
		s.Reset()
		w.has(one, 4)
		w.history.Raise(1)
		time.Sleep(20 * time.Second) // for the list, and for the disk
		want(t, w.get(listOfOne), http.StatusOK, `"items":[]`)
		w.link.Set(link.Down)
		w.restart()
		want(t, w.get(listOfOne), http.StatusOK, `"resourceVersion":"4"`, `"items":[]`)
		if has := w.history.Number(); has != 1 {
			t.Errorf("after the restart the cloud is in history %s", has)
		}
		w.nothing()
	})
}

func TestAWatchGoesOnWhileTheLinkComesAndGoes(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		s := w.has(inA, 9, setObject("x", 5))
		out, end := w.watch(listOfA + "?watch=1&resourceVersion=0")
		defer end()
		for revision := edge.Revision(10); revision < 20; revision++ {
			w.link.Set(link.Down)
			synctest.Wait()
			w.apply(inA, stream.Modified, setObject("x", revision))
			if strings.Contains(out.Body.String(), fmt.Sprintf(`"at":"%d"`, revision)) {
				t.Fatal("a change came over a link that is down")
			}
			want(t, w.get(listOfA), http.StatusOK, fmt.Sprintf(`"resourceVersion":"%d"`, revision-1))
			w.link.Set(link.Up)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		for revision := 10; revision < 20; revision++ {
			if n := strings.Count(out.Body.String(), fmt.Sprintf(`"at":"%d"`, revision)); n != 1 {
				t.Errorf("the change of revision %d was told %d times", revision, n)
			}
		}
		if lists, _ := s.count(); lists != 1 {
			t.Errorf("%d lists", lists)
		}
		w.nothing()
	})
}

func TestWhatNobodyAsksForEndsAndBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		s := w.has(inA, 9, setObject("x", 5))
		_, end := w.watch(listOfA + "?watch=1&resourceVersion=9")
		time.Sleep(3 * idleTime)
		if _, running := s.count(); running != 1 {
			t.Fatal("it has ended though somebody watches")
		}
		end()
		time.Sleep(idleTime - tidyEvery)
		if _, running := s.count(); running != 1 {
			t.Error("it has ended early")
		}
		time.Sleep(2 * tidyEvery)
		if _, running := s.count(); running != 0 || len(w.Status()) != 0 {
			t.Errorf("it is still there: %+v", w.Status())
		}
		// It stays on the disk, but what was so minutes ago is no answer while the cloud can say what is so now.
		w.apply(inA, stream.Added, setObject("y", 12))
		want(t, w.get(listOfA), http.StatusOK, `"name":"y"`, `"resourceVersion":"12"`)
		w.nothing()
		if lists, _ := s.count(); lists > 2 {
			t.Errorf("%d lists", lists)
		}
	})
}

func TestWhatStillEndsIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		s := w.has(inA, 9, setObject("x", 5))
		hold := make(chan struct{})
		s.set(func() { s.hold = hold })
		want(t, w.get(listOfA), http.StatusOK)
		time.Sleep(idleTime + tidyEvery)
		if all := w.Status(); len(all) != 1 {
			t.Fatalf("Status() = %+v", all)
		}
		first, endFirst := w.watch(listOfA)
		second, endSecond := w.watch(listOfA)
		gone, giveUp := w.watch(listOfA)
		giveUp() // a client that does not wait
		defer endFirst()
		defer endSecond()
		if first.Body.Len()+second.Body.Len() > 0 {
			t.Fatal("answered by what is ending")
		}
		want(t, gone, http.StatusServiceUnavailable)
		s.set(func() { s.hold = nil })
		close(hold)
		synctest.Wait()
		want(t, first, http.StatusOK, `"name":"x"`)
		want(t, second, http.StatusOK, `"name":"x"`)
		if _, running := s.count(); running != 1 {
			t.Errorf("%d feeds", running)
		}
	})
}

func TestOnlySoManyAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.link.Set(link.Down) // so that each costs little
		for i := range maxKept {
			want(t, w.get(fmt.Sprintf("/api/v1/namespaces/n%d/configmaps", i)), http.StatusServiceUnavailable)
		}
		w.nothing()
		want(t, w.get(listOfA), http.StatusOK, "the cloud's own")
		w.passedOn()
		want(t, w.get("/api/v1/namespaces/n1/configmaps"), http.StatusServiceUnavailable)
		time.Sleep(idleTime + tidyEvery)
		want(t, w.get(listOfA), http.StatusServiceUnavailable)
	})
}

func TestWhatIsPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(inA, 9, setObject("x", 5))
		for _, tc := range []struct{ name, method, target string }{
			{"an object's name and watch", http.MethodGet, listOfA + "/x?watch=1"},
			{"the old watch of one object", http.MethodGet, "/api/v1/watch/namespaces/a/configmaps/x"},
			{"a way up", http.MethodGet, "/api/v1/namespaces/../configmaps"},
			{"a way up in the version", http.MethodGet, "/apis/apps/../deployments"},
			{"a dot", http.MethodGet, "/api/v1/namespaces/./configmaps"},
			{"an empty part", http.MethodGet, "/api/v1/namespaces//configmaps"},
			{"a slash more", http.MethodGet, "//api/v1/namespaces/a/configmaps"},
			{"a slash at the end", http.MethodGet, listOfA + "/"},
			{"an encoded slash", http.MethodGet, "/api/v1/namespaces%2Fa/configmaps"},
			{"a way up, encoded", http.MethodGet, "/api/v1/namespaces/%2e%2e/configmaps"},
			{"parameters that cannot be read", http.MethodGet, listOfA + "?a;b"},
			{"an escape that cannot be read", http.MethodGet, listOfA + "?labelSelector=%zz"},
			{"a selector without end", http.MethodGet, listOfA + "?labelSelector=" + strings.Repeat("a", selectorBytes+1)},
			{"a list by HEAD", http.MethodHead, listOfA},
			{"a watch by POST", http.MethodPost, "/api/v1/watch/configmaps"},
			{"a watch by DELETE", http.MethodDelete, "/api/v1/watch/configmaps"},
		} {
			for _, state := range []link.State{link.Up, link.Down, link.Up} {
				w.link.Set(state)
				if tc.target == listOfA+"/x?watch=1" && state == link.Down {
					continue // an API server ignores the watch, and so does what is remembered
				}
				out := w.ask(tc.method, tc.target, "")
				want(t, out, http.StatusOK, "the cloud's own")
				if said := w.passed(); len(said) != 1 || said[0] != tc.method+" "+tc.target {
					t.Errorf("%s: passed on %q, want it as it was", tc.name, said)
				}
			}
		}
		if all := w.Status(); len(all) != 0 {
			t.Errorf("kept: %+v", all)
		}
	})
}

func TestBeforeAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.has(inA, 9, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK, "the cloud's own")
		w.passedOn()
		w.run()
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		out, end := w.watch(listOfA + "?watch=1&resourceVersion=9")
		defer end()
		w.link.Set(link.Unknown)
		waiting, endWaiting := w.watch("/api/v1/configmaps")
		defer endWaiting()
		w.nothing()
		w.stop()
		synctest.Wait()
		end() // it has ended by itself, or the test does not
		if out.Body.Len() > 0 {
			t.Errorf("the watch was told %s", out.Body)
		}
		endWaiting()
		want(t, waiting, http.StatusOK, "the cloud's own")
		w.passedOn()
		want(t, w.get(listOfA), http.StatusOK, "the cloud's own")
		w.passedOn()
		if all := w.Status(); len(all) != 0 {
			t.Errorf("after its end it has %+v", all)
		}
	})
}

func TestADiskThatTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.disk.mu.Lock()
		w.disk.fails = errBroken
		w.disk.mu.Unlock()
		w.has(inA, 9, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		w.apply(inA, stream.Modified, setObject("x", 12))
		w.link.Set(link.Down)
		want(t, w.get(listOfA), http.StatusOK, `"at":"12"`)
		w.disk.mu.Lock()
		w.disk.fails = nil
		w.disk.mu.Unlock()
		time.Sleep(2 * time.Minute)
		w.restart()
		want(t, w.get(listOfA), http.StatusOK, `"at":"12"`, `"resourceVersion":"12"`)
		w.nothing()
	})
}

func TestAnObjectOfASelectionThatIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(inA, 9, setObject("x", 5))
		one := Selection{Resource: configMaps, Namespace: "a", Fields: "metadata.name=x"}
		w.has(one, 14, setObject("x", 14))
		want(t, w.get(listOfA), http.StatusOK)
		want(t, w.get(listOfA+"?fieldSelector=metadata.name%3Dx"), http.StatusOK)
		w.link.Set(link.Down)
		synctest.Wait()
		out := w.get(listOfA + "/x")
		want(t, out, http.StatusOK, `"at":"14"`)
		if !strings.HasPrefix(out.Header().Get("Warning"), "110 ") {
			t.Errorf("Warning: %q", out.Header().Get("Warning"))
		}
		w.nothing()
		// All of namespace a is followed, so that it is known that y is not there, whatever was said of it once.
		out = w.get(listOfA + "/y")
		if out.Code != http.StatusNotFound || !strings.HasPrefix(out.Header().Get("Warning"), "110 ") {
			t.Errorf("what is not there: %d %s", out.Code, out.Body)
		}
		w.nothing()
		for _, target := range []string{
			"/api/v1/namespaces/b/configmaps/x", "/api/v1/namespaces/a/secrets/x",
			"/apis/b/v1/namespaces/a/configmaps/x", "/api/v2/namespaces/a/configmaps/x",
		} {
			want(t, w.get(target), http.StatusOK, "the cloud's own")
			w.passedOn()
		}
	})
}

func TestANamespaceOfASelectionThatIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		namespaces := Selection{Resource: configMaps.GroupVersion().WithResource("namespaces")}
		w.has(namespaces, 9, stream.Object{
			Key: stream.Key{Name: "a"}, Revision: 5, Raw: []byte(`{"metadata":{"name":"a","resourceVersion":"5"}}`),
		})
		want(t, w.get("/api/v1/namespaces"), http.StatusOK)
		w.link.Set(link.Down)
		synctest.Wait()
		want(t, w.get("/api/v1/namespaces/a"), http.StatusOK, `"name":"a"`)
		w.nothing()
	})
}

// Many at once, while the link comes and goes, selections end and begin, and the disk fails: whatever is answered is whole.
func TestManyAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		s := w.has(inA, 9, setObject("x", 5))
		w.has(Selection{Resource: configMaps}, 9, setObject("x", 5))
		w.says(http.StatusOK, asJSON, "the cloud's own")
		targets := []string{listOfA, "/api/v1/configmaps", listOfA + "/x", secret, listOfA + "?watch=1"}
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 0))
				for range 25 {
					target := targets[random.IntN(len(targets))]
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+random.IntN(400))*time.Second)
					out := httptest.NewRecorder()
					w.serve(ctx, out, http.MethodGet, target, "")
					early := ctx.Err() != nil
					cancel()
					body := out.Body.String()
					switch {
					case out.Code == http.StatusServiceUnavailable, early, body == "the cloud's own":
					case out.Code != http.StatusOK || !strings.Contains(body, `"name":"x"`):
						t.Errorf("%s: %d %s", target, out.Code, body)
					}
					time.Sleep(time.Duration(random.IntN(200)) * time.Second)
				}
			})
		}
		done := make(chan struct{})
		var weather sync.WaitGroup
		weather.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(37 * time.Second):
				}
				w.link.Set([]link.State{link.Up, link.Down, link.Up, link.Unknown}[i%4])
				w.disk.mu.Lock()
				w.disk.fails = []error{nil, nil, store.ErrUnwritable}[i%3]
				w.disk.mu.Unlock()
			}
		})
		clients.Wait()
		close(done)
		weather.Wait()
		w.link.Set(link.Up)
		time.Sleep(2 * idleTime)
		if _, running := s.count(); running != 0 || len(w.Status()) != 0 {
			t.Errorf("%d feeds are left: %+v", running, w.Status())
		}
	})
}

// A client that has written something may ask for what there was at least then.
func TestARevisionThatIsNotReachedIsTheClouds(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(inA, 5, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK)
		w.passed()
		for _, tt := range []struct {
			query  string
			state  link.State
			passed int
			code   int
		}{
			{"?resourceVersion=5", link.Up, 0, http.StatusOK},
			{"?resourceVersion=6", link.Up, 1, http.StatusOK},
			{"?resourceVersion=0", link.Up, 0, http.StatusOK},
			{"?resourceVersion=6", link.Failing, 0, http.StatusGatewayTimeout},
			{"?resourceVersion=0", link.Failing, 0, http.StatusOK},
			{"?resourceVersion=6", link.Down, 0, http.StatusGatewayTimeout},
		} {
			w.link.Set(tt.state)
			out := w.get(listOfA + tt.query)
			if n := len(w.passed()); n != tt.passed || out.Code != tt.code {
				t.Errorf("%s with the link %v: %d, passed on %d times, want %d and %d",
					tt.query, tt.state, out.Code, n, tt.code, tt.passed)
			}
		}
	})
}

// A table is the cloud's; without the cloud there are plain objects, which kubectl accepts, too.
func TestTheCloudMakesTables(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
		w.has(inA, 5, setObject("x", 5))
		for _, tt := range []struct {
			query, accept string
			state         link.State
			passed        int
			want          string
		}{
			{"", asTable, link.Up, 1, "the cloud's own"},
			{"?watch=1&resourceVersion=5&timeoutSeconds=1", asTable, link.Up, 1, "the cloud's own"},
			{"", asJSON, link.Up, 0, `"name":"x"`},
			{"", asTable, link.Down, 0, `"name":"x"`},
			{"", asTable, link.Failing, 0, `"name":"x"`},
		} {
			w.link.Set(tt.state)
			out := w.get(listOfA+tt.query, "Accept", tt.accept)
			want(t, out, http.StatusOK, tt.want)
			if n := len(w.passed()); n != tt.passed {
				t.Errorf("%s as %s with the link %v: passed on %d times, want %d", tt.query, tt.accept, tt.state, n, tt.passed)
			}
		}
	})
}

// What a newer API server has, and this program's types do not, comes from there as long as it can be asked.
func TestWhatIsOfANewerKubernetes(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", ResourceVersion: "5"}}
		raw, err := service.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		newer := edit.Append(raw, 99, "of the future")
		has := func(resource, kind string, raw []byte) {
			what := Selection{Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Namespace: "a"}
			all := stream.Snapshot{Revision: 5, Type: stream.Type{
				GroupVersionKind: what.Resource.GroupVersion().WithKind(kind), Encoding: stream.Protobuf,
			}, Objects: []stream.Object{{Key: stream.Key{Namespace: "a", Name: "x"}, Revision: 5, Raw: raw}}}
			if err := w.source(what).Replace(t.Context(), all); err != nil {
				t.Fatal(err)
			}
		}
		const asProto = "application/vnd.kubernetes.protobuf"
		const list, holograms = "/api/v1/namespaces/a/services", "/api/v1/namespaces/a/holograms"
		has("services", "Service", newer)
		has("holograms", "Hologram", raw)
		for _, tt := range []struct {
			target, accept string
			state          link.State
			code, passed   int
			want           string
		}{
			{list, asJSON, link.Up, http.StatusOK, 1, "the cloud's own"},
			{list + "?watch=1&resourceVersion=5&timeoutSeconds=1", asJSON, link.Up, http.StatusOK, 1, "the cloud's own"},
			{list, asProto, link.Up, http.StatusOK, 0, "of the future"},
			{list, asJSON, link.Down, http.StatusOK, 0, `"resourceVersion":"46116860`}, // none of the cloud's
			{holograms, asJSON, link.Up, http.StatusOK, 1, "the cloud's own"},
			{holograms, asProto, link.Up, http.StatusOK, 0, "Hologram"},
			{holograms, asJSON, link.Down, http.StatusNotAcceptable, 0, "Hologram is given as"},
		} {
			w.link.Set(tt.state)
			want(t, w.get(tt.target, "Accept", tt.accept), tt.code, tt.want)
			if n := len(w.passed()); n != tt.passed {
				t.Errorf("%s as %s with the link %v: passed on %d times, want %d", tt.target, tt.accept, tt.state, n, tt.passed)
			}
		}
		// A get is answered with what the cloud said last, if that is all that can be given.
		w.link.Set(link.Up)
		w.says(http.StatusOK, asJSON, "a hologram")
		w.get(holograms+"/x", "Accept", asJSON)
		w.link.Set(link.Down)
		want(t, w.get(holograms+"/x", "Accept", asJSON), http.StatusOK, "a hologram")
	})
}

// A page of a selection says no number of what remains, as by a selector at an API server.
func TestAPageOfASelection(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		by := inA
		by.Labels = "app"
		w.has(by, 5, setObject("x", 5), setObject("y", 5))
		w.has(inA, 5, setObject("x", 5), setObject("y", 5))
		for query, counted := range map[string]bool{"?limit=1": true, "?limit=1&labelSelector=app": false} {
			out := w.get(listOfA + query)
			want(t, out, http.StatusOK, `"continue":`)
			if got := strings.Contains(out.Body.String(), `"remainingItemCount":1`); got != counted {
				t.Errorf("%s: %s", query, out.Body)
			}
		}
	})
}

// A node whose certificate has expired goes on with what it knows; of the rest it hears what the cloud says.
func TestWhatIsKnownStaysWhenTheCloudDoesNotKnowTheNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(inA, 5, setObject("x", 5))
		want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
		time.Sleep(5 * time.Second) // to the disk
		expired := apierrors.NewUnauthorized("the certificate has expired")
		s := w.source(inA)
		s.set(func() { s.fails, s.watchFails = expired, expired })
		w.restart()
		w.says(http.StatusUnauthorized, asJSON, "expired")
		w.passed()
		for range 3 {
			want(t, w.get(listOfA), http.StatusOK, `"name":"x"`)
			time.Sleep(time.Minute)
		}
		w.nothing()
		other := Selection{Resource: configMaps, Namespace: "b"}
		s = w.source(other)
		s.set(func() { s.fails = expired })
		want(t, w.get("/api/v1/namespaces/b/configmaps"), http.StatusUnauthorized, "expired")
		w.passedOn()
	})
}

// logged returns what is logged from now on, until the test is over.
func logged(t *testing.T) *bytes.Buffer {
	t.Helper()
	log := &bytes.Buffer{}
	klog.LogToStderr(false)
	klog.SetOutput(log)
	t.Cleanup(func() {
		klog.SetOutput(io.Discard)
		klog.LogToStderr(true)
	})
	return log
}

func TestNoSecretIsLogged(t *testing.T) {
	log := logged(t)
	var level klog.Level
	if err := level.Set("10"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = level.Set("0") })
	bubble(t, func(t *testing.T, w *setWorld) {
		o := setObject("x", 5)
		o.Raw = []byte(`{"metadata":{"namespace":"a","name":"x","resourceVersion":"5"},"data":{"p":"hunter2"}}`)
		w.has(inA, 9, o)
		w.says(http.StatusOK, asJSON, "hunter2")
		want(t, w.get(listOfA), http.StatusOK, "hunter2")
		w.get(secret)
		w.ask(http.MethodPost, token, "hunter2")
		w.disk.mu.Lock()
		w.disk.fails = store.ErrFull
		w.disk.mu.Unlock()
		w.says(http.StatusOK, asJSON, "hunter2 again")
		w.get(secret)
		w.restart()
		w.offline(http.MethodGet, secret, "")
		w.offline(http.MethodPost, token, "hunter2")
	})
	klog.Flush()
	if text := log.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, "Following for this node's programs") {
		t.Errorf("the log: %s", text)
	}
}
