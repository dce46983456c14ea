// Package pages reads the commands that the documentation shows. Tests compare them with the programs, and scenarios run them,
// because a page must not show a command or a flag that no longer exists.
//
// A code block without a language, or with the language sh, holds commands. Drawings and the output of programs are in blocks
// with the language text, manifests in blocks with yaml. If some lines of a block begin with a prompt, "$ ", its other lines are
// the commands' output.
package pages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Step is a command as somebody types it who follows a page.
type Step struct {
	// Page is relative to the repository's root, and Line counts from 1.
	Page string
	Line int
	// Heading is the heading that it stands under.
	Heading string
	// Text is all of the command: with its comment, the lines that continue it, and what it reads from the page.
	Text string
	// Shown is what the page says that it prints; empty means that the page says nothing.
	Shown string
}

// Command is a step, as words.
type Command struct {
	Page string
	Line int
	// Words are those of the command, without a comment, what it is piped into, or where its output goes.
	Words []string
}

// diary names the page that is left out, because it tells which commands were run in the past.
const diary = "benchmarks-log.md"

// Steps returns the commands of README.md, CONTRIBUTING.md and SECURITY.md, of the pages in docs except benchmarks-log.md, and of
// the README.md of the examples and of the chart. root is the repository's directory.
func Steps(root string) ([]Step, error) {
	pages, err := fs.Glob(os.DirFS(root), "docs/*.md")
	if err != nil {
		return nil, err
	}
	pages = append(pages, "README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md",
		"deploy/charts/yurt-coordinator/README.md")
	var all []Step
	for _, page := range pages {
		if path.Base(page) == diary {
			continue
		}
		of, err := StepsOf(root, page)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// StepsOf returns the commands of one page, whose path is relative to the repository's directory root.
func StepsOf(root, page string) ([]Step, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(page)))
	if err != nil {
		return nil, err
	}
	all, err := steps(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", page, err)
	}
	for i := range all {
		all[i].Page = page
	}
	return all, nil
}

// Commands returns the commands of all pages that begin with these words.
func Commands(root string, begin ...string) ([]Command, error) {
	all, err := Steps(root)
	if err != nil {
		return nil, err
	}
	var found []Command
	for _, s := range all {
		if words := s.words(); len(words) >= len(begin) && slices.Equal(words[:len(begin)], begin) {
			found = append(found, Command{s.Page, s.Line, words})
		}
	}
	return found, nil
}

// block is a code block whose lines are commands.
type block struct {
	begun   int // the line of its fence
	heading string
	lines   []string
}

// steps returns the commands of a page.
func steps(text string) ([]Step, error) {
	var all []Step
	heading, fenced, n := "", false, 0
	var now *block // nil outside of blocks of commands
	indent := ""
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		trimmed := strings.TrimSpace(line)
		language, fence := strings.CutPrefix(trimmed, "```")
		switch {
		case fence && !fenced:
			fenced = true
			if language == "" || language == "sh" {
				now = &block{begun: n, heading: heading}
				indent, _, _ = strings.Cut(line, "```")
			}
		case fence:
			if now != nil {
				of, err := now.steps()
				if err != nil {
					return nil, err
				}
				all = append(all, of...)
			}
			fenced, now = false, nil
		case now != nil:
			now.lines = append(now.lines, strings.TrimPrefix(line, indent))
		case !fenced && strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	if fenced {
		return nil, errors.New("its last code block does not end")
	}
	return all, nil
}

// prompt is what a command begins with in a block that also shows what commands print.
const prompt = "$ "

// steps returns the commands of a block.
func (b *block) steps() ([]Step, error) {
	session := slices.ContainsFunc(b.lines, func(l string) bool { return strings.HasPrefix(l, prompt) })
	var all []Step
	more := false // the last step goes on
	for i, line := range b.lines {
		if more {
			last := &all[len(all)-1]
			last.Text += "\n" + line
			more = goesOn(last.Text)
			continue
		}
		typed, isCommand := strings.CutPrefix(line, prompt)
		switch trimmed := strings.TrimSpace(line); {
		case session && !isCommand && len(all) == 0:
			return nil, fmt.Errorf("line %d: what does print %q?", b.begun+1+i, line)
		case session && !isCommand:
			all[len(all)-1].Shown += line + "\n"
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		default:
			typed = strings.TrimSpace(typed)
			all = append(all, Step{Line: b.begun + 1 + i, Heading: b.heading, Text: typed})
			more = goesOn(typed)
		}
	}
	if more {
		return nil, fmt.Errorf("line %d: the command does not end: %s", all[len(all)-1].Line, all[len(all)-1].Text)
	}
	return all, nil
}

// here finds where a command reads on, up to a line with a word of its choice.
var here = regexp.MustCompile(`<<([A-Z]+)$`)

// goesOn reports whether a command needs another line.
func goesOn(text string) bool {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if m := here.FindStringSubmatch(line); m != nil {
			return !slices.Contains(lines[i+1:], m[1])
		}
	}
	last := lines[len(lines)-1]
	return strings.HasSuffix(last, "\\") || strings.HasSuffix(last, "|")
}

// words are those of the first program that a step runs.
func (s Step) words() []string {
	line, _, _ := strings.Cut(strings.ReplaceAll(s.Text, "\\\n", " "), "\n")
	for _, end := range []string{" #", " | ", " |", " > ", " && ", " <<"} {
		line, _, _ = strings.Cut(line, end)
	}
	return strings.Fields(line)
}
