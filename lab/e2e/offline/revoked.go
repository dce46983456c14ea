package offline

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var revokedScenarios = []kit.Scenario{{
	Name: "revoked-right", Run: revokedRight,
	Lab: kit.Joining(lab.Config{Pools: 1, Nodes: 3, Timing: lab.Quick, Kubelet: lab.Hollow, NoProxy: true}, 0),
	Doc: "Two ServiceAccounts lose a right to read at a hub. One that was quiet for 6 minutes is refused at its next " +
		"request; one that asks every 5 s, within 10 minutes. Cut off, the node has nothing left for either of them.",
}}

// The ServiceAccounts that lose a right, each on its own node.
const (
	rareName, steadyName = "rare", "steady"
	// revokedQuiet is how long one of the accounts is silent. A hub follows what nobody reads for a shorter time (5 min and a
	// half).
	revokedQuiet = 6 * time.Minute
	// steadyEvery is how often the steady one asks. revokedBound is how long a right may work on for it at most.
	steadyEvery, revokedBound = 5 * time.Second, 10 * time.Minute
	// revokedForgotten is the time after its first refusal in which a hub forgets (2 min, checked every 30 s).
	revokedForgotten = 3 * time.Minute
)

// revokedReads are the reads of both accounts, each with the time for which the right may work on for the steady one. A hub
// follows the list and the selection for each account alone. The cloud answers single objects itself. For the pool's resources,
// a permission holds for 5 min.
var revokedReads = map[string]struct {
	uri   string
	bound time.Duration
}{
	"list":           {"/api/v1/namespaces/default/secrets", revokedBound},
	"selection":      {"/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3D" + settingsName, revokedBound},
	"get":            {"/api/v1/namespaces/default/configmaps/" + settingsName, steadyEvery},
	"endpointslices": {"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", 5*time.Minute + steadyEvery},
}

func revokedRight(t *kit.T) {
	leader := t.Pool.SettledAway()
	node, other := t.Pool.Follower(leader), leader
	t.DeployWeb() // a node may read what its Pods verify their hub by only while it has Pods
	servingApproved(t)
	grantRevocable(t, rareName, steadyName)
	rare, steady := edgeReader(t, node, rareName), edgeReader(t, other, steadyName)
	t.Eventually(60*time.Second, "both read all that they may", func() error {
		for _, c := range []rest.Interface{rare, steady} {
			if got := codes(t, c); !answeredWith(got, http.StatusOK) {
				return fmt.Errorf("they are answered %v", got)
			}
		}
		return nil
	})
	t.Hold(3*time.Second, "the hub's disk is written once a second")

	ends := make(chan map[string]time.Duration, 1)
	began := time.Now()
	t.Must(t.Cloud.RbacV1().ClusterRoleBindings().Delete(t.Ctx, rareName, metav1.DeleteOptions{}))
	t.Say("the right is taken back")
	t.Background.Go(func() { ends <- untilRefused(t, steady, began) })
	t.Hold(revokedQuiet, "one says nothing, one asks every 5 s")
	for what, code := range codes(t, rare) {
		if code != http.StatusForbidden {
			t.Fail("who has lost the right %v ago, and was quiet, is answered %d to %s", revokedQuiet, code, what)
		}
	}
	t.Hold(revokedForgotten, "its hub forgets what the cloud refuses it")

	cutOff(t, node)
	for _, restart := range []bool{false, true} {
		if restart {
			t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.Hub))
		}
		t.Eventually(30*time.Second, "cut off, it is told that nobody can say", func() error {
			got := codes(t, rare)
			if slices.Contains(slices.Collect(maps.Values(got)), http.StatusOK) {
				t.Fail("cut off, who has lost the right is answered %v", got)
			}
			if !answeredWith(got, http.StatusServiceUnavailable) {
				return fmt.Errorf("it is answered %v", got)
			}
			return nil
		})
	}

	for what, last := range <-ends {
		t.Figure("steady_"+what+"_works_on_s", last.Seconds())
		if bound := revokedReads[what].bound; last > bound {
			t.Fail("who asks every %v was answered %s for %v after it had lost the right, want at most %v", steadyEvery, what,
				last, bound)
		}
	}
}

// untilRefused sends all reads again and again, until all were refused several times in a row, or the bound is over. It returns
// for each read how long after since it was last answered.
func untilRefused(t *kit.T, c rest.Interface, since time.Time) map[string]time.Duration {
	last, refused := map[string]time.Duration{}, 0
	for what := range revokedReads {
		last[what] = 0
	}
	for refused < 12 && t.Ctx.Err() == nil && time.Since(since) < revokedBound+time.Minute {
		got := codes(t, c)
		for what, code := range got {
			if code == http.StatusOK {
				last[what] = time.Since(since)
			}
		}
		if refused++; !answeredWith(got, http.StatusForbidden) {
			refused = 0
		}
		select {
		case <-time.After(steadyEvery):
		case <-t.Ctx.Done():
		}
	}
	return last
}

// codes returns the codes of the answers to a client's reads, each tried once; 0 means no answer.
func codes(t *kit.T, c rest.Interface) map[string]int {
	got := map[string]int{}
	for what, read := range revokedReads {
		code := 0
		c.Get().RequestURI(read.uri).MaxRetries(0).Do(t.Ctx).StatusCode(&code)
		got[what] = code
	}
	return got
}

func answeredWith(codes map[string]int, want int) bool {
	for _, code := range codes {
		if code != want {
			return false
		}
	}
	return true
}

// edgeReader returns the client of a program that asks by a header that its reads be kept.
func edgeReader(t *kit.T, node, account string) rest.Interface {
	access := podAccess(t, node, t.Token(account))
	access.UserAgent = "agent/lab"
	access.Wrap(func(rt http.RoundTripper) http.RoundTripper { return edgeCached{rt} })
	client := t.Client(access)
	return client.CoreV1().RESTClient()
}

type edgeCached struct{ http.RoundTripper }

func (e edgeCached) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Edge-Cache", "true")
	return e.RoundTripper.RoundTrip(r)
}

// grantRevocable makes ServiceAccounts that may read, by one ClusterRoleBinding with the first one's name.
func grantRevocable(t *kit.T, names ...string) {
	var subjects []rbacv1.Subject
	for _, name := range names {
		t.MakeAccount(name)
		subjects = append(subjects, kit.Account(name))
	}
	_, err := t.Cloud.CoreV1().ConfigMaps(kit.Namespace).Create(t.Ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: settingsName}, Data: map[string]string{"key": "value"},
	}, metav1.CreateOptions{})
	t.Must(err)
	t.Grant(names[0], []rbacv1.PolicyRule{
		kit.Reads("", "configmaps", "secrets"), kit.Reads(discoveryv1.GroupName, "endpointslices"),
	}, subjects...)
}
