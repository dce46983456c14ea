package appset

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"yurtcoordinator/apis/apps/v1beta1"
)

// statesOf reads pools from words: "old" is available with a former revision, "new" with the wanted one. What follows a dash
// changes that.
func statesOf(t *testing.T, words string) (pools []PoolState) {
	t.Helper()
	for _, word := range strings.Fields(words) {
		parts := strings.Split(word, "-")
		p := PoolState{Current: parts[0] == "new", Health: Settled}
		for _, more := range parts[1:] {
			switch more {
			case "none":
				p.Health = Fresh
			case "underway":
				p.Health = UnderWay
			case "failed":
				p.Health = Failed
			case "down":
				p.Health = Down
			case "away":
				p.Away = true
			case "canary":
				p.Canary = true
			case "busy":
				p.Other = UnderWay
			case "otherfailed":
				p.Other = Failed
			case "otherdown":
				p.Other = Down
			case "other":
				p.Other = Settled
			case "pulling":
				p.Image = Pulling
			case "pulled":
				p.Image = Pulled
			case "notpullable":
				p.Image = NotPullable
			default:
				t.Fatalf("%s in %s", more, word)
			}
		}
		pools = append(pools, p)
	}
	return pools
}

func TestDecide(t *testing.T) {
	atMost := func(n int) *v1beta1.Rollout { return &v1beta1.Rollout{MaxUnavailable: ptr.To(intstr.FromInt(n))} }
	pulls := func(n int) *v1beta1.Rollout {
		r := atMost(n)
		r.PrePull = &v1beta1.PrePull{}
		return r
	}
	paused := atMost(5)
	paused.Paused = true
	for what, tt := range map[string]struct {
		rollout     *v1beta1.Rollout
		pools, want string
		stop        int
	}{
		"no rollout":    {nil, "old old-away new old-down", "Apply Apply Apply Apply", -1},
		"one at a time": {atMost(1), "old old old", "Apply Wait Wait", -1},
		"a share": {&v1beta1.Rollout{MaxUnavailable: ptr.To(intstr.FromString("50%"))},
			"old old old old old", "Apply Apply Wait Wait Wait", -1},
		"the default":                  {&v1beta1.Rollout{}, "old old old", "Apply Wait Wait", -1},
		"one that is under way":        {atMost(1), "new-underway old old", "Apply Wait Wait", -1},
		"room beside it":               {atMost(2), "new-underway old old", "Apply Apply Wait", -1},
		"the next":                     {atMost(1), "new old old", "Apply Apply Wait", -1},
		"new pools":                    {atMost(1), "old-none old-none old", "Apply Apply Apply", -1},
		"a new one does not count":     {atMost(1), "new-none old old", "Apply Apply Wait", -1},
		"paused":                       {paused, "old new old-none old-failed", "Wait Apply Apply Wait", -1},
		"cut off":                      {atMost(1), "old-away old old", "Wait Apply Wait", -1},
		"cut off while under way":      {atMost(1), "new-underway-away old old", "Apply Apply Wait", -1},
		"back":                         {atMost(1), "old new new", "Apply Apply Apply", -1},
		"failed":                       {atMost(2), "new new-failed old old-failed", "Apply Apply Wait Wait", 1},
		"failed, then cut off":         {atMost(1), "new-failed-away old old", "Apply Apply Wait", -1},
		"the repair":                   {atMost(1), "old old-failed old", "Wait Apply Wait", -1},
		"repairs are bounded":          {atMost(2), "old-failed new-underway old-failed old-failed", "Apply Apply Wait Wait", -1},
		"a change meanwhile":           {atMost(1), "old-underway old", "Apply Wait", -1},
		"down by itself":               {atMost(2), "old-down old old", "Wait Apply Apply", -1},
		"down by itself, last":         {atMost(1), "old-down new old-down new", "Apply Apply Wait Apply", -1},
		"down by itself and cut off":   {atMost(1), "old-down-away new", "Wait Apply", -1},
		"down after the change":        {atMost(1), "new-down old", "Apply Apply", -1},
		"canaries":                     {atMost(2), "old old-canary old-canary old", "Wait Apply Apply Wait", -1},
		"a canary under way":           {atMost(2), "old new-canary new-canary-underway old", "Wait Apply Apply Wait", -1},
		"canaries are well":            {atMost(2), "old new-canary new-canary old", "Apply Apply Apply Apply", -1},
		"a canary cut off":             {atMost(2), "old new-canary old-canary-away old", "Apply Apply Wait Apply", -1},
		"a canary failed":              {atMost(2), "old new-canary-failed old-canary old", "Wait Apply Wait Wait", 1},
		"a canary down by itself":      {atMost(1), "old old-canary-down", "Apply Wait", -1},
		"another is under way there":   {atMost(2), "old-busy old-other old", "Wait Apply Wait", -1},
		"the group's room":             {atMost(1), "old-busy old-other old", "Wait Wait Wait", -1},
		"another has failed":           {atMost(3), "old old-otherfailed old", "Wait Wait Wait", 1},
		"another is down there":        {atMost(2), "old-otherdown old", "Wait Apply", -1},
		"another is down there, last":  {atMost(2), "old-otherdown new", "Apply Apply", -1},
		"pulls":                        {pulls(2), "old old old", "Pull Pull Wait", -1},
		"pulls, two under way":         {pulls(2), "old-pulling old-pulling old", "Pull Pull Wait", -1},
		"one is pulled":                {pulls(2), "old-pulling old-pulled old", "Pull Apply Pull", -1},
		"pulled, and no room":          {pulls(1), "new-underway old-pulled old", "Apply Pull Wait", -1},
		"one does not pull":            {pulls(1), "old-notpullable old-pulled old", "Pull Apply Pull", -1},
		"no pull for what is down":     {pulls(1), "old-failed old", "Apply Pull", -1},
		"no pulls while it is stopped": {pulls(2), "new-failed old-pulling old", "Apply Wait Wait", 0},
	} {
		d := Decide(tt.rollout, statesOf(t, tt.pools))
		var got []string
		for _, s := range d.Steps {
			got = append(got, string(s))
		}
		if strings.Join(got, " ") != tt.want || d.Stop != tt.stop {
			t.Errorf("%s: %s: %v, stopped by %d; want %s, %d", what, tt.pools, got, d.Stop, tt.want, tt.stop)
		}
	}
}

// TestABadChangeReachesFew plays rollouts of a change with which no workload becomes available: pools fail at once, later, or are
// cut off and come back. Never have more than maxUnavailable pools the change.
func TestABadChangeReachesFew(t *testing.T) {
	const all = 100
	for _, most := range []int{1, 10} {
		for _, becomes := range []Health{UnderWay, Failed} {
			pools := make([]PoolState, all)
			for i := range pools {
				pools[i] = PoolState{Health: Settled, Away: i%7 == 0}
				switch {
				case i%11 == 0:
					pools[i].Health = Down
				case i%13 == 0:
					pools[i].Health = Failed
				}
			}
			r := &v1beta1.Rollout{MaxUnavailable: ptr.To(intstr.FromInt(most))}
			for range 20 {
				for i, s := range Decide(r, pools).Steps {
					if s == Apply {
						pools[i].Current, pools[i].Health = true, becomes
					}
					pools[i].Away = false
				}
			}
			has := 0
			for _, p := range pools {
				if p.Current {
					has++
				}
			}
			if has > most || has == 0 {
				t.Errorf("at most %d at a time, %s: %d of %d pools have it", most, becomes, has, all)
			}
		}
	}
}

// TestAGoodChangeReachesAll: with none of two workloads of a pool, which share a group, under way at once, and never more pools
// than may be.
func TestAGoodChangeReachesAll(t *testing.T) {
	const all, most = 20, 3
	r := &v1beta1.Rollout{MaxUnavailable: ptr.To(intstr.FromInt(most)), Canary: &metav1.LabelSelector{}}
	var sets [2][]PoolState
	for s := range sets {
		for i := range all {
			sets[s] = append(sets[s], PoolState{Health: Settled, Other: Settled, Canary: i == 5})
		}
	}
	rounds := 0
	done := func() bool {
		return !slices.ContainsFunc(slices.Concat(sets[0], sets[1]), func(p PoolState) bool {
			return !p.Current ||
				p.Health != Settled
		})
	}
	for ; !done(); rounds++ {
		if rounds > 10*all {
			t.Fatalf("it does not end: %+v", sets)
		}
		for s := range sets {
			for i, step := range Decide(r, sets[s]).Steps {
				if step == Apply && !sets[s][i].Current {
					sets[s][i].Current, sets[s][i].Health, sets[1-s][i].Other = true, UnderWay, UnderWay
				}
			}
			under := 0
			for i := range all {
				a, b := sets[0][i].Health == UnderWay, sets[1][i].Health == UnderWay
				if a && b {
					t.Fatalf("both workloads of pool %d are under way", i)
				}
				if a || b {
					under++
				}
				if sets[s][i].Health == UnderWay && i != 5 && !sets[s][5].Current {
					t.Fatalf("pool %d is changed before the canary", i)
				}
			}
			if under > most {
				t.Fatalf("%d pools are under way", under)
			}
		}
		for s := range sets { // the first that is under way becomes available
			if i := slices.IndexFunc(sets[s], func(p PoolState) bool { return p.Health == UnderWay }); i >= 0 {
				sets[s][i].Health, sets[1-s][i].Other = Settled, Settled
			}
		}
	}
}
