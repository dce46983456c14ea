package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"yurtcoordinator/lab/converter"
	"yurtcoordinator/lab/e2e/kit"
)

var sickScenarios = []kit.Scenario{{
	Name: "sick-webhook", Lab: auditAll(kit.RealKubelets(kit.OnePool)), Run: sickWebhook,
	Doc: "The conversion webhook of a custom resource is gone for three minutes. An agent that follows the resource is " +
		"refused. Everything else reaches the node's programs within seconds, every heartbeat is direct, and nothing is " +
		"listed again. When the webhook is back, the agent is current within a minute.",
}}

// sickFor is how long one part of the cloud does not work.
const sickFor = 3 * time.Minute

// converterPort is where the webhook listens on the cloud's machine.
const converterPort = 7445

const widgetGroup, widgetName = "lab.example.com", "one"

var (
	definitions = schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	widgets      = schema.GroupVersionResource{Group: widgetGroup, Version: "v1", Resource: "widgets"}
	widgetsAlpha = schema.GroupVersionResource{Group: widgetGroup, Version: "v1alpha1", Resource: "widgets"}
)

func sickWebhook(t *kit.T) {
	node := t.Pool.Follower(t.Pool.SettledAway())
	end := convert(t)
	cloud, err := t.Lab.CloudConfig()
	t.Must(err)
	defineWidgets(t, t.Cloud.Objects, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{
			"url": fmt.Sprintf("https://127.0.0.1:%d/", converterPort), "caBundle": cloud.CAData,
		},
	}}, widgetsAlpha, widgets)
	agents := agentsOf(t, node)
	f := follow(t, node)
	setWidget(t, t.Cloud.Objects, widgetsAlpha, 1)
	agents.have(1)
	f.current()
	t.Hold(5*time.Second, "what was new has been read")
	before := calmSince(t)

	t.Say("nothing answers where the webhook was, and the custom resource changes")
	began := time.Now()
	t.Figure("converted", float64(end()))
	setWidget(t, t.Cloud.Objects, widgetsAlpha, 2)
	t.Figure("change_to_refused_s", agents.refused(60*time.Second).Seconds())
	bound := time.Now()
	t.Node(node).DeployNeedy() // the hub must begin to follow what it needs
	t.Figure("new_pod_answers_s", time.Since(bound).Seconds())
	for time.Since(began) < sickFor {
		f.current()
		agents.refused(0)
		t.Hold(20*time.Second, "the webhook stays away")
	}
	before.holds()

	t.Say("the webhook is back")
	healed := time.Now()
	end = convert(t)
	agents.have(2)
	t.Figure("healed_to_current_s", time.Since(healed).Seconds())
	agents.follow(2, 2*time.Minute)
	f.current()
	before.holds()
	end()
}

// convert starts the webhook on the cloud's machine. The returned function ends it, and returns how many objects it converted.
func convert(t *kit.T) func() int64 {
	o := converter.Order{Listen: fmt.Sprintf("127.0.0.1:%d", converterPort)}
	o.Cert, o.Key = t.Lab.CloudKeys()
	end := kit.Play[converter.Report](t, "cloud", converter.Command, o)
	return func() int64 { return end().Converted }
}

// defineWidgets makes a custom resource with these versions, of which the first is stored, and waits until all are served.
// conversion is how one becomes another; nil means that there is but one.
func defineWidgets(t *kit.T, server dynamic.Interface, conversion map[string]any, versions ...schema.GroupVersionResource) {
	spec := map[string]any{
		"group": widgetGroup, "scope": "Namespaced",
		"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
	}
	var all []any
	for i, v := range versions {
		all = append(all, map[string]any{
			"name": v.Version, "served": true, "storage": i == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}},
		})
	}
	spec["versions"] = all
	if conversion != nil {
		spec["conversion"] = conversion
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": definitions.GroupVersion().String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + widgetGroup}, "spec": spec,
	})
	t.Must(err)
	o := &unstructured.Unstructured{}
	t.Must(o.UnmarshalJSON(text))
	_, err = server.Resource(definitions).Create(t.Ctx, o, metav1.CreateOptions{})
	t.Must(err)
	t.Eventually(30*time.Second, "the custom resource is served", func() error {
		for _, v := range versions {
			if _, err := server.Resource(v).List(t.Ctx, metav1.ListOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// setWidget makes the widget, or changes it.
func setWidget(t *kit.T, server dynamic.Interface, version schema.GroupVersionResource, size int64) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version.GroupVersion().String(), "kind": "Widget", "metadata": map[string]any{"name": widgetName},
		"size": size,
	}}
	_, err := server.Resource(version).Namespace(kit.Namespace).Apply(t.Ctx, widgetName, o,
		metav1.ApplyOptions{FieldManager: "e2e"})
	t.Must(err)
}

// agent is a program of a node that follows the widgets through the hub.
type agent struct {
	t      *kit.T
	as     string
	client rest.Interface
	has    cache.Store
}

type agents []agent

// agentsOf starts two agents on a node. One has the node's identity, the other a ServiceAccount's.
func agentsOf(t *kit.T, node string) (all agents) {
	t.Grant("widget-readers", []rbacv1.PolicyRule{kit.Reads(widgetGroup, widgets.Resource)},
		rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:nodes"}, kit.Account("default"))
	byNode, err := t.Lab.HubConfig(node)
	t.Must(err)
	byAccount, err := t.Lab.HubConfigAs(node, t.Token("default"))
	t.Must(err)
	for as, access := range map[string]*rest.Config{"the node": byNode, "a ServiceAccount": byAccount} {
		access.UserAgent = "calico-node/e2e"
		client, err := dynamic.NewForConfig(access)
		t.Must(err)
		informer := dynamicinformer.NewFilteredDynamicInformer(client, widgets, kit.Namespace, 0, nil, nil).Informer()
		t.Background.Go(func() { informer.RunWithContext(t.Ctx) })
		all = append(all, agent{t, as, t.Client(access).CoreV1().RESTClient(), informer.GetStore()})
	}
	return all
}

// lists returns the size of the widget in the list that the agent gets.
func (a agent) lists() (size int64, err error) {
	ctx, cancel := context.WithTimeout(a.t.Ctx, 30*time.Second) // a hub waits up to 15 s for what it may learn
	defer cancel()
	text, err := a.client.Get().AbsPath("/apis", widgets.Group, widgets.Version, "namespaces", kit.Namespace, widgets.Resource).
		SetHeader("Accept", "application/json").MaxRetries(0).DoRaw(ctx)
	var list struct{ Items []struct{ Size int64 } }
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil || len(list.Items) != 1 {
		return 0, fmt.Errorf("it lists %+v, %w", list.Items, errors.Join(err))
	}
	return list.Items[0].Size, nil
}

// have waits until each agent lists the widget as it is, for a minute.
func (all agents) have(size int64) {
	for _, a := range all {
		a.t.Eventually(time.Minute, fmt.Sprintf("the agent with the identity of %s lists size %d", a.as, size), func() error {
			is, err := a.lists()
			if err == nil && is != size {
				err = fmt.Errorf("it lists %d", is)
			}
			return err
		})
	}
}

// follow waits until each agent has been told of the widget as it is.
func (all agents) follow(size int64, within time.Duration) {
	for _, a := range all {
		heard := fmt.Sprintf("the agent with the identity of %s has heard of size %d", a.as, size)
		took := a.t.Eventually(within, heard, func() error {
			object, there, err := a.has.GetByKey(kit.Namespace + "/" + widgetName)
			if err != nil || !there {
				return fmt.Errorf("it has none, %w", errors.Join(err))
			}
			widget := object.(*unstructured.Unstructured) //nolint:forcetypeassert // it is one
			is, _, err := unstructured.NestedInt64(widget.Object, "size")
			if err == nil && is != size {
				err = fmt.Errorf("it has %d", is)
			}
			return err
		})
		a.t.Figure("current_to_followed_s", took.Seconds())
	}
}

// refused waits until the cloud's refusal of a list reaches each agent.
func (all agents) refused(within time.Duration) (took time.Duration) {
	for _, a := range all {
		took = max(took, a.t.Eventually(within, "the agent with the identity of "+a.as+" is refused", func() error {
			is, err := a.lists()
			if code := codeOf(err); code < http.StatusInternalServerError && code != http.StatusTooManyRequests {
				return fmt.Errorf("size %d, %w", is, errors.Join(err))
			}
			return nil
		}))
	}
	return took
}

// codeOf returns the status of an API's refusal; 0 means that there is none.
func codeOf(err error) int32 {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return status.Status().Code
}
