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

	"yurtcoordinator/internal/hub/link"
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
		for i, state := range []link.State{link.Up, link.Down, link.Failing} {
			id := store.ID{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: state.String()}
			pods := stream.Type{GroupVersionKind: id.Resource.GroupVersion().WithKind("Pod"), Encoding: stream.JSON}
			pod := stream.Object{Key: stream.Key{Namespace: "a", Name: "b"}, Revision: 5, Raw: []byte(`{}`)}
			all := stream.Snapshot{Type: pods, Revision: 5, Objects: []stream.Object{pod}}
			if err := h.disk.Sink(id).Replace(ctx, all); err != nil {
				t.Fatal(err)
			}
			h.cloud.Link().Set(state)
			synctest.Wait()
			if _, err := h.disk.Load(id); (err == nil) != (i > 0) {
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
