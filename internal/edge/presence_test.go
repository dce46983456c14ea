package edge

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPresenceOf(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "till", UID: "u"},
			Spec:       corev1.PodSpec{NodeName: "n1"},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}},
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
					{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				},
			},
		}
		change(p)
		return p
	}
	ready := func(s corev1.ConditionStatus, why string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Conditions[1].Status, p.Status.Conditions[1].Reason = s, why }
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.Pod)
		want   string
	}{
		{"ready", func(*corev1.Pod) {}, "[10.0.0.1 fd00::1] ready"},
		{"not ready, says kubelet", ready(corev1.ConditionFalse, "ContainersNotReady"), "[10.0.0.1 fd00::1]"},
		{"not ready, says the cloud", ready(corev1.ConditionFalse, ""), "[10.0.0.1 fd00::1] overruled"},
		{"nobody says", func(p *corev1.Pod) { p.Status.Conditions = nil }, "[10.0.0.1 fd00::1]"},
		{"unknown", ready(corev1.ConditionUnknown, ""), "[10.0.0.1 fd00::1]"},
		{"no address yet", func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil }, "[] ready"},
		{"the old field alone", func(p *corev1.Pod) { p.Status.PodIPs = nil }, "[10.0.0.1] ready"},
		{"two of a family", func(p *corev1.Pod) {
			p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "10.0.0.3"}}
		}, "[10.0.0.2] ready"},
		{"no addresses", func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = "", []corev1.PodIP{{IP: "localhost"}, {IP: "fe80::1%eth0"}, {IP: ""}}
		}, "[] ready"},
		{"addresses that mean something else to each client", func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = "127.0.0.1", nil
			for _, ip := range []string{
				"127.0.0.1", "169.254.169.254", "224.0.0.1", "0.0.0.0", "255.255.255.255", "::ffff:127.0.0.1", "::1", "::",
				"fe80::1", "ff02::1",
			} {
				p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
			}
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "10.0.0.9"})
		}, "[10.0.0.9] ready"},
		{"deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
			"[10.0.0.1 fd00::1] ready terminating"},
		{"failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "[10.0.0.1 fd00::1] ready finished"},
		{"succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "[10.0.0.1 fd00::1] ready finished"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := PresenceOf(pod(c.change))
			text := fmt.Sprint(got.IPs)
			for _, flag := range []struct {
				is   bool
				name string
			}{{got.Ready, "ready"}, {got.Overruled, "overruled"}, {got.Terminating, "terminating"}, {got.Finished, "finished"}} {
				if flag.is {
					text += " " + flag.name
				}
			}
			if text != c.want || got.PodName != (PodName{"shop", "till"}) || got.UID != "u" || got.Node != "n1" {
				t.Errorf("%q, of %+v; want %q", text, got, c.want)
			}
		})
	}
}

// TestPresenceOnTheWire: hubs and coordinators of different versions read each other's lines.
func TestPresenceOnTheWire(t *testing.T) {
	all := State{
		Instance: "i", Whole: true, Gone: []PodName{{"a", "b"}}, Nodes: []NodePresence{{"n1", true, 50}},
		Pods: []PodPresence{{
			PodName: PodName{"shop", "till"}, UID: "u", Node: "n1", Revision: 7, History: 1, Said: true, Ready: true,
			IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		}},
	}
	text, err := json.Marshal(all)
	const want = `{"instance":"i","whole":true,"pods":[{"namespace":"shop","name":"till","uid":"u","node":"n1","revision":7,` +
		`"history":1,"said":true,"ips":["10.0.0.1"],"ready":true}],"gone":[{"namespace":"a","name":"b"}],` +
		`"nodes":[{"name":"n1","silent":true,"graceSeconds":50}]}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	var back State
	if err := json.Unmarshal([]byte(want), &back); err != nil || !reflect.DeepEqual(back, all) {
		t.Errorf("%+v, %v", back, err)
	}
}
