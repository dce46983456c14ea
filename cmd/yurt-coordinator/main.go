// Command yurt-coordinator is a pool's meeting place: kube-apiserver and etcd in one process, in memory.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/logs"
	"yurtcoordinator/internal/pool"
	"yurtcoordinator/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	var form logs.Settings
	err := start(ctx, os.Args[1:], &form)
	stop()
	klog.Flush()
	if err != nil && !errors.Is(err, flagfile.ErrHelp) {
		form.Tell(os.Stderr, "yurt-coordinator", os.Args[1:], err)
		os.Exit(1)
	}
}

// start runs a coordinator, and sets form to how it logs.
func start(ctx context.Context, args []string, form *logs.Settings) error {
	var config pool.Config
	fs := pflag.NewFlagSet("yurt-coordinator", pflag.ContinueOnError)
	config.AddFlags(fs)
	form.AddFlags(fs)
	flagfile.Prints(fs, flagfile.VersionFlag, "print the version of yurt-coordinator, and exit",
		version.Get().Line(fs.Name()))
	if err := flagfile.Parse(fs, args, os.Stdout, nil); err != nil {
		return err
	}
	logger, err := form.Start()
	if err != nil {
		return err
	}
	form.OnlyErrors(logger)
	coordinator, err := pool.New(config)
	if err != nil {
		return err
	}
	return coordinator.Run(klog.NewContext(ctx, logger))
}
