package apiserver

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// unbounded is a watch of this process itself.
func unbounded(inner watch.Interface) *unstalled { return started(inner, &unstalled{}) }

func started(inner watch.Interface, w *unstalled) *unstalled {
	w.out, w.stopped = make(chan watch.Event), make(chan struct{})
	go w.run(context.Background(), nil, inner)
	return w
}

func TestAStalledWatchIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := watch.NewFake()
		w := unbounded(inner)
		inner.Add(&corev1.Pod{})
		began := time.Now()
		synctest.Wait() // run offers it, and nobody takes it
		time.Sleep(stallTimeout - time.Millisecond)
		if inner.IsStopped() {
			t.Error("ended too soon")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if event, open := <-w.ResultChan(); open {
			t.Errorf("got %+v after %s, want the end", event, time.Since(began))
		}
		if !inner.IsStopped() {
			t.Error("etcd's watch goes on")
		}
	})
}

func TestAWatchThatIsReadGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := watch.NewFake()
		w := unbounded(inner)
		for range 10 {
			go inner.Add(&corev1.Pod{})
			synctest.Wait()
			time.Sleep(stallTimeout / 2)
			if _, open := <-w.ResultChan(); !open {
				t.Fatal("ended")
			}
		}
		go inner.Add(&corev1.Pod{})
		synctest.Wait()
		w.Stop()
		w.Stop()
		for range w.ResultChan() {
			continue // until it is closed
		}
		if !inner.IsStopped() {
			t.Error("etcd's watch goes on after Stop")
		}
	})
}

// TestAForgottenStateIsExpired, and every other end of a watch stays as it is.
func TestAForgottenStateIsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for message, want := range map[string]int32{
			lostState + " (key=\"/registry/leases/kube-node-lease/n1\", modRevision=7, type=PUT)": http.StatusGone,
			"etcdserver: mvcc: database space exceeded":                                           http.StatusInternalServerError,
		} {
			inner := watch.NewFake()
			w := unbounded(inner)
			failure := apierrors.NewInternalError(errors.New(message)).ErrStatus
			go inner.Error(&failure)
			event := <-w.ResultChan()
			status, ok := event.Object.(*metav1.Status)
			if event.Type != watch.Error || !ok || status.Code != want {
				t.Errorf("%s: got %+v, want %d", message, event, want)
			}
			w.Stop()
			for range w.ResultChan() {
				continue // until it is closed
			}
		}
	})
}
