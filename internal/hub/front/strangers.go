package front

import (
	"net/http"
	"time"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

// mostUnproven is how many requests of one address may go to the cloud within unprovenTime without a look at whose they are: 2 a
// second.
const mostUnproven, unprovenTime = 20, 10 * time.Second

// strangers bounds what goes over the WAN for those whom the cloud does not know, because it would refuse them in the end. Until
// the hub knows whose a token is, few requests with it pass, and none with a large body. A nil one bounds nothing. Safe for
// concurrent use.
type strangers struct{ pace *budget }

func newStrangers(c ends.Clock) *strangers {
	return &strangers{newBudget(c, mostUnproven, unprovenTime)}
}

// admit reports whether a request may go to the cloud. It calls known, which finds out whose the token is, only if the request is
// too much for a stranger.
func (s *strangers) admit(r *http.Request, known func() bool) bool {
	if s == nil {
		return true
	}
	small := 0 <= r.ContentLength && r.ContentLength <= BodyBytes && r.Header.Get("Upgrade") == ""
	return small && s.pace.spend(conns.SourceOf(r)) || Bearer(r) != "" && known()
}
