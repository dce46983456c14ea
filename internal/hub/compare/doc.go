// Package compare has followers compare what their pool's coordinator says of the shared resources with the cloud. One copy for
// all means that whoever brings it is believed: a leader whose machine is in a thief's hands could send a whole site's traffic
// where it likes. A follower that has a link of its own can see that.
//
// A follower looks at objects at random, one at a time: it reads the object in the cloud, and waits until its replica, which the
// coordinator feeds, has come as far as the cloud was then. Twice in a while one of the followers lists all of a resource.
// plan.go has the numbers: a lie about a tenth of a resource's objects is found within an hour with a probability of 0.99, one
// about a single object within a day, for 10 MB a day of the whole pool (metered: four hours, a day, 3 MB).
//
//	random object ─▶ cloud: object, as of revision R ─▶ replica reaches R ─▶ judge ─┬─ same, or changed since: nothing
//	   list of all ─▶ cloud: all objects, as of R ────▶ replica reaches R ──────────┤
//	                                                    missing: look at it ◀───────┤
//	                                                                                └─ lie: Event, metric
//
// Revisions are the cloud's (ADR 6), so a change that is under way is no lie: what the replica has from after R says nothing,
// and what it has from before R must be what the cloud had at R, to the byte. A server that writes the same object in other
// bytes, as in an upgrade, is asked again: a lie is what no answer agrees with.
//
// Invariants: nothing is compared but what the coordinator feeds, in one history; a request is sent only while this hub follows,
// the link is up, and the day's bytes are not used up; nothing is done about a liar but to name it. Who leads when a lie is
// found is named, and who else led since the resource was last found right as a whole.
package compare
