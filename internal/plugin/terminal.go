package plugin

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Colours of a terminal that the plugin itself writes.
const yellow, red, reset = "\x1b[33m", "\x1b[31m", "\x1b[0m"

// Visible returns a writer of text for w in which nothing moves a terminal's cursor or hides what is written. Much of what the
// plugin shows was written by nodes. Control characters are written as Go escapes (\x1b); new lines, tabs and the plugin's own
// colours stay. Characters that change the direction of text count as control characters. Each Write must end between two
// characters.
func Visible(w io.Writer) io.Writer { return visible{w} }

type visible struct{ to io.Writer }

// Write implements io.Writer.
func (v visible) Write(text []byte) (int, error) {
	if _, err := io.WriteString(v.to, escaped(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

func escaped(text string) string {
	var out strings.Builder
	for rest := text; rest != ""; {
		if colour := ownColour(rest); colour != "" {
			out.WriteString(colour)
			rest = rest[len(colour):]
			continue
		}
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, rest[0])
		case r == '\n' || r == '\t' || !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r):
			out.WriteString(rest[:size])
		case r < utf8.RuneSelf:
			fmt.Fprintf(&out, `\x%02x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		rest = rest[size:]
	}
	return out.String()
}

// ownColour returns the plugin's own colour with which a text begins, or nothing.
func ownColour(text string) string {
	for _, colour := range []string{yellow, red, reset} {
		if strings.HasPrefix(text, colour) {
			return colour
		}
	}
	return ""
}
