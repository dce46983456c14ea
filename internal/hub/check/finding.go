package check

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Level is how bad a finding is.
type Level uint8

// Levels.
const (
	OK Level = iota
	Warn
	Fail
)

// String returns the name that the table uses.
func (l Level) String() string {
	switch l {
	case OK:
		return "ok"
	case Warn:
		return "warn"
	default:
		return "fail"
	}
}

// MarshalText makes a level its name.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is one thing found.
type Finding struct {
	Level Level `json:"level"`
	// What names the thing checked, Why is the reason for the level, Do is the advice; empty means none.
	What string `json:"what"`
	Why  string `json:"why"`
	Do   string `json:"do,omitempty"`
}

// Failed reports whether any finding is a failure.
func Failed(findings []Finding) bool {
	for _, f := range findings {
		if f.Level == Fail {
			return true
		}
	}
	return false
}

// Table writes a line for each finding.
func Table(w io.Writer, findings []Finding) error {
	width := 0
	for _, f := range findings {
		width = max(width, len(f.What))
	}
	for _, f := range findings {
		do := ""
		if f.Do != "" {
			do = ". To do: " + f.Do
		}
		if _, err := fmt.Fprintf(w, "%-4s  %-*s  %s%s\n", f.Level, width, f.What, f.Why, do); err != nil {
			return err
		}
	}
	return nil
}

// JSON writes {"ok": …, "findings": […]}.
func JSON(w io.Writer, findings []Finding) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		OK       bool      `json:"ok"`
		Findings []Finding `json:"findings"`
	}{!Failed(findings), findings})
}

// maxText bounds how much of a foreign text is shown, in bytes.
const maxText = 240

// line makes one printable line of a text that others wrote.
func line(text string) string {
	text = text[:min(len(text), 4*maxText)]
	text = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, " "))), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
