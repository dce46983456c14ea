package cloud

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"yurtcoordinator/e2e/panels"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/lab"
	"yurtcoordinator/internal/lab/wire"
)

const (
	// hastenedBy is how much faster than in the chart alerts wait and look back that are to fire.
	hastenedBy = 60
	// othersBy is the same of all others. What they are about may be so for a while here, too, without being a trouble, and for
	// longer on a machine that is busy.
	othersBy = 10
)

// calls are the alerts that are to fire.
var calls = []string{"CoordinatorControllerAbsent", "CoordinatorUnreached", "PoolCut", "PoolLinksDown"}

// beside are alerts that may come with others, and why.
var beside = map[string]string{
	"CoordinatorNotReady": "of a pool of which nothing is heard, nobody knows that its coordinator serves",
}

// onCall is who is called by alerts, and reads their runbooks.
type onCall struct {
	*prometheus
	groups   []panels.Group
	runbooks string
}

func newOnCall(p *prometheus, groups []panels.Group) *onCall {
	book, err := os.ReadFile(filepath.Join(p.Repository(), "docs", "runbooks.md"))
	p.Must(err)
	return &onCall{p, groups, string(book)}
}

// hastened returns a file of the alerts as they are asked here.
func (o *onCall) hastened() []byte {
	groups, err := panels.Hastened(o.groups, func(alert string) int {
		if slices.Contains(calls, alert) {
			return hastenedBy
		}
		return othersBy
	})
	o.Must(err)
	file, err := panels.RulesFile(groups)
	o.Must(err)
	return file
}

// judged waits until Prometheus has judged each alert once more, and fails if it could not.
func (o *onCall) judged() {
	began := time.Now()
	all := 0
	o.Eventually(patience, "Prometheus has judged every alert", func() error {
		found, err := o.api.Rules(o.Ctx)
		if err != nil {
			return err
		}
		states := map[string]prometheusv1.AlertingRule{}
		for _, g := range found.Groups {
			for _, r := range g.Rules {
				if alert, ok := r.(prometheusv1.AlertingRule); ok {
					states[alert.Name] = alert
				}
			}
		}
		all = 0
		for _, g := range o.groups {
			for _, r := range g.Rules {
				state, ok := states[r.Alert]
				if !ok || state.Health == prometheusv1.RuleHealthBad {
					o.Fail("Prometheus can't judge %s: %s", r.Alert, state.LastError)
				}
				if state.Health != prometheusv1.RuleHealthGood || !state.LastEvaluation.After(began) {
					return fmt.Errorf("%s was judged last at %v", r.Alert, state.LastEvaluation)
				}
				all++
			}
		}
		return nil
	})
	o.Figure("alerts", float64(all))
}

// severity returns the severity that the chart gives an alert.
func (o *onCall) severity(name string) string {
	for _, g := range o.groups {
		for _, r := range g.Rules {
			if r.Alert == name {
				return r.Labels["severity"]
			}
		}
	}
	return ""
}

// firing returns the alerts that fire, by name.
func (o *onCall) firing() (map[string]prometheusv1.Alert, error) {
	answer, err := o.api.Alerts(o.Ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]prometheusv1.Alert{}
	for _, a := range answer.Alerts {
		if a.State == prometheusv1.AlertStateFiring {
			all[string(a.Labels[model.AlertNameLabel])] = a
		}
	}
	return all, nil
}

// quiet fails if an alert fires.
func (o *onCall) quiet() {
	o.Eventually(patience, "no alert fires", func() error {
		all, err := o.firing()
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("%v", all)
		}
		return err
	})
}

// alerted waits until an alert fires, reads it, and looks where its runbook says. values stand for the names in there.
func (o *onCall) alerted(name string, values map[string]string) {
	var alert prometheusv1.Alert
	took := o.Eventually(patience, "the alert "+name+" fires", func() error {
		all, err := o.firing()
		if err != nil {
			return err
		}
		a, ok := all[name]
		if !ok {
			return fmt.Errorf("firing are %v", slices.Sorted(maps.Keys(all)))
		}
		alert = a
		return nil
	})
	o.Figure("until_"+name+"_s", took.Seconds())
	for _, text := range alert.Annotations {
		if strings.Contains(string(text), "<no value>") || strings.Contains(string(text), "<error expanding") {
			o.Fail("%s says %q", name, text)
		}
	}
	if got := string(alert.Labels["severity"]); got != o.severity(name) {
		o.Fail("%s is %q", name, got)
	}
	if got := string(alert.Annotations["runbook_url"]); got != runbooks+"#"+strings.ToLower(name) {
		o.Fail("the runbook of %s is %q", name, got)
	}
	o.Say("%s: %s", name, alert.Annotations["summary"])
	o.follows(name, "Look", values)
}

// follows runs the kubectl commands of a runbook's part: Look or Do.
func (o *onCall) follows(name, part string, values map[string]string) {
	commands := commandsOf(o.runbooks, name, part)
	if len(commands) == 0 {
		o.Fail("the runbook of %s has no command in its part %s", name, part)
	}
	for _, command := range commands {
		for of, is := range values {
			command = strings.ReplaceAll(command, of, is)
		}
		cmd, err := o.Lab.Kubectl(o.Ctx, "cloud", strings.Fields(command)[1:])
		o.Must(err)
		out, err := cmd.CombinedOutput()
		if err != nil || len(out) == 0 {
			o.Fail("the runbook of %s: %s: %w: %s", name, command, err, out)
		}
		o.Say("$ %s: %d lines", command, strings.Count(string(out), "\n"))
	}
}

var inBackticks = regexp.MustCompile("`(kubectl [^`]+)`")

// commandsOf returns the kubectl commands of a part of a runbook.
func commandsOf(page, alert, part string) (commands []string) {
	_, section, _ := strings.Cut(page, "\n## "+alert+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, section, _ = strings.Cut(section, "\n- "+part+": ")
	section, _, _ = strings.Cut(section, "\n- ")
	for _, c := range inBackticks.FindAllStringSubmatch(section, -1) {
		commands = append(commands, strings.Join(strings.Fields(c[1]), " "))
	}
	return commands
}

// onlyThese fails unless those alerts have fired since that were to, and no others.
func (o *onCall) onlyThese(since time.Time) {
	answer, _, err := o.api.Query(o.Ctx, fmt.Sprintf(`count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[%ds]))`,
		int(time.Since(since).Seconds())+1), time.Now())
	o.Must(err)
	var fired []string
	for _, s := range asVector(answer) {
		if name := string(s.Metric["alertname"]); beside[name] == "" {
			fired = append(fired, name)
		}
	}
	slices.Sort(fired)
	o.Say("%v have fired", fired)
	if !slices.Equal(fired, calls) {
		o.Fail("alerts %v have fired, want %v", fired, calls)
	}
}

// linksOfTwo cuts the links of two nodes. The rest of the pool speaks for them, and somebody is to look.
func (o *onCall) linksOfTwo() {
	leader := o.Pool.Settled(patience)
	var cut []string
	for _, node := range o.Pool.Nodes() {
		if node != leader {
			cut = append(cut, node)
		}
	}
	at := time.Now()
	o.Say("cutting the WAN links of %v", cut)
	for _, node := range cut {
		o.Cut(node)
	}
	o.alerted("PoolLinksDown", map[string]string{"POOL": "p1", "NODE": cut[0]})
	o.Eventually(patience, "both are shown, and since when", func() error {
		answer, _, err := o.api.Query(o.Ctx,
			`time() - max by (node) (coordinator_controller_node_cut_since_timestamp_seconds)`, time.Now())
		if err != nil {
			return err
		}
		shown := asVector(answer)
		for _, s := range shown { // it is in whole seconds
			if age := time.Duration(float64(s.Value) * float64(time.Second)); age < 0 || age > time.Since(at)+time.Second {
				return fmt.Errorf("%s is cut off since %v, and the cut was %v ago", s.Metric, age, time.Since(at))
			}
		}
		if len(shown) != len(cut) {
			return fmt.Errorf("cut off are %v", shown)
		}
		return nil
	})
	// The leader tells with its next report, after 3 minutes at most.
	took := o.Eventually(3*time.Minute+patience, "the fleet shows two relayed hubs, and one whose link is up", func() error {
		answer, _, err := o.api.Query(o.Ctx, `sum by (state) (coordinator_controller_hub_links) > 0`, time.Now())
		if err != nil {
			return err
		}
		shown := map[string]int{}
		for _, s := range asVector(answer) {
			shown[string(s.Metric["state"])] = int(s.Value)
		}
		if !maps.Equal(shown, map[string]int{"relayed": len(cut), "up": 1}) {
			return fmt.Errorf("shown are %v", shown)
		}
		return nil
	})
	o.Figure("cut_to_fleet_shows_s", took.Seconds())
	for _, node := range cut {
		o.Heal(node)
	}
	o.Pool.Settled(patience)
	o.quiet()
}

// leaderDies: another hub leads at once, and nobody is called.
func (o *onCall) leaderDies() {
	leader := o.Pool.Settled(patience)
	o.Say("killing the leader's hub, of %s", leader)
	o.Must(o.Lab.Node(o.Ctx, lab.Kill, leader, lab.Hub))
	o.Eventually(patience, "another hub leads", func() error {
		hubs := o.Pool.Hubs()
		delete(hubs, leader)
		_, err := o.Pool.Leader(hubs)
		return err
	})
	o.Must(o.Lab.Node(o.Ctx, lab.Start, leader, lab.Hub))
	o.Pool.Settled(patience)
}

// lanOfOne cuts the LAN link of a node, which then does not reach its coordinator.
func (o *onCall) lanOfOne() {
	node := o.Pool.Follower(o.Pool.Settled(patience))
	o.Say("cutting the LAN link of %s", node)
	o.Must(o.Lab.Cut(o.Ctx, lab.LAN, node, wire.Drop))
	o.alerted("CoordinatorUnreached", map[string]string{"POOL": "p1"})
	o.Must(o.Lab.Heal(o.Ctx, lab.LAN, node))
	o.Pool.Settled(patience)
	o.quiet()
}

// controllerGone takes the controller away, and brings it back.
func (o *onCall) controllerGone() {
	replicas := o.replicas()
	scale := func(to int32) {
		_, err := o.Cloud.AppsV1().Deployments(edge.NamespaceSystem).Patch(o.Ctx, string(lab.CoordinatorController),
			types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, to), metav1.PatchOptions{})
		o.Must(err)
	}
	o.Say("taking coordinator-controller away")
	scale(0)
	o.alerted("CoordinatorControllerAbsent", nil)
	scale(replicas)
	o.quiet()
}

// wholePool cuts all links of the pool, so that its evictions are held. The command that ends the hold is tried afterwards:
// pool-cut-hold shows what it does.
func (o *onCall) wholePool() {
	o.Say("cutting the WAN links of all nodes")
	for _, node := range o.Pool.Nodes() {
		o.Cut(node)
	}
	values := map[string]string{"POOL": "p1", "NODE": o.Pool.Nodes()[0]}
	o.alerted("PoolCut", values)
	for _, node := range o.Pool.Nodes() {
		o.Heal(node)
	}
	o.Eventually(patience, "all nodes are Ready", o.Pool.NodesReady)
	o.follows("PoolCut", "Do", values)
	o.quiet()
	// What the agents have kept during the cut arrives.
	healed := time.Now()
	o.Eventually(patience, "all hubs are seen as they are now", func() error {
		answer, _, err := o.api.Query(o.Ctx, fmt.Sprintf(`count(timestamp(up{job="yurthub"}) > %d)`, healed.Unix()), time.Now())
		if v := asVector(answer); err == nil && (len(v) != 1 || int(v[0].Value) != o.Config.Nodes) {
			err = fmt.Errorf("seen are %v", v)
		}
		return err
	})
}
