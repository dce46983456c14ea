package machinery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Kubectl runs kubectl on one side.
type Kubectl struct {
	Side string
	// Namespace is where it works; it differs between the sides.
	Namespace string
	Run       RunKubectl
	// Reader is the same side without kubectl, Admin the cloud.
	Reader, Admin *Access
}

// even waits until the side has the session's EndpointSlices as the cloud has them. A hub's copy may be behind, as
// docs/pool-resources.md says.
func (k Kubectl) even(ctx context.Context) (err error) {
	defer func() {
		caught := recover()
		if end, ok := caught.(stopped); ok {
			err = end.error
		} else if caught != nil {
			panic(caught)
		}
	}()
	e := &Env{ctx: ctx}
	request := Request{
		Path:  "/apis/discovery.k8s.io/v1/namespaces/" + k.Namespace + "/endpointslices",
		Query: values("labelSelector=app%3Dweb"),
	}
	e.Until(k.Side+" has the EndpointSlices that the cloud has", func() error {
		want, err := e.ask(k.Admin, request)
		if err != nil {
			return err
		}
		has, err := e.ask(k.Reader, request)
		if err != nil {
			return err
		}
		return exactly(has, listed(want.JSON))
	})
	return nil
}

// RunKubectl runs kubectl once.
type RunKubectl func(ctx context.Context, stdin string, args ...string) (stdout, stderr string, status int, err error)

// kubectlStep is one call. $NAMESPACE stands for the side's namespace.
type kubectlStep struct {
	args  string
	stdin string
}

const manifest = `
apiVersion: v1
kind: ConfigMap
metadata: {name: one, labels: {app: web}}
data: {a: b}
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec: {clusterIP: None, ports: [{port: 80, name: http}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, labels: {app: web, kubernetes.io/service-name: web}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1]}, {addresses: [192.0.2.2]}]
ports: [{port: 80, name: http}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "registry.local/web:1"}]}
`

// kubectlWrites is a session of somebody who may write.
var kubectlWrites = []kubectlStep{
	{"apply --filename=- --dry-run=server", manifest},
	{"apply --filename=-", manifest},
	{"apply --filename=- --server-side --force-conflicts", manifest},
	{"diff --filename=-", manifest},
	{"get configmaps,services,endpointslices,deployments --selector=app=web --output=wide", ""},
	{"get configmap one --output=yaml --show-managed-fields=false", ""},
	{"get endpointslices --selector=app=web --chunk-size=1 --show-labels --no-headers", ""},
	{"get configmap nobody", ""},
	{"get nothing", ""},
	{"describe configmap one", ""},
	{"describe service web", ""},
	{"label configmap one tier=front", ""},
	{"annotate configmap one --overwrite note=x", ""},
	{"patch configmap one --type=merge --patch={\"data\":{\"c\":\"d\"}}", ""},
	{"patch configmap one --type=json --patch=[{\"op\":\"remove\",\"path\":\"/data/c\"}]", ""},
	{"get configmap one --output=jsonpath={.data}", ""},
	{"create configmap two --from-literal=x=y", ""},
	{"create configmap two --from-literal=x=y", ""},
	{"scale deployment web --replicas=0", ""},
	{"wait --for=jsonpath={.data.a}=b configmap/one --timeout=5s", ""},
	{"auth can-i delete configmaps", ""},
	{"auth whoami --output=jsonpath={.status.userInfo.username}", ""},
	{"explain configmap.data", ""},
	{"api-resources --api-group=discovery.k8s.io", ""},
	{"get endpointslices --selector=app=web --watch --request-timeout=2s --output-watch-events", ""},
	{"delete configmap two --wait", ""},
	{"delete --filename=- --wait --timeout=10s", manifest},
	{"get configmaps,endpointslices,deployments --selector=app=web", ""},
}

// kubectlReads is a session of a node that reads what exists already.
var kubectlReads = []kubectlStep{
	{"get endpointslices --selector=app=web --output=wide", ""},
	{"get endpointslices --selector=app=web --chunk-size=1 --all-namespaces --field-selector=metadata.namespace=$NAMESPACE", ""},
	{"get services --selector=app=web --output=wide", ""},
	{"get configmaps --selector=app=web --output=wide --show-labels", ""},
	{"get deployments --selector=app=web --output=wide", ""},
	{"get endpointslice web-1 --output=yaml", ""},
	{"get endpointslice nobody", ""},
	{"describe endpointslice web-1", ""},
	{"get endpointslices --selector=app=web --watch --request-timeout=2s --output-watch-events", ""},
	{"get configmaps --selector=app=web --watch --request-timeout=2s --output-watch-events", ""},
	{"get secrets", ""},
	{"delete endpointslice web-1 --wait=false", ""},
	{"auth whoami --output=jsonpath={.status.userInfo.username}", ""},
}

// KubectlManifest holds the objects that a reading session needs, in the default namespace of the user who applies it.
const KubectlManifest = manifest

// SameKubectl runs the same session on both sides, and returns how their output differs.
func SameKubectl(ctx context.Context, reads bool, truth, other Kubectl) error {
	session := kubectlWrites
	if reads {
		session = kubectlReads
	}
	var transcripts [2][]Step
	var failed [2]error
	var together sync.WaitGroup
	for i, k := range []Kubectl{truth, other} {
		together.Go(func() { transcripts[i], failed[i] = k.session(ctx, session) })
	}
	together.Wait()
	if err := errors.Join(failed[:]...); err != nil {
		return err
	}
	all := Compare("kubectl", transcripts[0], transcripts[1])
	return complain(other.Side, all, exceptionsOf("kubectl"))
}

func (k Kubectl) session(ctx context.Context, session []kubectlStep) ([]Step, error) {
	t := Transcript{Aliases: map[string]string{k.Namespace: "NAMESPACE"}}
	for _, s := range session {
		args := append(strings.Fields(strings.ReplaceAll(s.args, "$NAMESPACE", k.Namespace)), "--namespace="+k.Namespace)
		if err := k.even(ctx); err != nil {
			return nil, err
		}
		stdout, stderr, status, err := k.Run(ctx, s.stdin, args...)
		if err != nil {
			return nil, fmt.Errorf("%s: kubectl %s: %w", k.Side, s.args, err)
		}
		seen := map[string]any{"status": status, "stdout": printed(stdout), "stderr": printed(stderr)}
		if err := t.add("kubectl "+s.args, seen); err != nil {
			return nil, err
		}
	}
	return t.Canonical(), nil
}

// printed returns the fields of each line, because the width of columns depends on names, which differ. It leaves out version
// numbers and the hash of a Pod template.
func printed(output string) [][]string {
	var all [][]string
	for line := range strings.Lines(output) {
		switch {
		case strings.Contains(line, "resourceVersion:"):
			continue
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "diff "):
			line = "diff" // names of temporary files
		}
		all = append(all, strings.Fields(line))
	}
	return all
}
