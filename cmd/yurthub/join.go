package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/hub/join"
)

// joinNode has this node's kubelet go through yurthub.
func joinNode(args []string, term join.Terminal) error {
	var cfg join.Config
	return administer("yurthub join", cfg.AddFlags, args, term.Out, func(ctx context.Context) error {
		return join.Join(ctx, cfg, join.Machine{}, term)
	})
}

// resetNode takes yurthub off this node.
func resetNode(args []string, term join.Terminal) error {
	var cfg join.Removal
	return administer("yurthub reset", cfg.AddFlags, args, term.Out, func(ctx context.Context) error {
		return join.Reset(ctx, cfg, join.Machine{}, term)
	})
}

// administer reads the flags of a command that changes the node, and runs it until it ends or is told to.
func administer(name string, addFlags func(*pflag.FlagSet), args []string, help io.Writer, do func(context.Context) error) error {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	addFlags(fs)
	fs.SortFlags = false // those that are needed most are first
	fs.SetOutput(io.Discard)
	fs.Usage = func() { fmt.Fprintf(help, "Usage: %s [flags]\n\n%s", name, fs.FlagUsagesWrapped(120)) }
	if err := fs.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%w; see %s --help", err, name)
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see %s --help", fs.Arg(0), name)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return do(ctx)
}
