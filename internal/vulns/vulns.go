// Package vulns finds out which known vulnerabilities our programs can reach. govulncheck searches; this package chooses its
// database, and applies what we have judged ourselves.
package vulns

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// What OpenVEX 0.2.0 says of a vulnerability and a program.
const (
	Affected    = "affected"
	NotAffected = "not_affected"
)

// Statement says of one known vulnerability whether programs can reach it, as OpenVEX has it.
type Statement struct {
	Vulnerability   Vulnerability `json:"vulnerability"`
	Products        []Product     `json:"products"`
	Status          string        `json:"status"`
	Justification   string        `json:"justification,omitempty"`
	ImpactStatement string        `json:"impact_statement,omitempty"`
	ActionStatement string        `json:"action_statement,omitempty"`
}

// Vulnerability has the Go project's name, such as GO-2026-6866, and others' as aliases.
type Vulnerability struct {
	ID          string   `json:"@id"`
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Aliases     []string `json:"aliases,omitempty"`
}

// Product is a program, as a package URL, with the modules of it that have the vulnerability.
type Product struct {
	ID            string      `json:"@id"`
	Subcomponents []Component `json:"subcomponents,omitempty"`
}

// Component is a module of a version, as a package URL.
type Component struct {
	ID string `json:"@id"`
}

// Modules are what has the vulnerability, as package URLs.
func (s Statement) Modules() []string {
	var all []string
	for _, p := range s.Products {
		for _, c := range p.Subcomponents {
			all = append(all, c.ID)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Summary says in lines which vulnerabilities can be reached, and of how many.
func Summary(all []Statement) string {
	reached := Reached(all)
	text := fmt.Sprintf("known vulnerabilities: %d in modules of our programs, %d of them can be reached\n",
		len(all), len(reached))
	for _, s := range reached {
		text += fmt.Sprintf("  %s %s: %s\n", s.Vulnerability.Name, strings.Join(s.Modules(), ", "), s.Vulnerability.Description)
	}
	return text
}

// Reached are those that programs can reach.
func Reached(all []Statement) []Statement {
	return slices.DeleteFunc(slices.Clone(all), func(s Statement) bool { return s.Status != Affected })
}

// Scan is what is searched for where.
type Scan struct {
	// Tool is the program govulncheck.
	Tool string
	// Root is the directory of the module, and Packages are patterns of its main packages.
	Root     string
	Packages []string
	// Tags are the build tags of the programs, separated by commas.
	Tags string
	// Database is file://DIR, https://HOST, or the Go module that the database is made from, as MODULE@VERSION. Empty means
	// Official, or Module where that can't be reached.
	Database string
}

// Run searches, which takes minutes of processor time. It says to out which database it uses. The statements are sorted by the
// vulnerabilities' names, and are the same for the same source, Go, and database. The error is an UnreachableError if there is
// no database.
func (s Scan) Run(ctx context.Context, out io.Writer) ([]Statement, error) {
	database, err := s.database(ctx, out)
	if err != nil {
		return nil, err
	}
	args := append([]string{"-db=" + database, "-tags", s.Tags, "-format", "openvex"}, s.Packages...)
	said, err := run(ctx, s.Root, s.Tool, args...)
	if err != nil {
		return nil, err
	}
	var document struct{ Statements []Statement }
	if err := json.Unmarshal(said, &document); err != nil {
		return nil, fmt.Errorf("govulncheck: %w", err)
	}
	contains, err := s.packages(ctx)
	if err != nil {
		return nil, err
	}
	for i := range document.Statements {
		complete(&document.Statements[i], contains)
	}
	slices.SortFunc(document.Statements, func(a, b Statement) int {
		return strings.Compare(a.Vulnerability.Name, b.Vulnerability.Name)
	})
	return document.Statements, nil
}

// complete puts a statement into an order that is always the same, and adds what govulncheck can't know.
func complete(s *Statement, contains func(pkg string) bool) {
	for i := range s.Products {
		slices.SortFunc(s.Products[i].Subcomponents, func(a, b Component) int { return strings.Compare(a.ID, b.ID) })
	}
	if s.Status != Affected {
		return
	}
	s.ActionStatement = "Use a release that has a newer version of the module."
	if j, ok := judged[s.Vulnerability.Name]; ok && !slices.ContainsFunc(j.code, contains) {
		s.Status, s.ActionStatement = NotAffected, ""
		s.Justification, s.ImpactStatement = "vulnerable_code_not_present", j.reason
	}
}

// packages tells whether one of the programs contains a package, or one below it.
func (s Scan) packages(ctx context.Context) (contains func(pkg string) bool, err error) {
	out, err := run(ctx, s.Root, "go", append([]string{"list", "-deps", "-tags", s.Tags}, s.Packages...)...)
	if err != nil {
		return nil, err
	}
	all := strings.Fields(string(out))
	return func(pkg string) bool {
		return slices.ContainsFunc(all, func(p string) bool { return p == pkg || strings.HasPrefix(p, pkg+"/") })
	}, nil
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
