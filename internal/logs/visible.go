package logs

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns a writer of text for w that lets nothing move a terminal's cursor or hide text. Much of what our programs show
// was written by nodes, Pods and servers. Control characters become Go escapes (\x1b), and so do characters that change the
// direction of text. New lines, tabs and the sequences in own, such as the program's colours, stay. Each Write must end between
// two characters.
func Visible(w io.Writer, own ...string) io.Writer { return visible{w, own} }

type visible struct {
	to  io.Writer
	own []string
}

// Write implements io.Writer.
func (v visible) Write(text []byte) (int, error) {
	if _, err := io.WriteString(v.to, v.escaped(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (v visible) escaped(text string) string {
	var out strings.Builder
	for rest := text; rest != ""; {
		begins := func(own string) bool { return strings.HasPrefix(rest, own) }
		if i := slices.IndexFunc(v.own, begins); i >= 0 {
			out.WriteString(v.own[i])
			rest = rest[len(v.own[i]):]
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
