package thief

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/load"
	"yurtcoordinator/internal/stream"
)

// compareEvery is what stands for an hour here.
const compareEvery = 2 * time.Minute

var liarScenarios = []kit.Scenario{{
	Name: "liar", Run: liar,
	Lab: lab.Config{
		Pools: 1, Nodes: 4, Timing: lab.Quick, Kubelet: lab.Hollow, NoProxy: true,
		HubFlags: []string{"--compare-every=" + compareEvery.String()},
	},
	Doc: "An honest leader is not accused while objects change. Then its machine's owner leads with the node's key and " +
		"pushes false endpoints for a tenth of the EndpointSlices: followers name it by Event and metric within the " +
		"stated time.",
}}

const slicesPath = "/apis/discovery.k8s.io/v1/endpointslices"

func liar(t *kit.T) {
	thief := t.Pool.SettledAway()
	spec := load.Spec{Services: 60, EndpointsEach: 5, Nodes: t.Pool.Nodes()}
	_, err := load.Services(t.Ctx, t.Cloud, spec)
	t.Must(err)
	t.Pool.Shared(30*time.Second, kit.EndpointSlices.Name)
	changes := t.Churn(spec, 2)
	t.Hold(2*compareEvery, "an honest leader brings each change")
	t.End(changes)
	same, lies := 0.0, 0.0
	for _, node := range t.Pool.Nodes() {
		same += t.Node(node).Metric("yurthub_pool_comparisons_total", `result="same"`)
		lies += t.Node(node).Metric("yurthub_pool_lies_total")
	}
	t.Figure("honest_comparisons", same)
	if same < 30 || lies != 0 {
		t.Fail("%v comparisons have shown the same, and %v lies", same, lies)
	}

	t.Say("the owner of %s, which leads, takes its hub away and speaks for it", thief)
	access, err := t.Lab.CoordinatorConfig(1, thief)
	t.Must(err)
	l := &lying{T: t, as: thief, access: access}
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, thief, lab.Hub))
	stop := l.lead()
	defer stop()
	told := time.Now()
	l.lie()
	others := slices.DeleteFunc(t.Pool.Nodes(), func(n string) bool { return n == thief })
	t.Eventually(3*compareEvery+time.Minute, "a follower names "+thief+" by Event and metric", func() error {
		if why := l.failed(); why != nil {
			t.Fail("the liar could not go on: %w", why)
		}
		named := 0.0
		for _, node := range others {
			named += t.Node(node).Metric("yurthub_pool_lies_total", fmt.Sprintf("leader=%q", thief), `kind="differs"`)
		}
		if named == 0 {
			return errors.New("no metric does")
		}
		events, err := t.Cloud.CoreV1().Events(metav1.NamespaceDefault).List(t.Ctx, metav1.ListOptions{})
		t.Must(err)
		for _, e := range events.Items {
			if e.Reason == "PoolResourceLie" && strings.Contains(e.Message, "Node "+thief+" leads the pool") {
				t.Say("%s", e.Message)
				return nil
			}
		}
		return errors.New("no Event does")
	})
	t.Figure("lie_to_named_s", time.Since(told).Seconds())
}

// lying leads a pool with a node's key, and lies.
type lying struct {
	*kit.T
	as     string
	access *rest.Config

	mu  sync.Mutex
	err error
}

func (l *lying) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// lead renews the node's two Leases as its hub did, and brings what changes, until stop is called.
func (l *lying) lead() (stop func()) {
	ctx, cancel := context.WithCancel(l.Ctx)
	var leading sync.WaitGroup
	leases := l.Pool.Coordinator(l.as).CoordinationV1().Leases(edge.NamespaceSystem)
	leading.Go(func() {
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			for _, name := range []string{edge.LeaseElection, edge.LeaseInformerSync} {
				err := change(l.T, leases, name, func(lease *coordinationv1.Lease) {
					now := metav1.NowMicro()
					lease.Spec.HolderIdentity, lease.Spec.RenewTime = &l.as, &now
				})
				if err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
					l.mu.Lock()
					l.err = err
					l.mu.Unlock()
				}
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
	return func() { cancel(); leading.Wait() }
}

// lie changes a tenth of the EndpointSlices in the cloud, and brings them to the coordinator with other addresses.
func (l *lying) lie() {
	all := l.cloud()
	tenth := map[stream.Key]bool{}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.org/changed":%q}}}`, time.Now().String())
	for i, o := range all.Objects {
		if i%8 != 0 || !strings.HasPrefix(o.Key.Name, "load-") {
			continue
		}
		tenth[o.Key] = true
		_, err := l.Cloud.DiscoveryV1().EndpointSlices(o.Key.Namespace).Patch(l.Ctx, o.Key.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
		l.Must(err)
	}
	at := l.push(all.Revision, tenth)
	l.Background.Go(func() {
		ticker := time.NewTicker(2 * time.Second)
		defer ticker.Stop()
		for l.Ctx.Err() == nil {
			err := l.Protect(func(*kit.T) { at = l.push(at, tenth) })
			if err != nil && l.Ctx.Err() == nil {
				l.mu.Lock()
				l.err = err
				l.mu.Unlock()
				return
			}
			select {
			case <-l.Ctx.Done():
			case <-ticker.C:
			}
		}
	})
}

// cloud lists the EndpointSlices in the cloud.
func (l *lying) cloud() stream.Snapshot {
	list, err := l.Cloud.DiscoveryV1().RESTClient().Get().AbsPath(slicesPath).
		SetHeader("Accept", "application/vnd.kubernetes.protobuf").DoRaw(l.Ctx)
	l.Must(err)
	all, _, err := stream.ReadList(bytes.NewReader(list), stream.Protobuf, 64<<20)
	l.Must(err)
	return all
}

// push brings what has changed in the cloud after a revision of it, with lies about some objects, and returns up to where.
func (l *lying) push(after edge.Revision, lies map[stream.Key]bool) edge.Revision {
	all := l.cloud()
	var changed []stream.Event
	for _, o := range all.Objects {
		if o.Revision <= after {
			continue
		}
		if lies[o.Key] {
			lie := bytes.ReplaceAll(o.Raw, []byte("172."), []byte("166.")) // as long as before, so that nothing else changes
			if bytes.Equal(lie, o.Raw) {
				l.Fail("%s has no endpoint to lie about", o.Key)
			}
			o.Raw = lie
		}
		changed = append(changed, stream.Event{Type: stream.Modified, Object: o})
	}
	slices.SortFunc(changed, func(a, b stream.Event) int { return int(a.Object.Revision) - int(b.Object.Revision) })
	changed = append(changed, stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: all.Revision}})
	at, history, term := l.stands()
	var body bytes.Buffer
	frames := stream.NewFrameWriter(&body, all.Type)
	for _, e := range changed {
		if e.Object.Revision > at {
			l.Must(frames.Write(e))
		}
	}
	if body.Len() == 0 {
		return all.Revision
	}
	query := url.Values{"term": {fmt.Sprint(term)}, "from": {at.String()}}
	r, err := http.NewRequestWithContext(l.Ctx, http.MethodPost,
		l.access.Host+edge.PathMirror+"/discovery.k8s.io/v1/endpointslices?"+query.Encode(), &body)
	l.Must(err)
	r.Header.Set("Content-Type", all.Type.Encoding.ContentType(true))
	r.Header.Set(edge.HeaderHistory, history)
	l.do(r)
	return all.Revision
}

// stands returns how far the mirror of EndpointSlices has come, in which history, and in which term.
func (l *lying) stands() (at edge.Revision, history string, term int32) {
	r, err := http.NewRequestWithContext(l.Ctx, http.MethodGet, l.access.Host+edge.PathMirror, http.NoBody)
	l.Must(err)
	r.Header.Set("Accept", "application/json")
	var says struct {
		Resources []struct {
			Resource string
			Applied  edge.Revision `json:",string"`
			History  string
		}
	}
	l.Must(json.Unmarshal(l.do(r), &says))
	for _, each := range says.Resources {
		if each.Resource == "endpointslices" {
			at, history = each.Applied, each.History
		}
	}
	lease, err := l.Pool.Coordinator(l.as).CoordinationV1().Leases(edge.NamespaceSystem).Get(l.Ctx, edge.LeaseElection,
		metav1.GetOptions{})
	l.Must(err)
	return at, history, ptr.Deref(lease.Spec.LeaseTransitions, 0)
}

// do sends a request to the coordinator as the node, and returns the answer.
func (l *lying) do(r *http.Request) []byte {
	client, err := rest.HTTPClientFor(l.access)
	l.Must(err)
	defer client.CloseIdleConnections()
	response, err := client.Do(r)
	l.Must(err)
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	l.Must(err)
	if response.StatusCode != http.StatusOK || bytes.Contains(said, []byte(`"code":`)) {
		l.Fail("%s %s: %s: %s", r.Method, r.URL.Path, response.Status, said)
	}
	return said
}
