package model_test

import (
	"net/http"
	"strings"

	"yurtcoordinator/internal/sim/model"
)

const (
	leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	// allLeases are those of all namespaces. The real server has some of its own behind them, which a count of the rest would
	// show. Lists by a selector have no such count.
	allLeases = "/apis/coordination.k8s.io/v1/leases?labelSelector=%21none"
	nodes     = "/api/v1/nodes"
	pods      = "/api/v1/namespaces/default/pods"
	maps_     = "/api/v1/namespaces/default/configmaps"
	slices_   = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	pools     = "/apis/apps.openyurt.io/v1beta2/nodepools"

	merge     = "application/merge-patch+json"
	strategic = "application/strategic-merge-patch+json"
	jsonPatch = "application/json-patch+json"
	metadata  = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

	ok, created = http.StatusOK, http.StatusCreated
)

var (
	rv1 = map[string]string{"rv1": "metadata.resourceVersion", "uid1": "metadata.uid"}

	podSpec = `"spec":{"nodeName":"n1","terminationGracePeriodSeconds":30,"containers":[{"name":"c","image":"i"}]}`
)

// because says what a Status must have as its reason.
func because(reason string) map[string]string { return map[string]string{"reason": reason} }

// steps is the transcript. Each builds on those before.
var steps = []step{
	// Leases: creation, optimistic concurrency, creation by update.
	{name: "create a Lease", method: "POST", path: leases, code: created, keep: rv1,
		body: `{"metadata":{"name":"n1","labels":{"a":"b"}},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,` +
			`"renewTime":"2026-01-01T00:00:00.000000Z"}}`},
	{name: "create it again", method: "POST", path: leases, code: 409, has: because("AlreadyExists"),
		body: `{"metadata":{"name":"n1"},"spec":{}}`},
	{name: "get a Lease", path: leases + "/n1", code: ok},
	{name: "get a Lease from the cache", path: leases + "/n1?resourceVersion={rv1}", code: ok},
	{name: "get one that is not there", path: leases + "/nobody", code: 404, has: because("NotFound")},
	{name: "update a Lease", method: "PUT", path: leases + "/n1", code: ok,
		keep: map[string]string{"rv2": "metadata.resourceVersion"},
		body: `{"metadata":{"name":"n1","resourceVersion":"{rv1}"},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,` +
			`"renewTime":"2026-01-01T00:00:10.000000Z"}}`},
	{name: "update it without a change: no new revision", method: "PUT", path: leases + "/n1", code: ok,
		body: `{"metadata":{"name":"n1","resourceVersion":"{rv2}"},"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,` +
			`"renewTime":"2026-01-01T00:00:10.000000Z"}}`},
	{name: "update an old revision", method: "PUT", path: leases + "/n1", code: 409, has: because("Conflict"),
		body: `{"metadata":{"name":"n1","resourceVersion":"{rv1}"},"spec":{"holderIdentity":"n2"}}`},
	{name: "update a Lease without a revision", method: "PUT", path: leases + "/n1", code: 422, has: because("Invalid"),
		body: `{"metadata":{"name":"n1"},"spec":{"holderIdentity":"n2"}}`},
	{name: "update with another uid", method: "PUT", path: leases + "/n1", code: 409, has: because("Conflict"),
		body: `{"metadata":{"name":"n1","uid":"00000000-0000-0000-0000-000000000000","resourceVersion":"{rv2}"},"spec":{` +
			`"holderIdentity":"n2"}}`},
	{name: "update under another name", method: "PUT", path: leases + "/n1", code: 400, has: because("BadRequest"),
		body: `{"metadata":{"name":"n2","resourceVersion":"{rv2}"},"spec":{}}`},
	{name: "update in another namespace", method: "PUT", path: leases + "/n1", code: 400, has: because("BadRequest"),
		body: `{"metadata":{"name":"n1","namespace":"default","resourceVersion":"{rv2}"},"spec":{}}`},
	{name: "an update of a Lease that is not there creates it", method: "PUT", path: leases + "/n2", code: created,
		body: `{"metadata":{"name":"n2"},"spec":{"holderIdentity":"n2"}}`},
	{name: "and with the revision of one that was", method: "PUT", path: leases + "/n3", code: created,
		body: `{"metadata":{"name":"n3","resourceVersion":"{rv1}"},"spec":{"holderIdentity":"n3"}}`},
	{name: "but not with its uid", method: "PUT", path: leases + "/n4", code: 409, has: because("Conflict"),
		body: `{"metadata":{"name":"n4","uid":"{uid1}"},"spec":{"holderIdentity":"n4"}}`},
	{name: "a Lease that lasts no time", method: "POST", path: leases, code: 422, has: because("Invalid"),
		body: `{"metadata":{"name":"bad"},"spec":{"leaseDurationSeconds":0,"leaseTransitions":-1}}`},
	{name: "a bad name", method: "POST", path: leases, code: 422, has: because("Invalid"),
		body: `{"metadata":{"name":"Bad_Name"},"spec":{}}`},
	{name: "no name", method: "POST", path: leases, code: 422, has: because("Invalid"), body: `{"metadata":{},"spec":{}}`},
	{name: "another kind", method: "POST", path: leases, code: 400, has: because("BadRequest"),
		body:    `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n9"}}`,
		differs: "the real message has Go's names of types"},
	{name: "no JSON", method: "POST", path: leases, code: 400, has: because("BadRequest"), body: `{`,
		differs: "the real message comes from another layer of the decoder"},
	{name: "create with a revision", method: "POST", path: leases, code: 500,
		body: `{"metadata":{"name":"n5","resourceVersion":"{rv1}"},"spec":{}}`},
	{name: "create in a namespace that is not there", method: "POST", path: "/api/v1/namespaces/nowhere/configmaps", code: 404,
		has: because("NotFound"), body: `{"metadata":{"name":"a"}}`},
	{name: "a generated name", method: "POST", path: maps_, code: created, body: `{"metadata":{"generateName":"made-"}}`,
		differs: "the name is by chance"},
	{name: "a dry run", method: "POST", path: maps_ + "?dryRun=All", code: created, body: `{"metadata":{"name":"dry"}}`},
	{name: "leaves nothing", path: maps_ + "/dry", code: 404, has: because("NotFound")},

	// Nodes: subresource status, patches, what admission adds.
	{name: "create a Node", method: "POST", path: nodes, code: created,
		keep: map[string]string{"node": "metadata.resourceVersion"},
		body: `{"metadata":{"name":"n1"},"spec":{"podCIDR":"10.0.0.0/24","podCIDRs":["10.0.0.0/24"]},"status":{"phase":` +
			`"Running"}}`},
	{name: "its status, by a strategic patch", method: "PATCH", path: nodes + "/n1/status", kind: strategic, code: ok,
		body: `{"metadata":{"labels":{"from":"status"}},"spec":{"unschedulable":true},"status":{"conditions":[{"type":` +
			`"Ready","status":"True"}]}}`},
	{name: "a second condition joins the first", method: "PATCH", path: nodes + "/n1/status", kind: strategic, code: ok,
		body: `{"status":{"conditions":[{"type":"Mem","status":"False"}]}}`,
		has:  map[string]string{"status.conditions.1.type": "Ready"}},
	{name: "a taint, by a strategic patch", method: "PATCH", path: nodes + "/n1", kind: strategic, code: ok,
		body: `{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]},"status":{"phase":"Pending"}}`},
	{name: "a label, by a merge patch", method: "PATCH", path: nodes + "/n1", kind: merge, code: ok,
		body: `{"metadata":{"labels":{"from":null,"to":"spec"}}}`},
	{name: "a JSON patch", method: "PATCH", path: nodes + "/n1", kind: jsonPatch, code: ok,
		body: `[{"op":"test","path":"/metadata/labels/to","value":"spec"},{"op":"add","path":"/spec/unschedulable",` +
			`"value":true}]`},
	{name: "a JSON patch whose test fails", method: "PATCH", path: nodes + "/n1", kind: jsonPatch, code: 422,
		body: `[{"op":"test","path":"/metadata/labels/to","value":"x"}]`, differs: "the words are of the library's version"},
	{name: "a patch of an old revision", method: "PATCH", path: nodes + "/n1", kind: merge, code: 409, has: because("Conflict"),
		body: `{"metadata":{"resourceVersion":"{node}","labels":{"x":"y"}}}`},
	{name: "a patch with another uid", method: "PATCH", path: nodes + "/n1", kind: merge, code: 422, has: because("Invalid"),
		differs: "the real one says it twice",
		body:    `{"metadata":{"uid":"00000000-0000-0000-0000-000000000000","labels":{"x":"y"}}}`},
	{name: "a patch without a change", method: "PATCH", path: nodes + "/n1", kind: merge, code: ok, body: `{}`},
	{name: "a patch of nothing", method: "PATCH", path: nodes + "/n2", kind: merge, code: 404, has: because("NotFound"),
		body: `{}`},
	{name: "a patch of an unknown kind", method: "PATCH", path: nodes + "/n1", kind: "text/plain", code: 415, body: `{}`,
		differs: "the model takes no server-side apply"},
	{name: "an update of a Node that is not there", method: "PUT", path: nodes + "/n2", code: 404, has: because("NotFound"),
		body: `{"metadata":{"name":"n2"}}`},
	{name: "an update of a Node's status", method: "PUT", path: nodes + "/n1/status", code: ok,
		body: `{"metadata":{"name":"n1","labels":{"a":"b"}},"status":{"phase":"Running"}}`},
	{name: "a second Node", method: "POST", path: nodes, code: created, body: `{"metadata":{"name":"n2"}}`},
	{name: "Nodes by a field", path: nodes + "?fieldSelector=spec.unschedulable%3Dtrue", code: ok,
		has: map[string]string{"items.0.metadata.name": "n1"}},
	{name: "an unknown field", path: nodes + "?fieldSelector=spec.podCIDR%3Dx", code: 400, has: because("BadRequest")},
	{name: "one Node, by its name's field", path: nodes + "?fieldSelector=metadata.name%3Dn2", code: ok,
		has: map[string]string{"items.0.metadata.name": "n2"}},

	// Pods: generation, graceful deletion, finalizers.
	{name: "create a Pod", method: "POST", path: pods, code: created,
		keep: map[string]string{"pod": "metadata.resourceVersion", "poduid": "metadata.uid"},
		body: `{"metadata":{"name":"p1","labels":{"app":"a"}},` + podSpec + `}`,
		has:  map[string]string{"metadata.generation": "1", "status.phase": "Pending"}},
	{name: "a Pod's status", method: "PATCH", path: pods + "/p1/status", kind: strategic, code: ok,
		body: `{"metadata":{"uid":"{poduid}"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`},
	{name: "a toleration raises the generation", method: "PATCH", path: pods + "/p1", kind: jsonPatch, code: ok,
		body: `[{"op":"add","path":"/spec/tolerations/-","value":{"key":"k","operator":"Exists"}}]`,
		has:  map[string]string{"metadata.generation": "2"}},
	{name: "a label leaves the selection", method: "PATCH", path: pods + "/p1", kind: merge, code: ok,
		body: `{"metadata":{"labels":{"app":"b"}}}`},
	{name: "a label comes back", method: "PATCH", path: pods + "/p1", kind: merge, code: ok,
		body: `{"metadata":{"labels":{"app":"a"}}}`},
	{name: "Pods of a node", path: "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", code: ok,
		has: map[string]string{"items.0.metadata.name": "p1"}},
	{name: "Pods of another node", path: "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2", code: ok},
	{name: "Pods not of a phase", path: pods + "?fieldSelector=status.phase!%3DRunning", code: ok},
	{name: "Pods by a label", path: pods + "?labelSelector=app+in+(a,c)", code: ok,
		has: map[string]string{"items.0.metadata.name": "p1"}},
	{name: "delete a Pod with another uid", method: "DELETE", path: pods + "/p1", code: 409, has: because("Conflict"),
		body:    `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"x"}}`,
		differs: "the real one says the kind in place of the resource, and with more words"},
	{name: "delete a Pod of an old revision", method: "DELETE", path: pods + "/p1", code: 409, has: because("Conflict"),
		body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"resourceVersion":"1"}}`, differs: "as above"},
	{name: "delete a Pod", method: "DELETE", path: pods + "/p1", code: ok,
		has: map[string]string{"metadata.deletionGracePeriodSeconds": "30", "metadata.generation": "3"}},
	{name: "delete it again", method: "DELETE", path: pods + "/p1", code: ok},
	{name: "shorten its grace period", method: "DELETE", path: pods + "/p1?gracePeriodSeconds=5", code: ok,
		has: map[string]string{"metadata.deletionGracePeriodSeconds": "5"}},
	{name: "end it", method: "DELETE", path: pods + "/p1?gracePeriodSeconds=0", code: ok},
	{name: "it is gone", path: pods + "/p1", code: 404, has: because("NotFound")},
	{name: "all that happened to a Pod", path: "/api/v1/pods?watch=true&resourceVersion={pod}", code: ok, events: 8},
	{name: "the same, as a selection sees it", path: pods + "?watch=true&labelSelector=app%3Da&resourceVersion={pod}", code: ok,
		events: 8,
		has:    map[string]string{"events.2.type": "DELETED", "events.3.type": "ADDED", "events.7.type": "DELETED"}},
	{name: "a Pod with a finalizer", method: "POST", path: pods, code: created,
		body: `{"metadata":{"name":"p2","finalizers":["a.b/c"]},` + podSpec + `}`},
	{name: "it is deleted at once, and stays", method: "DELETE", path: pods + "/p2?gracePeriodSeconds=0", code: ok},
	{name: "until the finalizer is gone", method: "PATCH", path: pods + "/p2", kind: merge, code: ok,
		body: `{"metadata":{"finalizers":null}}`},
	{name: "so it is gone", path: pods + "/p2", code: 404, has: because("NotFound")},
	{name: "a Pod without a node", method: "POST", path: pods, code: created,
		body: `{"metadata":{"name":"p3"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
	{name: "goes at once", method: "DELETE", path: pods + "/p3", code: ok},
	{name: "and is gone", path: pods + "/p3", code: 404},

	// ConfigMaps: deletion of others, finalizers, unconditional updates.
	{name: "a ConfigMap with a finalizer", method: "POST", path: maps_, code: created,
		keep: map[string]string{"cm": "metadata.resourceVersion", "cmuid": "metadata.uid"},
		body: `{"metadata":{"name":"a","finalizers":["a.b/c"]},"data":{"k":"v"}}`},
	{name: "is marked", method: "DELETE", path: maps_ + "/a", code: ok},
	{name: "and marked again", method: "DELETE", path: maps_ + "/a", code: ok},
	{name: "an unconditional update ends it", method: "PUT", path: maps_ + "/a", code: ok, body: `{"metadata":{"name":"a"}}`},
	{name: "a ConfigMap", method: "POST", path: maps_, code: created, body: `{"metadata":{"name":"b"},"data":{"k":"v"}}`,
		keep: map[string]string{"b": "metadata.resourceVersion", "buid": "metadata.uid"}},
	{name: "is deleted with the right preconditions", method: "DELETE", path: maps_ + "/b", code: ok,
		body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"{buid}","resourceVersion":"{b}"}}`},
	{name: "delete what is not there", method: "DELETE", path: maps_ + "/b", code: 404, has: because("NotFound")},
	{name: "what happened to ConfigMaps", path: maps_ + "?watch=true&resourceVersion={cm}", code: ok, events: 4},

	// Lists: pages and revisions.
	{name: "list Leases", path: leases, code: ok, keep: map[string]string{"list": "metadata.resourceVersion"}},
	{name: "a page", path: leases + "?limit=2", code: ok,
		keep: map[string]string{"token": "metadata.continue", "page": "metadata.resourceVersion"},
		has:  map[string]string{"metadata.remainingItemCount": "1"}},
	{name: "a Lease between pages", method: "POST", path: leases, code: created, body: `{"metadata":{"name":"n9"},"spec":{}}`,
		keep: map[string]string{"n9": "metadata.resourceVersion"}},
	{name: "the next page is of the first one's revision", path: leases + "?limit=2&continue={token}", code: ok},
	{name: "a page of all namespaces", path: allLeases + "&limit=1", code: ok,
		keep: map[string]string{"all": "metadata.continue"}},
	{name: "the next page of all namespaces", path: allLeases + "&limit=1&continue={all}", code: ok},
	{name: "a list of an exact revision", path: leases + "?resourceVersion={page}&resourceVersionMatch=Exact", code: ok},
	{name: "a page of an exact revision", path: leases + "?resourceVersion={rv2}&limit=5", code: ok},
	{name: "a list not older", path: leases + "?resourceVersion={n9}&resourceVersionMatch=NotOlderThan", code: ok},
	{name: "a list not older, legacy", path: leases + "?resourceVersion={n9}", code: ok},
	{name: "any list, which has no pages", path: leases + "?resourceVersion=0&limit=2", code: ok,
		has: map[string]string{"metadata.continue": ""}},
	{name: "a list of the future", path: leases + "?resourceVersion=99999999", code: 504,
		has: map[string]string{"reason": "Timeout", "details.causes.0.reason": "ResourceVersionTooLarge"}},
	{name: "exactly the future", path: leases + "?resourceVersion=99999999&resourceVersionMatch=Exact", code: 504,
		has: because("Timeout")},
	{name: "get from the future", path: leases + "/n1?resourceVersion=99999999", code: 504, has: because("Timeout")},
	{name: "a revision that is none", path: leases + "?resourceVersion=x", code: 400,
		differs: "the real message is of another parser"},
	{name: "exact without a revision", path: leases + "?resourceVersionMatch=Exact", code: 422, has: because("Invalid")},
	{name: "a bad token", path: leases + "?limit=2&continue=x", code: 400, has: because("BadRequest")},

	// Watches.
	{name: "Leases since the list", path: leases + "?watch=true&resourceVersion={list}", code: ok, events: 1},
	{name: "all Leases, then changes", path: leases + "?watch=true&resourceVersion=0&fieldSelector=metadata.name%3Dn1",
		code: ok, events: 1},
	{name: "without a revision as well", path: leases + "?watch=true&fieldSelector=metadata.name%3Dn1", code: ok, events: 1},
	{name: "a streamed list",
		path: leases + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		code: ok, events: 5,
		has: map[string]string{"events.4.type": "BOOKMARK"}},
	{name: "a streamed list from a revision",
		path: leases + "?watch=true&" +
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={n9}", code: ok,
		events: 5},
	{name: "a streamed list of the future",
		path: leases + "?watch=true&" +
			"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=99999999",
		code: ok, events: 1,
		has: map[string]string{"events.0.object.reason": "Timeout"}},
	{name: "a streamed list without a match", path: leases + "?watch=true&sendInitialEvents=true", code: 422,
		has: because("Invalid")},
	{name: "a watch of one object", path: leases + "/n1?watch=true&resourceVersion={rv1}", code: ok, events: 1},
	{name: "the bookmark before the end",
		path: leases + "?watch=true&resourceVersion={n9}&allowWatchBookmarks=true&timeoutSeconds=8", code: ok, events: 1,
		has: map[string]string{"events.0.type": "BOOKMARK"}},
	{name: "a watch ends in time", path: leases + "?watch=true&resourceVersion={n9}&timeoutSeconds=1", code: ok},

	// EndpointSlices, Services, Events, Namespaces.
	{name: "an EndpointSlice", method: "POST", path: slices_, code: created,
		body: `{"metadata":{"name":"s"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[]}`},
	{name: "its generation counts", method: "PATCH", path: slices_ + "/s", kind: merge, code: ok, body: `{"endpoints":[]}`,
		has: map[string]string{"metadata.generation": "2"}},
	{name: "an annotation does not count", method: "PATCH", path: slices_ + "/s", kind: merge, code: ok,
		body: `{"metadata":{"annotations":{"a":"b"}}}`},
	{name: "a label counts", method: "PATCH", path: slices_ + "/s", kind: merge, code: ok,
		body: `{"metadata":{"labels":{"a":"b"}}}`, has: map[string]string{"metadata.generation": "3"}},
	{name: "a DaemonSet", method: "POST", path: "/apis/apps/v1/namespaces/default/daemonsets", code: created,
		differs: "the model sets no defaults", has: map[string]string{"metadata.generation": "1"},
		body: `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{` +
			`"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`},
	{name: "a Service", method: "POST", path: "/api/v1/namespaces/default/services", code: created,
		body: `{"metadata":{"name":"s"},"spec":{"clusterIP":"None","selector":{"a":"b"}}}`},
	{name: "an Event", method: "POST", path: "/api/v1/namespaces/default/events", code: created,
		body: `{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"p1","namespace":"default"},"reason":"R",` +
			`"type":"Normal","count":1}`},
	{name: "Events about something",
		path: "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp1,reason%3DR", code: ok,
		has: map[string]string{"items.0.metadata.name": "e"}},
	{name: "a Namespace", method: "POST", path: "/api/v1/namespaces", code: created, body: `{"metadata":{"name":"new"}}`},
	{name: "Namespaces of a phase", path: "/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3Dnew",
		code: ok},

	// Who may, and in which form.
	{name: "nobody may get", path: leases + "/n1", as: "nobody", code: 403, has: because("Forbidden")},
	{name: "nobody may patch a status", method: "PATCH", path: nodes + "/n1/status", kind: merge, body: `{}`, as: "nobody",
		code: 403, has: because("Forbidden")},
	{name: "nobody may watch", path: leases + "?watch=true", as: "nobody", code: 403, has: because("Forbidden")},
	{name: "no such form", path: leases + "/n1", accept: "text/html", code: 406, differs: "the real one has CBOR, too"},
	{name: "no such kind", path: "/apis/coordination.k8s.io/v1/namespaces/default/things", code: 404,
		differs: "a text, which no client reads"},
	{name: "a form of the client's choice", path: leases + "/n1", accept: "text/html,application/json;q=0.5", code: ok},
	{name: "ready", path: "/readyz", code: ok},

	// A kind of a CustomResourceDefinition, and metadata alone.
	{name: "create a NodePool", method: "POST", path: pools, code: created,
		keep: map[string]string{"pool": "metadata.resourceVersion"}, has: map[string]string{"metadata.generation": "1"},
		body: `{"apiVersion":"apps.openyurt.io/v1beta2","kind":"NodePool","metadata":{"name":"p1"},"spec":{"type":"Edge"},` +
			`"status":{"readyNodeNum":1,"unreadyNodeNum":0}}`},
	{name: "one without a kind", method: "POST", path: pools, code: 400, has: because("BadRequest"), differs: "the words",
		body: `{"metadata":{"name":"p2"}}`},
	{name: "an annotation is no new generation", method: "PATCH", path: pools + "/p1", kind: merge, code: ok,
		body: `{"metadata":{"annotations":{"a":"b"}}}`, has: map[string]string{"metadata.generation": "1"}},
	{name: "a spec is, and no status", method: "PATCH", path: pools + "/p1", kind: merge, code: ok,
		body: `{"spec":{"labels":{"a":"b"}},"status":{"readyNodeNum":2,"unreadyNodeNum":0}}`,
		has:  map[string]string{"metadata.generation": "2"}},
	{name: "a NodePool's status, and no spec", method: "PATCH", path: pools + "/p1/status", kind: merge, code: ok,
		body: `{"spec":{"labels":{"a":"c"}},"status":{"readyNodeNum":2,"unreadyNodeNum":0}}`,
		has:  map[string]string{"metadata.generation": "2", "spec.labels.a": "b", "status.readyNodeNum": "2"}},
	{name: "no strategic patch of it", method: "PATCH", path: pools + "/p1", kind: strategic, code: 415, body: `{}`,
		differs: "the real one takes more forms"},
	{name: "an update of a NodePool without a revision", method: "PUT", path: pools + "/p1", code: 422, has: because("Invalid"),
		body: `{"apiVersion":"apps.openyurt.io/v1beta2","kind":"NodePool","metadata":{"name":"p1"},"spec":{"type":"Edge"}}`},
	{name: "an update of an old one", method: "PUT", path: pools + "/p1", code: 409, has: because("Conflict"),
		body: `{"apiVersion":"apps.openyurt.io/v1beta2","kind":"NodePool","metadata":{"name":"p1","resourceVersion":"{pool}"},` +
			`"spec":{"type":"Edge"}}`},
	{name: "NodePools", path: pools, code: ok, has: map[string]string{"items.0.kind": "NodePool"}},
	{name: "NodePools by a field", path: pools + "?fieldSelector=metadata.name%3Dp1", code: ok,
		has: map[string]string{"items.0.metadata.name": "p1"}},
	{name: "no protobuf of it", path: pools + "/p1", accept: "application/vnd.kubernetes.protobuf", code: 406,
		differs: "the real one has CBOR and YAML, too"},
	{name: "its metadata", path: pools + "/p1", accept: metadata, code: ok,
		has: map[string]string{"kind": "PartialObjectMetadata"}},
	{name: "not of all, like that", path: pools, accept: metadata, code: 406, differs: "the real one says why"},
	{name: "the metadata of all", path: pools, accept: strings.ReplaceAll(metadata, "Metadata;", "MetadataList;"), code: ok,
		has: map[string]string{"kind": "PartialObjectMetadataList", "items.0.metadata.name": "p1"}},
	{name: "a watch of metadata", path: pools + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&" +
		"allowWatchBookmarks=true", accept: metadata, code: ok, events: 2,
		has: map[string]string{"events.0.object.kind": "PartialObjectMetadata", "events.1.type": "BOOKMARK"}},
	{name: "the metadata of a Lease", path: leases + "/n1", accept: metadata, code: ok},
	{name: "who is not there has none", path: pools + "/p9", accept: metadata, code: 404, has: because("NotFound")},
	{name: "delete a NodePool", method: "DELETE", path: pools + "/p1", code: ok},

	// Compaction.
	{name: "a list of what is compacted", path: leases + "?resourceVersion={rv2}&resourceVersionMatch=Exact", code: 410,
		has: because("Expired"), until: true,
		model: func(s *model.Store) { s.Compact(s.Revision()) }},
	{name: "a watch of what is compacted", path: "/api/v1/namespaces/default/events?watch=true&resourceVersion=1", code: ok,
		events: 1,
		has: map[string]string{"events.0.type": "ERROR", "events.0.object.code": "410",
			"events.0.object.reason": "Expired"},
		differs: "kube-apiserver has no cache of Events, and the words are its storage's"},
	{name: "a page of what is compacted", path: leases + "?limit=2&continue={token}", code: 410, has: because("Expired"),
		keep: map[string]string{"again": "metadata.continue"}},
	{name: "goes on with what is there", path: leases + "?limit=2&continue={again}", code: ok,
		has: map[string]string{"items.0.metadata.name": "n3"}},
}
