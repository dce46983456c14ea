package kit

import "os/exec"

// Kubectls runs kubectl with each list of arguments; each must succeed.
func (t *T) Kubectls(commands [][]string) {
	for _, args := range commands {
		cmd, err := t.Lab.Kubectl(t.Ctx, "cloud", args)
		t.Must(err)
		t.Runs(cmd)
	}
}

// Runs runs a command, which must succeed. If it does not, Runs reports what it printed.
func (t *T) Runs(cmd *exec.Cmd) {
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fail("%v: %w: %s", cmd.Args, err, out)
	}
}
