package page

import "testing"

func TestApart(t *testing.T) {
	for name, tt := range map[string]struct {
		hub, coordinator string
		want             Apart
		tone             Tone
	}{
		"the same":                 {"v0.2.0", "v0.2.0", Same, ""},
		"of one commit":            {"v0.2.0-dev.g0e928d5", "v0.2.0-dev.g0e928d5", Same, ""},
		"a patch older":            {"v0.2.0", "v0.2.1", Older, Warn},
		"before the release":       {"v0.2.0-rc.1", "v0.2.0", Older, Warn},
		"a minor version older":    {"v0.1.9", "v0.2.0", Older, Warn},
		"a minor version newer":    {"v0.3.0", "v0.2.7", Newer, Warn},
		"two minor versions older": {"v0.1.9", "v0.3.0", TooOld, Bad},
		"two minor versions newer": {"v0.4.0", "v0.2.0", TooNew, Bad},
		"a major version older":    {"v0.9.0", "v1.0.0", TooOld, Bad},
		"a major version newer":    {"v2.0.0", "v1.9.0", TooNew, Bad},
		"a hub that says nothing":  {"", "v0.2.0", Same, ""},
		"a coordinator without":    {"v0.2.0", "", Same, ""},
	} {
		if got := apart(tt.hub, tt.coordinator); got != tt.want || got.tone() != tt.tone {
			t.Errorf("%s: %q (%s), want %q (%s)", name, got, got.tone(), tt.want, tt.tone)
		}
	}
}
