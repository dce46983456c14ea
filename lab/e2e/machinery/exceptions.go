package machinery

// Names of sides.
const (
	// HubNode is a hub that is asked without credentials: as the node, by a program whose reads it does not keep.
	HubNode = "hub, as the node"
	// HubKept is a hub that is asked by a program of the node whose reads it keeps.
	HubKept = "hub, kept"
	// HubToken is a hub that is asked with a token.
	HubToken = "hub, with a token" //nolint:gosec // a name, no secret
)

var (
	// copied are the sides on which a hub answers from a copy. For pool resources that is all of them.
	copied = []string{HubNode, HubKept, HubToken}
	both   = []string{HubNode, HubKept}
	kept   = []string{HubKept}
)

// exceptions are the allowed differences. A hub that answers from its copy words some refusals in its own way, and keeps a
// bounded history. It does less well than an API server what no program on a node asks for.
var exceptions = []Exception{
	{Sides: copied, Check: "*", Where: "*.body.message", Reason: "messages are for people; codes, reasons and details are equal"},
	{Sides: copied, Check: "*", Where: "*.refusal.message", Reason: "as above"},
	{Sides: copied, Check: "*", Where: "*.header.Vary", Reason: "an answer that might have been compressed says so; harmless"},

	{Sides: copied, Check: "watch-list/*", Where: "*.events[4].object.*",
		Reason: "a bookmark has a version, and no empty fields of the type beside it"},
	{Sides: copied, Check: "watch-old/*", Where: "from the beginning of time.events",
		Reason: "a hub's history is bounded, and a watch from before it ends with 410: docs/pool-resources.md"},
	{Sides: kept, Check: "watch-old/*", Where: "from a change.*",
		Reason: "a hub knows no history of a selection from before it was first asked for it; 410, and a client lists"},
	{Sides: kept, Check: "watch-old/*", Where: "assert: everything since is told", Reason: "as above"},
	{Sides: kept, Check: "watch-resume/*", Where: "of one object, from a change.events", Reason: "as above"},
	{Sides: copied, Check: "versions/*", Where: "list: exactly what was before a change.status",
		Reason: "a copy is of one moment; 410, as after a compaction"},
	{Sides: copied, Check: "versions/*", Where: "get: no number.status", Reason: "an API server says 500, which blames itself"},
	{Sides: copied, Check: "watch-*", Where: "*no number.status", Reason: "as above"},
	{Sides: copied, Check: "addresses/*", Where: "a watch of a word.status", Reason: "as above"},
	{Sides: copied, Check: "addresses/*", Where: "no namespace.body.details.*",
		Reason: "404, as at an API server, but for the object and not for the path"},

	{Sides: copied, Check: "forms/*", Where: "*: application/any.status",
		Reason: "an API server refuses application/* by a quirk of its router; a hub gives JSON"},
	{Sides: copied, Check: "forms/*", Where: "*: application/json;as=PartialObjectMetadata*,application/json.status",
		Reason: "an API server refuses metadata of a list as that of an object; a hub takes the next that is accepted"},
	{Sides: copied, Check: "forms/*", Where: "watch: application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io.status",
		Reason: "an API server begins the watch, and fails with the first event"},
	{Sides: copied, Check: "forms/*", Where: "*: application/yaml*", Reason: "a hub gives no YAML: nobody on a node asks for it"},
	{Sides: copied, Check: "forms/*", Where: "*: application/vnd.kubernetes.protobuf;as=*",
		Reason: "who asks for Protobuf gets errors in Protobuf; an API server falls back to JSON"},
	{Sides: kept, Check: "*", Where: "*.body.metadata.continue",
		Reason: "lists of custom resources have an empty field at an API server, and no field at a hub"},

	{Sides: both, Check: "identity", Where: "with map[Impersonate-*",
		Reason: "nobody uses the node's identity to be somebody else: internal/hub/front/doc.go"},
	{Sides: both, Check: "identity", Where: "with map[X-Remote-*", Reason: "as above"},
	{Sides: both, Check: "identity", Where: "with map[Authorization:*",
		Reason: "who brings credentials, good or bad, is not the node: internal/hub/front/doc.go"},

	{Sides: copied, Check: "versions/*", Where: "list: exactly the newest.status",
		Reason: "a copy has the content of a revision only if it was there, and nothing of its resource has changed since"},
	{Sides: copied, Check: "versions/*", Where: "list: a page of the newest.status", Reason: "as above"},
}
