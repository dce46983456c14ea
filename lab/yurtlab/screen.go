package yurtlab

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"yurtcoordinator/lab"
)

const (
	// maxTicker is how many happenings a screen remembers. minTicker is how many lines it keeps for them at least.
	maxTicker, minTicker = 100, 5
	// otherLines are the lines that show neither nodes nor happenings: headers, a blank one and help.
	otherLines = 3
	helpLine   = "↑ ↓ choose a node   c cut its WAN link   h heal it   k kill it   s start it   q end the lab"
)

// screen is what a user of `yurtlab up` sees: the nodes, one of which is chosen, and what has happened. Its methods do no I/O.
type screen struct {
	status lab.Status
	seen   bool // there is a status
	chosen int
	ticker []happening
	// doing describes the order that is under way; empty means none.
	doing string
	// wide and high are the terminal's size. colour says whether to use it.
	wide, high int
	colour     bool
}

// see takes in the lab's state at a time.
func (s *screen) see(now lab.Status, at time.Time) {
	if s.seen {
		s.tell(happened(s.status, now, at)...)
	}
	s.status, s.seen = now, true
	s.chosen = min(s.chosen, max(0, len(now.Nodes)-1))
}

// tell adds what has happened.
func (s *screen) tell(all ...happening) {
	s.ticker = append(s.ticker, all...)
	s.ticker = s.ticker[max(0, len(s.ticker)-maxTicker):]
}

// order is what the user wants done to a node. The zero value means nothing.
type order struct {
	key  key
	node string
}

// key is a key of a terminal.
type key string

// Keys, as they come from keysIn.
const (
	keyUp    key = "up"
	keyDown  key = "down"
	keyCut   key = "c"
	keyHeal  key = "h"
	keyKill  key = "k"
	keyStart key = "s"
	keyQuit  key = "q"
)

// press takes in a key, and returns the order to carry out. It returns none while another order is under way.
func (s *screen) press(k key) order {
	nodes := len(s.status.Nodes)
	switch k {
	case keyUp:
		s.chosen = max(0, s.chosen-1)
	case keyDown:
		s.chosen = min(max(0, nodes-1), s.chosen+1)
	case keyQuit:
		return order{key: keyQuit}
	case keyCut, keyHeal, keyKill, keyStart:
		if nodes == 0 || s.doing != "" {
			return order{}
		}
		o := order{k, s.status.Nodes[s.chosen].Name}
		s.doing = o.String()
		return o
	}
	return order{}
}

func (o order) String() string {
	return map[key]string{
		keyCut: "cutting the WAN link of ", keyHeal: "healing the links of ", keyKill: "cutting the power of ",
		keyStart: "starting ",
	}[o.key] + o.node
}

// done takes in how an order ended.
func (s *screen) done(o order, err error, at time.Time) {
	s.doing = ""
	if err != nil {
		s.tell(happening{at, bad, fmt.Sprintf("%s: %v", o, err)})
	}
}

// keysIn returns the keys in the bytes that a terminal sent. It leaves out all but the screen's keys.
func keysIn(typed []byte) []key {
	var all []key
	for text := string(typed); text != ""; {
		rest := text
		for sequence, k := range map[string]key{
			"\x1b[A": keyUp, "\x1bOA": keyUp, "\x1b[B": keyDown, "\x1bOB": keyDown, "c": keyCut, "h": keyHeal, "k": keyKill,
			"s": keyStart,
			"q": keyQuit, "\x03": keyQuit, "\x04": keyQuit,
		} {
			if after, ok := strings.CutPrefix(text, sequence); ok {
				all, rest = append(all, k), after
			}
		}
		if rest == text {
			rest = text[1:]
			if strings.HasPrefix(text, "\x1b[") || strings.HasPrefix(text, "\x1bO") { // another key: its letter means nothing
				rest = strings.TrimLeft(text[2:], "0123456789;")
				rest = rest[min(1, len(rest)):]
			}
		}
		text = rest
	}
	return all
}

// draw returns the screen for a terminal in raw mode, from its upper left corner.
func (s *screen) draw() string {
	var out strings.Builder
	out.WriteString("\x1b[H")
	line := func(t tone, marked bool, text string) {
		out.WriteString(s.paint(t, marked, fit(text, s.wide)) + "\x1b[K\r\n")
	}
	var text strings.Builder
	_ = statusTable(&text, s.status) // a strings.Builder takes everything
	rows := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	line(plain, false, "  "+strings.TrimRight(rows[0], " "))
	left := s.high - otherLines - minTicker // what nodes may have
	from := max(0, min(s.chosen-left/2, len(rows)-1-left))
	shown := rows[1:]
	if left > 0 && len(shown) > left {
		shown = shown[from : from+left]
	} else {
		from = 0
	}
	for i, row := range shown {
		sign := "  "
		if from+i == s.chosen {
			sign = "▸ "
		}
		line(toneOf(&s.status.Nodes[from+i]), from+i == s.chosen, sign+strings.TrimRight(row, " "))
	}
	line(plain, false, "")
	room := max(minTicker, s.high-len(shown)-otherLines)
	ticker := s.ticker[max(0, len(s.ticker)-room):]
	for _, h := range ticker {
		line(h.tone, false, h.at.Format(time.TimeOnly)+"  "+h.text)
	}
	for range room - len(ticker) {
		line(plain, false, "")
	}
	foot := helpLine
	if s.doing != "" {
		foot = s.doing + " …"
	}
	out.WriteString(s.paint(plain, false, fit(foot, s.wide)) + "\x1b[J")
	return out.String()
}

// fit cuts a line to the terminal's width.
func fit(text string, wide int) string {
	if wide <= 0 || utf8.RuneCountInString(text) <= wide {
		return text
	}
	return string([]rune(text)[:wide-1]) + "…"
}

func (s *screen) paint(t tone, marked bool, text string) string {
	code := map[tone]string{good: "32", warning: "33", bad: "31"}[t]
	if marked {
		code = strings.TrimPrefix(code+";1", ";")
	}
	if !s.colour || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
