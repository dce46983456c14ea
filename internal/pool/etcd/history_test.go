package etcd

import (
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	start := time.Unix(1000, 0)
	type at struct {
		seconds, revision, inUse int64
		want                     int64
	}
	for name, steps := range map[string][]at{
		"by revisions": {
			{0, 10, 0, 0}, {1, 10 + windowRevisions - 1, 0, 0}, {2, 10 + windowRevisions, 0, 10},
			{3, 10 + windowRevisions, 0, 0}, {4, 11 + 2*windowRevisions, 0, 10 + windowRevisions},
		},
		"by bytes": {
			{0, 10, 1 << 20, 0}, {1, 20, windowBytes, 0}, {2, 21, 1<<20 + windowBytes, 10}, {3, 22, 1<<20 + windowBytes, 0},
			{4, 23, 1<<20 + 2*windowBytes, 21},
		},
		"by bytes, while the last compaction frees as many": {
			{0, 10, 40 << 20, 0}, {1, 20, 30 << 20, 0}, {2, 30, 30<<20 + windowBytes, 10},
		},
		"by age":      {{0, 10, 0, 0}, {299, 11, 0, 0}, {300, 11, 0, 10}, {600, 11, 0, 0}, {601, 12, 0, 11}},
		"not if idle": {{0, 10, 0, 0}, {10_000, 10, 0, 0}, {20_000, 10, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			var w window
			for _, s := range steps {
				got := w.advance(start.Add(time.Duration(s.seconds)*time.Second), s.revision, s.inUse,
					bounds{windowRevisions, windowBytes})
				if got != s.want {
					t.Errorf("%+v: compacts at %d", s, got)
				}
			}
		})
	}
}

func TestFragmented(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		size, inUse, quota int64
		want               bool
	}{
		{64 * mb, 40 * mb, 256 * mb, false},
		{64 * mb, 10 * mb, 256 * mb, true},
		{33 * mb, mb, 256 * mb, false},
		{200 * mb, 150 * mb, 256 * mb, true},  // soon full, and a quarter of it is free
		{200 * mb, 190 * mb, 256 * mb, false}, // soon full, and needed
		{16 * mb, 0, 16 * mb, true},
	} {
		if got := fragmented(c.size, c.inUse, c.quota); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
