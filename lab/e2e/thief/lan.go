package thief

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/prowl"
)

var lanScenarios = []kit.Scenario{{
	Name: "lan-stranger", Lab: kit.Joining(fourNodes, 0), Run: lanStranger,
	Doc: "A host without a certificate holds 1320 connections from six addresses at the coordinator and at a hub's port " +
		"for Pods, invents tokens, and floods the hub without any. It is refused, counted and named; the line carries nothing " +
		"of it. A node that is cut off stays Ready, memory is bounded, others are served.",
}}

const (
	// strangersAddresses is how many addresses the stranger has. fromEach is how many connections stand from each to each port.
	strangersAddresses, fromEach = 6, 110
	// mostGrowth is how much anonymous memory the stranger may cost a program: 96 MiB.
	mostGrowth = 96 << 20
	// servedWithin is how long other clients may wait for a new connection and its answer meanwhile.
	servedWithin = 3 * time.Second
	// madeUp is how many tokens the stranger makes up. A hub asks the cloud about 20 tokens of an address in a minute.
	madeUp, mostReviews = 400, 60
	// floods is how many clients flood a hub without a token, for floodedFor. mostFlooded is how much its line may carry
	// meanwhile, in bytes: its own heartbeats, those that it forwards, and nothing of the stranger's.
	floods, floodedFor, mostFlooded = 16, 5 * time.Second, 100_000
	// refusedRequests is how many requests a hub has refused, refusedConnections how many connections a coordinator has.
	refusedRequests, refusedConnections = "yurthub_refused_requests_total", "yurt_coordinator_refused_connections_total"
)

func lanStranger(t *kit.T) {
	leader := t.Pool.SettledAway()
	victim := t.Pool.Follower(leader)
	host := t.Pool.Follower(leader, victim)
	at := t.Pool.CoordinatorNode()
	coordinator := net.JoinHostPort(t.Node(at).Address(), strconv.Itoa(edge.PortCoordinator))
	podsAt := func(node string) string {
		return net.JoinHostPort(t.Node(node).Address(), strconv.Itoa(edge.PortHubTLS))
	}
	portsOfOurs(t, at, leader, victim, host)

	t.Say("others who are served: an operator at the coordinator, a Pod at the hub of %s", leader)
	asPod := guest(t, leader)
	asOperator, err := t.Lab.CoordinatorConfig(1, lab.Operator)
	t.Must(err)
	slowest := map[string]time.Duration{}
	served := func() {
		for who, a := range map[string]struct {
			access *rest.Config
			path   string
		}{"operator": {asOperator, "/api/v1/nodes"}, "pod": {asPod, "/api/v1/namespaces/default/services"}} {
			began := time.Now()
			client, err := rest.HTTPClientFor(rest.CopyConfig(a.access)) // with a connection of its own
			t.Must(err)
			_, err = kit.Fetch(t.Ctx, client, strings.TrimSuffix(a.access.Host, "/")+a.path)
			client.CloseIdleConnections()
			t.Must(err)
			slowest[who] = max(slowest[who], time.Since(began))
		}
	}
	t.Eventually(30*time.Second, "the Pod is served", func() error {
		client, err := rest.HTTPClientFor(asPod)
		t.Must(err)
		_, err = kit.Fetch(t.Ctx, client, asPod.Host+"/api/v1/namespaces/default/services")
		return err
	})
	served()
	memory := func() map[string]float64 {
		return map[string]float64{
			"coordinator": t.Node(at).Memory(kit.ProgramCoordinator).Anonymous,
			"hub":         t.Node(leader).Memory(kit.ProgramHub).Anonymous,
		}
	}
	before := memory()

	t.Say("the stranger comes, and %s is cut off", victim)
	crowd := &prowl.Crowd{At: []string{coordinator, podsAt(leader)}, Each: fromEach}
	for i := range strangersAddresses {
		address := t.Node(host).Address()
		address = fmt.Sprintf("%s.%d", address[:strings.LastIndex(address, ".")], 200+i)
		_, err := t.Lab.Output(t.Ctx, host, "ip", "address", "add", address+"/24", "dev", "eth1")
		t.Must(err)
		crowd.From = append(crowd.From, address)
	}
	leave := prowls(t, host, prowl.Order{Crowd: crowd})
	cut := t.Cut(victim)
	t.Node(victim).Delegated(cut)
	reviews := func() float64 { return t.Cloud.Metric("apiserver_request_total", `resource="tokenreviews"`) }
	reviewed := reviews()
	spoofed(t, host, podsAt(leader))
	flooded(t, host, podsAt(leader), leader)
	for end := cut.Add(2*(t.Config.Timing.Grace+t.Config.Timing.Toleration) + 10*time.Second); time.Now().Before(end); {
		served()
		t.Pause(500*time.Millisecond, "until they ask again")
	}
	for who, took := range slowest {
		t.Figure(who+"_slowest_s", took.Seconds())
		if took > servedWithin {
			t.Fail("the %s waited for %s", who, took)
		}
	}
	asked := reviews() - reviewed
	t.Figure("token_reviews", asked)
	if asked > mostReviews {
		t.Fail("the cloud was asked about %v tokens, want %d at most", asked, mostReviews)
	}
	for what, now := range memory() {
		t.Figure(what+"_anonymous_before_mib", before[what]/(1<<20))
		t.Figure(what+"_anonymous_under_attack_mib", now/(1<<20))
		if now-before[what] > mostGrowth {
			t.Fail("the %s has grown by %.0f MiB", what, (now-before[what])/(1<<20))
		}
	}
	report := leave()
	t.Figure("connections_made", float64(report.Opened))
	t.Figure("connections_ended", float64(report.Ended))
	if report.Ended == 0 {
		t.Fail("no connection of the stranger's was ended: %+v", report)
	}
	t.NeverNotReady(t.Start, t.Pool.Nodes()...)
	strangerSeen(t, leader, crowd.From)
	t.Heal(victim)
	t.Node(victim).Direct(time.Now())
}

// portsOfOurs expects that our programs listen at the ports that docs/install.md names, and at no other.
func portsOfOurs(t *kit.T, nodes ...string) {
	for _, node := range nodes {
		address := t.Node(node).Address()
		named := map[string]bool{}
		for _, p := range []int{edge.PortHub, edge.PortHubHealth, edge.PortCoordinatorProbes} {
			named[net.JoinHostPort("127.0.0.1", strconv.Itoa(p))] = true
		}
		for _, p := range []int{edge.PortHubTLS, edge.PortHubRelay, edge.PortCoordinator} {
			named[net.JoinHostPort(address, strconv.Itoa(p))] = true
		}
		out, err := t.Lab.Output(t.Ctx, node, "ss", "--no-header", "--listening", "--numeric", "--processes", "--tcp", "--udp")
		t.Must(err)
		listens := 0
		for line := range strings.Lines(out) {
			if !strings.Contains(line, `"yurthub"`) && !strings.Contains(line, `"yurt-coord`) {
				continue
			}
			listens++
			if fields := strings.Fields(line); fields[0] != "tcp" || !named[fields[4]] {
				t.Fail("on %s, one of our programs listens where no page says so: %s", node, line)
			}
		}
		if listens < 3 {
			t.Fail("on %s, our programs listen at %d ports:\n%s", node, listens, out)
		}
		t.Say("%s: %d ports of our programs, each of them named", node, listens)
	}
}

// guest returns the access of a Pod at a node's hub. It may read Services.
func guest(t *kit.T, node string) *rest.Config {
	t.Bind("guest", "view", kit.Account("default"))
	t.Pool.ServesPods()
	t.Node(node).DeployNeedy() // a node reads only what its Pods mount
	authorities, err := t.Node(node).PodAuthorities()
	t.Must(err)
	hub, err := t.Lab.HubConfig(t.Pool.CoordinatorNode()) // a Pod of another address
	t.Must(err)
	return &rest.Config{
		Host:            "https://" + net.JoinHostPort(t.Node(node).Address(), strconv.Itoa(edge.PortHubTLS)),
		TLSClientConfig: rest.TLSClientConfig{CAData: authorities},
		BearerToken:     t.Token("default"), Dial: hub.Dial, Timeout: 20 * time.Second,
	}
}

// spoofed shows a hub tokens that the stranger has made up, and none at all.
func spoofed(t *kit.T, machine, address string) {
	transport := careless(t, machine)
	transport.DisableKeepAlives, transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = false, 16, 16
	client := &http.Client{Timeout: commandTimeout, Transport: transport}
	defer client.CloseIdleConnections()
	ask := func(token string) (int, error) {
		r, err := http.NewRequestWithContext(t.Ctx, http.MethodGet,
			"https://"+address+"/apis/discovery.k8s.io/v1/endpointslices?limit=1", nil)
		if err != nil {
			return 0, err
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		return answer.StatusCode, err
	}
	var mu sync.Mutex
	codes := map[int]int{}
	var failed error
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range madeUp / 16 {
				var text [32]byte
				_, _ = rand.Read(text[:])
				code, err := ask("eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString(text[:]) + ".x")
				mu.Lock()
				codes[code]++
				if err != nil {
					failed = err
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Must(failed)
	if codes[http.StatusUnauthorized]+codes[http.StatusTooManyRequests] != madeUp || codes[http.StatusUnauthorized] == 0 {
		t.Fail("tokens that are made up are answered with %v", codes)
	}
	code, err := ask("")
	t.Must(err)
	if code != http.StatusUnauthorized && code != http.StatusForbidden {
		t.Fail("nobody is answered with %d", code)
	}
	t.Say("refused: %d tokens that are made up, with %v; without any: %d", madeUp, codes, code)
}

// flooded sends a hub as many requests as it takes for some seconds, and large bodies, without any token. Next to nothing of that
// may reach the hub's line to the cloud.
func flooded(t *kit.T, machine, address, hub string) {
	carried := func() uint64 {
		all, err := t.Lab.Traffic(t.Ctx, false)
		t.Must(err)
		return all[hub].Up + all[hub].Down
	}
	transport := careless(t, machine)
	transport.DisableKeepAlives, transport.MaxConnsPerHost, transport.MaxIdleConnsPerHost = false, floods, floods
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Ctx, floodedFor)
	defer cancel()
	before, sent, wrong := carried(), atomic.Int64{}, atomic.Int64{}
	var all sync.WaitGroup
	for i := range floods {
		all.Go(func() {
			for ctx.Err() == nil {
				method, body := http.MethodGet, io.Reader(http.NoBody)
				if i%4 == 0 {
					method, body = http.MethodPost, io.LimitReader(zeros{}, 20<<20)
				}
				r, err := http.NewRequestWithContext(ctx, method, "https://"+address+"/api/v1/pods", body)
				if err != nil {
					wrong.Add(1)
					return
				}
				answer, err := transport.RoundTrip(r)
				if err != nil { // it does not read what it refuses
					continue
				}
				_ = answer.Body.Close()
				if sent.Add(1); answer.StatusCode != http.StatusUnauthorized {
					wrong.Add(1)
				}
			}
		})
	}
	all.Wait()
	cost := carried() - before
	t.Say("without a token: %d requests in %v, each fourth with 20 MB; the line of %s carried %d bytes",
		sent.Load(), floodedFor, hub, cost)
	t.Figure("flood_requests", float64(sent.Load()))
	t.Figure("flood_wan_bytes", float64(cost))
	if wrong.Load() > 0 || sent.Load() < 100 || cost > mostFlooded {
		t.Fail("%d of %d were not refused with 401; %d bytes, want %d at most", wrong.Load(), sent.Load(), cost, mostFlooded)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// strangerSeen expects that the coordinator and a hub have counted the stranger's attempts. Both logs must name one of his
// addresses, in few lines.
func strangerSeen(t *kit.T, hub string, addresses []string) {
	for _, why := range []string{"no-certificate", "slow"} {
		if t.Pool.Metric(refusedConnections, `reason="`+why+`"`) == 0 {
			t.Fail("the coordinator does not count who is refused as %s", why)
		}
	}
	for name, why := range map[string]string{"yurthub_connections_refused_total": "slow", refusedRequests: "unknown-token"} {
		if t.Node(hub).Metric(name, `reason="`+why+`"`) == 0 {
			t.Fail("the hub of %s does not count in %s who is refused as %s", hub, name, why)
		}
	}
	for _, l := range []struct{ machine, component, says string }{
		{t.Pool.CoordinatorNode(), string(lab.Coordinator), "Refused a connection"},
		{hub, string(lab.Hub), "Closed a connection"},
	} {
		path, err := t.Lab.Log(l.machine, l.component)
		t.Must(err)
		content, err := os.ReadFile(path)
		t.Must(err)
		named, lines := "", 0
		for line := range strings.Lines(string(content)) {
			if !strings.Contains(line, l.says) {
				continue
			}
			lines++
			for _, a := range addresses {
				if strings.Contains(line, a) {
					named = line
				}
			}
		}
		if named == "" || lines > 200 {
			t.Fail("the log of the %s has %d lines about the stranger, and names him: %q", l.component, lines, named)
		}
		t.Say("%s: %d lines, such as %s", l.component, lines, strings.TrimSpace(named))
	}
}
