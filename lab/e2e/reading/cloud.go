package reading

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/lab/e2e/kit"
)

var cloudScenarios = []kit.Scenario{{
	Name: "pages-cloud", Tier: kit.Field, Lab: kit.OnePool.AsInstalled(), Run: pagesCloud,
	Pages: slices.Concat(connectedPages, cutOffPages, notReadyPages),
	Doc: "An operator types what the pages about the cloud's side show: installing by kubectl, a pool and its coordinator, a " +
		"person's certificate, settings, standbys, versions, backup, stolen nodes, and `kubectl yurt` while a node is cut " +
		"off. Each command ends well, and prints the columns that its page shows.",
}}

// cutNode is the node whose link is cut in the pages of kubectl yurt.
const cutNode = "p1-n2"

// settingsNamed is how a page's command begins that makes a PoolSettings.
const settingsNamed = "kubectl apply -f - <<END\napiVersion: apps.openyurt.io/v1alpha1\nkind: PoolSettings\nmetadata: {name: "

// forced are pairs for upgrades of what kubectl has applied, and goes on owning.
var forced = []string{"helm upgrade", "helm upgrade --force-conflicts"}

// leasesOnSite reads something from the pool's coordinator.
const leasesOnSite = "kubectl --kubeconfig p1.kubeconfig get leases --namespace kube-node-lease"

// keysForKubelets prints the keys that the pool's coordinator shows to kubelets.
const keysForKubelets = "kubectl --namespace yurt-coordinator-system get secret yurt-coordinator-p1-kubelet-client " +
	"-o jsonpath='{.data}'"

// newKey has openssl make a key.
const newKey = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"

// connectedPages are read with all links up, in this order.
var connectedPages = []kit.Reading{
	{
		Page: "docs/install.md",
		But: []string{ // scenarios helm and kubeadm-stock
			"yurthub ", "make ", "helm install", "kubectl delete yurtcoordinators --all", "kubectl label nodes --all",
			"kubectl wait nodepools", "kubectl delete nodepools", "helm uninstall", "kubectl delete crd",
			"kubectl -n kube-system delete service",
			"kubectl delete namespace",
		},
		Notes: []kit.Note{
			{Begins: "helm template", Prints: "deployment.apps/coordinator-controller", Within: 2 * time.Minute},
			{
				Begins: "kubectl create rolebinding", Before: runs("kubectl create namespace shop"),
				After: soon("kubectl auth can-i create deployments.apps --namespace shop " +
					"--as system:serviceaccount:kube-system:coordinator-controller"),
			},
			{Begins: "kubectl get nodepools", Prints: "p1"},
			{Begins: "kubectl wait --for=condition=Ready yurtcoordinator", Within: 3 * time.Minute},
			{Begins: "kubectl get yurtcoordinators -o wide", Prints: "p1"},
			{Begins: "kubectl --kubeconfig hangzhou.kubeconfig get leases", Prints: "p1-n3"},
			// Scenario viewer approves such a request.
			{Begins: "kubectl yurt kubeconfig", GoesOn: true, Prints: "kubectl certificate approve view-p1-"},
			{
				// The page's reader is ana herself.
				Begins: "kubectl create -f -", Instead: []string{"kubectl create", "kubectl --as=ana create"},
				Before: runs("kubectl create clusterrole requests --verb=create "+
					"--resource=certificatesigningrequests.certificates.k8s.io",
					"kubectl create clusterrolebinding requests --clusterrole=requests --user=ana"),
			},
			{
				Begins: "kubectl certificate approve",
				After:  runs("kubectl wait csr/ana-p1 --for=jsonpath='{.status.certificate}' --timeout=30s"),
			},
			{
				Begins: "kubectl --kubeconfig hangzhou.kubeconfig config set-context",
				After:  runs("kubectl --kubeconfig p1.kubeconfig auth whoami | grep -w ana"),
			},
			{
				Begins:  `kubectl patch yurtcoordinator hangzhou --type=merge -p '{"spec":{"deniedUsers":["ana"`,
				Instead: []string{"3f…", strings.Repeat("3f", 32)},
				Before:  runs(leasesOnSite),
				After:   soon("{ " + leasesOnSite + " 2>&1 || true; } | grep Forbidden"),
			},
			{
				Begins: `kubectl patch yurtcoordinator hangzhou --type=merge -p '{"spec":{"rekey"`,
				Before: runs(keysForKubelets + " > former-keys"),
				After:  soon(keysForKubelets + " > keys && ! cmp --silent keys former-keys"),
			},
			{
				Begins: "kubectl delete node kiosk-7", Before: makesNode("kiosk-7"),
				After: patches(`{"spec":{"deniedUsers":null}}`),
			},
			{
				// As the page says of what kubectl has applied.
				Begins: "helm upgrade", Instead: forced, Within: 3 * time.Minute,
				Before: runs("helm upgrade --install yurt-coordinator dist/images/yurt-coordinator-*.tgz " +
					"--namespace kube-system --take-ownership --force-conflicts"),
				After: runs("kubectl --namespace kube-system get deployment coordinator-approver -o yaml | grep 192.168.8.0/24"),
			},
		},
	},
	{
		Page: "docs/settings.md", Only: []string{"kubectl "}, Instead: []string{"box-with-ups", "p1-n1"},
		Notes: []kit.Note{
			{Begins: settingsNamed + "shops}", Before: runs("kubectl label nodepool p1 kind=shop size=large")},
			{Begins: "kubectl get poolsettings", Prints: "shops"},
			{Begins: "kubectl wait --for=condition=Followed", Within: 2 * time.Minute},
			{
				Begins: "kubectl wait --for=condition=CoordinatorsUpdated", Within: 5 * time.Minute,
				After: runs("kubectl --namespace kube-system get pods -l app.kubernetes.io/name=yurt-coordinator " +
					"-o yaml | grep mirror-quota-bytes=268435456"),
			},
			{
				Begins: "kubectl patch yurtappset",
				After: all(
					runs(`kubectl patch poolsettings large-shops --type=merge -p '{"spec":{"coordinator":{"verbosity":1}}}'`),
					soon("kubectl --namespace kube-system get yurtappset yurt-coordinator -o yaml | grep 'reason: Paused'"),
					runs("kubectl --namespace kube-system patch yurtappset yurt-coordinator --type=merge -p "+
						`'{"spec":{"rollout":{"paused":null}}}'`),
					soon("kubectl wait --for=condition=CoordinatorsUpdated poolsettings/large-shops --timeout=30s"),
				),
			},
		},
	},
	{
		Page: "docs/logs.md",
		Notes: []kit.Note{{
			Begins: settingsNamed + "look-closer}",
			After: all(soon("kubectl wait --for=condition=Followed poolsettings/look-closer --timeout=10s"),
				runs("kubectl delete poolsettings look-closer")),
		}},
	},
	{
		Page:  "docs/small-pools.md",
		Notes: []kit.Note{{After: soon("kubectl wait --for=condition=Ready poolsettings/kiosks --timeout=10s")}},
	},
	{
		Page: "docs/standbys.md",
		Notes: []kit.Note{
			{Begins: "kubectl wait", Within: 3 * time.Minute},
			{Begins: "kubectl get yurtcoordinator", Prints: `p1-n\d.*p1-n\d`},
			{Begins: "kubectl -n kube-system get pods", Prints: "COORDINATOR-SLOT", After: patches(`{"spec":{"replicas":null}}`)},
		},
	},
	{
		Page: "docs/versions.md",
		Instead: []string{
			"yurt-coordinator-0.2.0.tgz", "dist/images/yurt-coordinator-*.tgz", "sha256:…", "sha256:" + strings.Repeat("3f", 32),
		},
		Notes: []kit.Note{
			{Begins: "helm upgrade", Instead: forced, Within: 3 * time.Minute},
		},
	},
	{Page: "docs/pool-cut.md"},
	{
		Page: "docs/pool-resources.md",
		Notes: []kit.Note{{
			Begins: "kubectl annotate service web", Before: runs("kubectl create service clusterip web --tcp=80"),
		}},
	},
	// A node of a pool with a coordinator can't be autonomous.
	{Page: "docs/autonomy.md", Instead: []string{"NODE", "cloud"}},
	{Page: "docs/networks.md"},
	{
		Page: "docs/backup.md",
		Notes: []kit.Note{
			{Begins: "kubectl get nodepools", Prints: "kind: YurtCoordinator"},
			{Begins: "kubectl get secrets", Prints: "yurt-coordinator-p1-ca"},
			{Begins: "kubectl get nodes", Prints: "openyurt.io/lan-address"},
		},
	},
	{
		Page: "docs/metrics.md",
		Notes: []kit.Note{{
			After: soon("kubectl auth can-i get /metrics --as system:serviceaccount:monitoring:reader"),
		}},
	},
	{
		Page: "docs/relay.md",
		Notes: []kit.Note{
			{Begins: "kubectl patch", After: patches(`{"spec":{"relayedNodeScheduling":null}}`)},
			{Begins: "curl", On: cutNode, Prints: `"cloud": "up"`},
		},
	},
	{Page: "docs/offline.md", Only: []string{"curl"}, Notes: []kit.Note{{Begins: "curl", On: cutNode, Prints: `"disk": \{`}}},
	{
		Page: "docs/cloud-authority.md",
		Notes: []kit.Note{
			{
				Begins: "openssl", Before: runs(
					"openssl req -x509 "+newKey+" -keyout old-ca.key -out old-ca.crt -subj /CN=old",
					"openssl req -new "+newKey+" -keyout new-ca.key -out new-ca.csr -subj /CN=new",
					"echo basicConstraints=critical,CA:TRUE > ca.ext", "cp old-ca.crt apiserver.crt"),
				After: runs("openssl verify -CAfile old-ca.crt cross.crt"),
			},
			{Begins: "cat", After: runs("[ $(grep -c BEGIN apiserver-chain.crt) = 2 ]")},
		},
	},
	{
		Page: "docs/on-site-page.md",
		Notes: []kit.Note{
			{Begins: "kubectl yurt ui", GoesOn: true, Prints: `http://127\.0\.0\.1:\d+`},
			{Begins: "kubectl yurt ui p1 --link", Prints: `https://[0-9.]+:10272/ui/\?link=[\w-]{43}`},
			{Begins: "kubectl yurt ui p1 --withdraw", Prints: "(?m)^1 link to the page of pool p1 withdrawn"},
			// With the pool's kubeconfig, which docs/install.md has fetched.
			{Begins: "kubectl config view", Instead: []string{"kubectl config", "kubectl --kubeconfig p1.kubeconfig config"}},
			{
				Begins: "openssl pkcs12", Types: "a word\na word\n",
				After: runs("openssl pkcs12 -in operator.p12 -passin 'pass:a word' -nokeys | grep 'BEGIN CERTIFICATE'"),
			},
		},
	},
}

// cutOffPages are read while the link of cutNode is cut.
var cutOffPages = []kit.Reading{
	{
		Page: "docs/kubectl-yurt.md", But: []string{"make "}, Instead: []string{"/usr/local/bin", "home"},
		Notes: []kit.Note{
			{Begins: "kubectl yurt status --problems -o name", Prints: "(?m)^nodepool.apps.openyurt.io/p1$", Soon: true},
			{Begins: "kubectl yurt status -o jsonpath", Prints: `p1-n\d`},
			{Begins: "kubectl yurt status -w --problems", Prints: `(?m)^p1 `, GoesOn: true},
			{Begins: "kubectl yurt why", Prints: "Node p1-n2 of pool p1: Delegated"},
			{Begins: "kubectl yurt check", Prints: `(?m)^warn +heartbeat`},
		},
	},
	{
		Page: "docs/troubleshooting.md", Only: []string{"kubectl "},
		Notes: []kit.Note{{Begins: "kubectl yurt why", Prints: "Delegated"}},
	},
	{Page: "docs/who-keeps-my-pods.md", Notes: []kit.Note{{Begins: "kubectl yurt why", Prints: "Connected"}}},
}

// notReadyPages are read last, while the link is still cut. The node is shown NotReady for them.
var notReadyPages = []kit.Reading{{
	Page: "docs/notready.md",
	Notes: []kit.Note{{
		After: all(
			soon(readyIs("Unknown")), patches(`{"spec":{"delegatedNodeStatus":null}}`), soon(readyIs("True")),
		),
	}},
}}

// readyIs is a command that fails unless the Node of cutNode has this condition Ready.
func readyIs(status string) string {
	return fmt.Sprintf(`kubectl get node %s -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}' | grep -x %s`,
		cutNode, status)
}

func pagesCloud(t *kit.T) {
	t.Pool.Settled(30 * time.Second)
	began := time.Now()
	r := t.NewReader()
	r.Words = append(r.Words,
		"hangzhou", "p1", "shop-1", "p1-n1", "shop-2", "p1-n2", "shop-3", "p1-n3", "POOL", "p1", "NODE", cutNode,
		"192.168.7.11", t.Node("p1-n1").Address(),
	)
	for _, x := range connectedPages {
		r.Read(x)
	}
	t.Pool.Settled(2 * time.Minute)
	t.Say("cutting the WAN link of %s, silently", cutNode)
	cut := t.Cut(cutNode)
	t.Node(cutNode).Delegated(cut)
	for _, x := range cutOffPages {
		r.Read(x)
	}
	t.NeverNotReady(began, t.Pool.Nodes()...)
	for _, x := range notReadyPages {
		r.Read(x)
	}
	healed := t.Heal(cutNode)
	t.Node(cutNode).Direct(healed)
	t.Eventually(20*time.Second, "the YurtCoordinator is Ready", func() error {
		return t.Cloud.Condition("p1", "Ready", "True", "")
	})
}

// runs returns a function that runs commands of the scenario's own.
func runs(commands ...string) func(*kit.Reader) {
	return func(r *kit.Reader) {
		for _, c := range commands {
			r.Run(c)
		}
	}
}

// patches returns a function that patches the pool's YurtCoordinator.
func patches(patch string) func(*kit.Reader) {
	return runs("kubectl patch yurtcoordinator p1 --type=merge -p '" + patch + "'")
}

// soon returns a function that runs commands of the scenario's own, each until it succeeds.
func soon(commands ...string) func(*kit.Reader) {
	return func(r *kit.Reader) {
		for _, c := range commands {
			r.RunSoon(c, time.Minute)
		}
	}
}

// all returns a function that calls these one after the other.
func all(each ...func(*kit.Reader)) func(*kit.Reader) {
	return func(r *kit.Reader) {
		for _, do := range each {
			do(r)
		}
	}
}

// makesNode returns a function that makes a Node of the pool without a machine.
func makesNode(name string) func(*kit.Reader) {
	return runs(fmt.Sprintf("kubectl create -f - <<END\napiVersion: v1\nkind: Node\nmetadata: {name: %s, labels: {%s: p1}}\nEND",
		name, edge.LabelNodePool))
}
