package front

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/hub/link"
	"yurtcoordinator/internal/hub/recall"
	"yurtcoordinator/internal/live"
)

// callersCloud answers reviews.
type callersCloud struct {
	mu     sync.Mutex
	tokens map[string]User
	may    map[string]bool // "user verb resource"
	fails  error
	error  string // in the status
	takes  time.Duration
	asked  int
	most   int // at a time
	now    int
}

func (c *callersCloud) ask(ctx context.Context) error {
	c.mu.Lock()
	c.asked++
	c.now++
	c.most = max(c.most, c.now)
	takes, fails := c.takes, c.fails
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.now--
		c.mu.Unlock()
	}()
	select {
	case <-time.After(takes):
		return fails
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *callersCloud) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func (c *callersCloud) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.asked
	c.asked = 0
	return n
}

type tokens struct{ *callersCloud }

func (c tokens) Create(ctx context.Context, r *authenticationv1.TokenReview, _ metav1.CreateOptions) (
	*authenticationv1.TokenReview, error,
) {
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	user, ok := c.tokens[r.Spec.Token]
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, User: user, Error: c.error}
	return r, nil
}

type access struct{ *callersCloud }

func (c access) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (
	*authorizationv1.SubjectAccessReview, error,
) {
	if err := c.ask(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := r.Spec.ResourceAttributes
	r.Status.Allowed = c.may[r.Spec.User+" "+a.Verb+" "+a.Resource]
	r.Status.EvaluationError = c.error
	return r, nil
}

// blobs are a disk.
type blobs struct {
	mu   sync.Mutex
	has  map[string][]byte
	full bool
	puts map[string]int
}

func (b *blobs) PutBlob(key string, value []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.full {
		return errors.New("full")
	}
	if old, ok := b.has[key]; ok && bytes.Equal(old, value) {
		return nil
	}
	kind, _, _ := strings.Cut(key, "/")
	b.puts[kind]++
	b.has[key] = value
	return nil
}

func (b *blobs) Blob(key string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v, ok := b.has[key]; ok {
		return v, nil
	}
	return nil, errors.New("miss")
}

func (b *blobs) DropBlob(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.has, key)
}

func (b *blobs) Blobs(prefix string) (keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k := range b.has {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return keys
}

type world struct {
	*Callers
	t     *testing.T
	cloud *callersCloud
	link  *live.Value[link.State]
	disk  *blobs
	began time.Time
	pods  map[string]string // namespace/name → UID
}

var dns = User{Username: "system:serviceaccount:kube-system:coredns", UID: "1", Groups: []string{"system:serviceaccounts"}}

// shownFrom is whence tokens come of which a test says nothing.
var shownFrom = netip.MustParseAddr("10.0.0.1")

func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, began: time.Now(), pods: map[string]string{}, link: live.NewValue(link.Up),
			disk: &blobs{has: map[string][]byte{}, puts: map[string]int{}},
			cloud: &callersCloud{
				tokens: map[string]User{"good": dns}, may: map[string]bool{dns.Username + " list services": true},
			},
		}
		w.restart()
		f(w)
	})
}

// restart restarts the hub: only the disk stays.
func (w *world) restart() {
	w.t.Helper()
	clock := recall.NewTenure(recall.TenureConfig{
		Node: "n1", Limit: 24 * time.Hour, Disk: w.disk, Wall: time.Now,
		PodUID: func(namespace, name string) (string, bool) { return w.pods[namespace+"/"+name], true },
		Boot:   func() (string, time.Duration) { return "boot", time.Since(w.began) },
	})
	ended, end := context.WithCancel(w.t.Context())
	end()
	if err := clock.Run(ended); err != nil {
		w.t.Fatal(err)
	}
	w.Callers = NewCallers(CallersConfig{
		Tokens: tokens{w.cloud}, Access: access{w.cloud}, Cloud: w.link, Disk: w.disk, Tenure: clock,
	})
}

func (w *world) is(token, name string) {
	w.t.Helper()
	u, err := w.Identify(w.t.Context(), shownFrom, token)
	if err != nil || u.Username != name {
		w.t.Errorf("the token %s is %v's, %v, want %s", token, u, err, name)
	}
}

func (w *world) isNot(token string, want error) {
	w.t.Helper()
	if u, err := w.Identify(w.t.Context(), shownFrom, token); !errors.Is(err, want) || u != nil {
		w.t.Errorf("the token %s is %v's, %v, want %v", token, u, err, want)
	}
}

func (w *world) may(verb string, want bool, wantErr error) {
	w.t.Helper()
	got, err := w.May(w.t.Context(), &dns, Action{Verb: verb, Version: "v1", Resource: "services"})
	if got != want || !errors.Is(err, wantErr) || (err != nil) != (wantErr != nil) {
		w.t.Errorf("may %s: %v, %v, want %v, %v", verb, got, err, want, wantErr)
	}
}

func (w *world) asked(want int) {
	w.t.Helper()
	if n := w.cloud.count(); n != want {
		w.t.Errorf("the cloud was asked %d times, want %d", n, want)
	}
}

func TestTheCloudSaysWho(t *testing.T) {
	bubble(t, func(w *world) {
		w.is("good", dns.Username)
		w.is("good", dns.Username)
		w.isNot("bad", ErrRefused)
		w.isNot("bad", ErrRefused)
		w.isNot("", ErrRefused)
		w.asked(3)
		time.Sleep(identityFor + time.Second)
		w.is("good", dns.Username)
		w.isNot("bad", ErrRefused)
		w.asked(2)
		// Taken back.
		w.cloud.set(func() { delete(w.cloud.tokens, "good") })
		w.is("good", dns.Username)
		time.Sleep(identityFor + time.Second)
		w.isNot("good", ErrRefused)
		w.link.Set(link.Down)
		time.Sleep(refusedFor + time.Second)
		w.isNot("good", ErrUnknown)
		// And allowed again.
		w.link.Set(link.Up)
		w.cloud.set(func() { w.cloud.tokens["good"] = dns })
		time.Sleep(unknownFor + time.Second)
		w.is("good", dns.Username)
	})
}

// A client that makes up tokens causes only a few questions to the cloud a minute, whether the cloud answers with or without a
// reason. It does not keep other callers from being known: neither known ones of its own address nor any of another address.
func TestTokensThatAreMadeUp(t *testing.T) {
	for _, says := range []string{"", "[invalid bearer token]"} {
		bubble(t, func(w *world) {
			thief, another := netip.MustParseAddr("10.0.0.66"), netip.MustParseAddr("10.0.0.2")
			known := func(from netip.Addr) {
				t.Helper()
				if u, err := w.Identify(t.Context(), from, "good"); err != nil || u.Username != dns.Username {
					t.Errorf("the good token from %v: %v, %v", from, u, err)
				}
			}
			for range 100 { // who is known costs nothing
				known(thief)
				time.Sleep(identityFor + time.Second)
			}
			known(thief)
			w.cloud.count()
			w.cloud.set(func() { w.cloud.error, w.cloud.takes = says, time.Second })
			for minute := range 3 {
				var all sync.WaitGroup
				for i := range 500 {
					all.Go(func() {
						if _, err := w.Identify(t.Context(), thief, fmt.Sprint(minute, i)); err == nil {
							t.Error("a token that is made up is somebody's")
						}
					})
				}
				all.Wait()
				w.asked(mostInVain)
				w.cloud.set(func() { w.cloud.error = "" })
				if known(another); minute > 0 {
					w.asked(1)
				} else {
					known(thief)
					w.asked(0)
				}
				w.cloud.set(func() { w.cloud.error = says })
				time.Sleep(identityFor + time.Second)
			}
		})
	}
}

func TestTheCloudSaysWhat(t *testing.T) {
	bubble(t, func(w *world) {
		w.may("list", true, nil)
		w.may("delete", false, nil)
		w.may("list", true, nil)
		w.asked(2)
		w.cloud.set(func() { clear(w.cloud.may) })
		time.Sleep(accessFor + time.Second)
		w.may("list", false, nil)
		w.link.Set(link.Down)
		time.Sleep(refusedFor + time.Second)
		w.may("list", false, ErrUnknown)
	})
}

func TestWhatTheCloudCannotBeAskedIsRemembered(t *testing.T) {
	for name, cut := range map[string]func(*world){
		"down":   func(w *world) { w.link.Set(link.Down) },
		"silent": func(w *world) { w.cloud.set(func() { w.cloud.takes = time.Hour }) },
		"fails": func(w *world) {
			w.cloud.set(func() { w.cloud.fails = apierrors.NewInternalError(errors.New("no etcd")) })
		},
		"evades": func(w *world) {
			w.cloud.set(func() { w.cloud.error, w.cloud.tokens, w.cloud.may = "no keys", nil, nil })
		},
		"refuses": func(w *world) { w.cloud.set(func() { w.cloud.fails = apierrors.NewUnauthorized("expired") }) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.is("good", dns.Username)
				w.may("list", true, nil)
				cut(w)
				time.Sleep(23 * time.Hour)
				w.is("good", dns.Username)
				w.may("list", true, nil)
				w.restart()
				began := time.Now()
				w.is("good", dns.Username)
				if took := time.Since(began); took > askFor {
					t.Errorf("it took %v", took)
				}
				w.may("list", true, nil)
				w.isNot("other", ErrUnknown)
				w.may("get", false, ErrUnknown)
				for key, value := range w.disk.has {
					if strings.Contains(key+string(value), "good") {
						t.Errorf("the token is on the disk: %s %s", key, value)
					}
				}
			})
		})
	}
}

// A Pod of this node is known for as long as it is there, expired token or not, whatever else is forgotten meanwhile.
func TestHowLongAnIdentityHoldsInACut(t *testing.T) {
	const day = 24 * time.Hour
	list := Action{Verb: "list", Version: "v1", Resource: "services"}
	bubble(t, func(w *world) {
		pod := dns
		pod.Extra = map[string]authenticationv1.ExtraValue{
			"authentication.kubernetes.io/pod-name": {"dns"}, "authentication.kubernetes.io/pod-uid": {"u1"},
		}
		w.pods["kube-system/dns"] = "u1"
		w.cloud.tokens["pod"], w.cloud.tokens["admin"] = pod, User{Username: "admin"}
		w.cloud.may["admin list services"] = true
		may := func(u *User, want bool) {
			t.Helper()
			if ok, err := w.May(t.Context(), u, list); ok != want || (err == nil) != want {
				t.Errorf("%s may list: %t, %v; want %t", u.Username, ok, err, want)
			}
		}
		for _, u := range []string{"pod", "admin"} {
			w.is(u, w.cloud.tokens[u].Username)
			who := w.cloud.tokens[u]
			may(&who, true)
		}
		w.link.Set(link.Down)
		time.Sleep(day - 2*time.Hour)
		w.is("admin", "admin")
		may(&User{Username: "admin"}, true)
		w.restart()
		time.Sleep(3 * time.Hour)
		w.isNot("admin", ErrUnknown)
		may(&User{Username: "admin"}, false)
		time.Sleep(30 * day)
		w.restart()
		w.Tidy()
		w.is("pod", dns.Username)
		may(&pod, true)
		if keys := append(w.disk.Blobs("caller/"), w.disk.Blobs("access/")...); len(keys) != 2 {
			t.Errorf("of two users one is over, and this is left: %v", keys)
		}
		w.pods["kube-system/dns"] = "u2"
		time.Sleep(unknownFor + time.Second)
		w.isNot("pod", ErrUnknown)
		may(&pod, false)
		w.pods["kube-system/dns"] = "u1"
		time.Sleep(unknownFor + time.Second)
		w.isNot("pod", ErrUnknown) // it went with its Pod
	})
}

// A rotated token is another token of the same user.
func TestAFreshTokenMayWhatTheFormerMight(t *testing.T) {
	bubble(t, func(w *world) {
		with := func(id string) *User {
			u := dns
			u.Extra = map[string]authenticationv1.ExtraValue{
				credentialID: {id}, "authentication.kubernetes.io/pod-name": {"coredns-1"},
			}
			return &u
		}
		list := Action{Verb: "list", Version: "v1", Resource: "services"}
		if ok, err := w.May(w.t.Context(), with("JTI=1"), list); !ok || err != nil {
			t.Fatal(ok, err)
		}
		w.link.Set(link.Down)
		if ok, err := w.May(w.t.Context(), with("JTI=2"), list); !ok || err != nil {
			t.Error(ok, err)
		}
		other := with("JTI=1")
		other.Extra["authentication.kubernetes.io/pod-name"] = []string{"coredns-2"}
		if _, err := w.May(w.t.Context(), other, list); !errors.Is(err, ErrUnknown) {
			t.Errorf("another Pod: %v", err)
		}
		if with("JTI=1").Extra[credentialID] == nil {
			t.Error("the user was changed")
		}
	})
}

func TestManyAskOnce(t *testing.T) {
	bubble(t, func(w *world) {
		w.cloud.takes = time.Second
		for i := range 20 {
			w.cloud.tokens[fmt.Sprint(i)] = User{Username: fmt.Sprint("user", i)}
		}
		var all sync.WaitGroup
		first, leave := context.WithCancel(w.t.Context())
		all.Go(func() { _, _ = w.Identify(first, shownFrom, "good") })
		synctest.Wait()
		leave() // the one who asks goes away
		for range 50 {
			all.Go(func() { w.is("good", dns.Username) })
		}
		for i := range 20 {
			all.Go(func() { w.is(fmt.Sprint(i), fmt.Sprint("user", i)) })
		}
		all.Wait()
		w.asked(21)
		if w.cloud.most > maxAsking {
			t.Errorf("%d questions were under way at a time, want at most %d", w.cloud.most, maxAsking)
		}
	})
}

func TestTheDiskIsSpared(t *testing.T) {
	bubble(t, func(w *world) {
		w.cloud.tokens["t500"] = User{Username: "t500"}
		for range 10 {
			w.is("good", dns.Username)
			w.is("t500", "t500")
			time.Sleep(identityFor + time.Second)
		}
		if puts := w.disk.puts["caller"]; puts != 2 {
			t.Errorf("written %d times, want once for each token", puts)
		}
		w.restart()
		// An answer that the disk does not take must not leave an older one there.
		w.disk.full = true
		w.cloud.tokens["t500"] = User{Username: "another"}
		w.is("t500", "another")
		w.link.Set(link.Down)
		time.Sleep(identityFor + time.Second)
		w.isNot("t500", ErrUnknown)
	})
}

// jwt is a token as API servers make it for a Pod, with a number of its own.
func jwt(pod, uid string, n int) string {
	claims := fmt.Sprintf(`{"aud":["https://kubernetes.default.svc"],"jti":"id-%d",`+
		`"sub":"system:serviceaccount:kube-system:coredns",`+
		`"kubernetes.io":{"namespace":"kube-system","serviceaccount":{"name":"coredns","uid":"1"},`+
		`"pod":{"name":%q,"uid":%q},"node":{"name":"n1","uid":"n1-uid"}}}`, n, pod, uid)
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
}

// kubelet renews a Pod's token, and the link is cut before the Pod shows it.
func TestATokenIsKnownOnceItIsGiven(t *testing.T) {
	bubble(t, func(w *world) {
		w.pods["kube-system/dns-x"] = "u1"
		for n := range 5 {
			w.Given(jwt("dns-x", "u1", n))
			time.Sleep(48 * time.Minute)
			w.Tidy()
		}
		w.Given(jwt("dns-y", "u2", 9)) // of another node, or made before the Pod is known
		w.asked(0)
		w.link.Set(link.Down)
		for range 2 {
			for n := range 5 {
				if token := jwt("dns-x", "u1", n); n < 3 {
					w.isNot(token, ErrUnknown)
				} else {
					w.is(token, dns.Username)
				}
			}
			time.Sleep(10 * time.Hour)
			w.restart()
		}
		w.pods["kube-system/dns-x"] = "u3"
		w.isNot(jwt("dns-x", "u1", 4), ErrUnknown) // its Pod is gone
		w.link.Set(link.Up)
		time.Sleep(unknownFor + time.Second)
		w.isNot(jwt("dns-x", "u1", 4), ErrRefused)
	})
}

// What the hub reads in a token is what the cloud says of it in a review.
func TestWhoIsInAToken(t *testing.T) {
	user, err := userIn(jwt("dns-x", "u1", 7))
	if err != nil {
		t.Fatal(err)
	}
	want := &User{
		Username: dns.Username, UID: "1",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"},
		Extra: map[string]authenticationv1.ExtraValue{
			"authentication.kubernetes.io/pod-name": {"dns-x"}, "authentication.kubernetes.io/pod-uid": {"u1"},
			"authentication.kubernetes.io/node-name": {"n1"}, "authentication.kubernetes.io/node-uid": {"n1-uid"},
			credentialID: {"JTI=id-7"},
		},
	}
	if !reflect.DeepEqual(user, want) {
		t.Errorf("%+v, want %+v", user, want)
	}
	for _, bad := range []string{
		"", "a.b", "a.b.c", "a.e30.c", "a." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"somebody"}`)) + ".c",
	} {
		if user, err := userIn(bad); err == nil {
			t.Errorf("%q is %v's", bad, user)
		}
	}
}
