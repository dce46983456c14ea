package kit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
)

// StartInside starts a command of yurtlab on a machine's network, and gives it an order, as a line of JSON.
func (t *T) StartInside(machine, command string, order any) (cmd *exec.Cmd, in io.WriteCloser, out io.Reader) {
	self, err := os.Executable()
	t.Must(err)
	cmd, err = t.Lab.Inside(t.Ctx, machine, self, command)
	t.Must(err)
	complaints := &bytes.Buffer{}
	cmd.Stderr = complaints
	in, err = cmd.StdinPipe()
	t.Must(err)
	out, err = cmd.StdoutPipe()
	t.Must(err)
	t.Must(cmd.Start())
	if err := json.NewEncoder(in).Encode(order); err != nil {
		t.Fail("%s on %s: %w", command, machine, errors.Join(err, cmd.Wait(), errors.New(complaints.String())))
	}
	return cmd, in, out
}
