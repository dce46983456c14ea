package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"yurtcoordinator/internal/run"
)

// pollPause is how often a hub that has been started is checked. A check takes a moment itself.
const pollPause = 2 * time.Second

// Terminal is where Join and Reset read and write.
type Terminal struct {
	In  io.Reader // for --token-file -
	Out io.Writer
}

// Join puts yurthub between this node's kubelet and the cloud. It starts yurthub, waits until yurthub works, and then makes
// kubelet use it. If something does not work in the end, or ctx ends, Join undoes its changes. It can be run again, after an
// interruption or with other flags.
func Join(ctx context.Context, c Config, system System, term Terminal) error {
	return newJoiner(ctx, c, system, term).join()
}

// joiner is one run of Join.
type joiner struct {
	*hand
	cfg Config
	in  io.Reader
	*plan
	token string // to be put on the node, if not empty
}

func newJoiner(ctx context.Context, c Config, system System, term Terminal) *joiner {
	return &joiner{hand: newHand(ctx, c.Where, system, term.Out), cfg: c, in: term.In}
}

func newHand(ctx context.Context, w Where, system System, out io.Writer) *hand {
	return &hand{ctx: ctx, where: w, root: w.root(), out: out, system: system}
}

func (j *joiner) join() error {
	if err := j.prepare(); err != nil {
		return err
	}
	j.notes()
	j.files()
	if !j.noted(noteJoined) && !j.noted(noteStarted) {
		j.await(0, "--before-start")
	}
	j.runHub()
	j.await(j.wait)
	agents := j.agentsReady() // before kubelet starts anew, so that it sees no other way
	j.switchKubelet()
	j.await(j.wait, "--joined")
	j.removeAll(dirFormer)
	j.remove(fileToken)
	j.note(noteJoined)
	if j.err != nil {
		return j.undo()
	}
	if agents {
		j.turn(j.podsAt(), true)
	}
	if j.prepareUpgrades(); j.err != nil {
		return fmt.Errorf("node %s goes through yurthub, but can't be upgraded from the cloud; run join again: %w", j.node, j.err)
	}
	switch {
	case j.where.DryRun:
		j.say("nothing has been done")
	case j.where.starts():
		j.say("node %s goes through yurthub", j.node)
	default:
		j.say("node %s will go through yurthub when it starts", j.node)
	}
	return nil
}

// prepare decides what is to be done, and has yurthub read the settings. It changes nothing.
func (j *joiner) prepare() error {
	if err := mayChange(j.root); err != nil {
		return err
	}
	if err := errors.Join(j.cfg.readProxy(), j.cfg.readReleaseKey(), j.cfg.readReleaseList()); err != nil {
		return err
	}
	f, err := readFacts(&j.cfg, j.system)
	if err != nil {
		return err
	}
	if j.plan, err = decide(&j.cfg, f); err != nil {
		return err
	}
	if j.token, err = j.cfg.token(j.in); err != nil {
		return err
	}
	if !j.where.starts() {
		return nil
	}
	said, err := j.system.Check(j.ctx, j.binary(), j.settings, "--config=/dev/stdin", "--before-start")
	if err != nil && !errors.Is(err, ErrNotWell) {
		return fmt.Errorf("%s cannot be run: %w", j.cfg.Binary, err)
	}
	for line := range strings.Lines(said) {
		for _, begin := range []string{"yurthub: /dev/stdin: ", "fail  settings "} {
			if refused, ok := strings.CutPrefix(line, begin); ok {
				return fmt.Errorf("yurthub refuses these settings: %s", strings.TrimSpace(refused))
			}
		}
	}
	return nil
}

// mayChange returns an error if a user other than root would change this machine's own files, which an empty root stands for.
func mayChange(root string) error {
	if root == "" && os.Geteuid() != 0 {
		return errors.New("must be run as root")
	}
	return nil
}

func (j *joiner) binary() string { return j.root + j.cfg.Binary }

// notes makes the directory of the notes.
func (j *joiner) notes() {
	const whole = dirEtc + ".new" // so that /etc/yurthub is never without the note that it is ours
	j.removeAll(dirEtc+".gone", whole)
	switch {
	case j.there(dirNotes):
	case j.there(dirEtc):
		j.mkdir(dirNotes, 0o755)
	default:
		j.mkdir(whole, 0o700)
		j.mkdir(whole+"/install", 0o755)
		j.touch(whole + "/install/" + noteMade)
		j.rename(whole, dirEtc)
	}
}

// files writes all but what kubelet takes notice of.
func (j *joiner) files() {
	if j.token != "" {
		j.put(fileToken, j.token+"\n", 0o600, "")
	}
	if j.proxy != "" {
		j.put(fileProxy, j.proxy, 0o600, "") // yurthub reads it for each connection
	}
	j.put(fileConfig, j.settings, 0o600, noteRestartHub)
	if j.proxy == "" && j.there(fileProxy) {
		j.keepFormer(fileProxy)
		j.remove(fileProxy)
	}
	used := ""
	if j.there(fileDropin) {
		used = noteRestartKubelet
	}
	j.put(fileKubeconfig, j.kubeconfig, 0o600, used)
	j.ensureDir(dirData, 0o700)
	j.put(fileUnit, j.unit, 0o644, noteRestartHub)
	j.ensureDir(filepath.Dir(linkWanted), 0o755)
	if !j.there(linkWanted) {
		j.act("ln -s "+fileUnit+" "+j.root+linkWanted, func() error { return os.Symlink(fileUnit, j.root+linkWanted) })
	}
}

// await waits until the check is content.
func (j *joiner) await(atMost time.Duration, args ...string) {
	if !j.where.starts() || j.where.DryRun || j.err != nil {
		return
	}
	args = append([]string{"--config=" + j.root + fileConfig}, args...)
	for until := time.Now().Add(atMost); ; {
		said, err := j.system.Check(j.ctx, j.binary(), "", args...)
		if err == nil {
			return
		}
		if !time.Now().Before(until) {
			j.say("%s", strings.TrimSpace(said))
			j.fail(fmt.Errorf("after %v some checks still fail, see above: %w", atMost, err))
			return
		}
		if err := run.Pause(j.ctx, pollPause); err != nil {
			j.fail(err)
			return
		}
	}
}

func (j *joiner) runHub() {
	j.note(noteStarted)
	j.sync()
	if !j.noted(noteRestartHub) {
		j.control("start", "yurthub.service")
		return
	}
	j.control("daemon-reload")
	j.control("restart", "yurthub.service")
	j.forget(noteRestartHub)
}

func (j *joiner) switchKubelet() {
	j.ensureDir(filepath.Dir(fileDropin), 0o755)
	j.put(fileDropin, j.dropin, 0o644, noteRestartKubelet)
	if j.where.DryRun {
		j.say("would: restart kubelet, if anything has changed")
		return
	}
	if !j.noted(noteRestartKubelet) {
		return
	}
	j.sync()
	j.control("daemon-reload")
	j.control("restart", "kubelet.service")
	j.forget(noteRestartKubelet)
}

// undo takes back what has failed: a first join is reset, a later one goes back to what worked. It returns why.
func (j *joiner) undo() error {
	why := j.err
	if j.where.DryRun {
		return why
	}
	j.err, j.ctx = nil, context.WithoutCancel(j.ctx)
	if !j.noted(noteJoined) {
		j.say("undoing what was done")
		(&remover{hand: j.hand}).reset()
	} else {
		j.say("going back to the settings that worked")
		j.anyway = true
		j.goBack()
	}
	if j.err != nil {
		return errors.Join(why, fmt.Errorf("not everything could be undone; run yurthub join or reset again: %w", j.err))
	}
	return why
}

// goBack restores the files of a hub that has worked.
func (j *joiner) goBack() {
	const kubeconfig, dropin = dirFormer + "/kubelet.conf", dirFormer + "/" + nameDropin
	for _, path := range restored {
		former := dirFormer + "/" + filepath.Base(path)
		if j.there(former + ".none") {
			j.remove(path)
		}
		if j.there(former) {
			j.copy(former, path)
		}
	}
	whole := j.err == nil
	j.control("daemon-reload")
	j.control("restart", "yurthub.service")
	if j.there(kubeconfig) || j.there(dropin) {
		j.control("restart", "kubelet.service")
	}
	if whole { // otherwise they are the only copies
		j.removeAll(dirFormer)
	}
	j.forget(noteRestartHub)
	j.forget(noteRestartKubelet)
}
