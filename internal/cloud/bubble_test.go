package cloud

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/sim/model"
)

// bubble is a cloud in simulated time: an API server that is a model, and replicas of the controllers, whose clock is ahead.
type bubble struct {
	*testing.T
	api   *model.Wire
	ahead time.Duration
	beats int
}

func newBubble(t *testing.T) *bubble {
	b := &bubble{T: t, ahead: 80 * 365 * 24 * time.Hour}
	b.api = &model.Wire{User: &user.DefaultInfo{Name: "me"}, Handler: model.NewServer(model.Config{
		Store: model.NewStore(), Random: model.NewRandom(0), Clock: clock.RealClock{},
	})}
	for _, name := range []string{edge.NamespaceSystem, corev1.NamespaceNodeLease} {
		b.write(http.MethodPost, "/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	b.write(http.MethodPost, "/api/v1/nodes", &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{edge.LabelNodePool: "p1"}},
	})
	return b
}

// ask asks the API server, and decodes the answer into into.
func (b *bubble) ask(method, path string, body []byte, into any) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, "http://cloud"+path, bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := b.api.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode > http.StatusCreated {
		b.Fatalf("%s %s: %d, %v: %s", method, path, answer.StatusCode, err, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		b.Fatal(err)
	}
}

func (b *bubble) write(method, path string, obj any) {
	b.Helper()
	body, err := json.Marshal(obj)
	if err != nil {
		b.Fatal(err)
	}
	b.ask(method, path, body, &json.RawMessage{})
}

// renew renews the node's Lease for some time, marked or not.
func (b *bubble) renew(marked bool, lasts time.Duration) {
	b.Helper()
	const leases = "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases"
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(10 * time.Second) {
		seconds, now := int32(40), metav1.NowMicro()
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &now},
		}
		if marked {
			lease.Annotations = map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
		}
		if b.beats++; b.beats == 1 {
			b.write(http.MethodPost, leases, lease)
			continue
		}
		var is coordinationv1.Lease
		b.ask(http.MethodGet, leases+"/n1", nil, &is)
		lease.ResourceVersion = is.ResourceVersion
		b.write(http.MethodPut, leases+"/n1", lease)
	}
}

// shows checks what the Node says: whether it has our taint, and the condition CloudLinkDown, dated by the replicas' clock.
func (b *bubble) shows(what string, tainted bool, status corev1.ConditionStatus) {
	b.Helper()
	var node corev1.Node
	b.ask(http.MethodGet, "/api/v1/nodes/n1", nil, &node)
	has := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == edge.TaintUnschedulable })
	var is corev1.NodeCondition
	for _, c := range node.Status.Conditions {
		if c.Type == edge.ConditionCloudLinkDown {
			is = c
		}
	}
	if since := time.Now().Add(b.ahead).Sub(is.LastTransitionTime.Time); has != tainted || is.Status != status ||
		since < 0 || since > time.Hour {
		b.Errorf("%s: tainted %t, %+v", what, has, is)
	}
}

// run starts a replica. stop ends it and waits.
func (b *bubble) run() (stop func()) {
	c := Config{
		Connect: func() (*rest.Config, error) { return &rest.Config{Host: "http://cloud", Transport: b.api}, nil },
		Ends: ends.Ends{
			Clock:  ends.Clock{OfDay: func() time.Time { return time.Now().Add(b.ahead) }},
			Chance: ends.Chance{Source: model.NewRandom(1)},
		},
		Heartbeats: true, Autonomy: true, PoolCuts: true, Approver: ApproverElsewhere,
		LeaderElect: true, MetricsAddress: "0", HealthAddress: "0",
	}
	ctx, cancel := context.WithCancel(quiet(b.T))
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c) }()
	return func() {
		b.Helper()
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}

// TestInABubble: the whole program runs in simulated time, twice, over a transport, by clocks that are given; another replica
// leads when the leader ends; and nothing of them stays.
func TestInABubble(t *testing.T) {
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		first := b.run()
		b.renew(false, time.Minute)
		second := b.run()
		b.renew(false, time.Minute)
		b.shows("its own heartbeats", false, corev1.ConditionFalse)
		b.renew(true, 2*time.Minute)
		b.shows("forwarded ones", true, corev1.ConditionTrue)
		first()
		b.renew(false, 2*time.Minute)
		b.shows("its own again, at the other replica", false, corev1.ConditionFalse)
		time.Sleep(time.Minute)
		b.shows("none", false, corev1.ConditionUnknown)
		second()
	})
	t.Logf("7 simulated minutes of two replicas took %v", time.Since(began).Round(time.Millisecond))
}
