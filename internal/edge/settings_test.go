package edge

import (
	"strings"
	"testing"
)

func TestSettingsReport(t *testing.T) {
	for _, r := range []SettingsReport{
		{}, {Runs: 5, Told: 5}, {Runs: 4, Told: 5, State: SettingsNeedRestart, Why: "own-objects"},
		{Told: 7, State: SettingsRefused, Why: "v1/services is given twice: a/b/c"},
	} {
		if got, err := ParseSettingsReport(r.String()); err != nil || got != r {
			t.Errorf("%q: got %+v, %v, want %+v", r.String(), got, err, r)
		}
	}
	long := SettingsReport{State: SettingsRefused, Why: strings.Repeat("ä", 300)}
	if got, err := ParseSettingsReport(long.String()); err != nil || got.Why != strings.Repeat("ä", maxSettingsWhy/2) {
		t.Errorf("a long reason: %d bytes, %v", len(got.Why), err)
	}
	for _, text := range []string{"", "5", "5/5", "5/5/", "a/5//", "5/-1//", "-1/5//", "5/5/mad/", "5/99999999999999999999//"} {
		if got, err := ParseSettingsReport(text); err == nil || got != (SettingsReport{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
