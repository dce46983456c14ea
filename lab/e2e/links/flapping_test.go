package links

import (
	"slices"
	"testing"
	"time"

	"yurtcoordinator/lab"
)

func TestListedAgain(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	const pool, services = "/apis/apps.openyurt.io/v1beta2/nodepools?fieldSelector=metadata.name%3Dp1", "/api/v1/services"
	read := func(user, uri string, after time.Duration) lab.FullRead {
		return lab.FullRead{User: user, URI: uri, At: began.Add(after)}
	}
	for name, test := range map[string]struct {
		reads []lab.FullRead
		want  int
	}{
		"before the flaps": {[]lab.FullRead{read("n1", pool, -2), read("n1", pool, -1)}, 0},
		"a hub that leads for the first time": {
			[]lab.FullRead{read("n1", pool, -1), read("n2", pool, 1), read("n3", pool, 2)}, 0,
		},
		"once more":                 {[]lab.FullRead{read("n1", pool, -1), read("n1", pool, 1)}, 1},
		"twice since, out of order": {[]lab.FullRead{read("n2", pool, 2), read("n2", pool, 1)}, 1},
		"watches that begin with all": {[]lab.FullRead{
			read("n1", services+"?watch=1&timeoutSeconds=400", -1), read("n1", services+"?watch=1&timeoutSeconds=500", 1),
		}, 1},
		"something else": {[]lab.FullRead{read("n1", services, -1), read("n1", pool, 1)}, 0},
		"what another node had read": {
			[]lab.FullRead{read("n1", services, -1), read("n2", services, 1), read("n2", services, 2)}, 1,
		},
	} {
		got := listedAgain(test.reads, began)
		if len(got) != test.want || slices.ContainsFunc(got, func(l lab.FullRead) bool { return !l.At.After(began) }) {
			t.Errorf("%s: %v, want %d", name, got, test.want)
		}
	}
}
