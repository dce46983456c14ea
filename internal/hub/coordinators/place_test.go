package coordinators

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"yurtcoordinator/internal/edge"
)

func TestPlaces(t *testing.T) {
	ca := authority(t)
	found := func(address string) Found {
		dir := t.TempDir()
		content, err := json.Marshal(remembered{"p1", Target{Place: Place{Address: address}, CA: ca}})
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, File), content, 0o600)); err != nil {
			t.Fatal(err)
		}
		return NewFinder(FinderConfig{Pool: "p1", Dir: dir}).In(0)
	}
	for name, tt := range map[string]struct {
		place Found
		url   string
	}{
		"not found yet":   {NewFinder(FinderConfig{Pool: "p1", Dir: t.TempDir()}).In(0), ""},
		"found":           {found("192.0.2.1:10270"), "https://192.0.2.1:10270"},
		"of another slot": {found("192.0.2.1:10270").finder.In(1), ""},
	} {
		if got := tt.place.URL(); got != tt.url {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestRequestsNameTheCoordinatorByItsPool(t *testing.T) {
	want := "https://" + edge.PoolName("p1").CoordinatorServerName() + ":10270"
	if got := NewFinder(FinderConfig{Pool: "p1", Dir: t.TempDir()}).Name().String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
