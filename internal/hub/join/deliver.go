package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/run"
)

// Courier says what to deliver, and where. AddFlags sets the defaults, which are those of a Pod.
type Courier struct {
	UpgradeRequest
	// Inbox and Outbox are the node's directories, Release is where the signed sums are.
	Inbox, Outbox, Release string
	// Program is the program that is delivered; empty means the one that runs.
	Program string
	// Message is the file that gets the Result; empty means none.
	Message string
	// Wait is how long the node may take.
	Wait time.Duration
}

// AddFlags declares the settings as flags and sets their defaults.
func (c *Courier) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.ID, "id", "", "name of the request in the node's answer")
	flags.StringVar(&c.Version, "version", "", "the version to ask for; it must be that of this program")
	flags.StringVar(&c.Inbox, "inbox", DirInbox, "directory in which the node takes deliveries")
	flags.StringVar(&c.Outbox, "outbox", DirOutbox, "directory in which the node answers")
	flags.StringVar(&c.Release, "release", DirRelease, "directory of "+nameSums+" and its signature")
	flags.StringVar(&c.Message, "message", "/dev/termination-log", "file that gets the node's answer")
	flags.DurationVar(&c.Wait, "wait", 10*time.Minute, "how long to wait for the node's answer")
}

// ErrNotUpgraded says that the node does not run what was delivered.
var ErrNotUpgraded = errors.New("the node was not upgraded")

// lookPause is between two looks for an answer.
const lookPause = time.Second

// DeliverUpgrade brings a program to a node, asks for the upgrade, and waits for the node's answer. It returns nil if the node's
// hub works with the new program. It runs in a Pod that can write DirInbox and read DirOutbox, and has no other rights on the
// node.
func DeliverUpgrade(ctx context.Context, c Courier) error {
	r, err := c.deliver(ctx)
	if err != nil {
		r = UpgradeResult{ID: c.ID, Version: c.Version, Why: err.Error()}
	}
	if c.Message != "" {
		content, failed := json.Marshal(r)
		err = errors.Join(err, failed, os.WriteFile(c.Message, content, 0o600))
	}
	if err == nil && r.Outcome != edge.UpgradeDone {
		err = fmt.Errorf("%w: %s: %s", ErrNotUpgraded, r.Outcome, r.Why)
	}
	return err
}

func (c Courier) deliver(ctx context.Context) (UpgradeResult, error) {
	program := c.Program
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return UpgradeResult{}, err
		}
	}
	for _, file := range [][2]string{
		{program, nameProgram},
		{filepath.Join(c.Release, nameSums), nameSums},
		{filepath.Join(c.Release, nameSignature), nameSignature},
	} {
		if err := bring(file[0], filepath.Join(c.Inbox, file[1])); err != nil {
			return UpgradeResult{}, err
		}
	}
	content, err := json.Marshal(c.UpgradeRequest)
	if err != nil {
		return UpgradeResult{}, err
	}
	// Last, since the node begins when it is there.
	request := filepath.Join(c.Inbox, filepath.Base(FileRequest))
	if err := errors.Join(writeFile(half(request), content, 0o600), os.Rename(half(request), request)); err != nil {
		return UpgradeResult{}, fmt.Errorf("ask for the upgrade: %w", err)
	}
	return c.answer(ctx)
}

// bring copies a file. The inbox is this Pod's alone, and nobody looks at it before the request is there.
func bring(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("what is to be delivered: %w", err)
	}
	defer f.Close()
	if err := create(to, 0o600, func(t io.Writer) error { _, err := io.Copy(t, f); return err }); err != nil {
		return fmt.Errorf("deliver to the node: %w", err)
	}
	return nil
}

// answer waits for the node's word on this request.
func (c Courier) answer(ctx context.Context) (UpgradeResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Wait, fmt.Errorf("the node has not answered within %v; on the node: "+
		"journalctl -u yurthub-upgrade", c.Wait))
	defer cancel()
	for {
		content, err := readFile(filepath.Join(c.Outbox, filepath.Base(fileResult)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return UpgradeResult{}, err
		}
		var r UpgradeResult
		if err == nil {
			if err := json.Unmarshal(content, &r); err != nil {
				return UpgradeResult{}, fmt.Errorf("the node's answer: %w", err)
			}
			if r.ID == c.ID {
				return r, nil
			}
		}
		if err := run.Pause(ctx, lookPause); err != nil {
			return UpgradeResult{}, err
		}
	}
}
