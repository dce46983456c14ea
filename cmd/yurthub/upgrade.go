package main

import (
	"context"
	"io"

	"yurtcoordinator/internal/hub/join"
)

// upgradeNode puts a program that was delivered in this one's place, or, in a Pod, delivers this one.
func upgradeNode(args []string, help io.Writer) error {
	if len(args) > 0 && args[0] == "deliver" {
		var cfg join.Courier
		return administer("yurthub upgrade deliver", cfg.AddFlags, args[1:], help, func(ctx context.Context) error {
			return join.DeliverUpgrade(ctx, cfg)
		})
	}
	var cfg join.UpgradeConfig
	return administer("yurthub upgrade", cfg.AddFlags, args, help, func(ctx context.Context) error {
		return join.Upgrade(ctx, cfg, join.Machine{})
	})
}
