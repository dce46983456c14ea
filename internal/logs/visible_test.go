package logs

import (
	"strings"
	"testing"
)

// TestVisible: whatever somebody else has written, a person sees all of it, where it belongs.
func TestVisible(t *testing.T) {
	const red, reset = "\x1b[31m", "\x1b[0m"
	for text, want := range map[string]string{
		"plain, über, 日本, 🙂\n\ttext":                "plain, über, 日本, 🙂\n\ttext",
		"\x1b]0;title\x07\x1b[2J\x1b[1A\rConnected": `\x1b]0;title\x07\x1b[2J\x1b[1A\x0dConnected`,
		"\u009b31m, \u0085":                         `\u009b31m, \u0085`,
		"a \u202eevil\u202c \u2066b\u2069":          `a \u202eevil\u202c \u2066b\u2069`,
		"no text: \xff\x9b":                         `no text: \xff\x9b`,
		red + "ours" + reset + "\x1b[33;5mtheirs":   red + "ours" + reset + `\x1b[33;5mtheirs`,
		"\x7f\x00": `\x7f\x00`,
	} {
		var out strings.Builder
		if n, err := Visible(&out, red, reset).Write([]byte(text)); n != len(text) || err != nil || out.String() != want {
			t.Errorf("%q: %q (%d, %v), want %q", text, out.String(), n, err, want)
		}
	}
}
