package ends

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestClocks: each question is answered by the clock that it is for, and a sleep of the machine is seen by comparing both.
func TestClocks(t *testing.T) {
	wall, ran := time.Unix(0, 0), time.Unix(1e9, 0)
	c := Clock{OfDay: func() time.Time { return wall }, Ran: func() time.Time { return ran }}
	began := c.Now()
	ran = ran.Add(time.Second)
	wall = wall.Add(-time.Hour) // it is set back
	if got := c.Now().Sub(began); got != time.Second || c.Since(began.Running) != got || c.Until(began.Running) != -got {
		t.Errorf("with the wall clock set back, a second is %v", got)
	}
	began = c.Now()
	wall = wall.Add(time.Minute) // the machine sleeps
	if got := c.Now().Sub(began); got != time.Minute || c.Since(began.Running) != 0 {
		t.Errorf("a minute's sleep is %v, and the machine ran for %v of it", got, c.Since(began.Running))
	}
	if (Moment{}).IsZero() == began.IsZero() {
		t.Error("a moment is none")
	}
}

// TestThisMachine: the zero values are the real ones.
func TestThisMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e Ends
		began := e.Now()
		time.Sleep(time.Hour)
		if now := e.Now(); now.Sub(began) != time.Hour || !now.Wall.Equal(time.Now()) || e.Since(began.Running) != time.Hour {
			t.Errorf("an hour after %v it is %v", began, now)
		}
	})
	if wall := (Clock{}).Wall(); wall != wall.Round(0) {
		t.Errorf("%v is of the running clock too", wall)
	}
	for range 1000 {
		if d := (Chance{}).Below(3); d < 0 || d > 2 {
			t.Fatalf("%d is not below 3", d)
		}
	}
}

// TestChance: the same source gives the same numbers.
func TestChance(t *testing.T) {
	type drawn struct {
		numbers [20]float64
		order   [9]int
		ids     [2]string
	}
	draw := func() (all drawn) {
		c := Chance{rand.NewPCG(1, 2)}
		for i := range all.numbers {
			if all.numbers[i] = c.Float64(); i%2 == 0 {
				all.numbers[i] = float64(c.Below(time.Hour))
			}
		}
		copy(all.order[:], c.Perm(len(all.order)))
		all.ids = [2]string{c.UUID(), c.UUID()}
		return all
	}
	if a, b := draw(), draw(); a != b || a.numbers[0] == a.numbers[2] || a.ids[0] == a.ids[1] {
		t.Errorf("%v and %v", a, b)
	}
	for range 1000 {
		if d := (Chance{}).Jitter(time.Minute, 0.5); d < time.Minute || d >= 90*time.Second {
			t.Fatalf("a minute, extended by up to half of it, is %v", d)
		}
	}
}
