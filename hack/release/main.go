// Command release makes a whole release: see internal/release, and docs/releases.md for what is in it. It signs with the key that
// the environment variable RELEASE_KEY has, in PEM.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"yurtcoordinator/internal/release"
	"yurtcoordinator/internal/signed"
)

// keyVariable has the key that signs. It is no flag: others on the machine see those.
const keyVariable = "RELEASE_KEY"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Args[1:], os.Getenv(keyVariable))
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string, key string) error {
	r := release.Release{Root: "."}
	var created, platforms string
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.StringVar(&r.Out, "out", "dist/release", "directory to make; what is there is replaced")
	fs.StringVar(&r.Registry, "registry", release.Nowhere, "where images and chart go: their names, and --push")
	fs.BoolVar(&r.Push, "push", false, "push images, chart and signatures there, with the credentials of docker login")
	fs.StringVar(&r.Version, "version", "", "of the release; empty: that which the source becomes")
	fs.StringVar(&r.Revision, "revision", "", "commit that it is made from")
	fs.StringVar(&created, "created", "", "time of that commit (RFC 3339)")
	fs.StringVar(&r.Downloads, "downloads", "", "URL below which people find VERSION/FILE, for krew")
	fs.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64", "platforms")
	fs.StringVar(&r.Packager, "nfpm", "nfpm", "the program nfpm, which makes packages")
	fs.StringVar(&r.Scanner, "govulncheck", "", "the program govulncheck; empty: no vulnerabilities are looked for")
	fs.StringVar(&r.Vulnerabilities, "vulnerabilities", "",
		"the database that it asks: file://DIR, https://HOST or MODULE@VERSION")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if r.Key, err = signed.ParsePrivateKey([]byte(key)); err != nil {
		return fmt.Errorf("%s: %w", keyVariable, err)
	}
	if created != "" {
		if r.Created, err = time.Parse(time.RFC3339, created); err != nil {
			return fmt.Errorf("--created: %w", err)
		}
	}
	if r.Platforms, err = release.ParsePlatforms(platforms); err != nil {
		return fmt.Errorf("--platforms: %w", err)
	}
	return r.Make(ctx, os.Stdout)
}
