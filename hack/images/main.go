// Command images builds the container images of our programs for all platforms: see internal/release. Below --out, each has an
// OCI layout, the same as a tar file, and for each platform the list of what is in it (CycloneDX). Beside them is the chart that
// runs them, by their digests.
//
// The same source, version of Go and flags make the same images, bit by bit, anywhere.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"yurtcoordinator/internal/release"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	r := release.Release{Root: "."}
	var created, platforms, programs string
	fs := flag.NewFlagSet("images", flag.ContinueOnError)
	fs.StringVar(&r.Out, "out", "dist/images", "directory to make; what is there is replaced")
	fs.StringVar(&r.Registry, "registry", release.Nowhere,
		"the images are called REGISTRY/PROGRAM:VERSION, and coordinators' VERSION-kKUBERNETES")
	fs.BoolVar(&r.Push, "push", false, "push the images there, with the credentials of docker login")
	fs.StringVar(&r.Version, "version", "", "of which release they are, as their tags say; empty: that which the source becomes")
	fs.StringVar(&r.Revision, "revision", "", "commit that they are built from, for a label")
	fs.StringVar(&created, "created", "", "time of that commit, for a label (RFC 3339)")
	fs.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "platforms")
	fs.StringVar(&programs, "programs", "", "some of the programs; empty: all")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if created != "" {
		if r.Created, err = time.Parse(time.RFC3339, created); err != nil {
			return fmt.Errorf("--created: %w", err)
		}
	}
	if programs != "" {
		r.Only = strings.Split(programs, ",")
	}
	if r.Platforms, err = release.ParsePlatforms(platforms); err != nil {
		return fmt.Errorf("--platforms: %w", err)
	}
	return r.Images(ctx, os.Stdout)
}
