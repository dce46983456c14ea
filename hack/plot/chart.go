package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// point is x and y.
type point [2]float64

// chart is lines on axes. It has no state of its own: the same chart gives the same bytes.
type chart struct {
	title, note string
	x, y        axis
	lines       []line
}

// axis says what is along it.
type axis struct {
	label string
	// from and to are its ends.
	from, to float64
	// log makes it logarithmic; both ends are above zero then.
	log bool
	// ticks are where it is labelled; nil means round numbers.
	ticks []float64
	// show writes a value; nil means its digits.
	show func(float64) string
}

// line joins points.
type line struct {
	name   string
	points []point
	// steps goes level to each point's x, and up there, and marks no points.
	steps bool
	// dashed is for what is no measurement of ours: a bound, or what would be without us.
	dashed bool
}

// Where the axes are in the picture.
const (
	width, height       = 760, 440
	left, right, bottom = 78, 22, 76
)

// top is where the axes begin, below the title and the names of the lines.
func (c chart) top() float64 { return float64(46 + 18*len(c.lines)) }

// at returns where a value is between the axis's ends, from 0 to 1.
func (a axis) at(v float64) float64 {
	if a.log {
		return math.Log(v/a.from) / math.Log(a.to/a.from)
	}
	return (v - a.from) / (a.to - a.from)
}

// marks returns where the axis is labelled: the ticks, or up to seven round numbers; on a logarithmic axis the powers of ten.
func (a axis) marks() []float64 {
	if a.ticks != nil {
		return a.ticks
	}
	var all []float64
	if a.log {
		for e := math.Ceil(math.Log10(a.from) - 1e-9); e <= math.Log10(a.to)+1e-9; e++ {
			all = append(all, math.Pow(10, e))
		}
		return all
	}
	step := math.Pow(10, math.Floor(math.Log10(a.to-a.from)))
	for _, part := range []float64{0.1, 0.2, 0.5, 1} {
		if (a.to-a.from)/(step*part) <= 7 {
			step *= part
			break
		}
	}
	for i := math.Ceil(a.from/step-1e-9) + 0; i*step <= a.to+step*1e-9; i++ {
		all = append(all, i*step)
	}
	return all
}

func (a axis) text(v float64) string {
	if a.show != nil {
		return a.show(v)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}

// style is readable on a light and a dark page: the picture has a ground of its own.
const style = `<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #24292f; }
.ground { fill: #ffffff; } .title { font-size: 15px; font-weight: 600; } .note { font-size: 12px; fill: #57606a; }
.grid { stroke: #d8dee4; } .axis { stroke: #57606a; } .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
.dashed { stroke-dasharray: 6 5; }
.s0 { stroke: #0969da; } .s1 { stroke: #bc4c00; } .s2 { stroke: #1a7f37; }
.f0 { fill: #0969da; } .f1 { fill: #bc4c00; } .f2 { fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .ground { fill: #0d1117; } .note { fill: #9198a1; } .grid { stroke: #30363d; } .axis { stroke: #9198a1; }
.s0 { stroke: #58a6ff; } .s1 { stroke: #f0883e; } .s2 { stroke: #3fb950; }
.f0 { fill: #58a6ff; } .f1 { fill: #f0883e; } .f2 { fill: #3fb950; }
}
</style>
`

// svg draws the chart.
func (c chart) svg() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
		width, height, html.EscapeString(c.title))
	b.WriteString(style)
	fmt.Fprintf(&b, "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", width, height)
	c.text(&b, "title", left, 26, "start", c.title)
	for _, v := range c.x.marks() {
		x := c.px(v)
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%s %sV%d\"/>\n", num(x), num(c.top()), height-bottom)
		c.text(&b, "", x, height-bottom+18, "middle", c.x.text(v))
	}
	for _, v := range c.y.marks() {
		y := c.py(v)
		fmt.Fprintf(&b, "<path class=\"grid\" d=\"M%d %sH%d\"/>\n", left, num(y), width-right)
		c.text(&b, "", left-8, y+4, "end", c.y.text(v))
	}
	fmt.Fprintf(&b, "<path class=\"axis\" fill=\"none\" d=\"M%d %sV%dH%d\"/>\n", left, num(c.top()), height-bottom, width-right)
	c.text(&b, "", (left+width-right)/2, height-bottom+38, "middle", c.x.label)
	fmt.Fprintf(&b, "<text transform=\"translate(18 %s) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
		num((c.top()+height-bottom)/2), html.EscapeString(c.y.label))
	for i, l := range c.lines {
		c.line(&b, i, l)
	}
	for i, l := range c.lines {
		y := float64(48 + 18*i)
		fmt.Fprintf(&b, "<path class=\"line s%d%s\" d=\"M%d %sh26\"/>\n", i%3, dashes(l), left, num(y-4))
		c.text(&b, "", left+34, y, "start", l.name)
	}
	c.text(&b, "note", left, height-12, "start", c.note)
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (c chart) px(v float64) float64 { return left + c.x.at(v)*(width-left-right) }
func (c chart) py(v float64) float64 { return height - bottom - c.y.at(v)*(height-bottom-c.top()) }

// line draws a line, and its points where they are not steps.
func (c chart) line(b *bytes.Buffer, i int, l line) {
	var d strings.Builder
	for j, p := range l.points {
		x, y := num(c.px(p[0])), num(c.py(p[1]))
		switch {
		case j == 0:
			d.WriteString("M" + x + " " + y)
		case l.steps:
			d.WriteString("H" + x + "V" + y)
		default:
			d.WriteString("L" + x + " " + y)
		}
	}
	fmt.Fprintf(b, "<path class=\"line s%d%s\" d=\"%s\"/>\n", i%3, dashes(l), d.String())
	if l.steps || l.dashed {
		return
	}
	for _, p := range l.points {
		fmt.Fprintf(b, "<circle class=\"f%d\" cx=\"%s\" cy=\"%s\" r=\"3.5\"/>\n", i%3, num(c.px(p[0])), num(c.py(p[1])))
	}
}

func dashes(l line) string {
	if l.dashed {
		return " dashed"
	}
	return ""
}

func (c chart) text(b *bytes.Buffer, class string, x, y float64, anchor, text string) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(b, "<text%s x=\"%s\" y=\"%s\" text-anchor=\"%s\">%s</text>\n", class, num(x), num(y), anchor,
		html.EscapeString(text))
}

// num writes a coordinate to a tenth: no machine's floating point shows.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
