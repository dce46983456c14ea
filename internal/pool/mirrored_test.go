package pool

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// A cloud's objects, with all that a server adds to what a client has sent.
func cloudMeta(name string, revision int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: types.UID("uid-of-" + name), ResourceVersion: fmt.Sprint(revision), Generation: 3,
		CreationTimestamp: metav1.Unix(1_600_000_000, 0),
		Labels:            map[string]string{"app": "web", discoveryv1.LabelServiceName: "web"},
		OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "web", UID: "uid-of-web"}},
		Finalizers:        []string{"example.org/finalizer"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1",
			Time: &metav1.Time{Time: time.Unix(1_600_000_001, 0)}, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app":{}}}}`),
		}},
	}
}

func cloudSlice(name string, revision int, addresses ...string) *discoveryv1.EndpointSlice {
	ready, port, portName, protocol := true, int32(8080), "http", corev1.ProtocolTCP
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: cloudMeta(name, revision), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &port, Protocol: &protocol}},
	}
	for i, address := range addresses {
		nodeName := fmt.Sprintf("n%d", i)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{address}, NodeName: &nodeName,
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: name + "-" + nodeName},
		})
	}
	return s
}

func cloudService(revision int) *corev1.Service {
	policy, family := corev1.IPFamilyPolicySingleStack, corev1.IPv4Protocol
	internal := corev1.ServiceInternalTrafficPolicyCluster
	return &corev1.Service{
		ObjectMeta: cloudMeta("web", revision),
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.3.4", ClusterIPs: []string{"10.96.3.4"}, Type: corev1.ServiceTypeClusterIP,
			IPFamilies: []corev1.IPFamily{family}, IPFamilyPolicy: &policy, InternalTrafficPolicy: &internal,
			SessionAffinity: corev1.ServiceAffinityNone, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080), Protocol: corev1.ProtocolTCP},
			},
		},
	}
}

func cloudEndpoints(revision int) *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: cloudMeta("web", revision),
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}, Ports: []corev1.EndpointPort{{Port: 8080, Protocol: "TCP"}},
		}},
	}
}

func asObject(t testing.TB, o interface {
	metav1.Object
	Marshal() ([]byte, error)
}) stream.Object {
	t.Helper()
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	revision, err := edge.ParseRevision(o.GetResourceVersion())
	if err != nil {
		t.Fatal(err)
	}
	return stream.Object{Key: stream.Key{Namespace: o.GetNamespace(), Name: o.GetName()}, Revision: revision, Raw: raw}
}

func protobufType(kind schema.GroupVersionKind) stream.Type {
	return stream.Type{GroupVersionKind: kind, Encoding: stream.Protobuf}
}

// lead makes a node the leader, under a term of 10 s by the coordinator's clock.
func (c *coordinator) lead(t testing.TB, name string, transitions int) {
	t.Helper()
	_, err := c.as(t, node(name)).CoordinationV1().Leases(edge.NamespaceSystem).Patch(t.Context(), edge.LeaseElection,
		types.MergePatchType, fmt.Appendf(nil,
			`{"spec":{"holderIdentity":%q,"leaseDurationSeconds":10,"leaseTransitions":%d,"renewTime":%q}}`,
			name, transitions, time.Now().UTC().Format(metav1.RFC3339Micro)), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (c *coordinator) certificate(t testing.TB, subject pkix.Name) tls.Certificate {
	t.Helper()
	return c.ca.issue(t, subject, tomorrow()).tls(t)
}

func (c *coordinator) push(
	t testing.TB, client *http.Client, r schema.GroupVersionResource, from edge.Revision, term int32, body io.Reader,
) answer {
	t.Helper()
	return do(t, client, http.MethodPost, "https://"+c.address+target(r, from, term), stream.Protobuf.ContentType(true), body, "")
}

var (
	sliceKind       = discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice")
	serviceResource = corev1.SchemeGroupVersion.WithResource("services")
	endpoints       = corev1.SchemeGroupVersion.WithResource("endpoints")
)

// TestTheAPIShowsWhatTheCloudHas: through kube-apiserver, everything but resourceVersion is the cloud's.
func TestTheAPIShowsWhatTheCloudHas(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	ctx := t.Context()
	c.lead(t, "n1", 1)
	leader := c.http(t, c.certificate(t, node("n1")))
	alice := c.as(t, operator())
	a, b := cloudSlice("web-a", 1001, "10.0.0.1", "10.0.0.2"), cloudSlice("web-b", 1002, "10.0.0.3")
	service, ends := cloudService(900), cloudEndpoints(950)
	for r, body := range map[schema.GroupVersionResource]*bytes.Buffer{
		sliceResource: frames(t, protobufType(sliceKind), wholeStream(2000, asObject(t, a), asObject(t, b))...),
		serviceResource: frames(t, protobufType(corev1.SchemeGroupVersion.WithKind("Service")),
			wholeStream(2001, asObject(t, service))...),
		endpoints: frames(t, protobufType(corev1.SchemeGroupVersion.WithKind("Endpoints")),
			wholeStream(2002, asObject(t, ends))...),
	} {
		if a := c.push(t, leader, r, 0, 1, body); a.code != http.StatusOK || a.applied < 2000 {
			t.Fatalf("push %s: %d %s", r.Resource, a.code, a.body)
		}
	}

	slicesOf := alice.DiscoveryV1().EndpointSlices("shop")
	list, err := slicesOf.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("list: %+v, %v", list, err)
	}
	equal := func(what string, got, want metav1.Object) {
		t.Helper()
		if got.GetResourceVersion() == want.GetResourceVersion() || got.GetResourceVersion() == "" {
			t.Errorf("%s has revision %q", what, got.GetResourceVersion())
		}
		got.SetResourceVersion(want.GetResourceVersion())
		if !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v, want\n%+v", what, got, want)
		}
	}
	equal("a listed", &list.Items[0], a)
	equal("b listed", &list.Items[1], b)
	gotSlice, err := slicesOf.Get(ctx, "web-a", metav1.GetOptions{})
	allowed(t, "get", err)
	equal("a", gotSlice, a)
	gotService, err := alice.CoreV1().Services("shop").Get(ctx, "web", metav1.GetOptions{})
	allowed(t, "get", err)
	equal("the Service", gotService, service)
	gotEndpoints, err := alice.CoreV1().Endpoints("shop").Get(ctx, "web", metav1.GetOptions{})
	allowed(t, "get", err)
	equal("the Endpoints", gotEndpoints, ends)

	table, err := alice.DiscoveryV1().RESTClient().Get().Namespace("shop").Resource("endpointslices").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	if err != nil || !strings.Contains(string(table), `"kind":"Table"`) || !strings.Contains(string(table), "10.0.0.3") {
		t.Errorf("table: %s, %v", table, err)
	}
	selected, err := slicesOf.List(ctx, metav1.ListOptions{LabelSelector: "app=web", FieldSelector: "metadata.name=web-b"})
	if err != nil || len(selected.Items) != 1 {
		t.Errorf("selected: %+v, %v", selected, err)
	}

	// A watch sees what is pushed, once each, and deletions after all else.
	w, err := slicesOf.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	changed, added := cloudSlice("web-b", 2010, "10.0.0.9"), cloudSlice("web-c", 2012, "10.0.0.4")
	gone := cloudSlice("web-a", 2011)
	answer := c.push(t, leader, sliceResource, 2000, 1, frames(t, protobufType(sliceKind),
		stream.Event{Type: stream.Modified, Object: asObject(t, changed)},
		stream.Event{Type: stream.Deleted, Object: asObject(t, gone)},
		stream.Event{Type: stream.Added, Object: asObject(t, added)},
		stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 2050}}))
	if answer.code != http.StatusOK || answer.applied != 2050 {
		t.Fatalf("%d %s", answer.code, answer.body)
	}
	for _, want := range []struct {
		kind   watch.EventType
		object metav1.Object
	}{{watch.Modified, changed}, {watch.Added, added}, {watch.Deleted, a}} {
		select {
		case event := <-w.ResultChan():
			got, ok := event.Object.(*discoveryv1.EndpointSlice)
			if !ok || event.Type != want.kind {
				t.Fatalf("got %+v, want %s", event, want.kind)
			}
			equal(string(want.kind), got, want.object)
		case <-time.After(10 * time.Second):
			t.Fatalf("no event, want %s", want.kind)
		}
	}

	// The mirror itself has the cloud's revisions.
	follower := c.http(t, c.certificate(t, node("n2")))
	code, body := c.get(t, follower, edge.PathMirror+"/discovery.k8s.io/v1/endpointslices")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range []string{`"resourceVersion":"2050"`, `"resourceVersion":"2010"`, `"resourceVersion":"2012"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if code, body := c.get(t, c.http(t, c.certificate(t, operator())), edge.PathMirror); code != http.StatusOK ||
		!strings.Contains(body, `"applied":"2050"`) {
		t.Errorf("index: %d %s", code, body)
	}
}

// TestWhoMayPushAndRead tries all callers that may not.
func TestWhoMayPushAndRead(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	body := func() io.Reader {
		return frames(t, protobufType(sliceKind), wholeStream(2000, asObject(t, cloudSlice("web-a", 1001)))...)
	}
	n1, n2 := c.http(t, c.certificate(t, node("n1"))), c.http(t, c.certificate(t, node("n2")))
	alice := c.http(t, c.certificate(t, operator()))
	admin := c.http(t, c.certificate(t, pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}))
	stranger := c.http(t, newAuthority(t, "another-ca").issue(t, node("n1"), tomorrow()).tls(t))
	refusedPush := func(what string, client *http.Client, term int32, code int) {
		t.Helper()
		if a := c.push(t, client, sliceResource, 0, term, body()); a.code != code {
			t.Errorf("%s: got %d %s, want %d", what, a.code, a.body, code)
		}
	}
	refusedPush("before anybody leads", n1, 0, 403)
	c.lead(t, "n1", 1)
	refusedPush("a follower", n2, 1, 403)
	refusedPush("the leader under another term", n1, 0, 403)
	refusedPush("an operator", alice, 1, 403)
	refusedPush("an administrator of the cloud", admin, 1, 403)
	refusedPush("nobody", c.http(t), 1, 401)
	refusedPush("an unknown certificate", stranger, 1, 401)
	if a := c.push(t, n1, sliceResource, 0, 1, body()); a.code != http.StatusOK {
		t.Fatalf("the leader: %d %s", a.code, a.body)
	}
	c.clock.Step(10 * time.Second)
	refusedPush("a leader that has lapsed", n1, 1, 403)
	c.lead(t, "n2", 2)
	refusedPush("a deposed leader", n1, 1, 403)
	refusedPush("a deposed leader that guesses the term", n1, 2, 403)
	if a := c.push(t, n2, sliceResource, 2000, 2, frames(t, protobufType(sliceKind),
		stream.Event{Type: stream.Added, Object: asObject(t, cloudSlice("web-b", 2001))})); a.code != http.StatusOK {
		t.Errorf("the next leader, from where the mirror stands: %d %s", a.code, a.body)
	}
	list, err := c.as(t, operator()).DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("after a change of leader: %+v, %v", list, err)
	}

	for _, r := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("nodes"),
		corev1.SchemeGroupVersion.WithResource("pods"), {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	} {
		if a := c.push(t, n2, r, 0, 2, body()); a.code != http.StatusForbidden {
			t.Errorf("the leader pushes %s: %d %s", r.Resource, a.code, a.body)
		}
	}

	path := edge.PathMirror + "/discovery.k8s.io/v1/endpointslices"
	for _, who := range []struct {
		name        string
		client      *http.Client
		index, read int
	}{
		{"a follower", n1, 200, 200},
		{"an operator", alice, 200, 403},
		{"an administrator of the cloud", admin, 403, 403},
		{"nobody", c.http(t), 401, 401},
		{"an unknown certificate", stranger, 401, 401},
	} {
		if code, _ := c.get(t, who.client, edge.PathMirror); code != who.index {
			t.Errorf("%s reads the index: %d, want %d", who.name, code, who.index)
		}
		if code, _ := c.get(t, who.client, path); code != who.read {
			t.Errorf("%s reads a resource: %d, want %d", who.name, code, who.read)
		}
	}
	lines := jsonLines[auditLine](t, c.audit)
	for _, why := range []string{
		"nobody holds the Lease", `"n1" is the leader`, "is over", "can be pushed",
	} {
		if !slices.ContainsFunc(lines, func(l auditLine) bool {
			return l.Code == 403 && l.Verb == "post" && strings.Contains(l.Reason, why)
		}) {
			t.Errorf("no line in the log says %q", why)
		}
	}
}

func TestCustomResourcesStayInMemory(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	c.lead(t, "n1", 1)
	leader := c.http(t, c.certificate(t, node("n1")))
	widgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	o := streamtest.Object(streamtest.Widgets, "shop", "w", 100, "x")
	a := do(t, leader, http.MethodPost, "https://"+c.address+target(widgets, 0, 1), "application/json;stream=watch",
		frames(t, streamtest.Widgets, wholeStream(150, o)...), "")
	if a.code != http.StatusOK {
		t.Fatal(a.body)
	}
	code, body := c.get(t, c.http(t, c.certificate(t, node("n2"))), edge.PathMirror+"/example.org/v1/widgets")
	if code != http.StatusOK || !strings.Contains(body, string(o.Raw)) || !strings.Contains(body, `"kind":"WidgetList"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := c.get(t, c.http(t, c.certificate(t, operator())), "/apis/example.org/v1/widgets"); code < 400 {
		t.Errorf("kube-apiserver serves it: %d", code)
	}
}

// TestAStalledPushIsCut goes through the whole chain of kube-apiserver's filters.
func TestAStalledPushIsCut(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) { config.stalledPush = 100 * time.Millisecond })
	c.lead(t, "n1", 1)
	whole := frames(t, protobufType(sliceKind), wholeStream(2000, asObject(t, cloudSlice("web-a", 1001)))...).Bytes()
	// Over HTTP/1.1, by hand: Go's client waits for its own body.
	connection, err := tls.Dial("tcp", c.address, &tls.Config{
		RootCAs: c.roots(), Certificates: []tls.Certificate{c.certificate(t, node("n1"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close() //nolint:errcheck // cut by the server as a rule
	if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		target(sliceResource, 0, 1), c.address, stream.Protobuf.ContentType(true), len(whole), whole[:100])
	told, err := io.ReadAll(connection)
	if errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(string(told), "200 OK") {
		t.Errorf("HTTP/1.1: %s, %v", told, err)
	}
	client := c.http(t, c.certificate(t, node("n1")))
	until := make(chan struct{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+c.address+target(sliceResource, 0, 1),
		&slowly{whole[:100], until})
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", stream.Protobuf.ContentType(true))
	client.Timeout = 10 * time.Second
	response, err := client.Do(r)
	close(until)
	if err != nil {
		t.Fatalf("HTTP/2: %v", err)
	}
	response.Body.Close()
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("HTTP/%d: %s", response.ProtoMajor, response.Status)
	}
	list, err := c.as(t, operator()).DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestAWatchOfTheMirrorEndsWithTheCoordinator and does not hold it up.
func TestAWatchOfTheMirrorEndsWithTheCoordinator(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	c.lead(t, "n1", 1)
	leader := c.http(t, c.certificate(t, node("n1")))
	leader.Timeout = 0
	if a := c.push(t, leader, sliceResource, 0, 1, frames(t, protobufType(sliceKind), wholeStream(2000)...)); a.code != 200 {
		t.Fatal(a.body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"https://"+c.address+edge.PathMirror+"/discovery.k8s.io/v1/endpointslices?watch=1&resourceVersion=2000", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", stream.Protobuf.ContentType(true))
	response, err := leader.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	reader := stream.NewFrameReader(response.Body, stream.Protobuf, 8<<20)
	pushed := asObject(t, cloudSlice("web-a", 2001, "10.0.0.1"))
	if a := c.push(t, leader, sliceResource, 2000, 1,
		frames(t, protobufType(sliceKind), stream.Event{Type: stream.Added, Object: pushed})); a.code != http.StatusOK {
		t.Fatal(a.body)
	}
	event, err := reader.Read()
	if err != nil || event.Object.Revision != 2001 || !bytes.Equal(event.Object.Raw, pushed.Raw) {
		t.Fatalf("%+v, %v", event, err)
	}
	began := time.Now()
	if err := c.stop(t); err != nil {
		t.Error(err)
	}
	t.Logf("stopped in %s", time.Since(began).Round(time.Millisecond))
	if _, err := reader.Read(); err == nil {
		t.Error("the watch goes on")
	}
}

// TestWatchesOfTheAPI: without kube-apiserver's watch cache there are bookmarks, initial events, an end to history.
func TestWatchesOfTheAPI(t *testing.T) {
	t.Parallel()
	const history = 100
	c := start(t, func(config *Config) { config.historyRevisions = history })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leases := c.as(t, node("n1")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	made, err := leases.Create(ctx, heartbeat("n1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	initial := true
	w, err := leases.Watch(ctx, metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: &initial, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		FieldSelector: "metadata.name=n1",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if event := <-w.ResultChan(); event.Type != watch.Added {
		t.Fatalf("got %+v", event)
	}
	end := <-w.ResultChan()
	meta, ok := end.Object.(metav1.Object)
	if end.Type != watch.Bookmark || !ok || meta.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("got %+v, want the end of the initial events", end)
	}
	// Other objects change; the bookmark carries this watch past them, and so past the end of history.
	changeMany(t, c.as(t, node("n2")), 3*history)
	for event := range w.ResultChan() {
		if event.Type != watch.Bookmark {
			t.Fatalf("got %+v, want a bookmark", event)
		}
		if event.Object.(metav1.Object).GetResourceVersion() > made.ResourceVersion {
			break
		}
	}
	if ctx.Err() != nil {
		t.Fatal("no bookmark")
	}
	// History is bounded, and who comes too late is told so.
	if err := eventually(ctx, func() error {
		late, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: made.ResourceVersion})
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return nil
			}
			return err
		}
		defer late.Stop()
		select {
		case event := <-late.ResultChan():
			if status, ok := event.Object.(*metav1.Status); ok && status.Code == http.StatusGone {
				return nil
			}
			return fmt.Errorf("got %+v", event)
		case <-time.After(100 * time.Millisecond):
			return fmt.Errorf("the watch at %s is served", made.ResourceVersion)
		}
	}); err != nil {
		t.Error(err)
	}
}

func changeMany(t *testing.T, client kubernetes.Interface, n int) {
	t.Helper()
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(t.Context(), heartbeat("n2"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
