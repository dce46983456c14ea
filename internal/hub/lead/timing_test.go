package lead

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"yurtcoordinator/internal/ends"
)

// TestLeaderStopsBeforeOthersMayLead is the sum in timing.go.
func TestLeaderStopsBeforeOthersMayLead(t *testing.T) {
	longest := max(renewEvery, writeTimeout) + retryPeriod + renewDeadline + leadGrace
	if longest >= leaseDuration {
		t.Errorf("a leader may go on for %s after its last renewal, others wait %s", longest, leaseDuration)
	}
	jitter := leaderelection.JitterFactor
	if most := retryPeriod + time.Duration(jitter*float64(retryPeriod)).Round(time.Millisecond); pollMax != most {
		t.Errorf("pollMax is %s, the elector waits for up to %s", pollMax, most)
	}
	// What followers wait at most: the lease, and one period of theirs.
	if takeover := leaseDuration + pollMax; takeover > 5*time.Second {
		t.Errorf("a crash costs the pool up to %s without a leader, the budget is 5 s", takeover)
	}
	if fenceMargin <= 0 || leaseDuration%time.Second != 0 {
		t.Error("the fence needs a margin, and the Lease whole seconds")
	}
}

func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fence
		term := f.term(1)
		if term.Valid() {
			t.Error("valid before any renewal was acknowledged")
		}
		start := ends.Clock{}.Now()
		f.acknowledge(100, start)
		time.Sleep(leaseDuration - fenceMargin - time.Millisecond)
		if !term.Valid() {
			t.Error("not valid although just renewed")
		}
		time.Sleep(time.Millisecond)
		if term.Valid() {
			t.Error("valid at the margin")
		}
		// An acknowledgement that took long counts from when it was asked for.
		f.acknowledge(110, later(start, time.Second))
		if !term.Valid() {
			t.Error("not valid after a renewal")
		}
		time.Sleep(time.Minute) // as stopped by SIGSTOP: nobody has noticed anything yet
		if term.Valid() {
			t.Error("valid after a minute's stop")
		}
		f.acknowledge(120, ends.Clock{}.Now())
		if !term.Valid() {
			t.Error("not valid although nobody took the Lease meanwhile")
		}
		f.fall()
		if term.Valid() {
			t.Error("valid after it was given up")
		}
	})
}

func TestNotBefore(t *testing.T) {
	start := ends.Clock{}.Now()
	at := func(s int) ends.Moment { return later(start, time.Duration(s)*time.Second) }
	var f fence
	term := f.term(1)
	for i := range 100 {
		f.acknowledge(uint64(1000+10*i), at(i))
	}
	f.acknowledge(1500, at(500)) // late and out of order: it would make old events look young
	tests := []struct {
		revision uint64
		want     int // seconds; -1: unknown
	}{
		{999, -1},
		{1000, -1}, // long forgotten
		{1000 + 10*(100-remembered), -1},
		{1001 + 10*(100-remembered), 100 - remembered},
		{1700, 69},
		{1705, 70},
		{1990, 98},
		{1991, 99},
		{99999, 99},
	}
	for _, tt := range tests {
		got, ok := term.NotBefore(tt.revision)
		if ok != (tt.want >= 0) || ok && !got.Equal(at(tt.want).Running) {
			t.Errorf("NotBefore(%d) = %s, %v; want %d s", tt.revision, got.Sub(start.Running), ok, tt.want)
		}
	}
	if len(f.renewals) != remembered {
		t.Errorf("%d renewals remembered, want %d", len(f.renewals), remembered)
	}
}

// later is a moment that is some time after another.
func later(m ends.Moment, by time.Duration) ends.Moment {
	return ends.Moment{Running: m.Running.Add(by), Wall: m.Wall.Add(by)}
}

// TestFenceCountsSuspend checks that a machine that slept finds its term over, although its running clock stood still, and that a
// wall clock that is set back does not extend a term.
func TestFenceCountsSuspend(t *testing.T) {
	now := ends.Clock{}.Now()
	f := fence{clock: ends.Clock{
		OfDay: func() time.Time { return now.Wall }, Ran: func() time.Time { return now.Running },
	}}
	term := f.term(1)
	f.acknowledge(100, now)
	now.Wall = now.Wall.Add(-time.Hour)
	if !term.Valid() {
		t.Error("not valid although just renewed")
	}
	now.Running = now.Running.Add(leaseDuration)
	if term.Valid() {
		t.Error("valid after its time, by a wall clock that was set back")
	}
	f.acknowledge(110, now)
	now.Wall = now.Wall.Add(time.Minute)
	if term.Valid() {
		t.Error("valid after a minute's sleep")
	}
}
