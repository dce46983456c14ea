package front

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	kuser "k8s.io/apiserver/pkg/authentication/user"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"yurtcoordinator/internal/ends"
	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/live"
)

const (
	// identityFor and accessFor are how long an identity and a permission are cached before the cloud is asked again. kubelet
	// uses the same times for these questions (authentication.webhook.cacheTTL, authorization.webhook.cacheAuthorizedTTL).
	identityFor, accessFor = 2 * time.Minute, 5 * time.Minute
	// refusedFor is how long a refusal is cached: 30 s, as in kubelet (cacheUnauthorizedTTL).
	refusedFor = 30 * time.Second
	// unknownFor is the pause before the cloud is asked again a question that it did not answer.
	unknownFor = 5 * time.Second
	// askFor bounds the time of one question. maxAsking bounds how many TokenReviews are under way, and how many
	// SubjectAccessReviews.
	askFor    = 5 * time.Second
	maxAsking = 8
	// maxKnown bounds how many identities, and how many permissions, are in memory. The disk has a bound of its own.
	maxKnown = 1000
)

// ErrRefused says that the cloud does not know a token. ErrUnknown says that the hub got no answer from the cloud, and has no
// earlier answer that is still valid.
var (
	ErrRefused = errors.New("the cloud does not know this token")
	ErrUnknown = errors.New("the cloud cannot be asked, and has not said it before")
)

// CallersDisk keeps answers; store.Store is one. It bounds them, and writes no value that it has.
type CallersDisk interface {
	PutBlob(key string, value []byte) error
	Blob(key string) ([]byte, error)
	DropBlob(key string)
	Blobs(prefix string) []string
}

// CallersConfig configures Callers. All fields are required.
type CallersConfig struct {
	// Tokens and Access ask the cloud, as the node.
	Tokens authenticationv1client.TokenReviewInterface
	Access authorizationv1client.SubjectAccessReviewInterface
	// Cloud is the state of the link to the cloud.
	Cloud *live.Value[link.State]
	Disk  CallersDisk
	// Tenure decides how long an answer is valid while the cloud cannot be asked; recall.Tenure is one.
	Tenure Tenure
	// Clock is this machine's.
	Clock ends.Clock
}

// Tenure judges an answer about a user by its age.
type Tenure interface {
	Stamp(u *User) recall.Stamp
	Renews(next, old recall.Stamp) bool
	Judge(s recall.Stamp) recall.TenureVerdict
}

// Callers answers who a caller is and what it may do. Safe for concurrent use.
type Callers struct {
	cfg        CallersConfig
	identities *memory
	access     *memory
	budget     *budget
}

// Prefixes of the disk's keys: who callers are, and what they may do.
const callerPrefix, accessPrefix = "caller/", "access/"

// Prompt reports whether the removal of a key must reach the disk at once. It must for the cloud's answers about callers, because
// a revoked right would hold again if a removed answer came back after a crash.
func Prompt(key string) bool {
	return strings.HasPrefix(key, callerPrefix) || strings.HasPrefix(key, accessPrefix)
}

// NewCallers returns Callers.
func NewCallers(c CallersConfig) *Callers {
	return &Callers{c, newMemory(c, callerPrefix), newMemory(c, accessPrefix), newBudget(c.Clock, mostInVain, budgetTime)}
}

// Tidy forgets expired answers. Of each Pod's tokens it keeps only the last two, because a Pod's programs read a new token within
// a minute.
func (c *Callers) Tidy() {
	type speaker struct {
		pod  recall.TenurePod
		user string
	}
	tokens := map[speaker][]record{}
	for _, known := range c.identities.tidy() {
		if user := userOf(known.Value); user != nil && known.Said.Pod != nil {
			of := speaker{*known.Said.Pod, user.Username}
			tokens[of] = append(tokens[of], known)
		}
	}
	for _, known := range tokens {
		slices.SortFunc(known, func(a, b record) int { return cmp.Compare(b.Said.Ran, a.Said.Ran) })
		for _, old := range known[min(len(known), lastTokens):] {
			c.identities.drop(old.key)
		}
	}
	c.access.tidy()
}

// lastTokens is how many tokens of a Pod are remembered.
const lastTokens = 2

// Given records a token that the cloud has just given to kubelet for a Pod. Otherwise the hub would not know whose token it is if
// the link is cut before the Pod shows it.
func (c *Callers) Given(token string) {
	user, err := userIn(token)
	if err != nil {
		return // the cloud says whose it is when the Pod shows it
	}
	value, err := json.Marshal(user)
	if err != nil {
		return
	}
	c.identities.record(digest(token), answer{value, identityFor, user})
}

// userIn returns the user of a Pod's token, as API servers review it. It does not verify the token: the cloud has just made it.
func userIn(token string) (*User, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, errors.New("it is no JWT")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return nil, err
	}
	type named struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	}
	var claims struct {
		ID    string `json:"jti"`
		Bound struct {
			Namespace string `json:"namespace"`
			Account   named  `json:"serviceaccount"`
			Pod       named  `json:"pod"`
			Node      named  `json:"node"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return nil, err
	}
	of := claims.Bound
	if of.Namespace == "" || of.Account.Name == "" || of.Pod.Name == "" || of.Pod.UID == "" {
		return nil, errors.New("it is no Pod's")
	}
	account := serviceaccount.ServiceAccountInfo{
		Namespace: of.Namespace, Name: of.Account.Name, UID: of.Account.UID, PodName: of.Pod.Name, PodUID: of.Pod.UID,
		NodeName: of.Node.Name, NodeUID: of.Node.UID,
	}
	if claims.ID != "" {
		account.CredentialID = "JTI=" + claims.ID
	}
	is := account.UserInfo()
	user := &User{
		Username: is.GetName(), UID: is.GetUID(), Groups: append(is.GetGroups(), kuser.AllAuthenticated),
		Extra: map[string]authenticationv1.ExtraValue{},
	}
	for key, values := range is.GetExtra() {
		user.Extra[key] = values
	}
	return user, nil
}

// User is a caller's identity.
type User = authenticationv1.UserInfo

// errSpent says that an address has shown too many unknown tokens.
var errSpent = errors.New("its address has shown too many tokens that the cloud does not know")

// Identify returns the user of a token that an address has shown. It returns ErrRefused if the cloud does not know the token,
// and wraps ErrUnknown if the hub cannot find out.
func (c *Callers) Identify(ctx context.Context, from netip.Addr, token string) (*User, error) {
	said, err := c.identities.recall(ctx, digest(token), func(ctx context.Context) (said answer, err error) {
		if !c.budget.spend(from) {
			return answer{}, errSpent
		}
		defer func() {
			if !inVain(said, err) {
				c.budget.giveBack(from)
			}
		}()
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review, err = c.cfg.Tokens.Create(ctx, review, metav1.CreateOptions{})
		switch {
		case err != nil:
			return answer{}, fmt.Errorf("TokenReview: %w", err)
		case !review.Status.Authenticated && review.Status.Error != "":
			// This may be a refusal or a failure of the cloud itself, so it is remembered as neither.
			return answer{}, unknownTokenError(review.Status.Error)
		case !review.Status.Authenticated || review.Status.User.Username == "":
			return answer{holds: refusedFor}, nil
		}
		value, err := json.Marshal(review.Status.User)
		return answer{value, identityFor, &review.Status.User}, err
	})
	if err != nil {
		return nil, err
	}
	if user := userOf(said); user != nil {
		return user, nil
	}
	return nil, ErrRefused
}

// unknownTokenError is the cloud's message about a token without a user.
type unknownTokenError string

// Error implements error.
func (n unknownTokenError) Error() string { return "TokenReview: " + string(n) }

// inVain reports whether the cloud has answered that it knows no such user.
func inVain(said answer, err error) bool {
	return err == nil && said.value == nil || errors.As(err, new(unknownTokenError))
}

// userOf decodes a cached user; nil if there is none.
func userOf(value []byte) *User {
	user := &User{}
	if json.Unmarshal(value, user) != nil || user.Username == "" {
		return nil
	}
	return user
}

// yes is the cached value of a permission.
const yes = `"yes"`

// Action is what a user wants to do with objects. Empty Namespace and Name mean all of a resource.
type Action struct {
	Verb, Group, Version, Resource, Namespace, Name string
}

// May reports whether a user may do something. It returns a wrapped ErrUnknown if the hub cannot find out.
func (c *Callers) May(ctx context.Context, u *User, a Action) (bool, error) {
	// Each token has an ID of its own, which no permission depends on. Without the ID, a fresh token asks the same question.
	who := *u
	who.Extra = maps.Clone(u.Extra)
	delete(who.Extra, credentialID)
	question, err := json.Marshal(struct {
		User
		Action
	}{who, a})
	if err != nil {
		return false, fmt.Errorf("SubjectAccessReview: %w", err)
	}
	said, err := c.access.recall(ctx, digest(string(question)), func(ctx context.Context) (answer, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string]authorizationv1.ExtraValue{},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Namespace: a.Namespace, Name: a.Name,
			},
		}}
		for key, value := range u.Extra {
			review.Spec.Extra[key] = authorizationv1.ExtraValue(value)
		}
		review, err := c.cfg.Access.Create(ctx, review, metav1.CreateOptions{})
		switch {
		case err != nil:
			return answer{}, fmt.Errorf("SubjectAccessReview: %w", err)
		case !review.Status.Allowed && review.Status.EvaluationError != "" && !review.Status.Denied:
			return answer{}, fmt.Errorf("SubjectAccessReview: %s", review.Status.EvaluationError)
		case !review.Status.Allowed || review.Status.Denied:
			return answer{holds: refusedFor}, nil
		}
		return answer{[]byte(yes), accessFor, u}, nil
	})
	return string(said) == yes, err
}

// credentialID is the key of a token's ID in a user's extra.
const credentialID = "authentication.kubernetes.io/credential-id"

// digest returns a hash that stands for a text that must not be kept.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
