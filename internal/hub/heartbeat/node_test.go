package heartbeat

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/prometheus/client_golang/prometheus"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/hubtest"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
)

const space = "kube-node-lease"

// node is a node of a test: its kubelet's view of its Lease, and its hub's Proxy between two servers.
type node struct {
	t                          *testing.T
	name                       string
	cloud, coordinator         *hubtest.LeaseServer
	cloudLink, coordinatorLink *live.Value[link.State]
	standby                    *hubtest.LeaseServer // nil means that the pool has one coordinator
	standbyLink                *live.Value[link.State]
	proxy                      *Proxy
	stop                       func()
	lease                      *coordinationv1.Lease // kubelet's latest
	media                      string
	kubelet                    edge.KubeletServing
	relaysAt                   string
	relayed                    edge.Relayed
	clock                      atomic.Int64 // how far kubelet's clock is ahead, as a time.Duration
	fell                       edge.History // how often the cloud's revision of the Lease fell
}

func newNode(t *testing.T, name string, cloud, coordinator *hubtest.LeaseServer) *node {
	n := &node{
		t: t, name: name, cloud: cloud, coordinator: coordinator, media: runtime.ContentTypeProtobuf,
		cloudLink: live.NewValue(link.Up), coordinatorLink: live.NewValue(link.Up),
		kubelet: edge.KubeletServing{Way: edge.KubeletPinned, Digest: strings.Repeat("0a", 32)},
		relayed: edge.Relayed{By: "neighbour"},
	}
	n.restartHub()
	return n
}

func (n *node) restartHub() {
	n.t.Helper()
	if n.stop != nil {
		n.stop()
	}
	n.proxy = NewProxy(ProxyConfig{
		Node: edge.NodeName(n.name), Cloud: n.cloud.Client(n.name), CloudLink: n.cloudLink,
		Coordinators: n.coordinators(), Metrics: prometheus.NewRegistry(),
		Report:  func() edge.HubReport { return edge.HubReport{Link: "up", Settings: 3} },
		Traffic: func() edge.Traffic { return edge.Traffic{Sent: 1, Received: 2, Since: time.Unix(3, 0)} },
		Kubelet: func() edge.KubeletServing { return n.kubelet },
		Version: "v0.2.0",
		Relayed: func() edge.Relayed { return n.relayed }, RelaysAt: func() string { return n.relaysAt },
		History: n,
	})
	ctx, cancel := context.WithCancel(klog.NewContext(n.t.Context(), ktesting.NewLogger(n.t, ktesting.NewConfig())))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.proxy.Run(ctx); err != nil {
			n.t.Errorf("Run = %v", err)
		}
	}()
	n.stop = func() {
		cancel()
		<-done
	}
}

// coordinators are the pool's: one, and a standby if the node has one.
func (n *node) coordinators() []Coordinator {
	all := []Coordinator{
		{Leases: n.coordinator.Client(n.name), Link: n.coordinatorLink},
	}
	if n.standby != nil {
		all = append(all, Coordinator{Leases: n.standby.Client(n.name), Link: n.standbyLink})
	}
	return all
}

// do sends a request to the hub as kubelet does, and decodes the answer.
func (n *node) do(method string, body *coordinationv1.Lease, query string) (*coordinationv1.Lease, error) {
	n.t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), n.media)
	var content bytes.Buffer
	if body != nil {
		encoder := scheme.Codecs.EncoderForVersion(info.Serializer, coordinationv1.SchemeGroupVersion)
		if err := encoder.Encode(body, &content); err != nil {
			n.t.Fatal(err)
		}
	}
	path := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	if method != http.MethodPost {
		path += "/" + n.name
	}
	r := httptest.NewRequestWithContext(n.t.Context(), method, path+query, &content)
	r.Header.Set("Content-Type", n.media)
	r.Header.Set("Accept", n.media+",application/json")
	r.Header.Set("User-Agent", "kubelet/v1.36.3 (linux/amd64)")
	w := httptest.NewRecorder()
	n.proxy.ServeHTTP(w, r)
	if got := w.Header().Get("Content-Type"); got != n.media {
		n.t.Fatalf("answer is %q, asked for %q", got, n.media)
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(w.Body.Bytes(), nil, nil)
	if err != nil {
		n.t.Fatalf("answer %d does not decode: %v", w.Code, err)
	}
	switch o := object.(type) {
	case *metav1.Status:
		if w.Code != int(o.Code) {
			n.t.Errorf("answered %d with a status of %d", w.Code, o.Code)
		}
		return nil, &apierrors.StatusError{ErrStatus: *o}
	case *coordinationv1.Lease:
		if (w.Code == http.StatusCreated) != (method == http.MethodPost) {
			n.t.Errorf("a %s is answered with %d", method, w.Code)
		}
		n.clean(o)
		return o, nil
	}
	n.t.Fatalf("answer is a %T", object)
	return nil, nil
}

func (n *node) clean(l *coordinationv1.Lease) {
	n.t.Helper()
	for _, m := range []map[string]string{l.Annotations, l.Labels} {
		for _, key := range []string{
			edge.DelegateHeartbeat, edge.AnnotationCoordinatorHost, AnnotationCloudLease, edge.AnnotationTraffic,
			edge.AnnotationKubelet, edge.AnnotationLine, edge.AnnotationRelayedBy, edge.AnnotationRelaysAt,
			edge.AnnotationHubVersion, edge.AnnotationHub,
		} {
			if _, ok := m[key]; ok {
				n.t.Errorf("kubelet sees %s", key)
			}
		}
	}
}

// register makes the Lease as kubelet does at its start: by POST, which does not pass through the Proxy.
func (n *node) register() {
	n.t.Helper()
	created, err := n.cloud.Leases(space).Create(n.t.Context(), n.stamp(nil), metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.lease = created
}

func (n *node) stamp(base *coordinationv1.Lease) *coordinationv1.Lease {
	l := base.DeepCopy()
	if l == nil {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: space, Name: n.name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.name, UID: "node-uid"}},
		}}
	}
	now, seconds := metav1.NewMicroTime(time.Now().Add(time.Duration(n.clock.Load()))), int32(40)
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &n.name, &seconds, &now
	return l
}

// beat sends one heartbeat as kubelet does, without its retries.
func (n *node) beat() error {
	n.t.Helper()
	sent := n.stamp(n.lease)
	got, err := n.do(http.MethodPut, sent, "?timeout=10s")
	if err != nil {
		return err
	}
	if !got.Spec.RenewTime.Truncate(time.Microsecond).Equal(sent.Spec.RenewTime.Truncate(time.Microsecond)) {
		n.t.Errorf("answered with the stamp %s, sent %s", got.Spec.RenewTime, sent.Spec.RenewTime)
	}
	n.lease = got
	return nil
}

func delegatedLease(l *coordinationv1.Lease) (annotation, label bool) {
	return l.GetAnnotations()[edge.DelegateHeartbeat] == "true", l.GetLabels()[edge.DelegateHeartbeat] == "true"
}

// wantCopy checks the coordinator's copy.
func (n *node) wantCopy(marked bool) {
	n.t.Helper()
	synctest.Wait()
	l := n.coordinator.Peek(space, n.name)
	if l == nil {
		n.t.Fatal("the coordinator has no copy")
	}
	if a, b := delegatedLease(l); a != marked || b != marked {
		n.t.Errorf("copy has annotation=%v label=%v, want both %v", a, b, marked)
	}
	if !renewTime(l).Equal(renewTime(n.lease)) {
		n.t.Errorf("copy stamped %s, kubelet's last is %s", renewTime(l), renewTime(n.lease))
	}
	if said := l.Annotations[edge.AnnotationTraffic]; said != "1/2/3" {
		n.t.Errorf("copy says %q of the link's traffic", said)
	}
	if said := l.Annotations[edge.AnnotationHubVersion]; said != "v0.2.0" {
		n.t.Errorf("copy says that the hub is of %q", said)
	}
	if said, ok := edge.ParseHubReport(l.Annotations[edge.AnnotationHub]); !ok || said.Link != "up" || said.Settings != 3 {
		n.t.Errorf("copy says of the hub %+v, %t", said, ok)
	}
	if said, ok := l.Annotations[edge.AnnotationKubelet]; said != n.kubelet.String() || ok != (n.kubelet.Way != "") {
		n.t.Errorf("copy says %q of kubelet's certificate, want %q", said, n.kubelet)
	}
	if len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != "node-uid" {
		n.t.Errorf("copy owned by %v, want the Node", l.OwnerReferences)
	}
	if c := n.cloud.Peek(space, n.name); c != nil && l.UID == c.UID {
		n.t.Error("the copy has the cloud's uid")
	}
}

// wantCloud checks that the cloud has kubelet's last heartbeat, without marks.
func (n *node) wantCloud() {
	n.t.Helper()
	l := n.cloud.Peek(space, n.name)
	if !renewTime(l).Equal(renewTime(n.lease)) {
		n.t.Errorf("the cloud has the stamp %s, kubelet's last is %s", renewTime(l), renewTime(n.lease))
	}
	n.clean(l)
	if n.lease.UID != l.UID || n.lease.ResourceVersion != l.ResourceVersion {
		n.t.Errorf("kubelet sees %s/%s, the cloud's is %s/%s", n.lease.UID, n.lease.ResourceVersion, l.UID,
			l.ResourceVersion)
	}
}

func verbs(s *hubtest.LeaseServer) (verbs []string) {
	for _, c := range s.Calls() {
		verbs = append(verbs, c.Verb)
	}
	return verbs
}

// forwardAsLeader writes the node's copy to the cloud as another hub would.
func (n *node) forwardAsLeader() {
	copied := n.coordinator.Peek(space, n.name)
	n.cloud.Edit(space, n.name, func(l *coordinationv1.Lease) {
		copied.Spec.DeepCopyInto(&l.Spec)
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, edge.DelegateHeartbeat, "true")
	})
}

// run gives a test a registered node with one good heartbeat behind it.
func run(t *testing.T, test func(*node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, "n1", hubtest.NewLeaseServer(5000), hubtest.NewLeaseServer(10))
		defer func() {
			n.cloud.Before(nil)
			n.coordinator.Before(nil)
			n.stop()
		}()
		n.register()
		if err := n.beat(); err != nil {
			t.Fatal(err)
		}
		n.wantCloud()
		n.wantCopy(false)
		n.cloud.Calls()
		n.coordinator.Calls()
		time.Sleep(10 * time.Second)
		test(n)
	})
}
