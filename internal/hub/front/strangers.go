package front

import (
	"net/http"
	"time"

	"yurtcoordinator/internal/conns"
	"yurtcoordinator/internal/ends"
)

// mostUnproven is how many requests an address may send to the cloud within unprovenTime before the hub finds out whose they are.
const mostUnproven, unprovenTime = 20, 10 * time.Second

// strangers bounds what goes over the WAN for clients that the cloud does not know, because the cloud would refuse it in the end.
// Until the hub knows whose a token is, few requests with it pass, and none with a large body. A nil strangers bounds nothing. It
// is safe for concurrent use.
type strangers struct{ pace *budget }

func newStrangers(c ends.Clock) *strangers {
	return &strangers{newBudget(c, mostUnproven, unprovenTime)}
}

// admit reports whether a request may go to the cloud. For a request that is too much for a stranger, it calls the function
// known, which reports whether the hub knows whose token the request has.
func (s *strangers) admit(r *http.Request, known func() bool) bool {
	if s == nil {
		return true
	}
	small := 0 <= r.ContentLength && r.ContentLength <= BodyBytes && r.Header.Get("Upgrade") == ""
	return small && s.pace.spend(conns.SourceOf(r)) || Bearer(r) != "" && known()
}
