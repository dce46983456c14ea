package machinery

import (
	"encoding/json"
	"reflect"
	"testing"
)

func object(t *testing.T, text string) Object {
	t.Helper()
	var o Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestCanonical(t *testing.T) {
	const uidA, uidB = "11111111-2222-3333-4444-555555555555", "aaaaaaaa-2222-3333-4444-555555555555"
	for _, tc := range []struct{ name, in, want string }{
		{"names of this run", `{"metadata":{"namespace":"ns-x","annotations":{"ns-x.g":"in ns-x"}}}`,
			`{"metadata":{"namespace":"NS","annotations":{"NS.g":"in NS"}}}`},
		{"the longer name first", `{"a":"ns-x-more ns-x"}`, `{"a":"MORE NS"}`},
		{"uids, by who is seen first", `{"a":"` + uidB + `","b":["` + uidA + `","of ` + uidB + `"]}`,
			`{"a":"uid-1","b":["uid-2","of uid-1"]}`},
		{"times", `{"a":"2026-01-02T03:04:05Z","b":"at 2026-01-02T03:04:05.123456Z"}`, `{"a":"TIME","b":"at TIME"}`},
		{"ages alone in a string", `{"a":["5s","2m3s","5sx","s"]}`, `{"a":["AGE","AGE","5sx","s"]}`},
		{"service addresses", `{"a":"10.96.3.4","b":"10.96.3.5, 10.96.3.4","c":"192.0.2.1"}`,
			`{"a":"service-ip-1","b":"service-ip-2, service-ip-1","c":"192.0.2.1"}`},
		{"versions of objects", `{"items":[{"metadata":{"resourceVersion":"9"}},{"metadata":{"resourceVersion":"7"}}],` +
			`"metadata":{"resourceVersion":"9"}}`,
			`{"items":[{"metadata":{"resourceVersion":"version-1"}},{"metadata":{"resourceVersion":"version-2"}}],` +
				`"metadata":{"resourceVersion":"some"}}`},
		{"an empty list's", `{"kind":"XList","metadata":{"resourceVersion":"9"}}`,
			`{"kind":"XList","metadata":{"resourceVersion":"some"}}`},
		{"a table's", `{"kind":"Table","metadata":{"resourceVersion":"9"}}`,
			`{"kind":"Table","metadata":{"resourceVersion":"some"}}`},
		{"a bookmark's", `{"type":"BOOKMARK","object":{"kind":"X","metadata":{"resourceVersion":"9"}}}`,
			`{"type":"BOOKMARK","object":{"kind":"X","metadata":{"resourceVersion":"some"}}}`},
		{"an event's", `{"type":"ADDED","object":{"kind":"X","metadata":{"resourceVersion":"9"}}}`,
			`{"type":"ADDED","object":{"kind":"X","metadata":{"resourceVersion":"version-1"}}}`},
		{"no version", `{"metadata":{"resourceVersion":""}}`, `{"metadata":{"resourceVersion":""}}`},
		{"a token", `{"metadata":{"continue":"abc"}}`, `{"metadata":{"continue":"token"}}`},
		{"no token", `{"metadata":{"continue":""}}`, `{"metadata":{"continue":""}}`},
		{"managed fields in any order", `{"managedFields":[{"manager":"b"},{"manager":"a"}],"other":[2,1]}`,
			`{"managedFields":[{"manager":"a"},{"manager":"b"}],"other":[2,1]}`},
		{"numbers in messages only", `{"message":"too old: 12 (345)","reason":"12"}`,
			`{"message":"too old: N (N)","reason":"12"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := Transcript{Aliases: map[string]string{"ns-x": "NS", "ns-x-more": "MORE"}}
			if err := tr.add("step", object(t, tc.in)); err != nil {
				t.Fatal(err)
			}
			if got := tr.Canonical(); !reflect.DeepEqual(got, []Step{{"step", object(t, tc.want)}}) {
				t.Errorf("%s", short(got))
			}
		})
	}
}

// TestCanonicalAcrossSteps: a name means the same in all steps, and a value of another run gets the same name.
func TestCanonicalAcrossSteps(t *testing.T) {
	run := func(namespace, first, second string) []Step {
		tr := Transcript{Aliases: map[string]string{namespace: "NS"}}
		for _, version := range []string{first, second, first} {
			o := Object{"metadata": Object{"resourceVersion": version, "namespace": namespace}}
			if err := tr.add("get "+namespace, o); err != nil {
				t.Fatal(err)
			}
		}
		return tr.Canonical()
	}
	a, b := run("one", "5", "9"), run("two", "1200", "1300")
	if all := Compare("c", a, b); len(all) != 0 {
		t.Errorf("%v", all)
	}
	if all := Compare("c", a, run("two", "5", "5")); len(all) != 1 {
		t.Errorf("a version that is another one's: %v", all)
	}
	if a[0].Name != "get NS" || a[2].Name != "get NS (3)" {
		t.Errorf("%v", a)
	}
}

func TestAddRefuses(t *testing.T) {
	var tr Transcript
	if err := tr.add("step", func() {}); err == nil {
		t.Error("a function is no JSON")
	}
}

func TestPrinted(t *testing.T) {
	got := printed("NAME   AGE\none    5s\n\n  resourceVersion: \"4\"\n--- /tmp/a\t2026\n")
	want := [][]string{{"NAME", "AGE"}, {"one", "5s"}, {}, {"diff"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}
