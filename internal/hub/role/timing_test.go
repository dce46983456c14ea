package role

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection"
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
		term := f.term(1, "")
		if term.Valid() {
			t.Error("valid before any renewal was acknowledged")
		}
		start := time.Now()
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
		f.acknowledge(110, start.Add(time.Second))
		if !term.Valid() {
			t.Error("not valid after a renewal")
		}
		time.Sleep(time.Minute) // as stopped by SIGSTOP: nobody has noticed anything yet
		if term.Valid() {
			t.Error("valid after a minute's stop")
		}
		f.acknowledge(120, time.Now())
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
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var f fence
	term := f.term(1, "")
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
		if ok != (tt.want >= 0) || ok && !got.Equal(at(tt.want)) {
			t.Errorf("NotBefore(%d) = %s, %v; want %d s", tt.revision, got.Sub(start), ok, tt.want)
		}
	}
	if len(f.renewals) != remembered {
		t.Errorf("%d renewals remembered, want %d", len(f.renewals), remembered)
	}
}

func TestElapsedCountsSuspend(t *testing.T) {
	now := time.Now()
	// The wall clock went on by a minute while the monotonic one stood still: the machine slept.
	woken := now.Round(0).Add(time.Minute)
	if got := elapsed(now, woken); got < time.Minute {
		t.Errorf("a minute's sleep counts as %s", got)
	}
	// The wall clock was set back: the monotonic one still counts.
	if got := elapsed(now.Add(-time.Second), now); got != time.Second {
		t.Errorf("a second counts as %s", got)
	}
}
