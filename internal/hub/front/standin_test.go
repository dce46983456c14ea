package front

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/hub/link"
)

// understudy stands in for a cloud that counts as down, and notes what it was given.
type understudy struct {
	bodies []string // "-" is for none
}

func (*understudy) Waits(*request.RequestInfo) bool { return false }

func (u *understudy) Answer(w http.ResponseWriter, r *http.Request, body []byte) bool {
	if _, ok := request.RequestInfoFrom(r.Context()); !ok {
		panic("no RequestInfo")
	}
	if body == nil {
		u.bodies = append(u.bodies, "-")
		return false
	}
	u.bodies = append(u.bodies, string(body))
	if string(body) == "pass" {
		return false
	}
	w.WriteHeader(http.StatusAccepted)
	return true
}

func (*understudy) Heard([]byte) {}

func TestStandIn(t *testing.T) {
	const status = "/api/v1/nodes/n1/status"
	_, u := cloud(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	})
	standIn := &understudy{}
	address, _ := hub(t, Config{
		Cloud: u, StandIn: standIn, Situation: Situation{Node: "n1", StandIn: true},
		CloudLink: func() link.State { return link.Down }, CoordinatorLink: func() link.State { return link.Up },
	})
	large := strings.Repeat("x", BodyBytes+1)
	for _, c := range []struct {
		target, body, authorization string
		code                        int
		given                       string // to the understudy; empty: it was not asked
	}{
		{status, "taken", "", http.StatusAccepted, "taken"},
		{status, "pass", "", http.StatusOK, "pass"},
		{status, large, "", http.StatusOK, "-"},
		{status, "own", "Bearer of-somebody", http.StatusOK, ""},
		{"/api/v1/nodes/n2/status", "another", "", http.StatusOK, ""},
	} {
		standIn.bodies = nil
		response, err := do(t, http.MethodPatch, address+c.target, strings.NewReader(c.body), "Authorization", c.authorization)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != c.code || c.code == http.StatusOK && string(text) != c.body {
			t.Errorf("%s %.10s: %d with %d bytes, %v; want %d", c.target, c.body, response.StatusCode, len(text), err, c.code)
		}
		if got := strings.Join(standIn.bodies, " "); got != c.given {
			t.Errorf("%s %.10s: the understudy was given %q, want %q", c.target, c.body, got, c.given)
		}
	}
}
