package upgrades

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/apis/apps/v1alpha1"
)

func TestOpenAt(t *testing.T) {
	window := func(start string, lasts time.Duration, zone string, days ...v1alpha1.Weekday) *v1alpha1.UpgradeWindow {
		return &v1alpha1.UpgradeWindow{Days: days, Start: start, Duration: metav1.Duration{Duration: lasts}, TimeZone: zone}
	}
	at := func(text string) time.Time {
		when, err := time.Parse("2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	night := window("22:00", 4*time.Hour, "")
	for _, tt := range []struct {
		w     *v1alpha1.UpgradeWindow
		now   string
		open  bool
		opens string
	}{
		{nil, "2026-11-26 12:00", true, ""}, // a Thursday
		{night, "2026-11-26 21:59", false, "2026-11-26 22:00"},
		{night, "2026-11-26 22:00", true, ""},
		{night, "2026-11-27 01:59", true, ""},
		{night, "2026-11-27 02:00", false, "2026-11-27 22:00"},
		{window("02:30", time.Hour, "", "Sunday"), "2026-11-26 03:00", false, "2026-11-29 02:30"},
		{window("02:30", time.Hour, "", "Sunday", "Thursday"), "2026-11-26 03:00", true, ""},
		{window("22:00", 4*time.Hour, "", "Thursday"), "2026-11-27 01:00", true, ""}, // it began on Thursday
		{window("22:00", 4*time.Hour, "", "Friday"), "2026-11-27 01:00", false, "2026-11-27 22:00"},
		{window("12:00", time.Hour, "", "Thursday"), "2026-11-26 13:00", false, "2026-12-03 12:00"},
		{window("00:00", 24*time.Hour, ""), "2026-11-26 23:59", true, ""},
		{window("02:00", time.Hour, "Europe/Berlin"), "2026-11-26 01:00", true, ""},
		{window("02:00", time.Hour, "Europe/Berlin"), "2026-11-26 02:00", false, "2026-11-27 01:00"},
		{window("02:30", time.Hour, "Europe/Berlin"), "2026-03-28 23:00", false, "2026-03-29 01:30"}, // left out: 03:30
		{window("23:30", time.Hour, "Asia/Kolkata", "Friday"), "2026-11-26 18:30", false, "2026-11-27 18:00"},
	} {
		open, opens, err := openAt(tt.w, at(tt.now))
		if want := ""; err != nil || open != tt.open || tt.opens != want && !opens.Equal(at(tt.opens)) {
			t.Errorf("%+v at %s: %v, %v, %v, want %v, %s", tt.w, tt.now, open, opens, err, tt.open, tt.opens)
		}
	}
	for _, w := range []*v1alpha1.UpgradeWindow{window("02:00", time.Hour, "Mars/Olympus"), window("25:00", time.Hour, "")} {
		if _, _, err := openAt(w, noon); err == nil {
			t.Errorf("%+v can be used", w)
		}
	}
}
