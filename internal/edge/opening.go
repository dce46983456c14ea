package edge

import "time"

// PathOpenings is where a coordinator tells its pool's leader who opened what, by POST of an OpeningsRequest. The answer is
// an OpeningsAnswer.
const PathOpenings = "/openings/v1"

// Act is what an Opening tells of.
type Act string

// The acts.
const (
	// ActBegan is the start of the coordinator. What the one before it had not told is lost.
	ActBegan Act = "began"
	// ActOpened is a stream into a container that was let in.
	ActOpened Act = "opened"
	// ActEnded is the end of a stream that was told before as one that goes on.
	ActEnded Act = "ended"
	// ActRefused is a stream that was refused.
	ActRefused Act = "refused"
)

// Attempt is who tried what. Two that are equal are told as one. The texts come from a caller, and are bounded. Where there are
// too many different ones, an Attempt has the user without the rest, or the Act alone.
type Attempt struct {
	Act Act `json:"act"`

	User   string `json:"user,omitempty"`
	Groups string `json:"groups,omitempty"` // by commas
	// Certificate is the client certificate's digest, as spec.deniedUsers of a YurtCoordinator takes it; Serial its number.
	Certificate string `json:"certificate,omitempty"`
	Serial      string `json:"serial,omitempty"`

	Source    string `json:"source,omitempty"` // an IP address
	Stream    string `json:"stream,omitempty"` // exec, attach or portforward
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"` // if the caller named it
	Program   string `json:"program,omitempty"`   // of an exec: the first word of its command, and no other
	Reason    string `json:"reason,omitempty"`    // of a refusal

	// Of is the number of the Opening whose stream has ended.
	Of uint64 `json:"of,omitempty"`
}

// Opening is one or more equal Attempts, as the cloud is to hear of them. Times are by the coordinator's clock.
type Opening struct {
	Number uint64 `json:"number"`
	Attempt
	Count int       `json:"count"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Over is how many of those that were opened have ended, the last of them at End.
	Over int        `json:"over,omitempty"`
	End  *time.Time `json:"end,omitempty"`
}

// OpeningsRequest is what a leader posts.
type OpeningsRequest struct {
	// Term is the leader's Term.Transitions.
	Term int32 `json:"term"`
	// Told are the numbers of the openings that the cloud has, of the coordinator with this Instance.
	Instance string   `json:"instance,omitempty"`
	Told     []uint64 `json:"told,omitempty"`
}

// OpeningsAnswer is what a coordinator answers: what the cloud is to hear now. With the Instance, which is the coordinator's from
// its start to its end, a number names an opening for good, and what it says does not change.
type OpeningsAnswer struct {
	Instance string    `json:"instance"`
	Openings []Opening `json:"openings"`
}
