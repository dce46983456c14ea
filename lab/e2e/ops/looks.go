package ops

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

// look is a command that must print the same at every server.
type look struct {
	args   string
	stdin  string
	fails  string // how kubectl ends; empty means success
	sorted bool   // the order of its lines differs between servers
	until  string // from there on, the output is each server's own
	stream bool   // by each protocol
	own    bool   // it tells the server's version: asked where the cloud's is the coordinator's
}

var looks = []look{
	{args: "get nodes -l apps.openyurt.io/nodepool=p1 -o wide", own: true},
	{args: "get node p1-n1 -o yaml", until: "\nstatus:"}, // kubelet's heartbeat continues
	{args: "get pods -n shop -o wide"},
	{args: "get pods -n shop --show-labels"},
	{args: "get pod till -n shop -o yaml"},
	{args: "get pods -A -l app.kubernetes.io/name=yurt-coordinator"},
	{args: "get configmaps -n shop -o yaml"},
	{args: "get services -A -o wide"},
	{args: "get service till -n shop -o yaml"},
	{args: "get endpointslices -n shop -o yaml"},
	{args: "get nodepool p1 -o yaml", until: "\nstatus:"}, // the cloud's changes while the pool is cut off
	{args: "describe service till -n shop", sorted: true},
	{args: "describe node p1-n2", until: "\nEvents:"}, // the node controller's Events are only in the cloud
	{args: "describe pod till -n shop", sorted: true},
	{args: "events -n shop --for pod/till", sorted: true},
	{args: "get events -n shop --field-selector involvedObject.name=till,reason=Started -o name", sorted: true},
	{args: "logs till -n shop -c till"},
	{args: "logs till -n shop -c side --previous"},
	{args: "logs till -n shop -c side", until: "line"},
	{args: "logs till -n shop -c nobody", fails: "exit status 1"},
	{args: "exec till -n shop -c till -- cat /www/index.html", stream: true},
	{args: "exec till -n shop -c till -- ls /nowhere", fails: "exit status 1", stream: true},
	{args: "exec -i till -n shop -c till -- wc -c", stdin: strings.Repeat("0123456789", 20_000), stream: true},
	{args: "exec -t till -n shop -c till -- tty", fails: "exit status 1", stream: true}, // without -i kubectl asks for none
	{args: "exec -it till -n shop -c till -- cat", stdin: "no terminal", stream: true},
	{args: "version", sorted: true, own: true},
	{args: "get --raw /version", own: true},
}

// allLooks runs all looks.
func allLooks(t *kit.T, at place) map[string]string {
	cfg, err := t.Lab.Config()
	t.Must(err)
	all := map[string]string{}
	for _, l := range looks {
		for name := range protocols {
			if l.asked(name, cfg) {
				all[l.by(name)] = l.prints(t, at, name)
			}
		}
	}
	return all
}

// asked reports whether a look is to be tried by a protocol.
func (l look) asked(protocol string, cfg lab.Config) bool {
	return (l.stream || protocol == "websocket") && (!l.own || cfg.Kubernetes == "")
}

// by names a look by a protocol.
func (l look) by(protocol string) string { return l.args + " by " + protocol }

// prints returns what a look prints, without what differs each time.
func (l look) prints(t *kit.T, at place, protocol string) string {
	out := lookAt(t, at, l, protocol)
	out, _, _ = strings.Cut(behind.ReplaceAllString(out, ""), l.untilOr(out))
	return normal(out, l.sorted)
}

// lookAt runs a look, which must end as it should, and returns its output.
func lookAt(t *kit.T, at place, l look, protocol string) string {
	out, err := kubectlSays(t, kubectlRun{place: at, protocol: protocol, args: strings.Fields(l.args), stdin: l.stdin})
	ended := ""
	if err != nil {
		ended = err.Error()
	}
	if ended != l.fails {
		t.Fail("kubectl %s, at %s, by %s: it ends with %q, want %q: %s", l.args, at, protocol, ended, l.fails, out)
	}
	return out
}

// untilOr returns the text at which the output must be cut. If the look has none, it returns a text that is not in the output.
func (l look) untilOr(out string) string {
	if l.until == "" {
		return out + "\x00"
	}
	return l.until
}

// sameLooks expects that the coordinator prints what the cloud printed.
func sameLooks(t *kit.T, when string, at place, want map[string]string) {
	goal := fmt.Sprintf("%s, %d commands print at %s what they do in the cloud", when, len(want), at)
	t.Eventually(30*time.Second, goal, func() error {
		var wrong []error
		for args, got := range allLooks(t, at) {
			if got != want[args] {
				wrong = append(wrong, fmt.Errorf("kubectl %s: %s", args, firstLine(got, want[args])))
			}
		}
		return errors.Join(wrong...)
	})
}

// ownLooks are commands that a coordinator answers differently from the cloud, because it has less. has and lacks are what must
// and must not be in the output.
var ownLooks = []struct {
	look
	has, lacks []string
}{
	{look: look{args: "api-resources -o name"},
		lacks: []string{"deployments", "persistentvolume", "ingresses", "storageclasses", "resourcequotas"},
		has:   []string{"pods\n", "nodes\n", "events\n", "endpointslices.discovery.k8s.io\n", "nodepools.apps.openyurt.io\n"}},
	{look: look{args: "api-versions"}, has: []string{"v1\n", "coordination.k8s.io/v1\n", "metrics.k8s.io/v1beta1\n"},
		lacks: []string{"apps/v1"}},
	{look: look{args: "cluster-info"}, has: []string{"Kubernetes control plane", " is running at ", "https://10.78.1."}},
	{look: look{args: "explain pod", fails: "exit status 1"}, has: []string{"ask there for kubectl explain"}},
	{look: look{args: "get deployments", fails: "exit status 1"},
		has: []string{`the server doesn't have a resource type "deployments"`}},
	{look: look{args: "get pvc -A", fails: "exit status 1"}, has: []string{`the server doesn't have a resource type "pvc"`}},
	{look: look{args: "get clusterroles", fails: "exit status 1"}, has: []string{"it is not shown here; ask the cloud"}},
	{look: look{args: "get nodepools"}, has: []string{"p1"}},
}

// behind matches a coordinator's warning while nobody brings it the cloud's changes.
var behind = regexp.MustCompile(`(?m)^Warning: \S+ are complete here but not current: .*\n`)

// warned expects that a look at the pool's resources prints a warning if nobody brings their changes, and otherwise none.
func warned(t *kit.T, at place, want bool) {
	goal := map[bool]string{true: "warns that Services are not current", false: "shows Services without a warning"}[want]
	t.Eventually(30*time.Second, "kubectl at "+at.String()+" "+goal, func() error {
		out := lookAt(t, at, look{args: "get services -A"}, "websocket")
		if since := strings.Contains(out, "Warning: services are complete here but not current: nobody has brought what changed "+
			"in the cloud since 20"); since != want || strings.Contains(out, "Warning") != want {
			return errors.New(out)
		}
		return nil
	})
}

// checkOwnLooks runs them at the coordinator.
func checkOwnLooks(t *kit.T, at place) {
	for _, l := range ownLooks {
		out := lookAt(t, at, l.look, "websocket")
		for _, text := range l.has {
			if !strings.Contains(out, text) {
				t.Fail("kubectl %s, at %s: it says nothing of %q: %s", l.args, at, text, out)
			}
		}
		for _, text := range l.lacks {
			if strings.Contains(out, text) {
				t.Fail("kubectl %s, at %s: it speaks of %q: %s", l.args, at, text, out)
			}
		}
		t.Say("kubectl %s at %s: %s", l.args, at, firstOf(out))
	}
}

// crashPrinted crashes a Pod twice while the pool is cut off, and expects that each version of kubectl shows it at the
// coordinator.
func crashPrinted(t *kit.T, site kubernetes.Interface) {
	of := " " + crasherName + " -n " + kit.Namespace
	crash(t, tillNode)
	printed(t, "get pod"+of+" --no-headers", "its first restart", func(out string) bool {
		fields := strings.Fields(out)
		return len(fields) > 3 && fields[0] == crasherName && fields[3] == "1"
	})
	crash(t, tillNode)
	restartsShown(t, site, 2, 30*time.Second)
	has := func(all ...string) func(string) bool {
		return func(out string) bool {
			for _, text := range all {
				if !strings.Contains(out, text) {
					return false
				}
			}
			return true
		}
	}
	printed(t, "events -n "+kit.Namespace+" --for pod/"+crasherName, "the Event about its back-off", has(backOff))
	printed(t, "describe pod"+of, "how it ended, how often, and the Event", has("Exit Code: 137", "Restart Count: 2", backOff))
}

// printed waits until each kubectl prints something at the coordinator.
func printed(t *kit.T, args, what string, is func(string) bool) {
	for _, older := range []bool{false, true} {
		at := place{atSite, older}
		t.Eventually(30*time.Second, "kubectl "+args+" at "+at.String()+" prints "+what, func() error {
			out := lookAt(t, at, look{args: args}, "websocket")
			if !is(blanks.ReplaceAllString(out, " ")) {
				return fmt.Errorf("it prints %s", out)
			}
			return nil
		})
	}
}

// crasherPrintedAlike expects that cloud and coordinator print the same about the crashed Pod.
func crasherPrintedAlike(t *kit.T) {
	l := look{args: "get pod " + crasherName + " -n " + kit.Namespace + " -o wide"}
	for _, older := range []bool{false, true} {
		at := place{atSite, older}
		t.Eventually(20*time.Second, fmt.Sprintf("kubectl %s prints the same at %s", l.args, at), func() error {
			cloud := normal(lookAt(t, place{via: atCloud}, l, "websocket"), false)
			if got := normal(lookAt(t, at, l, "websocket"), false); got != cloud {
				return errors.New(firstLine(got, cloud))
			}
			return nil
		})
	}
}
