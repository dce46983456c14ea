package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// What OpenVEX 0.2.0 says of a vulnerability and a program.
const (
	affected    = "affected"
	notAffected = "not_affected"
)

// document is one of OpenVEX 0.2.0.
type document struct {
	Context    string      `json:"@context"`
	ID         string      `json:"@id"`
	Author     string      `json:"author"`
	Timestamp  string      `json:"timestamp"`
	Version    int         `json:"version"`
	Tooling    string      `json:"tooling"`
	Statements []statement `json:"statements"`
}

// statement says of one known vulnerability whether programs can reach it.
type statement struct {
	Vulnerability struct {
		ID          string   `json:"@id"`
		Name        string   `json:"name"`
		Description string   `json:"description,omitempty"`
		Aliases     []string `json:"aliases,omitempty"`
	} `json:"vulnerability"`
	Products        []component `json:"products"`
	Status          string      `json:"status"`
	Justification   string      `json:"justification,omitempty"`
	ImpactStatement string      `json:"impact_statement,omitempty"`
	ActionStatement string      `json:"action_statement,omitempty"`
}

// component is a program, or a module in some version, as a package URL. The Subcomponents of a program are those of its
// modules that have the vulnerability.
type component struct {
	ID            string      `json:"@id"`
	Subcomponents []component `json:"subcomponents,omitempty"`
}

// modules returns the modules that have the vulnerability, by the package URLs that SBOMs use for them.
func (s statement) modules() []string {
	var all []string
	for _, p := range s.Products {
		for _, c := range p.Subcomponents {
			path, version, _ := strings.Cut(strings.ReplaceAll(c.ID, "%2F", "/"), "@")
			if path == "pkg:golang/stdlib" {
				path, version = "pkg:golang/std", strings.TrimPrefix(version, "v")
			}
			all = append(all, path+"@"+version)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// reached returns the statements about vulnerabilities that programs can reach.
func (d document) reached() []statement {
	return slices.DeleteFunc(slices.Clone(d.Statements), func(s statement) bool { return s.Status != affected })
}

// summary says in lines which vulnerabilities can be reached, of how many, and which are excepted.
func (d document) summary() string {
	reached := d.reached()
	text := fmt.Sprintf("known vulnerabilities: %d in modules of our programs, %d of them can be reached\n",
		len(d.Statements), len(reached))
	for _, s := range reached {
		text += fmt.Sprintf("  %s %s: %s\n", s.Vulnerability.Name, strings.Join(s.modules(), ", "), s.Vulnerability.Description)
	}
	for _, s := range d.Statements {
		if s.Justification != "" && s.Status == notAffected {
			text += fmt.Sprintf("  %s is not reached: %s\n", s.Vulnerability.Name, s.ImpactStatement)
		}
	}
	return text
}

// write writes the document of a release. It names the programs, as ./cmd/yurthub, by the package URLs that their SBOMs have.
func (d document) write(file, version string, programs []string) error {
	d.Context, d.ID, d.Version = "https://openvex.dev/ns/v0.2.0", "urn:yurtcoordinator:vex:"+version, 1
	d.Author, d.Tooling = "The maintainers of yurt-coordinator", "govulncheck"
	for i := range d.Statements {
		s := &d.Statements[i]
		var has []component
		for _, m := range s.modules() {
			has = append(has, component{ID: m})
		}
		s.Products = nil
		for _, p := range programs {
			id := fmt.Sprintf("pkg:golang/yurtcoordinator@%s#%s", version, strings.TrimPrefix(p, "./"))
			s.Products = append(s.Products, component{id, has})
		}
	}
	content, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644)
}
