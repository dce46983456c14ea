package share

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2/ktesting"
)

// TestWhyAResourceIsNotDeclared: each reason has its words, which on-call finds in the log after a while, once.
func TestWhyAResourceIsNotDeclared(t *testing.T) {
	now := time.Now()
	long := now.Add(-time.Minute)
	good := state{acked: 110, target: 110, live: now}
	for want, change := range map[string]func(*state){
		"":                   func(*state) {},
		"has not taken it":   func(s *state) { s.acked = 0 },
		"in another history": func(s *state) { s.history = 3 },
		"not taken all":      func(s *state) { s.target = 111 },
		"has not brought":    func(s *state) { s.live = time.Time{} },
		"brings it no more":  func(s *state) { s.live = long },
		"takes nothing":      func(s *state) { s.behind = long },
		"has more than":      func(s *state) { s.acked, s.ahead = 120, long },
	} {
		source := newSource(t, things, "a")
		source.live.Store(false)
		of := Resource{GVR: things, Replica: source.Replica, Live: source.live.Load}
		c := &carrier{resource: of, state: good}
		change(&c.state)
		if got := c.lags(now); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}

func TestWhatLagsIsToldOnce(t *testing.T) {
	w := &declarer{lagging: map[string]lag{}}
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	began := time.Now()
	at := func(after time.Duration, why string) {
		all := map[string]string{}
		if why != "" {
			all["services"] = why
		}
		w.logMissing(logger, began.Add(after), all)
	}
	at(0, "slow")
	at(laggingFor-time.Second, "slow")
	at(laggingFor, "slow")
	at(laggingFor+time.Second, "slow")
	at(laggingFor+2*time.Second, "ahead")
	at(laggingFor+3*time.Second, "ahead")
	at(laggingFor+4*time.Second, "")
	at(laggingFor+5*time.Second, "slow")
	at(laggingFor+6*time.Second, "")
	var said []string
	for _, line := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		said = append(said, line.Message)
	}
	want := []string{
		"A pool resource can't be declared current", "A pool resource can't be declared current",
		"A pool resource is declared current",
	}
	if !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
}
