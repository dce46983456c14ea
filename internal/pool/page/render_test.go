package page

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"yurtcoordinator/internal/edge"
)

// shapeOf returns the elements of HTML with their attributes' names, without any text, as a browser reads it.
func shapeOf(t *testing.T, content []byte) string {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var walk func(*html.Node, int)
	walk = func(n *html.Node, depth int) {
		if n.Type == html.ElementNode || n.Type == html.CommentNode {
			fmt.Fprintf(&out, "%*s%s", depth, "", n.Data)
			for _, a := range n.Attr {
				fmt.Fprintf(&out, " %s", a.Key)
			}
			out.WriteByte('\n')
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c, depth+1)
		}
	}
	walk(root, 0)
	return out.String()
}

// textOf returns what a browser shows.
func textOf(t *testing.T, content []byte) string {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			out.WriteString(n.Data + " ")
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// filled are facts in which every text that others write is this one.
func filled(said string) Facts {
	f := poolOf(edge.NodeName(said))
	f.Host, f.Leader = edge.NodeName(said), edge.NodeName(said)
	f.Nodes[0].Pool, f.Nodes[0].Version, f.Nodes[0].Address = edge.PoolName(said), said, said
	f.Leases[0].RelayedBy, f.Leases[0].Hub, f.Version = edge.NodeName(said), said, said
	f.Pods = []Pod{{said, said, "1/1", "Not" + said, said, said, said, edge.NodeName(said)}}
	f.Events = []Event{{true, said, said, said, said, 2, noon}}
	f.Shared = []edge.Shared{{Resource: said, Complete: true, Warns: said}}
	f.Missing = []string{said}
	return f
}

var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</td></table><h1>All is well</h1>`,
	`<!--`, `-->`, `]]>`, `&lt;b&gt;`, `javascript:alert(1)`, "a\x00b", "\u202egnp.exe", "</title><script>", "</style>",
	"`${x}`", "\r\n\t", "\xff\xfe",
}

// TestNamesAreTextAlone: whatever nodes, Pods and Events say, a browser reads the same elements with the same attributes.
func TestNamesAreTextAlone(t *testing.T) {
	for name, as := range map[string]func(*Site, Asked) ([]byte, error){"the page": document, "its parts": fragment} {
		render := func(said string) []byte {
			content, err := as(See(filled(said)), Asked{Namespace: said, Node: edge.NodeName(said), Page: 1})
			if err != nil {
				t.Fatal(err)
			}
			return content
		}
		want := shapeOf(t, render("plain"))
		for _, said := range hostile {
			if got := shapeOf(t, render(said)); got != want {
				t.Errorf("%s, with %q:\n%s\nwant\n%s", name, said, got, want)
			}
		}
	}
}

func FuzzNamesAreTextAlone(f *testing.F) {
	for _, said := range hostile {
		f.Add(said)
	}
	plain, err := document(See(filled("plain")), Asked{Namespace: "plain", Node: "plain", Page: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, said string) {
		if said == "" {
			return // nothing is shown as a dash
		}
		got, err := document(See(filled(said)), Asked{Namespace: said, Node: edge.NodeName(said), Page: 1})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := shapeOf(t, got), shapeOf(t, plain); got != want {
			t.Errorf("%q:\n%s\nwant\n%s", said, got, want)
		}
	})
}

func TestThePageShows(t *testing.T) {
	f := poolOf("n1", "n2")
	f.Leases[1].Delegated, f.Leases[1].Kubelet = true, edge.KubeletMissing
	f.Version, f.Leases[0].Hub, f.Leases[1].Hub = "v0.3.0", "v0.3.0", "v0.2.1"
	f.Leases[0].Line = &edge.Line{Answer: 80 * time.Millisecond, Spread: 9 * time.Millisecond, Lost: 2, Metered: true}
	f.Pods = []Pod{{"shop", "till", "0/1", "CrashLoopBackOff", "3 (5s ago)", "2m", "10.0.0.4", "n2"}}
	f.Events = []Event{{true, "BackOff", "Back-off restarting", "Pod shop/till", "kubelet on n2", 4, noon.Add(-90 * time.Second)}}
	f.Shared = []edge.Shared{
		{Resource: "services", Complete: true, Warns: "services are complete here but not current: nobody brings what changes"},
		{Resource: "endpoints", Complete: true, Current: true},
	}
	content, err := document(See(f), Asked{Page: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := textOf(t, content)
	for _, want := range []string{
		"Pool p1", "coordinator v0.3.0 on n1, up 120m", "v0.2.1 older than the coordinator", "1 Pod does not run as it should.",
		"n2 has no link to the cloud; n1 reports for it.",
		"Nodes heard 2 of 2", "Reach the cloud 1 of 2", "Leader n1", "To the cloud 2 MiB", "From the cloud 6 MiB",
		"n1 leader coordinator 10.78.1.1 up reaches the cloud itself answers in 80 ms ± 9, 2 lost, metered 3s ago Ready 0 " +
			"1 MiB 3 MiB v1.36.3 v0.3.0",
		"n2 10.78.1.1 down own link down; n1 reports for it 3s ago Ready 1 1 with trouble 1 MiB 3 MiB v1.36.3 no logs, " +
			"no exec: its certificate is missing",
		"1 Pod, those with trouble first", "1 Event of the last hour, the newest first",
		"shop/ till CrashLoopBackOff 0/1 3 (5s ago) n2 2m 10.0.0.4",
		"90s ago BackOff 4 times Pod shop/till Back-off restarting kubelet on n2",
		"services yes no nobody brings what changes", "endpoints yes yes as in the cloud",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not show %q:\n%s", want, got)
		}
	}
}

// A node that is silent is not shown as if it were there.
func TestSilentNodes(t *testing.T) {
	f := poolOf("n1", "n2", "n3")
	f.Heard[1].Silent, f.Heard = true, f.Heard[:2]
	f.Leases[1].Renewed = noon.Add(-3 * time.Minute)
	f.Pods = []Pod{{Namespace: "shop", Name: "till", Ready: "1/1", Status: "Running", Node: "n2"}}
	content, err := fragment(See(f), Asked{Page: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := textOf(t, content)
	for _, want := range []string{
		"n2 10.78.1.1 silent not heard here any more: dead, or cut off from this coordinator 3m ago Ready when last heard 1",
		"n3 10.78.1.1 unheard not heard here since this coordinator started never", "Running when its node was last heard",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not show %q:\n%s", want, got)
		}
	}
}

// However large the pool, an answer is small.
func TestManyPods(t *testing.T) {
	f := poolOf("n1")
	for i := range 3000 {
		f.Pods = append(f.Pods, Pod{"shop", fmt.Sprintf("till-%04d", i), "1/1", "Running", "0", "5d", "10.0.0.4", "n1"})
	}
	f.Pods[2999].Status = "Error"
	s := See(f)
	shown := func(a Asked) (string, int) {
		content, err := fragment(s, a)
		if err != nil {
			t.Fatal(err)
		}
		return textOf(t, content), len(content)
	}
	first, size := shown(Asked{Page: 1})
	if !strings.Contains(first, "1 to 100 of 3000 Pods") || !strings.Contains(first, "page 1 of 30") || size > 64<<10 ||
		strings.Index(first, "till-2999") > strings.Index(first, "till-0000") {
		t.Errorf("%d bytes: %s", size, first)
	}
	if last, _ := shown(Asked{Page: 99}); !strings.Contains(last, "2901 to 3000 of 3000 Pods") || !strings.Contains(last,
		"till-2998") {
		t.Errorf("a page beyond the last: %s", last)
	}
	if some, _ := shown(Asked{Page: 2, Text: "TILL-29"}); !strings.Contains(some, "100 Pods, those") {
		t.Errorf("those that are asked for: %s", some)
	}
	if some, _ := shown(Asked{Page: 1, Text: "err"}); !strings.Contains(some, "1 Pod, those") {
		t.Errorf("those of a status: %s", some)
	}
	if none, _ := shown(Asked{Page: 1, Node: "n2"}); !strings.Contains(none, "No Pods here") {
		t.Errorf("those of another node: %s", none)
	}
}

func TestAskedBy(t *testing.T) {
	for query, want := range map[string]Asked{
		"": {Page: 1},
		"namespace=shop&node=n1&text=till&page=3": {"shop", "n1", "till", 3, false},
		"page=0":            {Page: 1},
		"page=-7":           {Page: 1},
		"page=many&other=1": {Page: 1},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := askedBy(q)
		if got != want {
			t.Errorf("%q: %+v, want %+v", query, got, want)
		}
		again, err := url.ParseQuery(strings.TrimPrefix(got.query(got.Page), "?"))
		if err != nil || askedBy(again) != want {
			t.Errorf("%+v comes back as %+v, %v", want, askedBy(again), err)
		}
	}
}

// Whoever filters sees what is chosen, also what there is none of.
func TestTheFormKeepsWhatWasAsked(t *testing.T) {
	content, err := document(See(poolOf("n1")), Asked{Namespace: "gone", Node: "n1", Text: `a"b`, Page: 1})
	if err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var chosen []string
	for n := range root.Descendants() {
		has := func(key string) (string, bool) {
			i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == key })
			if i < 0 {
				return "", false
			}
			return n.Attr[i].Val, true
		}
		_, is := has("selected")
		if value, ok := has("value"); ok && (is || n.Data == "input") {
			chosen = append(chosen, value)
		}
	}
	if !slices.Equal(chosen, []string{"gone", "n1", `a"b`}) {
		t.Errorf("%q", chosen)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 10 << 20: "10 MiB", 3 << 40: "3 TiB", 1 << 60: "1048576 TiB",
	} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
