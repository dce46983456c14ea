package upgrades

import (
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // an image has no time zones of its own

	"yurtcoordinator/apis/apps/v1alpha1"
)

// openAt reports whether a window is open, and if not, when it opens next. A nil window is always open.
//
// On each of its days a window begins at its time of day in its time zone. If a clock change skips or repeats that time, Go's
// time.Date decides. The window lasts for its duration, even past midnight.
func openAt(w *v1alpha1.UpgradeWindow, now time.Time) (open bool, opens time.Time, err error) {
	if w == nil {
		return true, time.Time{}, nil
	}
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("the window's timeZone: %w", err)
	}
	start, err := time.Parse("15:04", w.Start)
	if err != nil {
		return false, time.Time{}, fmt.Errorf("the window's start: %w", err)
	}
	today := now.In(zone)
	for day := -1; day <= 7; day++ {
		begins := time.Date(today.Year(), today.Month(), today.Day()+day, start.Hour(), start.Minute(), 0, 0, zone)
		if len(w.Days) > 0 && !slices.Contains(w.Days, v1alpha1.Weekday(begins.Weekday().String())) {
			continue
		}
		if begins.After(now) {
			return false, begins, nil
		}
		if now.Before(begins.Add(w.Duration.Duration)) {
			return true, time.Time{}, nil
		}
	}
	return false, time.Time{}, nil
}
