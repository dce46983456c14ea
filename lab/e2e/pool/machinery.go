package pool

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

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"yurtcoordinator/lab/e2e/kit"
	"yurtcoordinator/lab/e2e/machinery"
)

var machineryScenarios = []kit.Scenario{{
	Name: "machinery", Tier: kit.Core, Lab: kit.HubsAlone, Run: apiMachinery,
	Doc: "What Kubernetes' API-machinery tests exercise (watches, pagination, apply, patches, tables, negotiation and " +
		"more) gives the same answer through a hub as directly, apart from the differences listed in " +
		"`lab/e2e/machinery/exceptions.go`.",
}}

// apiMachinery runs the suite twice: with an administrator's token, which the hub forwards, and as the node, whose
// reads the hub answers itself where it can.
func apiMachinery(t *kit.T) {
	node := t.Pool.Follower(t.Pool.Settled(30 * time.Second))
	token := administrator(t, "machinery")
	readers(t, node)
	admin, err := t.Lab.CloudConfig()
	t.Must(err)
	asAdmin := access(t, admin, nil)
	through, err := t.Lab.HubConfig(node)
	t.Must(err)
	another, err := t.Lab.HubConfigAs(node, "")
	t.Must(err)
	bearer := http.Header{"Authorization": {"Bearer " + token}}
	anonymous := rest.AnonymousClientConfig(admin)
	anonymous.Dial = admin.Dial
	direct, byHub := access(t, anonymous, bearer), access(t, another, bearer)
	withToken := machinery.Suite{
		Truth:  machinery.Side{Name: "cloud, with a token", Slug: "direct", Reader: direct, Writer: direct},
		Others: []machinery.Side{{Name: machinery.HubToken, Slug: "hub", Reader: byHub, Writer: byHub}},
		// What the hub forwards, it forwards unseen.
		Kinds: []string{"endpointslices", "configmaps", "widgets"}, Admin: asAdmin, Parallel: 8,
	}
	own, err := t.Lab.CloudConfigFrom(node)
	t.Must(err)
	kept := access(t, through, http.Header{"Edge-Cache": {"true"}})
	asNode := machinery.Suite{
		Truth: machinery.Side{Name: "cloud, as the node", Slug: "node", Reader: access(t, own, nil), Writer: asAdmin},
		Others: []machinery.Side{
			{Name: machinery.HubNode, Slug: "plain", Reader: access(t, through, nil), Writer: asAdmin},
			{Name: machinery.HubKept, Slug: "kept", Reader: kept, Writer: asAdmin},
		},
		ReadsOnly: true, Admin: asAdmin, Parallel: 8, Prepared: nodeReads(t, node),
	}
	other := make(chan error, 1)
	t.Background.Go(func() { other <- t.Protect(func(t *kit.T) { t.Must(same(t, withToken)) }) })
	if err := errors.Join(same(t, asNode), <-other); err != nil {
		t.Fail("not the same through the hub of %s:\n%w", node, err)
	}
}

// same runs a suite, and kubectl beside it.
func same(t *kit.T, suite machinery.Suite) error {
	start := time.Now()
	printed := make(chan error, 1)
	t.Background.Go(func() { printed <- t.Protect(func(t *kit.T) { t.Must(kubectlSame(t, suite)) }) })
	report, err := suite.Run(t.Ctx)
	err = errors.Join(err, <-printed)
	took := time.Since(start).Seconds()
	t.Say("%s: %d checks, %d steps a side, in %.1fs, of which longest %v; allowed to differ: %v, of which known faults: %v",
		suite.Truth.Name, report.Checks, report.Steps, took, report.Slow, report.Excepted, report.Known)
	t.Figure("machinery_checks", float64(report.Checks))
	t.Figure("machinery_steps", float64(report.Steps))
	t.Figure("machinery_s", took)
	for side, n := range report.Known {
		t.Figure("machinery_faults_"+strings.NewReplacer(",", "", " ", "_").Replace(side), float64(n))
	}
	return err
}

func access(t *kit.T, config *rest.Config, header http.Header) *machinery.Access {
	config = rest.CopyConfig(config)
	config.QPS = -1
	a, err := machinery.NewAccess(config, header)
	t.Must(err)
	return a
}

// administrator makes a ServiceAccount with all rights, and returns a token for it.
func administrator(t *kit.T, name string) string {
	t.MakeAccount(name)
	t.Bind(name+"-admin", "cluster-admin", kit.Account(name))
	return t.Token(name)
}

// readers lets a node read what the suite is about, which nodes by themselves must not read.
func readers(t *kit.T, node string) {
	t.Grant("machinery-reader", []rbacv1.PolicyRule{
		kit.Reads("", "configmaps", "podtemplates", "services", "services/status", "endpoints", "namespaces",
			"configmaps/status", "podtemplates/status", "endpoints/status"),
		kit.Reads("discovery.k8s.io", "endpointslices", "endpointslices/status"),
		kit.Reads("apps", "deployments"),
		kit.Reads("node.machinery.example", "*"), kit.Reads("plain.machinery.example", "*"),
		kit.Reads("kept.machinery.example", "*"),
	}, nodeUser(node))
}

func nodeUser(node string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "system:node:" + node}
}

// nodeReads waits until the API servers know the node's new rights.
func nodeReads(t *kit.T, node string) func(context.Context, machinery.Side) error {
	own, err := t.Lab.CloudConfigFrom(node)
	t.Must(err)
	client := t.Client(own)
	return func(ctx context.Context, side machinery.Side) error {
		t.Eventually(10*time.Second, node+" may read the widgets of "+side.Name, func() error {
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

// kubectlSame compares what kubectl prints on the sides of a suite. If the suite only reads, kubectl reads the objects that an
// administrator has applied in the cloud.
func kubectlSame(t *kit.T, suite machinery.Suite) error {
	dir, err := os.MkdirTemp("", "machinery-")
	t.Must(err)
	defer func() { _ = os.RemoveAll(dir) }() // at worst it stays in the temporary directory
	ctx, stop := context.WithTimeout(t.Ctx, sessionTime)
	defer stop()
	namespaced := func(name string) {
		_, err := t.Cloud.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		t.Must(err)
	}
	seat := func(side machinery.Side, namespace string) machinery.Kubectl {
		return machinery.Kubectl{
			Side: side.Name, Namespace: namespace, Run: kubectl(ctx, t, dir, side), Reader: side.Reader, Admin: suite.Admin,
		}
	}
	shared := "kubectl-" + suite.Truth.Slug
	namespaced(shared)
	if suite.ReadsOnly {
		_, complaint, status, err := kubectl(ctx, t, dir, machinery.Side{Slug: "admin", Reader: suite.Admin})(ctx,
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
	// kubectlTime bounds one call of kubectl; some calls wait for seconds. sessionTime bounds a whole session. A session takes
	// 20 s when nothing else runs, but the checks run beside it on the same processors.
	kubectlTime = 45 * time.Second
	sessionTime = 5 * time.Minute
)

// kubectl runs kubectl at a server of this process that passes everything on as a side reads, until ctx ends.
func kubectl(ctx context.Context, t *kit.T, dir string, side machinery.Side) machinery.RunKubectl {
	handler, err := side.Reader.Handler()
	t.Must(err)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	t.Must(err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	t.Background.Go(func() { _ = server.Serve(listener) })
	context.AfterFunc(ctx, func() { _ = server.Close() })
	// The lab's own kubectl, outside of the lab.
	known, err := t.Lab.Kubectl(ctx, "cloud", nil)
	t.Must(err)
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
