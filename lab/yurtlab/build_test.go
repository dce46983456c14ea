package yurtlab

import (
	"strings"
	"testing"
)

// What is printed is put into variables by scripts: a word that is not known must not print anything.
func TestBuildPrintRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, set := range []string{"containers", "kubernets"} {
		var out strings.Builder
		cmd := New()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"build", "--print", set})
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "kubernetes, programs, helm") || out.Len() > 0 {
			t.Errorf("--print %s: %v, printed %q", set, err, out.String())
		}
	}
}
