package recall

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/run"
)

const (
	// renewAfter is the age at which an equal answer renews a user's Stamp on the disk. Until then the disk is spared the write,
	// so an answer may hold for up to an hour less than TenureConfig.Limit. The Stamp of a Pod of this node is not renewed,
	// whatever its age.
	renewAfter = time.Hour

	// The keys in a user's extra under which an API server says what a ServiceAccount's token is bound to.
	podName = "authentication.kubernetes.io/pod-name"
	podUID  = "authentication.kubernetes.io/pod-uid"
	onNode  = "authentication.kubernetes.io/node-name"

	accountPrefix = "system:serviceaccount:"
)

// TenureDisk is where the clock is kept; store.Store is one.
type TenureDisk interface {
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
}

// TenureConfig is what a Tenure needs. All fields but Boot are required.
type TenureConfig struct {
	Node edge.NodeName
	// Limit is how long answers hold about users that are not Pods of this node; 0 means not at all. SetLimit changes it.
	Limit time.Duration
	// PodUID returns the UID of a Pod of this node, and whether that is known. The UID is empty if the node has no Pod of that
	// name.
	PodUID func(namespace, name string) (uid string, known bool)
	Disk   TenureDisk
	// Wall is the machine's clock, which may step.
	Wall func() time.Time
	// Boot returns an ID of the machine's present boot, and the time since that boot, suspension included. nil means to ask the
	// kernel.
	Boot func() (id string, since time.Duration)
	// Chance is where random numbers come from.
	Chance ends.Chance
}

// Tenure decides how long answers hold. Make one with NewTenure; safe for concurrent use.
type Tenure struct {
	cfg   TenureConfig
	clock *clock
	limit atomic.Int64 // a time.Duration
}

// NewTenure returns a Tenure whose clock continues from the disk's.
func NewTenure(c TenureConfig) *Tenure {
	if c.Boot == nil {
		c.Boot = boot
	}
	t := &Tenure{cfg: c, clock: newClock(c)}
	t.SetLimit(c.Limit)
	return t
}

// SetLimit changes TenureConfig.Limit.
func (t *Tenure) SetLimit(limit time.Duration) { t.limit.Store(int64(limit)) }

// Run saves the clock, and calls the tidy functions, which forget expired answers, until ctx ends.
func (t *Tenure) Run(ctx context.Context, tidy ...func()) error {
	for {
		t.clock.save()
		for _, forget := range tidy {
			forget()
		}
		if run.Pause(ctx, saveEvery) != nil { // the hub is stopping
			t.clock.save()
			return nil //nolint:nilerr // so it is no error
		}
	}
}

// Stamp says when the cloud answered about a user, and which Pod of this node the user is. It is stored with the answer. The
// zero Stamp means that the time is unknown.
type Stamp struct {
	Ran  int64      `json:"ran"`           // seconds of the clock
	Wall int64      `json:"wall"`          // Unix seconds of the machine's clock
	Pod  *TenurePod `json:"pod,omitempty"` // nil means that the user is no Pod of this node
}

// TenurePod is a Pod of this node.
type TenurePod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Stamp returns the Stamp of an answer about a user now.
func (t *Tenure) Stamp(u *authenticationv1.UserInfo) Stamp {
	ran, wall := t.clock.now()
	return Stamp{Ran: ran, Wall: wall, Pod: t.podOf(u)}
}

// podOf returns the Pod of this node that a user is; nil means none.
func (t *Tenure) podOf(u *authenticationv1.UserInfo) *TenurePod {
	account, ok := strings.CutPrefix(u.Username, accountPrefix)
	namespace, _, _ := strings.Cut(account, ":")
	name, uid := only(u.Extra[podName]), only(u.Extra[podUID])
	if !ok || namespace == "" || name == "" || uid == "" {
		return nil
	}
	if now, known := t.cfg.PodUID(namespace, name); known && now == uid || only(u.Extra[onNode]) == string(t.cfg.Node) {
		return &TenurePod{namespace, name, uid}
	}
	return nil
}

func only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// Renews reports whether to replace a Stamp on the disk by a new one, although the answer is the same.
func (t *Tenure) Renews(next, old Stamp) bool {
	if next.Pod != nil || old.Pod != nil {
		return next.Pod == nil || old.Pod == nil || *next.Pod != *old.Pod
	}
	return t.clock.age(old) >= renewAfter
}

// TenureVerdict says whether an answer holds.
type TenureVerdict uint8

const (
	// Over means that the answer no longer holds, and must be forgotten.
	Over TenureVerdict = iota
	// Unsure means that the answer does not hold now, but may again once the node's Pods are known.
	Unsure
	// Holds means that the answer still counts.
	Holds
)

// String returns the name for people to read.
func (v TenureVerdict) String() string { return [...]string{"over", "unsure", "holds"}[v] }

// Judge decides whether an answer holds while the cloud cannot be asked.
func (t *Tenure) Judge(s Stamp) TenureVerdict {
	limit := time.Duration(t.limit.Load())
	recent := limit > 0 && t.clock.age(s) <= limit
	if s.Pod == nil {
		return holdsIf(recent, Over)
	}
	uid, known := t.cfg.PodUID(s.Pod.Namespace, s.Pod.Name)
	if known {
		return holdsIf(uid == s.Pod.UID, Over)
	}
	return holdsIf(recent, Unsure)
}

func holdsIf(yes bool, otherwise TenureVerdict) TenureVerdict {
	if yes {
		return Holds
	}
	return otherwise
}
