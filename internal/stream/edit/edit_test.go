package edit

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestNumbersAreThoseOfTheTypes that Kubernetes' own messages are generated from.
func TestNumbersAreThoseOfTheTypes(t *testing.T) {
	for _, c := range []struct {
		of    any
		field string
		want  Number
	}{
		{corev1.Pod{}, "ObjectMeta", Metadata},
		{corev1.Pod{}, "Status", Status},
		{corev1.Node{}, "Status", Status},
		{corev1.PodList{}, "ListMeta", Metadata},
		{corev1.PodList{}, "Items", Items},
		{metav1.PartialObjectMetadata{}, "ObjectMeta", Metadata},
		{metav1.ObjectMeta{}, "Name", Name},
		{metav1.ObjectMeta{}, "Namespace", Namespace},
		{metav1.ObjectMeta{}, "ResourceVersion", ResourceVersion},
		{metav1.ObjectMeta{}, "Labels", Labels},
		{metav1.ObjectMeta{}, "Annotations", Annotations},
		{runtime.Unknown{}, "TypeMeta", UnknownTypeMeta},
		{runtime.Unknown{}, "Raw", UnknownRaw},
		{runtime.Unknown{}, "ContentEncoding", UnknownContentEncoding},
		{runtime.Unknown{}, "ContentType", UnknownContentType},
		{runtime.TypeMeta{}, "APIVersion", TypeMetaAPIVersion},
		{runtime.TypeMeta{}, "Kind", TypeMetaKind},
		{metav1.WatchEvent{}, "Type", WatchEventType},
		{metav1.WatchEvent{}, "Object", WatchEventObject},
		{runtime.RawExtension{}, "Raw", RawExtensionRaw},
		{corev1.ConfigMap{}, "ObjectMeta", Metadata},
		{corev1.ConfigMap{}, "Data", ConfigMapData},
		{discoveryv1.EndpointSlice{}, "ObjectMeta", Metadata},
		{discoveryv1.EndpointSlice{}, "Endpoints", SliceEndpoints},
		{discoveryv1.Endpoint{}, "Addresses", EndpointAddresses},
		{discoveryv1.Endpoint{}, "Conditions", EndpointConditions},
		{discoveryv1.Endpoint{}, "TargetRef", EndpointTargetRef},
		{discoveryv1.Endpoint{}, "NodeName", EndpointNodeName},
		{discoveryv1.EndpointConditions{}, "Ready", ConditionReady},
		{discoveryv1.EndpointConditions{}, "Serving", ConditionServing},
		{discoveryv1.EndpointConditions{}, "Terminating", ConditionTerminating},
		{corev1.Endpoints{}, "Subsets", EndpointsSubsets},
		{corev1.EndpointSubset{}, "Addresses", SubsetReady},
		{corev1.EndpointSubset{}, "NotReadyAddresses", SubsetNotReady},
		{corev1.EndpointAddress{}, "IP", AddressIP},
		{corev1.EndpointAddress{}, "TargetRef", AddressTargetRef},
		{corev1.EndpointAddress{}, "NodeName", AddressNodeName},
		{corev1.ObjectReference{}, "Kind", ReferenceKind},
		{corev1.ObjectReference{}, "Namespace", ReferenceNamespace},
		{corev1.ObjectReference{}, "Name", ReferenceName},
		{corev1.ObjectReference{}, "UID", ReferenceUID},
	} {
		typ := reflect.TypeOf(c.of)
		f, ok := typ.FieldByName(c.field)
		if parts := strings.Split(f.Tag.Get("protobuf"), ","); !ok || len(parts) < 2 || parts[1] != fmt.Sprint(c.want) {
			t.Errorf("%s.%s is field %q, want %d", typ, c.field, f.Tag.Get("protobuf"), c.want)
		}
	}
	// An entry of a map has no type of its own.
	raw, err := (&metav1.ObjectMeta{Labels: map[string]string{"k": "v"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	labels, err := Only(raw, Labels)
	if want := Append(Append(nil, MapKey, "k"), MapValue, "v"); err != nil || !bytes.Equal(labels.Value, want) {
		t.Errorf("an entry is %q, %v, want %q", labels.Value, err, want)
	}
}

// future is a field that no type has, with another behind it that is no text.
var future = protowire.AppendVarint(protowire.AppendTag(Append(nil, 99, "of the future"), 100, protowire.VarintType), 7)

// hostile messages are refused by whoever reads or changes them.
var hostile = map[string]string{
	"a tag that is cut":       "\x0a\x01a\xff",
	"an endless tag":          strings.Repeat("\xff", 30),
	"a field without a value": "\x0a\x01a\x0a",
	"a length that lies":      "\x0a\x7fa",
	"a huge length":           "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
	"a negative length":       "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	"field 0":                 "\x02\x00",
	"a number that is cut":    "\x0a\x01a\x10\x80",
	"a fixed32 that is cut":   "\x0a\x01a\x15abc",
	"a fixed64 that is cut":   "\x0a\x01a\x11abcdefg",
	"a group":                 "\x0a\x01a\x13\x14",
	"the end of a group":      "\x14",
}

func TestHostileMessagesAreRefused(t *testing.T) {
	same := func(f Field) ([]byte, error) { return f.Value, nil }
	for name, message := range hostile {
		raw := []byte(message)
		var last error
		for _, last = range Fields(raw) {
		}
		if last == nil {
			t.Errorf("%s: Fields gives no error", name)
		}
		if _, err := Only(raw, 1); err == nil {
			t.Errorf("%s: Only gives no error", name)
		}
		if out, err := Set(raw, 1, nil); err == nil {
			t.Errorf("%s: Set makes %q of it", name, out)
		}
		if out, err := Change(raw, same, 1); err == nil {
			t.Errorf("%s: Change makes %q of it", name, out)
		}
		last = nil
		for _, last = range Inside(Append(nil, 1, raw), 1) {
		}
		if last == nil {
			t.Errorf("%s: Inside gives no error", name)
		}
	}
	number := []byte("\x08\x01") // field 1, and not length-delimited
	if _, err := Only(number, 1); err == nil {
		t.Error("a number is a message")
	}
	if _, err := Change(number, same, 1); err == nil {
		t.Error("a number is changed")
	}
	if out, err := Set(number, 1, []byte("a")); err != nil || string(out) != "\x0a\x01a" {
		t.Errorf("a number that is set becomes %q, %v", out, err)
	}
}

func TestRepeatedFields(t *testing.T) {
	twice := slices.Concat(Append(nil, 1, Append(nil, 3, "a")), future, Append(nil, 1, Append(nil, 3, "b")))
	if _, err := Only(twice, 1); err == nil {
		t.Error("one of two is the only one")
	}
	if _, err := Only(future, 1); err == nil {
		t.Error("a field is there that is not")
	}
	var merged []string
	for f, err := range Inside(twice, 1) {
		if err != nil {
			t.Fatal(err)
		}
		merged = append(merged, string(f.Value))
	}
	if !slices.Equal(merged, []string{"a", "b"}) {
		t.Errorf("inside of both there is %q", merged)
	}
	out, err := Set(twice, 1, []byte("x"))
	if want := slices.Concat(Append(nil, 1, "x"), future); err != nil || !bytes.Equal(out, want) {
		t.Errorf("set: %q, %v, want %q", out, err, want)
	}
	out, err = Set(future, 1, []byte("x"))
	if want := slices.Concat(future, Append(nil, 1, "x")); err != nil || !bytes.Equal(out, want) {
		t.Errorf("set where none was: %q, %v, want %q", out, err, want)
	}
}

func TestChange(t *testing.T) {
	message := slices.Concat(Append(nil, 1, "a"), future, Append(nil, 2, "long"), Append(nil, 1, "b"), Append(nil, 3, "a"))
	out, err := Change(message, func(f Field) ([]byte, error) {
		switch string(f.Value) {
		case "a":
			return nil, nil
		case "b":
			return f.Value, nil
		default:
			return []byte{}, nil
		}
	}, 1, 2)
	want := slices.Concat(future, Append(nil, 2, ""), Append(nil, 1, "b"), Append(nil, 3, "a"))
	if err != nil || !bytes.Equal(out, want) {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
	_, err = Change(message, func(Field) ([]byte, error) { return nil, fmt.Errorf("no") }, 3)
	if err == nil {
		t.Error("an error is lost")
	}
}

func TestCovers(t *testing.T) {
	inner := Append(Append(nil, 1, "a"), 2, "b")
	message := Append(Append(Append(nil, 3, inner), 4, "text"), 3, "")
	number := func(n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, 100, protowire.VarintType), n)
	}
	for name, c := range map[string]struct {
		message, part []byte
		want          bool
	}{
		"itself":                       {message, message, true},
		"nothing":                      {message, nil, true},
		"a field less":                 {message, Append(Append(nil, 3, inner), 4, "text"), true},
		"a field more":                 {message, slices.Concat(message, future), false},
		"a field less inside":          {message, Append(nil, 3, Append(nil, 1, "a")), true},
		"another order of numbers":     {message, Append(Append(nil, 4, "text"), 3, inner), true},
		"a field more inside":          {message, Append(nil, 3, slices.Concat(inner, future)), false},
		"another text":                 {message, Append(nil, 4, "tent"), false},
		"one more of a repeated one":   {message, slices.Concat(message, Append(nil, 3, "")), false},
		"another number's value":       {number(7), number(8), false},
		"what can't be read of a part": {message, []byte("\x1a\x7f"), false},
	} {
		if got := Covers(c.message, c.part); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// FuzzEdit: whatever can be read is made of its fields; a change of one leaves the others byte for byte.
func FuzzEdit(f *testing.F) {
	pod, err := (&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "x", ResourceVersion: "5", Labels: map[string]string{"k": "v"}},
		Spec:       corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pod, uint8(Status), []byte("other"))
	f.Add(slices.Concat(pod, future, pod), uint8(Metadata), []byte{})
	for _, message := range hostile {
		f.Add([]byte(message), uint8(1), []byte("x"))
	}
	f.Fuzz(func(t *testing.T, raw []byte, n uint8, value []byte) {
		number, given := Number(n)+1, bytes.Clone(raw)
		all, err := collect(raw)
		out, setErr := Set(raw, number, value)
		same, changeErr := Change(raw, func(f Field) ([]byte, error) { return f.Value, nil }, number)
		if !bytes.Equal(raw, given) {
			t.Fatal("what was given has changed")
		}
		if (err == nil) != (setErr == nil) || err != nil && changeErr == nil {
			t.Fatalf("read: %v, set: %v, changed: %v", err, setErr, changeErr)
		}
		if err != nil {
			return
		}
		if more := Append(bytes.Clone(raw), number, value); !Covers(more, raw) || Covers(raw, more) {
			t.Fatalf("%q and %q: which has more?", raw, more)
		}
		if changeErr == nil && !bytes.Equal(same, raw) {
			t.Fatalf("%q changed to itself is %q", raw, same)
		}
		only, err := Only(out, number)
		if err != nil || !bytes.Equal(only.Value, value) {
			t.Fatalf("set to %q it is %q, %v", value, only.Value, err)
		}
		after, err := collect(out)
		is := func(f Field) bool { return f.Number == number }
		others := func(a []Field) []Field { return slices.DeleteFunc(slices.Clone(a), is) }
		if err != nil || !reflect.DeepEqual(others(after), others(all)) {
			t.Fatalf("%v: the other fields of %q became those of %q", err, raw, out)
		}
	})
}

// collect reads all fields of a message, which must make it up.
func collect(raw []byte) (all []Field, err error) {
	var whole []byte
	for f, err := range Fields(raw) {
		if err != nil {
			return nil, err
		}
		all, whole = append(all, f), append(whole, f.Raw...)
	}
	if !bytes.Equal(whole, raw) {
		return nil, fmt.Errorf("%q has the fields of %q", raw, whole)
	}
	return all, nil
}
