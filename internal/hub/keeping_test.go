package hub

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/hub/copies"
	"yurtcoordinator/internal/hub/keep"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/replica"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

// stored returns a hub that keeps in a directory. Its certificate files are not there, but only Run needs them.
func stored(t *testing.T, dir string, more ...string) (*Hub, error) {
	t.Helper()
	return New(flags(t, append([]string{
		"--node-name=n1", "--ca-file=ca", "--cert-file=crt", "--key-file=key", "--server-addr=https://10.0.0.1:6443",
		"--disk-cache-path=" + dir,
	}, more...)...))
}

func TestTheDisksDirectoryIsFreed(t *testing.T) {
	dir := t.TempDir()
	h, err := stored(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stored(t, dir); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second hub with the same directory: %v", err)
	}
	if s := h.Status(); s.Disk == nil || s.Disk.Error != "" || s.Disk.Since != nil || len(s.Kept) != 0 {
		t.Errorf("Status() = %+v", s)
	}
	if err := h.closeDisk(); err != nil {
		t.Fatal(err)
	}
	if h, err = stored(t, dir); err != nil {
		t.Fatalf("what was closed holds the directory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.runDisk(ctx); err != nil {
		t.Error(err)
	}
	if h, err = stored(t, dir); err != nil {
		t.Fatalf("what has run holds the directory: %v", err)
	}
	if err := h.closeDisk(); err != nil {
		t.Error(err)
	}
}

func TestWithoutADisk(t *testing.T) {
	h, err := stored(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if s := h.Status(); s.Disk != nil || s.Kept != nil || h.keeper != nil {
		t.Errorf("Status() = %+v", s)
	}
	if err := h.closeDisk(); err != nil {
		t.Error(err)
	}
}

func TestTheKeeperKnowsItsAgents(t *testing.T) {
	h, err := stored(t, t.TempDir(), "--cache-agents=kubelet, my-agent")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.closeDisk(); err != nil {
			t.Error(err)
		}
	}()
	for agent, want := range map[string]bool{"kubelet/v1": true, "my-agent": true, "kube-proxy/v1": false} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.Header.Set("User-Agent", agent)
		if got := h.keeper.Match(r); got != want {
			t.Errorf("%s is kept: %v", agent, got)
		}
	}
}

func TestDiskStatus(t *testing.T) {
	since := time.Unix(7, 0)
	s := diskStatus(store.Health{Err: "full", Since: since, Corrupt: "a page", Bytes: 9})
	if s.Error != "full" || s.Since == nil || !s.Since.Equal(since) || s.Corrupt != "a page" || s.Bytes != 9 {
		t.Errorf("%+v", s)
	}
}

func TestWhereASelectionIsRead(t *testing.T) {
	pods, deployments := schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	for _, tc := range []struct {
		resource        schema.GroupVersionResource
		namespace, want string
	}{
		{pods, "", "/api/v1/pods"},
		{pods, "a", "/api/v1/namespaces/a/pods"},
		{deployments, "", "/apis/apps/v1/deployments"},
		{deployments, "a", "/apis/apps/v1/namespaces/a/deployments"},
	} {
		if got := collection(tc.resource, tc.namespace); got != tc.want {
			t.Errorf("%v in %q: %s, want %s", tc.resource, tc.namespace, got, tc.want)
		}
	}
	h, err := stored(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.closeDisk(); err != nil {
			t.Error(err)
		}
	}()
	r, err := replica.New(replica.Config{Resource: pods})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"a?b", "a#b"} {
		if _, err := h.newFeed(h.sharing.feeds, r, false, keep.Selection{Resource: pods, Namespace: namespace}); err == nil {
			t.Errorf("namespace %q is read", namespace)
		}
	}
}

func TestACopyComesBackFromTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		object := stream.Object{Key: stream.Key{Namespace: "a", Name: "b"}, Revision: 5, Raw: []byte(`{}`)}
		all := stream.Snapshot{
			Type:     stream.Type{GroupVersionKind: services.GroupVersion().WithKind("Service"), Encoding: stream.JSON},
			Revision: 7, Objects: []stream.Object{object},
		}
		life := func(use func(r *replica.Replica, s copies.Saver)) {
			disk, err := store.Open(store.Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			r, err := replica.New(replica.Config{Resource: services})
			if err != nil {
				t.Fatal(err)
			}
			h := &Hub{disk: disk}
			use(r, h.restore(t.Context(), r))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := h.runDisk(ctx); err != nil { // the last flush
				t.Fatal(err)
			}
		}
		life(func(r *replica.Replica, s copies.Saver) {
			if r.Position() != 0 {
				t.Errorf("an empty disk has revision %d", r.Position())
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				s.Run(ctx)
			}()
			if err := r.Replace(t.Context(), all); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			cancel()
			<-ended
		})
		life(func(r *replica.Replica, _ copies.Saver) {
			if got, has := r.Get(object.Key); r.Position() != 7 || !has || string(got.Raw) != "{}" || got.Revision != 5 {
				t.Errorf("it is at revision %d and has %+v", r.Position(), got)
			}
		})
	})
}

func TestACutBringsAllToTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := stored(t, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := h.closeDisk(); err != nil {
				t.Error(err)
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.flushCut(ctx) }()
		for i, state := range []link.State{link.Up, link.Down} {
			id := store.ID{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: state.String()}
			pods := stream.Type{GroupVersionKind: id.Resource.GroupVersion().WithKind("Pod"), Encoding: stream.JSON}
			pod := stream.Object{Key: stream.Key{Namespace: "a", Name: "b"}, Revision: 5, Raw: []byte(`{}`)}
			all := stream.Snapshot{Type: pods, Revision: 5, Objects: []stream.Object{pod}}
			if err := h.disk.Sink(id).Replace(ctx, all); err != nil {
				t.Fatal(err)
			}
			h.cloud.Link().Set(state)
			synctest.Wait()
			if _, err := h.disk.Load(id); (err == nil) != (i == 1) {
				t.Errorf("with the link %v, the disk has it: %v", state, err)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// What nobody reads and nobody needs goes after 7 days in which the cloud could be reached; a cut makes nothing old.
func TestOnlyTimeOnlineMakesTheDiskOld(t *testing.T) {
	for _, tt := range []struct {
		state link.State
		there bool
	}{{link.Up, false}, {link.Down, true}, {link.Unknown, true}} {
		t.Run(tt.state.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, err := stored(t, t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 2)
				go func() { ended <- h.countOnline(ctx) }()
				go func() { ended <- h.runDisk(ctx) }()
				id := store.ID{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}
				pods := stream.Type{GroupVersionKind: id.Resource.GroupVersion().WithKind("Pod"), Encoding: stream.JSON}
				if err := h.disk.Sink(id).Replace(ctx, stream.Snapshot{Type: pods, Revision: 5}); err != nil {
					t.Fatal(err)
				}
				h.disk.Need(nil)
				h.cloud.Link().Set(tt.state)
				time.Sleep(8 * 24 * time.Hour)
				if there := h.disk.Written(id) != 0; there != tt.there {
					t.Errorf("with the link %v, the disk has it after 8 days: %v", tt.state, there)
				}
				cancel()
				if err := errors.Join(<-ended, <-ended); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
