package edge

import (
	"maps"
	"strings"
	"testing"
)

func TestKubeletServing(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	for value, want := range map[string]KubeletServing{
		"pinned/" + digest:  {KubeletPinned, digest},
		"signed/" + digest:  {KubeletSigned, digest},
		"overdue/" + digest: {KubeletOverdue, digest},
		"unapproved":        {KubeletUnapproved, ""},
		"ended":             {KubeletEnded, ""},
		"missing":           {KubeletMissing, ""},
		"unreadable":        {KubeletUnreadable, ""},
	} {
		if got, ok := ParseKubeletServing(value); !ok || got != want || got.String() != value {
			t.Errorf("%q: %+v, %t, %q", value, got, ok, got)
		}
	}
	for _, value := range []string{
		"", "pinned", "pinned/", "pinned/" + digest[1:], "pinned/" + strings.ToUpper(digest), "missing/" + digest, "overdue",
		"missing/", "other", "other/" + digest, "pinned/" + digest + "/", " pinned/" + digest,
	} {
		if got, ok := ParseKubeletServing(value); ok {
			t.Errorf("%q: %+v", value, got)
		}
	}
}

func TestKubeletsOfAPool(t *testing.T) {
	all := map[NodeName]KubeletWay{"n2": KubeletSigned, "n1": KubeletPinned, "n10": KubeletMissing}
	text := JoinKubelets(all)
	if want := "n10=missing,n1=pinned,n2=signed"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
	if got := SplitKubelets(text); !maps.Equal(got, all) {
		t.Errorf("%v, want %v", got, all)
	}
	if got := SplitKubelets("n1,=pinned,n2=whatever,n3=signed"); !maps.Equal(got, map[NodeName]KubeletWay{"n3": KubeletSigned}) {
		t.Errorf("%v of what nobody wrote", got)
	}
	if got := SplitKubelets(""); len(got) != 0 {
		t.Errorf("%v of nothing", got)
	}
}
