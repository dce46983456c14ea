package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

const (
	// idleTimeout is how long a connection may carry nothing. Hubs' connections carry a ping every 75 s, kubectl's every 30 s
	// or more often.
	idleTimeout = 2 * time.Minute
	// chunk is how many bytes are read at once, and the least that a rate limit lets through at once.
	chunk = 16 << 10
)

// direction is the direction in which bytes are carried, as metrics name it: up is from the asker to the other end.
type direction string

const (
	upwards   direction = "up"
	downwards direction = "down"
)

// toll limits and counts the bytes that are carried.
type toll interface {
	// wait blocks until n bytes may be carried.
	wait(ctx context.Context, n int) error
	// paid counts n bytes that were carried. An error means that no more may be carried.
	paid(way direction, n int) error
}

var errIdle = fmt.Errorf("it carried nothing for %v", idleTimeout)

// carry copies bytes both ways between the asker's connection and the other end, until one of them is closed, ctx ends, nothing
// is carried for idleTimeout, or the parameter by allows no more bytes. early is what was already read from the asker. carry
// returns why it ended. It closes neither connection, but expires the deadlines of both.
func carry(ctx context.Context, asked net.Conn, early io.Reader, other net.Conn, by toll, clock ends.Clock) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		_ = asked.SetDeadline(time.Unix(1, 0))
		_ = other.SetDeadline(time.Unix(1, 0))
	})()
	began := clock.Running()
	var last atomic.Int64 // when something was carried, since began
	carried := func() { last.Store(int64(clock.Since(began))) }
	var both sync.WaitGroup
	both.Go(func() { cancel(pour(ctx, other, io.MultiReader(early, asked), upwards, by, carried)) })
	both.Go(func() { cancel(pour(ctx, asked, other, downwards, by, carried)) })
	for wait := idleTimeout; wait > 0; wait = idleTimeout - clock.Since(began) + time.Duration(last.Load()) {
		if run.Pause(ctx, wait) != nil {
			break
		}
	}
	cancel(errIdle) // unless it has ended already
	both.Wait()
	return context.Cause(ctx)
}

// wait blocks until the limiter lets n bytes through. n may be at most the limiter's burst.
func wait(ctx context.Context, limiter *rate.Limiter, n int, clock ends.Clock) error {
	now := clock.Running()
	place := limiter.ReserveN(now, n)
	err := run.Pause(ctx, place.DelayFrom(now))
	if err != nil {
		place.CancelAt(clock.Running())
	}
	return err
}

// pour carries one direction. It always returns an error.
func pour(ctx context.Context, to io.Writer, from io.Reader, way direction, by toll, carried func()) error {
	buffer := make([]byte, chunk)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if err := by.wait(ctx, n); err != nil {
				return err
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			carried()
			if err := by.paid(way, n); err != nil {
				return err
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", way, err)
		}
	}
}
