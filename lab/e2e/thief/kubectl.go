package thief

import (
	"context"
	"fmt"
	"strings"
	"time"

	"yurtcoordinator/lab/e2e/kit"
)

// commandTimeout bounds a run of kubectl that is expected to end.
const commandTimeout = 30 * time.Second

// inCloud and onSite are the servers that kubectl asks: the cloud as its administrator, and the pool's coordinator as its
// operators.
const inCloud, onSite = "cloud", "coordinator/p1"

// kubectl runs kubectl to its end. It returns its whole output, and how it ended if not with success.
func kubectl(t *kit.T, via, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Ctx, commandTimeout)
	defer cancel()
	cmd, err := t.Lab.Kubectl(ctx, via, args)
	t.Must(err)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %v: %w", commandTimeout, context.Cause(ctx))
	}
	return string(out), err
}

// kubectlMust is kubectl as the cloud's administrator, for a command that must succeed.
func kubectlMust(t *kit.T, stdin string, args ...string) string {
	out, err := kubectl(t, inCloud, stdin, args...)
	if err != nil {
		t.Fail("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return out
}
