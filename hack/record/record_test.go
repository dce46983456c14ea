package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestThePictureIsOfTheRecording holds the README's picture to what was recorded.
func TestThePictureIsOfTheRecording(t *testing.T) {
	recording, err := os.ReadFile("../../docs/img/cut.json")
	if err != nil {
		t.Fatal(err)
	}
	want, err := draw(recording)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docs/img/cut.svg")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/img/cut.svg is not what docs/img/cut.json makes: go generate ./hack/record")
	}
}

// TestTheRecordingIsOfTheScript: the recording has the script's commands, in their order.
func TestTheRecordingIsOfTheScript(t *testing.T) {
	script, err := os.ReadFile("../../docs/img/cut.session")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := parse(string(script))
	if err != nil {
		t.Fatal(err)
	}
	recording, err := os.ReadFile("../../docs/img/cut.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if s.kind != command {
			continue
		}
		// JSON escapes some of what a command may have.
		line := `"command": ` + strings.TrimSpace(quoted(t, s.text))
		_, after, found := bytes.Cut(recording, []byte(line))
		if !found {
			t.Fatalf("docs/img/cut.json has no %s where the script has it: make recording", line)
		}
		recording = after
	}
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	made, err := encode(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(made)
}

func TestParse(t *testing.T) {
	steps, err := parse("= T\n! s\n> d\n\n# n\n? 5s w x\n$ c\n---\n")
	want := []step{
		{kind: title, text: "T"}, {kind: setup, text: "s"}, {kind: define, text: "d"}, {kind: note, text: "n"},
		{kind: wait, text: "w x", limit: 5 * time.Second}, {kind: command, text: "c"}, {kind: empty},
	}
	if err != nil || !reflect.DeepEqual(steps, want) {
		t.Errorf("got %+v, %v; want %+v", steps, err, want)
	}
	for _, bad := range []string{"kubectl get nodes", "$", "? soon true", "? 5s"} {
		if steps, err := parse(bad); err == nil {
			t.Errorf("%q: got %+v, want an error", bad, steps)
		}
	}
}

// actor answers from a table.
type actor struct {
	ran    []string
	prints map[string]string
}

func (a *actor) run(_ context.Context, command string) (string, error) {
	a.ran = append(a.ran, command)
	out, known := a.prints[command]
	if !known {
		return "no", errors.New("exit status 1")
	}
	return out, nil
}

func (a *actor) until(ctx context.Context, command string, _ time.Duration) (time.Duration, error) {
	_, err := a.run(ctx, command)
	return 1500 * time.Millisecond, err
}

func TestPlay(t *testing.T) {
	steps, err := parse("= T\n> d\n! s\n# n\n? 9s w\n$ c\n---\n$ e\n")
	if err != nil {
		t.Fatal(err)
	}
	a := &actor{prints: map[string]string{"d\ns": "", "d\nw": "", "d\nc": "1\n2\n", "d\ne": ""}}
	got, err := play(t.Context(), steps, a)
	want := session{Title: "T", Entries: []entry{
		{Note: "n"}, {Command: "c", Output: "1\n2", Waited: 1.5}, {Command: "e", Clear: true},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if want := []string{"d\ns", "d\nw", "d\nc", "d\ne"}; !reflect.DeepEqual(a.ran, want) {
		t.Errorf("ran %q, want %q", a.ran, want)
	}
	delete(a.prints, "d\nc")
	if _, err := play(t.Context(), steps, a); err == nil || !strings.Contains(err.Error(), "c: exit status 1: no") {
		t.Errorf("a command that fails: %v, want its name and what it said", err)
	}
}

func TestShell(t *testing.T) {
	s := shell{io.Discard}
	if out, err := s.run(t.Context(), "echo a; echo b >&2"); err != nil || out != "a\nb\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if out, err := s.run(t.Context(), "echo a; false; true"); err == nil {
		t.Errorf("a command that fails in the middle: %q, want an error", out)
	}
	if _, err := s.until(t.Context(), "true", time.Hour); err != nil {
		t.Error(err)
	}
	if _, err := s.until(t.Context(), "false", time.Millisecond); err == nil || !strings.Contains(err.Error(), "in time") {
		t.Errorf("what never comes: %v", err)
	}
}

func TestPicture(t *testing.T) {
	long := strings.Repeat("word ", 40) + strings.Repeat("x", 200)
	s := session{Title: "a <title>", Entries: []entry{
		{Note: "first"}, {Command: "c1", Output: "NODE    STATUS\nn1      NotReady  <&>\n" + long},
		{Command: "c2", Clear: true, Waited: 12.3}, {Note: "end"},
	}}
	made, err := picture(s)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(made))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("it is no XML: %v", err)
		}
	}
	for _, want := range []string{"# first", "$ c1", ">NotReady</text>", "&lt;&amp;&gt;", "… 12 s later", "a &lt;title&gt;"} {
		if !bytes.Contains(made, []byte(want)) {
			t.Errorf("the picture lacks %s", want)
		}
	}
	rows, most, length := layOut(s)
	for i, r := range rows {
		if r.line >= most || r.from >= r.till || r.till > length || len([]rune(r.text)) > mostColumns {
			t.Errorf("row %+v: it is not on the screen of %d lines and %.1f s", r, most, length)
		}
		for _, other := range rows[:i] {
			if other.line == r.line && other.from < r.till && r.from < other.till {
				t.Errorf("%+v and %+v stand in one place", other, r)
			}
		}
	}
	if _, err := picture(session{}); err == nil {
		t.Error("a session of nothing is drawn")
	}
	if _, err := draw([]byte(`{"surprise":1}`)); err == nil {
		t.Error("a recording of another form is drawn")
	}
}
