package keep

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/hub/feed"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/replica"
)

// host runs Guests whose Sets are worlds: each has a cloud of its own, which is what its credentials show of it.
func host(t *testing.T, w *world, f func(g *Guests)) {
	t.Helper()
	g := NewGuests(func(client string) (*Set, error) {
		c := w.cfg
		c.Client = client
		c.NewFeed = func(r *replica.Replica, what Selection) (Feed, error) {
			s := w.source(of(client, what))
			f, err := feed.New(feed.Config{Resource: what.Resource, Sink: r, Cloud: s, CloudLink: w.link})
			return feeding{f, s, w.t}, err
		}
		return New(c)
	})
	if _, _, err := g.Use("early"); err == nil {
		t.Error("used before Run")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	synctest.Wait()
	f(g)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// of names what the cloud shows a client of a selection.
func of(client string, what Selection) Selection {
	what.Labels = client
	return what
}

// as asks as a client.
func (w *world) as(g *Guests, client, target string) (code int, body string) {
	w.t.Helper()
	set, release, err := g.Use(client)
	if err != nil {
		w.t.Fatal(err)
	}
	defer release()
	own := w.Set
	w.Set = set
	defer func() { w.Set = own }()
	out := w.get(target)
	return out.Code, out.Body.String()
}

func TestEachGuestHasItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.has(of("a", inA), 5, object("x", 5))
		w.has(of("b", inA), 6, object("x", 5), object("y", 6))
		host(t, w, func(g *Guests) {
			for client, want := range map[string]int{"a": 1, "b": 2} {
				if code, body := w.as(g, client, listOfA); code != http.StatusOK || strings.Count(body, `"data"`) != want {
					t.Errorf("%s: %d %s", client, code, body)
				}
			}
			if all := g.Status(); len(all) != 2 || all[0].Client != "a" || all[1].Client != "b" {
				t.Errorf("%+v", all)
			}
			w.says(http.StatusOK, asJSON, `"a's"`)
			w.as(g, "a", secret)
			w.says(http.StatusOK, asJSON, `"b's"`)
			w.as(g, "b", secret)
			time.Sleep(10 * time.Second) // to the disk
			synctest.Wait()
		})
		// As after a restart, offline: each has what it has read, and nobody else has it.
		w.link.Set(link.Down)
		w.says(http.StatusServiceUnavailable, "text/plain", "unknown")
		host(t, w, func(g *Guests) {
			for client, want := range map[string]string{"a": `"a's"`, "b": `"b's"`, "c": "unknown"} {
				if _, body := w.as(g, client, secret); body != want {
					t.Errorf("%s: %s, want %s", client, body, want)
				}
			}
			for client, want := range map[string]int{"a": 1, "b": 2, "c": 0} {
				code, body := w.as(g, client, listOfA)
				if (code == http.StatusOK) != (want > 0) || strings.Count(body, `"data"`) != want {
					t.Errorf("%s: %d %s, want %d objects", client, code, body, want)
				}
			}
			if out := w.get(secret); out.Body.String() != "unknown" {
				t.Errorf("the node: %s", out.Body)
			}
		})
		w.passed()
	})
}

// A token that the cloud refuses is its owner's business, which must hear of it.
func TestAGuestHearsThatItIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		host(t, w, func(g *Guests) {
			w.says(http.StatusOK, asJSON, "{}")
			w.as(g, "a", secret)
			w.says(http.StatusUnauthorized, asJSON, "no")
			if code, _ := w.as(g, "a", secret); code != http.StatusUnauthorized {
				t.Errorf("%d", code)
			}
			w.says(http.StatusServiceUnavailable, asJSON, "no")
			if code, _ := w.as(g, "a", secret); code != http.StatusOK {
				t.Errorf("a cloud that does not answer: %d", code)
			}
		})
		w.passed()
	})
}

func TestGuestsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		host(t, w, func(g *Guests) {
			var releases []func()
			for i := range maxGuests {
				_, release, err := g.Use(fmt.Sprint(i))
				if err != nil {
					t.Fatal(err)
				}
				releases = append(releases, release)
			}
			if _, _, err := g.Use("one more"); err == nil {
				t.Error("one more is kept for")
			}
			w.has(of("0", inA), 5, object("x", 5))
			w.as(g, "0", listOfA)
			releases[0]() // follows something
			if _, _, err := g.Use("one more"); err == nil {
				t.Error("one more is kept for, in the place of one that is in use")
			}
			releases[1]()
			_, release, err := g.Use("one more")
			if err != nil {
				t.Error(err)
			}
			release()
			for _, r := range releases[2:] {
				r()
			}
		})
	})
}

func TestAGuestsFeedThatFailsEndsAll(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		broken := errors.New("a defect")
		g := NewGuests(func(client string) (*Set, error) {
			c := w.cfg
			c.Client = client
			set, err := New(c)
			if err == nil {
				set.failed <- broken
			}
			return set, err
		})
		ended := make(chan error, 1)
		go func() { ended <- g.Run(t.Context()) }()
		synctest.Wait()
		if _, _, err := g.Use("a"); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}

func TestAGuestHasLessRoomThanTheNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.link.Set(link.Down) // so that each costs little
		w.says(http.StatusServiceUnavailable, "text/plain", "unknown")
		host(t, w, func(g *Guests) {
			for i := range maxGuestKept + 10 {
				w.as(g, "a", fmt.Sprintf("/api/v1/namespaces/n%d/configmaps", i))
			}
			if n := len(g.Status()); n != maxGuestKept {
				t.Errorf("%d selections are kept, want %d", n, maxGuestKept)
			}
			w.link.Set(link.Up)
			w.says(http.StatusOK, asJSON, strings.Repeat("x", answerBytes-1))
			for i := range maxGuestAnswers + 10 {
				w.as(g, "a", fmt.Sprintf("/api/v1/namespaces/a/secrets/s%d", i))
			}
			if n := len(w.disk.Blobs(guestPrefix)); n == 0 || n > maxGuestAnswers {
				t.Errorf("%d answers are remembered, want at most %d", n, maxGuestAnswers)
			}
			w.as(g, "b", secret)
			// The node's own answers find room all the same, and none of them goes for a guest's.
			const n = 40 // of 170 KiB
			for i := range n {
				w.get(fmt.Sprintf("/api/v1/namespaces/b/secrets/s%d", i))
			}
			for i := range maxGuestAnswers {
				w.as(g, "b", fmt.Sprintf("/api/v1/namespaces/c/secrets/s%d", i))
			}
			if has := len(w.disk.Blobs(answerPrefix)); has != n {
				t.Errorf("%d of the node's answers are remembered, want %d", has, n)
			}
		})
		w.passed()
	})
}
