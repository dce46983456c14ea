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

	"yurtcoordinator/internal/version"
)

// former returns the programs of another commit of ours.
func former(in inputs) set {
	release := ReleaseFlags(in.module, version.Development(in.former, false), in.former)
	return set{
		name: SetFormer,
		stages: []stage{{
			Name:     StageFormer,
			Title:    "our own programs of commit " + in.former,
			Commit:   in.former,
			Packages: prefix(in.module+"/cmd/", "yurthub", "yurt-coordinator", "coordinator-controller"),
			Output:   "former/",
			Tags:     tags,
			LDFlags:  append(VersionFlags(in.versions.kubernetes), release...),
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
