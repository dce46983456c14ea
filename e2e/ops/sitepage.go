package ops

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/html"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
)

var sitePageScenarios = []kit.Scenario{
	{
		Name: "site-page", Tier: kit.Field, Lab: lab.Config{Pools: 2, Nodes: 3, Timing: lab.Quick}.AsInstalled(), Run: sitePage,
		Doc: "A coordinator's page shows what kubectl shows there: nodes, links, who leads, Pods, Events and WAN bytes. It " +
			"does so with the pool connected, with one link cut and with all links cut, and through kubectl yurt ui as well. " +
			"Nobody but the pool's operators gets it. When nobody looks any more, it costs no memory.",
	},
}

const (
	// pageSoon is how soon the page shows what is the case: it is gathered every 2 s, and a busy machine is slow.
	pageSoon = 30 * time.Second
	// pageRest is how much more anonymous memory than before a coordinator may have whose page nobody looks at any more.
	pageRest = 3 << 20
)

func sitePage(t *kit.T) {
	leader := t.Pool.Settled(30 * time.Second)
	names := t.Pool.Nodes()
	deployTill(t)
	deployCrasher(t, tillNode)
	site := t.Pool.Coordinator(lab.Operator)
	shownAsInTheCloud(t, site, names, 30*time.Second)
	at := t.Pool.CoordinatorNode()
	before := t.Node(at).Memory(kit.ProgramCoordinator).Anonymous

	access, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	client, err := rest.HTTPClientFor(access)
	t.Must(err)
	look := looker(t, client, strings.TrimSuffix(access.Host, "/")+edge.PathPage+"/")
	t.Eventually(pageSoon, "the page shows that all nodes reach the cloud, and who leads", func() error {
		p, err := look("")
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := p.node(n, leader, at, "up"); err != nil {
				return err
			}
		}
		return p.current(true)
	})
	asKubectlShows(t, look)
	refusedToOthers(t, access)

	victim := t.Pool.Follower(leader)
	t.Say("cutting the WAN link of %s, silently", victim)
	t.Cut(victim)
	t.Eventually(pageSoon, "the page shows that, and who helps", func() error {
		p, err := look("")
		if err != nil {
			return err
		}
		link := "down"
		if by := t.Pool.Hubs()[victim].RelayedBy; by != "" {
			link = "relayed"
		}
		return p.node(victim, leader, at, link)
	})

	t.Say("cutting all WAN links of the pool, silently")
	t.Cut("pool/p1")
	cut := time.Now()
	t.Pool.NoticesCut(names...)
	t.Eventually(pageSoon, "the page shows that the site is cut off", func() error {
		p, err := look("")
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := p.node(n, "", at, "down"); err != nil {
				return err
			}
		}
		if !strings.Contains(p.text, "This site is cut off from the cloud") {
			return errors.New(p.text)
		}
		return p.current(false)
	})
	t.Figure("cut_to_shown_s", time.Since(cut).Seconds())
	crash(t, tillNode)
	t.Eventually(pageSoon, "it shows a crash of a Pod, cut off as the pool is", func() error {
		p, err := look("?text=" + crasherName)
		if err == nil && len(p.tables["pods"]) != 1 {
			err = fmt.Errorf("%v", p.tables["pods"])
		}
		if err == nil && strings.HasPrefix(p.tables["pods"][0]["Restarts"], "0") {
			err = fmt.Errorf("%v", p.tables["pods"][0])
		}
		return err
	})
	asKubectlShows(t, look)
	throughKubectl(t)

	// What was gathered goes after half a minute, and its memory as Go's runtime gives memory back.
	t.Figure("anonymous_before_mib", before/(1<<20))
	t.Figure("anonymous_just_after_mib", t.Node(at).Memory(kit.ProgramCoordinator).Anonymous/(1<<20))
	t.Eventually(5*time.Minute, "nobody looks any more, and the page costs no memory", func() error {
		more := t.Node(at).Memory(kit.ProgramCoordinator).Anonymous - before
		if more > pageRest {
			t.Pause(2*time.Second, "memory is given back")
			return fmt.Errorf("%.1f MiB more than before", more/(1<<20))
		}
		return nil
	})
	t.Figure("anonymous_after_mib", t.Node(at).Memory(kit.ProgramCoordinator).Anonymous/(1<<20))

	t.Heal("pool/p1")
	leader = t.Pool.Settled(60 * time.Second)
	t.Eventually(2*pageSoon, "the page shows that all is as before", func() error {
		p, err := look("")
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := p.node(n, leader, at, "up"); err != nil {
				return err
			}
		}
		return p.current(true)
	})
}

// sitePageRead is the page as it was read: all its text, and its tables by the part that they stand in. A row has its cells by
// the names of the columns.
type sitePageRead struct {
	text   string
	tables map[string][]map[string]string
}

// looker returns what reads the page at an address.
func looker(t *kit.T, client *http.Client, address string) func(query string) (sitePageRead, error) {
	return func(query string) (sitePageRead, error) {
		r, err := http.NewRequestWithContext(t.Ctx, http.MethodGet, address+query, nil)
		t.Must(err)
		response, err := client.Do(r)
		if err != nil {
			return sitePageRead{}, err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", response.Status, body)
		}
		if err != nil {
			return sitePageRead{}, err
		}
		return readSitePage(string(body))
	}
}

func readSitePage(body string) (sitePageRead, error) {
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		return sitePageRead{}, err
	}
	p := sitePageRead{text: textIn(root), tables: map[string][]map[string]string{}}
	part, row := "", map[string]string(nil)
	for n := range root.Descendants() {
		if name := attribute(n, "data-live"); name != "" {
			part = name
		}
		switch n.Data {
		case "tr":
			row = nil
		case "td":
			if row == nil {
				row = map[string]string{}
				p.tables[part] = append(p.tables[part], row)
			}
			row[attribute(n, "data-label")] = textIn(n)
		}
	}
	return p, nil
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// textIn returns the words in an element.
func textIn(root *html.Node) string {
	var words []string
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			words = append(words, strings.Fields(n.Data)...)
		}
	}
	return strings.Join(words, " ")
}

// node reports what the page shows wrong of a node.
func (p sitePageRead) node(name, leader, coordinator, link string) error {
	words := []string{name}
	if name == leader {
		words = append(words, "leader")
	}
	if name == coordinator {
		words = append(words, "coordinator")
	}
	for _, row := range p.tables["nodes"] {
		if cell := row["Node"]; cell != name && !strings.HasPrefix(cell, name+" ") {
			continue
		}
		said := strings.Fields(row["Node"]) // the last is its address
		if _, err := netip.ParseAddr(said[len(said)-1]); err != nil || !slices.Equal(said[:len(said)-1], words) {
			return fmt.Errorf("it is shown as %q, want %q and its address", row["Node"], words)
		}
		switch {
		case !strings.HasPrefix(row["Link to the cloud"], link+" "):
			return fmt.Errorf("%s: its link is %q, want %s", name, row["Link to the cloud"], link)
		case row["To cloud"] == "–" || row["From cloud"] == "–":
			return fmt.Errorf("%s: its bytes are not shown: %v", name, row)
		}
		return nil
	}
	return fmt.Errorf("no row of %s: %v", name, p.tables["nodes"])
}

// current reports what the page shows wrong of what the pool shares.
func (p sitePageRead) current(is bool) error {
	want := map[bool]string{true: "yes", false: "no"}[is]
	for _, row := range p.tables["shared"] {
		if row["Resource"] == "endpointslices.discovery.k8s.io" {
			if row["Complete"] != "yes" || row["Current"] != want {
				return fmt.Errorf("%v, want complete, and current: %s", row, want)
			}
			return nil
		}
	}
	return fmt.Errorf("no EndpointSlices: %v", p.tables["shared"])
}

// asKubectlShows compares Pods, Nodes and Events with what kubectl prints at the coordinator.
func asKubectlShows(t *kit.T, look func(string) (sitePageRead, error)) {
	t.Eventually(pageSoon, "the page shows the Pods, Nodes and Events that kubectl does", func() error {
		p, err := look("")
		if err != nil {
			return err
		}
		var printed []string
		out, err := kubectlSays(t, kubectlRun{place: place{via: atSite},
			args: strings.Fields("get pods -A -o wide --no-headers")})
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for line := range strings.Lines(out) {
			f := strings.Fields(strings.ReplaceAll(line, " ago)", "_ago)"))
			f = slices.DeleteFunc(f, func(w string) bool { return strings.HasPrefix(w, "(") })
			if len(f) < 8 {
				return fmt.Errorf("kubectl prints %q", line)
			}
			printed = append(printed, fmt.Sprintf("%s/ %s %s %s %s", f[0], f[1], f[3], f[2], f[7]))
		}
		var shown []string
		for _, row := range p.tables["pods"] {
			shown = append(shown, fmt.Sprintf("%s %s %s %s", row["Pod"], row["Status"], row["Ready"], row["Node"]))
		}
		slices.Sort(printed)
		slices.Sort(shown)
		if !slices.Equal(printed, shown) || len(shown) == 0 {
			return fmt.Errorf("the page has\n%s\nand kubectl\n%s", strings.Join(shown, "\n"), strings.Join(printed, "\n"))
		}
		return newestEvents(t, p)
	})
}

// newestEvents expects the newest Events of the API on the page.
func newestEvents(t *kit.T, p sitePageRead) error {
	out, err := kubectlSays(t, kubectlRun{place: place{via: atSite}, args: strings.Fields("get events -A -o json")})
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	var list corev1.EventList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return errors.New("there are no Events")
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return b.LastTimestamp.Compare(a.LastTimestamp.Time) })
	for _, e := range list.Items[:min(10, len(list.Items))] {
		is := func(row map[string]string) bool {
			return strings.HasPrefix(row["What"], e.Reason) && strings.HasSuffix(row["About"], e.InvolvedObject.Name) &&
				row["Says"] == strings.Join(strings.Fields(e.Message), " ")
		}
		if !slices.ContainsFunc(p.tables["events"], is) {
			return fmt.Errorf("the page has no %s of %s: %q", e.Reason, e.InvolvedObject.Name, e.Message)
		}
	}
	return nil
}

// refusedToOthers asks for the page as others than the pool's operators, and as these for something else than to look.
func refusedToOthers(t *kit.T, access *rest.Config) {
	other, err := t.Lab.CoordinatorConfig(2, lab.Operator)
	t.Must(err)
	foreign := rest.CopyConfig(access)
	foreign.CertData, foreign.KeyData = other.CertData, other.KeyData
	named := func(name string) *rest.Config {
		c, err := t.Lab.CoordinatorConfig(1, name)
		t.Must(err)
		return c
	}
	for _, c := range []struct {
		who    string
		access *rest.Config
		method string
		code   int // 0: the handshake ends
	}{
		{"the operator of p2", foreign, http.MethodGet, 0},
		{"a stranger", named(unknownCertificate), http.MethodGet, 0},
		{"nobody", rest.AnonymousClientConfig(access), http.MethodGet, 0},
		{"a node of the pool", named("p1-n1"), http.MethodGet, http.StatusForbidden},
		{"a node of p2", named("p2-n1"), http.MethodGet, http.StatusForbidden},
		{"an administrator of the cloud", named("admin"), http.MethodGet, http.StatusForbidden},
		{"an operator who writes", access, http.MethodPost, http.StatusForbidden},
	} {
		client, err := rest.HTTPClientFor(c.access)
		t.Must(err)
		r, err := http.NewRequestWithContext(t.Ctx, c.method, strings.TrimSuffix(access.Host, "/")+edge.PathPage+"/", nil)
		t.Must(err)
		response, err := client.Do(r)
		code := 0
		if err == nil {
			code = response.StatusCode
			response.Body.Close()
		} else if !kit.ShutOut(err.Error()) {
			t.Fail("%s: %v", c.who, err)
		}
		if code != c.code {
			t.Fail("%s is answered %d, want %d", c.who, code, c.code)
		}
		t.Say("refused: %s", c.who)
	}
}

// throughKubectl looks through kubectl yurt ui, with the site cut off.
func throughKubectl(t *kit.T) {
	cmd, err := t.Lab.Kubectl(t.Ctx, atSite, strings.Fields("yurt ui p1"))
	t.Must(err)
	ui := begin(t, cmd, false)
	defer func() { _ = ui.end() }()
	says(t, ui, "kubectl yurt ui", edge.PathPage+"/\n")
	link := ""
	for _, word := range strings.Fields(ui.printed()) {
		if strings.HasPrefix(word, "http://127.0.0.1:") {
			link = word
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: ofLab(t)}}
	p, err := looker(t, client, link)("")
	t.Must(err)
	if !strings.Contains(p.text, "This site is cut off from the cloud") || len(p.tables["nodes"]) != t.Config.Nodes {
		t.Fail("through kubectl yurt ui: %s", p.text)
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(link, "http://"), "/")
	for _, without := range []string{"http://" + host + edge.PathPage + "/", strings.Replace(link, edge.PathPage,
		"/api/v1/pods", 1)} {
		if p, err := looker(t, client, without)(""); err == nil {
			t.Fail("%s: %s", without, p.text)
		}
	}
	if dir := os.Getenv(shotsTo); dir != "" {
		photographed(t, link, dir)
	}
}
