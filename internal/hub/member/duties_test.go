package member

import (
	"testing"
	"time"

	"yurtcoordinator/apis/hub/v1alpha1"
	"yurtcoordinator/internal/edge"
)

// TestReportsAreBelievedUntilTheNext: on any link a leader repeats its report before the cloud stops believing it, even if one
// report is lost.
func TestReportsAreBelievedUntilTheNext(t *testing.T) {
	for of, want := range map[v1alpha1.LinkProfile]time.Duration{
		v1alpha1.LinkNormal: 3 * time.Minute, v1alpha1.LinkSatellite: 3 * time.Minute, v1alpha1.LinkMetered: 5 * time.Minute,
	} {
		every := reportEvery(of)
		if every != want {
			t.Errorf("%s: every %v, want %v", of, every, want)
		}
		if seconds := int32(2 * every / time.Second); edge.ReportLasts(&seconds) < 2*every+every/4 {
			t.Errorf("%s: repeated every %v, believed for %v", of, every, edge.ReportLasts(&seconds))
		}
	}
}
