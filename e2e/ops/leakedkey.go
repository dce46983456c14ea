package ops

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"yurtcoordinator/e2e/kit"
	"yurtcoordinator/internal/edge"
)

var leakedKeyScenarios = []kit.Scenario{{
	Name: "leaked-coordinator-key", Lab: kit.OnePool.AsInstalled(), Run: leakedCoordinatorKey,
	Doc: "Somebody has a coordinator's key for kubelets and tries it at the cloud's API server, with a " +
		"binding to kubelets too: no list, no Secret, no node, no Pod. `logs`, `exec` and `top` at the coordinator keep working.",
}}

const (
	// userToKubelets is the coordinators' user name at kubelets, and so at the cloud.
	userToKubelets = "openyurt:yurt-coordinator:p1"
	// connectsNobody is what the policy says.
	connectsNobody = "known to kubelets only"
	// bindingOfAll lets coordinators' user use all kubelets, as somebody may who has a kubelet without a hub.
	bindingOfAll = "coordinators-to-kubelets"
)

// attempt is a request to the cloud. If why is empty, RBAC refuses it.
type attempt struct{ method, path, why string }

func leakedCoordinatorKey(t *kit.T) {
	deployTill(t)
	getsIn(t)
	thief, access := coordinatorsKey(t)
	var asInstalled []attempt
	for _, a := range attempts(t) {
		asInstalled = append(asInstalled, attempt{a.method, a.path, ""})
	}
	refusedInTheCloud(t, access, asInstalled)

	t.Say("binding the user to all kubelets")
	bindings := t.Cloud.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(t.Ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: bindingOfAll},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: userToKubelets}},
	}, metav1.CreateOptions{})
	t.Must(err)
	lists := func() error {
		_, err := thief.CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{})
		return err
	}
	t.Eventually(10*time.Second, "with that binding it lists Nodes", lists)
	var connects []attempt
	for _, a := range attempts(t) {
		if a.why == connectsNobody {
			connects = append(connects, a)
		}
	}
	refusedInTheCloud(t, access, connects)
	t.Kubectls([][]string{{"delete", "clusterrolebinding", bindingOfAll, "--ignore-not-found"}})
	t.Eventually(10*time.Second, "without that binding it does not", func() error {
		switch err := lists(); {
		case err == nil:
			return errors.New("it still lists Nodes")
		case !apierrors.IsForbidden(err):
			return fmt.Errorf("a list of Nodes: %w", err)
		default:
			return nil
		}
	})

	t.Say("an administrator, and an operator at the coordinator, get in as ever")
	for _, via := range []string{atCloud, atSite} {
		for args, want := range map[string]string{
			"logs till -n shop -c till": "open", "exec till -n shop -c till -- cat /www/index.html": "hello",
		} {
			out, err := kubectlSays(t, kubectlRun{place: place{via: via}, args: strings.Fields(args)})
			if err != nil || !strings.Contains(out, want) {
				t.Fail("kubectl %s at %s: %v; it prints, want %q:\n%s", args, via, err, want, out)
			}
		}
	}
	t.Eventually(60*time.Second, "kubectl top at the coordinator has figures of "+tillNode, func() error {
		out, err := kubectlSays(t, kubectlRun{place: place{via: atSite}, args: strings.Fields("top node " + tillNode)})
		if err != nil || !strings.Contains(out, tillNode) {
			return fmt.Errorf("it prints %q: %w", out, err)
		}
		return nil
	})
	raw := "/api/v1/nodes/" + tillNode + "/proxy/pods"
	if err := t.Cloud.CoreV1().RESTClient().Get().RequestURI(raw).Do(t.Ctx).Error(); err != nil {
		t.Fail("the administrator's GET %s: %w", raw, err)
	}
}

// coordinatorsKey returns access to the cloud's API server for somebody on the coordinator's node who has the key that
// kubelets know the coordinator by. The key is in the Secret that this node may read; how he got it does not matter
// here.
func coordinatorsKey(t *kit.T) (kubernetes.Interface, *rest.Config) {
	secret, err := t.Cloud.CoreV1().Secrets(edge.NamespaceSystem).Get(t.Ctx, edge.PoolName("p1").CoordinatorSecret(),
		metav1.GetOptions{})
	t.Must(err)
	access, err := t.Lab.CloudConfigFrom(t.Pool.CoordinatorNode())
	t.Must(err)
	access.CertFile, access.KeyFile = "", ""
	access.CertData, access.KeyData = secret.Data["kubelet-client.crt"], secret.Data["kubelet-client.key"]
	client := t.Client(access)
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	t.Must(err)
	if self.Status.UserInfo.Username != userToKubelets {
		t.Fail("to the cloud, whoever has the key is %+v, not %s", self.Status.UserInfo, userToKubelets)
	}
	return client, access
}

// attempts returns what somebody with that key would try.
func attempts(t *kit.T) []attempt {
	const get, post = http.MethodGet, http.MethodPost
	inShop, system := "/api/v1/namespaces/"+shop, "/api/v1/namespaces/"+edge.NamespaceSystem
	all := []attempt{
		{get, "/api/v1/nodes", ""}, {get, "/api/v1/nodes?watch=true", ""}, {get, "/api/v1/nodes/" + tillNode, ""},
		{get, "/api/v1/pods", ""}, {get, inShop + "/pods/" + till, ""},
		{get, inShop + "/pods/" + till + "/log?container=till", ""},
		{get, "/api/v1/secrets", ""}, {get, system + "/secrets/" + edge.PoolName("p1").CoordinatorSecret(), ""},
		{get, "/api/v1/configmaps", ""}, {get, "/apis/coordination.k8s.io/v1/leases", ""},
		{post, system + "/serviceaccounts/default/token", ""}, {post, inShop + "/pods", ""},
		{post, "/apis/certificates.k8s.io/v1/certificatesigningrequests", ""},
		{post, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", ""},
		// These rights go for kubelets as well.
		{get, inShop + "/pods/" + till + "/proxy/", ""}, {get, inShop + "/services/" + till + "/proxy/", ""},
		{post, inShop + "/pods/" + till + "/exec?container=till&command=id&stdout=true", ""},
		{post, inShop + "/pods/" + till + "/attach?container=till&stdout=true", ""},
		{post, inShop + "/pods/" + till + "/portforward?ports=80", ""},
	}
	nodes, err := t.Cloud.CoreV1().Nodes().List(t.Ctx, metav1.ListOptions{})
	t.Must(err)
	for i := range nodes.Items {
		proxy := "/api/v1/nodes/" + nodes.Items[i].Name + "/proxy/"
		all = append(all, attempt{get, proxy + "pods", connectsNobody}, attempt{get, proxy + "metrics", connectsNobody},
			attempt{get, proxy + "containerLogs/shop/till/till", connectsNobody},
			attempt{post, proxy + "run/shop/till/till?cmd=id", connectsNobody},
			attempt{post, proxy + "exec/shop/till/till?command=id&output=1", connectsNobody},
			attempt{http.MethodDelete, proxy + "pods", ""})
	}
	return all
}

// refusedInTheCloud expects that every attempt is refused.
func refusedInTheCloud(t *kit.T, access *rest.Config, attempts []attempt) {
	client := t.Client(access)
	for _, a := range attempts {
		ctx, cancel := context.WithTimeout(t.Ctx, commandTimeout) // a watch that is allowed does not end
		err := client.CoreV1().RESTClient().Verb(a.method).RequestURI(a.path).Do(ctx).Error()
		cancel()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), a.why) {
			t.Fail("%s %s: %v; want it forbidden, %q", a.method, a.path, err, a.why)
		}
		t.Say("refused: %s %s", a.method, a.path)
	}
	t.Figure("refused_attempts", float64(len(attempts)))
}
