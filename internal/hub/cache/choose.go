package cache

import (
	"time"

	"yurtcoordinator/internal/doubt"
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/lead"
)

// Origin is a source that feeds a replica.
type Origin uint8

const (
	// None means that no source can be reached, or that an attempt would be too early. The replica keeps its content.
	None Origin = iota
	// Cloud is the cluster's API servers, over the WAN.
	Cloud
	// Coordinator is the mirror in the pool's coordinator, over the LAN.
	Coordinator
)

// String returns "none", "cloud" or "coordinator".
func (o Origin) String() string { return [...]string{"none", "cloud", "coordinator"}[o] }

// Access is what a feed can expect of a source.
type Access uint8

const (
	// Down means that the source's link is not up.
	Down Access = iota
	// Up means that the source may be tried.
	Up
	// Expired means that the source has forgotten the changes since the sink's position, so a resume there fails.
	Expired
	// Stale means Expired, and that the source's last snapshot was not newer than the sink. Only a mirror can be Stale.
	Stale
	// Refusing means that the source can be reached, but refused or failed lately. The feed tries it again after a while.
	Refusing
)

// Situation is all that the choice of a source depends on.
type Situation struct {
	// Role is this hub's role in its pool.
	Role lead.Role
	// Cloud and Coordinator are what the feed can expect of the two sources.
	Cloud, Coordinator Access
	// Pool says that this hub has a coordinator, reachable or not.
	Pool bool
	// LeaderKnown says that the pool has a leader, as far as this hub knows.
	LeaderKnown bool
	// Covered says that the leader declares this resource current in the coordinator's mirror.
	Covered bool
	// Filling says that the leader declares that its own list of this resource is under way and makes progress.
	Filling bool
	// Empty says that the sink has no complete content.
	Empty bool
	// Listing says that a list over the WAN is under way.
	Listing bool
}

// Choice is the best thing to do next.
type Choice struct {
	// From is the source. With None, only Why is set.
	From Origin
	// List says to read everything; false means to resume at the sink's position.
	List bool
	// After and a random part of Jitter delay the attempt. The delay of a list over the WAN begins when the sink needs a list and
	// the cloud can be reached. Any other delay begins when the choice is made. A running attempt continues meanwhile.
	After, Jitter time.Duration
	// Meanwhile is the source to resume during the delay if nothing runs; None means no source.
	Meanwhile Origin
	// Why is for people.
	Why string
}

const (
	// coverWait is how long a hub that needs a list waits for the pool's leader to bring the resource to the coordinator: as long
	// as the leader's own list over the WAN may take. Then the hub itself lists over the WAN. A hub that has old content to serve
	// waits longer by doubt.Shown().For, because the leader may doubt its list for that time.
	coverWait = 15 * time.Second
	// fillWait replaces coverWait while the leader declares that its list makes progress, because a second list on the same line
	// would slow down the leader's. It is enough for some 10 MB at 128 kbit/s.
	fillWait = 10 * time.Minute
	// electWait replaces coverWait while no leader is known. A coordinator that has just started accepts no leader for one term.
	// The 6 s are for the election after that, which takes at most 4.3 s.
	electWait = edge.ElectionTerm + 6*time.Second
	// coverJitter spreads the lists of a pool's hubs after these waits.
	coverJitter = 5 * time.Second
	// aloneWait and a random part of aloneJitter are how long a hub with an empty replica waits for a coordinator that it can't
	// reach. When a pool is powered on, the coordinator comes up a second or two after the hubs. Without the wait each hub would
	// list over the WAN. A client's request waits longer (replica.HandlerConfig.Wait).
	aloneWait, aloneJitter = 2 * time.Second, 4 * time.Second
	// startJitter spreads the lists of leaders whose revision the cloud has forgotten. The restart of one API server affects the
	// leaders of many pools at once.
	startJitter = 750 * time.Millisecond
	// expiredJitter spreads the lists of hubs that have no leader to wait for, after the cloud has forgotten their revision. It
	// forgets the revision of all hubs of a pool at once.
	expiredJitter = 10 * time.Second
	// uncoverWait is how long a hub stays at a mirror that the leader does not declare current, before the hub turns to the
	// cloud. The leader renews its declaration every 2 s, so a hub that has just found the coordinator sees a renewal in time.
	// uncoverJitter spreads the hubs that turn to the cloud.
	uncoverWait   = 2500 * time.Millisecond
	uncoverJitter = 2 * time.Second
)

const (
	forgotten   = "the cloud has forgotten our revision"
	poolMayHave = forgotten + ", the pool may have a later one"
	fillingWhy  = "the pool's leader is reading it from the cloud"
)

// Choose returns the best thing to do in a situation. It depends on nothing else.
func Choose(s Situation) Choice {
	switch {
	case s.Empty:
		return asFiller(s)
	case s.Role == lead.Leader && s.Cloud != Down:
		return asLeader(s)
	default:
		return follow(s)
	}
}

// refreshed replaces the choice c while a client waits for the present state: it returns an immediate list. If the sink is empty,
// or if no source can give the present state, it returns c.
func refreshed(s Situation, c Choice) Choice {
	const why = "somebody asks for what is so now"
	switch {
	case s.Empty:
		return c
	case s.Coordinator == Up && s.Covered:
		return Choice{From: Coordinator, List: true, Why: why}
	case s.Cloud == Up || s.Cloud == Expired || s.Cloud == Refusing:
		return Choice{From: Cloud, List: true, Why: why}
	default:
		return c
	}
}

// asFiller chooses a list for an empty sink: of the mirror if that is up or the cloud is down, otherwise of the cloud. If both
// are down, it chooses nothing. A list of the cloud that is under way ends early only for a mirror that the leader keeps current,
// or if the link to the cloud is down.
func asFiller(s Situation) Choice {
	cloud := Choice{From: Cloud, List: true}
	switch {
	case s.Coordinator == Up && (s.Covered || !s.Listing || s.Cloud == Down):
		return Choice{From: Coordinator, List: true, Why: "nothing here yet, and the pool may have it"}
	case s.Cloud == Down && s.Coordinator == Down:
		return Choice{Why: "nothing can be reached"}
	case s.Cloud == Down:
		return Choice{From: Coordinator, List: true, Why: "nothing here yet, and the cloud can't be reached"}
	case s.Role == lead.Leader:
		cloud.Why = "this hub leads, and the pool has nothing yet"
	case s.Coordinator != Down && s.Filling:
		cloud.After, cloud.Jitter, cloud.Why = fillWait, coverJitter, fillingWhy
	case s.Coordinator != Down && s.LeaderKnown:
		cloud.After, cloud.Jitter = coverWait, coverJitter
		cloud.Why = "the pool's leader has not covered it in time"
	case s.Coordinator != Down:
		cloud.After, cloud.Jitter = electWait, coverJitter
		cloud.Why = "nobody leads the pool"
	case s.Pool:
		cloud.After, cloud.Jitter = aloneWait, aloneJitter
		cloud.Why = "the coordinator can't be reached"
	default:
		cloud.Why = "nothing here yet"
	}
	return cloud
}

// asLeader chooses for a leader that can reach the cloud. The leader reads the cloud for its pool.
func asLeader(s Situation) Choice {
	switch {
	case s.Cloud != Expired:
		return Choice{From: Cloud, Why: "this hub leads"}
	case (s.Coordinator == Up || s.Coordinator == Expired) && !s.Listing:
		// This helps only a new leader that had fallen behind its pool. For others it wastes one list over the LAN.
		return Choice{From: Coordinator, List: true, Why: poolMayHave}
	default:
		return Choice{From: Cloud, List: true, Jitter: startJitter, Why: forgotten}
	}
}

// follow chooses for all other hubs with content, and for a leader that cannot reach the cloud.
func follow(s Situation) Choice {
	switch remembers := s.Coordinator == Up || s.Coordinator == Expired; {
	case s.Coordinator == Up && s.Covered:
		return Choice{From: Coordinator, Why: "the pool has it"}
	case s.Coordinator == Up && s.Cloud == Up:
		return Choice{
			From: Cloud, After: uncoverWait, Jitter: uncoverJitter, Meanwhile: Coordinator, Why: "nobody covers it in the pool",
		}
	case s.Cloud == Expired && (s.Listing || !remembers):
		return relist(s)
	case s.Cloud == Expired && s.Coordinator == Up:
		// Not a resume: it would wait forever for a mirror that nobody feeds.
		return Choice{From: Coordinator, List: true, Why: poolMayHave}
	case s.Coordinator == Up:
		return Choice{From: Coordinator, Why: "the cloud can't be used"}
	case s.Coordinator == Expired && s.Cloud == Up:
		return Choice{From: Cloud, Why: "the pool's history begins later"}
	case s.Coordinator == Expired:
		return Choice{From: Coordinator, List: true, Why: "the pool's history begins later, and the cloud can't be resumed"}
	case s.Cloud != Down && !s.Pool:
		return Choice{From: Cloud, Why: "there is no coordinator"}
	case s.Cloud != Down:
		return Choice{From: Cloud, Why: "the coordinator can't be used"}
	case s.Coordinator == Down:
		return Choice{Why: "nothing can be reached"}
	default:
		return Choice{From: Coordinator, List: s.Coordinator == Stale, Why: "the cloud can't be reached"}
	}
}

// relist returns the choice to list over the WAN, for a hub with content whose revision the cloud has forgotten. A hub that
// reaches the coordinator first waits for the leader, which lists soon but may doubt its list. Meanwhile the hub's clients get
// the old content.
func relist(s Situation) Choice {
	c := Choice{From: Cloud, List: true, Jitter: expiredJitter, Why: forgotten}
	switch {
	case s.Coordinator == Down:
	case s.Filling:
		c.After, c.Jitter, c.Why = fillWait, coverJitter, fillingWhy
	case s.LeaderKnown:
		c.After, c.Jitter = doubt.Shown().For+coverWait, coverJitter
	default:
		c.After = electWait
	}
	return c
}
