package lab

import (
	"slices"
	"strings"
	"testing"
)

func TestFullReads(t *testing.T) {
	line := func(stage, verb, resource, uri, code string) string {
		return `{"kind":"Event","stage":"` + stage + `","requestURI":"` + uri + `","verb":"` + verb +
			`","user":{"username":"system:node:p1-n1"},"userAgent":"hub","objectRef":{"resource":"` + resource +
			`"},"responseStatus":{"code":` + code + `},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z"}` + "\n"
	}
	const complete, started, slicesOf = "ResponseComplete", "ResponseStarted", "endpointslices"
	for _, tt := range []struct {
		what  string
		lines []string
		want  []string // verb and URI
	}{
		{"nothing", nil, nil},
		{"a list, whatever its revision", []string{
			line(complete, "list", slicesOf, "/x", "200"), line(complete, "list", slicesOf, "/x?resourceVersion=7", "200"),
		}, []string{"list /x", "list /x?resourceVersion=7"}},
		{"pages count once", []string{
			line(complete, "list", slicesOf, "/x?limit=500", "200"),
			line(complete, "list", slicesOf, "/x?limit=500&continue=abc", "200"),
		}, []string{"list /x?limit=500"}},
		{"a watch that resumes", []string{line(started, "watch", slicesOf, "/x?watch=1&resourceVersion=7", "200")}, nil},
		{"a watch that begins with all", []string{
			line(started, "watch", slicesOf, "/x?watch=1&sendInitialEvents=true&resourceVersion=7", "200"),
			line(started, "watch", slicesOf, "/x?watch=1", "200"),
			line(started, "watch", slicesOf, "/x?watch=1&resourceVersion=0", "200"),
		}, []string{
			"watch /x?watch=1&sendInitialEvents=true&resourceVersion=7", "watch /x?watch=1",
			"watch /x?watch=1&resourceVersion=0",
		}},
		{"a watch without initial events", []string{
			line(started, "watch", slicesOf, "/x?watch=1&sendInitialEvents=false&resourceVersion=0", "200"),
		}, nil},
		{"a watch's end", []string{line(complete, "watch", slicesOf, "/x?watch=1", "200")}, nil},
		{"refused", []string{
			line(complete, "list", slicesOf, "/x", "403"), line(started, "watch", slicesOf, "/x?watch=1", "410"),
		}, nil},
		{"another resource", []string{line(complete, "list", "endpoints", "/x", "200")}, nil},
		{"a get", []string{line(complete, "get", slicesOf, "/x", "200")}, nil},
		{"a line half written", []string{line(complete, "list", slicesOf, "/x", "200"), `{"kind":"endpointslices","st`},
			[]string{"list /x"}},
	} {
		reads, err := fullReads(t.Context(), strings.NewReader(strings.Join(tt.lines, "")), slicesOf)
		if err != nil {
			t.Errorf("%s: %v", tt.what, err)
			continue
		}
		var got []string
		for _, r := range reads {
			got = append(got, r.Verb+" "+r.URI)
			if r.User != "system:node:p1-n1" || r.Agent != "hub" || r.At.Nanosecond() != 6000 {
				t.Errorf("%s: %+v", tt.what, r)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	if _, err := fullReads(t.Context(), strings.NewReader("\"endpointslices\" is not JSON\n"), slicesOf); err == nil {
		t.Error("a broken line is passed over")
	}
}
