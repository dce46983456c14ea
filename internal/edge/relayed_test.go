package edge

import (
	"strings"
	"testing"
)

func TestRelayed(t *testing.T) {
	for text, want := range map[string]Relayed{"": {}, "n2": {By: "n2"}, "n2/heartbeats": {"n2", true}} {
		if got := ParseRelayed(text); got != want || got.String() != text {
			t.Errorf("%q: %+v, %q", text, got, got.String())
		}
	}
	for _, text := range []string{"/heartbeats", "N2", "n2\x1b[2J", "n2/other", strings.Repeat("n", 300)} {
		if got := ParseRelayed(text); got != (Relayed{}) {
			t.Errorf("%.20q, which names no node, is read as %+v", text, got)
		}
	}
	if got := (Relayed{HeartbeatsOnly: true}).String(); got != "" {
		t.Errorf("nobody relays by %q", got)
	}
}
