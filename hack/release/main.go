// Command release takes built programs and makes their images, the chart that runs them and, with --sign, a whole release. See
// internal/release, and docs/releases.md for what a release has. The arguments are further files for the release's page. The
// command signs with the key in the environment variable RELEASE_KEY, in PEM. It builds nothing and starts no other program.
//
// With --sbom the arguments are programs, and the command writes beside each one the list of its modules, as PROGRAM.cdx.json.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"yurtcoordinator/internal/oci"
	"yurtcoordinator/internal/release"
	"yurtcoordinator/internal/signed"
)

// keyVariable names the environment variable with the key that signs. A flag would show the key to other users of the machine.
const keyVariable = "RELEASE_KEY"

func main() {
	if err := start(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	key, err := os.Getenv(keyVariable), os.Unsetenv(keyVariable)
	if err != nil {
		return err
	}
	r := release.Release{Chart: "deploy/charts/yurt-coordinator"}
	fs := flag.NewFlagSet("release", flag.ContinueOnError)
	fs.StringVar(&r.Programs, "programs", "dist/programs", "directory with OS/ARCHITECTURE/NAME, and NAME.cdx.json beside")
	fs.StringVar(&r.Out, "out", "dist/release", "directory to make; what is there is replaced")
	fs.StringVar(&r.Registry, "registry", release.Nowhere,
		"the images are called REGISTRY/PROGRAM:VERSION, and coordinators' VERSION-kKUBERNETES")
	fs.StringVar(&r.Version, "version", "", "of which release they are, as their tags say")
	fs.StringVar(&r.Kubernetes, "kubernetes", "", "the version of Kubernetes that coordinators are made of")
	fs.StringVar(&r.Revision, "revision", "", "commit that they are built from, for a label")
	fs.Func("created", "time of that commit, for a label (RFC 3339)", func(text string) (err error) {
		r.Created, err = time.Parse(time.RFC3339, text)
		return err
	})
	fs.StringVar(&r.Builder, "builder", "urn:yurtcoordinator:by-hand", "URI of what has built the programs, for the provenance")
	fs.StringVar(&r.Source, "source", "urn:yurtcoordinator:source", "URI of where that got the commit, for the provenance")
	sign := fs.Bool("sign", false, "make a signed release")
	contents := fs.Bool("sbom", false, "write what is in programs, and nothing else")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *contents {
		return writeSBOMs(r.Version, fs.Args())
	}
	r.Files = fs.Args()
	if *sign {
		if r.Key, err = signed.ParsePrivateKey([]byte(key)); err != nil {
			return fmt.Errorf("%s: %w", keyVariable, err)
		}
	}
	return r.Make(os.Stdout)
}

func writeSBOMs(version string, programs []string) error {
	for _, path := range programs {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sbom, err := oci.SBOM(filepath.Base(path), version, content)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path+".cdx.json", sbom, 0o644); err != nil {
			return err
		}
	}
	return nil
}
