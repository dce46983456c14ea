package thief

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
)

var linkScenarios = []kit.Scenario{{
	Name: "page-link", Lab: lab.Config{Pools: 2, Nodes: 3, Timing: lab.Quick}.AsInstalled(), Run: pageLink,
	Doc: "A phone sees the page by an operator's link, and nothing else. A stranger without a link, with a guessed one, with " +
		"another pool's, after its withdrawal, after the coordinator's restart and after the denial of its issuer is refused. " +
		"The port is closed while no link lives.",
}}

// endsWithin is how long a link may still be of use after its issuer was denied in the cloud: kubelet brings the list.
const endsWithin = 90 * time.Second

func pageLink(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	at := t.Pool.CoordinatorNode()
	phone := t.Pool.Follower(at)
	port := net.JoinHostPort(t.Node(at).Address(), strconv.Itoa(edge.PortCoordinatorLinks))
	shut(t, phone, port)

	t.Say("an operator's link, on a phone")
	made := linked(t, 1)
	if len(made.At) == 0 || made.At[0] != port {
		t.Fail("the link leads to %v, want %s", made.At, port)
	}
	cookie := enters(t, phone, port, made.Secret)
	if code, text := glance(t, phone, port, "/ui/", cookie); code != http.StatusOK || !strings.Contains(text, at) {
		t.Fail("with the link: %d %.300s", code, text)
	}
	for _, path := range []string{
		"/api/v1/pods", "/api/v1/configmaps", "/api/v1/namespaces/kube-system/pods", "/metrics", edge.PathLinks,
		edge.PathMirror, "/",
	} {
		if code, text := glance(t, phone, port, path, cookie); code != http.StatusNotFound {
			t.Fail("%s with the link: %d %.300s", path, code, text)
		}
	}

	t.Say("without a link, with a guessed one, and with another pool's")
	refused := 0
	refuses := func(what, path, cookie string) {
		if code, text := glance(t, phone, port, path, cookie); code != http.StatusForbidden || strings.Contains(text, at) {
			t.Fail("%s: %d %.300s", what, code, text)
		}
		refused++
	}
	foreign := linked(t, 2).Secret
	name, _, _ := strings.Cut(cookie, "=")
	for what, secret := range map[string]string{"guessed": strings.Repeat("A", len(foreign)), "of another pool": foreign} {
		refuses(what, "/ui/?"+edge.QuerySecret+"="+secret, "")
		refuses(what+", as a cookie", "/ui/", name+"="+secret)
	}
	for _, path := range []string{"/ui/", "/ui/live", "/ui/page.js"} {
		refuses("without a link, "+path, path, "")
	}
	t.Figure("refused_attempts", float64(refused))

	t.Say("after its withdrawal: first nobody serves, then another link lives")
	var was edge.PageLinks
	t.Must(asksForLinks(t, 1, http.MethodDelete, "", &was))
	if len(was.Links) != 1 {
		t.Fail("%d links were withdrawn, want 1", len(was.Links))
	}
	shut(t, phone, port)
	second := linked(t, 1)
	refuses("the withdrawn link", "/ui/?"+edge.QuerySecret+"="+made.Secret, "")
	refuses("the withdrawn link's cookie", "/ui/", cookie)

	t.Say("after the coordinator's restart")
	pod, pods := t.CoordinatorOf("p1").Name, t.Cloud.CoreV1().Pods(edge.NamespaceSystem)
	t.Must(pods.Delete(t.Ctx, pod, metav1.DeleteOptions{}))
	var third edge.NewPageLink
	t.Eventually(120*time.Second, "the next coordinator makes a link", func() error {
		if _, err := pods.Get(t.Ctx, pod, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("the former one is still there, and may answer"), err)
		}
		return asksForLinks(t, 1, http.MethodPost, "?"+edge.QueryFor+"=1h", &third)
	})
	port = third.At[0]
	refuses("a link from before the restart", "/ui/?"+edge.QuerySecret+"="+second.Secret, "")
	cookie = enters(t, phone, port, third.Secret)

	t.Say("after the denial of its issuer")
	kubectlMust(t, "", "patch", "yurtcoordinator", "p1", "--type=merge", "-p",
		fmt.Sprintf(`{"spec":{"deniedUsers":[%q]}}`, edge.PoolName("p1").OperatorUser()))
	took := t.Eventually(endsWithin, "the denied operator's link ends", func() error {
		if code, text := glance(t, phone, port, "/ui/", cookie); code == http.StatusOK {
			return fmt.Errorf("it shows the page: %.100s", text)
		}
		return nil
	})
	t.Figure("denied_after_s", took.Seconds())
	shut(t, phone, port)
}

// linked makes a link to a pool's page for an hour.
func linked(t *kit.T, pool int) (made edge.NewPageLink) {
	t.Eventually(60*time.Second, fmt.Sprintf("the coordinator of p%d makes a link", pool), func() error {
		return asksForLinks(t, pool, http.MethodPost, "?"+edge.QueryFor+"=1h", &made)
	})
	return made
}

// asksForLinks asks a pool's coordinator about links, as its operator.
func asksForLinks(t *kit.T, pool int, method, query string, told any) error {
	access, err := t.Lab.CoordinatorConfig(pool, lab.Operator)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Ctx, commandTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(access.Host, "/")+edge.PathLinks+query, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return json.Unmarshal(text, told)
}

// looksAt makes a request from a machine, without a certificate, and follows no redirect. The caller closes the answer's body.
func looksAt(t *kit.T, machine, address, path, cookie string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(t.Ctx, http.MethodGet, "https://"+address+path, nil)
	t.Must(err)
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	return careless(t, machine).RoundTrip(r)
}

// glance is looksAt, for the code and the text. The code is 0 if nobody answers.
func glance(t *kit.T, machine, address, path, cookie string) (code int, text string) {
	answer, err := looksAt(t, machine, address, path, cookie)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	t.Must(err)
	return answer.StatusCode, string(content)
}

// enters takes the first look with a link, and returns the cookie.
func enters(t *kit.T, machine, address, secret string) string {
	answer, err := looksAt(t, machine, address, "/ui/?"+edge.QuerySecret+"="+secret, "")
	t.Must(err)
	defer answer.Body.Close()
	cookies := answer.Cookies()
	if answer.StatusCode != http.StatusSeeOther || answer.Header.Get("Location") != "/ui/" || len(cookies) != 1 ||
		!cookies[0].Secure || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fail("the first look: %s, %v", answer.Status, answer.Header)
	}
	return cookies[0].Name + "=" + cookies[0].Value
}

// shut waits until nobody serves at an address.
func shut(t *kit.T, machine, address string) {
	t.Eventually(10*time.Second, "nobody serves at "+address, func() error {
		conn, err := t.Lab.Dial(t.Ctx, machine, address)
		if err == nil {
			return errors.Join(errors.New("somebody does"), conn.Close())
		}
		return nil
	})
}
