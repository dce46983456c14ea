package state

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/stream"
)

func pod(name string, ready bool) edge.PodPresence {
	return edge.PodPresence{
		PodName: edge.PodName{Namespace: "ns", Name: name}, UID: "uid-" + name, Node: "n1", Revision: 7, Ready: ready,
		IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
	}
}

func key(name string) stream.Key { return stream.Key{Namespace: "ns", Name: name} }

// text is a line as text.
func text(p edge.State) string {
	var all []string
	if p.Whole {
		all = append(all, "whole")
	}
	for _, each := range p.Pods {
		all = append(all, fmt.Sprint(each.Name, " ", each.Ready))
	}
	for _, each := range p.Gone {
		all = append(all, "-"+each.Name)
	}
	for _, each := range p.Nodes {
		all = append(all, fmt.Sprint(each.Name, " silent ", each.Silent, " of ", each.GraceSeconds))
	}
	return strings.Join(all, ", ")
}

func TestLedger(t *testing.T) {
	l := newLedger()
	told := uint64(0)
	expect := func(want string) {
		t.Helper()
		said, number := l.since(told)
		if told = number; text(said) != want {
			t.Errorf("it says %q, want %q", text(said), want)
		}
	}
	news := func(what string, got, want bool) {
		t.Helper()
		if got != want {
			t.Errorf("%s: news %t, want %t", what, got, want)
		}
	}
	expect("whole")
	news("a Pod", l.shown(pod("b", true)), true)
	news("another", l.shown(pod("a", true)), true)
	news("the same", l.shown(pod("a", true)), false)
	expect("a true, b true")
	news("nobody", l.hidden(key("c")), false)
	news("not ready", l.shown(pod("a", false)), true)
	expect("a false")
	news("gone", l.hidden(key("b")), true)
	news("another state", l.shown(edge.PodPresence{PodName: edge.PodName{Namespace: "ns", Name: "a"}, Said: true}), true)
	expect("a false, -b")
	expect("")
	if said, _ := l.since(0); text(said) != "whole, a false" {
		t.Errorf("everything is %q", text(said))
	}

	news("a node", l.renewed("n1", 40*time.Second), true)
	news("again", l.renewed("n1", 40*time.Second), false)
	news("one without a duration", l.renewed("n2", 0), true)
	news("one for ever", l.renewed("n3", 1000*time.Hour), true)
	expect("n1 silent false of 50, n2 silent false of 50, n3 silent false of 750")
	for range 49 {
		news("a second", l.tick(), false)
	}
	l.renewed("n2", 0)
	news("50 seconds", l.tick(), true)
	expect("n1 silent true of 50")
	news("another", l.tick(), false)
	news("back", l.renewed("n1", 8*time.Second), true)
	expect("n1 silent false of 10")
	l.forget(func(n edge.NodeName) bool { return n == "n2" })
	for range 11 {
		l.tick()
	}
	expect("") // n1 has left
}

// TestLedgerIsBounded: who has been told less than is remembered is told everything.
func TestLedgerIsBounded(t *testing.T) {
	l := newLedger()
	l.shown(pod("stays", true))
	_, early := l.since(0)
	for i := range maxGone + 10 {
		name := fmt.Sprint("p", i)
		l.shown(pod(name, true))
		l.hidden(key(name))
	}
	if said, _ := l.since(early); text(said) != "whole, stays true" || len(l.gone) != maxGone {
		t.Errorf("%d are remembered; it says %q", len(l.gone), text(said))
	}
	if said, _ := l.since(l.number - 2); said.Whole || len(said.Gone) != 1 {
		t.Errorf("of the last Pod it says %q", text(said))
	}
}

func as(name string, groups ...string) *user.DefaultInfo {
	return &user.DefaultInfo{Name: name, Groups: groups}
}

func aNode() *user.DefaultInfo { return as("system:node:n2", user.NodesGroup) }

// asked serves a request of a caller.
func asked(p *Server, caller *user.DefaultInfo) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), caller)))
	})
}

func TestOnlyNodesHear(t *testing.T) {
	p := New(ends.Clock{})
	_ = p.Close() // a stream that were begun would end
	for _, c := range []struct {
		name   string
		caller *user.DefaultInfo
		method string
		path   string
		want   int
	}{
		{"a node", aNode(), http.MethodGet, edge.PathState, http.StatusOK},
		{"an operator", as("ana", edge.GroupOperators), http.MethodGet, edge.PathState, http.StatusForbidden},
		{"the nodes' group alone", as("ana", user.NodesGroup), http.MethodGet, edge.PathState, http.StatusForbidden},
		{"an operator, who relays", as("ana", edge.GroupOperators), http.MethodGet,
			edge.PathState + "?" + edge.QueryRelaying, http.StatusForbidden},
		{"a write", aNode(), http.MethodPost, edge.PathState, http.StatusMethodNotAllowed},
		{"below", aNode(), http.MethodGet, edge.PathState + "/pods", http.StatusMethodNotAllowed},
	} {
		w := httptest.NewRecorder()
		asked(p, c.caller).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil))
		if w.Code != c.want {
			t.Errorf("%s gets %d, want %d: %s", c.name, w.Code, c.want, w.Body)
		}
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, edge.PathState, nil))
	if w.Code != http.StatusForbidden {
		t.Errorf("nobody gets %d", w.Code)
	}
}

// answer takes the lines of a stream.
type answer struct {
	http.ResponseWriter
	pipe *io.PipeWriter
}

func (a answer) Header() http.Header              { return http.Header{} }
func (a answer) WriteHeader(int)                  {}
func (a answer) Flush()                           {}
func (a answer) Write(p []byte) (int, error)      { return a.pipe.Write(p) }
func (a answer) SetWriteDeadline(time.Time) error { return nil }

// follow reads a stream until the context ends, and returns the lines as they come.
func follow(ctx context.Context, p *Server, done *sync.WaitGroup) <-chan edge.State {
	return followAt(ctx, p, done, edge.PathState+"?"+edge.QueryPresence+"="+edge.NodesAndPods)
}

func followAt(ctx context.Context, p *Server, done *sync.WaitGroup, path string) <-chan edge.State {
	from, to := io.Pipe()
	lines := make(chan edge.State, 100)
	done.Go(func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		asked(p, aNode()).ServeHTTP(answer{pipe: to}, r)
		_ = to.Close()
	})
	done.Go(func() {
		defer close(lines)
		for s := bufio.NewScanner(from); s.Scan(); {
			var line edge.State
			if json.Unmarshal(s.Bytes(), &line) == nil {
				lines <- line
			}
		}
	})
	return lines
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(ends.Clock{})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { _ = p.Run(ctx, func(edge.NodeName) bool { return true }) })
		lines := follow(ctx, p, &done)
		expect := func(want string) {
			t.Helper()
			got := <-lines
			for text(got) == "" { // that there is nothing new
				got = <-lines
			}
			if text(got) != want || got.Instance != p.instance {
				t.Fatalf("of %q: %q, want %q", got.Instance, text(got), want)
			}
		}
		expect("whole")
		p.Shown(pod("a", true))
		p.Renewed("n1", 8*time.Second)
		expect("a true, n1 silent false of 10")
		synctest.Wait()
		began := time.Now()
		p.Shown(pod("a", false))
		synctest.Wait()
		p.Shown(pod("b", true))
		expect("a false, b true")
		if took := time.Since(began); took != gather {
			t.Errorf("told after %s", took)
		}
		expect("n1 silent true of 10")
		p.Renewed("n1", 40*time.Second)
		expect("n1 silent false of 50")
		began = time.Now()
		if got := <-lines; text(got) != "" || time.Since(began) > aliveEvery {
			t.Errorf("with no news comes %q, after %s", text(got), time.Since(began))
		}
		if n := p.streams; n != 1 {
			t.Errorf("%d streams", n)
		}
		cancel()
		done.Wait()
		if p.streams != 0 {
			t.Error("the stream has not ended")
		}
	})
}

// TestStreamOfNodes: whose home is another coordinator hears of nodes, and is not told that Pods change.
func TestStreamOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(ends.Clock{})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { _ = p.Run(ctx, func(edge.NodeName) bool { return true }) })
		p.Shown(pod("a", true))
		p.Renewed("n1", 40*time.Second)
		lines := followAt(ctx, p, &done, edge.PathState+"?"+edge.QueryPresence+"="+edge.NodesOnly)
		if got := <-lines; text(got) != "whole, n1 silent false of 50" {
			t.Errorf("at first comes %q", text(got))
		}
		for i := range 100 {
			p.Shown(pod("a", i%2 == 0))
			time.Sleep(gather)
		}
		p.Renewed("n2", 40*time.Second)
		synctest.Wait()
		time.Sleep(2 * gather)
		synctest.Wait()
		if n := len(lines); n != 1 {
			t.Errorf("%d lines, want the one that has news", n)
		}
		if got := <-lines; text(got) != "n2 silent false of 50" {
			t.Errorf("of another node comes %q", text(got))
		}
		cancel()
		done.Wait()
	})
}

// leasesIn is what a line says of Leases as text.
func leasesIn(s edge.State) string {
	var all []string
	add := func(what string, l *edge.Leases) {
		if l == nil {
			return
		}
		if l.Whole {
			what += " whole"
		}
		for _, lease := range l.Leases {
			what += " " + lease.Name + "@" + lease.ResourceVersion
		}
		all = append(all, what)
	}
	add("leases", s.Leases)
	add("heartbeats", s.Heartbeats)
	return strings.Join(all, ", ")
}

// TestStreamOfLeases: every hub hears of the pool's own Leases, and of heartbeats only the hub of the node that the election
// Lease names, each change once, also over two streams.
func TestStreamOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(ends.Clock{})
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		revision := 0
		write := func(namespace, name, holder string) *coordinationv1.Lease {
			revision++
			lease := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: fmt.Sprint(revision)},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
			}
			p.stored(lease, false)
			synctest.Wait()
			return lease
		}
		beats := func(name string) *coordinationv1.Lease { return write("kube-node-lease", name, name) }
		beats("n1")
		write(edge.NamespaceSystem, edge.LeaseElection, "n1")
		lines := followAt(ctx, p, &done, edge.PathState) // as n2
		position := ""
		expect := func(what, want string) {
			t.Helper()
			synctest.Wait()
			got := "nothing"
			if len(lines) > 0 {
				line := <-lines
				if got = leasesIn(line); line.Heartbeats != nil {
					position = line.Heartbeats.Position
				}
				if line.Whole || len(line.Nodes)+len(line.Pods) > 0 {
					t.Errorf("%s: what nobody has asked for is told: %+v", what, line)
				}
			}
			if got != want || len(lines) > 0 {
				t.Errorf("%s: %q and %d lines more, want %q", what, got, len(lines), want)
			}
		}
		expect("at first", "leases whole yurthub@2")
		beats("n1")
		p.Renewed("n1", 0)
		write(edge.NamespaceSystem, "another", "n1")
		expect("another node leads", "nothing")
		write(edge.NamespaceSystem, edge.LeaseInformerSync, "n1")
		expect("it declares", "leases leader-informer-sync@5")
		write(edge.NamespaceSystem, edge.LeaseElection, "n2")
		expect("it leads", "leases yurthub@6, heartbeats whole n1@3")
		beats("n3")
		expect("one has come", "heartbeats n3@7")
		lease := beats("n1")
		expect("one renews", "heartbeats n1@8")
		cancel()
		done.Wait()
		beats("n3")
		ctx, cancel = context.WithCancel(t.Context())
		lines = followAt(ctx, p, &done, edge.PathState+"?"+edge.QueryAfter+"="+position)
		expect("another stream goes on", "leases whole leader-informer-sync@5 yurthub@6, heartbeats n3@9")
		p.stored(lease, true)
		expect("one is deleted", "heartbeats whole n3@9")
		write(edge.NamespaceSystem, edge.LeaseElection, "")
		expect("it leads no more", "leases yurthub@10")
		beats("n3")
		expect("nobody leads", "nothing")
		cancel()
		done.Wait()
		for _, after := range []string{"another/1", p.instance + "/1000", p.instance + "/x", ""} {
			p.leases.change(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: edge.LeaseElection},
				Spec: coordinationv1.LeaseSpec{HolderIdentity: new("n2")}}, false)
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, edge.PathState+"?"+edge.QueryAfter+"="+after, nil)
			if line, _ := p.next(p.begin(r, "n2")); !line.Heartbeats.Whole {
				t.Errorf("after %q it does not begin with everything", after)
			}
		}
	})
}

// TestStreamEnds: with the coordinator, and after a while, so that who may read it is asked again.
func TestStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			end   func(*Server)
			after time.Duration
		}{{func(p *Server) { _ = p.Close() }, 0}, {func(*Server) {}, lifeTime}} {
			p := New(ends.Clock{})
			var done sync.WaitGroup
			lines := follow(t.Context(), p, &done)
			<-lines
			began := time.Now()
			c.end(p)
			for range lines { // until it ends
			}
			if took := time.Since(began); took != c.after {
				t.Errorf("it ended after %s, want %s", took, c.after)
			}
			done.Wait()
		}
	})
}

// TestATickThatWasMissedIsNotMadeUpFor: a process that was stopped has not seen silence.
func TestATickThatWasMissedIsNotMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(ends.Clock{})
		p.Renewed("n1", 8*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		stopped := sync.OnceFunc(func() { time.Sleep(60 * time.Second) })
		done.Go(func() {
			_ = p.Run(ctx, func(edge.NodeName) bool {
				stopped() // with all that waits for it
				return true
			})
		})
		time.Sleep(63 * time.Second)
		synctest.Wait()
		if quiet := p.ledger.nodes["n1"].quiet; quiet > 4 {
			t.Errorf("%d seconds count of those in which it was stopped", quiet)
		}
		cancel()
		done.Wait()
	})
}

// TestAReaderThatIsGone ends its stream.
func TestAReaderThatIsGone(t *testing.T) {
	p := New(ends.Clock{})
	from, to := io.Pipe()
	_ = from.CloseWithError(errors.New("gone"))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, edge.PathState, nil)
	asked(p, aNode()).ServeHTTP(answer{pipe: to}, r)
	if p.streams != 0 {
		t.Error("the stream has not ended")
	}
}

func TestHeard(t *testing.T) {
	l := newLedger()
	l.renewed("n1", 40*time.Second)
	l.renewed("n2", 8*time.Second)
	for range 12 {
		l.tick()
	}
	l.renewed("n1", 40*time.Second)
	l.tick()
	all := l.heard()
	slices.SortFunc(all, func(a, b edge.Heard) int { return strings.Compare(string(a.Name), string(b.Name)) })
	want := []edge.Heard{
		{Name: "n1", Quiet: time.Second, Grace: 50 * time.Second}, {Name: "n2", Quiet: 10 * time.Second,
			Grace: 10 * time.Second, Silent: true},
	}
	if !slices.Equal(all, want) {
		t.Errorf("%+v, want %+v", all, want)
	}
}

// TestLedgerRelaying: who relays is named while it renews within its Lease's duration, and is of the pool.
func TestLedgerRelaying(t *testing.T) {
	at := netip.MustParseAddrPort("10.0.0.1:10269")
	here := func(names ...edge.NodeName) (all []edge.Neighbour) {
		for _, name := range names {
			all = append(all, edge.Neighbour{Name: name, At: at})
		}
		return all
	}
	wait := func(seconds int) func(*ledger) {
		return func(l *ledger) {
			for range seconds {
				l.tick()
			}
		}
	}
	beat := func(name edge.NodeName, lease time.Duration, at netip.AddrPort) func(*ledger) {
		return func(l *ledger) {
			l.renewed(name, lease)
			l.relays(name, at)
		}
	}
	for name, tt := range map[string]struct {
		did  []func(*ledger)
		want []edge.Neighbour
		sure bool
	}{
		"nothing":           {nil, nil, false},
		"at its start":      {[]func(*ledger){beat("n1", 0, netip.AddrPort{}), wait(49)}, nil, false},
		"nobody relays":     {[]func(*ledger){beat("n1", 0, netip.AddrPort{}), wait(50)}, nil, true},
		"one does":          {[]func(*ledger){beat("n1", 0, netip.AddrPort{}), beat("n2", 0, at)}, here("n2"), true},
		"two do":            {[]func(*ledger){beat("n1", 0, at), wait(39), beat("n2", 0, at)}, here("n1", "n2"), true},
		"one did":           {[]func(*ledger){beat("n1", 0, at), wait(40), beat("n2", 0, at)}, here("n2"), true},
		"one came back":     {[]func(*ledger){beat("n1", 0, at), wait(90), beat("n1", 0, at)}, here("n1"), true},
		"for 8 s":           {[]func(*ledger){beat("n1", 8*time.Second, at), wait(7)}, here("n1"), true},
		"for longer":        {[]func(*ledger){beat("n1", 8*time.Second, at), wait(50)}, nil, true},
		"no more":           {[]func(*ledger){beat("n1", 0, at), wait(50), beat("n1", 0, netip.AddrPort{})}, nil, true},
		"the one that asks": {[]func(*ledger){beat("n3", 0, at)}, nil, false},
		"it says so only":   {[]func(*ledger){wait(50), func(l *ledger) { l.relays("n1", at) }}, nil, true},
		"it has left": {[]func(*ledger){beat("n1", 0, at), beat("n2", 0, at), func(l *ledger) {
			l.forget(func(n edge.NodeName) bool { return n == "n2" })
		}}, here("n2"), true},
	} {
		l := newLedger()
		for _, do := range tt.did {
			do(l)
		}
		got, sure := l.relaying("n3")
		slices.SortFunc(got, func(a, b edge.Neighbour) int { return strings.Compare(string(a.Name), string(b.Name)) })
		if !slices.Equal(got, tt.want) || sure != tt.sure {
			t.Errorf("%s: %v, sure: %t; want %v, %t", name, got, sure, tt.want, tt.sure)
		}
	}
}

// TestAskedWhoRelays: the answer is one line, of 32 at most. Each node is told of others, and the same one of the same.
func TestAskedWhoRelays(t *testing.T) {
	p := New(ends.Clock{})
	ask := func(name string) (answer edge.Relaying, code int) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, edge.PathState+"?"+edge.QueryRelaying, nil)
		w := httptest.NewRecorder()
		if asked(p, as("system:node:"+name, user.NodesGroup)).ServeHTTP(w, r); MayLast(r) {
			t.Error("the question may last")
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || strings.Count(w.Body.String(), "\n") != 1 {
			t.Errorf("%s is told %q, %v", name, w.Body, err)
		}
		return answer, w.Code
	}
	if _, code := ask("n1"); code != http.StatusServiceUnavailable {
		t.Errorf("a coordinator that has just begun answers %d", code)
	}
	p.change(func(l *ledger) bool {
		for range 50 {
			l.tick()
		}
		return false
	})
	if got, code := ask("n1"); code != http.StatusOK || got.Neighbours == nil || len(got.Neighbours) != 0 {
		t.Errorf("nobody is %v, %d", got, code)
	}
	relays := func(n int) {
		name := edge.NodeName(fmt.Sprintf("n%d", n))
		p.Renewed(name, 40*time.Second)
		p.Relays(name, netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(n)))
	}
	relays(1)
	relays(2)
	want := edge.Neighbour{Name: "n2", At: netip.MustParseAddrPort("10.0.0.1:2")}
	if got, _ := ask("n1"); len(got.Neighbours) != 1 || got.Neighbours[0] != want {
		t.Errorf("n1 is told %v, want n2 alone", got)
	}
	for n := range 200 {
		relays(n + 1)
	}
	told := map[edge.NodeName]int{}
	for n := range 200 {
		name := fmt.Sprintf("n%d", n+1)
		got, _ := ask(name)
		again, _ := ask(name)
		if len(got.Neighbours) != edge.MostRelaying || !slices.Equal(got.Neighbours, again.Neighbours) {
			t.Errorf("%s is told %d, then %d", name, len(got.Neighbours), len(again.Neighbours))
		}
		for _, each := range got.Neighbours {
			told[each.Name]++
			if string(each.Name) == name {
				t.Errorf("%s is told of itself", name)
			}
		}
	}
	for name, times := range told {
		if times > 2*edge.MostRelaying {
			t.Errorf("%s is named to %d of 200", name, times)
		}
	}
	if len(told) != 200 {
		t.Errorf("%d of 200 are named to anybody", len(told))
	}
}

// TestASuspendedMachine: what it does not live through is no silence.
func TestASuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran, runs := time.Now(), atomic.Bool{}
		p := New(ends.Clock{Ran: func() time.Time {
			if runs.Load() {
				return time.Now()
			}
			return ran
		}})
		p.Renewed("n1", 40*time.Second)
		go func() { _ = p.Run(t.Context(), func(edge.NodeName) bool { return true }) }()
		quiet := func(what string, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if all := p.Nodes(); len(all) != 1 || all[0].Quiet != want {
				t.Errorf("%s: %+v, want quiet for %v", what, all, want)
			}
		}
		time.Sleep(10 * time.Minute)
		quiet("suspended", 0)
		runs.Store(true)
		time.Sleep(5 * time.Second)
		quiet("awake", 5*time.Second)
	})
}
