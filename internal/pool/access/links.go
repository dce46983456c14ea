package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/ends"
)

// secretBytes is how many random bytes are in a link. Nobody guesses them, so guesses are not counted.
const secretBytes = 32

// Errors of Make.
var (
	ErrLinkLife  = fmt.Errorf("a link lives for 1s to %v", edge.MaxLinkLife)
	ErrManyLinks = fmt.Errorf("there are %d links already: wait until one ends, or withdraw them (kubectl yurt ui POOL "+
		"--withdraw)", edge.MaxLinks)
	ErrLinkEnded = errors.New("this link has ended, or was withdrawn, or is not of this coordinator")
)

// Links are the links by which somebody without a certificate may see the pool's page. Only the SHA-256 of a link's secret is
// kept, and only in memory. A link ends after its life, when it is withdrawn, when its issuer is denied, or with the process.
//
// The alternative was a signed token, for which no list is kept. But a token could not be withdrawn without a list.
type Links struct {
	clock  ends.Clock
	denied func(user.Info) bool

	mu   sync.Mutex
	live []link // the oldest first
}

type link struct {
	digest [sha256.Size]byte
	issuer user.Info
	made   ends.Moment
	life   time.Duration
}

// NewLinks returns Links without any. denied reports whether a user's certificates are no longer valid; it must not block.
func NewLinks(c ends.Clock, denied func(user.Info) bool) *Links {
	return &Links{clock: c, denied: denied}
}

// Make makes a link for a user and returns its secret. The error is ErrLinkLife or ErrManyLinks.
func (l *Links) Make(issuer user.Info, life time.Duration) (secret string, made edge.PageLink, err error) {
	if life < time.Second || life > edge.MaxLinkLife {
		return "", edge.PageLink{}, ErrLinkLife
	}
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // it never fails
	secret = base64.RawURLEncoding.EncodeToString(random)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropEndedLocked()
	if len(l.live) >= edge.MaxLinks {
		return "", edge.PageLink{}, ErrManyLinks
	}
	added := link{digest: sha256.Sum256([]byte(secret)), issuer: issuer, made: l.clock.Now(), life: life}
	l.live = append(l.live, added)
	return secret, added.told(), nil
}

// Find returns the link that has a secret. The error is ErrLinkEnded. It takes the same time whichever link that is.
func (l *Links) Find(secret string) (edge.PageLink, error) {
	digest := sha256.Sum256([]byte(secret))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropEndedLocked()
	found, err := edge.PageLink{}, ErrLinkEnded
	for i := range l.live {
		if subtle.ConstantTimeCompare(l.live[i].digest[:], digest[:]) == 1 {
			found, err = l.live[i].told(), nil
		}
	}
	return found, err
}

// Forget withdraws the link that has a secret.
func (l *Links) Forget(secret string) {
	digest := sha256.Sum256([]byte(secret))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = slices.DeleteFunc(l.live, func(a link) bool { return a.digest == digest })
}

// Withdraw ends all links, whoever made them, and returns those that lived.
func (l *Links) Withdraw() []edge.PageLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.liveLocked()
	l.live = nil
	return was
}

// Live returns the links that live, the oldest first.
func (l *Links) Live() []edge.PageLink {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.liveLocked()
}

func (l *Links) liveLocked() []edge.PageLink {
	l.dropEndedLocked()
	told := make([]edge.PageLink, 0, len(l.live))
	for i := range l.live {
		told = append(told, l.live[i].told())
	}
	return told
}

// dropEndedLocked drops the links whose life is over, and those of denied users: a user who is denied no more makes new ones.
func (l *Links) dropEndedLocked() {
	now := l.clock.Now()
	l.live = slices.DeleteFunc(l.live, func(a link) bool { return now.Sub(a.made) >= a.life || l.denied(a.issuer) })
}

func (a *link) told() edge.PageLink {
	return edge.PageLink{Issuer: a.issuer.GetName(), Until: a.made.Wall.Add(a.life)}
}
