// yurthub is the API endpoint of a node's kubelet. It proxies to the cloud. When the node's link to the cloud is cut, it keeps
// the node's heartbeat alive with the pool's coordinator.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"k8s.io/klog/v2"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/hub"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/hub/join"
	"yurtcoordinator/internal/logs"
	"yurtcoordinator/internal/run"
)

func main() {
	if os.Getenv("GOMAXPROCS") == "" {
		// A hub waits and passes bytes on. Handing each piece from one processor to another costs a fifth of its time and makes
		// nothing faster; see docs/benchmarks-log.md.
		runtime.GOMAXPROCS(1)
	}
	var form logs.Settings
	err := command(&form)
	klog.Flush()
	if err != nil {
		form.Tell(os.Stderr, "yurthub", os.Args[1:], err)
		os.Exit(1)
	}
}

// command runs the subcommand that the command line names; without one it serves. A subcommand checks the node, makes kubelet use
// the hub or not, or replaces the program. command sets form to how the program logs. A subcommand leaves form unset, because it
// talks to a person.
func command(form *logs.Settings) error {
	if out := logs.Visible(os.Stdout); len(os.Args) > 1 {
		switch os.Args[1] {
		case "check":
			return checkNode(os.Args[2:], out)
		case "join":
			return joinNode(os.Args[2:], join.Terminal{In: os.Stdin, Out: out})
		case "reset":
			return resetNode(os.Args[2:], join.Terminal{In: os.Stdin, Out: out})
		case "upgrade":
			return upgradeNode(os.Args[2:], out)
		}
	}
	return serve(form)
}

func serve(form *logs.Settings) error {
	cfg, fs, err := parse()
	*form = cfg.Logs
	if errors.Is(err, flagfile.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	*form = config.LogsFrom(cfg)
	if _, err := form.Start(); err != nil {
		return err
	}
	h, err := hub.New(cfg, ends.Ends{})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var g run.Group
	g.Add("hub", h.Run)
	if os.Getenv("GOGC") == "" {
		g.Add("memory", collectByNeed)
	}
	g.Add("settings", func(ctx context.Context) error { return follow(ctx, fs, h) })
	return g.Run(ctx)
}
