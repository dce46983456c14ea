package yurtlab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/machine"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// aLab has three nodes that are fine; p1-n1 leads.
func aLab(change func(n []lab.NodeStatus)) lab.Status {
	var s lab.Status
	for i := range 3 {
		role := "follower"
		if i == 0 {
			role = "leader"
		}
		s.Nodes = append(s.Nodes, lab.NodeStatus{
			Name: fmt.Sprintf("p1-n%d", i+1), Pool: "p1", Power: true, WAN: "none", LAN: "none", Ready: "True",
			HeartbeatBy: "itself",
			Hub:         &lab.HubStatus{Role: role, Cloud: "up"},
			Processes: []machine.Process{{Name: "hub", PID: 7, State: machine.Running}, {Name: "kubelet", PID: 8,
				State: machine.Running}},
		})
	}
	if change != nil {
		change(s.Nodes)
	}
	return s
}

func TestHappened(t *testing.T) {
	for name, c := range map[string]struct {
		before, now func(n []lab.NodeStatus)
		want        []string
	}{
		"nothing": {nil, func(n []lab.NodeStatus) { n[0].HeartbeatAge, n[1].Traffic.Up = 9, 1000 }, nil},
		"a cut":   {nil, func(n []lab.NodeStatus) { n[2].WAN = "drop" }, []string{"warning p1-n3 has its WAN link cut (drop)"}},
		"what comes of it": {
			func(n []lab.NodeStatus) { n[2].WAN = "drop" },
			func(n []lab.NodeStatus) {
				n[2].WAN, n[2].Hub.Cloud, n[2].HeartbeatBy, n[2].Taint = "drop", "down", "p1-n1", "NoSchedule"
			},
			[]string{
				"warning p1-n3 reports the cloud down", "warning p1-n3 is delegated: p1-n1 forwards its heartbeats",
				"warning p1-n3 gets no new Pods",
			},
		},
		"it is healed": {
			func(n []lab.NodeStatus) {
				n[2].WAN, n[2].LAN, n[2].Hub.Cloud = "drop", "oneway", "down"
				n[2].HeartbeatBy, n[2].Taint = "p1-n1", "PreferNoSchedule"
			}, nil,
			[]string{
				"good p1-n3 has its WAN link again", "good p1-n3 has its LAN link again", "good p1-n3 reports the cloud up",
				"good p1-n3 sends its heartbeats itself", "good p1-n3 gets new Pods again",
			},
		},
		"a neighbour helps one that was delegated": {
			func(n []lab.NodeStatus) { n[2].Taint = "NoSchedule" }, func(n []lab.NodeStatus) { n[2].Taint = "PreferNoSchedule" },
			[]string{"warning p1-n3 gets only new Pods that fit nowhere else"},
		},
		"a neighbour helps": {nil, func(n []lab.NodeStatus) { n[1].Hub.RelayedBy = "p1-n3" },
			[]string{"good p1-n2 reaches the cloud over the link of p1-n3"}},
		"a power cut": {
			nil, func(n []lab.NodeStatus) { n[0].Power, n[0].Processes, n[0].Hub = false, nil, nil },
			[]string{"bad p1-n1 has lost its power"},
		},
		"another leads then, and the node is given up": {
			func(n []lab.NodeStatus) { n[0].Power, n[0].Processes, n[0].Hub = false, nil, nil },
			func(n []lab.NodeStatus) {
				n[0].Power, n[0].Processes, n[0].Hub, n[0].Ready = false, nil, nil, "Unknown"
				n[1].Hub.Role = "leader"
			},
			[]string{"bad p1-n1 is NotReady", "good p1-n2 leads its pool"},
		},
		"power again": {
			func(n []lab.NodeStatus) {
				n[0].Power, n[0].Processes, n[0].Hub, n[0].Ready = false, nil, nil, "Unknown"
			}, nil,
			[]string{"good p1-n1 is powered on", "good p1-n1 is Ready"},
		},
		"programs": {
			func(n []lab.NodeStatus) { n[2].Processes[0].State = machine.Paused },
			func(n []lab.NodeStatus) {
				n[1].Processes[1] = machine.Process{Name: "kubelet", PID: 8, State: machine.Exited, End: "signal: killed"}
				n[1].Processes = append(n[1].Processes, machine.Process{Name: "coredns", PID: 9, State: machine.Running})
				n[0].Processes[0].State = machine.Paused
			},
			[]string{"warning p1-n1 hub is paused", "bad p1-n2 kubelet has ended: signal: killed", "good p1-n3 hub runs again"},
		},
		"a leader steps down": {nil, func(n []lab.NodeStatus) { n[0].Hub.Role = "pending" },
			[]string{"warning p1-n1 has no coordinator"}},
	} {
		var got []string
		for _, h := range happened(aLab(c.before), aLab(c.now), noon) {
			if !h.at.Equal(noon) {
				t.Errorf("%s: at %s", name, h.at)
			}
			got = append(got, [...]string{"plain", "good", "warning", "bad"}[h.tone]+" "+h.text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
	if got := happened(lab.Status{}, aLab(nil), noon); got != nil {
		t.Errorf("nodes that were not there before: %v", got)
	}
}

func TestKeys(t *testing.T) {
	for typed, want := range map[string][]key{
		"":                       nil,
		"chksq":                  {keyCut, keyHeal, keyKill, keyStart, keyQuit},
		"\x1b[A\x1b[B":           {keyUp, keyDown},
		"\x1bOA\x1bOBc":          {keyUp, keyDown, keyCut},
		"\x1b[C\x1b[1;5D\x1b[3~": nil, // right, Ctrl-left, delete: no letter of theirs is an order
		"\x1b[15~k":              {keyKill},
		"\x03":                   {keyQuit},
		"xyzCHK \r\n\x1b":        nil,
		"\x1b[":                  nil,
		"é\x00\xff":              nil,
	} {
		if got := keysIn([]byte(typed)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", typed, got, want)
		}
	}
}

func TestPress(t *testing.T) {
	s := &screen{}
	for _, k := range []key{keyUp, keyDown, keyCut, keyKill} {
		if o := s.press(k); o != (order{}) {
			t.Errorf("%s orders %+v without any node", k, o)
		}
	}
	s.see(aLab(nil), noon)
	for _, k := range []key{keyUp, keyDown, keyDown, keyDown, keyDown} {
		s.press(k)
	}
	o := s.press(keyCut)
	if o != (order{keyCut, "p1-n3"}) || s.doing != "cutting the WAN link of p1-n3" {
		t.Errorf("%+v, %q", o, s.doing)
	}
	if again := s.press(keyKill); again != (order{}) {
		t.Errorf("%+v while another is under way", again)
	}
	s.done(o, errors.New("no such link"), noon)
	if s.doing != "" || len(s.ticker) != 1 || s.ticker[0].text != "cutting the WAN link of p1-n3: no such link" {
		t.Errorf("%q, %+v", s.doing, s.ticker)
	}
	s.press(keyUp)
	if o := s.press(keyStart); o != (order{keyStart, "p1-n2"}) {
		t.Errorf("%+v", o)
	}
	if o := s.press(keyQuit); o.key != keyQuit {
		t.Errorf("%+v: whoever wants to end it can, whatever is under way", o)
	}
	one := aLab(nil)
	one.Nodes = one.Nodes[:1]
	s.done(order{}, nil, noon)
	s.see(one, noon)
	if o := s.press(keyHeal); o.node != "p1-n1" {
		t.Errorf("%+v, of a node that is gone", o)
	}
}

// drawn returns the screen's lines without what moves the cursor.
func drawn(s *screen) []string {
	text := strings.NewReplacer("\x1b[H", "", "\x1b[K", "", "\x1b[J", "").Replace(s.draw())
	return strings.Split(text, "\r\n")
}

func TestDraw(t *testing.T) {
	s := &screen{wide: 200, high: 16}
	s.see(aLab(nil), noon)
	s.see(aLab(func(n []lab.NodeStatus) { n[2].WAN = "drop" }), noon.Add(5*time.Second))
	s.press(keyDown)
	got := drawn(s)
	if len(got) != s.high || !strings.HasPrefix(got[0], "  NODE ") || !strings.HasPrefix(got[1], "  p1-n1") ||
		!strings.HasPrefix(got[2], "▸ p1-n2") || got[4] != "" || got[5] != "12:00:05  p1-n3 has its WAN link cut (drop)" ||
		got[len(got)-1] != helpLine {
		t.Errorf("%d lines:\n%s", len(got), strings.Join(got, "\n"))
	}
	if strings.Contains(strings.Join(got, ""), "\x1b") {
		t.Error("coloured, though nobody asked for it")
	}
	s.colour, s.wide = true, 40
	got = drawn(s)
	if !strings.HasPrefix(got[3], "\x1b[33m  p1-n3") || !strings.HasPrefix(got[2], "\x1b[1m▸ p1-n2") ||
		!strings.HasPrefix(got[5], "\x1b[33m12:00:05") || strings.Contains(got[1], "\x1b") {
		t.Errorf("\n%q", got)
	}
	for _, l := range got {
		plain := strings.NewReplacer("\x1b[33m", "", "\x1b[1m", "", "\x1b[0m", "").Replace(l)
		if utf8.RuneCountInString(plain) > s.wide {
			t.Errorf("%q is longer than the terminal is wide", plain)
		}
	}
}

// However small the terminal, what is chosen is in sight, and never more is drawn than fits.
func TestDrawFits(t *testing.T) {
	var many lab.Status
	for i := range 40 {
		n := aLab(nil).Nodes[1]
		n.Name = fmt.Sprintf("p1-n%02d", i+1)
		many.Nodes = append(many.Nodes, n)
	}
	s := &screen{}
	s.see(many, noon)
	for i := range 3 * maxTicker {
		s.tell(happening{noon, plain, fmt.Sprint("line ", i)})
	}
	if len(s.ticker) != maxTicker {
		t.Errorf("%d lines are remembered", len(s.ticker))
	}
	for _, high := range []int{12, 24, 44, 100} {
		for chosen := range many.Nodes {
			s.high, s.wide, s.chosen = high, 80, chosen
			got := drawn(s)
			marked := slices.IndexFunc(got, func(l string) bool { return strings.HasPrefix(l, "▸ p1-n") })
			if len(got) > high || marked < 0 || !strings.HasPrefix(got[marked], fmt.Sprintf("▸ p1-n%02d", chosen+1)) ||
				!slices.Contains(got, "12:00:00  line 299") {
				t.Fatalf("%d lines in %d, chosen %d:\n%s", len(got), high, chosen, strings.Join(got, "\n"))
			}
		}
	}
}

func TestTonesOfNodes(t *testing.T) {
	for want, change := range map[tone]func(n *lab.NodeStatus){
		plain: func(*lab.NodeStatus) {}, warning: func(n *lab.NodeStatus) { n.HeartbeatBy = "p1-n1" },
		bad: func(n *lab.NodeStatus) { n.Power = false },
	} {
		n := aLab(nil).Nodes[1]
		if change(&n); toneOf(&n) != want {
			t.Errorf("%+v is %d, want %d", n, toneOf(&n), want)
		}
	}
	tainted, notReady := aLab(nil).Nodes[1], aLab(nil).Nodes[1]
	tainted.Taint, notReady.Ready, notReady.WAN = "NoSchedule", "Unknown", "drop"
	if toneOf(&tainted) != warning || toneOf(&notReady) != bad {
		t.Errorf("%d, %d", toneOf(&tainted), toneOf(&notReady))
	}
}
