package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"yurtcoordinator/internal/ends"
)

// far is the other end of a connection, as the kernel sees it. It acknowledges a keep-alive after its trip unless it is deaf.
type far struct {
	trip, retransmit time.Duration
	deaf             bool

	idle  time.Duration
	last  time.Time // when it was heard last
	next  time.Time // when it will be
	sent  int
	unset bool // nothing is known of it
}

func (f *far) state() (tcpState, bool) {
	if !f.next.IsZero() && !f.next.After(time.Now()) {
		f.last, f.next = f.next, time.Time{}
	}
	return tcpState{acknowledged: time.Since(f.last), trip: f.trip, retransmit: f.retransmit}, !f.unset
}

func (f *far) keepAlive(idle time.Duration) {
	f.idle = idle
	if time.Since(f.last) >= idle {
		f.sent++
		if !f.deaf {
			f.next = time.Now().Add(f.trip)
		}
	}
}

// TestWhoIsKnockedAt: only an end that answers pings as fast as it acknowledges, and not one that was just heard.
func TestWhoIsKnockedAt(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		far   far
		pings []time.Duration
		heard time.Duration // before
		asked bool
	}{
		"the server, near":                {far{trip: ms / 5}, []time.Duration{ms}, 2600 * ms, true},
		"the server, far":                 {far{trip: 600 * ms}, []time.Duration{700 * ms}, 2600 * ms, true},
		"a ping that took long, once":     {far{trip: 20 * ms}, []time.Duration{90 * ms, 21 * ms, 80 * ms}, 2600 * ms, true},
		"nothing was pinged":              {far{trip: 20 * ms}, nil, 2600 * ms, false},
		"a proxy at the site":             {far{trip: ms}, []time.Duration{30 * ms, 28 * ms}, 2600 * ms, false},
		"a satellite's accelerator":       {far{trip: 2 * ms}, []time.Duration{650 * ms}, 2600 * ms, false},
		"a proxy on half of the way":      {far{trip: 20 * ms}, []time.Duration{40 * ms}, 2600 * ms, false},
		"heard half a second ago":         {far{trip: 20 * ms}, []time.Duration{20 * ms}, 500 * ms, false},
		"the kernel knows nothing":        {far{trip: 20 * ms, unset: true}, []time.Duration{20 * ms}, 2600 * ms, false},
		"the kernel knows no round trips": {far{}, []time.Duration{20 * ms}, 2600 * ms, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				end := test.far
				end.last, end.idle = time.Now(), keepAliveIdle
				k := &knocker{tcp: &end}
				for _, took := range test.pings {
					k.pinged(took, false)
				}
				time.Sleep(test.heard)
				began := time.Now()
				came, asked := k.knock(t.Context())
				took := time.Since(began)
				if came != test.asked || asked != test.asked || end.sent > 1 || (end.sent == 1) != test.asked {
					t.Errorf("came %t, asked %t, sent %d; want %t, and an acknowledgement", came, asked, end.sent, test.asked)
				}
				if end.idle != keepAliveIdle {
					t.Errorf("afterwards TCP sends keep-alives after %v", end.idle)
				}
				if asked && took > end.trip*5/4+2*knockTick {
					t.Errorf("noticed after %v, of a round trip of %v", took, end.trip)
				}
			})
		})
	}
	if came, asked := (*knocker)(nil).knock(t.Context()); came || asked {
		t.Error("knocked without a socket")
	}
	(*knocker)(nil).pinged(time.Second, true)
	if newKnocker(nil, ends.Clock{}) != nil {
		t.Error("a knocker without a socket")
	}
}

// TestKnocksWithoutAnAnswer: a knock is given up when TCP would retransmit. If no knock is ever answered, the hub soon sends
// only pings.
func TestKnocksWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := &far{trip: 20 * time.Millisecond, retransmit: 220 * time.Millisecond, deaf: true, last: time.Now()}
		k := &knocker{tcp: end}
		k.pinged(20*time.Millisecond, false)
		ask := func() bool {
			time.Sleep(2600 * time.Millisecond)
			began := time.Now()
			came, asked := k.knock(t.Context())
			if came {
				t.Error("an acknowledgement that nobody sent")
			}
			if took := time.Since(began); asked && (took < end.retransmit || took > end.retransmit+knockTick) {
				t.Errorf("waited for %v, want %v", took, end.retransmit)
			}
			end.last = time.Now()
			k.pinged(20*time.Millisecond, asked)
			return asked
		}
		for range 2 { // one may have been lost
			if !ask() {
				t.Error("not asked again")
			}
		}
		asked := 0
		for range 1000 {
			if ask() {
				asked++
			}
		}
		if asked < 1000/(knockSkipMost+1) || asked > 30 {
			t.Errorf("%d knocks of 1000 at an end that never answers", asked)
		}
		end.deaf = false
		for range knockSkipMost {
			time.Sleep(2600 * time.Millisecond)
			if came, asked := k.knock(t.Context()); asked {
				if !came {
					t.Error("no acknowledgement")
				}
				break
			}
		}
		time.Sleep(2600 * time.Millisecond)
		if came, asked := k.knock(t.Context()); !came || !asked {
			t.Error("not knocked at an end that answers again")
		}
		end.deaf = true
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second+10*time.Millisecond)
		defer cancel()
		time.Sleep(2 * time.Second)
		began := time.Now()
		if came, asked := k.knock(ctx); came || !asked || time.Since(began) > 10*time.Millisecond {
			t.Errorf("%t, %t after %v, want an end when nobody waits any more", came, asked, time.Since(began))
		}
		end.retransmit = time.Minute
		began = time.Now()
		end.last = began.Add(-time.Hour)
		if came, _ := k.knock(t.Context()); came || time.Since(began) > knockMost+knockTick {
			t.Errorf("%t after %v, want at most %v", came, time.Since(began), knockMost)
		}
	})
}
