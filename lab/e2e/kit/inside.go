package kit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// Play runs a command of yurtlab on a machine's network, gives it an order, and waits until it is ready. The returned function
// ends it, and returns its report.
func Play[Report any](t *T, machine, command string, order any) (end func() Report) {
	self, err := os.Executable()
	t.Must(err)
	cmd, err := t.Lab.Inside(t.Ctx, machine, self, command)
	t.Must(err)
	complaints := &bytes.Buffer{}
	cmd.Stderr = complaints
	in, err := cmd.StdinPipe()
	t.Must(err)
	out, err := cmd.StdoutPipe()
	t.Must(err)
	t.Must(cmd.Start())
	failed := func(errs ...error) {
		if err := errors.Join(errs...); err != nil {
			t.Fail("%s on %s: %w: %s", command, machine, err, complaints)
		}
	}
	err = json.NewEncoder(in).Encode(order)
	if _, ready := io.ReadFull(out, make([]byte, 1)); err != nil || ready != nil { // it writes an empty line
		failed(err, ready, in.Close(), cmd.Wait())
	}
	return func() (r Report) {
		failed(in.Close(), json.NewDecoder(out).Decode(&r), cmd.Wait())
		return r
	}
}
