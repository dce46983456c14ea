package stream_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/stream"
)

// lifeOf is what happens to the three objects of each type.
var lifeOf = []stream.EventType{stream.Added, stream.Modified, stream.Deleted}

// objects are of one type each, in an order of revisions that begins at 5.
func objects(e stream.Encoding) map[string][]runtime.Object {
	all := map[string][]runtime.Object{
		"EndpointSlice": {slice("a", 5, 50), slice("b", 6, 0), slice("big", 7, 1000)},
		"Service":       {service("a", 5), service("b", 6), service("c", 7)},
		"Endpoints":     {endpoints("a", 5), endpoints("b", 6), endpoints("c", 7)},
		"Node":          {node("a", 5), node("b", 6), node("c", 7)},
	}
	if e == stream.JSON {
		all["Widget"] = []runtime.Object{widget("a", 5), widget("b", 6), widget("c", 7)}
	}
	return all
}

func TestFramesOfKubernetesAreRead(t *testing.T) {
	for _, e := range encodings {
		for kind, list := range objects(e) {
			frames := bytesOf(
				kubernetesFrame(t, e, watch.Added, list[0]),
				kubernetesFrame(t, e, watch.Modified, list[1]),
				kubernetesFrame(t, e, watch.Deleted, list[2]),
			)
			for how, deliver := range deliveries {
				t.Run(fmt.Sprint(e, kind, how), func(t *testing.T) {
					events, f, err := readFrom(e, deliver(bytes.NewReader(frames)))
					if !errors.Is(err, io.EOF) {
						t.Fatalf("ends with %v, want EOF", err)
					}
					if len(events) != len(list) {
						t.Fatalf("%d events, want %d", len(events), len(list))
					}
					gvk := list[0].GetObjectKind().GroupVersionKind()
					if f.Type() != (stream.Type{GroupVersionKind: gvk, Encoding: e}) {
						t.Errorf("type is %v", f.Type())
					}
					for i, event := range events {
						check(t, e, f.Type(), event, lifeOf[i], list[i])
					}
				})
			}
		}
	}
}

// check compares an event with the object that it was made of.
func check(t *testing.T, e stream.Encoding, of stream.Type, event stream.Event, want stream.EventType, o runtime.Object) {
	t.Helper()
	meta, ok := o.(metav1.Object)
	if !ok {
		t.Fatalf("%T has no metadata", o)
	}
	got := event.Object
	if event.Type != want || got.Key.Name != meta.GetName() || got.Key.Namespace != meta.GetNamespace() ||
		got.Revision.String() != meta.GetResourceVersion() {
		t.Errorf("event %v %s@%s, want %v of %s", event.Type, got.Key, got.Revision, want, meta.GetName())
	}
	if whole := bytes.TrimSpace(kubernetesObject(t, e, o)); !bytes.Equal(stream.Envelope(of, got.Raw), whole) {
		t.Errorf("in its envelope it is %.200q, want %.200q", stream.Envelope(of, got.Raw), whole)
	}
	if cap(got.Raw) > len(got.Raw)+len(got.Raw)/4+16 {
		t.Errorf("its bytes take %d and are %d", cap(got.Raw), len(got.Raw))
	}
}

func TestWrittenFramesAreReadByKubernetes(t *testing.T) {
	for _, e := range encodings {
		for kind, list := range objects(e) {
			t.Run(fmt.Sprint(e, kind), func(t *testing.T) {
				of := stream.Type{GroupVersionKind: list[0].GetObjectKind().GroupVersionKind(), Encoding: e}
				var out bytes.Buffer
				w := stream.NewFrameWriter(&out, of)
				var want []watch.Event
				for i, o := range list {
					_, raw, err := stream.OpenEnvelope(kubernetesObject(t, e, o))
					if err != nil {
						t.Fatal(err)
					}
					kind := lifeOf[i]
					if err := w.Write(stream.Event{Type: kind, Object: stream.Object{Raw: raw}}); err != nil {
						t.Fatal(err)
					}
					want = append(want, watch.Event{Type: watch.EventType(kind.String()), Object: o})
				}
				if kind == "Widget" {
					readByUs(t, e, out.Bytes(), len(want)) // UniversalDeserializer knows only what is compiled in
					return
				}
				d := kubernetesDecoder(e, out.Bytes())
				for _, want := range want {
					kind, got, err := d.Decode()
					if err != nil {
						t.Fatal(err)
					}
					if kind != want.Type || !apiequality.Semantic.DeepEqual(got, want.Object) {
						t.Errorf("%v %v, want %v %v", kind, got, want.Type, want.Object)
					}
				}
				if _, _, err := d.Decode(); !errors.Is(err, io.EOF) {
					t.Errorf("ends with %v", err)
				}
				readByUs(t, e, out.Bytes(), len(want))
			})
		}
	}
}

func readByUs(t *testing.T, e stream.Encoding, frames []byte, n int) {
	t.Helper()
	events, _, err := read(e, frames)
	if !errors.Is(err, io.EOF) || len(events) != n {
		t.Errorf("we read %d events and %v, want %d and EOF", len(events), err, n)
	}
}

func TestBookmarks(t *testing.T) {
	of := stream.Type{GroupVersionKind: slice("", 0, 0).GroupVersionKind()}
	for _, e := range encodings {
		t.Run(e.String(), func(t *testing.T) {
			plain, end := slice("", 77, 0), slice("", 78, 0)
			plain.ObjectMeta = metav1.ObjectMeta{ResourceVersion: "77"}
			end.ObjectMeta = metav1.ObjectMeta{
				ResourceVersion: "78", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			}
			plain.Ports, end.Ports = nil, nil
			want := []stream.Event{
				{Type: stream.Bookmark, Object: stream.Object{Revision: 77}},
				{Type: stream.InitialEventsEnd, Object: stream.Object{Revision: 78}},
			}
			theirs := bytesOf(kubernetesFrame(t, e, watch.Bookmark, plain), kubernetesFrame(t, e, watch.Bookmark, end))
			events, f, err := read(e, theirs)
			if !errors.Is(err, io.EOF) || fmt.Sprint(events) != fmt.Sprint(want) {
				t.Errorf("Kubernetes' are read as %v, %v", events, err)
			}
			of.Encoding = e
			if f.Type() != of {
				t.Errorf("type is %v, want %v", f.Type(), of)
			}
			var out bytes.Buffer
			w := stream.NewFrameWriter(&out, of)
			for _, event := range want {
				if err := w.Write(event); err != nil {
					t.Fatal(err)
				}
			}
			d := kubernetesDecoder(e, out.Bytes())
			for i, want := range []*metav1.ObjectMeta{&plain.ObjectMeta, &end.ObjectMeta} {
				kind, o, err := d.Decode()
				if err != nil {
					t.Fatal(err)
				}
				got, ok := o.(metav1.Object)
				if !ok || kind != watch.Bookmark || got.GetResourceVersion() != want.ResourceVersion ||
					fmt.Sprint(got.GetAnnotations()) != fmt.Sprint(want.Annotations) {
					t.Errorf("bookmark %d is read by Kubernetes as %v %v", i, kind, o)
				}
			}
			if events, _, err := read(e, out.Bytes()); !errors.Is(err, io.EOF) || fmt.Sprint(events) != fmt.Sprint(want) {
				t.Errorf("ours are read as %v, %v", events, err)
			}
		})
	}
}

func TestErrorFrames(t *testing.T) {
	type want struct {
		expired, notReady bool
		code              int32
	}
	tooLarge := apierrors.NewTimeoutError("Too large resource version: 9, current: 8", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for _, e := range encodings {
		for name, test := range map[string]struct {
			status metav1.Status
			want   want
		}{
			"expired":   {apierrors.NewResourceExpired("too old").ErrStatus, want{expired: true, code: 410}},
			"gone":      {metav1.Status{Status: "Failure", Code: 410, Message: "too old"}, want{expired: true, code: 410}},
			"not ready": {apierrors.NewServiceUnavailable("later").ErrStatus, want{notReady: true, code: 503}},
			"too large": {tooLarge.ErrStatus, want{notReady: true, code: 504}},
			"other":     {apierrors.NewInternalError(errors.New("x")).ErrStatus, want{code: 500}},
			"silent":    {metav1.Status{Code: 500}, want{code: 500}},
		} {
			status := typed(&test.status, "v1", "Status")
			var ours bytes.Buffer
			if err := stream.NewFrameWriter(&ours, stream.Type{Encoding: e}).WriteError(&test.status); err != nil {
				t.Fatal(err)
			}
			theirs := kubernetesFrame(t, e, watch.Error, status)
			for by, frame := range map[string][]byte{"Kubernetes": theirs, "us": ours.Bytes()} {
				t.Run(fmt.Sprint(e, name, by), func(t *testing.T) {
					_, f, err := read(e, frame)
					var got *apierrors.StatusError
					if !errors.As(err, &got) || got.ErrStatus.Code != test.want.code {
						t.Fatalf("it is read as %v, want a status of code %d", err, test.want.code)
					}
					expired, notReady := errors.Is(err, stream.ErrExpired), errors.Is(err, stream.ErrNotReady)
					if expired != test.want.expired || notReady != test.want.notReady {
						t.Errorf("it is read as %v", err)
					}
					if _, again := f.Read(); again == nil || again.Error() != err.Error() {
						t.Errorf("the next Read says %v", again)
					}
				})
			}
			kind, o, err := kubernetesDecoder(e, ours.Bytes()).Decode()
			if got, ok := o.(*metav1.Status); err != nil || kind != watch.Error || !ok || got.Code != test.want.code {
				t.Errorf("%v %s: Kubernetes reads ours as %v %v, %v", e, name, kind, o, err)
			}
		}
	}
}

// A stream that ends inside of a frame, wherever, must not look like one that ended in order.
func TestCutStreams(t *testing.T) {
	for _, e := range encodings {
		first, second := kubernetesFrame(t, e, watch.Added, service("a", 5)), kubernetesFrame(t, e, watch.Added, service("b", 6))
		frames := bytesOf(first, second)
		for n := range len(frames) {
			events, _, err := read(e, frames[:n])
			whole, want := 0, io.ErrUnexpectedEOF
			if n >= len(bytes.TrimSpace(first)) {
				whole = 1
			}
			if n == 0 || n == len(first) || e == stream.JSON && (n == len(first)-1 || n == len(frames)-1) {
				want = io.EOF // a line's end is no part of its event
			}
			if n == len(frames)-1 && e == stream.JSON {
				whole = 2
			}
			if len(events) != whole || !errors.Is(err, want) {
				t.Fatalf("%v cut at %d of %d: %d events and %v, want %d and %v", e, n, len(frames), len(events), err, whole, want)
			}
		}
	}
}

func TestHostileFrames(t *testing.T) {
	protobuf := func(message string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
	}
	field := func(number byte, content string) string {
		return string([]byte{number<<3 | 2, byte(len(content))}) + content
	}
	event := func(kind, unknown string) []byte {
		return protobuf(field(1, kind) + field(2, field(1, "k8s\x00"+unknown)))
	}
	typeMeta := field(1, field(1, "v1")+field(2, "Service"))
	metadata := func(m string) string { return field(2, field(1, m)) }
	fine := field(1, "a") + field(3, "ns") + field(6, "5")
	events, _, err := read(stream.Protobuf, event("ADDED", typeMeta+metadata(fine)))
	if len(events) != 1 || !errors.Is(err, io.EOF) {
		t.Fatalf("what is fine is not read: %v", err)
	}
	parts := field(2, field(1, field(1, "x")+fine)+field(1, field(6, "9")))
	if events, _, _ := read(stream.Protobuf, event("ADDED", typeMeta+parts)); len(events) != 1 ||
		events[0].Object.Key.Name != "a" || events[0].Object.Revision != 9 {
		t.Errorf("metadata in two parts is read as %v, want the merge", events)
	}
	object := func(o string) []byte { return []byte(`{"type":"ADDED","object":` + o + `}`) }
	added := func(inside string) []byte { return event("ADDED", typeMeta+inside) }
	const pb, js = stream.Protobuf, stream.JSON
	const of = `"kind":"Service","apiVersion":"v1"`
	for name, test := range map[string]struct {
		e     stream.Encoding
		frame []byte
		want  string
	}{
		"size lies":             {pb, []byte{0xff, 0xff, 0xff, 0xff, 1}, "larger than"},
		"size lies a little":    {pb, []byte{0, 0xf, 0xff, 0xff, 1}, "unexpected EOF"},
		"empty frame":           {pb, protobuf(""), "not Protobuf"},
		"no type":               {pb, event("", typeMeta+metadata(fine)), "type is"},
		"unknown type":          {pb, event("SYNC", typeMeta+metadata(fine)), "type is"},
		"truncated varint":      {pb, protobuf("\x0a\xff\xff\xff"), "malformed"},
		"endless varint":        {pb, protobuf(strings.Repeat("\xff", 30)), "malformed"},
		"length beyond the end": {pb, protobuf("\x0a\x7fADDED"), "malformed"},
		"type as a number":      {pb, protobuf("\x08\x01"), "length-delimited"},
		"a group":               {pb, event("ADDED", typeMeta+field(2, field(1, fine)+"\x1b\x1c")), "group"},
		"deep groups":           {pb, protobuf(strings.Repeat("\x1b", 100000)), "group"},
		"field number 0":        {pb, protobuf("\x02\x00"), "malformed"},
		"no magic":              {pb, protobuf(field(1, "ADDED") + field(2, field(1, "{}"))), "not Protobuf"},
		"no kind":               {pb, event("ADDED", metadata(fine)), "want a kind"},
		"JSON inside":           {pb, added(metadata(fine) + field(4, "application/json")), "want application/vnd"},
		"compressed inside":     {pb, added(metadata(fine) + field(3, "gzip")), "not supported"},
		"no content":            {pb, event("ADDED", typeMeta), "empty"},
		"two types":             {pb, event("ADDED", typeMeta+typeMeta+metadata(fine)), "two types"},
		"no metadata":           {pb, event("ADDED", typeMeta+field(2, field(2, "x"))), "no metadata.name"},
		"no name":               {pb, added(metadata(field(6, "5"))), "no metadata.name"},
		"no revision":           {pb, added(metadata(field(1, "a"))), "no metadata.resourceVersion"},
		"revision 0":            {pb, added(metadata(field(1, "a") + field(6, "0"))), "positive"},
		"revision too large":    {pb, added(metadata(field(1, "a") + field(6, "99999999999999999999"))), "positive"},
		"no number":             {pb, added(metadata(field(1, "a") + field(6, "1x"))), "positive"},
		"name is a path":        {pb, added(metadata(field(1, "../../x") + field(6, "5"))), "its name"},
		"name is ..":            {pb, added(metadata(field(1, "..") + field(6, "5"))), "its name"},
		"namespace is a path":   {pb, added(metadata(field(1, "a") + field(3, "x/y") + field(6, "5"))), "namespace"},
		"name is no text":       {pb, added(metadata(field(1, "a\xff") + field(6, "5"))), "its name"},
		"bookmark of nothing":   {pb, event("BOOKMARK", typeMeta+metadata("")), "bookmark"},
		"error of nothing":      {pb, event("ERROR", typeMeta+metadata(fine)), "cannot be read"},
		"another kind": {
			pb,
			bytesOf(added(metadata(fine)), event("ADDED", field(1, field(1, "v1")+field(2, "Node"))+metadata(fine))),
			"in a stream of",
		},

		"no object at all":    {js, []byte(`{"type":"ADDED"}`), "no object"},
		"null":                {js, object(`null`), "malformed"},
		"an array":            {js, []byte(`[1]`), "should begin"},
		"text":                {js, []byte(`Internal Server Error`), "should begin"},
		"two metadata":        {js, object(`{` + of + `,"metadata":{"name":"a"},"metadata":{}}`), "duplicate field"},
		"two names":           {js, object(`{` + of + `,"metadata":{"name":"a","n\u0061me":"b"}}`), "duplicate field"},
		"two objects":         {js, []byte(`{"type":"ADDED","object":{},"object":{}}`), "duplicate field"},
		"other letters":       {js, object(`{` + of + `,"Metadata":{"name":"a","resourceVersion":"5"}}`), "no metadata.name"},
		"no JSON kind":        {js, object(`{"metadata":{"name":"a","resourceVersion":"5"}}`), "want a kind"},
		"metadata is null":    {js, object(`{` + of + `,"metadata":null}`), "no metadata.name"},
		"metadata is a list":  {js, object(`{` + of + `,"metadata":[]}`), "malformed"},
		"name is null":        {js, object(`{` + of + `,"metadata":{"name":null,"resourceVersion":"5"}}`), "no metadata.name"},
		"name is a number":    {js, object(`{` + of + `,"metadata":{"name":1,"resourceVersion":"5"}}`), "of type string"},
		"revision is number":  {js, object(`{` + of + `,"metadata":{"name":"a","resourceVersion":5}}`), "of type string"},
		"escaped path":        {js, object(`{` + of + `,"metadata":{"name":"a\/b","resourceVersion":"5"}}`), "its name"},
		"brackets mismatched": {js, object(`{` + of + `,"x":[}]}`), "malformed"},
		"comma too many":      {js, object(`{` + of + `,"x":[1,]}`), "malformed"},
		"bad number":          {js, object(`{` + of + `,"x":01}`), "malformed"},
		"bad escape":          {js, object(`{` + of + `,"x":"\x"}`), "malformed"},
		"control character":   {js, object(`{` + of + `,"x":"` + "\n" + `"}`), "malformed"},
		"deep": {
			js, object(`{` + of + `,"x":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}`), "max depth",
		},
		"endless": {js, []byte(`{"type":"` + strings.Repeat("x", 2<<20)), "larger than"},
		"another JSON kind": {
			js,
			bytesOf(object(`{`+of+`,"metadata":{"name":"a","resourceVersion":"5"}}`),
				object(`{"kind":"Service","apiVersion":"v2","metadata":{"name":"a","resourceVersion":"6"}}`)),
			"in a stream of",
		},
		"no encoding": {0, []byte(`{}`), "encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			_, f, err := read(test.e, test.frame)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if !f.Buffered() {
				t.Error("after an error Read must not wait, and Buffered says that it would")
			}
		})
	}
}

// Many frames in one read must be told as there; half of one must not.
func TestBuffered(t *testing.T) {
	for _, e := range encodings {
		one := kubernetesFrame(t, e, watch.Added, service("a", 5))
		in, out := io.Pipe()
		f := stream.NewFrameReader(in, e, 1<<20)
		go func() {
			_, _ = out.Write(bytesOf(one, one, one[:len(one)/2]))
			_, _ = out.Write(one[len(one)/2:])
			_ = out.Close()
		}()
		var got []bool
		for {
			if _, err := f.Read(); err != nil {
				break
			}
			got = append(got, f.Buffered())
		}
		if fmt.Sprint(got) != "[true false false]" {
			t.Errorf("%v: after each of three events, whether more is there: %v, want true, false, false", e, got)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	fine := stream.Type{GroupVersionKind: node("", 0).GroupVersionKind(), Encoding: stream.JSON}
	none := stream.Type{Encoding: stream.JSON}
	for name, err := range map[string]error{
		"no type":            stream.NewFrameWriter(io.Discard, none).Write(stream.Event{Type: stream.Added}),
		"no event type":      stream.NewFrameWriter(io.Discard, fine).Write(stream.Event{}),
		"bookmark of 0":      stream.NewFrameWriter(io.Discard, fine).Write(stream.Event{Type: stream.Bookmark}),
		"list without type":  stream.WriteList(io.Discard, stream.Type{}, metav1.ListMeta{}, sequence()),
		"error, no encoding": stream.NewFrameWriter(io.Discard, stream.Type{}).WriteError(&metav1.Status{}),
	} {
		if err == nil {
			t.Errorf("%s: it is written", name)
		}
	}
}

func TestJSONWithoutKindGetsOne(t *testing.T) {
	of := stream.Type{GroupVersionKind: service("", 0).GroupVersionKind(), Encoding: stream.JSON}
	//nolint:gocritic // the space in a key is what is tested
	for in, want := range map[string]string{
		`{"metadata":{"name":"a"}}`:          `{"kind":"Service","apiVersion":"v1","metadata":{"name":"a"}}`,
		` { "metadata":{},"kind":"Service"}`: `{"apiVersion":"v1", "metadata":{},"kind":"Service"}`,
		`{}`:                                 `{"kind":"Service","apiVersion":"v1"}`,
		`{"apiVersion":"v1","kind":"Service","metadata":{}}`: `{"apiVersion":"v1","kind":"Service","metadata":{}}`,
		`{"kind":"Service","metadata":{},"apiVersion":"v1"}`: `{"kind":"Service","metadata":{},"apiVersion":"v1"}`,
	} {
		if got := string(stream.Envelope(of, []byte(in))); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
		var out bytes.Buffer
		event := stream.Event{Type: stream.Added, Object: stream.Object{Revision: edge.Revision(1), Raw: []byte(in)}}
		if err := stream.NewFrameWriter(&out, of).Write(event); err != nil {
			t.Fatal(err)
		}
		want = `{"type":"ADDED","object":` + strings.ReplaceAll(want, " ", "") + "}\n"
		if got := strings.ReplaceAll(out.String(), " ", ""); got != want {
			t.Errorf("%s is written as %s", in, got)
		}
	}
}
