package plugin

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"rsc.io/qr"

	"yurtcoordinator/internal/edge"
)

// aSecret is of the form that secrets have.
var aSecret = strings.Repeat("aZ9_-", 8) + "aZ9"

// issuing is a coordinator that makes links.
type issuing struct {
	asked
	at   []string
	life string
	code int // 0 means that it makes one
}

func (i *issuing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, r)
	i.life = r.URL.Query().Get(edge.QueryFor)
	link := edge.PageLink{Issuer: "ana\x1b[2J", Until: time.Now().Add(time.Hour)}
	switch {
	case i.code != 0:
		w.WriteHeader(i.code)
		_, _ = io.WriteString(w, `{"message":"there are 16 links already"}`)
	case r.Method == http.MethodPost:
		_ = json.NewEncoder(w).Encode(edge.NewPageLink{PageLink: link, Secret: aSecret, At: i.at})
	default:
		_ = json.NewEncoder(w).Encode(edge.PageLinks{Links: []edge.PageLink{link}})
	}
}

func TestMakeLink(t *testing.T) {
	told := &issuing{at: []string{"192.0.2.7:10272", "[fd00::7]:10272"}}
	access := coordinatorOf(t, told)
	var out bytes.Buffer
	if err := makeLink(t.Context(), &out, access, "p1", 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := told.paths(); got != "POST /links/v1?for=2h0m0s" {
		t.Errorf("asked %q", got)
	}
	for _, want := range []string{
		"https://192.0.2.7:10272/ui/?link=" + aSecret + "\n", "https://[fd00::7]:10272/ui/?link=" + aSecret + "\n", "█▀",
		"kubectl yurt ui p1 --withdraw", "somebody else on the LAN",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not print %q:\n%s", want, out.String())
		}
	}
	// A stand-in's certificate is its own authority.
	if prints := strings.Count(out.String(), ":"); prints < 2*31 || !strings.Contains(out.String(), "the pool authority's ") {
		t.Errorf("two fingerprints are missing:\n%s", out.String())
	}

	told.at = []string{":10272"}
	out.Reset()
	if err := makeLink(t.Context(), &out, access, "p1", time.Hour); err != nil ||
		!strings.Contains(out.String(), "https://127.0.0.1:10272/ui/?link=") {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, lie := range [][]string{nil, {"nowhere"}, {"\x1b[2J:1"}, {"evil.example:10272"}} {
		told.at = lie
		out.Reset()
		if err := makeLink(t.Context(), &out, access, "p1", time.Hour); err == nil || out.Len() > 0 {
			t.Errorf("a coordinator that is at %q: %v, %q", lie, err, out.String())
		}
	}
	told.code = http.StatusConflict
	err := makeLink(t.Context(), &out, access, "p1", time.Hour)
	if err == nil || !strings.Contains(err.Error(), "16 links already") {
		t.Errorf("%v", err)
	}
}

func TestWithdrawLinks(t *testing.T) {
	told := &issuing{}
	var out bytes.Buffer
	if err := withdrawLinks(t.Context(), Visible(&out), coordinatorOf(t, told), "p1"); err != nil {
		t.Fatal(err)
	}
	if got := told.paths(); got != "DELETE /links/v1" ||
		!strings.HasPrefix(out.String(), "1 link to the page of pool p1 withdrawn\n") ||
		!strings.Contains(out.String(), `of ana\x1b[2J, until`) {
		t.Errorf("asked %q, printed %q", got, out.String())
	}
}

// TestDrawn reads the drawing back, in both ways, and compares each module.
func TestDrawn(t *testing.T) {
	code, err := qr.Encode("https://192.0.2.7:10272/ui/?link="+aSecret, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	for _, colour := range []bool{true, false} {
		drawing := drawn(code.Size, code.Black, colour)
		drawing = strings.ReplaceAll(strings.ReplaceAll(drawing, paper, ""), reset, "")
		lines := strings.Split(strings.TrimSuffix(drawing, "\n"), "\n")
		if len(lines) != (code.Size+2*quiet+1)/2 {
			t.Fatalf("%d lines for %d modules", len(lines), code.Size)
		}
		for row, line := range lines {
			for column, r := range []rune(line) {
				inked := map[rune][2]bool{'█': {true, true}, '▀': {true, false}, '▄': {false, true}, ' ': {}}[r]
				for half, ink := range inked {
					x, y := column-quiet, 2*row+half-quiet
					black := x >= 0 && y >= 0 && x < code.Size && y < code.Size && code.Black(x, y)
					if black != (ink == colour) {
						t.Fatalf("colour %t: module %d, %d is wrong", colour, x, y)
					}
				}
			}
		}
	}
}

func TestFlagsOfLinksAndViewers(t *testing.T) {
	for line, want := range map[string]string{
		"ui p1 --for=2h": "give --link, too", "ui p1 --link --for=25h": "24h0m0s at most", "ui p1 --link --for=0s": "1s at least",
		"ui p1 --link --withdraw": "none of the others can be", "ui p1 --link --port=1": "none of the others can be",
		"ui p1 --withdraw --for=1h": "none of",
		"kubeconfig p1 --for=2h":    "give --view, too", "kubeconfig p1 --view --for=169h": "168h0m0s at most",
		"kubeconfig p1 --view --for=9m": "10m0s at least",
	} {
		cmd := New(io.Discard, io.Discard)
		cmd.SetArgs(strings.Fields(line))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
