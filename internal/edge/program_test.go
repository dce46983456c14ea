package edge

import (
	"strings"
	"testing"
)

func TestHubProgram(t *testing.T) {
	for _, p := range []HubProgram{{Version: "v0.2.0"}, {Version: "v0.3.0-rc.1", Upgradable: true}} {
		if got, ok := ParseHubProgram(p.String()); !ok || got != p {
			t.Errorf("%q: %+v, %v, want %+v", p.String(), got, ok, p)
		}
	}
	for _, text := range []string{
		"", "/upgradable", "v0.2", "v0.2.0/", "v0.2.0/up", "v0.2.0/upgradable/upgradable", "v0.2.0\n",
		"v0.2.0-" + strings.Repeat("a", 100),
	} {
		if got, ok := ParseHubProgram(text); ok || got != (HubProgram{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
