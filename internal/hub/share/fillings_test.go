package share

import (
	"maps"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
)

func TestFillings(t *testing.T) {
	type are = map[string]edge.Filling
	inWorld(t, func(w *world) {
		is := func(want are) {
			t.Helper()
			if got := w.pusher.Fillings(); !maps.Equal(got, want) || (got == nil) != (want == nil) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		is(nil)
		late := newSource(t, others)
		w.set.become(w.things, late)
		w.begin()
		w.pass(time.Second)
		is(are{"things.example.com": edge.FillingCurrent, "others": edge.FillingNone})
		late.fill("x")
		w.pass(time.Second)
		is(are{"things.example.com": edge.FillingCurrent, "others": edge.FillingCurrent})
		w.things.live.Store(false) // what changes in the cloud does not come any more
		w.pass(stillLive + declareEvery)
		is(are{"things.example.com": edge.FillingComplete, "others": edge.FillingCurrent})
		w.coordinator.set(func() { w.coordinator.before = hang })
		w.pass(time.Minute)
		is(are{"things.example.com": edge.FillingComplete, "others": edge.FillingComplete})
		w.stop()
		is(nil)
	})
}
