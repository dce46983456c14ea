package edge

import "testing"

func TestRelayed(t *testing.T) {
	for text, want := range map[string]Relayed{"": {}, "n2": {By: "n2"}, "n2/heartbeats": {"n2", true}} {
		if got := ParseRelayed(text); got != want || got.String() != text {
			t.Errorf("%q: %+v, %q", text, got, got.String())
		}
	}
	if got := (Relayed{HeartbeatsOnly: true}).String(); got != "" {
		t.Errorf("nobody relays by %q", got)
	}
}
