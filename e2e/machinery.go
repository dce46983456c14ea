package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"yurtcoordinator/e2e/machinery"
)

var machineryScenarios = []Scenario{{
	Name: "machinery", Quick: true, Lab: hubsAlone, run: apiMachinery,
	Doc: "what Kubernetes' API machinery tests do gives the same through a hub as directly: with a token, as the node, and " +
		"from what the hub keeps; client-go's informers and kubectl too",
}}

// apiMachinery runs the suite twice: with an administrator's token, which the hub passes on, and as the node, whose reads
// the hub answers itself where it can.
func apiMachinery(t *T) {
	node := t.follower(t.settled(30 * time.Second))
	token := t.administrator("machinery")
	t.readers(node)
	admin, err := t.lab.CloudConfig()
	t.must(err)
	asAdmin := t.access(admin, nil)
	through, err := t.lab.HubConfig(node)
	t.must(err)
	bearer := http.Header{"Authorization": {"Bearer " + token}}
	anonymous := rest.AnonymousClientConfig(admin)
	anonymous.Dial = admin.Dial
	direct, byHub := t.access(anonymous, bearer), t.access(through, bearer)
	withToken := machinery.Suite{
		Truth:  machinery.Side{Name: "cloud, with a token", Slug: "direct", Reader: direct, Writer: direct},
		Others: []machinery.Side{{Name: machinery.HubToken, Slug: "hub", Reader: byHub, Writer: byHub}},
		// What the hub passes on it passes on whatever it is.
		Kinds: []string{"endpointslices", "configmaps", "widgets"}, Admin: asAdmin, Parallel: 8,
	}
	own, err := t.lab.CloudConfigFrom(node)
	t.must(err)
	kept := t.access(through, http.Header{"Edge-Cache": {"true"}})
	asNode := machinery.Suite{
		Truth: machinery.Side{Name: "cloud, as the node", Slug: "node", Reader: t.access(own, nil), Writer: asAdmin},
		Others: []machinery.Side{
			{Name: machinery.HubNode, Slug: "plain", Reader: t.access(through, nil), Writer: asAdmin},
			{Name: machinery.HubKept, Slug: "kept", Reader: kept, Writer: asAdmin},
		},
		ReadsOnly: true, Admin: asAdmin, Parallel: 8, Prepared: t.nodeReads(node),
	}
	other := make(chan error, 1)
	t.background.Go(func() { other <- t.protect(func(t *T) { t.must(t.same(withToken)) }) })
	if err := errors.Join(t.same(asNode), <-other); err != nil {
		t.fail("not the same through the hub of %s:\n%w", node, err)
	}
}

// same runs a suite, and kubectl beside it.
func (t *T) same(suite machinery.Suite) error {
	start := time.Now()
	printed := make(chan error, 1)
	t.background.Go(func() { printed <- t.protect(func(t *T) { t.must(t.kubectlSame(suite)) }) })
	report, err := suite.Run(t.ctx)
	err = errors.Join(err, <-printed)
	took := time.Since(start).Seconds()
	t.say("%s: %d checks, %d steps a side, in %.1fs, of which longest %v; allowed to differ: %v, of which known faults: %v",
		suite.Truth.Name, report.Checks, report.Steps, took, report.Slow, report.Excepted, report.Known)
	t.figure("machinery_checks", float64(report.Checks))
	t.figure("machinery_steps", float64(report.Steps))
	t.figure("machinery_s", took)
	for side, n := range report.Known {
		t.figure("machinery_faults_"+strings.NewReplacer(",", "", " ", "_").Replace(side), float64(n))
	}
	return err
}

func (t *T) access(config *rest.Config, header http.Header) *machinery.Access {
	config = rest.CopyConfig(config)
	config.QPS = -1
	a, err := machinery.NewAccess(config, header)
	t.must(err)
	return a
}

// administrator makes a ServiceAccount that may do anything, and returns a token of it.
func (t *T) administrator(name string) string {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := t.cloud.CoreV1().ServiceAccounts(namespace).Create(t.ctx, account, metav1.CreateOptions{})
	t.must(err)
	t.bind(name+"-admin", "cluster-admin", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name})
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	made, err := t.cloud.CoreV1().ServiceAccounts(namespace).CreateToken(t.ctx, name, request, metav1.CreateOptions{})
	t.must(err)
	return made.Status.Token
}

func (t *T) bind(name, role string, subject rbacv1.Subject) {
	_, err := t.cloud.RbacV1().ClusterRoleBindings().Create(t.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}, metav1.CreateOptions{})
	t.must(err)
}

// readers lets a node read what the suite is about, which nodes may not read by themselves.
func (t *T) readers(node string) {
	read := func(groups []string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: []string{"get", "list", "watch"}}
	}
	_, err := t.cloud.RbacV1().ClusterRoles().Create(t.ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "machinery-reader"},
		Rules: []rbacv1.PolicyRule{
			read([]string{""}, "configmaps", "podtemplates", "services", "services/status", "endpoints", "namespaces",
				"configmaps/status", "podtemplates/status", "endpoints/status"),
			read([]string{"discovery.k8s.io"}, "endpointslices", "endpointslices/status"),
			read([]string{"apps"}, "deployments"),
			read([]string{
				"node.machinery.example", "plain.machinery.example", "kept.machinery.example",
			}, "*"),
		},
	}, metav1.CreateOptions{})
	t.must(err)
	t.bind("machinery-reader", "machinery-reader", nodeUser(node))
}

func nodeUser(node string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:node:" + node}
}

// nodeReads waits until the API servers know what the node may.
func (t *T) nodeReads(node string) func(context.Context, machinery.Side) error {
	own, err := t.lab.CloudConfigFrom(node)
	t.must(err)
	client, err := kubernetes.NewForConfig(own)
	t.must(err)
	return func(ctx context.Context, side machinery.Side) error {
		t.eventually(10*time.Second, node+" may read the widgets of "+side.Name, func() error {
			review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
				&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: "watch", Group: side.Slug + ".machinery.example", Resource: "widgets",
					},
				}}, metav1.CreateOptions{})
			if err == nil && !review.Status.Allowed {
				err = errors.New("not yet")
			}
			return err
		})
		return nil
	}
}

// kubectlSame compares what kubectl prints on the sides of a suite. Those of one that only reads look at what the
// administrator has made.
func (t *T) kubectlSame(suite machinery.Suite) error {
	dir, err := os.MkdirTemp("", "machinery-")
	t.must(err)
	defer func() { _ = os.RemoveAll(dir) }() // at worst it stays in the temporary directory
	ctx, stop := context.WithTimeout(t.ctx, sessionTime)
	defer stop()
	namespaced := func(name string) {
		_, err := t.cloud.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		t.must(err)
	}
	seat := func(side machinery.Side, namespace string) machinery.Kubectl {
		return machinery.Kubectl{
			Side: side.Name, Namespace: namespace, Run: t.kubectl(ctx, dir, side), Reader: side.Reader, Admin: suite.Admin,
		}
	}
	shared := "kubectl-" + suite.Truth.Slug
	namespaced(shared)
	if suite.ReadsOnly {
		_, complaint, status, err := t.kubectl(ctx, dir, machinery.Side{Slug: "admin", Reader: suite.Admin})(ctx,
			machinery.KubectlManifest, "apply", "--namespace="+shared, "--filename=-")
		if err != nil || status != 0 {
			return errors.Join(err, fmt.Errorf("kubectl apply: status %d: %s", status, complaint))
		}
	}
	truth := seat(suite.Truth, shared)
	var wrong []error
	for _, side := range suite.Others {
		namespace := shared
		if !suite.ReadsOnly {
			namespace = "kubectl-" + side.Slug
			namespaced(namespace)
		}
		wrong = append(wrong, machinery.SameKubectl(ctx, suite.ReadsOnly, truth, seat(side, namespace)))
	}
	return errors.Join(wrong...)
}

const (
	// kubectlTime bounds one call of kubectl, some of which wait for seconds, sessionTime a whole session: what it takes when
	// nothing else runs is 20 s, and the checks run beside it on the same processors.
	kubectlTime = 45 * time.Second
	sessionTime = 5 * time.Minute
)

// kubectl runs kubectl at a server of this process that passes everything on as a side reads, until ctx ends.
func (t *T) kubectl(ctx context.Context, dir string, side machinery.Side) machinery.RunKubectl {
	handler, err := side.Reader.Handler()
	t.must(err)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	t.must(err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	t.background.Go(func() { _ = server.Serve(listener) })
	context.AfterFunc(ctx, func() { _ = server.Close() })
	// The lab's own kubectl, outside of the lab.
	known, err := t.lab.Kubectl(ctx, "cloud", nil)
	t.must(err)
	binary := known.Args[slices.IndexFunc(known.Args, func(a string) bool { return filepath.Base(a) == "kubectl" })]
	cache := filepath.Join(dir, side.Slug)
	return func(ctx context.Context, stdin string, args ...string) (string, string, int, error) {
		ctx, cancel := context.WithTimeout(ctx, kubectlTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, append(args, "--server=http://"+listener.Addr().String())...)
		cmd.Env = append(os.Environ(), "KUBECACHEDIR="+cache, "KUBECONFIG=/dev/null")
		var out, complaints bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &complaints
		err := cmd.Run()
		if late := context.Cause(ctx); late != nil {
			return "", "", 0, late // not kubectl's own ending
		}
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			return out.String(), complaints.String(), ended.ExitCode(), nil
		}
		return out.String(), complaints.String(), 0, err
	}
}
