package pool

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
)

// turn has a node take the filler's Lease, as hubs do, and returns how it is answered.
func (c *coordinator) turn(t testing.TB, name string, transitions int) error {
	t.Helper()
	_, err := c.as(t, pooltest.Node(name)).CoordinationV1().Leases(edge.NamespaceSystem).Patch(t.Context(), edge.LeaseFiller,
		types.MergePatchType, fmt.Appendf(nil,
			`{"spec":{"holderIdentity":%q,"leaseDurationSeconds":15,"leaseTransitions":%d,"renewTime":%q}}`,
			name, transitions, time.Now().UTC().Format(metav1.RFC3339Micro)), metav1.PatchOptions{})
	return err
}

// inHistory sends what is pushed as of a history.
type inHistory struct {
	http.RoundTripper
	history edge.History
}

func (h inHistory) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(edge.HeaderHistory, h.history.String())
	return h.RoundTripper.RoundTrip(r)
}

// TestANodeFillsWhileNobodyLeads: with its own certificate and no other right than its turn; programs are answered what it
// brought, and the first leader replaces it.
func TestANodeFillsWhileNobodyLeads(t *testing.T) {
	t.Parallel()
	c := startYoung(t, nil)
	pushes := func(name string, in edge.History, term int32, revision int, addresses ...string) pooltest.Answer {
		t.Helper()
		client := c.http(t, c.certificate(t, pooltest.Node(name)))
		client.Transport = inHistory{client.Transport, in}
		return c.push(t, client, pooltest.SliceResource, 0, term, pooltest.Frames(t, pooltest.ProtobufType(sliceKind),
			pooltest.WholeStream(2000, pooltest.AsObject(t, pooltest.CloudSlice("web-a", revision, addresses...)))...))
	}
	shown := func(want string) {
		t.Helper()
		for _, who := range []string{"operator", "node"} {
			client := c.as(t, pooltest.Operator())
			if who == "node" {
				client = c.as(t, pooltest.Node("n3"))
			}
			s, err := client.DiscoveryV1().EndpointSlices("shop").Get(t.Context(), "web-a", metav1.GetOptions{})
			if err != nil || len(s.Endpoints) != 1 || s.Endpoints[0].Addresses[0] != want {
				t.Errorf("the %s is shown %+v, %v, want %s", who, s, err, want)
			}
		}
	}
	filled := edge.History(0).Filled()
	if err := c.turn(t, "n2", 1); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "may still come to lead") {
		t.Errorf("a turn right after the start: %v", err)
	}
	c.clock.Step(edge.ElectionTerm + 2*time.Second)
	if a := pushes("n2", filled, 1, 1001, "10.0.0.1"); a.Code != http.StatusForbidden {
		t.Errorf("without a turn: %d %s", a.Code, a.Body)
	}
	allowed(t, "a turn", c.turn(t, "n2", 1))
	if err := c.turn(t, "n3", 2); !apierrors.IsForbidden(err) {
		t.Errorf("a turn during another's: %v", err)
	}
	if a := pushes("n2", filled, 1, 1001, "10.0.0.1"); a.Code != http.StatusOK || a.Applied != 2000 {
		t.Fatalf("fill: %d %s", a.Code, a.Body)
	}
	shown("10.0.0.1")
	n2 := c.http(t, c.certificate(t, pooltest.Node("n2")))
	if a := c.push(t, n2, pooltest.SliceResource, 2000, 1, pooltest.Frames(t, pooltest.ProtobufType(sliceKind), stream.Event{
		Type: stream.Bookmark, Object: stream.Object{Revision: 2001},
	})); a.Code != http.StatusForbidden {
		t.Errorf("a filler as a leader: %d %s", a.Code, a.Body)
	}

	c.clock.Step(edge.FillerTurn)
	if a := pushes("n2", filled, 1, 1001, "10.0.0.1"); a.Code != http.StatusForbidden {
		t.Errorf("after the turn: %d %s", a.Code, a.Body)
	}
	allowed(t, "another's turn", c.turn(t, "n3", 2))
	c.lead(t, "n1", 1)
	if a := pushes("n3", filled, 2, 1001, "10.0.0.1"); a.Code != http.StatusForbidden {
		t.Errorf("while somebody leads: %d %s", a.Code, a.Body)
	}
	if err := c.turn(t, "n3", 3); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "leads") {
		t.Errorf("a turn while somebody leads: %v", err)
	}
	if a := pushes("n1", 0, 1, 1001, "10.0.0.9"); a.Code != http.StatusOK { // the same revision: the filler lied
		t.Fatalf("the leader: %d %s", a.Code, a.Body)
	}
	shown("10.0.0.9")
}
