package plugin

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yurtcoordinator/internal/edge"
)

func TestCheck(t *testing.T) {
	const yes, no, unknown = corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown
	pool := Pool{Name: "a", Coordinator: CoordinatorReady, CoordinatorNode: "a1", Leader: "a1",
		Kubelets: map[edge.NodeName]edge.KubeletWay{"n": edge.KubeletPinned}}
	well := func(change func(*Subject, *Pool)) Subject {
		s, p := subject(aNode("n", "a", yes, linkDown(no)), 0, false), pool
		s.Node.Annotations = map[string]string{edge.AnnotationSettings: edge.SettingsReport{Runs: 3, Told: 3}.String()}
		s.Pool = &p
		change(&s, &p)
		return s
	}
	settings := func(r edge.SettingsReport) func(*Subject, *Pool) {
		return func(s *Subject, _ *Pool) { s.Node.Annotations[edge.AnnotationSettings] = r.String() }
	}
	kubelet := func(way edge.KubeletWay) func(*Subject, *Pool) {
		return func(_ *Subject, p *Pool) { p.Kubelets = map[edge.NodeName]edge.KubeletWay{"n": way} }
	}
	node := func(ready, down corev1.ConditionStatus) func(*Subject, *Pool) {
		return func(s *Subject, _ *Pool) { *s.Node = aNode("n", "a", ready, linkDown(down)) }
	}
	full := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: yes}
	refused := edge.SettingsReport{Runs: 1, Told: 2, State: edge.SettingsRefused, Why: "a typo"}
	restart := edge.SettingsReport{Runs: 1, Told: 2, State: edge.SettingsNeedRestart, Why: "port"}
	for name, c := range map[string]struct {
		s Subject
		// level is the worst one; says is part of a finding of that level.
		level, says string
	}{
		"well":      {well(func(*Subject, *Pool) {}), LevelOK, "leads the pool"},
		"nothing":   {Subject{Name: "n"}, LevelFail, "neither a Node nor"},
		"no Node":   {Subject{Name: "n", Lease: well(func(*Subject, *Pool) {}).Lease}, LevelFail, "no Node"},
		"silent":    {well(node(unknown, unknown)), LevelFail, "stopped renewing"},
		"delegated": {well(node(yes, yes)), LevelWarn, "link to the cloud is down"},
		"kubelet":   {well(node(no, no)), LevelFail, "KubeletReady"},
		"pressure": {well(func(s *Subject, _ *Pool) {
			*s.Node = aNode("n", "a", yes, full)
		}), LevelWarn, ""},
		"a descheduler": {well(func(s *Subject, _ *Pool) {
			s.Evictors = []string{"kube-system/policy"}
		}), LevelWarn, "kube-system/policy"},
		"late holds": {well(func(s *Subject, _ *Pool) {
			s.Events = []corev1.Event{
				{Reason: "NodeReady"}, {Reason: edge.ReasonGracePeriodTooShort, Message: "silent 22s after"},
			}
		}), LevelWarn, "silent 22s after"},
		"no pool":            {well(func(s *Subject, _ *Pool) { s.Pool = nil }), LevelWarn, "in no pool"},
		"no coordinator":     {well(func(_ *Subject, p *Pool) { p.Coordinator = CoordinatorNone }), LevelOK, "needs none"},
		"whose, nobody says": {well(func(_ *Subject, p *Pool) { p.CoordinatorNode = "" }), LevelOK, "that of pool a serves"},
		"it is down":         {well(func(_ *Subject, p *Pool) { p.Coordinator = "PodNotReady" }), LevelFail, "PodNotReady"},
		"outside": {
			well(func(_ *Subject, p *Pool) { p.Outside = []string{"n"} }), LevelFail, "no leader hears the node",
		},
		"no leader": {well(func(_ *Subject, p *Pool) { p.Leader = "" }), LevelFail, "no hub"},
		"refused":   {well(settings(refused)), LevelFail, "a typo"},
		"restart":   {well(settings(restart)), LevelWarn, "hub restarts"},
		"illegible": {well(func(s *Subject, _ *Pool) {
			s.Node.Annotations[edge.AnnotationSettings] = "?"
		}), LevelWarn, "can't be read"},
		"unapproved": {well(kubelet(edge.KubeletUnapproved)), LevelFail, "approved"},
		"overdue":    {well(kubelet(edge.KubeletOverdue)), LevelWarn, "ends soon"},
		"on site": {well(func(s *Subject, _ *Pool) {
			s.Within, s.Node = true, nil
			s.Lease.Annotations = map[string]string{edge.DelegateHeartbeat: edge.DelegateHeartbeatOn}
		}), LevelWarn, "own link to the cloud is down"},
	} {
		found := Check(c.s, noon)
		worst := LevelOK
		for _, f := range found {
			if f.Level == LevelFail || f.Level == LevelWarn && worst == LevelOK {
				worst = f.Level
			}
			if f.What == "" || f.Why == "" || f.Level == LevelFail && f.Do == "" {
				t.Errorf("%s: %+v does not say what, why, or what to do", name, f)
			}
		}
		if worst != c.level || failed(found) != (worst == LevelFail) ||
			!slices.ContainsFunc(found, func(f Finding) bool { return f.Level == c.level && strings.Contains(f.Why, c.says) }) {
			t.Errorf("%s: %+v, want %s that says %q", name, found, c.level, c.says)
		}
	}
}

func TestPrintFindings(t *testing.T) {
	found := []Finding{{LevelOK, "heartbeat", "it renews", ""}, {LevelFail, "kubelet", "it is off", "start it"}}
	var b strings.Builder
	if err := (&printer{out: &b, now: noon, noHeaders: true}).findings("n", found); err != nil {
		t.Fatal(err)
	}
	if want := "ok heartbeat it renews\nfail kubelet it is off. To do: start it\n"; squeeze(b.String()) != want {
		t.Errorf("%s, want %s", squeeze(b.String()), want)
	}
	show := func(p *printer) error { return p.findings("n", found) }
	if got := printed(t, "jsonpath={.ok} {.findings[1].do}", show); got != "false start it" {
		t.Errorf("as an object: %q", got)
	}
}
