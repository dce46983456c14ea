package upgrades

import (
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // an image has no time zones of its own

	"yurtcoordinator/apis/apps/v1alpha1"
)

// openAt reports whether a window is open, and when it opens next if it is not. No window is always open.
//
// A day's window begins at its time of day in its zone; where that is left out or there twice, because clocks are set, Go's
// time.Date decides. It lasts as long as it says, over midnight, too.
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
