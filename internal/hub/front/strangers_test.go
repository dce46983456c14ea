package front

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestLittlePassesForStrangers: whom the cloud does not know costs the line next to nothing, and whom it knows is not bounded.
func TestLittlePassesForStrangers(t *testing.T) {
	var asked, bytes atomic.Int64
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		bytes.Add(r.ContentLength)
		if !strings.HasPrefix(Bearer(r), "good") {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	own := newFront(Config{Cloud: u, Replicas: byName("replica"), Keeper: byName("keeper"), Callers: onlyGood{}})
	guests := own.Guests()
	address, _ := serve(t, guests)
	large := strings.Repeat("x", BodyBytes+1)
	send := func(method, body, token string, headers ...string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address+"/api/v1/pods", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	for range 50 {
		for _, got := range []int{send("GET", "", ""), send("POST", "x", "")} {
			if got != http.StatusUnauthorized {
				t.Fatalf("without a token: %d", got)
			}
		}
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "x"}
	for _, got := range []int{send("POST", large, "made-up"), send("GET", "", "made-up", upgrade...)} {
		if got != http.StatusTooManyRequests {
			t.Errorf("much with a token that is made up: %d", got)
		}
	}
	if asked.Load() > 0 {
		t.Errorf("%d requests of strangers went over the line", asked.Load())
	}
	codes := map[int]int{}
	for range 3 * mostUnproven {
		codes[send("GET", "", "made-up")]++
	}
	if codes[http.StatusUnauthorized] != mostUnproven || codes[http.StatusTooManyRequests] != 2*mostUnproven {
		t.Errorf("with a token that is made up: %v", codes)
	}
	if got := testutil.ToFloat64(guests.door.refusals.WithLabelValues(unproven)); got != 2*mostUnproven+2 {
		t.Errorf("counted: %v", got)
	}
	// The same address, which has no requests left, with tokens that are good. The hub asks whose they are.
	if got := send("POST", large, "good-unknown"); got != http.StatusTooManyRequests {
		t.Errorf("a token that nobody can be asked about: %d", got)
	}
	for range 3 * mostUnproven {
		if got := send("POST", large, "good"); got != http.StatusOK {
			t.Fatalf("with a good token: %d", got)
		}
	}
}

// onlyGood know the token "good" alone.
type onlyGood struct{}

func (onlyGood) Admit(r *http.Request, _ bool) (client string, ok bool) {
	return "", Bearer(r) == "good"
}
