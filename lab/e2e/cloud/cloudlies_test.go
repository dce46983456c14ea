package cloud

import (
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/lab/e2e/watchcheck"
)

func TestChaptersAreJoinedOnlyWhereTheyFit(t *testing.T) {
	item := func(revision uint64) watchcheck.Item { return watchcheck.Item{Revision: revision, Hash: revision} }
	first := func() *watchcheck.Facts {
		return &watchcheck.Facts{
			Start: 10, End: 15, Initial: map[string]watchcheck.Item{"a": item(3), "b": item(4)},
			Changes: []watchcheck.Fact{
				{Revision: 12, Type: watch.Modified, Key: "a", Item: item(12)},
				{Revision: 13, Type: watch.Deleted, Key: "b", Item: item(13)},
			},
		}
	}
	for _, c := range []struct {
		name   string
		start  uint64
		begins map[string]watchcheck.Item
		fits   bool
	}{
		{"what there was", 20, map[string]watchcheck.Item{"a": item(12)}, true},
		{"too early", 14, map[string]watchcheck.Item{"a": item(12)}, false},
		{"changed in between", 20, map[string]watchcheck.Item{"a": item(17)}, false},
		{"made in between", 20, map[string]watchcheck.Item{"a": item(12), "c": item(17)}, false},
		{"deleted in between", 20, nil, false},
	} {
		second := &watchcheck.Facts{
			Start: c.start, End: 25, Initial: c.begins,
			Changes: []watchcheck.Fact{{Revision: 22, Type: watch.Added, Key: "b", Item: item(22)}},
		}
		third := &watchcheck.Facts{Start: 30, End: 31, Initial: map[string]watchcheck.Item{"a": item(12), "b": item(22)}}
		whole, err := joined([]*watchcheck.Facts{first(), second, third})
		if (err == nil) != c.fits {
			t.Errorf("%s: %v", c.name, err)
		}
		if err == nil && (whole.Start != 10 || whole.End != 31 || len(whole.Changes) != 3 || len(whole.Initial) != 2) {
			t.Errorf("%s: %+v", c.name, whole)
		}
	}
}
