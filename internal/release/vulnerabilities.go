package release

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"yurtcoordinator/internal/vulns"
)

// VEXFile says of the known vulnerabilities in a release's modules which of them its programs can reach (OpenVEX).
const VEXFile = "vex.openvex.json"

// vex is a document of OpenVEX 0.2.0.
type vex struct {
	Context    string            `json:"@context"`
	ID         string            `json:"@id"`
	Author     string            `json:"author"`
	Timestamp  string            `json:"timestamp"`
	Version    int               `json:"version"`
	Tooling    string            `json:"tooling"`
	Statements []vulns.Statement `json:"statements"`
}

// vulnerabilities writes which known vulnerabilities the release's programs can reach, and prints how many. The database grows
// each day, so the file is the same only for the same state of that; its time is the release's.
func (r *Release) vulnerabilities(ctx context.Context, out io.Writer, work string) error {
	if r.Scanner == "" {
		fmt.Fprintln(out, "no "+VEXFile+": nobody has looked for vulnerabilities")
		return nil
	}
	scan := vulns.Scan{Tool: r.Scanner, Root: r.Root, Tags: tags, Database: r.Vulnerabilities}
	var products []string
	for _, name := range []string{hub, plugin, coordinator, controller} {
		scan.Packages = append(scan.Packages, "./cmd/"+name)
		products = append(products, fmt.Sprintf("pkg:golang/%s@%s#cmd/%s", module, r.Version, name))
	}
	statements, err := scan.Run(ctx, out)
	if err != nil {
		return err
	}
	for i := range statements {
		var has []vulns.Component
		for _, m := range statements[i].Modules() {
			has = append(has, vulns.Component{ID: asInSBOM(m)})
		}
		statements[i].Products = nil
		for _, id := range products {
			statements[i].Products = append(statements[i].Products, vulns.Product{ID: id, Subcomponents: has})
		}
	}
	fmt.Fprint(out, vulns.Summary(statements))
	at := epoch
	if !r.Created.IsZero() {
		at = r.Created.UTC()
	}
	content, err := json.MarshalIndent(vex{
		Context: "https://openvex.dev/ns/v0.2.0", ID: "urn:" + module + ":vex:" + r.Version, Author: author,
		Timestamp: at.Format(time.RFC3339), Version: 1, Tooling: "govulncheck", Statements: statements,
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(work, VEXFile), append(content, '\n'), 0o644)
}

// asInSBOM is the package URL that SBOMs have for what govulncheck names.
func asInSBOM(url string) string {
	if version, ok := strings.CutPrefix(url, "pkg:golang/stdlib@v"); ok {
		return "pkg:golang/std@" + version
	}
	path, version, _ := strings.Cut(url, "@")
	return strings.ReplaceAll(path, "%2F", "/") + "@" + version
}
