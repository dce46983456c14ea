package recall

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// machine is what a hub runs on: its disk, its clocks, and the Pods that are known.
type machine struct {
	*Tenure
	disk    map[string][]byte
	durable map[string][]byte // what a power cut leaves
	step    time.Duration     // of the machine's clock
	boot    string
	booted  time.Time
	pods    map[string]string // namespace/name → UID; nil: nothing is known
	limit   time.Duration
}

func (m *machine) PutBlob(key string, value []byte) error { m.disk[key] = value; return nil }

func (m *machine) Blob(key string) ([]byte, error) {
	if v, ok := m.disk[key]; ok {
		return v, nil
	}
	return nil, errors.New("miss")
}

func newMachine(limit time.Duration) *machine {
	m := &machine{disk: map[string][]byte{}, boot: "1", booted: time.Now(), limit: limit}
	m.pods = map[string]string{"kube-system/dns": "u1"}
	m.restart()
	return m
}

// restart restarts the hub alone.
func (m *machine) restart() {
	m.Tenure = NewTenure(TenureConfig{
		Node: "n1", Limit: m.limit, Disk: m, Wall: func() time.Time { return time.Now().Add(m.step) },
		PodUID: func(namespace, name string) (string, bool) { return m.pods[namespace+"/"+name], m.pods != nil },
		Boot:   func() (string, time.Duration) { return m.boot, time.Since(m.booted) },
	})
	m.clock.save()
}

// cycle cuts the machine's power for a while. Only what was saved by then is there.
func (m *machine) cycle(off time.Duration) {
	time.Sleep(off)
	m.boot, m.booted = m.boot+"+", time.Now()
	m.disk = maps.Clone(m.durable)
	m.restart()
}

// runs lets time pass, in which the clock is saved as Run saves it.
func (m *machine) runs(d time.Duration) {
	for ; d >= saveEvery; d -= saveEvery {
		time.Sleep(saveEvery)
		m.clock.save()
		m.durable = maps.Clone(m.disk)
	}
	time.Sleep(d)
}

func account(name string, extra ...string) *authenticationv1.UserInfo {
	u := &authenticationv1.UserInfo{Username: name, Extra: map[string]authenticationv1.ExtraValue{}}
	for i := 0; i+1 < len(extra); i += 2 {
		u.Extra["authentication.kubernetes.io/"+extra[i]] = authenticationv1.ExtraValue{extra[i+1]}
	}
	return u
}

var (
	dns   = account("system:serviceaccount:kube-system:coredns", "pod-name", "dns", "pod-uid", "u1")
	admin = account("admin")
)

func TestWhoIsAPodOfThisNode(t *testing.T) {
	const sa = "system:serviceaccount:kube-system:coredns"
	for _, tt := range []struct {
		name string
		user *authenticationv1.UserInfo
		want bool
	}{
		{"one that is there", dns, true},
		{"one of another UID", account(sa, "pod-name", "dns", "pod-uid", "u2"), false},
		{"one that is not there", account(sa, "pod-name", "web", "pod-uid", "u1"), false},
		{"one of another namespace", account("system:serviceaccount:a:coredns", "pod-name", "dns", "pod-uid", "u1"), false},
		{"one that is not there yet, on this node", account(sa, "pod-name", "new", "pod-uid", "u3", "node-name", "n1"), true},
		{"one on another node", account(sa, "pod-name", "new", "pod-uid", "u3", "node-name", "n2"), false},
		{"a name without a UID", account(sa, "pod-name", "dns"), false},
		{"a UID without a name", account(sa, "pod-uid", "u1"), false},
		{"a token of no Pod", account(sa), false},
		{"no ServiceAccount", account("coredns", "pod-name", "dns", "pod-uid", "u1", "node-name", "n1"), false},
		{"an admin", admin, false},
		{"two names", &authenticationv1.UserInfo{Username: sa, Extra: map[string]authenticationv1.ExtraValue{
			podName: {"dns", "web"}, podUID: {"u1"},
		}}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine(time.Hour)
			if got := m.Stamp(tt.user).Pod != nil; got != tt.want {
				t.Errorf("%s is a Pod of this node: %t, want %t", tt.name, got, tt.want)
			}
		})
	}
}

func TestHowLongItHolds(t *testing.T) {
	const day = 24 * time.Hour
	gone := func(m *machine) { m.pods = map[string]string{} }
	unknown := func(m *machine) { m.pods = nil }
	again := func(m *machine) { m.pods = map[string]string{"kube-system/dns": "u2"} }
	for _, tt := range []struct {
		name   string
		user   *authenticationv1.UserInfo
		limit  time.Duration
		passes func(m *machine)
		want   TenureVerdict
	}{
		{"just now", admin, day, func(*machine) {}, Holds},
		{"within the limit", admin, day, func(m *machine) { m.runs(23 * time.Hour) }, Holds},
		{"beyond the limit", admin, day, func(m *machine) { m.runs(25 * time.Hour) }, Over},
		{"no limit is not at all", admin, 0, func(*machine) {}, Over},
		{"a Pod, long after", dns, day, func(m *machine) { m.runs(365 * day) }, Holds},
		{"a Pod, where nothing else is remembered", dns, 0, func(m *machine) { m.runs(365 * day) }, Holds},
		{"a Pod that is gone", dns, day, gone, Over},
		{"a Pod of the same name", dns, day, again, Over},
		{"it is not known which Pods there are", dns, day, unknown, Holds},
		{"nor for long", dns, day, func(m *machine) { unknown(m); m.runs(25 * time.Hour) }, Unsure},
		{"nor where nothing else is remembered", dns, 0, unknown, Unsure},
		{"a Pod, after a power cut", dns, day, func(m *machine) { m.runs(time.Hour); m.cycle(30 * day) }, Holds},

		{"the hub restarts", admin, day, func(m *machine) { m.runs(20 * time.Hour); m.restart(); m.runs(3 * time.Hour) }, Holds},
		{"the hub restarts, and time goes on", admin, day,
			func(m *machine) { m.runs(20 * time.Hour); m.restart(); m.runs(5 * time.Hour) }, Over},
		{"the hub is off, the machine runs", admin, day, func(m *machine) { time.Sleep(25 * time.Hour); m.restart() }, Over},
		{"the power is off", admin, day, func(m *machine) { m.runs(time.Hour); m.cycle(25 * time.Hour) }, Over},
		{"the power is off for a while", admin, day, func(m *machine) { m.runs(time.Hour); m.cycle(20 * time.Hour) }, Holds},
		{"the clock goes back an hour", admin, day,
			func(m *machine) { m.runs(time.Hour); m.step = -time.Hour; m.runs(time.Hour) }, Holds},
		{"the clock goes back a month, and time goes on", admin, day,
			func(m *machine) { m.step = -30 * day; m.runs(25 * time.Hour) }, Over},
		{"the clock goes back again and again", admin, day, func(m *machine) {
			for range 25 {
				m.runs(time.Hour)
				m.step -= time.Hour
				m.restart()
			}
		}, Over},
		{"the clock starts in 1970 after each power cut", admin, day, func(m *machine) {
			m.runs(time.Hour)
			m.step = -50 * 365 * day
			for range 24 {
				m.cycle(time.Second)
				m.runs(time.Hour)
			}
		}, Over},
		{"the power is cut before the clock is saved, again and again", admin, day, func(m *machine) {
			m.runs(saveEvery)
			m.step = -50 * 365 * day
			for range 24 * 6 {
				m.cycle(time.Second)
				m.durable = maps.Clone(m.disk) // as Run begins
				m.runs(time.Minute)
			}
		}, Over},
		{"the clock goes ahead an hour", admin, day, func(m *machine) { m.step = time.Hour }, Holds},
		{"the clock goes ahead a month", admin, day, func(m *machine) { m.step = 30 * day }, Over},
		{"a Pod, the clock goes ahead", dns, day, func(m *machine) { m.step = 365 * day }, Holds},
		{"the disk has lost the clock", admin, day, func(m *machine) { m.runs(time.Hour); clear(m.disk); m.restart() }, Over},
		{"the disk has an older clock", admin, day, func(m *machine) {
			older := maps.Clone(m.disk)
			m.runs(time.Hour)
			said := m.Stamp(admin)
			m.disk, m.boot = older, "2"
			m.booted = time.Now()
			m.step = -time.Hour
			m.restart()
			if m.Judge(said) != Over {
				t.Error("a Stamp from the future is believed")
			}
		}, Holds},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(tt.limit)
				m.durable = maps.Clone(m.disk)
				said := m.Stamp(tt.user)
				if m.Judge(said) != Holds && tt.limit > 0 {
					t.Fatalf("at first: %v", m.Judge(said))
				}
				tt.passes(m)
				if got := m.Judge(said); got != tt.want {
					t.Errorf("%v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestWhatIsWorthWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(24 * time.Hour)
		said, pods := m.Stamp(admin), m.Stamp(dns)
		m.runs(59 * time.Minute)
		if m.Renews(m.Stamp(admin), said) {
			t.Error("after 59 minutes")
		}
		m.runs(2 * time.Minute)
		if !m.Renews(m.Stamp(admin), said) {
			t.Error("not after an hour")
		}
		m.runs(100 * time.Hour)
		if m.Renews(m.Stamp(dns), pods) {
			t.Error("a Pod's, which needs no time")
		}
		if !m.Renews(pods, m.Stamp(admin)) || !m.Renews(Stamp{Pod: &TenurePod{"kube-system", "dns", "u2"}}, pods) {
			t.Error("not that it is another Pod's")
		}
	})
}

func TestTheClockIsKeptWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(24 * time.Hour)
		said, tidied := m.Stamp(admin), 0
		ended := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(ended)
			if err := m.Run(ctx, func() { tidied++ }); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(23*time.Hour + time.Minute)
		cancel()
		<-ended
		if tidied < 100 {
			t.Errorf("tidied %d times", tidied)
		}
		m.durable = maps.Clone(m.disk)
		m.step = -48 * time.Hour
		m.cycle(0)
		if got := m.Judge(said); got != Holds {
			t.Errorf("after 23 h: %v", got)
		}
		time.Sleep(time.Hour)
		if got := m.Judge(said); got != Over {
			t.Errorf("after 24 h: %v", got)
		}
	})
}

func TestTheKernelsClock(t *testing.T) {
	id, since := boot()
	again, later := boot()
	if id == "" || id != again || since <= 0 || later < since {
		t.Errorf("%q %v, then %q %v", id, since, again, later)
	}
}
