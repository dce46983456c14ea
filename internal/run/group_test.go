package run

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// diary records the order in which members stop.
type diary struct {
	mu      sync.Mutex
	stopped []string
}

func (d *diary) member(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stopped = append(d.stopped, name)
		return context.Cause(ctx)
	}
}

func TestStopsInReverseOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var g Group
		for _, name := range []string{"store", "upstream", "server"} {
			g.Add(name, d.member(name))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil after an orderly stop", err)
		}
		if want := []string{"server", "upstream", "store"}; !slices.Equal(d.stopped, want) {
			t.Errorf("stopped in the order %v, want %v", d.stopped, want)
		}
	})
}

func TestFirstErrorStopsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("port in use")
		var d diary
		var g Group
		g.Add("store", d.member("store"))
		g.Add("server", func(context.Context) error { return broken })
		err := g.Run(t.Context())
		if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "server: ") {
			t.Errorf("Run = %v, want %q under the member's name", err, broken)
		}
		if !slices.Equal(d.stopped, []string{"store"}) {
			t.Errorf("stopped %v, want the other member", d.stopped)
		}
	})
}

func TestEarlyReturnIsAnError(t *testing.T) {
	var g Group
	g.Add("server", func(context.Context) error { return nil })
	if err := g.Run(t.Context()); err == nil {
		t.Error("a member that returned by itself went unnoticed")
	}
}

func TestErrorWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("could not flush")
		var g Group
		g.Add("store", func(ctx context.Context) error { <-ctx.Done(); return lost })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, lost) {
			t.Errorf("Run = %v, want %v", err, lost)
		}
	})
}
