// Command vuln runs govulncheck. It fails if our programs, or the packages in its arguments, can reach a known vulnerability
// that exceptions.yaml does not except. If no database can be reached it says "not run" and fails, too, unless -skip is given.
//
// With -vex it writes its findings as an OpenVEX document for a release, and does not fail on them.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"sigs.k8s.io/yaml"
)

// tags are the build tags of our programs.
const tags = "grpcnotrace"

//go:embed exceptions.yaml
var exceptions []byte

type exception struct {
	Vulnerability, Reason string
	Packages              []string
}

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
	var doc document
	fs := flag.NewFlagSet("vuln", flag.ContinueOnError)
	tool := fs.String("govulncheck", "govulncheck", "the program govulncheck")
	root := fs.String("root", ".", "directory of the module")
	db := fs.String("db", databases, "the database: file://DIR, https://HOST or MODULE@VERSION; the first that can be reached")
	skip := fs.Bool("skip", false, "go on without if no database can be reached")
	vex := fs.String("vex", "", "file to write")
	version := fs.String("version", "", "with -vex: of which release the programs are")
	fs.StringVar(&doc.Timestamp, "created", "", "with -vex: the time of its commit (RFC 3339)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	packages := fs.Args()
	if len(packages) == 0 {
		packages = []string{"./cmd/..."}
	}
	url, err := database(ctx, out, *db)
	if errors.Is(err, errUnreachable) && *skip {
		fmt.Fprintln(out, "vuln: not run:", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("not run: %w; name one that can be with VULN_DB, or go on without by VULN=skip", err)
	}
	if err := doc.find(ctx, *tool, *root, url, packages); err != nil {
		return err
	}
	fmt.Fprint(out, doc.summary())
	if *vex != "" {
		return doc.write(*vex, *version, packages)
	}
	if n := len(doc.reached()); n > 0 {
		return fmt.Errorf("%d known vulnerabilities can be reached; `govulncheck -tags %s` with the same database shows from "+
			"where", n, tags)
	}
	return nil
}

// find runs govulncheck, which takes minutes of processor time, and applies the exceptions. For the same source, Go and
// database it finds the same, in the same order.
func (d *document) find(ctx context.Context, tool, root, url string, packages []string) error {
	said, err := run(ctx, root, tool, append([]string{"-db=" + url, "-tags", tags, "-format", "openvex"}, packages...)...)
	if err != nil {
		return err
	}
	var found document
	if err := json.Unmarshal(said, &found); err != nil {
		return fmt.Errorf("govulncheck: %w", err)
	}
	d.Statements = found.Statements
	contained, err := run(ctx, root, "go", append([]string{"list", "-deps", "-tags", tags}, packages...)...)
	if err != nil {
		return err
	}
	var all []exception
	if err := yaml.UnmarshalStrict(exceptions, &all); err != nil {
		return err
	}
	for i := range d.Statements {
		d.Statements[i].complete(all, strings.Fields(string(contained)))
	}
	slices.SortFunc(d.Statements, func(a, b statement) int { return strings.Compare(a.Vulnerability.Name, b.Vulnerability.Name) })
	return nil
}

// complete adds what govulncheck can't know: the exception, if there is one and the programs contain none of its packages.
func (s *statement) complete(all []exception, contained []string) {
	if s.Status != affected {
		return
	}
	s.ActionStatement = "Use a release that has a newer version of the module."
	for _, e := range all {
		has := func(pkg string) bool {
			return slices.ContainsFunc(e.Packages, func(p string) bool { return p == pkg || strings.HasPrefix(pkg, p+"/") })
		}
		if e.Vulnerability == s.Vulnerability.Name && !slices.ContainsFunc(contained, has) {
			s.Status, s.ActionStatement = notAffected, ""
			s.Justification, s.ImpactStatement = "vulnerable_code_not_present", e.Reason
		}
	}
}

func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var failure bytes.Buffer
	cmd.Stderr = &failure
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(failure.String()))
	}
	return out, nil
}
