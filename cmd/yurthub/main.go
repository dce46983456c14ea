// yurthub is the API endpoint of a node's own programs: it proxies to the cloud, and with the pool's coordinator keeps
// the node's heartbeat alive when its link to the cloud is cut.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/hub"
)

func main() {
	if os.Getenv("GOMAXPROCS") == "" {
		// A hub waits and passes bytes on. Handing each piece from one processor to another costs a fifth of its time
		// and speeds nothing up; see docs/benchmarks.md.
		runtime.GOMAXPROCS(1)
	}
	err := run()
	klog.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "yurthub:", err)
		os.Exit(1)
	}
}

func run() error {
	var cfg hub.Config
	fs := pflag.NewFlagSet("yurthub", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	if err := flagfile.Parse(fs, os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, flagfile.ErrHelp) {
			return nil
		}
		return err
	}
	h, err := hub.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return h.Run(ctx)
}
