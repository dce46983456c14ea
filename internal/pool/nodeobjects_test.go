package pool

import (
	"crypto/x509/pkix"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/pool/pooltest"
	"yurtcoordinator/internal/pool/shareserver"
	"yurtcoordinator/internal/stream"
)

// hub is a node's, as far as its own objects go.
func (c *coordinator) hub(t *testing.T, n edge.NodeName) *pooltest.Hub {
	t.Helper()
	return &pooltest.Hub{T: t, Client: c.http(t, c.certificate(t, pooltest.Node(string(n)))),
		Base: "https://" + c.address, Node: n}
}

// TestPeopleSeeWhatTheCloudHas: a node's objects by the API, all but resourceVersion as in the cloud; and gone when gone.
func TestPeopleSeeWhatTheCloudHas(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	ctx := t.Context()
	alice := c.as(t, pooltest.Operator()).CoreV1()
	one, two := c.hub(t, "n1"), c.hub(t, "n2")
	one.Ask()
	two.Ask()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	two.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n2", 6)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10, "conf")))
	two.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n2", "b", 11, "conf")))
	one.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 7)))
	two.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 7)))
	one.Must(pooltest.KindEvent, pooltest.Put(pooltest.EventOf(t, "n1", "a", 30)))

	same := func(got, want shareserver.Message, o stream.Object, err error) {
		t.Helper()
		if err == nil {
			err = want.Unmarshal(o.Raw)
		}
		if err != nil {
			t.Errorf("%s: %v", o.Key, err)
			return
		}
		legacyscheme.Scheme.Default(want) // as the cloud has done
		if got.SetResourceVersion(want.GetResourceVersion()); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("got\n%+v, want\n%+v", got, want)
		}
	}
	gotNode, err := alice.Nodes().Get(ctx, "n1", metav1.GetOptions{})
	same(gotNode, &corev1.Node{}, pooltest.NodeOf(t, "n1", 5), err)
	gotPod, err := alice.Pods("shop").Get(ctx, "a", metav1.GetOptions{})
	same(gotPod, &corev1.Pod{}, pooltest.PodOf(t, "n1", "a", 10, "conf"), err)
	gotMap, err := alice.ConfigMaps("shop").Get(ctx, "conf", metav1.GetOptions{})
	same(gotMap, &corev1.ConfigMap{}, pooltest.MapOf(t, "conf", 7), err)
	gotEvent, err := alice.Events("shop").Get(ctx, "a.17", metav1.GetOptions{})
	same(gotEvent, &corev1.Event{}, pooltest.EventOf(t, "n1", "a", 30), err)

	c.podsAre(t, "a", "b")
	byNode, err := alice.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n2"})
	if err != nil || len(byNode.Items) != 1 || byNode.Items[0].Name != "b" {
		t.Errorf("%+v, %v", byNode, err)
	}
	last := pooltest.PodOf(t, "n1", "a", 50)
	one.Must(pooltest.KindPod, pooltest.Del(last))
	c.podsAre(t, "b")
	if _, err := alice.ConfigMaps("shop").Get(ctx, "conf", metav1.GetOptions{}); err != nil {
		t.Errorf("what n2's Pod uses, too: %v", err)
	}
	two.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n2", "b", 51)))
	c.podsAre(t)
	maps, err := alice.ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil || len(maps.Items) != 0 {
		t.Errorf("nobody uses %+v, %v", maps, err)
	}
}

func (c *coordinator) podsAre(t *testing.T, want ...string) {
	t.Helper()
	list, err := c.as(t, pooltest.Operator()).CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range list.Items {
		got = append(got, list.Items[i].Name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the Pods are %v, want %v", got, want)
	}
}

// TestWhoMayDoWhatWithOwnObjects tries all callers that may not.
func TestWhoMayDoWhatWithOwnObjects(t *testing.T) {
	t.Parallel()
	c := start(t, func(config *Config) { config.OwnSecrets = true })
	ctx := t.Context()
	one := c.hub(t, "n1")
	one.Ask()
	secret := pooltest.AsObject(t, &corev1.Secret{ObjectMeta: pooltest.CloudMeta("key", 8),
		Data: map[string][]byte{"k": []byte("hidden")}})
	kindSecret := corev1.SchemeGroupVersion.WithKind("Secret")
	if code := one.Push(kindSecret, pooltest.Put(secret)); code != http.StatusConflict {
		t.Errorf("a Secret that no Pod uses: %d", code)
	}
	one.Must(pooltest.KindPod, pooltest.Put(podWith(t, "n1", "a", 10, "conf", "key")))
	one.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 7)))
	one.Must(kindSecret, pooltest.Put(secret))

	// n2 makes up a Pod that uses what n1's Pods use, by which the Node authorizer would let it read that.
	two := c.hub(t, "n2")
	two.Ask()
	two.Must(pooltest.KindPod, pooltest.Put(podWith(t, "n2", "made-up", 10, "conf", "key")))
	asTwo := c.as(t, pooltest.Node("n2")).CoreV1()
	_, err := asTwo.Secrets("shop").Get(ctx, "key", metav1.GetOptions{})
	forbidden(t, "a node reads a Secret", err)
	_, err = asTwo.ConfigMaps("shop").Get(ctx, "conf", metav1.GetOptions{})
	forbidden(t, "a node reads a ConfigMap", err)
	_, err = asTwo.Pods("shop").Get(ctx, "a", metav1.GetOptions{})
	forbidden(t, "a node reads another's Pod", err)
	_, err = asTwo.Pods("").List(ctx, metav1.ListOptions{})
	forbidden(t, "a node lists all Pods", err)
	err = asTwo.Pods("shop").Delete(ctx, "a", metav1.DeleteOptions{})
	forbidden(t, "a node deletes another's Pod", err)
	_, err = asTwo.Pods("shop").Patch(ctx, "a", types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`),
		metav1.PatchOptions{}, "status")
	forbidden(t, "a node writes another Pod's status", err)

	alice := c.as(t, pooltest.Operator()).CoreV1()
	if got, err := alice.Secrets("shop").Get(ctx, "key", metav1.GetOptions{}); err != nil || string(got.Data["k"]) != "hidden" {
		t.Errorf("an operator, who may: %v, %v", got, err)
	}
	_, err = alice.Pods("shop").Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`),
		metav1.PatchOptions{})
	forbidden(t, "an operator writes a Pod", err)
	forbidden(t, "an operator deletes a Pod", alice.Pods("shop").Delete(ctx, "a", metav1.DeleteOptions{}))
	forbidden(t, "an operator deletes a Node", alice.Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}))
	forbidden(t, "an operator deletes a Secret", alice.Secrets("shop").Delete(ctx, "key", metav1.DeleteOptions{}))

	admin := pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}
	for what, who := range map[string]struct {
		client *http.Client
		code   int
	}{
		"an operator":                   {c.http(t, c.certificate(t, pooltest.Operator())), 403},
		"an administrator of the cloud": {c.http(t, c.certificate(t, admin)), 403},
	} {
		hub := &pooltest.Hub{T: t, Client: who.client, Base: "https://" + c.address, Node: "n1", Tag: one.Tag}
		if code, _, _ := hub.Do(http.MethodGet, edge.PathOwn, nil, nil); code != who.code {
			t.Errorf("%s asks: %d, want %d", what, code, who.code)
		}
		if code := hub.Push(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 99))); code != who.code {
			t.Errorf("%s pushes: %d, want %d", what, code, who.code)
		}
	}
	if code := two.Push(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 99))); code != http.StatusForbidden {
		t.Errorf("another node pushes: %d", code)
	}
}

// TestSecretsAreOffUnlessAskedFor, on both sides.
func TestSecretsAreOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	one := c.hub(t, "n1")
	one.Ask()
	one.Must(pooltest.KindPod, pooltest.Put(podWith(t, "n1", "a", 10, "conf", "key")))
	secret := pooltest.AsObject(t, &corev1.Secret{ObjectMeta: pooltest.CloudMeta("key", 8)})
	body := pooltest.Frames(t, pooltest.ProtobufType(corev1.SchemeGroupVersion.WithKind("Secret")), pooltest.Put(secret)).Bytes()
	if code, text, _ := one.Send(corev1.SchemeGroupVersion.WithKind("Secret"), body); code != http.StatusForbidden ||
		!strings.Contains(text, "--own-secrets") {
		t.Errorf("%d %s", code, text)
	}
	_, err := c.as(t, pooltest.Operator()).CoreV1().Secrets("shop").List(t.Context(), metav1.ListOptions{})
	forbidden(t, "an operator lists Secrets", err)
}

// TestWhatANodeSaysItself is shown on top of what the cloud had, and goes when the cloud's is pushed again, at the same
// revision, too.
func TestWhatANodeSaysItself(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	one := c.hub(t, "n1")
	one.Ask()
	one.Must(pooltest.KindNode, pooltest.Put(pooltest.NodeOf(t, "n1", 5)))
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10, "conf")))
	one.Must(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 7)))
	said := &corev1.Pod{}
	if err := said.Unmarshal(pooltest.PodOf(t, "n1", "a", 10, "conf").Raw); err != nil {
		t.Fatal(err)
	}
	said.Status.Phase = corev1.PodFailed
	event := pooltest.EventOf(t, "n1", "a", 1)
	phase := func(want corev1.PodPhase) {
		t.Helper()
		got, err := c.as(t, pooltest.Operator()).CoreV1().Pods("shop").Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || got.Status.Phase != want || got.UID != said.UID {
			t.Errorf("%+v, %v, want %s", got, err, want)
		}
	}
	one.Local = true
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.AsObject(t, said)))
	one.Must(pooltest.KindEvent, pooltest.Put(event))
	if code := one.Push(pooltest.KindMap, pooltest.Put(pooltest.MapOf(t, "conf", 8))); code != http.StatusForbidden {
		t.Errorf("a ConfigMap as the node says: %d", code)
	}
	one.Has("configmaps shop/conf@7", "events shop/a.17@1+", "nodes /n1@5", "pods shop/a@10+")
	phase(corev1.PodFailed)
	one.Local = false
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.PodOf(t, "n1", "a", 10, "conf")))
	one.Must(pooltest.KindEvent, pooltest.Put(pooltest.EventOf(t, "n1", "a", 30)))
	one.Has("configmaps shop/conf@7", "events shop/a.17@30", "nodes /n1@5", "pods shop/a@10")
	phase(corev1.PodRunning)
}

// podWith is a Pod that uses a ConfigMap and a Secret.
func podWith(t testing.TB, n edge.NodeName, name string, revision int, conf, key string) stream.Object {
	t.Helper()
	p := &corev1.Pod{}
	if err := p.Unmarshal(pooltest.PodOf(t, n, name, revision, conf).Raw); err != nil {
		t.Fatal(err)
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: key},
	}}}
	return pooltest.AsObject(t, p)
}

// TestServiceAccountsOfPods are there as long as a Pod has them, for people and not for nodes.
func TestServiceAccountsOfPods(t *testing.T) {
	t.Parallel()
	c := start(t, nil)
	ctx := t.Context()
	one := c.hub(t, "n1")
	one.Ask()
	pod := &corev1.Pod{ObjectMeta: pooltest.CloudMeta("a", 10), Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "web"}}
	account := func(name string) stream.Object {
		return pooltest.AsObject(t, &corev1.ServiceAccount{ObjectMeta: pooltest.CloudMeta(name, 8)})
	}
	kind := corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	one.Must(pooltest.KindPod, pooltest.Put(pooltest.AsObject(t, pod)))
	one.Must(kind, pooltest.Put(account("web")))
	if code := one.Push(kind, pooltest.Put(account("other"))); code != http.StatusConflict {
		t.Errorf("one that no Pod has: %d", code)
	}
	alice := c.as(t, pooltest.Operator()).CoreV1().ServiceAccounts("shop")
	got, err := alice.Get(ctx, "web", metav1.GetOptions{})
	allowed(t, "read by people", err)
	if got.UID != pooltest.CloudMeta("web", 8).UID {
		t.Errorf("%+v", got)
	}
	_, err = c.as(t, pooltest.Node("n1")).CoreV1().ServiceAccounts("shop").Get(ctx, "web", metav1.GetOptions{})
	forbidden(t, "read by its node", err)
	one.Must(pooltest.KindPod, pooltest.Del(pooltest.PodOf(t, "n1", "a", 11)))
	list, err := alice.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("no Pod has %+v, %v", list, err)
	}
}
