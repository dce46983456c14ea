package main

import (
	"context"
	"io"

	"yurtcoordinator/internal/hub/join"
	"yurtcoordinator/internal/hub/upgrade"
)

// upgradeNode puts a program that was delivered in this one's place, or, in a Pod, delivers this one.
func upgradeNode(args []string, help io.Writer) error {
	if len(args) > 0 && args[0] == "deliver" {
		var cfg upgrade.Courier
		return administer("yurthub upgrade deliver", cfg.AddFlags, args[1:], help, func(ctx context.Context) error {
			return upgrade.Deliver(ctx, cfg)
		})
	}
	var cfg upgrade.Config
	return administer("yurthub upgrade", cfg.AddFlags, args, help, func(ctx context.Context) error {
		return upgrade.Run(ctx, cfg, join.Machine{})
	})
}
