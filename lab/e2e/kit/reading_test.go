package kit

import (
	"reflect"
	"testing"

	"yurtcoordinator/internal/pages"
)

func step(page, text string) pages.Step { return pages.Step{Page: page, Text: text} }

func TestReadingCovers(t *testing.T) {
	r := Reading{Page: "a.md", Only: []string{"kubectl get", "helm"}, But: []string{"kubectl get secrets"}}
	for s, want := range map[pages.Step]bool{
		step("a.md", "kubectl get pods"): true, step("a.md", "helm test"): true, step("b.md", "helm test"): false,
		step("a.md", "kubectl get secrets -A"): false, step("a.md", "kubectl delete pod x"): false,
	} {
		if r.Covers(s) != want {
			t.Errorf("%+v is covered: %t, want %t", s, !want, want)
		}
	}
	if all := (Reading{Page: "a.md"}); !all.Covers(step("a.md", "anything")) {
		t.Error("a reading of a whole page leaves something out")
	}
}

func TestReadingStale(t *testing.T) {
	page := []pages.Step{step("a.md", "kubectl get pods"), step("b.md", "helm test")}
	r := Reading{
		Page: "a.md", Only: []string{"kubectl", "helm"}, But: []string{"make"},
		Notes: []Note{{Begins: "kubectl get pods"}, {}, {Begins: "curl"}},
	}
	if got, want := r.Stale(page), []string{"helm", "make", "curl"}; !reflect.DeepEqual(got, want) {
		t.Errorf("stale are %q, want %q", got, want)
	}
}

func TestReadingCommand(t *testing.T) {
	r := Reading{
		Page: "a.md", Instead: []string{"NODE", "n1"},
		Notes: []Note{{Prints: "all"}, {Begins: "kubectl get", Instead: []string{"NODE", "cloud"}, Prints: "one"}},
	}
	words := []string{"hangzhou", "p1", "NODE", "never"}
	for text, want := range map[string][2]string{
		"kubectl get NODE hangzhou": {"kubectl get cloud p1", "one"}, "kubectl why NODE": {"kubectl why n1", "all"},
	} {
		s := step("a.md", text)
		if got := [2]string{r.command(s, words), r.note(s).Prints}; got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestHeadersMissing(t *testing.T) {
	const shown = "POOL   READY\np1     3/3\n\nNODE SINCE  SAYS\n1 2 3\nALONE\n"
	for printed, want := range map[string]string{
		"POOL READY\np9 1/1\nNODE   SINCE SAYS\n": "", "POOL READY\n": "NODE SINCE  SAYS", "": "POOL   READY",
		"POOL READY MORE\nNODE SINCE SAYS\n": "POOL   READY",
	} {
		if got := headersMissing(shown, printed); got != want {
			t.Errorf("%q: %q is missing, want %q", printed, got, want)
		}
	}
}

func TestNoteJudges(t *testing.T) {
	for _, c := range []struct {
		prints, printed string
		well            bool
	}{
		{"", "", true}, {"(?m)^ok ", "fail x\nok y", true}, {"ok", "no", false}, {"(", "(", false},
	} {
		if err := (Note{Prints: c.prints}).judge(c.printed); (err == nil) != c.well {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestWrittenIsEnoughOnce(t *testing.T) {
	n := 0
	w := &written{is: func(s string) bool { return s == "ab" }, enough: func() { n++ }}
	for _, s := range []string{"a", "b", "", "c"} {
		if _, err := w.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 || w.String() != "abc" {
		t.Errorf("it was enough %d times, and %q is written", n, w)
	}
}
