package main

import (
	"errors"
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode/utf8"
)

// What the picture measures, in pixels and seconds. Text is set with textLength, so that columns meet whatever the font.
const (
	columnWidth, lineHeight = 8.0, 19.0
	margin, header          = 18.0, 40.0
	mostColumns             = 100 // as wide as a README is shown: one to one

	typing  = 0.045 // a character of a command
	reading = 0.55  // a line of its output, after which the next command begins
	pause   = 0.9   // between entries
	final   = 5.0   // the last screen stays
)

// row is a line on the screen, from when until when.
type row struct {
	line       int
	text       string
	kind       string // the class of its style
	from, till float64
}

// picture draws a session as an SVG that plays by itself, again and again. Whoever wants no movement sees the last screen.
func picture(s session) ([]byte, error) {
	rows, lines, length := layOut(s)
	if len(rows) == 0 {
		return nil, errors.New("there is nothing to draw")
	}
	width, height := mostColumns*columnWidth+2*margin, header+float64(lines)*lineHeight+margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">
<style>
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d7dde5; white-space: pre; }
.command { fill: #ffffff; font-weight: 600; } .note { fill: #7fb6ff; } .later { fill: #8b949e; }
.title { fill: #8b949e; } .good { fill: #5fd38d; } .bad { fill: #ff7b72; } .mark { fill: #f2c14e; }
.r { opacity: 0; }
`, width, height, html.EscapeString(s.Title))
	percent := func(at float64) float64 { return at / length * 100 }
	for i, r := range rows {
		// The step from invisible to visible is a thousandth of a percent wide.
		from, till := percent(r.from), percent(r.till)
		end := fmt.Sprintf("%.3f%%,100%%{opacity:1}", from)
		if r.till < length {
			end = fmt.Sprintf("%.3f%%,%.3f%%{opacity:1}%.3f%%,100%%{opacity:0}", from, till-0.001, till)
		}
		fmt.Fprintf(&b, "@keyframes k%d{0%%,%.3f%%{opacity:0}%s}.r%d{animation:k%d %.1fs infinite}\n",
			i, max(0, from-0.001), end, i, i, length)
	}
	b.WriteString("@media (prefers-reduced-motion: reduce){.r{animation:none}.last{opacity:1}}\n</style>\n")
	// The frame is what sets it off from a page that is as dark.
	fmt.Fprintf(&b, `<rect x="0.5" y="0.5" width="%.0f" height="%.0f" rx="8" fill="#0d1117" stroke="#3d444d"/>
<circle cx="20" cy="18" r="5" fill="#ff5f56"/>
<circle cx="38" cy="18" r="5" fill="#ffbd2e"/>
<circle cx="56" cy="18" r="5" fill="#27c93f"/>
<text class="title" x="%.0f" y="23" text-anchor="middle">%s</text>
`, width-1, height-1, width/2, html.EscapeString(s.Title))
	for i, r := range rows {
		last := ""
		if r.till >= length {
			last = " last"
		}
		fmt.Fprintf(&b, `<g class="r r%d%s">`, i, last)
		drawLine(&b, r)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String()), nil
}

// layOut gives every line its place and its time. It returns the lines of the fullest screen, and how long all takes.
func layOut(s session) (rows []row, most int, length float64) {
	at, line, screen := 0.6, 0, 0
	emptied := func() {
		for i := screen; i < len(rows); i++ {
			rows[i].till = at
		}
		screen, line = len(rows), 0
	}
	put := func(kind, text string) {
		for _, part := range wrap(text) {
			rows = append(rows, row{line: line, text: part, kind: kind, from: at, till: -1})
			line++
		}
		most = max(most, line)
	}
	for i, e := range s.Entries {
		if e.Clear {
			at += final - pause
			emptied()
		} else if i > 0 && e.Note != "" {
			line++ // room above a note
		}
		if e.Waited >= 1 {
			put("later", fmt.Sprintf("… %.0f s later", e.Waited))
			at += pause
		}
		if e.Note != "" {
			put("note", "# "+e.Note)
			at += pause
		}
		if e.Command == "" {
			continue
		}
		put("command", "$ "+e.Command)
		at += typing*float64(utf8.RuneCountInString(e.Command)) + 0.3
		if e.Output != "" {
			for text := range strings.SplitSeq(e.Output, "\n") {
				put("output", strings.TrimRight(text, " "))
			}
			at += reading * float64(strings.Count(e.Output, "\n")+1)
		}
		at += pause
	}
	length = at + final
	for i := range rows {
		if rows[i].till < 0 {
			rows[i].till = length
		}
	}
	return rows, most, length
}

// wrap breaks a line that is too long, at a blank if it has one.
func wrap(text string) []string {
	var parts []string
	for utf8.RuneCountInString(text) > mostColumns {
		cut := len(string([]rune(text)[:mostColumns]))
		if blank := strings.LastIndex(text[:cut], " "); blank > 0 {
			cut = blank
		}
		parts = append(parts, text[:cut])
		text = strings.TrimLeft(text[cut:], " ")
	}
	return append(parts, text)
}

// words are what stands between two blanks or more.
var words = regexp.MustCompile(`\S+(?: \S+)*`)

// paint are the words of an output that are coloured.
var paint = regexp.MustCompile(`\b(?:NotReady|Ready|Delegated|Silent|Connected|Running|Terminating)\b`)

func colour(word string) string {
	switch word {
	case "Ready", "Running", "Connected":
		return "good"
	case "NotReady", "Silent", "Terminating":
		return "bad"
	default:
		return "mark"
	}
}

// drawLine writes a line as pieces of text, each at its column.
func drawLine(b *strings.Builder, r row) {
	y := header + float64(r.line+1)*lineHeight
	piece := func(column int, class, text string) {
		for _, found := range words.FindAllStringIndex(text, -1) { // a browser may not keep several blanks
			word := text[found[0]:found[1]]
			fmt.Fprintf(b, `<text class="%s" x="%.0f" y="%.0f" textLength="%.0f">%s</text>`, class,
				margin+float64(column+utf8.RuneCountInString(text[:found[0]]))*columnWidth, y,
				float64(utf8.RuneCountInString(word))*columnWidth, html.EscapeString(word))
		}
	}
	if r.kind != "output" {
		piece(0, r.kind, r.text)
		return
	}
	done := 0
	column := func(at int) int { return utf8.RuneCountInString(r.text[:at]) }
	for _, found := range paint.FindAllStringIndex(r.text, -1) {
		piece(column(done), "output", r.text[done:found[0]])
		piece(column(found[0]), colour(r.text[found[0]:found[1]]), r.text[found[0]:found[1]])
		done = found[1]
	}
	piece(column(done), "output", r.text[done:])
}
