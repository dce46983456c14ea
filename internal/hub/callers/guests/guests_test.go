package guests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/hub/callers"
	"yurtcoordinator/internal/hub/route"
)

// cloudSays is what the cloud has said of a token "alice", and of what may be done with it.
type cloudSays struct {
	identity, access error
	may              bool
	asked            []callers.Action
}

func (c *cloudSays) Identify(_ context.Context, token string) (*callers.User, error) {
	if token != "alice" {
		return nil, callers.ErrRefused
	}
	return &callers.User{Username: "sa:alice", UID: "7"}, c.identity
}

func (c *cloudSays) May(_ context.Context, _ *callers.User, a callers.Action) (bool, error) {
	c.asked = append(c.asked, a)
	return c.may, c.access
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

// Nobody reads here whom the cloud does not know, and the pool's resources only who may just that: all else is the cloud's.
func TestWhoIsAnswered(t *testing.T) {
	unknown := errors.New("the cloud can't be asked")
	for name, tt := range map[string]struct {
		token string
		from  route.Kind
		says  cloudSays
		want  string
	}{
		"the pool's, allowed":               {"alice", route.Replica, cloudSays{may: true}, "the pool's"},
		"the pool's, not allowed":           {"alice", route.Replica, cloudSays{}, "the cloud"},
		"the pool's, not known to be":       {"alice", route.Replica, cloudSays{access: unknown}, "the cloud"},
		"the pool's, allowed but not known": {"alice", route.Replica, cloudSays{may: true, access: unknown}, "the cloud"},
		"the pool's, nobody's token":        {"eve", route.Replica, cloudSays{may: true}, "the cloud"},
		"the pool's, a token not known":     {"alice", route.Replica, cloudSays{may: true, identity: unknown}, "the cloud"},
		"its own":                           {"alice", route.Kept, cloudSays{}, "sa:alice 7's"},
		"its own, nobody's token":           {"eve", route.Kept, cloudSays{}, "the cloud"},
		"its own, a token not known":        {"alice", route.Kept, cloudSays{identity: unknown}, "the cloud"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := New(Config{
				Callers: &tt.says, Pool: answer("the pool's"), Cloud: http.DefaultTransport,
				Own: func(w http.ResponseWriter, _ *http.Request, client string, _ http.Handler) {
					_, _ = fmt.Fprintf(w, "%s's", client)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			info := &request.RequestInfo{
				IsResourceRequest: true, Verb: "list", APIGroup: "g", APIVersion: "v1", Resource: "things",
				Namespace: "n", Name: "x",
			}
			r := httptest.NewRequest(http.MethodGet, "/apis/g/v1/namespaces/n/things/x", nil)
			r.Header.Set("Authorization", "Bearer "+tt.token)
			out := httptest.NewRecorder()
			g.Serve(out, r.WithContext(request.WithRequestInfo(r.Context(), info)), tt.from, answer("the cloud"))
			if out.Body.String() != tt.want {
				t.Errorf("answered by %s, want %s", out.Body, tt.want)
			}
			want := callers.Action{Verb: "list", Group: "g", Version: "v1", Resource: "things", Namespace: "n", Name: "x"}
			if len(tt.says.asked) > 0 && tt.says.asked[0] != want {
				t.Errorf("asked for %+v, want %+v", tt.says.asked, want)
			}
		})
	}
}

// What cannot be judged is not answered.
func TestARequestWithoutInfo(t *testing.T) {
	g, err := New(Config{
		Callers: &cloudSays{may: true}, Pool: answer("the pool's"), Cloud: http.DefaultTransport,
		Own: func(http.ResponseWriter, *http.Request, string, http.Handler) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/api/v1/services", nil)
	r.Header.Set("Authorization", "Bearer alice")
	out := httptest.NewRecorder()
	g.Serve(out, r, route.Replica, answer("the cloud"))
	if out.Code != http.StatusInternalServerError {
		t.Errorf("%d %s", out.Code, out.Body)
	}
	if _, err := New(Config{}); err == nil {
		t.Error("guests of nobody")
	}
}
