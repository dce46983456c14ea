package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/apis/core"
)

// listed is a storage of ConfigMaps at revision 7, a fake.
type listed struct {
	storage.Interface
	objects int
	fails   error // what its second page ends in

	pages   []storage.ListOptions
	watched *storage.ListOptions
	inner   *watch.FakeWatcher
}

// Versioner implements storage.Interface.
func (*listed) Versioner() storage.Versioner { return storage.APIObjectVersioner{} }

// GetList implements storage.Interface.
func (l *listed) GetList(_ context.Context, _ string, o storage.ListOptions, into runtime.Object) error {
	l.pages = append(l.pages, o)
	from, _ := strconv.Atoi(o.Predicate.Continue)
	if from > 0 && l.fails != nil {
		return l.fails
	}
	list := into.(*core.ConfigMapList)
	list.ResourceVersion = "7"
	for i := from; i < l.objects && i < from+int(o.Predicate.Limit); i++ {
		list.Items = append(list.Items, core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}})
	}
	if end := from + len(list.Items); end < l.objects {
		list.Continue = strconv.Itoa(end)
	}
	return nil
}

// Watch implements storage.Interface.
func (l *listed) Watch(_ context.Context, _ string, o storage.ListOptions) (watch.Interface, error) {
	l.watched, l.inner = &o, watch.NewFake()
	return l.inner, nil
}

// reader watches a storage as a caller of this name.
func (l *listed) reader(t *testing.T, q *queues, name string, o storage.ListOptions) watch.Interface {
	t.Helper()
	s := shownStorage{
		l, func(context.Context) func(runtime.Object) { return nil }, q,
		func() runtime.Object { return &core.ConfigMap{} }, func() runtime.Object { return &core.ConfigMapList{} },
	}
	w, err := s.Watch(request.WithUser(t.Context(), &user.DefaultInfo{Name: name}), "/configmaps/", o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// with is what a watch asks for that wants a list and its end.
func with() storage.ListOptions {
	yes := true
	return storage.ListOptions{
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, Recursive: true,
		Predicate: storage.SelectionPredicate{AllowWatchBookmarks: true},
	}
}

// TestAWatchThatBeginsWithAList sends the list as it is read. Meanwhile no watch of etcd runs, whose changes would wait
// uncounted. Then etcd's watch begins at the list's revision, and what waits is counted.
func TestAWatchThatBeginsWithAList(t *testing.T) {
	for what, o := range map[string]storage.ListOptions{
		"asked for": with(), "by its revision": {ResourceVersion: "0"}, "in another spelling": {ResourceVersion: "00"},
	} {
		q := newQueues()
		synctest.Test(t, func(t *testing.T) {
			l := &listed{objects: 2*listPage + 50}
			w := l.reader(t, q, "hub", o)
			for i := range l.objects {
				if i == listPage+1 && (l.watched != nil || q.of["hub"].listing != 1 || len(l.pages) != 2) {
					t.Errorf("%s: after %d objects: %d pages, a watch %+v, counted %+v", what, i, len(l.pages), l.watched,
						q.of["hub"])
				}
				event := <-w.ResultChan()
				if c, ok := event.Object.(*core.ConfigMap); event.Type != watch.Added || !ok || c.Name != strconv.Itoa(i) {
					t.Fatalf("%s: event %d: %+v", what, i, event)
				}
			}
			if o.SendInitialEvents != nil {
				event := <-w.ResultChan()
				ends, err := storage.HasInitialEventsEndBookmarkAnnotation(event.Object)
				if c, ok := event.Object.(*core.ConfigMap); event.Type != watch.Bookmark || !ends || err != nil || !ok ||
					c.ResourceVersion != "7" {
					t.Errorf("%s: the list's end: %+v, %v", what, event, err)
				}
			}
			synctest.Wait()
			if l.watched == nil || l.watched.ResourceVersion != "7" || l.watched.SendInitialEvents != nil ||
				l.watched.ResourceVersionMatch != "" || len(q.of) != 0 {
				t.Fatalf("%s: then: %+v; %v", what, l.watched, q.of)
			}
			for range 3 {
				l.inner.Modify(large()) // none waits for the reader
				synctest.Wait()
			}
			if h := q.of["hub"]; h == nil || h.bytes < 2<<20 {
				t.Errorf("%s: after the list: %+v", what, h)
			}
			w.Stop()
			synctest.Wait()
			if len(q.of) != 0 {
				t.Errorf("%s: %v wait", what, q.of)
			}
		})
	}
}

// TestAListIsNotOlder than the revision that a watch names.
func TestAListIsNotOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := with()
		o.ResourceVersion, o.ResourceVersionMatch = "5", "" // as the registry passes it
		l := &listed{objects: listPage + 1}
		w := l.reader(t, newQueues(), "hub", o)
		for range l.objects {
			<-w.ResultChan()
		}
		first, next := l.pages[0], l.pages[1]
		if first.ResourceVersion != "5" || first.ResourceVersionMatch != metav1.ResourceVersionMatchNotOlderThan ||
			next.ResourceVersion != "" || next.ResourceVersionMatch != "" || next.Predicate.Continue == "" {
			t.Errorf("read by %+v, then %+v", first, next)
		}
		w.Stop()
	})
}

// TestAListThatIsReadSlowly ends its watch, though now and then something is taken.
func TestAListThatIsReadSlowly(t *testing.T) {
	q := newQueues()
	synctest.Test(t, func(t *testing.T) {
		ended := counted(t, byTime)
		l := &listed{objects: 1000}
		w := l.reader(t, q, "thief", with())
		began := time.Now()
		for open := true; open; {
			time.Sleep(stallTimeout - time.Second)
			_, open = <-w.ResultChan()
		}
		if took := time.Since(began); took < listTimeout || took > listTimeout+stallTimeout || ended() != 1 {
			t.Errorf("it has ended after %s, %v times", took, ended())
		}
		if len(q.of) != 0 || l.watched != nil {
			t.Errorf("%v wait; a watch %+v", q.of, l.watched)
		}
	})
}

// TestAListThatNobodyReads ends as any other watch that nobody reads, and so does one whose request is over.
func TestAListThatNobodyReads(t *testing.T) {
	q := newQueues()
	synctest.Test(t, func(t *testing.T) {
		ended := counted(t, byStall)
		l := &listed{objects: 3}
		w := l.reader(t, q, "thief", with())
		time.Sleep(stallTimeout)
		synctest.Wait()
		if _, open := <-w.ResultChan(); open || ended() != 1 || len(q.of) != 0 {
			t.Errorf("open %t, ended %v, waits %v", open, ended(), q.of)
		}
		w = l.reader(t, q, "gone", with())
		w.Stop()
		synctest.Wait()
		if len(q.of) != 0 || l.watched != nil {
			t.Errorf("%v wait; a watch %+v", q.of, l.watched)
		}
	})
}

// TestAListThatFails says why: its first page refuses the watch, a later one ends it, with etcd's own words.
func TestAListThatFails(t *testing.T) {
	for err, want := range map[error]int32{
		apierrors.NewResourceExpired("too old"):           http.StatusGone,
		fmt.Errorf("etcd: %w", errors.New("unavailable")): http.StatusInternalServerError,
	} {
		q := newQueues()
		synctest.Test(t, func(t *testing.T) {
			l := &listed{objects: listPage + 1, fails: err}
			w := l.reader(t, q, "hub", with())
			for range listPage {
				<-w.ResultChan()
			}
			event := <-w.ResultChan()
			if status, ok := event.Object.(*metav1.Status); event.Type != watch.Error || !ok || status.Code != want {
				t.Errorf("%v: got %+v", err, event)
			}
			if _, open := <-w.ResultChan(); open || len(q.of) != 0 {
				t.Errorf("%v: open %t, waits %v", err, open, q.of)
			}
		})
	}
}
