package heartbeat

import (
	"fmt"
	"testing"

	"yurtcoordinator/internal/hub/link"
)

// TestPlan is the whole decision: every state of both links, every outcome of both sides.
func TestPlan(t *testing.T) {
	const up, down, unknown, failing, lent = link.Up, link.Down, link.Unknown, link.Failing, link.Relayed
	tests := []struct {
		cloud, coordinator link.State
		direct             outcome // of the attempt at the cloud, if there is one
		copied             outcome // of the copy, if kubelet's answer depends on it
		// what goes where, in order, and what kubelet is told
		want string
	}{
		{up, up, took, took, "cloud+clean, accepted"},
		{up, up, denied, took, "cloud+clean, refused"},
		{up, up, failed, took, "cloud+clean, marked, accepted"},
		{up, up, failed, failed, "cloud+clean, marked, unavailable"},
		{up, up, failed, denied, "cloud+clean, marked, unavailable"},
		{up, down, took, took, "cloud, accepted"},
		{up, down, denied, took, "cloud, refused"},
		{up, down, failed, took, "cloud, unavailable"},
		{up, unknown, took, took, "cloud, accepted"},
		{up, unknown, failed, took, "cloud, unavailable"},
		{unknown, up, took, took, "cloud, clean, accepted"},
		{unknown, up, denied, took, "cloud, clean, refused"},
		{unknown, up, failed, took, "cloud, marked, accepted"},
		{unknown, up, failed, failed, "cloud, marked, unavailable"},
		{unknown, down, took, took, "cloud, accepted"},
		{unknown, down, failed, took, "cloud, unavailable"},
		{unknown, unknown, denied, took, "cloud, refused"},
		{failing, up, took, took, "cloud, clean, accepted"},
		{failing, up, denied, took, "cloud, clean, refused"},
		{failing, up, failed, took, "cloud, marked, accepted"},
		{failing, up, failed, failed, "cloud, marked, unavailable"},
		{failing, down, took, took, "cloud, accepted"},
		{failing, down, failed, took, "cloud, unavailable"},
		{lent, up, took, took, "cloud+relayed, accepted"},
		{lent, up, denied, took, "cloud+relayed, refused"},
		{lent, up, failed, took, "cloud+relayed, marked, accepted"},
		{lent, up, failed, failed, "cloud+relayed, marked, unavailable"},
		{lent, down, took, took, "cloud, accepted"},
		{lent, down, failed, took, "cloud, unavailable"},
		{down, up, took, took, "marked, accepted"},
		{down, up, took, failed, "marked, unavailable"},
		{down, up, took, denied, "marked, unavailable"},
		{down, down, took, took, "unavailable"},
		{down, unknown, took, took, "unavailable"},
	}
	for _, tt := range tests {
		name := fmt.Sprintf("cloud %s %s, coordinator %s %s", tt.cloud, tt.direct, tt.coordinator, tt.copied)
		t.Run(name, func(t *testing.T) {
			got := ""
			add := func(s string) {
				if got != "" {
					got += ", "
				}
				got += s
			}
			direct, send, now := start(tt.cloud, tt.coordinator)
			switch {
			case direct && send != nothing:
				add("cloud+" + send.String())
			case direct:
				add("cloud")
			case send != nothing:
				add(send.String())
			}
			if direct {
				var next sending
				if next, now = afterCloud(tt.direct, tt.coordinator, send); next != nothing {
					add(next.String())
				}
			}
			if now == later {
				now = afterCopy(tt.copied)
			}
			add(now.String())
			if got != tt.want {
				t.Errorf("%s; want %s", got, tt.want)
			}
		})
	}
}

func (s sending) String() string { return [...]string{"nothing", "clean", "marked", "relayed"}[s] }

func (a answer) String() string { return [...]string{"later", "accepted", "refused", "unavailable"}[a] }

func (o outcome) String() string { return [...]string{"took", "denied", "failed"}[o] }
