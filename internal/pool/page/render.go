package page

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/html"
	"k8s.io/apimachinery/pkg/util/duration"

	"yurtcoordinator/internal/edge"
)

// maxRows is how many Pods a page shows at a time.
const maxRows = 100

// Asked is which Pods somebody wants to see.
type Asked struct {
	Namespace string
	Node      edge.NodeName
	// Text is a part of a Pod's name or status.
	Text string
	// Page counts from 1.
	Page int
	// Warned means that the viewer's browser has warned: it does not know the pool's authority.
	Warned bool
}

// The parameters of a query.
const (
	byNamespace, byNode, byText, byPage = "namespace", "node", "text", "page"
)

// askedBy reads a query. What makes no sense is left out.
func askedBy(q url.Values) Asked {
	n, err := strconv.Atoi(q.Get(byPage))
	if err != nil || n < 1 {
		n = 1
	}
	return Asked{
		Namespace: short(q.Get(byNamespace)), Node: edge.NodeName(short(q.Get(byNode))), Text: short(q.Get(byText)), Page: n,
	}
}

// query returns the URL query of one page of what a viewer has asked for.
func (a Asked) query(page int) string {
	q := url.Values{}
	for key, value := range map[string]string{byNamespace: a.Namespace, byNode: string(a.Node), byText: a.Text} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if page > 1 {
		q.Set(byPage, strconv.Itoa(page))
	}
	return "?" + q.Encode()
}

// of returns those of the Pods that are asked for.
func (a Asked) of(pods []Pod) []Pod {
	text := strings.ToLower(a.Text)
	var found []Pod
	for _, p := range pods {
		if (a.Namespace == "" || p.Namespace == a.Namespace) && (a.Node == "" || p.Node == a.Node) &&
			(strings.Contains(strings.ToLower(p.Name), text) || strings.Contains(strings.ToLower(p.Status), text)) {
			found = append(found, p)
		}
	}
	return found
}

// document returns the whole page.
func document(s *Site, a Asked) ([]byte, error) {
	doc := &html.Node{Type: html.DocumentNode}
	doc.AppendChild(&html.Node{Type: html.DoctypeNode, Data: "html"})
	el("html", attr{"lang", "en"},
		el("head",
			el("meta", attr{"charset", "utf-8"}),
			el("meta", attr{"name", "viewport"}, attr{"content", "width=device-width, initial-scale=1"}),
			el("meta", attr{"name", "color-scheme"}, attr{"content", "light dark"}),
			el("title", text(title(s))),
			el("link", attr{"rel", "icon"}, attr{"href", "icon.svg"}),
			el("link", attr{"rel", "stylesheet"}, attr{"href", "page.css"}),
			el("script", attr{"src", "page.js"}, attr{"defer", ""}),
			// Whoever has no script sees a new page now and then.
			el("noscript", el("meta", attr{"http-equiv", "refresh"}, attr{"content", "10"})),
		),
		el("body",
			el("header",
				el("div.brand", el("h1", text(title(s))), el("p", text(subtitle(s)))),
				el("p.status", attr{"id", "status"}, attr{"role", "status"}, text("as of "+s.At.UTC().Format("15:04:05")+" UTC")),
			),
			el("main",
				parts(warning(a)),
				live("now", now(s)...),
				section("Nodes", live("nodes", nodes(s))),
				section("Pods", filter(s, a), live("pods", pods(s, a)...)),
				section("Events", live("events", events(s)...)),
				section("From the cloud, for all nodes", live("shared", shared(s)...)),
			),
			el("footer", el("p",
				text("This page only shows. Change things in the cloud; logs and commands: kubectl, at this coordinator."))),
		),
	).into(doc)
	return bytesOf(doc)
}

// warning tells a viewer the risk of going on although the browser warns.
func warning(a Asked) []part {
	if !a.Warned {
		return nil
	}
	return []part{el("details", el("summary", text("Your browser has warned of this page")), el("p", text(
		"It does not know the pool's authority, so it can't tell this page from another one that somebody on this network "+
			"serves. Look at the certificate: its SHA-256 fingerprint is printed beside the link. If it is another, close the "+
			"page, and have the link withdrawn. Whoever serves that page has the link, sees what it shows, and shows you what "+
			"he likes.")))}
}

// fragment returns the parts of the page that change.
func fragment(s *Site, a Asked) ([]byte, error) {
	root := &html.Node{Type: html.DocumentNode}
	parts{
		live("now", now(s)...), live("nodes", nodes(s)), live("pods", pods(s, a)...), live("events", events(s)...),
		live("shared", shared(s)...),
	}.into(root)
	return bytesOf(root)
}

func bytesOf(n *html.Node) ([]byte, error) {
	var out bytes.Buffer
	err := html.Render(&out, n)
	return out.Bytes(), err
}

func title(s *Site) string { return "Pool " + cmp.Or(string(s.Pool), "without a name") }

func subtitle(s *Site) string {
	said := "coordinator"
	if s.Version != "" {
		said += " " + s.Version
	}
	return fmt.Sprintf("%s%s, up %s", said, on(s.Host), duration.HumanDuration(s.At.Sub(s.Began)))
}

func on(n edge.NodeName) string {
	if n == "" {
		return ""
	}
	return " on " + string(n)
}

// live is a part of the page that the script replaces.
func live(name string, of ...part) node {
	return el("div", attr{"data-live", name}, parts(of))
}

func section(name string, of ...part) node { return el("section", el("h2", text(name)), parts(of)) }

// now says how the pool is.
func now(s *Site) []part {
	lines := el("ul.headlines")
	for _, h := range s.Headlines {
		el("li", attr{"class", string(h.Tone)}, el("span", text(h.Text))).into(lines.Node)
	}
	tiles := el("dl.tiles")
	for _, t := range []struct {
		name, value, more string
		tone              Tone
	}{
		{"Nodes heard", fmt.Sprintf("%d of %d", s.Heard, len(s.Nodes)), "", toned(s.Heard == len(s.Nodes), Bad)},
		{"Reach the cloud", fmt.Sprintf("%d of %d", s.Links, len(s.Nodes)), "", toned(s.Links == len(s.Nodes), Warn)},
		{"Leader", cmp.Or(string(s.Leader), "nobody"), "", toned(s.Leader != "", Warn)},
		{"Pods", strconv.Itoa(len(s.Pods)), trouble(s.Troubled), toned(s.Troubled == 0, Bad)},
		{"To the cloud", size(s.Sent), "since the hubs' start", ""},
		{"From the cloud", size(s.Received), "since the hubs' start", ""},
	} {
		value := el("dd", attr{"class", string(t.tone)}, text(t.value))
		if t.more != "" {
			el("small", text(t.more)).into(value.Node)
		}
		el("div", el("dt", text(t.name)), value).into(tiles.Node)
	}
	return []part{lines, tiles}
}

func toned(good bool, otherwise Tone) Tone {
	if good {
		return Good
	}
	return otherwise
}

func trouble(n int) string {
	if n == 0 {
		return "all as they should be"
	}
	return fmt.Sprintf("%d with trouble", n)
}

// column is a column of a table. Narrow screens show its name beside each cell.
type column struct{ name, class string }

func tableOf(columns []column, rows []node) node {
	head := el("tr")
	for _, c := range columns {
		el("th", attr{"scope", "col"}, attr{"class", c.class}, text(c.name)).into(head.Node)
	}
	body := el("tbody")
	for _, r := range rows {
		r.into(body.Node)
	}
	return el("table", el("thead", head), body)
}

// rowOf is a row of a table with these columns.
func rowOf(columns []column, tone Tone, cells ...part) node {
	row := el("tr", attr{"class", string(tone)})
	for i, c := range cells {
		el("td", attr{"class", columns[i].class}, attr{"data-label", columns[i].name}, parts{c}).into(row.Node)
	}
	return row
}

var nodeColumns = []column{
	{"Node", "name"}, {"Link to the cloud", "wide"}, {"Heard", "word"}, {"Ready", "word"}, {"Pods", "num"},
	{"To cloud", "num"}, {"From cloud", "num"}, {"kubelet", ""}, {"Hub", ""},
}

func nodes(s *Site) node {
	var rows []node
	for i := range s.Nodes {
		n := &s.Nodes[i]
		name := el("span.names", text(n.Name))
		if n.Leads {
			el("b.badge", text("leader")).into(name.Node)
		}
		if n.Hosts {
			el("b.badge", text("coordinator")).into(name.Node)
		}
		if n.Address != "" {
			el("small", text(n.Address)).into(name.Node)
		}
		ready := map[string]string{"True": "Ready", "False": "NotReady", "Unknown": "Unknown"}[n.Ready]
		if n.Unschedulable {
			ready += ", no new Pods"
		}
		readiness := parts{text(cmp.Or(ready, "–"))}
		if n.Link == LinkSilent || n.Link == LinkUnheard {
			readiness = append(readiness, el("small", text("when last heard")))
		}
		podCount := parts{el("a", attr{"href", Asked{Node: n.Name}.query(1) + "#pods"}, text(strconv.Itoa(n.Pods)))}
		if n.Troubled > 0 {
			podCount = append(podCount, el("small.bad", text(trouble(n.Troubled))))
		}
		sent, received := "–", "–"
		if n.Traffic != nil {
			sent, received = size(n.Traffic.Sent), size(n.Traffic.Received)
		}
		rows = append(rows, rowOf(nodeColumns, n.Tone(),
			name,
			parts{el("span.state", attr{"data-link", string(n.Link)}, text(n.Link)), el("small", text(n.Says)), line(n)},
			heard(n, s.At), readiness, podCount, text(sent), text(received), kubelet(n), hub(n)))
	}
	if len(rows) == 0 {
		return el("p.none", text("No node has been heard here yet."))
	}
	return tableOf(nodeColumns, rows)
}

func heard(n *Node, now time.Time) part {
	switch {
	case n.Link == LinkSilent && !n.Renewed.IsZero():
		return when(n.Renewed, now)
	case n.Link == LinkSilent:
		return text(fmt.Sprintf("not for %s", n.Quiet))
	case n.Hears:
		return text(fmt.Sprintf("%s ago", duration.HumanDuration(n.Quiet)))
	}
	return text("never")
}

// line says how good a node's own link is, while it is up; nothing if nobody measures it.
func line(n *Node) part {
	if n.Line == nil || n.Link != LinkUp { // else it is what the line was
		return nil
	}
	said := fmt.Sprintf("answers in %d ms ± %d", n.Line.Answer.Milliseconds(), n.Line.Spread.Milliseconds())
	if n.Line.Lost > 0 {
		said += fmt.Sprintf(", %d lost", n.Line.Lost)
	}
	if n.Line.Metered {
		said += ", metered"
	}
	return el("small", text(said))
}

// kubelet says which version it has, and whether logs and commands reach it.
func kubelet(n *Node) part {
	said := parts{text(cmp.Or(n.Version, "–"))}
	if n.Kubelet != "" && !n.Kubelet.Verifiable() {
		said = append(said, el("small.bad", text("no logs, no exec: its certificate is "+string(n.Kubelet))))
	}
	return said
}

// hub says of which release it is, and marks one that differs from the coordinator's.
func hub(n *Node) part {
	said := parts{text(cmp.Or(n.Hub, "–"))}
	if n.Apart != Same {
		said = append(said, el("small", attr{"class", string(n.Apart.tone())}, text(n.Apart)))
	}
	return said
}

// filter is the form that chooses Pods.
func filter(s *Site, a Asked) node {
	namespaces, names := map[string]bool{}, map[string]bool{}
	for i := range s.Pods {
		namespaces[s.Pods[i].Namespace] = true
	}
	for i := range s.Nodes {
		names[string(s.Nodes[i].Name)] = true
	}
	form := el("form", attr{"id", "pods"}, attr{"method", "get"}, attr{"action", "#pods"},
		choice(byNamespace, "Namespace", a.Namespace, namespaces), choice(byNode, "Node", string(a.Node), names),
		el("label", text("Name or status "), el("input", attr{"type", "search"}, attr{"name", byText}, attr{"value", a.Text})),
		el("button", attr{"type", "submit"}, text("Show")))
	if a.query(1) != "?" {
		el("a", attr{"href", "?#pods"}, text("show all")).into(form.Node)
	}
	return form
}

func choice(name, label, chosen string, of map[string]bool) node {
	selection := el("select", attr{"name", name}, el("option", attr{"value", ""}, text("all")))
	if chosen != "" {
		of[chosen] = true
	}
	all := make([]string, 0, len(of))
	for value := range of {
		all = append(all, value)
	}
	slices.Sort(all)
	for _, value := range all {
		option := el("option", attr{"value", value}, text(value))
		if value == chosen {
			attr{"selected", ""}.into(option.Node)
		}
		option.into(selection.Node)
	}
	return el("label", text(label+" "), selection)
}

var podColumns = []column{
	{"Pod", "name"}, {"Status", "wide"}, {"Ready", "word"}, {"Restarts", ""}, {"Node", ""}, {"Age", "word"}, {"Address", "word"},
}

func pods(s *Site, a Asked) []part {
	silent := map[edge.NodeName]bool{}
	for i := range s.Nodes {
		silent[s.Nodes[i].Name] = s.Nodes[i].Link == LinkSilent || s.Nodes[i].Link == LinkUnheard
	}
	all := a.of(s.Pods)
	last := max(1, (len(all)+maxRows-1)/maxRows)
	page := min(a.Page, last)
	shown := all[min(len(all), (page-1)*maxRows):min(len(all), page*maxRows)]
	if len(shown) == 0 {
		return []part{el("p.none", text("No Pods here."))}
	}
	rows := make([]node, 0, len(shown))
	for i := range shown {
		p := &shown[i]
		status := parts{el("span.state", text(p.Status))}
		if silent[p.Node] {
			status = append(status, el("small", text("when its node was last heard")))
		}
		rows = append(rows, rowOf(podColumns, p.Tone(),
			parts{el("small", text(p.Namespace+"/")), el("span", text(p.Name))}, status, text(p.Ready), text(p.Restarts),
			text(p.Node), text(p.Age), text(cmp.Or(p.IP, "–"))))
	}
	count := edge.Count(len(all), "Pod", "Pods")
	if last > 1 {
		count = fmt.Sprintf("%d to %d of %s", (page-1)*maxRows+1, (page-1)*maxRows+len(shown), count)
	}
	said := []part{el("p.count", text(count+", those with trouble first")), tableOf(podColumns, rows)}
	if last > 1 {
		said = append(said, el("nav", attr{"aria-label", "Pages of Pods"}, turn(a, "previous", page-1, page > 1), text(" "),
			text(fmt.Sprintf("page %d of %d", page, last)), text(" "), turn(a, "next", page+1, page < last)))
	}
	return said
}

func turn(a Asked, what string, to int, there bool) part {
	if !there {
		return el("span.none", text(what))
	}
	return el("a", attr{"href", a.query(to) + "#pods"}, attr{"rel", what}, text(what))
}

var eventColumns = []column{
	{"When", "word"}, {"What", "what"}, {"About", "name"}, {"Says", "wide text"}, {"From", "from"},
}

func events(s *Site) []part {
	if len(s.Events) == 0 {
		return []part{el("p.none", text("No Events in the last hour."))}
	}
	rows := make([]node, 0, len(s.Events))
	for i := range s.Events {
		e := &s.Events[i]
		what := parts{el("span.state", text(e.Reason))}
		if e.Count > 1 {
			what = append(what, el("small", text(fmt.Sprintf("%d times", e.Count))))
		}
		tone := Tone("")
		if e.Warning {
			tone = Warn
		}
		rows = append(rows, rowOf(eventColumns, tone, when(e.At, s.At), what, text(e.About), text(e.Message), text(e.From)))
	}
	count := edge.Count(len(rows), "Event", "Events") + " of the last hour, the newest first"
	if len(rows) == maxEvents { // there may be more
		count = fmt.Sprintf("the newest %d Events of the last hour", maxEvents)
	}
	return []part{el("p.count", text(count)), tableOf(eventColumns, rows)}
}

var sharedColumns = []column{
	{"Resource", "name"}, {"Complete", "word"}, {"Current", "word"}, {"So", "wide text"},
}

func shared(s *Site) []part {
	rows := make([]node, 0, len(s.Shared))
	for _, r := range s.Shared {
		tone := Good
		switch {
		case !r.Complete:
			tone = Bad
		case !r.Current:
			tone = Warn
		}
		yes := map[bool]string{true: "yes", false: "no"}
		rows = append(rows, rowOf(sharedColumns, tone, text(r.Resource), el("span.state", text(yes[r.Complete])),
			el("span.state", text(yes[r.Current])), text(why(r))))
	}
	if len(rows) == 0 {
		return []part{el("p.none", text("Nothing is shared yet."))}
	}
	return []part{tableOf(sharedColumns, rows)}
}

// why says what the two words before it mean, without saying them again.
func why(r edge.Shared) string {
	if r.Warns == "" {
		return "as in the cloud"
	}
	if _, said, found := strings.Cut(r.Warns, ": "); found {
		return said
	}
	return r.Warns
}

// when is a time, as how long ago it was.
func when(at, now time.Time) node {
	said := duration.HumanDuration(max(0, now.Sub(at))) + " ago"
	if at.IsZero() {
		return el("span", text("–"))
	}
	return el("time", attr{"datetime", at.UTC().Format(time.RFC3339)}, text(said))
}

// size formats a number of bytes.
func size(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v := float64(n)
	for len(units) > 1 && v >= 1024 {
		v, units = v/1024, units[1:]
	}
	if v < 10 && v != float64(int(v)) {
		return fmt.Sprintf("%.1f %s", v, units[0])
	}
	return fmt.Sprintf("%.0f %s", v, units[0])
}
