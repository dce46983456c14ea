package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

func TestDirect(t *testing.T) {
	for _, media := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(media, func(t *testing.T) {
			run(t, func(n *node) {
				n.media = media
				if err := n.beat(); err != nil {
					t.Fatal(err)
				}
				n.wantCloud()
				n.wantCopy(false)
				if got := verbs(n.cloud); !slices.Equal(got, []string{"update"}) {
					t.Errorf("cloud saw %v, want one update", got)
				}
				if got := verbs(n.coordinator); !slices.Equal(got, []string{"update"}) {
					t.Errorf("coordinator saw %v, want one update", got)
				}
			})
		})
	}
}

// TestManagedFieldsAreDropped: kubelet's managed fields are not sent back. As long as the server has some, the hub sends an
// empty entry, which removes them.
func TestManagedFieldsAreDropped(t *testing.T) {
	run(t, func(n *node) {
		kept := []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate}}
		n.lease.ManagedFields = kept
		hold := func(fields []metav1.ManagedFieldsEntry) {
			n.cloud.Edit(space, n.name, func(l *coordinationv1.Lease) { l.ManagedFields = fields })
		}
		brought := func(s *hubtest.LeaseServer) (fields []metav1.ManagedFieldsEntry) {
			t.Helper()
			for _, c := range s.Calls() {
				if c.Verb == "update" {
					if fields = c.Lease.ManagedFields; len(c.Lease.OwnerReferences) != 1 {
						t.Errorf("%s brought owners %v", c, c.Lease.OwnerReferences)
					}
				}
			}
			return fields
		}
		none := []metav1.ManagedFieldsEntry{{}}
		type step struct{ has, want []metav1.ManagedFieldsEntry }
		for i, step := range []step{{nil, nil}, {kept, none}, {nil, nil}, {kept, none}} {
			hold(step.has)
			n.mustBeat()
			if got := brought(n.cloud); !reflect.DeepEqual(got, step.want) {
				t.Errorf("heartbeat %d, of a Lease with managed fields %v, brought %v, want %v", i, step.has, got, step.want)
			}
			if got := brought(n.coordinator); len(got) != 0 {
				t.Errorf("heartbeat %d brought the coordinator managed fields %v", i, got)
			}
		}
	})
}

// TestStampsAdvance: kube-controller-manager counts a heartbeat only if its stamp is later than the one before.
func TestStampsAdvance(t *testing.T) {
	year := 365 * 24 * time.Hour
	for name, do := range map[string]func(*node){
		"kubelet's clock is put back":  func(n *node) { n.clock.Store(int64(-time.Hour)) },
		"it is put forth and back":     func(n *node) { n.clock.Store(int64(time.Hour)); n.mustBeat(); n.clock.Store(0) },
		"somebody writes 2099":         func(n *node) { n.editStamp(73 * year) },
		"and the hub is restarted":     func(n *node) { n.editStamp(73 * year); n.restartHub() },
		"the hub restarts, clock back": func(n *node) { n.clock.Store(int64(-time.Hour)); n.restartHub() },
		"a leader forwarded 2099 + 1µs": func(n *node) {
			n.cloudLink.Set(link.Down)
			n.mustBeat()
			n.editStamp(73 * year)
			n.cloudLink.Set(link.Up)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(n *node) {
				do(n)
				for range 3 {
					before := renewTime(n.cloud.Peek(space, n.name))
					time.Sleep(10 * time.Second)
					n.mustBeat()
					if after := renewTime(n.cloud.Peek(space, n.name)); !after.After(before) {
						t.Errorf("the stamp went from %s to %s", before, after)
					}
					n.wantCopy(false)
				}
				// What was taken once is no new heartbeat.
				before := renewTime(n.cloud.Peek(space, n.name))
				if _, err := n.do(http.MethodPut, n.lease, "?timeout=10s"); err != nil {
					t.Fatal(err)
				}
				if after := renewTime(n.cloud.Peek(space, n.name)); !after.Equal(before) {
					t.Errorf("the stamp went from %s to %s by a heartbeat sent twice", before, after)
				}
			})
		})
	}
}

// TestCloudIsSetBack: the cloud's storage is restored from a backup, so its revisions are lower than those that the hub knows.
// The History is told, however the hub finds out, and is told of no other fall.
func TestCloudIsSetBack(t *testing.T) {
	for name, meet := range map[string]func(*node){
		"by a heartbeat": func(*node) {},
		"after a cut": func(n *node) {
			n.cloudLink.Set(link.Down)
			n.mustBeat()
			n.cloudLink.Set(link.Up)
		},
		"by kubelet's question": func(n *node) {
			if _, err := n.do(http.MethodGet, nil, ""); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(n *node) {
				for range 5 {
					n.mustBeat()
				}
				n.cloudLink.Set(link.Down)
				n.mustBeat()
				n.cloudLink.Set(link.Up)
				n.mustBeat()
				if n.fell != 0 {
					t.Errorf("the revision fell %d times before the cloud was set back", n.fell)
				}
				n.cloud.SetBack(1)
				meet(n)
				for range 3 {
					time.Sleep(10 * time.Second)
					n.mustBeat()
					n.wantCloud()
					n.wantCopy(false)
				}
				if n.fell != 1 {
					t.Errorf("the revision fell %d times in one history, want once", n.fell)
				}
			})
		})
	}
}

// Number is the cloud's history, as the node's hub knows it.
func (n *node) Number() edge.History { return n.fell }

// Went implements History.
func (n *node) Went(_ context.Context, from, to edge.Moment) {
	if from.History == n.fell && to.Before(from) {
		n.fell++
	}
}

func (n *node) mustBeat() {
	n.t.Helper()
	if err := n.beat(); err != nil {
		n.t.Fatal(err)
	}
}

// editStamp puts a stamp so far ahead into the cloud's Lease.
func (n *node) editStamp(ahead time.Duration) {
	n.cloud.Edit(space, n.name, func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(ahead)}
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.DelegateHeartbeat, "true")
	})
}

func TestCutAndHealed(t *testing.T) {
	run(t, func(n *node) {
		before := n.lease
		// The cut is not known yet: this heartbeat finds it, and is itself delegated.
		n.cloud.Before(hubtest.Hang)
		began := time.Now()
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > cloudLongest {
			t.Errorf("kubelet waited %s", took)
		}
		n.wantCopy(true)
		if n.lease.UID != before.UID || n.lease.ResourceVersion != before.ResourceVersion {
			t.Errorf("kubelet sees %s/%s, the cloud's last was %s/%s", n.lease.UID, n.lease.ResourceVersion,
				before.UID, before.ResourceVersion)
		}
		n.cloudLink.Set(link.Down)
		n.cloud.Calls()
		for range 3 {
			time.Sleep(10 * time.Second)
			if err := n.beat(); err != nil {
				t.Fatal(err)
			}
			n.wantCopy(true)
			n.forwardAsLeader()
		}
		if got := verbs(n.cloud); len(got) != 0 {
			t.Errorf("the hub sent %v over a link that is down", got)
		}
		if got, err := n.do(http.MethodGet, nil, ""); err != nil || !renewTime(got).Equal(renewTime(n.lease)) {
			t.Errorf("GET while cut: %v, %v; want the Lease with kubelet's last stamp", got, err)
		}
		n.cloud.Before(nil)
		n.cloudLink.Set(link.Up)
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCloud()
		n.wantCopy(false)
		if got := verbs(n.cloud); !slices.Equal(got, []string{"get", "update"}) {
			t.Errorf("cloud saw %v after healing, want a look and one update, no conflict", got)
		}
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		if got := verbs(n.cloud); !slices.Equal(got, []string{"update"}) {
			t.Errorf("cloud saw %v for the next one, want one update", got)
		}
	})
}

func TestLinkFoundDownWhileHanging(t *testing.T) {
	run(t, func(n *node) {
		n.cloud.Before(hubtest.Hang)
		began := time.Now()
		done := make(chan error)
		go func() { done <- n.beat() }()
		time.Sleep(time.Second)
		n.cloudLink.Set(link.Down)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %s, want to give up as soon as the link is down", took)
		}
		n.wantCopy(true)
	})
}

func TestKubeletIsAnsweredInTime(t *testing.T) {
	for _, tt := range []struct {
		seconds int32
		query   string
		want    time.Duration
	}{
		{40, "?timeout=10s", 9 * time.Second},
		{8, "?timeout=8s", 1800 * time.Millisecond},
		{40, "?timeout=2s", 1800 * time.Millisecond},
		{40, "", 9 * time.Second},
		{1 << 30, "", 9 * time.Second},
		{40, "?timeout=forever", 9 * time.Second},
	} {
		t.Run(fmt.Sprint(tt.seconds, tt.query), func(t *testing.T) {
			run(t, func(n *node) {
				n.cloud.Before(hubtest.Hang)
				n.coordinator.Before(hubtest.Hang)
				sent := n.stamp(n.lease)
				sent.Spec.LeaseDurationSeconds = &tt.seconds
				began := time.Now()
				_, err := n.do(http.MethodPut, sent, tt.query)
				if took := time.Since(began); took > tt.want {
					t.Errorf("both sides hang: answered after %s, want %s at most", took, tt.want)
				}
				if !apierrors.IsServiceUnavailable(err) {
					t.Errorf("answered %v, want 503", err)
				}
			})
		})
	}
}

// TestLineIsTold: the coordinator's copy says what heartbeats take to the cloud, once that is known, and how many were lost.
func TestLineIsTold(t *testing.T) {
	run(t, func(n *node) {
		slow := func(ctx context.Context, c hubtest.LeaseCall) error {
			if c.Verb != "update" {
				return nil
			}
			select {
			case <-time.After(300 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		n.cloud.Before(slow)
		line := func() string { return n.coordinator.Peek(space, n.name).Annotations[edge.AnnotationLine] }
		if said := line(); said != "" {
			t.Errorf("after one heartbeat it says %q", said)
		}
		for range 60 {
			n.mustBeat()
		}
		if said := line(); said != "299/0/0/free" && said != "300/0/0/free" {
			t.Errorf("it says %q of answers that take 300 ms", said)
		}
		n.cloud.Before(hubtest.Hang)
		n.mustBeat()
		n.cloud.Before(slow)
		n.mustBeat()
		synctest.Wait()
		if said := line(); !strings.HasSuffix(said, "/1/free") {
			t.Errorf("after a lost heartbeat it says %q", said)
		}
	})
}

func TestSlowCoordinatorDelaysNothing(t *testing.T) {
	run(t, func(n *node) {
		n.coordinator.Before(hubtest.Hang)
		for range 10 {
			began := time.Now()
			if err := n.beat(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("the heartbeat waited %s", took)
			}
			time.Sleep(time.Second)
		}
		n.wantCloud()
		n.coordinator.Before(nil)
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCopy(false)
	})
}

// TestACopyIsGivenUp: a coordinator that hangs is waited for only so long, though nobody waits for the copy.
func TestACopyIsGivenUp(t *testing.T) {
	run(t, func(n *node) {
		n.coordinator.Before(hubtest.Hang)
		n.mustBeat()
		c := n.proxy.copiers[0]
		writes := func(want bool) {
			t.Helper()
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			if writes := c.recall != nil; writes != want || c.waiting != nil {
				t.Errorf("a copy is being written: %t, and one waits: %t", writes, c.waiting != nil)
			}
		}
		writes(true)
		time.Sleep(copyLongest - time.Millisecond)
		writes(true)
		time.Sleep(time.Millisecond)
		writes(false)
	})
}

func TestBothLinksDown(t *testing.T) {
	run(t, func(n *node) {
		n.cloudLink.Set(link.Down)
		n.coordinatorLink.Set(link.Down)
		began := time.Now()
		err := n.beat()
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "link down") {
			t.Errorf("answered %v, want 503 and why", err)
		}
		if time.Since(began) != 0 {
			t.Errorf("took %s", time.Since(began))
		}
	})
}

// TestCloudThatFails: heartbeats while the cloud can't take them. The first heartbeat that fails is delegated, and the first
// that the cloud takes is not.
func TestCloudThatFails(t *testing.T) {
	for _, state := range []link.State{link.Up, link.Failing} {
		for _, code := range []int{
			http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
			http.StatusTooManyRequests,
		} {
			t.Run(fmt.Sprintf("%d while %v", code, state), func(t *testing.T) {
				run(t, func(n *node) {
					n.cloudLink.Set(state)
					leases := coordinationv1.Resource("leases")
					fails := apierrors.NewGenericServerResponse(code, "put", leases, "n1", "", 0, false)
					n.cloud.Before(func(context.Context, hubtest.LeaseCall) error { return fails })
					if err := n.beat(); err != nil {
						t.Fatal(err)
					}
					n.wantCopy(true)
					n.forwardAsLeader()
					if got, err := n.do(http.MethodGet, nil, ""); err != nil || !renewTime(got).Equal(renewTime(n.lease)) {
						t.Errorf("GET: %v, %v; want the Lease with kubelet's last stamp", got, err)
					}
					n.cloud.Before(nil)
					time.Sleep(10 * time.Second)
					if err := n.beat(); err != nil {
						t.Fatal(err)
					}
					n.wantCloud()
					n.wantCopy(false)
					n.cloud.Before(func(context.Context, hubtest.LeaseCall) error { return fails })
					n.coordinatorLink.Set(link.Down)
					if err := n.beat(); !apierrors.IsServiceUnavailable(err) {
						t.Errorf("without a coordinator kubelet is told %v", err)
					}
				})
			})
		}
	}
}

func TestCloudsAnswers(t *testing.T) {
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "n1", errors.New("no"))
	tests := []struct {
		name  string
		fault func(*node)
		want  func(error) bool
		// calls is what the cloud sees of one heartbeat
		calls []string
	}{
		{"an error is passed on", func(n *node) {
			n.cloud.Before(func(context.Context, hubtest.LeaseCall) error { return forbidden })
		}, apierrors.IsForbidden, []string{"update"}},
		{"moved on by a leader", func(n *node) { n.forwardAsLeader() }, nil, []string{"update", "get", "update"}},
		{"moved on, and again", func(n *node) {
			moves := 0
			n.cloud.Before(func(_ context.Context, c hubtest.LeaseCall) error {
				if moves++; c.Verb == "update" && moves < 5 {
					n.forwardAsLeader()
				}
				return nil
			})
		}, nil, []string{"update", "get", "update", "get", "update"}},
		{"moved on without end", func(n *node) {
			n.cloud.Before(func(_ context.Context, c hubtest.LeaseCall) error {
				if c.Verb == "update" {
					n.forwardAsLeader()
				}
				return nil
			})
		}, apierrors.IsConflict, []string{"update", "get", "update", "get", "update"}},
		{"gone: kubelet is told, and makes it", func(n *node) { n.cloud.Remove(space, n.name) },
			apierrors.IsConflict, []string{"update", "get"}},
		{"gone and made by a leader: another uid", func(n *node) {
			n.cloud.Remove(space, n.name)
			n.forwardAsLeader()
		}, nil, []string{"update", "get", "update"}},
		{"the answer is lost: delegated, though the cloud has it", func(n *node) {
			n.cloud.After(func(context.Context, hubtest.LeaseCall) error { return errors.New("connection reset") })
		}, nil, []string{"update"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(n *node) {
				tt.fault(n)
				err := n.beat()
				if tt.want == nil && err != nil || tt.want != nil && !tt.want(err) {
					t.Errorf("kubelet is told %v", err)
				}
				if got := verbs(n.cloud); !slices.Equal(got, tt.calls) {
					t.Errorf("cloud saw %v, want %v", got, tt.calls)
				}
				n.cloud.Before(nil)
				n.cloud.After(nil)
				if n.cloud.Peek(space, n.name) == nil {
					if _, err := n.do(http.MethodGet, nil, ""); !apierrors.IsNotFound(err) {
						t.Errorf("GET of a Lease that is gone: %v", err)
					}
					n.register()
				}
				time.Sleep(10 * time.Second)
				if err := n.beat(); err != nil {
					t.Errorf("the next heartbeat: %v", err)
				}
				n.wantCloud()
				n.wantCopy(false)
			})
		})
	}
}

func TestCoordinatorsCopy(t *testing.T) {
	tests := []struct {
		name  string
		fault func(*hubtest.LeaseServer)
		calls []string
	}{
		{"coordinator back empty", func(s *hubtest.LeaseServer) { s.Restart(3) }, []string{"update", "get", "create"}},
		{"written by somebody else", func(s *hubtest.LeaseServer) {
			s.Edit(space, "n1", func(l *coordinationv1.Lease) { l.Labels = map[string]string{"x": "y"} })
		}, []string{"update", "get", "update"}},
		{"back empty, and made by somebody else", func(s *hubtest.LeaseServer) {
			s.Restart(3)
			s.Edit(space, "n1", func(*coordinationv1.Lease) {})
		}, []string{"update", "get", "update"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run(t, func(n *node) {
				tt.fault(n.coordinator)
				n.cloudLink.Set(link.Down)
				if err := n.beat(); err != nil {
					t.Fatal(err)
				}
				n.wantCopy(true)
				if got := verbs(n.coordinator); !slices.Equal(got, tt.calls) {
					t.Errorf("coordinator saw %v, want %v", got, tt.calls)
				}
			})
		})
	}
}

func TestHubRestartedWhileCut(t *testing.T) {
	run(t, func(n *node) {
		identity := n.lease
		n.cloudLink.Set(link.Down)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.coordinator.Edit(space, n.name, func(l *coordinationv1.Lease) { // as the coordinator does for its own node
			l.Annotations[edge.AnnotationCoordinatorHost] = "true"
		})
		n.restartHub()
		// kubelet restarted too: it looks before it renews.
		got, err := n.do(http.MethodGet, nil, "")
		if err != nil || got.UID != identity.UID || got.ResourceVersion != identity.ResourceVersion {
			t.Fatalf("GET = %v, %v; want the cloud's Lease, from its copy", got, err)
		}
		n.restartHub()
		// kubelet goes on with what it has.
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		if n.lease.UID != identity.UID || n.lease.ResourceVersion != identity.ResourceVersion {
			t.Errorf("kubelet sees %s/%s, the cloud's is %s/%s", n.lease.UID, n.lease.ResourceVersion,
				identity.UID, identity.ResourceVersion)
		}
		n.forwardAsLeader()
		n.cloudLink.Set(link.Up)
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCloud()
		n.wantCopy(false)

		n.restartHub()
		n.cloudLink.Set(link.Down)
		n.coordinatorLink.Set(link.Down)
		if _, err := n.do(http.MethodGet, nil, ""); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("GET with nothing known: %v, want 503", err)
		}
	})
}

func TestUnknownLinkDoesNotTaint(t *testing.T) {
	run(t, func(n *node) {
		n.cloudLink.Set(link.Unknown)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCloud()
		n.wantCopy(false)
		for _, c := range n.coordinator.Calls() {
			if c.Lease != nil && c.Lease.Labels[edge.DelegateHeartbeat] != "" {
				t.Error("marked although the cloud took it")
			}
		}
		n.cloud.Before(hubtest.Hang)
		time.Sleep(10 * time.Second)
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCopy(true)
	})
}

func TestBadRequests(t *testing.T) {
	run(t, func(n *node) {
		target := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
		other := n.lease.DeepCopy()
		other.Name = "n2"
		if _, err := n.do(http.MethodPut, other, ""); !apierrors.IsBadRequest(err) {
			t.Errorf("another node's Lease: %v, want 400", err)
		}
		if _, err := n.do(http.MethodDelete, nil, ""); !apierrors.IsMethodNotSupported(err) {
			t.Errorf("DELETE: %v, want 405", err)
		}
		for _, tt := range []struct {
			media, body string
			want        int
		}{
			{"application/json", "{", 400},
			{"application/json", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n1"}}`, 400},
			{"application/json", `{"x":"` + strings.Repeat("y", maxBody) + `"}`, 413},
			{"application/vnd.kubernetes.protobuf", "k8s\x00garbage", 400},
			{"image/png", "", 415},
			{"; ;", "", 400},
		} {
			r := httptest.NewRequestWithContext(n.t.Context(), http.MethodPut, target, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.media)
			w := httptest.NewRecorder()
			n.proxy.ServeHTTP(w, r)
			if w.Code != tt.want || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
				t.Errorf("%s %.20q: %d %s, want %d and a Status", tt.media, tt.body, w.Code, w.Body, tt.want)
			}
		}
		if got := verbs(n.cloud); len(got) != 0 {
			t.Errorf("the cloud was bothered with %v", got)
		}
	})
}

func TestKubeletGoneIsNoCut(t *testing.T) {
	run(t, func(n *node) {
		n.cloud.Before(hubtest.Hang)
		ctx, cancel := context.WithTimeout(n.t.Context(), time.Second)
		defer cancel()
		sent := n.stamp(n.lease)
		ctx, kill := context.WithCancel(ctx)
		time.AfterFunc(100*time.Millisecond, kill)
		limits := budget{answer: time.Second, cloud: 500 * time.Millisecond}
		_, err := n.proxy.beat(ctx, sent, limits, func(ctx context.Context) (*coordinationv1.Lease, error) {
			return n.proxy.update(ctx, sent, metav1.UpdateOptions{})
		})
		if err == nil {
			t.Error("no error")
		}
		synctest.Wait()
		if a, _ := delegatedLease(n.coordinator.Peek(space, n.name)); a {
			t.Error("a kubelet that went away made its node delegated")
		}
	})
}

// TestResultsAreThereBefore: each result has its series before it happens, so that the first lost heartbeat shows as an increase.
func TestResultsAreThereBefore(t *testing.T) {
	registry := prometheus.NewRegistry()
	NewProxy(ProxyConfig{Node: "n1", Metrics: registry})
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 5 {
		t.Errorf("before any heartbeat there are %v, %v; want a series for each of five results", families, err)
	}
}

// TestWithoutACoordinator: heartbeats go to the cloud, for as long as kubelet waits, and nowhere else.
func TestWithoutACoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := hubtest.NewLeaseServer(10)
		n := &node{
			t: t, name: "n1", cloud: cloud, media: runtime.ContentTypeProtobuf, cloudLink: live.NewValue(link.Up),
			coordinatorLink: live.NewValue(link.Down),
		}
		n.proxy = NewProxy(ProxyConfig{
			Node: "n1", Cloud: cloud.Client("n1"), CloudLink: n.cloudLink, Metrics: prometheus.NewRegistry(), History: n,
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- n.proxy.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		stored := cloud.Edit(space, "n1", func(l *coordinationv1.Lease) {
			l.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		})
		beat := func() error {
			lease := stored.DeepCopy()
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			got, err := n.do(http.MethodPut, lease, "?timeout=10s")
			if err == nil && !got.Spec.RenewTime.Equal(lease.Spec.RenewTime) {
				t.Errorf("kubelet is told of %v, want its own %v", got.Spec.RenewTime, lease.Spec.RenewTime)
			}
			return err
		}
		if err := beat(); err != nil {
			t.Fatal(err)
		}
		cloud.Before(func(ctx context.Context, _ hubtest.LeaseCall) error {
			select {
			case <-time.After(8 * time.Second): // more than half of what kubelet waits: nobody else could take it
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err := beat(); err != nil {
			t.Errorf("a cloud that takes 8 s: %v", err)
		}
		n.cloudLink.Set(link.Down)
		if err := beat(); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("while cut off: %v, want 503", err)
		}
		if got, err := n.do(http.MethodGet, nil, ""); err != nil || got.UID != stored.UID {
			t.Errorf("while cut off kubelet reads %v, %v, want the Lease that it had", got, err)
		}
		n.cloudLink.Set(link.Up)
		cloud.Before(func(context.Context, hubtest.LeaseCall) error { return nil })
		cloud.SetBack(1)
		if err := beat(); err != nil || n.fell != 1 {
			t.Errorf("a cloud that was set back: %v; its revision fell %d times, want once", err, n.fell)
		}
	})
}
