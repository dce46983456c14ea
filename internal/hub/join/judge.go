package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/signed"
)

// Least is the lowest version that may replace this program from the cloud. A release that mends a hole raises it to its own.
const Least = "v0.2.0"

// UpgradeRequest asks for an upgrade.
type UpgradeRequest struct {
	// ID names the request in its Result. It is whatever the Pod says.
	ID string `json:"id"`
	// Version is the version that the delivered program must be.
	Version string `json:"version"`
}

// UpgradeResult is what came of a request.
type UpgradeResult = edge.UpgradeResult

// state is how far an upgrade is.
type state string

const (
	// trying means that the new program is put in place, and the hub is judged.
	trying state = "trying"
	// settling means that the hub works with the new program.
	settling state = "settling"
	// goingBack means that the former program is restored.
	goingBack state = "goingBack"
)

// journal is an upgrade that is under way.
type journal struct {
	UpgradeRequest
	From  string `json:"from"`
	State state  `json:"state"`
	// Tries is how many runs have put the new program in place. A run that a kill or a power cut ends is followed by another run.
	// The third run rolls back.
	Tries int `json:"tries"`
	// Sum is the new program's SHA-256, in hex.
	Sum string `json:"sum"`
	// Before is what was wrong with the node before the upgrade, which is not the new program's fault.
	Before []string `json:"before,omitempty"`
	// Why is why it goes back.
	Why string `json:"why,omitempty"`
}

const maxTries = 2

// begun returns the journal when a run takes it up.
func (j journal) begun() journal {
	if j.State != trying {
		return j
	}
	if j.Tries++; j.Tries > maxTries {
		j.State = goingBack
		j.Why = fmt.Sprintf("it was interrupted %d times before it was known whether the hub is well", maxTries)
	}
	return j
}

// result returns what came of it.
func (j journal) result() UpgradeResult {
	r := UpgradeResult{ID: j.ID, Outcome: edge.UpgradeDone, Version: j.Version, From: j.From, Why: j.Why}
	if j.State == goingBack {
		r.Outcome = edge.UpgradeWentBack
	}
	return r
}

// accept returns an error if a signed program is not what was requested, or is below the floor. The names under which a release
// has signed the program say whether it is yurthub, for which platform it is, and which version it has.
func accept(names []string, want, floor, platform string) error {
	has := ""
	for _, name := range names {
		if v, ok := signed.ProgramVersion(name, nameProgram, platform); ok && (has == "" || v == want) {
			has = v
		}
	}
	if has == "" {
		return fmt.Errorf("what was delivered is signed as %s, which is no yurthub for %s", strings.Join(names, ", "), platform)
	}
	if has != want {
		return fmt.Errorf("what was delivered is yurthub %s, and %s was asked for", has, want)
	}
	is, err := version.ParseSemantic(want)
	if err != nil {
		return err
	}
	least, err := version.ParseSemantic(floor)
	if err != nil {
		return fmt.Errorf("%s: %w", FileFloor, err)
	}
	if is.LessThan(least) {
		return fmt.Errorf("%s is below the floor of this node, %s: only somebody on the node can go there, see docs/upgrades.md",
			want, floor)
	}
	return nil
}

// opened returns a release's list of files, if one of the keys has signed it.
func opened(keys, sums, signature []byte) (signed.Sums, error) {
	trusted, err := signed.ParseKeys(keys)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", FileKeys, err)
	}
	return trusted.Open(sums, signature)
}

// namesIn returns the names under which a release's list has a file with this sum.
func namesIn(list signed.Sums, sum string) (names []string, err error) {
	for name, is := range list {
		if is == sum {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, signed.ErrNotListed
	}
	slices.Sort(names)
	return names, nil
}

// higher returns the higher of two versions. One that can't be read is the lower.
func higher(a, b string) string {
	va, errA := version.ParseSemantic(a)
	vb, errB := version.ParseSemantic(b)
	if errA != nil || errB == nil && va.LessThan(vb) {
		return b
	}
	return a
}

// lower returns the lower of two versions.
func lower(a, b string) string {
	if higher(a, b) == a {
		return b
	}
	return a
}

// finding is one of a check's.
type finding struct{ Level, What, Why string }

// failures returns what a check has found to be wrong.
func failures(said string) ([]finding, error) {
	var report struct{ Findings []finding }
	if err := json.Unmarshal([]byte(said), &report); err != nil {
		return nil, fmt.Errorf("yurthub check says no JSON: %.200s", strings.TrimSpace(said))
	}
	if len(report.Findings) == 0 {
		return nil, errors.New("yurthub check has found nothing at all")
	}
	return slices.DeleteFunc(report.Findings, func(f finding) bool { return f.Level != "fail" }), nil
}

// Names of findings about the way to the cloud: what the check finds when it asks the servers itself, and what the hub says.
const (
	findingServers = "cloud"
	findingLink    = "yurthub: cloud"
)

// worse returns the findings that were not there before the upgrade and may be the new program's fault; empty means none. The
// check also asks the cloud's servers itself, without the hub. If that fails, worse ignores findings about the way to the cloud,
// because a cut line is no reason to roll back.
func worse(before []string, now []finding) string {
	cut := slices.ContainsFunc(now, func(f finding) bool { return f.What == findingServers })
	var texts []string
	for _, f := range now {
		if slices.Contains(before, f.What) || cut && (f.What == findingServers || f.What == findingLink) {
			continue
		}
		texts = append(texts, f.What+": "+f.Why)
	}
	return strings.Join(texts, "; ")
}

// names returns what is wrong, for the journal.
func names(all []finding) (what []string) {
	for _, f := range all {
		what = append(what, f.What)
	}
	return what
}

// printedVersion returns the version in what `yurthub --version` prints.
func printedVersion(said string) (string, error) {
	if fields := strings.Fields(said); len(fields) > 1 && fields[0] == nameProgram {
		if _, err := version.ParseSemantic(fields[1]); err == nil {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("it does not report its version, but %.100q", strings.TrimSpace(said))
}
