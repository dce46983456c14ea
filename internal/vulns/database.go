package vulns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// Official is the database of the Go project.
	Official = "https://vuln.go.dev"
	// Module has the reports that Official is made from. Whoever can build can get it, from a module proxy; it is as old as the
	// proxy's newest copy.
	Module = "golang.org/x/vulndb@latest"
)

// UnreachableError says that there is no database to ask.
type UnreachableError struct {
	Database string
	Err      error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("the vulnerability database %s can't be reached: %v", e.Database, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// answersWithin bounds how long a server may take to say that it is there.
const answersWithin = 20 * time.Second

// database returns the URL of the database that is to be used.
func (s Scan) database(ctx context.Context, out io.Writer) (string, error) {
	asked := s.Database
	if asked == "" {
		err := served(ctx, Official)
		if err == nil {
			return Official, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		fmt.Fprintf(out, "%v; taking %s instead\n", &UnreachableError{Official, err}, Module)
		asked = Module
	}
	var err error
	found := asked
	switch dir, isDir := strings.CutPrefix(asked, "file://"); {
	case isDir:
		err = kept(dir)
	case strings.Contains(asked, "://"):
		err = served(ctx, asked)
	case strings.Contains(asked, "@"):
		found, err = fromModule(ctx, asked, out)
	default:
		return "", fmt.Errorf("vulnerability database %q: want file://DIR, https://HOST or MODULE@VERSION", asked)
	}
	if err != nil {
		return "", &UnreachableError{asked, err}
	}
	return found, nil
}

// served fails unless a server has a database.
func served(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url+"/index/modules.json.gz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// kept fails unless a directory has a database, with or without an index: in any other govulncheck finds nothing, and is content.
func kept(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "index", "modules.json")); err == nil {
		return nil
	}
	reports, err := filepath.Glob(filepath.Join(dir, "GO-*.json"))
	if err == nil && len(reports) == 0 {
		err = errors.New("it has neither index/modules.json nor reports")
	}
	return err
}

// fromModule gets the module that has the reports.
func fromModule(ctx context.Context, module string, out io.Writer) (url string, err error) {
	elsewhere := os.TempDir() // its requirements are none of ours
	said, err := run(ctx, elsewhere, "go", "mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var got struct{ Path, Version, Dir string }
	if err := json.Unmarshal(said, &got); err != nil {
		return "", err
	}
	fmt.Fprintf(out, "known vulnerabilities are those of %s %s\n", got.Path, got.Version)
	dir := filepath.Join(got.Dir, "data", "osv")
	return "file://" + dir, kept(dir)
}
