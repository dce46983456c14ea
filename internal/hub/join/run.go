package join

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

const (
	// upgradePollPause is the pause between two checks. calm is how long the hub must be well before an upgrade settles.
	upgradePollPause = time.Second
	calm             = 5 * time.Second
	// stillborn is how many restarts by systemd itself show that the hub does not work.
	stillborn = 2

	// maxProgram and maxText bound what is read of what others bring.
	maxProgram = 256 << 20
	maxText    = 1 << 20
)

// UpgradeConfig says where a node's program is. AddFlags sets the defaults.
type UpgradeConfig struct {
	// Root is the directory that has the node's files; empty means /.
	Root string
	// Binary is the program's place.
	Binary string
	// Settings is the file of settings that the hub runs with.
	Settings string
	// Wait is how long the hub may take until it is well.
	Wait time.Duration
	// Rest is the pause at the end of a run that has refused a program, or has found that the node has it already. systemd starts
	// no other run before that.
	Rest time.Duration
}

// AddFlags declares the settings as flags and sets their defaults.
func (c *UpgradeConfig) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.Binary, "binary", "/usr/local/bin/yurthub", "path of the program on the node")
	flags.StringVar(&c.Settings, "config", "/etc/yurthub/config.yaml", "file with the hub's settings")
	flags.DurationVar(&c.Wait, "wait", 20*time.Second,
		"how long the hub may take to become healthy; a node without a hub for 40 s is shown NotReady")
	c.Rest = time.Minute
}

// UpgradeSystem is what Run needs of a running node besides its files.
type UpgradeSystem interface {
	// Control tells systemd something, in systemctl's words, and returns when it is done.
	Control(ctx context.Context, args ...string) error
	// Restarts returns how often systemd has started the hub again by itself since it was told to.
	Restarts(ctx context.Context) int
	// Begun names the hub's run that systemd has begun last; empty if it does not say.
	Begun(ctx context.Context) string
	// Output runs a program and returns what it prints. A check that has found failures is no error.
	Output(ctx context.Context, program string, args ...string) (string, error)
	// Sync brings all files to the disk.
	Sync()
}

// upgrader is one run.
type upgrader struct {
	cfg    UpgradeConfig
	system UpgradeSystem
	// before is called before each step: here tests end the process.
	before func(step string)
}

// Upgrade continues the upgrade that is under way. If there is none, it starts the one that a Pod has requested, if any. It
// writes the result to DirOutbox. An error ends only this run; the next run continues the upgrade.
func Upgrade(ctx context.Context, c UpgradeConfig, system UpgradeSystem) error {
	return (&upgrader{cfg: c, system: system}).run(ctx)
}

func (u *upgrader) run(ctx context.Context) error {
	unlock, err := u.lock()
	if err != nil {
		return err
	}
	defer unlock()
	j, err := u.underWay()
	if err != nil {
		return err
	}
	if j == nil {
		if j, err = u.begin(ctx); err != nil || j == nil {
			return err
		}
	}
	return u.goOn(ctx, j.begun())
}

// lock keeps a second run out. The kernel releases it when the process dies.
func (u *upgrader) lock() (unlock func(), err error) {
	f, err := os.OpenFile(u.path(Dir)+"/lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("this node takes no upgrades: run yurthub join with --release-key: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another yurthub upgrade runs: %w", err)
	}
	return func() { f.Close() }, nil
}

func (u *upgrader) path(p string) string { return strings.TrimSuffix(u.cfg.Root, "/") + p }
func (u *upgrader) binary() string       { return u.path(u.cfg.Binary) }
func (u *upgrader) settled() string      { return FileSettled(u.binary()) }
func (u *upgrader) say(ctx context.Context, text string, kv ...any) {
	klog.FromContext(ctx).Info(text, kv...)
}

// act does a step.
func (u *upgrader) act(what string, do func() error) error {
	if u.before != nil {
		u.before(what)
	}
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// underWay returns the journal; nil means that no upgrade is under way. An upgrade writes its journal in one step, so a crash
// leaves no half journal. A journal that can't be read is therefore an error, which a person must look at.
func (u *upgrader) underWay() (*journal, error) {
	content, err := readFile(u.path(fileJournal))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &journal{}
	if err := json.Unmarshal(content, j); err != nil {
		return nil, fmt.Errorf("%s: %w; look at it, and remove it", fileJournal, err)
	}
	return j, nil
}

// begin looks at what was delivered, and returns the journal of its upgrade; nil means that there is nothing to do.
func (u *upgrader) begin(ctx context.Context) (*journal, error) {
	content, err := readFile(u.path(FileRequest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var r UpgradeRequest
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	var j *journal
	if err == nil {
		j, err = u.verify(ctx, r)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // the next run begins again
	}
	if err != nil {
		u.say(ctx, "An upgrade is refused", "version", r.Version, "why", err.Error())
		from, _ := u.version(ctx, u.binary())
		err = u.end(UpgradeResult{ID: r.ID, Outcome: edge.UpgradeRefused, Version: r.Version, From: from, Why: err.Error()})
		_ = run.Pause(ctx, u.cfg.Rest)
		return nil, err
	}
	if j == nil {
		err = u.end(UpgradeResult{ID: r.ID, Outcome: edge.UpgradeDone, Version: r.Version, From: r.Version})
		_ = run.Pause(ctx, u.cfg.Rest)
		return nil, err
	}
	// The former program, which is kept until the new one has settled.
	return j, u.link(u.binary(), u.settled())
}

// verify verifies the delivered program, and tests it beside the running hub as far as possible. It returns a nil journal if the
// node already has that program. It writes no file until it has accepted the program, and found that the program differs from the
// node's.
func (u *upgrader) verify(ctx context.Context, r UpgradeRequest) (*journal, error) {
	from, err := u.version(ctx, u.binary())
	if err != nil {
		return nil, fmt.Errorf("the program that is there: %w", err)
	}
	keys, err := readFile(u.path(FileKeys))
	if err != nil {
		return nil, fmt.Errorf("this node has no key of releases: run yurthub join with --release-key: %w", err)
	}
	sums, err := readFile(u.path(DirInbox) + "/" + nameSums)
	if err != nil {
		return nil, err
	}
	signature, err := readFile(u.path(DirInbox) + "/" + nameSignature)
	if err != nil {
		return nil, err
	}
	list, err := opened(keys, sums, signature)
	if err != nil {
		return nil, err
	}
	sum, err := u.delivered(io.Discard)
	if err != nil {
		return nil, err
	}
	listed, err := namesIn(list, hex.EncodeToString(sum[:]))
	if err != nil {
		return nil, err
	}
	if err := accept(listed, r.Version, u.floor(), runtime.GOOS+"/"+runtime.GOARCH); err != nil {
		return nil, err
	}
	if has, err := sumOf(u.binary()); err == nil && has == sum {
		return nil, nil
	}
	if err := u.copyProgram(sum); err != nil {
		return nil, err
	}
	next := half(u.binary())
	// From here on it is a program of the release's, and may run.
	err = u.act("make "+next+" a program", func() error { return os.Chmod(next, 0o755) })
	if err != nil {
		return nil, err
	}
	if is, err := u.version(ctx, next); err != nil || is != r.Version {
		return nil, fmt.Errorf("the new program says that it is %q: %w", is, err)
	}
	said, err := u.check(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("the new program can't look at this node: %w", err)
	}
	for _, f := range said {
		if f.What == "settings" {
			return nil, fmt.Errorf("the new program refuses this node's settings: %s", f.Why)
		}
	}
	j := &journal{UpgradeRequest: r, From: from, State: trying, Sum: hex.EncodeToString(sum[:])}
	before, err := u.check(ctx, u.binary())
	if err != nil {
		return nil, fmt.Errorf("the program that is there can't look at this node: %w", err)
	}
	j.Before = names(before)
	return j, nil
}

// delivered writes the delivered program to to, and returns its sum.
func (u *upgrader) delivered(to io.Writer) (sum [sha256.Size]byte, err error) {
	from, err := open(u.path(DirInbox) + "/" + nameProgram)
	if err != nil {
		return sum, err
	}
	defer from.Close()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(from, maxProgram+1))
	if err == nil && n > maxProgram {
		err = fmt.Errorf("it is larger than %d bytes", maxProgram)
	}
	copy(sum[:], h.Sum(nil))
	return sum, err
}

// copyProgram copies the delivered program to a file beside the present one. It fails if the copy has another sum than the
// parameter sum, because others can still write to the inbox.
func (u *upgrader) copyProgram(sum [sha256.Size]byte) error {
	return u.act("take what was delivered", func() error {
		return create(half(u.binary()), 0o600, func(to io.Writer) error {
			has, err := u.delivered(to)
			if err == nil && has != sum {
				err = errors.New("it has changed since its sum was taken")
			}
			return err
		})
	})
}

// goOn brings an upgrade to its end.
func (u *upgrader) goOn(ctx context.Context, j journal) error {
	if err := u.note(j); err != nil {
		return err
	}
	if j.State == trying {
		u.say(ctx, "Trying the new program", "version", j.Version, "from", j.From, "try", j.Tries)
		why, err := u.try(ctx, j)
		if err != nil {
			return err
		}
		j.State, j.Why = settling, ""
		if why != "" {
			j.State, j.Why = goingBack, why
		}
		if err := u.note(j); err != nil {
			return err
		}
	}
	if j.State == settling {
		u.say(ctx, "The hub is well with the new program", "version", j.Version)
		if err := u.link(u.binary(), u.settled()); err != nil {
			return err
		}
		// One step back is possible from the cloud, and no more.
		if err := u.raise(lower(j.From, j.Version)); err != nil {
			return err
		}
		return u.end(j.result())
	}
	return u.goBack(ctx, j)
}

// goBack makes the hub run with the former program again. It reports whether the hub then works, and changes nothing more.
func (u *upgrader) goBack(ctx context.Context, j journal) error {
	u.say(ctx, "Going back to the former program", "version", j.From, "why", j.Why)
	if err := u.link(u.settled(), u.binary()); err != nil {
		return err
	}
	if err := u.restart(ctx); err != nil {
		return err
	}
	if why, err := u.await(ctx, j.Before); err != nil {
		return err
	} else if why != "" {
		j.Why += "; and with the former program: " + why
	}
	return u.end(j.result())
}

// try puts the new program in place and returns why the hub is not well with it; empty means that it is.
func (u *upgrader) try(ctx context.Context, j journal) (string, error) {
	next := half(u.binary())
	// It is there, or in its place already.
	if err := u.act("put the new program in place", func() error {
		if err := os.Rename(next, u.binary()); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(err, syncDir(filepath.Dir(next)))
		}
		return nil
	}); err != nil {
		return "", err
	}
	if has, err := sumOf(u.binary()); err != nil {
		return "", err
	} else if hex.EncodeToString(has[:]) != j.Sum {
		return "the new program is not in its place: somebody has put another one there", nil
	}
	if err := u.restart(ctx); err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return err.Error(), nil
	}
	return u.await(ctx, j.Before)
}

// restart restarts the hub, with the program that is in place. systemctl fails if the hub ends before it is ready; restart then
// tries once more. If systemd has begun to start the hub, restart returns nil, because systemd tries again by itself and await
// judges the hub.
func (u *upgrader) restart(ctx context.Context) error {
	return u.act("restart the hub", func() error {
		u.system.Sync()
		begun, err := u.startAnew(ctx)
		if err != nil && begun {
			begun, err = u.startAnew(ctx)
		}
		if begun {
			return nil
		}
		return err
	})
}

// startAnew tells systemd to restart the hub, and returns whether systemd has begun to, even if the hub did not get ready.
func (u *upgrader) startAnew(ctx context.Context) (begun bool, err error) {
	before := u.system.Begun(ctx)
	err = u.system.Control(ctx, "restart", "yurthub.service")
	now := u.system.Begun(ctx)
	return now != "" && now != before, err
}

// await returns "" once the hub has worked for 5 s (calm). After UpgradeConfig.Wait it returns what is still wrong, or earlier if
// systemd has restarted the hub twice. The former program (FileSettled) does the checks, because a broken new program must not
// judge itself.
func (u *upgrader) await(ctx context.Context, before []string) (string, error) {
	until := time.Now().Add(u.cfg.Wait)
	began := u.system.Restarts(ctx)
	var well time.Time
	for {
		now, err := u.check(ctx, u.settled())
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		why := worse(before, now)
		if err != nil {
			why = err.Error()
		}
		if n := u.system.Restarts(ctx) - began; why == "" && n > 0 {
			why = fmt.Sprintf("it has ended by itself, %s: journalctl -u yurthub", edge.Count(n, "time", "times"))
		} else if n >= stillborn {
			return fmt.Sprintf("it ends by itself again and again: %s", why), nil
		}
		switch {
		case why != "":
			well = time.Time{}
		case well.IsZero():
			well = time.Now()
		case time.Since(well) >= calm:
			return "", nil
		}
		if why != "" && !time.Now().Before(until) {
			return fmt.Sprintf("after %v: %s", u.cfg.Wait, why), nil
		}
		if err := run.Pause(ctx, upgradePollPause); err != nil {
			return "", err
		}
	}
}

// check returns what a program finds to be wrong with the node.
func (u *upgrader) check(ctx context.Context, program string) ([]finding, error) {
	said, err := u.system.Output(ctx, program, "check", "--config="+u.path(u.cfg.Settings), "--joined", "--output=json")
	if err != nil {
		return nil, fmt.Errorf("%w: %.200s", err, strings.TrimSpace(said))
	}
	return failures(said)
}

func (u *upgrader) version(ctx context.Context, program string) (string, error) {
	said, err := u.system.Output(ctx, program, "--version")
	if err != nil {
		return "", err
	}
	return printedVersion(said)
}

// floor is the lowest version that the node accepts.
func (u *upgrader) floor() string {
	content, err := readFile(u.path(FileFloor))
	if err != nil {
		return Least
	}
	return higher(Least, strings.TrimSpace(string(content)))
}

// raise makes a version the floor, if that is higher.
func (u *upgrader) raise(version string) error {
	now := u.floor()
	if next := higher(now, version); next != now {
		return u.write(FileFloor, []byte(next+"\n"), 0o644)
	}
	return nil
}

func (u *upgrader) note(j journal) error {
	content, err := json.Marshal(j)
	if err != nil {
		return err
	}
	return u.write(fileJournal, content, 0o600)
}

// end reports the result of a request, and then forgets the request. If the run is killed in between, the next run reports again.
func (u *upgrader) end(r UpgradeResult) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := u.write(fileResult, content, 0o644); err != nil {
		return err
	}
	// The request before the journal: without a journal it would begin again.
	for _, path := range []string{
		u.path(FileRequest), u.path(DirInbox) + "/" + nameProgram, u.path(DirInbox) + "/" + nameSums,
		u.path(DirInbox) + "/" + nameSignature, half(u.binary()), u.path(fileJournal),
	} {
		// What others have put there may be a directory.
		if err := u.act("remove "+path, func() error { return os.RemoveAll(path) }); err != nil {
			return err
		}
	}
	return nil
}

// link makes to, in one step, the same file as from.
func (u *upgrader) link(from, to string) error {
	between := half(to)
	if from == u.binary() {
		between = to + ".new" // the other one is the new program's
	}
	return u.act("make "+to+" what "+from+" is", func() error { return linkOver(from, to, between) })
}

// write makes a file in one step.
func (u *upgrader) write(path string, content []byte, mode fs.FileMode) error {
	path = u.path(path)
	if err := u.act("begin "+path, func() error { return writeFile(half(path), content, mode) }); err != nil {
		return err
	}
	return u.act("write "+path, func() error { return errors.Join(os.Rename(half(path), path), syncDir(filepath.Dir(path))) })
}
