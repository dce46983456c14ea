// Command record makes the terminal recording of the README: it runs the commands of a script, keeps what they print and when,
// and draws that as an SVG which plays by itself.
//
//	record --run docs/img/cut.session --out docs/img/cut.json    # in a lab: `make recording` boots one
//	record --draw docs/img/cut.json --out docs/img/cut.svg
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

//go:generate go run . --draw ../../docs/img/cut.json --out ../../docs/img/cut.svg

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("record", flag.ContinueOnError)
	script := fs.String("run", "", "script to run")
	recording := fs.String("draw", "", "recording to draw")
	out := fs.String("out", "", "file to write")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if (*script == "") == (*recording == "") || *out == "" {
		return errors.New("want --out, and one of --run and --draw")
	}
	text, err := os.ReadFile(*script + *recording)
	if err != nil {
		return err
	}
	var made []byte
	if *script != "" {
		made, err = record(ctx, string(text))
	} else {
		made, err = draw(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", *script+*recording, err)
	}
	return os.WriteFile(*out, made, 0o644)
}

// record runs a script and returns what happened as JSON.
func record(ctx context.Context, script string) ([]byte, error) {
	steps, err := parse(script)
	if err != nil {
		return nil, err
	}
	s, err := play(ctx, steps, shell{os.Stderr})
	if err != nil {
		return nil, err
	}
	return encode(s)
}

// encode is JSON for people: commands stand in it as they are typed.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

// draw draws a recording.
func draw(recording []byte) ([]byte, error) {
	var s session
	d := json.NewDecoder(bytes.NewReader(recording))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	return picture(s)
}
