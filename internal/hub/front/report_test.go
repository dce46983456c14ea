package front

import (
	"reflect"
	"testing"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/identity"
)

func TestAdd(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	id := &identity.Status{Client: identity.State{NotBefore: at(1), NotAfter: at(2)}}
	for name, c := range map[string]struct {
		disk *cache.DiskStatus
		id   *identity.Status
		want edge.HubReport
	}{
		"nothing is known": {nil, nil, edge.HubReport{Link: "up"}},
		"all is well": {&cache.DiskStatus{Bytes: 1}, id, edge.HubReport{
			Link: "up", Certificates: map[string]edge.Life{"client": {From: 1, Until: 2}},
		}},
		"the disk": {&cache.DiskStatus{Error: "full", Corrupt: "a page"}, nil, edge.HubReport{
			Link: "up", Troubles: []edge.HubTrouble{edge.TroubleDisk, edge.TroubleDamage},
		}},
	} {
		if got := AddToReport(edge.HubReport{Link: "up"}, c.disk, c.id); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
