package yurtlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/wire"
)

const (
	// A second screen, without a cursor, so that what stood in the terminal before comes back.
	enterScreen, leaveScreen = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
	// keysAtOnce bounds what is read of a terminal at a time.
	keysAtOnce = 256
)

// ended is an order that has ended, with or without success.
type ended struct {
	order order
	err   error
}

// watchLive shows the lab on a terminal, and does what keys ask for, until ctx ends or somebody ends it.
func watchLive(ctx context.Context, out *os.File, c *lab.Client) (err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	keys, restore, err := readKeys(ctx)
	if err != nil {
		return fmt.Errorf("read keys: %w", err)
	}
	var under sync.WaitGroup // orders under way
	defer func() {
		end()
		under.Wait()
		err = errors.Join(err, restore())
		fmt.Fprint(out, leaveScreen)
	}()
	fmt.Fprint(out, enterScreen)
	s := &screen{colour: os.Getenv("NO_COLOR") == ""}
	carriedOut := make(chan ended, 1)
	every := time.NewTicker(pollEvery)
	defer every.Stop()
	look := func() error {
		now, err := c.Status(ctx)
		if err == nil {
			s.see(now, time.Now())
		}
		return err
	}
	err = look()
	for err == nil {
		s.wide, s.high, _ = term.GetSize(int(out.Fd())) // 0 is no bound
		fmt.Fprint(out, s.draw())
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
			err = look()
		case e := <-carriedOut:
			s.done(e.order, e.err, time.Now())
			err = look()
		case typed := <-keys:
			for _, k := range keysIn(typed) {
				o := s.press(k)
				if o.key == keyQuit {
					return nil
				}
				if o.node != "" {
					under.Go(func() { carriedOut <- ended{o, carryOut(ctx, c, o)} })
				}
			}
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// carryOut carries out an order.
func carryOut(ctx context.Context, c *lab.Client, o order) error {
	switch o.key {
	case keyCut:
		return c.Cut(ctx, lab.WAN, o.node, wire.Drop)
	case keyHeal:
		return errors.Join(c.Heal(ctx, lab.WAN, o.node), c.Heal(ctx, lab.LAN, o.node))
	case keyKill:
		return c.Node(ctx, lab.Kill, o.node, lab.All)
	case keyStart:
		return c.Node(ctx, lab.Start, o.node, lab.All)
	default:
		return nil
	}
}

// readKeys returns the keys that are typed on this process's terminal until ctx ends, without waiting for a line's end. restore
// waits until the reading has ended, and puts the terminal back. Without a terminal the channel stays empty.
func readKeys(ctx context.Context) (typed <-chan []byte, restore func() error, err error) {
	keys := make(chan []byte)
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return keys, func() error { return nil }, nil //nolint:nilerr // it has none
	}
	var was *term.State
	err = onDescriptor(tty, func(fd int) (err error) {
		was, err = term.MakeRaw(fd)
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, tty.Close())
	}
	var reading sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = tty.SetReadDeadline(time.Now()) })
	reading.Go(func() {
		for ctx.Err() == nil {
			read := make([]byte, keysAtOnce)
			n, err := tty.Read(read)
			if err != nil {
				return
			}
			select {
			case keys <- read[:n]:
			case <-ctx.Done():
			}
		}
	})
	return keys, func() error {
		stop()
		_ = tty.SetReadDeadline(time.Now())
		reading.Wait()
		return errors.Join(onDescriptor(tty, func(fd int) error { return term.Restore(fd, was) }), tty.Close())
	}, nil
}

// onDescriptor does something with a file's descriptor. os.File.Fd would end its deadlines.
func onDescriptor(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}
