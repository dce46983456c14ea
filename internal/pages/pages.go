// Package pages reads the commands that the documentation shows, so that tests can hold them to the programs: a page must not
// show a command or a flag that no longer exists.
package pages

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Command is a line of a code block.
type Command struct {
	// Page is relative to the repository's root, and Line counts from 1.
	Page string
	Line int
	// Words are those of the command, without a comment, what it is piped into, or where its output goes.
	Words []string
}

// diary is left out: it tells of what was run then.
const diary = "benchmarks-log.md"

// Commands returns the commands in the code blocks of the README, CONTRIBUTING and docs that begin with these words. A line may
// begin with a prompt, and a backslash at its end continues it. root is the repository's directory.
func Commands(root string, begin ...string) ([]Command, error) {
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	files = append(files, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"))
	var all []Command
	for _, file := range files {
		if filepath.Base(file) == diary {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		page, err := filepath.Rel(root, file)
		if err != nil {
			return nil, err
		}
		for _, c := range commands(string(text)) {
			if len(c.Words) >= len(begin) && slices.Equal(c.Words[:len(begin)], begin) {
				c.Page = filepath.ToSlash(page)
				all = append(all, c)
			}
		}
	}
	return all, nil
}

// commands returns all lines of a page's code blocks, as commands.
func commands(text string) []Command {
	var all []Command
	inside, n, begun := false, 0, 0
	var words []string
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inside, words = !inside, nil
			continue
		}
		if !inside || line == "" {
			continue
		}
		if len(words) == 0 {
			line, begun = strings.TrimPrefix(line, "$ "), n
		}
		line, continued := strings.CutSuffix(line, "\\")
		words = append(words, strings.Fields(plain(line))...)
		if continued {
			continue
		}
		if len(words) > 0 {
			all = append(all, Command{Line: begun, Words: words})
		}
		words = nil
	}
	return all
}

// plain cuts off what follows a command.
func plain(line string) string {
	for _, end := range []string{" #", " | ", " |", " > ", " && ", " <<"} {
		line, _, _ = strings.Cut(line, end)
	}
	if strings.HasPrefix(line, "#") {
		return ""
	}
	return line
}
