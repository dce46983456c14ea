// Command vuln fails on a known vulnerability that our programs, or the packages that are named, can reach: see internal/vulns.
// Where no database can be reached it says "not run" and fails, too, unless -skip is given.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"yurtcoordinator/internal/vulns"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, out io.Writer, args []string) error {
	scan := vulns.Scan{Tags: "grpcnotrace"}
	var skip bool
	fs := flag.NewFlagSet("vuln", flag.ContinueOnError)
	fs.StringVar(&scan.Tool, "govulncheck", "govulncheck", "the program govulncheck")
	fs.StringVar(&scan.Root, "root", ".", "directory of the module")
	fs.StringVar(&scan.Database, "db", "", "the database: file://DIR, https://HOST or MODULE@VERSION; empty: "+vulns.Official+
		", or "+vulns.Module+" where that can't be reached")
	fs.BoolVar(&skip, "skip", false, "go on without if no database can be reached")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if scan.Packages = fs.Args(); len(scan.Packages) == 0 {
		scan.Packages = []string{"./cmd/..."}
	}
	all, err := scan.Run(ctx, out)
	if unreachable := (*vulns.UnreachableError)(nil); errors.As(err, &unreachable) {
		if skip {
			fmt.Fprintln(out, "vuln: not run:", err)
			return nil
		}
		return fmt.Errorf("not run: %w; name one that can be with VULN_DB, or go on without by VULN=skip", err)
	}
	if err != nil {
		return err
	}
	fmt.Fprint(out, vulns.Summary(all))
	for _, s := range all {
		if s.Justification != "" && s.Status == vulns.NotAffected {
			fmt.Fprintf(out, "  %s is not reached: %s\n", s.Vulnerability.Name, s.ImpactStatement)
		}
	}
	if n := len(vulns.Reached(all)); n > 0 {
		return fmt.Errorf("%d known vulnerabilities can be reached; `govulncheck -tags %s` with the same database shows "+
			"from where", n, scan.Tags)
	}
	return nil
}
