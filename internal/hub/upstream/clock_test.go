package upstream

import (
	"time"

	"k8s.io/utils/clock"
)

// ticks is the system's clock, except that its tickers tick when told.
type ticks struct {
	clock.RealClock
	c chan time.Time
}

func newTicks() *ticks { return &ticks{c: make(chan time.Time)} }

// tick returns when the ticker's owner has taken a tick.
func (t *ticks) tick() { t.c <- time.Time{} }

func (t *ticks) NewTicker(time.Duration) clock.Ticker { return t }
func (t *ticks) C() <-chan time.Time                  { return t.c }
func (t *ticks) Stop()                                {}
