package main

import (
	"context"
	"os"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/flagfile"
	"yurtcoordinator/internal/hub"
)

func parse() (cfg hub.Config, fs *pflag.FlagSet, err error) {
	fs = pflag.NewFlagSet("yurthub", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	return cfg, fs, flagfile.Parse(fs, os.Args[1:], os.Stdout)
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
