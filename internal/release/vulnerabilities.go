package release

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// VEXFile says of the known vulnerabilities in a release's modules which of them its programs can reach (OpenVEX).
const VEXFile = "vex.openvex.json"

// vulnerabilities writes what govulncheck says. It asks a database that grows each day, so the file is the same only for the same
// state of that; its own time, which govulncheck takes from the clock, is the release's. Without a Scanner there is none.
func (r *Release) vulnerabilities(ctx context.Context, out io.Writer, work string) error {
	if r.Scanner == "" {
		fmt.Fprintln(out, "no "+VEXFile+": nobody has looked for vulnerabilities")
		return nil
	}
	cmd := exec.CommandContext(ctx, r.Scanner, "-format", "openvex", "./cmd/...")
	cmd.Dir = r.Root
	var failure bytes.Buffer
	cmd.Stderr = &failure
	said, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("govulncheck: %w: %s", err, failure.String())
	}
	var document map[string]any
	if err := json.Unmarshal(said, &document); err != nil {
		return fmt.Errorf("govulncheck: %w", err)
	}
	at := epoch
	if !r.Created.IsZero() {
		at = r.Created.UTC()
	}
	document["timestamp"], document["author"] = at.Format(time.RFC3339), "The maintainers of yurt-coordinator"
	content, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(work, VEXFile), append(content, '\n'), 0o644)
}
