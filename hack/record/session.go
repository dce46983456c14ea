package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// session is what was seen: its entries follow each other on the screen.
type session struct {
	Title   string  `json:"title"`
	Entries []entry `json:"entries"`
}

// entry is a note, or a command with what it printed.
type entry struct {
	Note    string `json:"note,omitempty"`
	Command string `json:"command,omitempty"`
	Output  string `json:"output,omitempty"`
	// Waited is how long what had to come first was waited for before the command, in seconds.
	Waited float64 `json:"waited,omitempty"`
	// Clear empties the screen first.
	Clear bool `json:"clear,omitempty"`
}

// stepKind says what a line of a script is.
type stepKind uint8

const (
	title   stepKind = iota // = TITLE
	setup                   // ! COMMAND: run before, and not shown
	define                  // > DEFINITION: stands before every command, and is not shown
	note                    // # TEXT
	command                 // $ COMMAND: run and shown
	wait                    // ? SECONDS COMMAND: until the command succeeds
	empty                   // ---: the screen is emptied
)

type step struct {
	kind  stepKind
	text  string
	limit time.Duration // of wait
}

var marks = map[string]stepKind{"=": title, "!": setup, ">": define, "#": note, "$": command, "?": wait}

// parse reads a script, a step a line.
func parse(script string) ([]step, error) {
	var steps []step
	n := 0
	for line := range strings.Lines(script) {
		n++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if line == "---" {
			steps = append(steps, step{kind: empty})
			continue
		}
		mark, text, _ := strings.Cut(line, " ")
		kind, known := marks[mark]
		if !known || text == "" {
			return nil, fmt.Errorf("line %d: %q is no step", n, line)
		}
		s := step{kind: kind, text: text}
		if kind == wait {
			limit, what, _ := strings.Cut(text, " ")
			d, err := time.ParseDuration(limit)
			if err != nil || what == "" {
				return nil, fmt.Errorf("line %d: %q: want a time and a command", n, line)
			}
			s.limit, s.text = d, what
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// runner runs commands; shell is the real one.
type runner interface {
	// run returns what the command printed.
	run(ctx context.Context, command string) (string, error)
	// until runs the command again and again until it succeeds, and returns how long that took.
	until(ctx context.Context, command string, limit time.Duration) (time.Duration, error)
}

// play runs a script's steps.
func play(ctx context.Context, steps []step, r runner) (session, error) {
	var s session
	var definitions []string
	var next entry
	full := func(command string) string { return strings.Join(append(definitions, command), "\n") }
	for _, st := range steps {
		switch st.kind {
		case title:
			s.Title = st.text
		case define:
			definitions = append(definitions, st.text)
		case setup:
			if out, err := r.run(ctx, full(st.text)); err != nil {
				return s, fmt.Errorf("%s: %w: %s", st.text, err, out)
			}
		case empty:
			next.Clear = true
		case note:
			next.Note = st.text
			s.Entries, next = append(s.Entries, next), entry{}
		case wait:
			waited, err := r.until(ctx, full(st.text), st.limit)
			if err != nil {
				return s, fmt.Errorf("%s: %w", st.text, err)
			}
			next.Waited = float64(waited.Milliseconds()) / 1000
		case command:
			out, err := r.run(ctx, full(st.text))
			if err != nil {
				return s, fmt.Errorf("%s: %w: %s", st.text, err, out)
			}
			next.Command, next.Output = st.text, strings.TrimRight(out, "\n")
			s.Entries, next = append(s.Entries, next), entry{}
		}
	}
	return s, nil
}

// shell runs commands in bash, and says on log what it runs. Of a pipe the last command counts: `| head` ends the others.
type shell struct{ log io.Writer }

func (s shell) run(ctx context.Context, command string) (string, error) {
	fmt.Fprintln(s.log, command)
	cmd := exec.CommandContext(ctx, "bash", "-euc", command)
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// askEvery is how often a condition is looked at.
const askEvery = 200 * time.Millisecond

func (s shell) until(ctx context.Context, command string, limit time.Duration) (time.Duration, error) {
	start := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("it did not come in time"))
	defer cancel()
	for {
		if _, err := s.run(ctx, command); err == nil {
			return time.Since(start), nil
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(askEvery):
		}
	}
}
