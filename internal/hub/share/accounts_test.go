package share

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// accountCloud is a cloud that has ServiceAccounts of shop, and nothing else.
type accountCloud struct {
	mu       sync.Mutex
	accounts map[string]*corev1.ServiceAccount
	reads    []string // names, of those that it answered
	fails    error    // what all are answered with, if it is not nil
	failed   int      // so often
}

func (c *accountCloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// setAccount has the cloud have a ServiceAccount of shop at a revision; 0: it has none.
func (c *accountCloud) setAccount(name string, revision edge.Revision) {
	c.set(func() {
		delete(c.accounts, name)
		if revision != 0 {
			c.accounts[name] = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, ResourceVersion: revision.String(),
			}}
		}
	})
}

// ServiceAccounts implements corev1client.ServiceAccountsGetter.
func (c *accountCloud) ServiceAccounts(namespace string) corev1client.ServiceAccountInterface {
	return accountsIn{accountCloud: c, namespace: namespace}
}

type accountsIn struct {
	corev1client.ServiceAccountInterface
	*accountCloud
	namespace string
}

func (c accountsIn) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.ServiceAccount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fails != nil {
		c.failed++
		return nil, c.fails
	}
	c.reads = append(c.reads, name)
	if a := c.accounts[name]; a != nil && a.Namespace == c.namespace {
		return a.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(serviceAccounts), name)
}

var errForbidden = apierrors.NewForbidden(corev1.Resource(serviceAccounts), "web", nil)

// read expects which ServiceAccounts the cloud was asked for since the last time, in order of their names.
func (w *nodeWorld) read(want ...string) {
	w.t.Helper()
	w.cloud.mu.Lock()
	defer w.cloud.mu.Unlock()
	if slices.Sort(w.cloud.reads); !slices.Equal(w.cloud.reads, want) {
		w.t.Errorf("the cloud was asked for %q, want %q", w.cloud.reads, want)
	}
	w.cloud.reads = nil
}

func (w *nodeWorld) podWith(name, account string, revision edge.Revision) stream.Object {
	return object(w.t, &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: account}}, "shop", name, revision)
}

// oneAccount has the node's only Pod have an account, which has been read.
func (w *nodeWorld) oneAccount() {
	w.t.Helper()
	w.cloud.setAccount("web", 3)
	w.settle()
	w.pods.set(30, w.podWith("b", "web", 25))
	time.Sleep(time.Second)
	w.read("web")
}

func TestServiceAccountsOfPods(t *testing.T) {
	const soon = time.Second
	inNodeWorld(t, func(w *nodeWorld) {
		w.cloud.setAccount("web", 3)
		w.settle()
		w.read()
		w.pods.set(30, w.aPod("a", 10), w.podWith("b", "web", 25), w.podWith("c", "web", 26), w.podWith("d", "none", 27))
		time.Sleep(soon)
		w.read("none", "web")
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/a@10", "pods shop/b@25", "pods shop/c@26", "pods shop/d@27",
			"serviceaccounts shop/web@3")
		w.pods.set(40, w.podWith("b", "web", 31))
		time.Sleep(readAccountEvery / 3)
		w.read()

		w.cloud.setAccount("web", 8)
		time.Sleep(readAccountEvery)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@31", "serviceaccounts shop/web@8")
		w.cloud.setAccount("web", 0)
		time.Sleep(readAccountEvery)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@31")
	})
}

// TestAnAccountThatIsMadeLate: a Pod's account that is not there is read again, and shown once it is.
func TestAnAccountThatIsMadeLate(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		w.pods.set(30, w.podWith("b", "web", 25))
		time.Sleep(time.Second)
		w.read("web")
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@25")
		w.cloud.setAccount("web", 30)
		time.Sleep(readAccountEvery)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@25", "serviceaccounts shop/web@30")
	})
}

// TestServiceAccountsAfterACut are read again within a minute; those of new Pods while the cloud is cut off not before.
func TestServiceAccountsAfterACut(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.oneAccount()
		w.cloudLink.Set(link.Down)
		w.cloud.setAccount("web", 9)
		w.pods.set(40, w.podWith("b", "web", 25), w.podWith("c", "new", 31))
		time.Sleep(3 * readAccountEvery)
		w.read()
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@25", "pods shop/c@31", "serviceaccounts shop/web@3")
		w.cloudLink.Set(link.Up)
		time.Sleep(readAccountsWithin + time.Second)
		w.read("new", "web")
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@25", "pods shop/c@31", "serviceaccounts shop/web@9")
	})
}

// TestServiceAccountsThatCannotBeRead leave what is known as it is, and are asked for at a bounded rate.
func TestServiceAccountsThatCannotBeRead(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.oneAccount()
		for _, fail := range []func(){
			func() { w.cloud.fails = errors.New("no route") },
			func() { w.cloud.fails, w.cloud.failed = errForbidden, 0 },
		} {
			w.cloud.mu.Lock()
			fail()
			w.cloud.mu.Unlock()
			time.Sleep(2 * readAccountEvery)
			w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@25", "serviceaccounts shop/web@3")
		}
		w.cloud.mu.Lock()
		defer w.cloud.mu.Unlock()
		if n := w.cloud.failed; n < 1 || n > 4 { // those that were refused in two hours
			t.Errorf("asked %d times", n)
		}
	})
}

// TestAServiceAccountThatIsRefusedAtFirst is read soon: the API server may not know yet that the Pod is on this node.
func TestAServiceAccountThatIsRefusedAtFirst(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.cloud.setAccount("web", 3)
		w.settle()
		w.cloud.set(func() { w.cloud.fails = errForbidden })
		w.pods.set(30, w.podWith("b", "web", 25))
		time.Sleep(time.Second)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@25")
		w.cloud.set(func() { w.cloud.fails = nil })
		time.Sleep(2 * readAccountFirst)
		w.has("configmaps shop/conf@7", "nodes /n1@5", "pods shop/b@25", "serviceaccounts shop/web@3")
	})
}

// TestServiceAccountsThatStayRefused are asked for ever more rarely.
func TestServiceAccountsThatStayRefused(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.settle()
		w.cloud.set(func() { w.cloud.fails, w.cloud.failed = errForbidden, 0 })
		w.pods.set(30, w.podWith("b", "web", 25))
		time.Sleep(2 * readAccountEvery)
		w.cloud.mu.Lock()
		defer w.cloud.mu.Unlock()
		if n := w.cloud.failed; n < 2 || n > 18 { // pauses of 1 to 2 s that double, up to an hour
			t.Errorf("asked %d times", n)
		}
	})
}

func TestAccountsAreBounded(t *testing.T) {
	a, by := NewAccounts(AccountsConfig{History: func() edge.History { return 0 }}), newBell()
	keys, now := map[stream.Key]struct{}{}, time.Now()
	for i := range 2 * maxAccounts {
		keys[stream.Key{Namespace: "shop", Name: strings.Repeat("x", 1+i%200) + edge.Revision(i).String()}] = struct{}{}
	}
	a.want(by, keys, now)
	if len(a.all) != maxAccounts {
		t.Errorf("%d are remembered", len(a.all))
	}
	if a.want(by, nil, now); len(a.all) != 0 {
		t.Errorf("%d are left", len(a.all))
	}
}

// TestAccountsAreReadOnce: Nodes of several coordinators want them, and one that has not looked yet takes none from another.
func TestAccountsAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := &accountCloud{accounts: map[string]*corev1.ServiceAccount{}}
		cloud.setAccount("web", 3)
		a := NewAccounts(AccountsConfig{
			Cloud: cloud, CloudLink: live.NewValue(link.Up), History: func() edge.History { return 0 },
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		home, standby, web := newBell(), newBell(), stream.Key{Namespace: "shop", Name: "web"}
		a.want(standby, nil, time.Now())
		a.want(home, map[stream.Key]struct{}{web: {}}, time.Now())
		time.Sleep(time.Second)
		for _, b := range []bell{home, standby} {
			select {
			case <-b:
			default:
				t.Error("one does not hear of it")
			}
		}
		a.want(standby, nil, time.Now())
		a.want(standby, map[stream.Key]struct{}{web: {}}, time.Now())
		a.want(home, nil, time.Now())
		time.Sleep(time.Second)
		into := want{objects: map[stream.ID]stream.Object{}, in: map[stream.ID]edge.History{}}
		a.addTo(into)
		if cloud.set(func() {}); len(cloud.reads) != 1 || len(into.objects) != 1 {
			t.Errorf("read %q, and %d are there", cloud.reads, len(into.objects))
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAccountsOfARestoredCloud are read again, though the link was never seen down.
func TestAccountsOfARestoredCloud(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.oneAccount()
		w.cloud.setAccount("web", 2)
		w.mu.Lock()
		w.history = 1
		w.mu.Unlock()
		w.node.restore(10, w.aNode("p1", 5))
		time.Sleep(readAccountsWithin + time.Second)
		w.read("web")
		w.has("configmaps shop/conf@7", "nodes /n1@5h1", "pods shop/b@25", "serviceaccounts shop/web@2h1")
	})
}

// TestAPodOfARestoredCloud may have the name and the revision of a Pod of before, and another account.
func TestAPodOfARestoredCloud(t *testing.T) {
	inNodeWorld(t, func(w *nodeWorld) {
		w.oneAccount()
		w.cloud.setAccount("other", 4)
		w.pods.restore(30, w.podWith("b", "other", 25))
		time.Sleep(time.Second)
		w.read("other")
	})
}
