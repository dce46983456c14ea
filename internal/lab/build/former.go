package build

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Former is our release before the present one. A lab can have its programs, to see what they do beside ours: it builds them from
// this repository's history. See docs/versions.md.
const Former = "v0.1.0"

const (
	// formerCommit is what Former was made from. Its own go.mod and go.sum pin the rest.
	formerCommit = "c427154e6de4421677110f44ba4b342c71512eef"
	// formerKubernetes is the version of the Kubernetes that Former was made from.
	formerKubernetes = "v1.36.3"
)

// FormerCoordinator returns the tag of the image of Former's coordinator.
func FormerCoordinator() string { return Former + "-k" + strings.TrimPrefix(formerKubernetes, "v") }

// former returns Former's programs.
func former(in inputs) set {
	return set{
		name: SetFormer,
		stages: []stage{{
			Name:     StageFormer,
			Title:    "our own release " + Former,
			Commit:   formerCommit,
			Packages: prefix(in.module+"/cmd/", "yurthub", "yurt-coordinator", "kubectl-yurt"),
			Output:   "former/",
			Tags:     tags,
			LDFlags:  VersionFlags(formerKubernetes),
		}},
	}
}

// errNoHistory says that a commit of our own can't be built.
var errNoHistory = errors.New("not in the history of this repository")

// exported returns a directory with the files of a commit of the repository in dir.
func exported(ctx context.Context, dir, commit string) (path string, remove func(), err error) {
	if err := inHistory(ctx, dir, commit); err != nil {
		return "", nil, err
	}
	if path, err = os.MkdirTemp("", "yurtlab-commit-"); err != nil {
		return "", nil, fmt.Errorf("files of commit %s: %w", commit, err)
	}
	remove = func() { _ = os.RemoveAll(path) } // a leftover there does no harm
	archive := exec.CommandContext(ctx, "git", "-C", dir, "archive", "--format=tar", commit)
	var said bytes.Buffer
	archive.Stderr = &said
	out, err := archive.StdoutPipe()
	if err == nil {
		err = archive.Start()
	}
	if err == nil {
		err = errors.Join(unpack(path, out), archive.Wait())
	}
	if err != nil {
		remove()
		return "", nil, fmt.Errorf("files of commit %s: %w: %s", commit, err, strings.TrimSpace(said.String()))
	}
	return path, remove, nil
}

// inHistory fails, and says what to do, unless the repository in dir has a commit.
func inHistory(ctx context.Context, dir, commit string) error {
	program, err := exec.LookPath("git")
	if err != nil {
		return fmt.Errorf("commit %s is built from this repository's history: install git: %w", commit, err)
	}
	said, err := exec.CommandContext(ctx, program, "-C", dir, "cat-file", "-e", commit+"^{commit}").CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("commit %s is %w, %s: %s\nwhat to do: in a shallow clone, run: git fetch --unshallow; in a tree that "+
		"is no clone there is no history: clone the repository", commit, errNoHistory, dir, bytes.TrimSpace(said))
}

// unpack writes the directories and files of an archive below dir.
func unpack(dir string, archive io.Reader) error {
	for in := tar.NewReader(archive); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if !filepath.IsLocal(filepath.FromSlash(head.Name)) {
			return fmt.Errorf("%q is no path below a directory", head.Name)
		}
		to := filepath.Join(dir, filepath.FromSlash(path.Clean(head.Name)))
		switch head.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o700)
		case tar.TypeReg:
			err = unpackFile(to, in)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(to string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
