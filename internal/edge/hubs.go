package edge

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// AnnotationHub, on the coordinator's copy of a node's Lease, is the state of the node's hub, in the form of HubReport.String.
// It never reaches the cloud.
const AnnotationHub = "openyurt.io/hub"

// AnnotationHubs, on the Lease that ReportLease names, is the summary of the pool's hubs, in the form of PoolHubs.String. Its
// length hardly depends on the size of the pool.
const AnnotationHubs = "openyurt.io/hubs"

// HubReport is a hub's report about itself to its pool.
type HubReport struct {
	// Link is the state of its link to the cloud, one of LinkStates.
	Link string `json:"link"`
	// Carried is what that link has carried since the hub started.
	Carried Carried `json:"carried,omitempty"`
	// Troubles are the reasons that keep the hub from its work.
	Troubles []HubTrouble `json:"troubles,omitempty"`
	// Certificates are those in use, by CertificateClient and CertificateServing.
	Certificates map[string]Life `json:"certificates,omitempty"`
	// Settings is the generation of the pool's settings that it runs with; 0 means none.
	Settings int64 `json:"settings,omitempty"`
}

// CoordinatorStatus is one of a pool's coordinators as a hub sees it.
type CoordinatorStatus struct {
	Slot int `json:"slot"`
	// Address is the coordinator's address, and Link is the state of the hub's link to it.
	Address string `json:"address"`
	Link    string `json:"link"`
	// Home says that the coordinator is the one that the hub works with. Leader is the node that leads at the coordinator, as far
	// as the hub knows.
	Home   bool     `json:"home,omitempty"`
	Leader NodeName `json:"leader,omitempty"`
}

// LinkStates are the states of a hub's link to the cloud.
var LinkStates = []string{"unknown", "up", "failing", "relayed", "down"}

// CarriedKinds are the kinds of what a link carries.
var CarriedKinds = []string{"framing", "probe", "connect", "heartbeat", "watch", "list", "read", "write", "stream"}

// Carried is what links have carried, in bytes, by kind.
type Carried map[string]Bytes

// Bytes are those that were sent and received.
type Bytes [2]uint64

// Kinds of certificates of a hub.
const (
	CertificateClient  = "client"
	CertificateServing = "serving"
)

// Life is how long a certificate lasts, in seconds since 1970.
type Life struct {
	From  int64 `json:"from"`
	Until int64 `json:"until"`
}

// Left returns the share of the life that is left, between 0 and 1.
func (l Life) Left(now time.Time) float64 {
	if l.Until <= l.From {
		return 0
	}
	return min(1, max(0, float64(l.Until-now.Unix())/float64(l.Until-l.From)))
}

// HubTrouble is something that keeps a hub from its work.
type HubTrouble string

// Values of HubTrouble.
const (
	// TroubleDisk means that the hub cannot write its cache: its node could not restart while cut off.
	TroubleDisk HubTrouble = "disk"
	// TroubleDamage means that the hub found damage on its disk when it started.
	TroubleDamage HubTrouble = "disk-damaged"
	// TroubleClient and TroubleServing mean that a certificate should have been renewed long ago.
	TroubleClient  HubTrouble = "client-certificate"
	TroubleServing HubTrouble = "serving-certificate"
)

// HubTroubles are all values of HubTrouble.
var HubTroubles = []HubTrouble{TroubleDisk, TroubleDamage, TroubleClient, TroubleServing}

// TroubleOf returns the trouble of a certificate of that kind that should have been renewed long ago.
func TroubleOf(certificate string) HubTrouble { return HubTrouble(certificate + "-certificate") }

// PoolHubs is the leader's summary of the hubs that reach the coordinator.
type PoolHubs struct {
	// Term is the number of the term in which this leader leads.
	Term int32 `json:"term"`
	// Links counts hubs by the states of their links.
	Links map[string]int `json:"links,omitempty"`
	// Carried is what the links of all hubs have carried in that term.
	Carried Carried `json:"carried,omitempty"`
	// Certificates has, for each kind, the certificate with the least share of its life left.
	Certificates map[string]Life `json:"certificates,omitempty"`
	// OldestSettings is the lowest generation of settings that a hub runs with, and NewestSettings the highest.
	OldestSettings int64 `json:"oldestSettings,omitempty"`
	NewestSettings int64 `json:"newestSettings,omitempty"`
	// Answer is how long a heartbeat takes on the slowest line of the pool's nodes, in milliseconds. Lost is how many
	// heartbeats of all lines got no answer in the last ten minutes. Both are 0 if no line is known.
	Answer int64 `json:"answer,omitempty"`
	Lost   int   `json:"lost,omitempty"`
	// Troubles are nodes whose hubs have trouble, MostTroubled at most for each; More counts the others.
	Troubles map[HubTrouble][]NodeName `json:"troubles,omitempty"`
	More     int                       `json:"more,omitempty"`
}

const (
	// MostTroubled is how many nodes a PoolHubs names for each trouble.
	MostTroubled = 20
	// longestHubs bounds what is read of either report, in bytes, because any node of the pool may have written it.
	longestHubs = 16 << 10
)

// String writes the report in JSON. ParseHubReport reads it.
func (r HubReport) String() string { return written(r) }

// String writes the report in JSON. ParsePoolHubs reads it.
func (p PoolHubs) String() string { return written(p) }

func written(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // no field of these types can fail
	}
	return string(text)
}

// ParseHubReport reads what HubReport.String wrote, and leaves out what it does not know. It returns false for anything else.
func ParseHubReport(value string) (r HubReport, ok bool) {
	if len(value) > longestHubs || json.Unmarshal([]byte(value), &r) != nil || !slices.Contains(LinkStates, r.Link) {
		return HubReport{}, false
	}
	r.Carried.clean()
	maps.DeleteFunc(r.Certificates, strange)
	r.Troubles = slices.DeleteFunc(r.Troubles, func(t HubTrouble) bool { return !slices.Contains(HubTroubles, t) })
	slices.Sort(r.Troubles)
	r.Troubles = slices.Compact(r.Troubles)
	r.Settings = max(0, r.Settings)
	return r, true
}

// ParsePoolHubs reads what PoolHubs.String wrote, and leaves out what it does not know. It returns false for anything else.
func ParsePoolHubs(value string) (p PoolHubs, ok bool) {
	if len(value) > longestHubs || json.Unmarshal([]byte(value), &p) != nil {
		return PoolHubs{}, false
	}
	p.Carried.clean()
	maps.DeleteFunc(p.Certificates, strange)
	maps.DeleteFunc(p.Links, func(state string, n int) bool { return !slices.Contains(LinkStates, state) || n < 0 })
	maps.DeleteFunc(p.Troubles, func(t HubTrouble, _ []NodeName) bool { return !slices.Contains(HubTroubles, t) })
	for t, nodes := range p.Troubles {
		p.Troubles[t] = nodes[:min(len(nodes), MostTroubled)]
	}
	p.More, p.Lost, p.Answer = max(0, p.More), max(0, p.Lost), max(0, p.Answer)
	p.OldestSettings, p.NewestSettings = max(0, p.OldestSettings), max(0, p.NewestSettings)
	return p, true
}

// clean drops unknown kinds, and numbers too large for a link, so that sums do not overflow.
func (c Carried) clean() {
	const most = 1 << 60
	maps.DeleteFunc(c, func(kind string, b Bytes) bool {
		return !slices.Contains(CarriedKinds, kind) || b[0] > most || b[1] > most
	})
}

func strange(kind string, l Life) bool {
	return kind != CertificateClient && kind != CertificateServing || l.Until <= l.From
}

// Since returns what the links have carried since an earlier count, the parameter before. If a counter is lower than it was, its
// hub has restarted, and all of the counter is new.
func (c Carried) Since(before Carried) Carried {
	news := Carried{}
	for kind, b := range c {
		var n Bytes
		for i := range b {
			if n[i] = b[i]; b[i] >= before[kind][i] {
				n[i] -= before[kind][i]
			}
		}
		if n != (Bytes{}) {
			news[kind] = n
		}
	}
	return news
}

// Add adds what was carried to c.
func (c Carried) Add(more Carried) {
	for kind, b := range more {
		sum := c[kind]
		sum[0] += b[0]
		sum[1] += b[1]
		c[kind] = sum
	}
}
