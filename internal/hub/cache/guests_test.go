package cache

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/hub/link"
)

// of names what the cloud shows a client of a selection.
func of(client string, what Selection) Selection {
	if client != "" {
		what.Labels = client
	}
	return what
}

// as asks as a client.
func (w *setWorld) as(client, target string) (code int, body string) {
	w.t.Helper()
	w.client = client
	defer func() { w.client = "" }()
	out := w.get(target)
	return out.Code, out.Body.String()
}

// guests are what is followed for callers with credentials of their own.
func (w *setWorld) guests() []Status {
	return slices.DeleteFunc(w.Status(), func(s Status) bool { return s.Client == "" })
}

func TestEachGuestHasItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.has(of("a", inA), 5, setObject("x", 5))
		w.has(of("b", inA), 6, setObject("x", 5), setObject("y", 6))
		for client, want := range map[string]int{"a": 1, "b": 2} {
			if code, body := w.as(client, listOfA); code != http.StatusOK || strings.Count(body, `"data"`) != want {
				t.Errorf("%s: %d %s", client, code, body)
			}
		}
		if all := w.guests(); len(all) != 2 || all[0].Client != "a" || all[1].Client != "b" {
			t.Errorf("%+v", all)
		}
		w.says(http.StatusOK, asJSON, `"a's"`)
		w.as("a", secret)
		w.says(http.StatusOK, asJSON, `"b's"`)
		w.as("b", secret)
		time.Sleep(10 * time.Second) // to the disk
		synctest.Wait()
		// As after a restart, offline: each has what it has read, and nobody else has it.
		w.link.Set(link.Down)
		w.says(http.StatusServiceUnavailable, "text/plain", "unknown")
		w.restart()
		for client, want := range map[string]string{"a": `"a's"`, "b": `"b's"`, "c": "unknown"} {
			if _, body := w.as(client, secret); body != want {
				t.Errorf("%s: %s, want %s", client, body, want)
			}
		}
		for client, want := range map[string]int{"a": 1, "b": 2, "c": 0} {
			code, body := w.as(client, listOfA)
			if (code == http.StatusOK) != (want > 0) || strings.Count(body, `"data"`) != want {
				t.Errorf("%s: %d %s, want %d objects", client, code, body, want)
			}
		}
		if out := w.get(secret); out.Body.String() != "unknown" {
			t.Errorf("the node: %s", out.Body)
		}
		w.passed()
	})
}

// A token that the cloud refuses is its owner's business, which must hear of it.
func TestAGuestHearsThatItIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.says(http.StatusOK, asJSON, "{}")
		w.as("a", secret)
		w.says(http.StatusUnauthorized, asJSON, "no")
		if code, _ := w.as("a", secret); code != http.StatusUnauthorized {
			t.Errorf("%d", code)
		}
		w.says(http.StatusServiceUnavailable, asJSON, "no")
		if code, _ := w.as("a", secret); code != http.StatusOK {
			t.Errorf("a cloud that does not answer: %d", code)
		}
		w.passed()
	})
}

func TestGuestsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.link.Set(link.Down) // so that each costs little
		w.says(http.StatusServiceUnavailable, "text/plain", "unknown")
		for i := range maxGuests {
			w.as(fmt.Sprint(i), listOfA)
		}
		w.nothing()
		if _, body := w.as("one more", listOfA); body != "unknown" {
			t.Errorf("one more is followed for: %s", body)
		}
		w.passedOn()
		if _, body := w.as("0", "/api/v1/configmaps"); body == "unknown" {
			t.Error("one who is followed for is not followed for in another matter")
		}
		want(t, w.get(listOfA), http.StatusServiceUnavailable, "is not known here") // the node's programs are no guests
		time.Sleep(idleTime + tidyEvery)
		if _, body := w.as("one more", listOfA); body == "unknown" {
			t.Error("one more is not followed for, though nobody else is")
		}
		w.nothing()
	})
}

func TestAGuestHasLessRoomThanTheNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *setWorld) {
		w.link.Set(link.Down) // so that each costs little
		w.says(http.StatusServiceUnavailable, "text/plain", "unknown")
		for i := range maxGuestKept + 10 {
			w.as("a", fmt.Sprintf("/api/v1/namespaces/n%d/configmaps", i))
		}
		if n := len(w.guests()); n != maxGuestKept {
			t.Errorf("%d selections are kept, want %d", n, maxGuestKept)
		}
		w.passed()
	})
}
