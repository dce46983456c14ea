package thief

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab"
	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/prowl"
)

var localScenarios = []kit.Scenario{{
	Name: "local-thief", Lab: kit.RealKubelets(kit.OnePool), Run: localThief,
	Doc: "A user without rights and a container on the host's network go for the node's Secrets, tokens, certificate and " +
		"Lease at the hub's own port, sniff the loopback interface, and take the port while the hub is down. They get " +
		"nothing.",
}}

const (
	// hubsPort is the port that a hub has for kubelet.
	hubsPort = "127.0.0.1:10261"
	// hubsHealth is the address at which a hub says that it is alive.
	hubsHealth = "http://127.0.0.1:10267"
	// inTheClear is a text that the control sends over the loopback interface without encryption.
	inTheClear = "sniffed-in-the-clear"
)

func localThief(t *kit.T) {
	node := t.Pool.Follower(t.Pool.Settled(30 * time.Second))
	t.Node(node).DeployNeedy()
	keys := t.Node(node).HubKeys()
	token, err := os.ReadFile(filepath.Join(keys, "kubelet.token"))
	t.Must(err)
	secret := fmt.Sprintf("/api/v1/namespaces/%s/secrets/%s", kit.Namespace, kit.NeedyName)

	t.Say("a user without rights")
	wanted := wantedOf(node, secret)
	report := prowls(t, node, prowl.Order{Ask: wanted, Read: []string{
		filepath.Join(keys, "kubelet.token"), filepath.Join(keys, "local.pem"), filepath.Join(keys, "client.pem"),
	}})()
	for i, q := range wanted {
		want := http.StatusUnauthorized
		switch {
		case q.Host != "":
			want = http.StatusMisdirectedRequest
		case strings.HasPrefix(q.URL, hubsHealth):
			want = http.StatusForbidden
		}
		if report.Codes[i] != want {
			t.Fail("%s %s for host %q is answered with %d, want %d", q.Method, q.URL, q.Host, report.Codes[i], want)
		}
	}
	for i, said := range report.Errors {
		if said == "" {
			t.Fail("nobody has read file %d of the hub's keys", i)
		}
	}
	t.Say("refused: %d requests, by 401, 421 and 403; files of the hub: %q", len(wanted), report.Errors[0])
	secrets := t.Node(node).Client().CoreV1().Secrets(kit.Namespace)
	if _, err := secrets.Get(t.Ctx, kit.NeedyName, metav1.GetOptions{}); err != nil {
		t.Fail("kubelet itself is refused: %w", err)
	}
	if _, err := t.Lab.Hub(t.Ctx, node); err != nil {
		t.Fail("root itself is refused the hub's status: %w", err)
	}
	seen(t, node, len(slices.DeleteFunc(wanted, func(q prowl.Request) bool { return strings.HasPrefix(q.URL, hubsHealth) })))

	t.Say("a container on the host's network")
	out, err := kubectl(t, inCloud, "", "exec", "-n", kit.Namespace, kit.NeedyName, "--",
		"wget", "-q", "-O", "-", "http://"+hubsPort+secret)
	if err == nil || strings.Contains(out, "from-the-secret") || strings.Contains(out, `"data"`) {
		t.Fail("it has got %q", out)
	}
	t.Say("refused: %s", strings.TrimSpace(out))

	sniffed(t, node, string(token))
	squatted(t, node, string(token))
}

// wantedOf are the requests at a node's hub that a thief would profit from.
func wantedOf(node, secret string) []prowl.Request {
	lease := "/apis/coordination.k8s.io/v1/namespaces/" + corev1.NamespaceNodeLease + "/leases/" + node
	all := []prowl.Request{
		{Method: http.MethodGet, URL: secret}, {Method: http.MethodGet, URL: "/api/v1/pods"},
		{Method: http.MethodPost, URL: "/api/v1/namespaces/" + kit.Namespace + "/serviceaccounts/default/token", Body: `{}`},
		{Method: http.MethodPost, URL: "/apis/certificates.k8s.io/v1/certificatesigningrequests", Body: `{}`},
		{Method: http.MethodGet, URL: lease}, {Method: http.MethodPut, URL: lease, Body: `{}`},
		{Method: http.MethodPatch, URL: "/api/v1/nodes/" + node + "/status", Body: `{}`},
		{Method: http.MethodGet, URL: "/apis/discovery.k8s.io/v1/endpointslices"},
		{Method: http.MethodGet, URL: "/healthz"}, {Method: http.MethodGet, URL: "/version"},
		{Method: http.MethodGet, URL: secret, Host: "kiosk.example.com"},
	}
	for i := range all {
		all[i].URL = "https://" + hubsPort + all[i].URL
	}
	for _, path := range []string{"/metrics", "/status"} {
		all = append(all, prowl.Request{Method: http.MethodGet, URL: hubsHealth + path})
	}
	return all
}

// seen expects that the refusals are counted, and that the hub's log names the user.
func seen(t *kit.T, node string, refusals int) {
	total := t.Node(node).Metric(refusedRequests)
	if total < float64(refusals) {
		t.Fail("%v refusals are counted, want %d", total, refusals)
	}
	logs, err := t.Lab.Logs()
	t.Must(err)
	i := slices.IndexFunc(logs, func(path string) bool {
		return strings.Contains(path, "/"+node+"/") && strings.HasPrefix(filepath.Base(path), string(lab.Hub))
	})
	if i < 0 {
		t.Fail("no log of the hub of %s among %v", node, logs)
	}
	content, err := os.ReadFile(logs[i])
	t.Must(err)
	lines := 0
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, "Refused a request") && strings.Contains(line, fmt.Sprintf(`uid="%d"`, prowl.Nobody)) {
			lines++
		}
	}
	if lines == 0 || lines >= refusals {
		t.Fail("the hub's log names user %d in %d lines, for %d refusals", prowl.Nobody, lines, refusals)
	}
	t.Say("counted: %v refusals; the hub's log names user %d, in %d lines", total, prowl.Nobody, lines)
}

// sniffed listens to the loopback interface while kubelet starts, with all requests of a start, and while it renews its Lease.
func sniffed(t *kit.T, node, token string) {
	t.Say("a container that sniffs the loopback interface")
	end := prowls(t, node, prowl.Order{Sniff: []string{token, "Bearer", "/leases/" + node, "from-the-secret", inTheClear}})
	t.Must(t.Lab.Node(t.Ctx, lab.Restart, node, lab.KubeletC))
	_, err := t.Node(node).Fetch(fmt.Sprintf("http://127.0.0.1:%d/healthz?%s", edge.PortHubHealth, inTheClear))
	t.Must(err)
	_, err = t.Node(node).Client().CoreV1().Secrets(kit.Namespace).Get(t.Ctx, kit.NeedyName, metav1.GetOptions{})
	t.Must(err)
	t.Hold(10*time.Second, "kubelet starts, and renews its Lease")
	report := end()
	if !slices.Equal(report.Found, []string{inTheClear}) {
		t.Fail("in %d frames it has found %q, want what was said in the clear alone", report.Frames, report.Found)
	}
	t.Say("in %d frames there was neither kubelet's token nor a Secret", report.Frames)
}

// squatted takes the hub's port while the hub is down, for as long as kubelet and kube-proxy need to connect to it.
func squatted(t *kit.T, node, token string) {
	t.Say("a user who takes the hub's port while it is down")
	t.Must(t.Lab.Node(t.Ctx, lab.Kill, node, lab.Hub))
	end := prowls(t, node, prowl.Order{Squat: hubsPort})
	t.Hold(8*time.Second, "kubelet and kube-proxy come by")
	report := end()
	t.Must(t.Lab.Node(t.Ctx, lab.Start, node, lab.Hub))
	if report.Connections < 2 || report.Trusted != 0 || len(report.Said) > 0 {
		t.Fail("%d connections came to it, %d trusted it, and said %q (kubelet's token: %v)", report.Connections, report.Trusted,
			report.Said, strings.Contains(strings.Join(report.Said, " "), token))
	}
	t.Say("%d connections came to it; none trusted it, and nothing was said", report.Connections)
	t.Eventually(time.Minute, "with the hub back, kubelet renews its Lease through it", func() error {
		lease, err := t.Cloud.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Ctx, node, metav1.GetOptions{})
		if err == nil && time.Since(lease.Spec.RenewTime.Time) > 3*time.Second {
			err = fmt.Errorf("the last renewal is of %v", lease.Spec.RenewTime)
		}
		return err
	})
}

// prowls starts a stranger on a node. If it has to listen, it listens now. The returned function ends it.
func prowls(t *kit.T, node string, o prowl.Order) (end func() prowl.Report) {
	return kit.Play[prowl.Report](t, node, prowl.Command, o)
}
