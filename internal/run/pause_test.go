package run

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff(t *testing.T) {
	b := Backoff{Min: time.Second, Max: 5 * time.Second}
	for range 2 {
		for i, seconds := range []int{1, 2, 4, 5, 5, 5} {
			whole := time.Duration(seconds) * time.Second
			if got := b.Next(0.5); got != whole*3/4 {
				t.Errorf("pause %d is %v: want %v", i+1, got, whole*3/4)
			}
		}
		b.Reset()
	}
	if got := (&Backoff{Min: 1, Max: 1}).Next(0.5); got > 1 {
		t.Errorf("the shortest pause there is became %v", got)
	}
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Pause(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("it returned %v after %v", err, time.Since(began))
		}
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stop) })
		began = time.Now()
		if err := Pause(ctx, time.Minute); !errors.Is(err, stop) || time.Since(began) != time.Second {
			t.Errorf("it returned %v after %v, with its context ended after 1 s", err, time.Since(began))
		}
	})
}
