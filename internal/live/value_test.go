package live

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestSetWakesOnlyOnChange(t *testing.T) {
	v := NewValue(1)
	_, changed := v.Watch()
	if v.Set(1) {
		t.Error("Set of the same value reported a change")
	}
	select {
	case <-changed:
		t.Fatal("woken by a value that did not change")
	default:
	}
	if !v.Set(2) {
		t.Error("Set of another value reported no change")
	}
	<-changed
	if got := v.Get(); got != 2 {
		t.Errorf("Get() = %d, want 2", got)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v Value[int]
		got := make(chan int)
		go func() {
			n, err := v.Wait(t.Context(), func(n int) bool { return n >= 3 })
			if err != nil {
				t.Errorf("Wait: %v", err)
			}
			got <- n
		}()
		for i := range 4 {
			v.Set(i)
			synctest.Wait()
		}
		if n := <-got; n != 3 {
			t.Errorf("Wait returned %d, want the first value that satisfied it, 3", n)
		}

		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		if _, err := v.Wait(ctx, func(n int) bool { return n > 100 }); !errors.Is(err, reason) {
			t.Errorf("Wait on an ended context: %v, want its cause", err)
		}
	})
}

func TestWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, over := NewValue(1), errors.New("over")
		few := func(n int) bool { return n < 3 }
		ctx, stop := v.While(t.Context(), few, over)
		defer stop()
		v.Set(2)
		synctest.Wait()
		if err := ctx.Err(); err != nil {
			t.Errorf("ended while the value was as it should be: %v", err)
		}
		v.Set(3)
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, over) {
			t.Errorf("ended with %v", err)
		}
		v.Set(0)
		again, stopAgain := v.While(t.Context(), few, over)
		stopAgain()
		if err := context.Cause(again); !errors.Is(err, context.Canceled) {
			t.Errorf("stopped with %v", err)
		}
	})
}
