package edge

import (
	"maps"
	"strings"
	"testing"
)

func TestVersions(t *testing.T) {
	all := map[NodeName]string{"n3": "v0.3.0", "n1": "v0.2.0", "n2": "v0.2.0", "n.4": "v0.2.0-dev.g0e928d5"}
	text := JoinVersions(all)
	if want := "v0.2.0=n1;n2,v0.2.0-dev.g0e928d5=n.4,v0.3.0=n3"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if got := SplitVersions(text); !maps.Equal(got, all) {
		t.Errorf("%v, want %v", got, all)
	}
	if text := JoinVersions(nil); text != "" || len(SplitVersions(text)) != 0 {
		t.Errorf("%q", text)
	}
	got := SplitVersions("v0.2.0=n1;;n2,latest=n3,=n4,v0.2.0,v1.0.0-" + strings.Repeat("x", maxVersion) + "=n5,v0.3.0<b>=n6")
	if want := (map[NodeName]string{"n1": "v0.2.0", "n2": "v0.2.0"}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
