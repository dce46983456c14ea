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
	"strconv"
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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/stream"
	"yurtcoordinator/internal/stream/streamtest"
)

// lead makes a node the leader, under a term of 10 s by the coordinator's clock. A coordinator that has just started keeps the
// election Lease vacant for as long as a former leader could believe in its term; lead waits for that.
func (c *coordinator) lead(t testing.TB, name string, transitions int) {
	t.Helper()
	leases := c.as(t, pooltest.Node(name)).CoordinationV1().Leases(edge.NamespaceSystem)
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*edge.ElectionTerm, true,
		func(ctx context.Context) (bool, error) {
			_, err := leases.Patch(ctx, edge.LeaseElection, types.MergePatchType, fmt.Appendf(nil,
				`{"spec":{"holderIdentity":%q,"leaseDurationSeconds":10,"leaseTransitions":%d,"renewTime":%q}}`,
				name, transitions, time.Now().UTC().Format(metav1.RFC3339Micro)), metav1.PatchOptions{})
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "stays vacant") {
				return false, nil
			}
			return true, err
		})
	if err != nil {
		t.Fatal(err)
	}
}

func (c *coordinator) certificate(t testing.TB, subject pkix.Name) tls.Certificate {
	t.Helper()
	return c.ca.Issue(t, subject, pooltest.Tomorrow()).TLS(t)
}

func (c *coordinator) push(
	t testing.TB, client *http.Client, r schema.GroupVersionResource, from edge.Revision, term int32, body io.Reader,
) pooltest.Answer {
	t.Helper()
	return pooltest.Do(t, client, http.MethodPost, "https://"+c.address+pooltest.Target(r, from, term),
		stream.Protobuf.ContentType(true), body, "")
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
	leader := c.http(t, c.certificate(t, pooltest.Node("n1")))
	alice := c.as(t, pooltest.Operator())
	a, b := pooltest.CloudSlice("web-a", 1001, "10.0.0.1", "10.0.0.2"), pooltest.CloudSlice("web-b", 1002, "10.0.0.3")
	service, ends := pooltest.CloudService(900), pooltest.CloudEndpoints(950)
	for r, body := range map[schema.GroupVersionResource]*bytes.Buffer{
		pooltest.SliceResource: pooltest.Frames(t, pooltest.ProtobufType(sliceKind), pooltest.WholeStream(2000,
			pooltest.AsObject(t, a), pooltest.AsObject(t, b))...),
		serviceResource: pooltest.Frames(t, pooltest.ProtobufType(corev1.SchemeGroupVersion.WithKind("Service")),
			pooltest.WholeStream(2001, pooltest.AsObject(t, service))...),
		endpoints: pooltest.Frames(t, pooltest.ProtobufType(corev1.SchemeGroupVersion.WithKind("Endpoints")),
			pooltest.WholeStream(2002, pooltest.AsObject(t, ends))...),
	} {
		if a := c.push(t, leader, r, 0, 1, body); a.Code != http.StatusOK || a.Applied < 2000 {
			t.Fatalf("push %s: %d %s", r.Resource, a.Code, a.Body)
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
	changed, added := pooltest.CloudSlice("web-b", 2010, "10.0.0.9"), pooltest.CloudSlice("web-c", 2012, "10.0.0.4")
	gone := pooltest.CloudSlice("web-a", 2011)
	answer := c.push(t, leader, pooltest.SliceResource, 2000, 1, pooltest.Frames(t, pooltest.ProtobufType(sliceKind),
		stream.Event{Type: stream.Modified, Object: pooltest.AsObject(t, changed)},
		stream.Event{Type: stream.Deleted, Object: pooltest.AsObject(t, gone)},
		stream.Event{Type: stream.Added, Object: pooltest.AsObject(t, added)},
		stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: 2050}}))
	if answer.Code != http.StatusOK || answer.Applied != 2050 {
		t.Fatalf("%d %s", answer.Code, answer.Body)
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
	follower := c.http(t, c.certificate(t, pooltest.Node("n2")))
	code, body := c.get(t, follower, edge.PathMirror+"/discovery.k8s.io/v1/endpointslices")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range []string{`"resourceVersion":"2050"`, `"resourceVersion":"2010"`, `"resourceVersion":"2012"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if code, body := c.get(t, c.http(t, c.certificate(t, pooltest.Operator())), edge.PathMirror); code != http.StatusOK ||
		!strings.Contains(body, `"applied":"2050"`) {
		t.Errorf("index: %d %s", code, body)
	}
}

// TestWhoMayPushAndRead tries all callers that may not.
func TestWhoMayPushAndRead(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	body := func() io.Reader {
		return pooltest.Frames(t, pooltest.ProtobufType(sliceKind), pooltest.WholeStream(2000, pooltest.AsObject(t,
			pooltest.CloudSlice("web-a", 1001)))...)
	}
	n1, n2 := c.http(t, c.certificate(t, pooltest.Node("n1"))), c.http(t, c.certificate(t, pooltest.Node("n2")))
	alice := c.http(t, c.certificate(t, pooltest.Operator()))
	admin := c.http(t, c.certificate(t, pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}))
	unknown := pooltest.NewAuthority(t, "another-ca").Issue(t, pooltest.Node("n1"), pooltest.Tomorrow()).TLS(t)
	refusedPush := func(what string, client *http.Client, term int32, code int) {
		t.Helper()
		if a := c.push(t, client, pooltest.SliceResource, 0, term, body()); a.Code != code {
			t.Errorf("%s: got %d %s, want %d", what, a.Code, a.Body, code)
		}
	}
	refusedPush("before anybody leads", n1, 0, 403)
	c.lead(t, "n1", 1)
	refusedPush("a follower", n2, 1, 403)
	refusedPush("the leader under another term", n1, 0, 403)
	refusedPush("an operator", alice, 1, 403)
	refusedPush("an administrator of the cloud", admin, 1, 403)
	c.shutOut(t, "nobody", certificateRequired)
	c.shutOut(t, "an unknown certificate", badCertificate, unknown)
	if a := c.push(t, n1, pooltest.SliceResource, 0, 1, body()); a.Code != http.StatusOK {
		t.Fatalf("the leader: %d %s", a.Code, a.Body)
	}
	c.clock.Step(10 * time.Second)
	refusedPush("a leader that has lapsed", n1, 1, 403)
	c.lead(t, "n2", 2)
	refusedPush("a deposed leader", n1, 1, 403)
	refusedPush("a deposed leader that guesses the term", n1, 2, 403)
	if a := c.push(t, n2, pooltest.SliceResource, 2000, 2, pooltest.Frames(t, pooltest.ProtobufType(sliceKind),
		stream.Event{Type: stream.Added, Object: pooltest.AsObject(t, pooltest.CloudSlice("web-b",
			2001))})); a.Code != http.StatusOK {
		t.Errorf("the next leader, from where the mirror stands: %d %s", a.Code, a.Body)
	}
	list, err := c.as(t, pooltest.Operator()).DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("after a change of leader: %+v, %v", list, err)
	}

	for _, r := range []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("secrets"), corev1.SchemeGroupVersion.WithResource("nodes"),
		corev1.SchemeGroupVersion.WithResource("pods"), {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	} {
		if a := c.push(t, n2, r, 0, 2, body()); a.Code != http.StatusForbidden {
			t.Errorf("the leader pushes %s: %d %s", r.Resource, a.Code, a.Body)
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
	} {
		if code, _ := c.get(t, who.client, edge.PathMirror); code != who.index {
			t.Errorf("%s reads the index: %d, want %d", who.name, code, who.index)
		}
		if code, _ := c.get(t, who.client, path); code != who.read {
			t.Errorf("%s reads a resource: %d, want %d", who.name, code, who.read)
		}
	}
	for who, why := range map[string]string{"n1": "nobody holds the Lease", "n2": "can be pushed"} {
		c.audited(t, why, refused(403, edge.NodeName(who).User(), "post", edge.PathMirror, why))
	}
	for _, why := range []string{`"n1" leads`, "is over"} {
		c.audited(t, why, func(e auditv1.Event) bool { return strings.Contains(e.ResponseStatus.Message, why) })
	}
}

func TestCustomResourcesStayInMemory(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	c.lead(t, "n1", 1)
	leader := c.http(t, c.certificate(t, pooltest.Node("n1")))
	widgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	o := streamtest.Object(streamtest.Widgets, "shop", "w", 100, "x")
	a := pooltest.Do(t, leader, http.MethodPost, "https://"+c.address+pooltest.Target(widgets, 0, 1),
		"application/json;stream=watch",
		pooltest.Frames(t, streamtest.Widgets, pooltest.WholeStream(150, o)...), "")
	if a.Code != http.StatusOK {
		t.Fatal(a.Body)
	}
	code, body := c.get(t, c.http(t, c.certificate(t, pooltest.Node("n2"))), edge.PathMirror+"/example.org/v1/widgets")
	if code != http.StatusOK || !strings.Contains(body, string(o.Raw)) || !strings.Contains(body, `"kind":"WidgetList"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := c.get(t, c.http(t, c.certificate(t, pooltest.Operator())), "/apis/example.org/v1/widgets"); code < 400 {
		t.Errorf("kube-apiserver serves it: %d", code)
	}
}

// TestAStalledPushIsCut goes through the whole chain of kube-apiserver's filters.
func TestAStalledPushIsCut(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) { config.stalledPush = 100 * time.Millisecond })
	c.lead(t, "n1", 1)
	whole := pooltest.Frames(t, pooltest.ProtobufType(sliceKind), pooltest.WholeStream(2000, pooltest.AsObject(t,
		pooltest.CloudSlice("web-a", 1001)))...).Bytes()
	// Over HTTP/1.1, by hand: Go's client waits for its own body.
	connection, err := tls.Dial("tcp", c.address, &tls.Config{
		RootCAs: c.roots(), Certificates: []tls.Certificate{c.certificate(t, pooltest.Node("n1"))},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close() //nolint:errcheck // cut by the server as a rule
	if err := connection.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		pooltest.Target(pooltest.SliceResource, 0, 1), c.address, stream.Protobuf.ContentType(true), len(whole), whole[:100])
	told, err := io.ReadAll(connection)
	if errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(string(told), "200 OK") {
		t.Errorf("HTTP/1.1: %s, %v", told, err)
	}
	client := c.http(t, c.certificate(t, pooltest.Node("n1")))
	until := make(chan struct{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"https://"+c.address+pooltest.Target(pooltest.SliceResource, 0, 1),
		&pooltest.Slowly{First: whole[:100], Until: until})
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
	list, err := c.as(t, pooltest.Operator()).DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestAWatchOfTheMirrorEndsWithTheCoordinator and does not hold it up.
func TestAWatchOfTheMirrorEndsWithTheCoordinator(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	c.lead(t, "n1", 1)
	leader := c.http(t, c.certificate(t, pooltest.Node("n1")))
	leader.Timeout = 0
	if a := c.push(t, leader, pooltest.SliceResource, 0, 1, pooltest.Frames(t, pooltest.ProtobufType(sliceKind),
		pooltest.WholeStream(2000)...)); a.Code != 200 {
		t.Fatal(a.Body)
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
	pushed := pooltest.AsObject(t, pooltest.CloudSlice("web-a", 2001, "10.0.0.1"))
	if a := c.push(t, leader, pooltest.SliceResource, 2000, 1,
		pooltest.Frames(t, pooltest.ProtobufType(sliceKind), stream.Event{Type: stream.Added,
			Object: pushed})); a.Code != http.StatusOK {
		t.Fatal(a.Body)
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
	leases := c.as(t, pooltest.Node("n1")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
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
	changeMany(t, c, 3*history)
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

// changeMany makes a Lease and changes it n times, once a second by the coordinator's clock. It returns the revision at which it
// was made.
func changeMany(t *testing.T, c *coordinator, n int) (made int) {
	t.Helper()
	leases := c.as(t, pooltest.Node("n2")).CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(t.Context(), heartbeat("n2"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made, err = strconv.Atoi(lease.ResourceVersion); err != nil {
		t.Fatal(err)
	}
	for range n {
		c.clock.Step(time.Second)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		if lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

// TestAPushOfChangesToACoordinator goes through the whole chain of kube-apiserver's filters.
func TestAPushOfChangesToACoordinator(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	c.lead(t, "n1", 1)
	leader := c.http(t, c.certificate(t, pooltest.Node("n1")))
	leader.Timeout = 0
	whole := pooltest.Frames(t, pooltest.ProtobufType(sliceKind), pooltest.WholeStream(2000)...)
	if a := c.push(t, leader, pooltest.SliceResource, 0, 1, whole); a.Code != 200 {
		t.Fatal(a.Body)
	}
	begin := func(from edge.Revision, term int32) *pooltest.Following {
		return pooltest.Follow(t, leader, "https://"+c.address+pooltest.Target(pooltest.SliceResource, from, term), "",
			stream.Protobuf)
	}
	batch := func(revision int) []byte {
		var text bytes.Buffer
		text.Write(pooltest.Frames(t, pooltest.ProtobufType(sliceKind),
			stream.Event{Type: stream.Modified, Object: pooltest.AsObject(t, pooltest.CloudSlice("web-a", revision, "10.0.0.1"))},
			stream.Event{Type: stream.Bookmark, Object: stream.Object{Revision: edge.Revision(revision)}}).Bytes())
		return text.Bytes()
	}
	f := begin(2000, 1)
	for revision := 2001; revision < 2010; revision++ {
		f.Send(batch(revision))
		f.Acknowledged(edge.Revision(revision))
	}
	c.clock.Step(10 * time.Second)
	c.lead(t, "n2", 2)
	f.Send(batch(2010))
	f.Ended(http.StatusForbidden)

	c.clock.Step(10 * time.Second)
	c.lead(t, "n1", 3)
	f = begin(2009, 3)
	f.Send(batch(2011))
	f.Acknowledged(2011)
	began := time.Now()
	if err := c.stop(t); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("stopping took %s with a push under way", took)
	}
	if last := f.Next(); last != nil && last.Code != http.StatusServiceUnavailable {
		t.Errorf("told %+v", last)
	}
}
