package front

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// cloudSays is what the cloud has said of a token "alice", and of what may be done with it.
type cloudSays struct {
	identity, access error
	may              bool
	asked            []Action
}

func (c *cloudSays) Identify(_ context.Context, _ netip.Addr, token string) (*User, error) {
	if token != "alice" {
		return nil, ErrRefused
	}
	return &User{Username: "sa:alice", UID: "7"}, c.identity
}

func (c *cloudSays) May(_ context.Context, _ *User, a Action) (bool, error) {
	c.asked = append(c.asked, a)
	return c.may, c.access
}

// A caller reads here only if the cloud knows it, and reads the pool's resources only if it may do exactly that. The cloud
// answers everything else.
func TestWhoIsAnswered(t *testing.T) {
	unknown := errors.New("the cloud can't be asked")
	for name, tt := range map[string]struct {
		token string
		pool  bool
		says  cloudSays
		want  bool
	}{
		"the pool's, allowed":               {"alice", true, cloudSays{may: true}, true},
		"the pool's, not allowed":           {"alice", true, cloudSays{}, false},
		"the pool's, not known to be":       {"alice", true, cloudSays{access: unknown}, false},
		"the pool's, allowed but not known": {"alice", true, cloudSays{may: true, access: unknown}, false},
		"the pool's, nobody's token":        {"eve", true, cloudSays{may: true}, false},
		"the pool's, a token not known":     {"alice", true, cloudSays{may: true, identity: unknown}, false},
		"its own":                           {"alice", false, cloudSays{}, true},
		"its own, nobody's token":           {"eve", false, cloudSays{}, false},
		"its own, a token not known":        {"alice", false, cloudSays{identity: unknown}, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewGuests(&tt.says, http.DefaultTransport)
			info := &request.RequestInfo{
				IsResourceRequest: true, Verb: "list", APIGroup: "g", APIVersion: "v1", Resource: "things",
				Namespace: "n", Name: "x",
			}
			r := httptest.NewRequest(http.MethodGet, "/apis/g/v1/namespaces/n/things/x", nil)
			r.Header.Set("Authorization", "Bearer "+tt.token)
			client, ok := g.Admit(r.WithContext(request.WithRequestInfo(r.Context(), info)), tt.pool)
			if ok != tt.want || ok && client != "sa:alice 7" {
				t.Errorf("answered as %q: %v, want %v", client, ok, tt.want)
			}
			want := Action{Verb: "list", Group: "g", Version: "v1", Resource: "things", Namespace: "n", Name: "x"}
			if len(tt.says.asked) > 0 && tt.says.asked[0] != want {
				t.Errorf("asked for %+v, want %+v", tt.says.asked, want)
			}
		})
	}
}

// What cannot be judged is not answered here.
func TestARequestWithoutInfo(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/services", nil)
	r.Header.Set("Authorization", "Bearer alice")
	if _, ok := NewGuests(&cloudSays{may: true}, http.DefaultTransport).Admit(r, true); ok {
		t.Error("it is answered")
	}
}
