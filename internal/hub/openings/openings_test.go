package openings

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"yurtcoordinator/internal/edge"
)

// site is a coordinator and a cloud.
type site struct {
	cloud *fake.Clientset

	mu     sync.Mutex
	untold []edge.Opening
	asked  int
	terms  []int32
	broken string // what the coordinator answers instead; empty: nothing
}

const instance = "abcdefghijklmnop"

// RoundTrip is the coordinator's answer.
func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var said edge.OpeningsRequest
	if err := json.NewDecoder(r.Body).Decode(&said); err != nil {
		return nil, err
	}
	if r.Method != http.MethodPost || r.URL.Path != edge.PathOpenings {
		return nil, fmt.Errorf("%s %s", r.Method, r.URL)
	}
	s.asked++
	s.terms = append(s.terms, said.Term)
	if said.Instance == instance {
		s.untold = slices.DeleteFunc(s.untold, func(o edge.Opening) bool { return slices.Contains(said.Told, o.Number) })
	}
	text, err := json.Marshal(edge.OpeningsAnswer{Instance: instance, Openings: s.untold[:min(len(s.untold), 16)]})
	if err != nil {
		return nil, err
	}
	if s.broken != "" {
		text = []byte(s.broken)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(bytes.NewReader(text)),
	}, nil
}

func (s *site) opens(numbers ...uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range numbers {
		o := exec(edge.ActOpened)
		o.Number = n
		s.untold = append(s.untold, o)
	}
}

func (s *site) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.untold)
}

// leader returns a Teller, and what runs it for a term until the returned function is called.
func (s *site) leader(t *testing.T, node edge.NodeName) (teller *Teller, lead func(valid func() bool) (stop func())) {
	t.Helper()
	leases, err := coordinationv1client.NewForConfigAndClient(
		&rest.Config{Host: "https://coordinator"}, &http.Client{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	teller = New(Config{
		Node: node, Pool: "p1", Coordinator: leases.RESTClient(), Events: s.cloud.CoreV1().Events("default"),
		About: func() corev1.ObjectReference { return of.about }, Metrics: prometheus.NewRegistry(),
	})
	return teller, func(valid func() bool) func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- teller.Run(ctx, edge.Term{Transitions: 5, Valid: valid}) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

func always() bool { return true }

// events are the names of those that the cloud has.
func (s *site) events(t *testing.T) []string {
	t.Helper()
	all, err := s.cloud.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all.Items {
		names = append(names, strings.TrimPrefix(e.Name, "yurt-coordinator-p1."+instance+".")+" by "+e.ReportingInstance)
	}
	slices.Sort(names)
	return names
}

func (s *site) has(t *testing.T, want ...string) {
	t.Helper()
	if got := s.events(t); !slices.Equal(got, want) {
		t.Errorf("the cloud has %v, want %v", got, want)
	}
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

func TestTelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{cloud: fake.NewClientset()}
		_, lead := s.leader(t, "n1")
		s.opens(2, 3)
		stop := lead(always)
		after(0)
		s.has(t, "2 by n1", "3 by n1")
		if s.left() != 0 {
			t.Errorf("the coordinator was not told of %d", s.left())
		}
		s.opens(4)
		after(askEvery)
		s.has(t, "2 by n1", "3 by n1", "4 by n1")
		s.mu.Lock()
		before := s.asked
		s.mu.Unlock()
		after(10 * time.Minute)
		s.mu.Lock()
		if n := s.asked - before; n < 55 || n > 85 || slices.ContainsFunc(s.terms, func(term int32) bool { return term != 5 }) {
			t.Errorf("asked %d times in 10 minutes with nothing to tell, in terms %v", n, s.terms[:1])
		}
		s.mu.Unlock()
		stop()
		s.opens(5)
		after(time.Hour)
		s.has(t, "2 by n1", "3 by n1", "4 by n1")
		_, next := s.leader(t, "n2")
		defer next(always)()
		after(0)
		s.has(t, "2 by n1", "3 by n1", "4 by n1", "5 by n2")
	})
}

// TestALeaderThatDies between the Event and its word to the coordinator: the next tells again, and the cloud has one.
func TestALeaderThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{cloud: fake.NewClientset()}
		_, lead := s.leader(t, "n1")
		s.opens(2)
		stop := lead(always)
		after(0)
		stop()
		s.opens(2) // as if it had not said so
		teller, next := s.leader(t, "n2")
		defer next(always)()
		after(0)
		s.has(t, "2 by n1")
		if n := testutil.ToFloat64(teller.told.WithLabelValues(before)); n != 1 || s.left() != 0 {
			t.Errorf("told before: %v; %d are left", n, s.left())
		}
	})
}

func TestTroubleInTheCloud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{cloud: fake.NewClientset()}
		var answer error
		var mu sync.Mutex
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			answer = err
		}
		tries := 0
		s.cloud.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			tries++
			bad := strings.HasSuffix(a.(clienttesting.CreateAction).GetObject().(*corev1.Event).Name, ".3")
			return answer != nil && bad, nil, answer
		})
		teller, lead := s.leader(t, "n1")
		set(apierrors.NewForbidden(corev1.Resource("events"), "", errors.New("not yet")))
		s.opens(2, 3, 4)
		defer lead(always)()
		after(0)
		s.has(t, "2 by n1")
		after(10 * time.Minute)
		s.has(t, "2 by n1")
		mu.Lock()
		if tries > 20 || s.left() != 2 {
			t.Errorf("%d tries, %d left", tries, s.left())
		}
		mu.Unlock()
		set(apierrors.NewBadRequest("never"))
		after(backoffMax)
		s.has(t, "2 by n1", "4 by n1")
		if n := testutil.ToFloat64(teller.told.WithLabelValues(refused)); n != 1 || s.left() != 0 {
			t.Errorf("%v refused, %d left", n, s.left())
		}
	})
}

func TestTheRateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{cloud: fake.NewClientset()}
		_, lead := s.leader(t, "n1")
		for n := range uint64(1000) {
			s.opens(n + 2)
		}
		stop := lead(always)
		after(time.Minute)
		if n := len(s.events(t)); n < 70 || n > tellBurst+61 {
			t.Errorf("%d Events in a minute", n)
		}
		stop() // while it waits
	})
}

func TestATermThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{cloud: fake.NewClientset()}
		_, lead := s.leader(t, "n1")
		s.opens(2)
		defer lead(func() bool { return false })()
		after(time.Hour)
		s.has(t)
	})
}

func TestACoordinatorThatLies(t *testing.T) {
	for name, answer := range map[string]string{
		"its name": `{"instance":"../../../secrets/xxxxxxxx","openings":[{"number":1,"act":"opened"}]}`,
		"no JSON":  "<html>",
		"too much": `{"instance":"` + instance + `","openings":[` +
			strings.Repeat(`{"number":1,"act":"opened"},`, maxAnswer/20) + `{}]}`,
		"odd acts":   `{"instance":"` + instance + `","openings":[{"number":1,"act":"made up"}]}`,
		"a bad time": `{"instance":"` + instance + `","openings":[{"number":1,"act":"opened","first":"99999-01-01T00:00:00Z"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &site{cloud: fake.NewClientset(), broken: answer}
				_, lead := s.leader(t, "n1")
				defer lead(always)()
				after(10 * time.Minute)
				s.has(t)
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.asked > 700 {
					t.Errorf("asked %d times", s.asked)
				}
			})
		})
	}
}
