package cache

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/store"
	"yurtcoordinator/internal/stream"
)

var diskPods = store.Collection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}

// diskContent is one Pod.
func diskContent() stream.Snapshot {
	return stream.Snapshot{
		Type:     stream.Type{GroupVersionKind: diskPods.Resource.GroupVersion().WithKind("Pod"), Encoding: stream.JSON},
		Revision: 5,
		Objects:  []stream.Object{{Key: stream.Key{Namespace: "a", Name: "b"}, Revision: 5, Raw: []byte(`{}`)}},
	}
}

func opened(t *testing.T, c DiskConfig) *Disk {
	t.Helper()
	d, err := OpenDisk(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestTheDirectoryIsFreed(t *testing.T) {
	c := DiskConfig{Dir: t.TempDir()}
	d := opened(t, c)
	if _, err := OpenDisk(c); !errors.Is(err, store.ErrLocked) {
		t.Errorf("a second disk in the same directory: %v", err)
	}
	if s := d.Status(); s == nil || s.Error != "" || s.Since != nil {
		t.Errorf("Status() = %+v", s)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = opened(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Run(ctx); err != nil {
		t.Error(err)
	}
	opened(t, c)
}

// A hub without a directory has a disk all the same.
func TestWithoutADirectory(t *testing.T) {
	d := opened(t, DiskConfig{})
	if err := d.PutBlob("answer/x", []byte("y")); err != nil || d.Status() != nil {
		t.Errorf("%v, %+v", err, d.Status())
	}
	if y, err := d.Blob("answer/x"); err != nil || string(y) != "y" {
		t.Errorf("%q, %v", y, err)
	}
}

func TestStatus(t *testing.T) {
	since := time.Unix(7, 0)
	s := status(store.Health{Err: "full", Since: since, Corrupt: "a page", Bytes: 9})
	if s.Error != "full" || s.Since == nil || !s.Since.Equal(since) || s.Corrupt != "a page" || s.Bytes != 9 {
		t.Errorf("%+v", s)
	}
}

func TestTheClockIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := opened(t, DiskConfig{Ahead: time.Hour})
		if ahead := time.Until(d.Now()); ahead != time.Hour {
			t.Errorf("it is %v ahead", ahead)
		}
		d.SetAhead(720 * time.Hour)
		if ahead := time.Until(d.Now()); ahead != 720*time.Hour {
			t.Errorf("it is %v ahead", ahead)
		}
	})
}

func TestACutBringsAllToTheDisk(t *testing.T) {
	for name, which := range map[string]int{"the cloud's link": 0, "the coordinator's link": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, DiskConfig{Dir: t.TempDir()})
				links := []*live.Value[link.State]{live.NewValue(link.Unknown), live.NewValue(link.Unknown)}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- d.Heed(ctx, links[0], links[1]) }()
				for i, state := range []link.State{link.Up, link.Down, link.Failing} {
					id := diskPods
					id.Namespace = state.String()
					if err := d.Sink(id).Replace(ctx, diskContent()); err != nil {
						t.Fatal(err)
					}
					links[which].Set(state)
					synctest.Wait()
					if _, err := d.Load(id); (err == nil) != (i > 0) {
						t.Errorf("with the link %v, the disk has it: %v", state, err)
					}
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What nobody reads and nobody needs goes after 7 days in which the cloud could be reached; a cut makes nothing old.
func TestOnlyTimeOnlineMakesTheDiskOld(t *testing.T) {
	for _, tt := range []struct {
		state link.State
		there bool
	}{{link.Up, false}, {link.Down, true}, {link.Unknown, true}} {
		t.Run(tt.state.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := opened(t, DiskConfig{Dir: t.TempDir()})
				cloud := live.NewValue(link.Unknown)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 2)
				go func() { ended <- d.Heed(ctx, cloud) }()
				go func() { ended <- d.Run(ctx) }()
				if err := d.Sink(diskPods).Replace(ctx, diskContent()); err != nil {
					t.Fatal(err)
				}
				d.Need(nil)
				cloud.Set(tt.state)
				time.Sleep(8 * 24 * time.Hour)
				if _, err := d.Load(diskPods); (err == nil) != tt.there {
					t.Errorf("with the link %v, after 8 days: %v", tt.state, err)
				}
				cancel()
				if err := errors.Join(<-ended, <-ended); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
