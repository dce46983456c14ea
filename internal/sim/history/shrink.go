package history

import (
	"slices"
	"time"
)

// Shrink makes a history that breaks a promise as small as it can: it leaves out events, time, nodes and coordinators. The
// function breaks reports whether a smaller history still breaks the promise. Chance may decide about that, so Shrink calls
// breaks up to tries times for each smaller history. The parameter most bounds the number of all calls together.
func Shrink(h History, tries, most int, breaks func(History) bool) History {
	asked := 0
	still := func(c History) bool {
		for range tries {
			if asked >= most {
				return false
			}
			if asked++; breaks(c) {
				return true
			}
		}
		return false
	}
	for smaller := true; smaller && asked < most; {
		smaller = false
		for c := range lesser(h) {
			if still(c) {
				h, smaller = c, true
				break
			}
		}
	}
	return h
}

// lesser yields histories that are smaller than h, the much smaller ones first.
func lesser(h History) func(yield func(History) bool) {
	return func(yield func(History) bool) {
		with := func(change func(c *History)) bool {
			c := h
			c.Events = slices.Clone(h.Events)
			change(&c)
			return yield(c)
		}
		n := len(h.Events)
		for size := n / 2; size > 0; size /= 2 { // runs of events, then single ones
			for from := 0; from+size <= n; from += size {
				if !with(func(c *History) { c.Events = slices.Delete(c.Events, from, from+size) }) {
					return
				}
			}
		}
		// What comes after the last event that matters, and the pause before the first.
		last := time.Duration(0)
		for _, e := range h.Events {
			last = max(last, e.At+e.For)
		}
		if end := last.Truncate(time.Second) + time.Second; end < h.Long {
			if !with(func(c *History) { c.Long = end }) {
				return
			}
		}
		if n > 0 && h.Events[0].At > 0 {
			for _, cut := range []time.Duration{h.Events[0].At, h.Events[0].At / 2} {
				if cut = cut.Truncate(time.Second); cut > 0 && !with(func(c *History) {
					c.Long -= cut
					for i := range c.Events {
						c.Events[i].At -= cut
					}
				}) {
					return
				}
			}
		}
		for i := 1; i < n; i++ { // the pauses between
			gap := h.Events[i].At - h.Events[i-1].At
			if cut := (gap / 2).Truncate(time.Second); cut > 0 && !with(func(c *History) {
				c.Long -= cut
				for j := i; j < n; j++ {
					c.Events[j].At -= cut
				}
			}) {
				return
			}
		}
		for i, e := range h.Events {
			if short := (e.For / 2).Truncate(time.Second); short > 0 && !with(func(c *History) { c.Events[i].For = short }) {
				return
			}
			if e.To != "" && e.Does == Server && !with(func(c *History) { c.Events[i].To = "" }) {
				return
			}
		}
		if h.Nodes > 3 && !with(func(c *History) { c.Nodes-- }) {
			return
		}
		if h.Coordinators > 1 && !with(func(c *History) { c.Coordinators-- }) {
			return
		}
	}
}
