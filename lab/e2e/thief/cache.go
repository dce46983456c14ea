package thief

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/wire"
)

var cacheScenarios = []kit.Scenario{{
	Name: "stolen-cache", Lab: kit.RealKubelets(kit.Joining(kit.OnePool, 0)), Run: stolenCache,
	Doc: "Somebody reads a hub's cache and tries old tokens on a node that he has cut off. No Secret and no token can be " +
		"read. A Pod that still exists is recognised; a deleted Pod is not, nor is anybody else after a day.",
}}

// beginsTokens is how every token of a ServiceAccount begins: {"alg":"RS256",
const beginsTokens = "eyJhbGciOiJSUzI1NiIs" //nolint:gosec // of all tokens, and so of none

const (
	// account is the ServiceAccount of all tokens of the scenario, which may read ConfigMaps.
	account = "reader"
	// staying and leaving are its Pods on the node.
	staying, leaving = "staying", "leaving"
)

func stolenCache(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	t.Node(node).DeployNeedy()
	deployReaders(t, node)
	tokens := map[string]string{staying: podToken(t, staying), leaving: podToken(t, leaving), "admin": podToken(t, "")}
	t.Eventually(60*time.Second, "the hub serves whoever has one of the tokens", func() error {
		for who, token := range tokens {
			if code, err := readsAt(t, node, token); code != http.StatusOK {
				return fmt.Errorf("%s: %d, %w", who, code, err)
			}
		}
		return nil
	})
	showToKubelet(t, node, tokens["admin"])
	t.Must(t.Cloud.CoreV1().Pods(kit.Namespace).Delete(t.Ctx, leaving,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}))
	t.Eventually(60*time.Second, "the Pod "+leaving+" is gone", func() error {
		_, err := t.Cloud.CoreV1().Pods(kit.Namespace).Get(t.Ctx, leaving, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	t.Hold(5*time.Second, "the hub's disk is written")
	nothingToRead(t, node)

	t.Say("cutting %s off from cloud and pool, and restarting its hub", node)
	t.Cut(node)
	t.Must(t.Lab.Cut(t.Ctx, lab.LAN, node, wire.Drop))
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.Hub))
	known := func(when string, want map[string]int) {
		t.Eventually(60*time.Second, when+": "+fmt.Sprint(want), func() error {
			for who, code := range want {
				if got, err := readsAt(t, node, tokens[who]); got != code {
					return fmt.Errorf("%s: %d, want %d: %w", who, got, code, err)
				}
			}
			return nil
		})
	}
	const refused = http.StatusServiceUnavailable
	known("at once", map[string]int{staying: http.StatusOK, leaving: refused, "admin": http.StatusOK})
	t.Must(t.Lab.HubSettings(node, "disk-cache-clock-offset: 25h\n"))
	known("a day later", map[string]int{staying: http.StatusOK, leaving: refused, "admin": refused})
	nothingToRead(t, node)
}

// deployReaders runs two Pods of a ServiceAccount that may read ConfigMaps.
func deployReaders(t *kit.T, node string) {
	t.MakeAccount(account)
	t.Grant(account, []rbacv1.PolicyRule{kit.Reads("", "configmaps")}, kit.Account(account))
	for _, name := range []string{staying, leaving} {
		t.Node(node).RunPod(name, []string{"sleep", "100000"}, func(p *corev1.Pod) { p.Spec.ServiceAccountName = account })
	}
	t.PodRuns(staying)
	t.PodRuns(leaving)
}

// podToken returns a token that is bound to a Pod; an empty name means to none.
func podToken(t *kit.T, pod string) string {
	request := &authenticationv1.TokenRequest{}
	if pod != "" {
		p, err := t.Cloud.CoreV1().Pods(kit.Namespace).Get(t.Ctx, pod, metav1.GetOptions{})
		t.Must(err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{
			Kind: "Pod", APIVersion: "v1", Name: pod, UID: p.UID,
		}
	}
	request, err := t.Cloud.CoreV1().ServiceAccounts(kit.Namespace).CreateToken(t.Ctx, account, request, metav1.CreateOptions{})
	t.Must(err)
	return request.Status.Token
}

// readsAt lists ConfigMaps at a node's hub with a token, as a program whose reads the hub keeps, and returns the status.
func readsAt(t *kit.T, node, token string) (int, error) {
	authorities, err := t.Node(node).PodAuthorities()
	if err != nil {
		return 0, err
	}
	hub, err := t.Lab.HubConfig(node)
	t.Must(err)
	config := &rest.Config{
		Host:            "https://" + net.JoinHostPort(t.Node(node).Address(), strconv.Itoa(edge.PortHubTLS)),
		TLSClientConfig: rest.TLSClientConfig{CAData: authorities},
		BearerToken:     token, Dial: hub.Dial, QPS: -1, UserAgent: "coredns/lab", Timeout: 20 * time.Second,
	}
	connections, err := rest.HTTPClientFor(config)
	t.Must(err)
	defer utilnet.CloseIdleConnectionsFor(connections.Transport) // the hub bounds those of one address
	client, err := kubernetes.NewForConfigAndClient(config, connections)
	t.Must(err)
	err = client.CoreV1().RESTClient().Get().Namespace(kit.Namespace).Resource("configmaps").MaxRetries(0).Do(t.Ctx).Error()
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return http.StatusOK, nil
	case errors.As(err, &status):
		return int(status.Status().Code), err
	default:
		return 0, err
	}
}

// showToKubelet shows a token to a node's kubelet, as Prometheus does.
func showToKubelet(t *kit.T, node, token string) {
	code, text := showing(t, token, node, "https://127.0.0.1:10250/metrics")
	if code != http.StatusForbidden { // kubelet knows who it is, and has asked what it may do
		t.Fail("kubelet answers %d %s to a token that it is shown, want 403", code, text)
	}
}

// nothingToRead looks for tokens and for what is in a Secret in all files of a hub's cache: as they are, and in base64.
func nothingToRead(t *kit.T, node string) {
	files, err := t.Lab.HubCache(node)
	t.Must(err)
	var found []string
	total := 0
	for _, path := range files {
		content, err := os.ReadFile(path)
		t.Must(err)
		total += len(content)
		for what, text := range map[string]string{"a token": beginsTokens, "a Secret": "from-the-secret"} {
			for shift := range 4 {
				form := text
				if shift > 0 { // within something in base64, where it begins at any of three bits
					form = base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + text))
					form = form[4 : len(form)-4]
				}
				if n := bytes.Count(content, []byte(form)); n > 0 {
					found = append(found, fmt.Sprintf("%s: %s, %d times", filepath.Base(path), what, n))
				}
			}
		}
	}
	if len(found) > 0 {
		t.Fail("this can be read in the cache: %s", strings.Join(found, "; "))
	}
	t.Say("no token and no Secret can be read in the %d bytes of the cache", total)
}
