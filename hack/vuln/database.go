package main

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

// databases are tried one after another, until one can be reached. The first is the Go project's. The second is the module with
// the reports from which the first is made. Whoever can build can get that module from a module proxy; it is as old as the
// proxy's newest copy.
const databases = "https://vuln.go.dev golang.org/x/vulndb@latest"

// errUnreachable says that there is no database to ask.
var errUnreachable = errors.New("can't be reached")

// database returns the URL of the first of these databases that can be reached.
func database(ctx context.Context, out io.Writer, names string) (url string, err error) {
	for _, name := range strings.Fields(names) {
		if err != nil {
			fmt.Fprintf(out, "%v; taking %s instead\n", err, name)
		}
		if url, err = reach(ctx, out, name); err == nil || ctx.Err() != nil {
			break
		}
	}
	return url, err
}

// reach returns the URL of a database. It fails unless the database is there: with a wrong URL, govulncheck would find nothing
// and succeed.
func reach(ctx context.Context, out io.Writer, name string) (url string, err error) {
	url = name
	switch dir, isDir := strings.CutPrefix(name, "file://"); {
	case isDir:
		err = kept(dir)
	case strings.Contains(name, "://"):
		err = served(ctx, name)
	case strings.Contains(name, "@"):
		url, err = downloaded(ctx, out, name)
	default:
		return "", fmt.Errorf("vulnerability database %q: want file://DIR, https://HOST or MODULE@VERSION", name)
	}
	if err != nil {
		return "", fmt.Errorf("the vulnerability database %s %w: %w", name, errUnreachable, err)
	}
	return url, nil
}

// kept fails unless a directory has a database, with or without an index.
func kept(dir string) error {
	for _, pattern := range []string{"index/modules.json", "GO-*.json"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) > 0 {
			return err
		}
	}
	return errors.New("it has neither index/modules.json nor reports")
}

// served fails unless a server has a database.
func served(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, url+"/index/modules.json.gz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}

// downloaded gets the module that has the reports.
func downloaded(ctx context.Context, out io.Writer, name string) (url string, err error) {
	said, err := run(ctx, os.TempDir(), "go", "mod", "download", "-json", name) // elsewhere: its requirements are none of ours
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
