package main

import (
	"context"
	"os"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/hub"
	"yurtcoordinator/internal/hub/config"
	"yurtcoordinator/internal/version"
)

func parse() (cfg config.Config, fs *pflag.FlagSet, err error) {
	fs = pflag.NewFlagSet("yurthub", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	flagfile.Prints(fs, flagfile.VersionFlag, "print the version of yurthub, and exit", version.Get().Line("yurthub"))
	err = flagfile.Parse(fs, os.Args[1:], os.Stdout, config.Versioned)
	cfg.Own = config.Given(fs)
	return cfg, fs, err
}

// follow applies changes of the settings file to a running hub.
func follow(ctx context.Context, fs *pflag.FlagSet, h *hub.Hub) error {
	return flagfile.Follow(ctx, fs, func() error {
		cfg, _, err := parse()
		if err != nil {
			return err
		}
		return h.Reconfigure(cfg)
	})
}
