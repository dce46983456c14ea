package join

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Reset undoes Join: kubelet goes straight to the cloud again, and nothing of yurthub's is left. It can be run again.
func Reset(ctx context.Context, r Removal, system System, term Terminal) error {
	rm := &remover{newHand(ctx, r.Where, system, term.Out), r.KeepData}
	if err := mayChange(rm.root); err != nil {
		return err
	}
	rm.reset()
	return rm.err
}

// remover is one run of Reset.
type remover struct {
	*hand
	keep bool // the data
}

func (r *remover) reset() {
	r.removeAll(dirEtc+".gone", dirEtc+".new")
	if !r.there(dirNotes) {
		r.say("yurthub is not installed here by join: nothing to do")
		return
	}
	if r.where.starts() && !systemdRuns(r.root, r.system) {
		r.fail(errNoSystemd)
		return
	}
	hub := r.podsAt()
	r.noUpgrades() // before anything that one could bring back
	r.kubeletStraight()
	r.turn(hub, false)
	r.sayTold(hub)
	r.stopHub()
	r.files()
	if r.err == nil && !r.where.DryRun {
		r.say("yurthub is off this node")
	}
}

// kubeletStraight has kubelet go its own way again.
func (r *remover) kubeletStraight() {
	if r.ours(fileDropin) {
		r.note(noteRestartKubelet)
		r.remove(fileDropin)
	}
	r.remove(half(fileDropin))
	if !r.noted(noteRestartKubelet) {
		return
	}
	r.control("daemon-reload")
	r.control("restart", "kubelet.service")
	r.forget(noteRestartKubelet)
	if !r.there(fileKubeadm) {
		r.say("this node has no %s: kubelet has no way of its own to the cloud until kubeadm join", fileKubeadm)
	}
}

// stopHub ends the hub and takes away what starts it.
func (r *remover) stopHub() {
	if r.ours(fileUnit) {
		r.control("stop", "yurthub.service")
		r.remove(linkWanted, fileUnit)
		r.control("daemon-reload")
	}
	r.remove(half(fileUnit))
}

// files removes what is left: settings, data, directories, and at last the notes.
func (r *remover) files() {
	if !r.keep {
		r.removeAll(dirData+"/cache", dirData+"/cache.key", dirData+"/cache.key.new", dirData+"/pki")
	}
	for _, path := range []string{fileConfig, fileKubeconfig, fileToken, fileProxy, FileKeys, FileFloor} {
		r.remove(path, half(path))
	}
	if r.where.DryRun {
		r.say("would: remove %s, and what other directories join has made", r.root+dirEtc)
		return
	}
	dirs := append(r.dirs(), dirData) // which a node may have had before, empty
	slices.Sort(dirs)                 // the deepest are last
	for _, dir := range slices.Backward(slices.Compact(dirs)) {
		if dir != dirData || !r.keep {
			r.removeEmpty(dir)
		}
	}
	r.lastNotes()
}

// removeEmpty removes a directory, unless something else is in it.
func (r *remover) removeEmpty(dir string) {
	if !r.there(dir) {
		return
	}
	r.act("rmdir "+dir, func() error {
		if os.Remove(r.root+dir) != nil {
			r.say("%s is left: something else is in it", dir)
		}
		return nil
	})
}

// lastNotes removes the notes, with /etc/yurthub if that is ours alone.
func (r *remover) lastNotes() {
	if r.err != nil {
		return
	}
	entries, err := os.ReadDir(r.root + dirEtc)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fail(err)
		return
	}
	var others []string
	for _, e := range entries {
		if path := dirEtc + "/" + e.Name(); path != dirNotes {
			others = append(others, path)
		}
	}
	if len(others) == 0 && r.noted(noteMade) {
		r.rename(dirEtc, dirEtc+".gone") // so that no half of the notes is ever taken for all of them
		r.removeAll(dirEtc + ".gone")
		return
	}
	if len(others) > 0 {
		r.say("left, since join has not made it: %s", strings.Join(others, " "))
	}
	r.removeAll(dirNotes)
}
