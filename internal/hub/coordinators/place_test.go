package coordinators

import (
	"encoding/json"
	"errors"
	"net/url"
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
	fixed := func(address string) Fixed { return Fixed{At: &url.URL{Scheme: "https", Host: address}} }
	for name, tt := range map[string]struct {
		place interface {
			URL() string
			OnThisMachine() bool
		}
		url  string
		here bool
	}{
		"not found yet":          {NewFinder(FinderConfig{Pool: "p1", Dir: t.TempDir()}).In(0), "", false},
		"found here":             {found("127.0.0.1:10270"), "https://127.0.0.1:10270", true},
		"found elsewhere":        {found("192.0.2.1:10270"), "https://192.0.2.1:10270", false},
		"set, and here":          {fixed("127.0.0.1:10270"), "https://127.0.0.1:10270", true},
		"set, and elsewhere":     {fixed("192.0.2.1:10270"), "https://192.0.2.1:10270", false},
		"set, and only its name": {fixed("localhost:10270"), "https://localhost:10270", false},
		"of another slot":        {found("127.0.0.1:10270").finder.In(1), "", false},
	} {
		if got, here := tt.place.URL(), tt.place.OnThisMachine(); got != tt.url || here != tt.here {
			t.Errorf("%s: %q, on this machine: %v", name, got, here)
		}
	}
}

func TestRequestsNameTheCoordinatorByItsPool(t *testing.T) {
	want := "https://" + edge.PoolName("p1").CoordinatorServerName() + ":10270"
	if got := NewFinder(FinderConfig{Pool: "p1", Dir: t.TempDir()}).Name().String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
