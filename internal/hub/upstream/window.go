package upstream

import "time"

const (
	// queueTarget is how long what a connection has on its way may wait in the line's queue.
	queueTarget = 500 * time.Millisecond
	// leastWindow and mostWindow bound a window, in bytes. firstWindow is what a connection begins with: less than what
	// kernels allow unasked, and 2 s at 128 kbit/s.
	leastWindow = 16 << 10
	firstWindow = 32 << 10
	mostWindow  = 4 << 20
	// shortestTrip is what counts as a round trip where none was measured, or a shorter one.
	shortestTrip = time.Millisecond
	// quietGap is how long a connection may bring nothing, beyond a round trip, before what comes next says nothing about
	// the line: the server had nothing to send.
	quietGap = time.Second
)

// window decides how many bytes a connection may have on its way to us. It clocks itself: on a line that is not full the window
// is what limits the rate, so the next is larger, by queueTarget's share; on a full one, the rate is the line's, and the window
// comes to what the line holds and queueTarget of queue. It is a pure machine: make one with newWindow.
type window struct {
	size  int
	least int       // as leastWindow
	began time.Time // of the present round
	last  time.Time // when something came last
	got   int       // bytes in this round
}

// newWindow returns a window of at least so many bytes.
func newWindow(least int) window {
	least = min(max(leastWindow, least), mostWindow)
	return window{size: max(firstWindow, least), least: least}
}

// due takes in that n bytes have come at a time, and reports whether the round is over: then next says how large the window is. A
// round is a window, or the time in which the window should come.
func (w *window) due(at time.Time, n int, trip time.Duration) bool {
	trip = max(trip, shortestTrip)
	if w.last.IsZero() || at.Sub(w.last) > trip+quietGap {
		// What ends a quiet time was on its way before the round began.
		w.began, w.got, w.last = at, 0, at
		return false
	}
	w.last = at
	w.got += n
	return w.got >= w.size || at.Sub(w.began) >= trip+queueTarget
}

// next ends a round, over a way whose least round trip is known. It changes the window by no more than to the double, or by a
// quarter less.
func (w *window) next(at time.Time, trip time.Duration) {
	trip = max(trip, shortestTrip)
	// No more than a window comes in a round trip: what seems to was read late.
	took := max(at.Sub(w.began), trip*time.Duration(w.got)/time.Duration(w.size), time.Microsecond)
	rate := float64(w.got) / took.Seconds()
	fits := int(min(rate*(trip+queueTarget).Seconds(), mostWindow))
	w.size = min(max(fits, w.size*3/4, w.least), 2*w.size, mostWindow)
	w.began, w.got = at, 0
}
