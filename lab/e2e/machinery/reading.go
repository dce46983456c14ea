package machinery

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	asTable    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asPartial  = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asPartials = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	protobuf   = "application/vnd.kubernetes.protobuf"
)

// some creates objects named a-00, a-01 and so on. Every third has the label color=red.
func some(e *Env, k kind, n int) []Object {
	all := make([]Object, 0, n)
	for i := range n {
		color := []string{"red", "green", "blue"}[i%3]
		all = append(all, k.createdQuietly(e, fmt.Sprintf("a-%02d", i), i, "color", color, "test", "some"))
	}
	return all
}

// mine selects what the check made, and not what Kubernetes puts into each namespace.
const mine = "labelSelector=endpointslice.kubernetes.io%2Fskip-mirror"

// paging is chunking.go: the pages of a list are one list, as of one moment.
func paging(e *Env, k kind) {
	const objects = 13
	all := some(e, k, objects)
	k.fresh(e, values(""), all...)
	k.fresh(e, values(mine), all...)
	var names []string
	token := ""
	for page := 1; page == 1 || token != ""; page++ {
		query := url.Values{"limit": {"5"}}
		if token != "" {
			query.Set("continue", token)
		}
		a := e.Read(fmt.Sprintf("page %d", page), Request{Path: k.path(e), Query: query})
		for _, o := range listed(a.JSON) {
			names = append(names, nameOf(o))
		}
		token = text(a.JSON, "metadata", "continue")
		if page == 1 {
			e.Expect("the first page says how many remain", fmt.Sprint(field(a.JSON, "metadata", "remainingItemCount")) == "8")
			all = append(all, k.createdQuietly(e, "a-00-between", 1))
		}
	}
	k.fresh(e, values(""), all...)
	e.Expect("the pages have everything once, as of the first", len(names) == objects, names)

	a := e.Get("a page by a selector", k.path(e), "limit=2&labelSelector=color%3Dred")
	e.Expect("which does not count the rest", field(a.JSON, "metadata", "remainingItemCount") == nil)
	token = text(a.JSON, "metadata", "continue")
	e.Expect("and goes on", token != "")
	e.Read("its next, all of it", Request{Path: k.path(e), Query: url.Values{
		"labelSelector": {"color=red"}, "continue": {token},
	}})
	e.Read("with a resourceVersion", Request{Path: k.path(e), Query: url.Values{
		"continue": {token}, "resourceVersion": {"1"}, "limit": {"2"},
	}})
	e.Read("with a resourceVersion of 0", Request{Path: k.path(e), Query: url.Values{
		"labelSelector": {"color=red"}, "continue": {token}, "resourceVersion": {"0"}, "limit": {"2"},
	}})
	e.Read("with a match", Request{Path: k.path(e), Query: url.Values{
		"continue": {token}, "resourceVersionMatch": {"Exact"}, "limit": {"2"},
	}})
	e.Get("a bad token", k.path(e), "limit=5&continue=bad")
	e.Get("a token of another making", k.path(e), "limit=5&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8ifQ")
	e.Get("a limit below 0", k.path(e), "limit=-1")
	e.Get("a limit that is no number", k.path(e), "limit=many")
	e.Get("a limit above", k.path(e), "limit=500&labelSelector=test%3Dsome")
	first := e.GetAs("a page of a table", k.path(e), "limit=1&includeObject=None", asTable)
	token = text(first.JSON, "metadata", "continue")
	e.Read("and its next", Request{
		Path: k.path(e), Query: url.Values{"limit": {"1"}, "continue": {token}, "includeObject": {"None"}},
		Header: http.Header{"Accept": {asTable}},
	})
}

// versions checks what resourceVersion and resourceVersionMatch mean in lists and gets.
func versions(e *Env, k kind) {
	one := k.create(e, "one", 1)
	two := k.create(e, "two", 2)
	k.fresh(e, values(mine), one, two)
	k.fresh(e, values(""+mine+"&limit=1&resourceVersion=0"), one, two)
	at := versionOf(two)
	for _, o := range []struct{ step, query string }{
		{"any", "resourceVersion=0"},
		{"any, a page", "resourceVersion=0&limit=1"},
		{"any, not older", "resourceVersion=0&resourceVersionMatch=NotOlderThan"},
		{"not older than the newest", "resourceVersionMatch=NotOlderThan&resourceVersion=" + at},
		{"at least the newest", "resourceVersion=" + at},
		{"exactly the newest", "resourceVersionMatch=Exact&resourceVersion=" + at},
		{"a page of the newest", "limit=1&resourceVersion=" + at},
		{"exactly any", "resourceVersionMatch=Exact&resourceVersion=0"},
		{"exactly nothing", "resourceVersionMatch=Exact"},
		{"an unknown match", "resourceVersionMatch=About&resourceVersion=1"},
		{"no number", "resourceVersion=new"},
		{"a negative number", "resourceVersion=-1"},
		{"initial events", "sendInitialEvents=true"},
		{"pretty", "resourceVersion=0&pretty=true"},
	} {
		e.Get("list: "+o.step, k.path(e), mine+"&"+o.query)
	}
	k.change(e, "one", 3)
	e.Get("list: exactly what was before a change", k.path(e), mine+"&resourceVersionMatch=Exact&resourceVersion="+at)
	for _, o := range []struct{ step, query string }{
		{"any", "resourceVersion=0"},
		{"at least the newest", "resourceVersion=" + at},
		{"no number", "resourceVersion=new"},
		{"pretty", "pretty=true"},
	} {
		e.Get("get: "+o.step, k.path(e, "two"), o.query)
	}
	e.Get("list: of the future", k.path(e), mine+"&resourceVersion=999999999999")
	if k.pool {
		return // others' writes decide how far a copy is
	}
	// What somebody else wrote is newer than the whole selection.
	elsewhere := of("configmaps")
	if k.name == elsewhere.name {
		elsewhere = of("podtemplates")
	}
	newer := elsewhere.createdQuietly(e, "newer", 1)
	e.Get("list: at least what was written elsewhere", k.path(e), mine+"&resourceVersion="+versionOf(newer))
	e.Get("get: at least what was written elsewhere", k.path(e, "two"), "resourceVersion="+versionOf(newer))
}

// selectors checks those by labels and by fields.
func selectors(e *Env, k kind) {
	all := some(e, k, 6)
	k.fresh(e, values(mine), all...)
	many := make([]string, 400)
	for i := range many {
		many[i] = fmt.Sprintf("value-%03d", i)
	}
	for _, s := range []string{
		"color=red", "color==red", "color!=red,test", "color in (red,blue)", "color notin (red,blue),test=some", "color",
		"!color,endpointslice.kubernetes.io/skip-mirror", "color=red,test=some", "color=red,color=green", "nothing=here",
		"color=", "a/b/c=d", "color in red", "color=red,,", "=red", "size>3", "size<3", "color in (),test", "color=red!",
		"color in (red," + strings.Join(many, ",") + ")",
	} {
		if all, ok := e.selected(k, s); ok {
			k.fresh(e, url.Values{"labelSelector": {s}}, all...)
		}
		e.Read("labels: "+s[:min(len(s), 60)], Request{Path: k.path(e), Query: url.Values{"labelSelector": {s}}})
	}
	for _, s := range []string{
		"metadata.name=a-01", "metadata.name==a-01", "metadata.name!=a-01", "metadata.name=nobody",
		"metadata.namespace=" + e.Namespace, "metadata.namespace=elsewhere", "metadata.name=a-01,metadata.name=a-02",
		"metadata.name!=a-01,metadata.name!=a-02,metadata.namespace=" + e.Namespace, "metadata.name=A_B", "metadata.uid=x",
		"spec.type=ClusterIP", "spec.clusterIP=None", "spec.clusterIP!=None", "spec.color=red", "spec.size=1", "nonsense",
		"metadata.name in (a)", "metadata.name=a\\,b", "metadata.name=,",
	} {
		q := url.Values{"fieldSelector": {s}, "labelSelector": {"test=some"}}
		e.Read("fields: "+s, Request{Path: k.path(e), Query: q})
	}
	e.Get("both", k.path(e), "labelSelector=color%3Dred&fieldSelector=metadata.name%3Da-03")
	e.Get("a selector twice", k.path(e), "labelSelector=color%3Dred&labelSelector=color%3Dgreen")
	e.Get("a selector that is not escaped", k.path(e), "labelSelector=color=red")
}

// selected asks the writer what a selector selects.
func (e *Env) selected(k kind, selector string) ([]Object, bool) {
	a := e.do(e.Writer, "", Request{Path: k.path(e), Query: url.Values{"labelSelector": {selector}}, Plain: true})
	return listed(a.JSON), a.Status == http.StatusOK
}

// forms checks the media types, and the parts of an object, that a client may ask for.
func forms(e *Env, k kind) {
	all := some(e, k, 3)
	k.fresh(e, values(mine), all...)
	for _, accept := range []string{
		"application/json", "*/*", "application/*", "text/plain", "text/*", "application/xml,*/*", "application/xml",
		"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json;q=0.1,application/xml",
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io", "application/json;as=Table;v=v2;g=meta.k8s.io",
		"application/json;as=Rows;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1", "application/json;as=Table",
		"application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
		asPartial, asPartials, asPartial + ",application/json", asPartials + ",application/json",
		"application/json;charset=utf-8",
		"application/json;stream=watch", "application/json;profile=nonsense", "application/json;pretty=1", "",
	} {
		if k.name != "widgets" || accept != "application/json;as=Rows;v=v1;g=meta.k8s.io" {
			e.GetAs("list: "+anyOf(accept), k.path(e), mine, accept)
		}
		e.GetAs("get: "+anyOf(accept), k.path(e, "a-01"), "", accept)
	}
	for _, accept := range []string{
		"application/yaml", "application/cbor", protobuf, protobuf + ",application/json", "application/json," + protobuf,
		protobuf + ";as=PartialObjectMetadata;v=v1;g=meta.k8s.io", protobuf + ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
		protobuf + ";as=Table;v=v1;g=meta.k8s.io", protobuf + ";q=0.5,application/json;q=0.4",
		protobuf + ";stream=watch", "application/cbor,application/json", "application/yaml,application/json",
	} {
		e.decoded("list: "+accept, k.path(e), mine, accept)
		e.decoded("get: "+accept, k.path(e, "a-01"), "", accept)
	}
	for _, accept := range []string{
		"application/json", asPartial, asPartials, "text/plain", "application/yaml", "application/json;stream=watch", "*/*",
		"application/cbor",
	} {
		w := e.WatchAs("watch: "+anyOf(accept), Request{
			Path: k.path(e), Header: http.Header{"Accept": {accept}},
			Query: values(mine + "&watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Da-01"),
		})
		w.Take(first("ADDED"))
		w.Close()
	}
}

// anyOf returns a media type without *, which means something else in the patterns of exceptions.
func anyOf(accept string) string { return strings.ReplaceAll(accept, "*", "any") }

// codecs know Kubernetes' types, and those of parts of objects.
var codecs = func() serializer.CodecFactory {
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), metav1.AddMetaToScheme(s)); err != nil {
		panic(err) // the same each time
	}
	return serializer.NewCodecFactory(s)
}()

// decoded is GetAs for an encoding other than JSON: it records the content as JSON.
func (e *Env) decoded(name, path, query, accept string) {
	a := e.Read(name, Request{
		Path: path, Query: values(query), Header: http.Header{"Accept": {accept}}, Plain: true,
	})
	seen := a.seen(false)
	if a.JSON == nil {
		object, kind, err := codecs.UniversalDeserializer().Decode(a.Raw, nil, nil)
		switch {
		case err != nil:
			seen["body"] = fmt.Sprintf("%d bytes: %v", len(a.Raw), err)
			if strings.Contains(accept, "yaml") {
				seen["body"] = lines(string(a.Raw))
			}
		default:
			if raw, ok := object.(*runtime.Unknown); ok {
				object = raw
			}
			content, err := json.Marshal(object)
			e.Must(err)
			seen["body"], seen["kind"] = json.RawMessage(content), kind.String()
		}
	}
	e.Note(name, seen)
}

// lines returns a text's lines without their numbers, which don't matter.
func lines(s string) []string {
	var all []string
	for line := range strings.Lines(s) {
		if strings.Contains(line, "resourceVersion") {
			line = "resourceVersion"
		}
		all = append(all, strings.TrimRight(line, "\n"))
	}
	return all
}

// tables is table_conversion.go.
func tables(e *Env, k kind) {
	all := some(e, k, 3)
	k.fresh(e, values(mine), all...)
	for _, include := range []string{"", "None", "Metadata", "Object", "Everything"} {
		query := mine
		if include != "" {
			query += "&includeObject=" + include
		}
		e.GetAs("list, include "+include, k.path(e), query, asTable+",application/json")
		e.GetAs("get, include "+include, k.path(e, "a-01"), "includeObject="+include, asTable)
		w := e.WatchAs("watch, include "+include, Request{
			Path: k.path(e), Header: http.Header{"Accept": {asTable + ",application/json"}},
			Query: values(query + "&watch=true&timeoutSeconds=1"),
		})
		rows := 0
		w.Take(func(Object) bool { rows++; return rows == len(all) })
		w.Close()
	}
	e.GetAs("none", k.path(e), "labelSelector=nothing%3Dhere", asTable)
	e.GetAs("of what is not there", k.path(e, "nobody"), "", asTable)
	w := e.WatchAs("what happens", Request{
		Path: k.path(e), Header: http.Header{"Accept": {asTable}}, Query: values(mine + "&watch=true&includeObject=Metadata"),
	})
	defer w.Close()
	k.change(e, "a-01", 7)
	k.remove(e, "a-01")
	w.Take(first("DELETED"))
}

// addresses checks what a path can mean.
func addresses(e *Env, k kind) {
	one := k.create(e, "one", 1)
	k.fresh(e, values(mine), one)
	for _, p := range []struct{ step, path string }{
		{"an object", k.path(e, "one")},
		{"that is not there", k.path(e, "nobody")},
		{"whose name is escaped", k.path(e, "%6Fne")},
		{"whose name has a slash", k.path(e, "o%2Fne")},
		{"whose name cannot be", k.path(e, "A_B")},
		{"a slash at the end", k.path(e, "one") + "/"},
		{"a slash after the collection", k.path(e) + "/"},
		{"a slash too many", strings.Replace(k.path(e), "/namespaces", "//namespaces", 1)},
		{"dots", k.path(e) + "/x/../one"},
		{"a subresource that is not there", k.path(e, "one", "nothing")},
		{"a status", k.path(e, "one", "status")},
		{"a part of a subresource", k.path(e, "one", "status", "x")},
		{"another namespace", strings.Replace(k.path(e, "one"), e.Namespace, "not-there", 1)},
		{"a namespace that cannot be", strings.Replace(k.path(e), e.Namespace, "A_B", 1)},
		{"no namespace", k.root(e) + "/" + k.resource + "/one"},
		{"upper case", strings.Replace(k.path(e), k.resource, strings.ToUpper(k.resource), 1)},
		{"the singular", strings.TrimSuffix(k.path(e), "s")},
	} {
		e.Get(p.step, p.path, mine)
	}
	for _, method := range []string{
		http.MethodHead, http.MethodOptions, http.MethodPost, http.MethodPut, http.MethodTrace, "PROPFIND",
	} {
		e.Read(method+" an object", Request{Method: method, Path: k.path(e, "one")})
		if method != http.MethodPost { // it would be a write
			e.Read(method+" a collection", Request{Method: method, Path: k.path(e)})
		}
	}
	e.Get("unknown options", k.path(e, "one"), "a=b&limit=x&watch=maybe")
	e.Get("a list with unknown options", k.path(e), mine+"&a=b&export=true")
	e.Get("a watch that is none", k.path(e), mine+"&watch=false")
	e.Get("a watch of a word", k.path(e), mine+"&watch=maybe&timeoutSeconds=1&resourceVersion=new")
	old := strings.Replace(k.path(e), k.root(e)+"/", k.root(e)+"/watch/", 1)
	w := e.WatchAs("a watch by its path", Request{Path: old, Query: values(mine)})
	w.Take(added("one"))
	w.Close()
	w = e.WatchAs("a watch of an object by its path", Request{Path: old + "/one"})
	w.Take(added("one"))
	w.Close()
	w = e.Watch("a watch of an object as of today", k.path(e, "one"), "timeoutSeconds=1")
	w.Take(added("one"))
	w.Close()
}

// acrossNamespaces reads the same resource in all namespaces.
func acrossNamespaces(e *Env, k kind) {
	mark := "labelSelector=" + url.QueryEscape("of="+e.Namespace)
	all := k.root(e) + "/" + k.resource
	one := k.create(e, "one", 1, "of", e.Namespace)
	e.Until("the list of all namespaces has it", func() error {
		a, err := e.ask(e.Reader, Request{Path: all, Query: values(mark)})
		if err != nil {
			return err
		}
		return exactly(a, []Object{one})
	})
	a := e.Get("list", all, mark)
	w := e.Watch("watch", all, mark+"&resourceVersion="+versionOf(a.JSON))
	defer w.Close()
	for _, f := range []string{"metadata.namespace=" + e.Namespace, "metadata.namespace=other", "metadata.name=one"} {
		e.Get("fields: "+f, all, mark+"&fieldSelector="+url.QueryEscape(f))
	}
	k.change(e, "one", 2)
	k.remove(e, "one")
	w.Take(first("DELETED"))
	e.GetAs("a table", all, mark, asTable)
}

// large is an answer that an API server compresses for clients that accept it.
func large(e *Env, k kind) {
	content := strings.Repeat("0123456789abcdef", 6000)
	var all []Object
	for i := range 3 {
		name := fmt.Sprintf("large-%d", i)
		o := k.object(e, name, i)
		o["metadata"].(Object)["annotations"] = Object{"content": content} //nolint:forcetypeassert // object makes it so
		all = append(all, e.Write("create "+name, Request{Method: http.MethodPost, Path: k.path(e), Body: o, Plain: true}))
	}
	k.fresh(e, values(mine), all...)
	for _, encoding := range []string{"", "gzip", "deflate", "gzip;q=0", "identity", "br,gzip", "*"} {
		header := http.Header{"Accept-Encoding": {encoding}}
		for _, small := range []bool{true, false} {
			r := Request{Path: k.path(e), Query: values(mine), Header: header, Plain: true}
			if small {
				r.Path, r.Query = k.path(e, "nobody"), nil
			}
			a := e.Read("", r)
			raw := a.Raw
			if a.Header.Get("Content-Encoding") == "gzip" {
				z, err := gzip.NewReader(bytes.NewReader(raw))
				e.Must(err)
				raw, err = io.ReadAll(z)
				e.Must(err)
			}
			var body Object
			e.Must(json.Unmarshal(raw, &body))
			for _, o := range listed(body) {
				annotations := field(o, "metadata", "annotations", "content")
				e.Must(same(annotations, content))
				meta, _ := o["metadata"].(map[string]any)
				meta["annotations"] = fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
			}
			seen := a.seen(true)
			seen["body"] = body
			e.Note(fmt.Sprintf("encoding %q, small %v", encoding, small), seen)
		}
	}
}

func same(has, want any) error {
	if has != want {
		return fmt.Errorf("%s, want %s", short(has), short(want))
	}
	return nil
}
