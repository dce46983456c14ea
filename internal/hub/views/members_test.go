package views

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/live"
	"yurtcoordinator/internal/stream"
)

// TestNodesOf: whatever is no NodePool says nothing.
func TestNodesOf(t *testing.T) {
	for text, want := range map[string]string{
		`{"kind":"NodePool","spec":{},"status":{"nodes":["n1","n2"]}}`: "[n1 n2]",
		`{"kind":"NodePool","status":{}}`:                              "[]",
		`{"kind":"NodePool","status":{"nodes":"n1"}}`:                  "cannot unmarshal",
		`cloud`: "invalid character",
	} {
		nodes, err := nodesOf(stream.Object{Raw: []byte(text)})
		if got := fmt.Sprint(nodes, err); !strings.Contains(got, want) || (err == nil) != strings.HasPrefix(want, "[") {
			t.Errorf("%s: %s, want %q", text, got, want)
		}
	}
}

// fedOnce is a feed that brings one object.
type fedOnce struct {
	cache.Order
	is stream.Object
}

func (f fedOnce) Run(ctx context.Context) {
	if f.is.Key != (stream.Key{}) {
		all := stream.Snapshot{Type: poolType, Revision: 9, Objects: []stream.Object{f.is}}
		if err := f.Replica.Replace(ctx, all); err != nil {
			panic(err)
		}
	}
	<-ctx.Done()
}

func (fedOnce) Status() *live.Value[cache.FeedStatus] { return live.NewValue(cache.FeedStatus{}) }
func (fedOnce) Refresh()                              {}
func (fedOnce) Filling() int                          { return 0 }

// TestPoolNodes: nothing is said by a pool that is not followed, has not come, is another, or cannot be read.
func TestPoolNodes(t *testing.T) {
	pool := nodePool(8, "n1", "n2")
	broken := stream.Object{Key: pool.Key, Revision: 8, Raw: []byte(`{"status":{"nodes":1}}`)}
	for what, tt := range map[string]struct {
		follows, asked edge.PoolName
		is             stream.Object
		want           []edge.NodeName
	}{
		"the own pool":         {"hangzhou", "hangzhou", pool, []edge.NodeName{"n1", "n2"}},
		"not followed":         {"another", "hangzhou", pool, nil},
		"not come yet":         {"hangzhou", "hangzhou", stream.Object{}, nil},
		"another's":            {"beijing", "beijing", pool, nil},
		"what cannot be read":  {"hangzhou", "hangzhou", broken, nil},
		"a pool without nodes": {"hangzhou", "hangzhou", nodePool(8), nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			disk, err := cache.OpenDisk(cache.DiskConfig{})
			if err != nil {
				t.Fatal(err)
			}
			up := live.NewValue(link.Up)
			set := cache.New(cache.Config{
				Node: "n1", Disk: disk, Cloud: up, Coordinator: up, Always: []cache.Selection{OwnPool(tt.follows)},
				NewFeed: func(o cache.Order) cache.Feeder { return fedOnce{o, tt.is} },
			}, nil)
			if got := PoolNodes(set, tt.asked); got != nil {
				t.Errorf("%s: before anything runs, the pool has %v", what, got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- set.Run(ctx) }()
			synctest.Wait()
			PoolNodes(set, tt.asked) // now it is wanted
			synctest.Wait()
			if got := PoolNodes(set, tt.asked); !slices.Equal(got, tt.want) {
				t.Errorf("%s: the pool has %v, want %v", what, got, tt.want)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if err := disk.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
