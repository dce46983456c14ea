package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"yurtcoordinator/lab/machine"
)

// outputComponent is the name of the programs that Output starts.
const outputComponent Component = "output"

// Output runs a program of the host in a node's machine and returns all that it prints, also on standard error. The program
// must end by itself, with success. A node runs one such program at a time.
func (l *Lab) Output(ctx context.Context, name string, argv []string) (string, error) {
	h, n, err := l.host(name)
	if err != nil {
		return "", err
	}
	if len(argv) == 0 {
		return "", errors.New("no program to run")
	}
	log := n.log(outputComponent)
	if err := os.Remove(log); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	err = l.order(ctx, Start, h, outputComponent, func(ctx context.Context, m *machine.Machine) error {
		return m.Start(ctx, machine.Command{Name: string(outputComponent), Argv: argv, Log: log, MustEnd: true})
	})
	printed, readErr := os.ReadFile(log)
	if err != nil {
		return string(printed), fmt.Errorf("%s: %w", argv[0], err)
	}
	return string(printed), readErr
}
