package plugin

import (
	"io"

	"yurtcoordinator/internal/logs"
)

// Colours of a terminal that the plugin itself writes.
const yellow, red, reset = "\x1b[33m", "\x1b[31m", "\x1b[0m"

// Visible returns a writer for a terminal, in which what nodes have written shows and does nothing; the plugin's colours stay.
func Visible(w io.Writer) io.Writer { return logs.Visible(w, yellow, red, reset) }
