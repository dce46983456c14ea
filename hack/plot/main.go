// Command plot draws the pictures of docs/benchmarks.md from results that are kept in docs/data, and keeps results.
//
//	plot --data docs/data --out docs/img                                # `make plots`
//	plot --keep docs/data/one-copy.json --commit C --date D LOG...      # takes in what yurtlab run or bench has printed
//
// The drawing is our own: three kinds of lines on axes are some two hundred lines. gonum/plot would do more, and brings eleven
// modules with fonts and rasterizers into go.mod.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . --data ../../docs/data --out ../../docs/img

func main() {
	if err := start(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func start(args []string) error {
	fs := flag.NewFlagSet("plot", flag.ContinueOnError)
	data := fs.String("data", "", "directory of kept results, of which all pictures are drawn")
	out := fs.String("out", "", "directory of the pictures")
	keep := fs.String("keep", "", "file of results to which those in the logs are added")
	var of Run
	fs.StringVar(&of.Commit, "commit", "", "with --keep: the commit that was measured")
	fs.StringVar(&of.Date, "date", "", "with --keep: when, as 2026-11-26")
	fs.StringVar(&of.Group, "group", "", "with --keep: the line of the picture that these are of, where one has several")
	only := fs.String("only", "", "with --keep: the figures to keep, separated by commas; by default all")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case *keep != "" && fs.NArg() > 0 && of.Commit != "" && of.Date != "":
		return takeIn(*keep, of, *only, fs.Args())
	case *keep == "" && *data != "" && *out != "" && fs.NArg() == 0:
		return drawAll(*data, *out)
	}
	return errors.New("want --data and --out, or --keep with --commit, --date and logs")
}

// drawAll draws all pictures.
func drawAll(data, out string) error {
	for name, of := range pictures {
		results, err := load(filepath.Join(data, of.data))
		if err != nil {
			return err
		}
		c, err := of.chart(results)
		if err != nil {
			return fmt.Errorf("%s: %w", of.data, err)
		}
		if err := os.WriteFile(filepath.Join(out, name), c.svg(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// load reads a file of results.
func load(path string) (Results, error) {
	var r Results
	content, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	d := json.NewDecoder(strings.NewReader(string(content)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// takeIn adds what logs say to a file of results, which need not exist.
func takeIn(path string, of Run, only string, logs []string) error {
	results, err := load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		run, err := read(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", log, err)
		}
		run.Commit, run.Date, run.Group = of.Commit, of.Date, of.Group
		results.add(run.only(only))
	}
	content, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
