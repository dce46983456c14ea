package edge

import "time"

// PathLinks is where operators make a link to a coordinator's page (POST), list such links (GET), and withdraw all of them
// (DELETE). The answer to a POST is a NewPageLink. The answer to a GET is a PageLinks with the links that are valid, the answer
// to a DELETE one with those that were withdrawn.
const PathLinks = "/links/v1"

const (
	// QueryFor is how long a link is to live, as a Go duration; the parameter of a POST.
	QueryFor = "for"
	// QuerySecret is the secret in a link to the page.
	QuerySecret = "link"

	// MaxLinks bounds the links of a coordinator that live, and MaxLinkLife the time that one lives.
	MaxLinks    = 16
	MaxLinkLife = 24 * time.Hour
)

// PageLink is what a coordinator tells of a link to its page.
type PageLink struct {
	Issuer string    `json:"issuer"`
	Until  time.Time `json:"until"`
}

// PageLinks are several.
type PageLinks struct {
	Links []PageLink `json:"links"`
}

// NewPageLink is a link that was just made. Only this answer has the secret.
type NewPageLink struct {
	PageLink
	Secret string `json:"secret"`
	// At are the ADDRESS:PORTs where the page is shown by links, the best first.
	At []string `json:"at"`
}
