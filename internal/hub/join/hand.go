package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Notes: facts that are kept over an interruption, each as an empty file.
const (
	noteMade           = "made"            // /etc/yurthub was made by us
	noteStarted        = "started"         // the hub may run
	noteJoined         = "joined"          // all has worked once
	noteRestartHub     = "restart-hub"     // its files have changed since it was started
	noteRestartKubelet = "restart-kubelet" // as restart-hub
	noteUpgrades       = "upgrades"        // systemd is to be told of what upgrades the hub

	fileDirs  = dirNotes + "/dirs"   // the directories that we have made, a line each
	dirFormer = dirNotes + "/former" // files that have worked, until the changed ones do
)

// hand changes a node. After its first error it changes nothing more, unless the field anyway is set. So callers need to check
// for the error only at the end. A dry run only prints what it would do. All paths are paths on the node, below root.
type hand struct {
	// ctx is that of the one run that the hand is made for; when it ends, nothing more is done.
	ctx    context.Context
	where  Where
	root   string
	out    io.Writer
	system System
	// before is called before each step: here tests end the process.
	before func(step string)
	// anyway continues after an error: on the way back, half is better than nothing.
	anyway bool
	err    error
}

func (h *hand) say(format string, args ...any) { fmt.Fprintf(h.out, format+"\n", args...) }

// fail keeps an error.
func (h *hand) fail(err error) {
	if err != nil {
		h.err = errors.Join(h.err, err)
	}
}

// act does what changes something.
func (h *hand) act(what string, do func() error) {
	if h.err != nil && !h.anyway {
		return
	}
	if h.where.DryRun {
		h.say("would: %s", what)
		return
	}
	if h.ctx.Err() != nil {
		h.fail(fmt.Errorf("interrupted before: %s", what))
		return
	}
	if h.before != nil {
		h.before(what)
	}
	h.fail(do())
}

// remove removes a file, if it is there.
func (h *hand) remove(paths ...string) {
	for _, path := range paths {
		h.act("rm -f "+h.root+path, func() error { return remove(h.root + path) })
	}
}

// removeAll removes directories with all that is in them.
func (h *hand) removeAll(paths ...string) {
	for _, path := range paths {
		h.act("rm -rf "+h.root+path, func() error { return os.RemoveAll(h.root + path) })
	}
}

func (h *hand) rename(from, to string) {
	h.act("mv "+h.root+from+" "+h.root+to, func() error { return os.Rename(h.root+from, h.root+to) })
}

// mkdir makes one directory with exactly this mode.
func (h *hand) mkdir(path string, mode fs.FileMode) {
	h.act("mkdir "+h.root+path, func() error {
		if err := os.Mkdir(h.root+path, mode); err != nil {
			return err
		}
		return os.Chmod(h.root+path, mode)
	})
}

// ensureDir makes a directory, and notes first that it is for us to remove.
func (h *hand) ensureDir(path string, mode fs.FileMode) {
	if info, err := os.Stat(h.root + path); err == nil && info.IsDir() {
		return
	}
	if parent := filepath.Dir(path); parent != path {
		h.ensureDir(parent, mode)
	}
	if !slices.Contains(h.dirs(), path) {
		h.act("note that "+path+" is ours", func() error {
			f, err := os.OpenFile(h.root+fileDirs, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			_, err = f.WriteString(path + "\n")
			return errors.Join(err, f.Close())
		})
	}
	h.mkdir(path, mode)
}

// dirs are the directories that we have made, as noted.
func (h *hand) dirs() []string {
	content, _ := h.content(fileDirs)
	return strings.Fields(content)
}

// content returns a file's, and whether it is there. What cannot be read fails the run.
func (h *hand) content(path string) (string, bool) {
	content, err := readText(h.root + path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.fail(err)
	}
	return content, err == nil
}

func (h *hand) there(path string) bool { _, err := os.Lstat(h.root + path); return err == nil }

func (h *hand) ours(path string) bool {
	content, there := h.content(path)
	return there && isOurs(content)
}

// half is the name of a file while it is made.
func half(path string) string { return filepath.Dir(path) + "/." + filepath.Base(path) + ".new" }

// write makes a file in one step. What could not be written as a whole never comes to its place.
func (h *hand) write(path, content string, mode fs.FileMode) {
	whole := false
	h.act("begin "+h.root+path, func() error {
		err := writeFile(h.root+half(path), []byte(content), mode)
		whole = err == nil
		return err
	})
	if whole {
		h.rename(half(path), path)
	}
}

// put makes a file, unless it is as it should be, and notes what is to be done because of that, if anything.
func (h *hand) put(path, content string, mode fs.FileMode, todo string) {
	if now, there := h.content(path); there && now == content {
		return
	}
	if h.where.DryRun {
		h.say("would: write %s", h.root+path)
		return
	}
	h.keepFormer(path)
	if todo != "" {
		h.note(todo)
	}
	h.write(path, content, mode)
}

// restored are the files that a change that does not work is taken back from.
var restored = []string{fileProxy, fileConfig, fileKubeconfig, fileUnit, fileDropin}

// keepFormer keeps a copy of a working hub's file until the changed one works, if it is among restored.
func (h *hand) keepFormer(path string) {
	former := dirFormer + "/" + filepath.Base(path)
	if !slices.Contains(restored, path) || h.where.DryRun || !h.noted(noteJoined) || h.there(former) || h.there(former+".none") {
		return
	}
	if !h.there(dirFormer) {
		h.mkdir(dirFormer, 0o700)
	}
	if h.there(path) {
		h.copy(path, former)
	} else {
		h.touch(former + ".none")
	}
}

// copy makes a file of ours the same as another, in one step.
func (h *hand) copy(from, to string) {
	info, err := os.Stat(h.root + from)
	if err != nil {
		h.fail(err)
		return
	}
	if content, there := h.content(from); there {
		h.write(to, content, info.Mode().Perm())
	}
}

func (h *hand) touch(path string) {
	h.act("touch "+h.root+path, func() error {
		f, err := os.OpenFile(h.root+path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

func (h *hand) note(name string)       { h.touch(dirNotes + "/" + name) }
func (h *hand) noted(name string) bool { return h.there(dirNotes + "/" + name) }
func (h *hand) forget(name string)     { h.remove(dirNotes + "/" + name) }

// control tells systemd something, where there is a running one.
func (h *hand) control(args ...string) {
	if h.where.starts() {
		h.act("systemctl "+strings.Join(args, " "), func() error { return h.system.Control(h.ctx, args...) })
	}
}

// sync brings all to the disk, before what is on it is relied upon.
func (h *hand) sync() {
	if h.where.starts() && !h.where.DryRun {
		h.act("sync", func() error { h.system.Sync(); return nil })
	}
}
